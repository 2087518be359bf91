"""Deadlines by name.

Most deadlines are moved before they pass (every heartbeat moves one), so moving one writes a number and nothing else:
what was scheduled fires at the old time, sees that the deadline has moved, and is scheduled again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from bridge.coordinator.events import TimerKey


class Handle(Protocol):
    """Something that will be called."""

    def cancel(self) -> None:
        """Do not call it."""


class Scheduler(Protocol):
    """The broker's thread and its clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 at the start, and from then on by a clock that never goes back."""

    def call_in(self, delay_ms: int, action: Callable[[], None]) -> Handle:
        """Call this on the broker's thread, not before ``delay_ms`` have passed."""


class Timers:
    """``fire(key, deadline_ms)`` is called for each deadline that passes."""

    def __init__(self, scheduler: Scheduler, fire: Callable[[TimerKey, int], None]) -> None:
        self._scheduler = scheduler
        self._fire = fire
        self._deadlines: dict[TimerKey, int] = {}
        self._scheduled: dict[TimerKey, tuple[int, Handle]] = {}

    def set(self, key: TimerKey, deadline_ms: int) -> None:
        """Takes the place of the deadline with this key."""
        self._deadlines[key] = deadline_ms
        scheduled = self._scheduled.get(key)
        if scheduled is not None and scheduled[0] <= deadline_ms:
            return
        if scheduled is not None:
            scheduled[1].cancel()
        self._schedule(key, deadline_ms)

    def cancel(self, key: TimerKey) -> None:
        """Nobody waits for it any more."""
        self._deadlines.pop(key, None)
        scheduled = self._scheduled.pop(key, None)
        if scheduled is not None:
            scheduled[1].cancel()

    def cancel_all(self) -> None:
        """Nothing fires any more."""
        for key in list(self._scheduled):
            self.cancel(key)

    def _schedule(self, key: TimerKey, deadline_ms: int) -> None:
        delay_ms = max(0, deadline_ms - self._scheduler.now_ms())
        self._scheduled[key] = deadline_ms, self._scheduler.call_in(delay_ms, lambda: self._due(key))

    def _due(self, key: TimerKey) -> None:
        self._scheduled.pop(key, None)
        deadline_ms = self._deadlines.get(key)
        if deadline_ms is None:
            return
        if self._scheduler.now_ms() < deadline_ms:
            self._schedule(key, deadline_ms)
            return
        del self._deadlines[key]
        self._fire(key, deadline_ms)
