"""The interface between a membership in a group and the processor of its partitions: two Protocols.

    Membership  --start_fetching, drain, drop ... (values of ``member.commands``)-->  PartitionProcessor
                <--drained, collected, reset      (values of ``member.events``) ----

A *membership* manages the place in the group: the assignment, the committed offsets, and when a partition is released.
A *partition processor* works on the partitions meanwhile: ``StreamFetcher`` fetches them for the streams of a
connector, the membership process of a Spark query leases them to micro-batches.  Each can be replaced without the
other: ``ZooKeeperMembership`` is one membership, ``bridge.client.coordinator_membership.CoordinatorMembership``
another.

Common terms:

``epoch``      identifies one ownership of one partition; while it is the same, no other member owned the partition in
               between (ZooKeeper: the czxid of our owner node; coordinator: the generation in which it became ours)
``lease``      until when partitions may be processed without another answer from the group
``position``   the next offset to consume, -1 if it is not known
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.member import commands as do
    from zkconsumer.member import events as ev
    from zkconsumer.member.group_view import TopicSubscription
    from zkconsumer.member.offset_stores import CommitFailure
    from zkconsumer.types import TopicPartition

    PartitionProcessorEvent: TypeAlias = (
        "ev.PartitionsDrained | ev.PositionsCollected | ev.OffsetReset | ev.OffsetsOverwritten"
    )
    """The events that a processor sends to its membership."""


class BusyStream(NamedTuple):
    """``since_ms``: when the program received its record, in ms of the lease's clock; ``stream``: its thread id."""

    since_ms: int
    stream: str


class PartitionProcessor(Protocol):
    """Works on the partitions of a membership.

    The membership makes the first six calls on its own thread, in the order of ``member.commands``; they must not
    block.  Everything else may be called on any thread.
    """

    def start_fetching(self, command: do.StartFetching) -> None:
        """Start processing these partitions, which the member now owns."""

    def drain(self, command: do.Drain) -> None:
        """Stop processing these; submit ``PartitionsDrained`` when they are drained."""

    def force_drain(self, command: do.ForceDrain) -> None:
        """The drain timed out: submit ``PartitionsDrained`` now, with the positions that are certain."""

    def drop_partitions(self, command: do.DropPartitions) -> None:
        """Discard these partitions; the member does not own them any more."""

    def move_to_thread(self, command: do.MoveToThread) -> None:
        """Continue processing these drained partitions under the id of another thread of this member."""

    def collect_positions(self) -> None:
        """Submit ``PositionsCollected``, for an automatic commit."""

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """The partitions that are processed now: partition -> thread id."""

    @property
    def has_no_partitions(self) -> bool:
        """Whether the member owns no partition; a partition that is being released counts as owned."""

    @property
    def busy_stream(self) -> BusyStream | None:
        """The stream with the oldest unacknowledged record; None if no stream has one.

        A stream whose program waits for a record has no unacknowledged record.
        """

    def end(self, error: BaseException | None) -> None:
        """Stop all processing, because of ``error`` or (None) a close; may be called twice."""

    def request_stop(self) -> None:
        """Ask all threads to stop; does not wait."""

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end of all threads; False if one still runs."""


class MembershipEventLoop(Protocol):
    """The event loop of a membership, through which its processor reports events."""

    def submit(self, event: PartitionProcessorEvent) -> None:
        """Queue an event, from any thread."""

    def handle_event(self, event: PartitionProcessorEvent) -> None:
        """Handle an event now; only inside of a ``call_soon`` call."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Queue a call for the membership's thread."""


class Membership(Protocol):
    """A membership in a group, in ZooKeeper or at a coordinator."""

    @property
    def event_loop(self) -> MembershipEventLoop:
        """Where a processor submits its events."""

    @property
    def lease(self) -> Lease:
        """Until when owned partitions may be processed."""

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this membership; None while it runs."""

    def attach_processor(self, holder: PartitionProcessor) -> None:
        """Start the membership's thread with this processor; no request is sent before ``start``."""

    def start(self, timeout_ms: int) -> None:
        """Connect; if that fails, it stops everything and raises."""

    def join(self, subscription: TopicSubscription) -> None:
        """Join the group with this subscription."""

    def wait_for_assignment(self, timeout_ms: int) -> bool:
        """Wait for the first complete assignment, False after the timeout; raises the membership's error."""

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, CommitFailure]:
        """Commit these positions; return the partitions that were not committed, with the reason."""

    def leave(self) -> bool:
        """Release all partitions and leave the group; False if that was not complete in time."""

    def close(self) -> bool:
        """Stop everything, also the processor.  True if all threads have ended."""
