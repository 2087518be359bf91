"""The known name that a wrong one was probably meant to be.  Pure."""

from __future__ import annotations

from collections.abc import Collection
from difflib import get_close_matches


def did_you_mean(name: str, known: Collection[str]) -> str:
    """`` (did you mean NAME?)`` with the known name that is nearest to a wrong one; empty if none is near."""
    near = get_close_matches(name, known, 1)
    return f" (did you mean {near[0]}?)" if near else ""
