"""State that the delivery of records shares with other threads: lease, end of a queue, ownership of a partition.

Each class has a few numbers and makes no decision.  The compiled module ``_delivery`` has the same classes and reads
them without Python.  Without that module these classes are used, and the global interpreter lock makes each access
atomic.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from zkconsumer import extensions

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock

COMPILED_DELIVERY = extensions.load("zkconsumer.base._delivery")
"""The compiled module, or None."""

NO_UNACKNOWLEDGED_OFFSET = -1
"""``OwnershipState.unacknowledged_offset`` while the program has no record of the partition."""


class LeaseState:
    """Until when records may be delivered: ``until_ms`` of ``clock``.

    ``is_system``: ``clock`` is the system clock, which the compiled delivery reads directly.
    """

    __slots__ = ("clock", "until_ms")

    def __init__(self, clock: Clock, is_system: bool) -> None:
        self.clock = clock
        self.until_ms = 0


class QueueState:
    """``is_ended``: the end marker is in the queue.  ``unacknowledged_since_ms``: when the program received its
    unacknowledged record; None: it has none.
    """

    __slots__ = ("is_ended", "unacknowledged_since_ms")

    def __init__(self) -> None:
        self.is_ended = False
        self.unacknowledged_since_ms: int | None = None


class OwnershipState:
    """One ownership of one partition: what its stream has delivered, and whether it may deliver more.

    ``unacknowledged_offset``: the offset of the record that the program processes, or ``NO_UNACKNOWLEDGED_OFFSET``.
    ``is_live``: the partition is not revoked.  ``on_drained``: called when no record is unacknowledged any more; set by
    the thread that revokes the partition.  ``resets``: how often the reset policy set the position.

    The consumed offset is stored together with its reset count, and is valid only while that is the latest count: so a
    program that acknowledges a record cannot undo a reset on a fetcher thread.
    """

    __slots__ = ("_consumed", "_reset", "is_live", "on_drained", "unacknowledged_offset")

    def __init__(self) -> None:
        self.unacknowledged_offset = NO_UNACKNOWLEDGED_OFFSET
        self.is_live = True
        self.on_drained: Callable[[Any], object] | None = None
        self._reset = self._consumed = (0, 0)

    def start_at(self, offset: int) -> None:
        """Set the first position."""
        self._reset = self._consumed = (0, offset)

    @property
    def resets(self) -> int:
        """How often the reset policy set the position."""
        return self._reset[0]

    @property
    def consumed_offset(self) -> int:
        """The offset after the last acknowledged record, or of the latest reset."""
        reset, consumed = self._reset, self._consumed
        return consumed[1] if consumed[0] == reset[0] else reset[1]

    def mark_consumed(self, next_offset: int, resets: int) -> None:
        """The iterating thread has processed all records below ``next_offset``; no effect after a later reset."""
        self._consumed = (resets, next_offset)

    def apply_reset(self, offset: int) -> None:
        """The reset policy set the position."""
        self._reset = (self._reset[0] + 1, offset)

    def begin_delivery(self, offset: int) -> bool:
        """The iterating thread is about to deliver this record; False: do not, the partition is revoked."""
        self.unacknowledged_offset = offset
        if self.is_live:
            return True
        self.undeliver()
        return False

    def undeliver(self) -> None:
        """The record is not delivered, or no longer.  May be called twice."""
        self.unacknowledged_offset = NO_UNACKNOWLEDGED_OFFSET
        if self.on_drained is not None:
            self.on_drained(self)

    def acknowledge(self, consumed_offset: int, resets: int) -> None:
        """The program asked for the next record: the delivered one is consumed.  May be called twice with one value."""
        self.mark_consumed(consumed_offset, resets)
        self.undeliver()


if COMPILED_DELIVERY is not None and not TYPE_CHECKING:
    LeaseState, QueueState, OwnershipState = (
        COMPILED_DELIVERY.LeaseState,
        COMPILED_DELIVERY.QueueState,
        COMPILED_DELIVERY.OwnershipState,
    )
