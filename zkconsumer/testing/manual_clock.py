"""A clock that stands still until a test moves it.

Whoever waits by it must be woken by hand: ``Lease.wake``, ``FakeCluster.wake_waiting_requests``.
"""

from __future__ import annotations


class ManualClock:
    """A ``zkconsumer.base.clock.Clock``; both of its times move together."""

    def __init__(self, now_ms: int = 1_000_000, wall_ms: int = 1_400_000_000_000) -> None:
        self._now_ms = now_ms
        self._wall_ms = wall_ms

    def now_ms(self) -> int:
        return self._now_ms

    def wall_ms(self) -> int:
        return self._wall_ms

    def move(self, by_ms: int) -> None:
        """Let so many milliseconds pass."""
        self._now_ms += by_ms
        self._wall_ms += by_ms
