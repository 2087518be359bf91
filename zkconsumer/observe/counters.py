"""Counters of events.  Names are lower case with underscores; values only grow."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """Counts by name.  Any thread may call the methods."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, by: int = 1) -> None:
        """Add ``by`` to the counter."""
        with self._lock:
            self._counts[name] += by

    def snapshot(self) -> dict[str, int]:
        """All present counts; without names that were never counted."""
        with self._lock:
            return dict(self._counts)
