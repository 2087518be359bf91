"""Two leases, and the one that the streams look at: it is that of the side which holds."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from bridge.migration.member.duty import Side
from zkconsumer.base.lease import Lease

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock


class SideLease(Lease):
    """What a side's own membership sets, on its own thread."""

    def __init__(self, clock: Clock, switch: LeaseSwitch) -> None:
        super().__init__(clock)
        self._switch = switch

    def set(self, until_ms: int) -> None:
        """See ``Lease``."""
        super().set(until_ms)
        self._switch.moved(self)


class LeaseSwitch:
    """``shown`` is what the streams look at; it never shows the lease of a side that does not hold."""

    def __init__(self, shown: Lease) -> None:
        self._shown = shown
        self._lock = threading.Lock()
        self.of = {side: SideLease(shown.clock, self) for side in Side}
        self._holds = Side.ZOOKEEPER

    def moved(self, lease: SideLease) -> None:
        """A side's lease is another one; on any thread."""
        with self._lock:
            if lease is self.of[self._holds]:
                self._shown.set(lease.until_ms)

    def hold(self, side: Side) -> None:
        """From here on it is this side's."""
        with self._lock:
            self._holds = side
            self._shown.set(self.of[side].until_ms)

    def end(self) -> None:
        """Nothing is handed out any more."""
        with self._lock:
            for lease in self.of.values():
                lease.until_ms = 0
            self._shown.set(0)
