"""``ClientLogEvent``: one log line of a pure part of the client.  Pure.

The pure parts (``net``, ``metadata``, ``fetch``, ``group``) log nothing themselves.  They return these values, and the
thread that drives them writes them to the logger.
"""

from __future__ import annotations

from typing import Any, Literal, NamedTuple, TypeAlias

LogLevel: TypeAlias = Literal["DEBUG", "INFO", "WARNING", "ERROR"]


class ClientLogEvent(NamedTuple):
    """A line ``name key=value …``; ``fields`` are its keys and values, in this order."""

    level: LogLevel
    name: str
    fields: tuple[tuple[str, Any], ...] = ()

    def __str__(self) -> str:
        return " ".join((self.name, *(f"{key}={value}" for key, value in self.fields)))
