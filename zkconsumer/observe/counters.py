"""Counters: how often what happened.  Names are lower case with underscores; values only grow."""

from __future__ import annotations

import threading
from collections import Counter


class Counters:
    """Counts by name; may be added to from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._counts: Counter[str] = Counter()

    def add(self, name: str, by: int = 1) -> None:
        """Count one more, or several."""
        with self._lock:
            self._counts[name] += by

    def snapshot(self) -> dict[str, int]:
        """All counts as they are now; a name that was never counted is missing."""
        with self._lock:
            return dict(self._counts)
