"""The JSON lines that our Java programs write; the file is read at each call.

A file and not a pipe: nothing is lost when either side is killed, a busy program never waits for a slow reader, and
no thread is needed.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from zkconsumer.errors import SandboxError

READ_BYTES_MAX = 8 << 20  # in one call

JsonEvent = dict[str, Any]
"""One line: "event" and "t" (milliseconds since 1970) are always there, the rest is the event's own."""


class EventFile:
    """Follows a file that grows by whole lines, sooner or later."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = path.stat().st_size if path.exists() else 0
        self._rest = b""

    def read_new(self) -> list[JsonEvent]:
        """The events since the last call."""
        with self._path.open("rb") as file:
            file.seek(self._at)
            data = file.read(READ_BYTES_MAX)
        self._at += len(data)
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [self._parsed(line) for line in lines if line]

    def _parsed(self, line: bytes) -> JsonEvent:
        try:
            event = json.loads(line)
        except ValueError as error:
            raise SandboxError(f"{self._path} holds a line that is not JSON: {line[:200]!r}") from error
        if not isinstance(event, dict) or "event" not in event:
            raise SandboxError(f"{self._path} holds a line that is not an event: {line[:200]!r}")
        return event
