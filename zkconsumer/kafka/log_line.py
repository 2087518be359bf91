"""The text of a log line: ``event-name: sentence key=value …``, or without the sentence.  Pure."""

from __future__ import annotations

from collections.abc import Iterable


def log_line(name: str, sentence: str, fields: Iterable[str]) -> str:
    """The line, without control characters: other programs choose a part of its values.

    ``sentence``: "" if there is none.  ``fields``: texts ``key=value``.
    """
    beginning = f"{name}: {sentence}" if sentence else name
    text = " ".join((beginning, *fields))
    return text if text.isprintable() else "".join(one if one.isprintable() else ascii(one)[1:-1] for one in text)
