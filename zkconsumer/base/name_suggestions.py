"""Suggests a known name for a misspelled one.  Pure."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def did_you_mean(name: str, known: Collection[str]) -> str:
    """`` (did you mean NAME?)`` with the known name that is most similar to ``name``; empty if none is similar."""
    near = get_close_matches(name, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""
