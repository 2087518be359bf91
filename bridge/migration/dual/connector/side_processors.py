"""The partition processor that each of the two memberships sees, and the event loop that the real processor sees.

ZooKeeper membership   --SidePartitionProcessor.execute--.   PartitionCommand, with the side
                                                         +--> MigratingMembership.handle_event --> MigratingMember
coordinator membership --SidePartitionProcessor.execute--'    (on the control thread of the ZooKeeper side)
real processor         --MigratingEventLoop.submit-----------'   PartitionEvent, as it is

Theory of operation.  Each membership commands a processor and gets its answers, as if it were alone.  The real
processor has one event loop, that of the ZooKeeper side in every phase: nothing has to change there when the active
side changes, and the machine receives the answers in the order of the commands.

Commands of the coordinator side come from another thread, so they are queued (``call_soon``); those of the ZooKeeper
side come from the thread of the machine, and are handled at once.  Commands of one side keep their order.  A side gets
no answer during ``execute``: answers are events, which its own loop handles later.

The end of a side is not the end of the streams: ``end`` reports the error, ``request_stop`` and ``join`` do nothing.
``MigratingMembership`` stops the real processor, once.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bridge.migration.dual.machine import machine_messages as val
from zkconsumer.member.ownership import BusyStream

if TYPE_CHECKING:
    from bridge.migration.dual.machine.phase_rules import MembershipSide
    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.member.ownership import MembershipEventLoop, PartitionCommand, PartitionEvent, PartitionProcessor
    from zkconsumer.runtime.member_event_loop import MemberEventLoop
    from zkconsumer.types import TopicPartition

    EventHandler = Callable[[val.MigratingMemberEvent], None]


class SidePartitionProcessor:
    """``PartitionProcessor`` of one side: passes its commands on to ``handle_event``.

    ``call_soon``: queues a call for the thread of ``handle_event``; None if the side itself runs on that thread.
    ``active_since_ms``: since when this side is the active one, None while it is not; from any thread.
    """

    def __init__(
        self,
        side: MembershipSide,
        streams: PartitionProcessor,
        handle_event: EventHandler,
        on_failure: Callable[[ZkConsumerError], None],
        active_since_ms: Callable[[], int | None],
        call_soon: Callable[[Callable[[], None]], None] | None = None,
    ) -> None:
        self._side = side
        self._active_since_ms = active_since_ms
        self._streams = streams
        self._handle_event = handle_event
        self._on_failure = on_failure
        self._call_soon = call_soon

    def execute(self, command: PartitionCommand) -> None:
        """See ``PartitionProcessor``: the machine decides what becomes of it."""
        event = val.SideCommanded(self._side, command)
        if self._call_soon is None:
            self._handle_event(event)
        else:
            self._call_soon(partial(self._handle_event, event))

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """What the processor works on, for either side: a passive side sees the partitions of the active one."""
        return self._streams.assignment

    @property
    def has_no_partitions(self) -> bool:
        return self._streams.has_no_partitions

    @property
    def busy_stream(self) -> BusyStream | None:
        """The program's work on a record counts for the active side only, and from when that side became active.

        Otherwise a program that works long on one record would be removed from the coordinator group at the switch, for
        a time in which the coordinator side had no partitions for it (``max.poll.interval.ms``).
        """
        since_ms, busy = self._active_since_ms(), self._streams.busy_stream
        if since_ms is None or busy is None:
            return None
        return busy._replace(since_ms=max(busy.since_ms, since_ms))

    def end(self, error: ZkConsumerError | None) -> None:
        """This side has ended.  The streams continue while the other side is active."""
        if error is not None:
            self._on_failure(error)

    def request_stop(self) -> None:
        """``MigratingMembership`` stops the processor."""

    def join(self, timeout_ms: int) -> bool:
        """``MigratingMembership`` waits for the processor."""
        return True


class MigratingEventLoop:
    """``MembershipEventLoop`` of the streams: the control thread of the ZooKeeper side, in every phase."""

    def __init__(self, control: MemberEventLoop, handle_event: EventHandler) -> None:
        self.call_soon, self.call_every = control.call_soon, control.call_every
        self.handle_event = handle_event

    def submit(self, event: PartitionEvent) -> None:
        """Queue an event of the processor for the machine; from any thread."""
        self.call_soon(partial(self.handle_event, event))


if TYPE_CHECKING:

    def _is_partition_processor(one: SidePartitionProcessor) -> PartitionProcessor:
        return one

    def _is_event_loop(one: MigratingEventLoop) -> MembershipEventLoop:
        return one
