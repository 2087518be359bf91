"""What the two memberships take for their holder, and what the streams take for their membership's inbox.

ZooKeeper's side   --SideHolder(zookeeper)--.
                                            +--> hear (ZooKeeper's control thread) --> MigratingMember
coordinator's side --SideHolder(coordinator)'         ^
streams            --MigratingInbox-------------------'
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from bridge.migration.dual.machine import machine_messages as val
from zkconsumer.member import commands as do
from zkconsumer.runtime.membership_protocols import BusyStream

if TYPE_CHECKING:
    from bridge.migration.dual.machine.phase_rules import MembershipSide
    from zkconsumer.runtime.member_event_loop import MemberEventLoop
    from zkconsumer.runtime.membership_protocols import MembershipEventLoop, PartitionProcessor, PartitionProcessorEvent
    from zkconsumer.types import TopicPartition

    EventHandler = Callable[[val.MigratingMemberEvent], None]


class SidePartitionProcessor:
    """``PartitionProcessor`` of one side: passes on what its membership says; ``hear`` never waits, on any thread.

    ``holds_since_ms``: since when this side says what the streams read, None while it does not; on any thread.
    """

    def __init__(
        self,
        side: MembershipSide,
        streams: PartitionProcessor,
        hear: EventHandler,
        on_end: Callable[[BaseException], None],
        holds_since_ms: Callable[[], int | None],
    ) -> None:
        self._side = side
        self._active_since_ms = holds_since_ms
        self._streams = streams
        self._handle_event = hear
        self._on_failure = on_end

    def start_fetching(self, command: do.StartFetching) -> None:
        self._forward(command)

    def drain(self, command: do.Drain) -> None:
        self._forward(command)

    def force_drain(self, command: do.ForceDrain) -> None:
        self._forward(command)

    def drop_partitions(self, command: do.DropPartitions) -> None:
        self._forward(command)

    def move_to_thread(self, command: do.MoveToThread) -> None:
        self._forward(command)

    def collect_positions(self) -> None:
        self._forward(do.CollectPositions())

    def _forward(self, command: val.ProcessorCommand) -> None:
        self._handle_event(val.SideCommanded(self._side, command))

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """What the streams read, whoever told them."""
        return self._streams.assignment

    @property
    def has_no_partitions(self) -> bool:
        return self._streams.has_no_partitions

    @property
    def busy_stream(self) -> BusyStream | None:
        """What the program does counts for the side that holds, and from when it began to."""
        since_ms, busy = self._active_since_ms(), self._streams.busy_stream
        if since_ms is None or busy is None:
            return None
        return busy._replace(since_ms=max(busy.since_ms, since_ms))

    def end(self, error: BaseException | None) -> None:
        """A side has ended.  The streams go on for as long as the other one holds."""
        if error is not None:
            self._on_failure(error)

    def request_stop(self) -> None:
        """The streams are the member's to stop."""

    def join(self, timeout_ms: int) -> bool:
        """The streams are the member's to wait for."""
        return True


class MigratingEventLoop:
    """``MembershipEventLoop`` of the streams: ZooKeeper's control thread, whoever holds."""

    def __init__(self, control: MemberEventLoop, hear: EventHandler) -> None:
        self._control = control
        self._handle_event = hear

    def submit(self, event: PartitionProcessorEvent) -> None:
        """See ``MembershipEventLoop``."""
        self._control.call_soon(partial(self.handle_event, event))

    def handle_event(self, event: PartitionProcessorEvent) -> None:
        """See ``MembershipEventLoop``."""
        self._handle_event(val.ProcessorReported(event))

    def call_soon(self, action: Callable[[], None]) -> None:
        """See ``MembershipEventLoop``."""
        self._control.call_soon(action)


def send_to_processor(holder: PartitionProcessor, command: val.ProcessorCommand) -> None:
    """Tell a holder this."""
    match command:
        case do.StartFetching():
            holder.start_fetching(command)
        case do.Drain():
            holder.drain(command)
        case do.ForceDrain():
            holder.force_drain(command)
        case do.DropPartitions():
            holder.drop_partitions(command)
        case do.MoveToThread():
            holder.move_to_thread(command)
        case do.CollectPositions():
            holder.collect_positions()


if TYPE_CHECKING:

    def _is_partition_processor(one: SidePartitionProcessor) -> PartitionProcessor:
        return one

    def _is_event_loop(one: MigratingEventLoop) -> MembershipEventLoop:
        return one
