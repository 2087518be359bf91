"""What the hand-out of records shares with other threads: the lease, the end of a queue, one ownership of a partition.

Each class holds a few numbers and no decision.  The compiled module ``_delivery`` has the same classes: there the
hand-out reads them without Python.  Where it is missing these classes take their place, and the global interpreter lock
makes each access atomic.
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
    """Until when records may be handed out: ``until_ms`` of ``clock``.

    ``is_system``: ``clock`` is the machine's, which the compiled hand-out reads by itself.
    """

    __slots__ = ("clock", "until_ms")

    def __init__(self, clock: Clock, is_system: bool) -> None:
        self.clock = clock
        self.until_ms = 0


class QueueState:
    """``is_ended``: the marker behind which nothing comes is in the queue.  ``unacknowledged_since_ms``: when the
    program got the record that it has not come back from; None: it has none.
    """

    __slots__ = ("is_ended", "unacknowledged_since_ms")

    def __init__(self) -> None:
        self.is_ended = False
        self.unacknowledged_since_ms: int | None = None


class OwnershipState:
    """One ownership of one partition: what its stream has handed out, and whether it may hand out more.

    ``unacknowledged_offset``: the offset of the record that the program works on, or ``NO_UNACKNOWLEDGED_OFFSET``.
    ``is_live``: the partition was not taken away.  ``on_drained``: called when nothing is in hand any more; set by the
    thread that takes the partition away.  ``resets``: how often the reset policy moved the partition.

    What was consumed is written together with the number of resets that it belongs to, and counts only while that is
    the last one: a reset on a fetcher's thread cannot be undone by a program that was just coming back.
    """

    __slots__ = ("_consumed", "_reset", "is_live", "on_drained", "unacknowledged_offset")

    def __init__(self) -> None:
        self.unacknowledged_offset = NO_UNACKNOWLEDGED_OFFSET
        self.is_live = True
        self.on_drained: Callable[[Any], object] | None = None
        self._reset = self._consumed = (0, 0)

    def start_at(self, offset: int) -> None:
        """The first position."""
        self._reset = self._consumed = (0, offset)

    @property
    def resets(self) -> int:
        """How often the reset policy moved the partition."""
        return self._reset[0]

    @property
    def consumed_offset(self) -> int:
        """The next offset that the program has not moved past."""
        reset, consumed = self._reset, self._consumed
        return consumed[1] if consumed[0] == reset[0] else reset[1]

    def mark_consumed(self, next_offset: int, resets: int) -> None:
        """The iterating thread is done with everything below; counts for nothing if a reset came in between."""
        self._consumed = (resets, next_offset)

    def apply_reset(self, offset: int) -> None:
        """The reset policy moved the partition."""
        self._reset = (self._reset[0] + 1, offset)

    def begin_delivery(self, offset: int) -> bool:
        """The iterating thread is about to hand out this record; False: the partition has left, do not."""
        self.unacknowledged_offset = offset
        if self.is_live:
            return True
        self.undeliver()
        return False

    def undeliver(self) -> None:
        """The record was not handed out after all.  May be called twice."""
        self.unacknowledged_offset = NO_UNACKNOWLEDGED_OFFSET
        if self.on_drained is not None:
            self.on_drained(self)

    def acknowledge(self, consumed_offset: int, resets: int) -> None:
        """The program asked for more: it is done with the record in hand.  May be called twice with the same values."""
        self.mark_consumed(consumed_offset, resets)
        self.undeliver()


if COMPILED_DELIVERY is not None and not TYPE_CHECKING:
    LeaseState, QueueState, OwnershipState = (
        COMPILED_DELIVERY.LeaseState,
        COMPILED_DELIVERY.QueueState,
        COMPILED_DELIVERY.OwnershipState,
    )
