"""The lease as the streams see it: one number that the control thread writes and every hand-out compares.

``core.session`` decides the number; here is only the place where two threads meet.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock


class Lease:
    """Until when records may be handed out, in ms of the monotonic clock."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self.until_ms = 0
        self._wakes = 0
        self._changed = threading.Condition()

    def set(self, until_ms: int) -> None:
        """Move the end of the lease; called by the control thread only."""
        with self._changed:
            self.until_ms = until_ms
            self._changed.notify_all()

    @property
    def holds(self) -> bool:
        """Whether a record may be handed out now."""
        return self.clock.now_ms() < self.until_ms

    def wait(self, timeout_ms: int) -> bool:
        """Wait until it holds, at most ``timeout_ms``, and not after ``wake``; whether it holds."""
        with self._changed:
            wakes = self._wakes
            self._changed.wait_for(lambda: self.holds or self._wakes != wakes, timeout_ms / 1000)
            return self.holds

    def wake(self) -> None:
        """Let whoever waits look again at what else may have changed."""
        with self._changed:
            self._wakes += 1
            self._changed.notify_all()
