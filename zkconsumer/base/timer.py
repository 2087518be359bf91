"""``Timer``: the time that a blocking call may still take, as ``org.apache.kafka.common.utils.Timer``.

A call that consists of several waits makes one timer and passes it to each of them, so their sum is bounded.  The time
is read from the clock only by ``update``; between two updates all questions have consistent answers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock

FOREVER_MS = 0x7FFF_FFFF_FFFF_FFFF
"""A timeout without a limit (Java's ``Long.MAX_VALUE``)."""


class Timer:
    """A timer that expires ``timeout_ms`` after it was made or reset.  All times are ``Clock.now_ms`` times, in ms."""

    __slots__ = ("_clock", "_deadline_ms", "_now_ms", "_started_ms", "_timeout_ms")

    def __init__(self, clock: Clock, timeout_ms: int) -> None:
        self._clock = clock
        self._now_ms = clock.now_ms()
        self.reset(timeout_ms)

    def reset(self, timeout_ms: int) -> None:
        """Start again with this timeout, from the time of the last update; ``ValueError`` if it is negative."""
        if timeout_ms < 0:
            raise ValueError(f"a timeout is not negative: {timeout_ms}")
        self._timeout_ms = timeout_ms
        self._started_ms = self._now_ms
        self._deadline_ms = min(self._now_ms + timeout_ms, FOREVER_MS)

    def update_and_reset(self, timeout_ms: int) -> None:
        """Read the clock, then start again with this timeout."""
        self.update()
        self.reset(timeout_ms)

    def update(self, now_ms: int | None = None) -> None:
        """Read the clock, or take ``now_ms``, which another reader has just read.  The time never goes back."""
        self._now_ms = max(self._clock.now_ms() if now_ms is None else now_ms, self._now_ms)

    @property
    def now_ms(self) -> int:
        """The time of the last update."""
        return self._now_ms

    @property
    def is_expired(self) -> bool:
        """Whether the timeout was over at the last update."""
        return self._now_ms >= self._deadline_ms

    @property
    def remaining_ms(self) -> int:
        """The time that was left at the last update; never negative."""
        return max(0, self._deadline_ms - self._now_ms)

    @property
    def elapsed_ms(self) -> int:
        """The time from the last reset to the last update."""
        return self._now_ms - self._started_ms

    @property
    def timeout_ms(self) -> int:
        """The timeout of the last reset."""
        return self._timeout_ms
