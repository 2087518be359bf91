"""The lease of a member: one number that the control thread writes and every delivery checks.

``member.session_state_machine`` computes the number; this module only passes it from one thread to the others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.base.clock import SystemClock
from zkconsumer.base.delivery_state import LeaseState

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.base.wakeup import WakeUp


class Lease(LeaseState):
    """Until when records may be delivered, in ms of the monotonic clock.

    Invariant: ``_wake_ups`` has one flag for each stream; it only grows, before the streams are read.
    """

    def __init__(self, clock: Clock) -> None:
        super().__init__(clock, type(clock) is SystemClock)
        self._wake_ups: list[WakeUp] = []

    def set_until(self, until_ms: int) -> None:
        """Set the end of the lease; only the control thread calls it."""
        self.until_ms = until_ms
        self.wake()

    @property
    def is_valid(self) -> bool:
        """Whether a record may be delivered now."""
        return self.clock.now_ms() < self.until_ms

    def add_wake_up(self, wake_up: WakeUp) -> None:
        """Set this flag from now on whenever the lease changes, and on ``wake``."""
        self._wake_ups.append(wake_up)

    def wake(self) -> None:
        """End the wait of each stream, so that it checks the lease, its partition and its queue again."""
        for wake_up in tuple(self._wake_ups):
            wake_up.set()
