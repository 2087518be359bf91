"""The broker's clock, and named deadlines on it.

To postpone a deadline is cheap before it reaches this module: see ``bridge.coordinator.purgatory``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Protocol

from bridge.coordinator.events import TimerKey
from zkconsumer.base.clock import SYSTEM_CLOCK


class ScheduledCall(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel it."""


class Scheduler(Protocol):
    """The broker's thread and its clock."""

    def now_ms(self) -> int:
        """Milliseconds since 1970 at the start, and from then on by a monotonic clock."""

    def call_in(self, delay_ms: int, action: Callable[[], None]) -> ScheduledCall:
        """Call this on the broker's thread, after ``delay_ms`` at the earliest."""


class LoopScheduler:
    """A ``Scheduler`` on an event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._wall_ahead_ms = SYSTEM_CLOCK.wall_ms() - SYSTEM_CLOCK.now_ms()

    def now_ms(self) -> int:
        return SYSTEM_CLOCK.now_ms() + self._wall_ahead_ms

    def call_in(self, delay_ms: int, action: Callable[[], None]) -> ScheduledCall:
        return self._loop.call_later(delay_ms / 1000, action)


class Timers:
    """``fire(key, deadline_ms)`` is called for each deadline that passes."""

    def __init__(self, scheduler: Scheduler, fire: Callable[[TimerKey, int], None]) -> None:
        self._scheduler = scheduler
        self._fire = fire
        self._scheduled: dict[TimerKey, ScheduledCall] = {}

    def set(self, key: TimerKey, deadline_ms: int) -> None:
        """Set a deadline; replaces the deadline with this key."""
        self.cancel(key)
        delay_ms = max(0, deadline_ms - self._scheduler.now_ms())
        self._scheduled[key] = self._scheduler.call_in(delay_ms, lambda: self._on_due(key, deadline_ms))

    def cancel(self, key: TimerKey) -> None:
        """Cancel a deadline."""
        scheduled = self._scheduled.pop(key, None)
        if scheduled is not None:
            scheduled.cancel()

    def cancel_all(self) -> None:
        """Cancel all deadlines."""
        for key in list(self._scheduled):
            self.cancel(key)

    def _on_due(self, key: TimerKey, deadline_ms: int) -> None:
        if self._scheduler.now_ms() < deadline_ms:
            # The loop's clock and ours differ by less than a millisecond.
            self.set(key, deadline_ms)
            return
        del self._scheduled[key]
        self._fire(key, deadline_ms)
