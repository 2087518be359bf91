"""One lease for each side; the lease that the streams see has the value of the active side's.

A lease is the time until which records may be delivered without another answer of the group.  Each side renews its own
one, by its session in ZooKeeper or by heartbeats at the coordinator; both are renewed in every phase in which the side
exists.  So when the active side changes, the streams continue with a lease that is already valid, and deliver without a
gap.

What a pause does: both leases run out by themselves, because a lease is a time and not a flag.  A lease of the former
side that is renewed late, on the thread of that side, does not reach the streams: ``lease_changed`` compares the side
under the lock.

The active side here follows the machine: the control thread calls ``activate`` after the commands of the event.  In the
other order the streams could deliver records of a partition that the new side does not have, under its lease.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

from bridge.migration.dual.machine.phase_rules import MembershipSide
from zkconsumer.base.delivery_lease import Lease

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock


class SideLease(Lease):
    """The lease that the membership of one side sets, on its own thread.  No stream reads it."""

    def __init__(self, clock: Clock, switch: ActiveLease) -> None:
        super().__init__(clock)
        self._switch = switch

    def set_until(self, until_ms: int) -> None:
        """See ``Lease``."""
        super().set_until(until_ms)
        self._switch.lease_changed(self)


class ActiveLease:
    """``shown`` is the lease of the streams; it never has the value of the passive side's lease."""

    def __init__(self, shown: Lease) -> None:
        self._stream_lease = shown
        self._lock = threading.Lock()
        """Held for each change, because each side has its own thread: the lease of a side that has just become passive
        must not overwrite that of the active one."""
        self.by_side = {side: SideLease(shown.clock, self) for side in MembershipSide}
        self._active_side = MembershipSide.ZOOKEEPER
        """As ``MigratingMember`` decided it last.  Under the lock, the streams' lease has the value of this side's."""

    def lease_changed(self, lease: SideLease) -> None:
        """The lease of a side has changed; on any thread."""
        with self._lock:
            if lease is self.by_side[self._active_side]:
                self._stream_lease.set_until(lease.until_ms)

    def activate(self, side: MembershipSide) -> None:
        """The streams' lease is that of this side from now on; it may be shorter, or have run out."""
        with self._lock:
            self._active_side = side
            self._stream_lease.set_until(self.by_side[side].until_ms)

    def expire_all(self) -> None:
        """No more records are delivered: an error has ended the member.

        A side may renew its lease after that, until it has handled the error too.  ``MembershipLifecycle.end`` ends the
        processor before it calls this, so nothing is delivered then either.
        """
        with self._lock:
            for lease in self.by_side.values():
                lease.until_ms = 0
            self._stream_lease.set_until(0)
