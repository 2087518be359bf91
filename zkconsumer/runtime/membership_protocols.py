"""The seam between a group's membership and what works on its partitions.  Two Protocols, and no more.

    Membership  --start_fetching, drain, drop ... (values of ``core.commands``)-->  Holder
                <--drained, collected, reset      (values of ``core.events``) ----

A *membership* knows the group: who has which partition, which offsets are stored, when to give something back.  A
*holder* knows what is done with a partition meanwhile: ``StreamFetcher`` fetches it for the streams of a connector, the
keeper of a Spark query lends it to micro-batches.  Neither knows how the other works, so each can be replaced:
``membership.ZooKeeperMembership`` is one membership, ``bridge.client.coordinator_membership.CoordinatorMembership``
another.

What both speak of:

``epoch``      names one ownership of one partition; while it is the same, nobody else had the partition in between
               (ZooKeeper: the czxid of our owner node; a coordinator: the generation since which it is ours)
``lease``      until when partitions may be worked on without another word of the group's
``position``   the next offset to consume, -1 when it is not known
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
    """What a holder tells its membership."""


class BusyStream(NamedTuple):
    """``since_ms``: when the program got its record, in ms of the lease's clock; ``stream``: the stream's thread id."""

    since_ms: int
    stream: str


class PartitionProcessor(Protocol):
    """Whoever works on partitions.  The six calls are made on the membership's own thread, in the order of
    ``core.commands``, and never wait for the world; everything else may be called on any thread.
    """

    def start_fetching(self, command: do.StartFetching) -> None:
        """These are ours from here on."""

    def drain(self, command: do.Drain) -> None:
        """Stop working on these; say ``PartitionsDrained`` once each is at rest."""

    def force_drain(self, command: do.ForceDrain) -> None:
        """They were waited for long enough: say ``PartitionsDrained`` with what is certain now."""

    def drop_partitions(self, command: do.DropPartitions) -> None:
        """These are not ours any more."""

    def move_to_thread(self, command: do.MoveToThread) -> None:
        """These stay ours, under the id of another thread; they are worked on again."""

    def collect_positions(self) -> None:
        """Say ``PositionsCollected``, for an automatic commit."""

    @property
    def assignment(self) -> dict[TopicPartition, str]:
        """What is worked on now: partition -> thread id."""

    @property
    def has_no_partitions(self) -> bool:
        """Whether nothing is ours, what is on its way out included."""

    @property
    def busy_stream(self) -> BusyStream | None:
        """The stream whose program has been working on one record for the longest time; None: no program has one.

        A program that waits for a record has none, and neither has one that came back from its record.
        """

    def end(self, error: BaseException | None) -> None:
        """Nothing may be worked on any more, because of ``error`` or because it is over; may be called twice."""

    def request_stop(self) -> None:
        """End all threads soon; does not wait."""

    def join(self, timeout_ms: int) -> bool:
        """Wait for their end; False: one still runs."""


class MembershipEventLoop(Protocol):
    """How a holder speaks to its membership, whose thread handles one thing after the other."""

    def submit(self, event: PartitionProcessorEvent) -> None:
        """Tell this, from any thread; it is handled in its turn."""

    def handle_event(self, event: PartitionProcessorEvent) -> None:
        """Tell this and have it handled now: only inside of ``call``."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run something on the membership's thread, in its turn."""


class Membership(Protocol):
    """Being a member of a group, whoever keeps the group."""

    @property
    def event_loop(self) -> MembershipEventLoop:
        """Where a holder tells what it has to tell."""

    @property
    def lease(self) -> Lease:
        """Until when what is held may be worked on."""

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this membership, if one did."""

    def attach_processor(self, holder: PartitionProcessor) -> None:
        """Begin to work, with this holder; nothing is asked of the world before ``start``."""

    def start(self, timeout_ms: int) -> None:
        """Connect; raises with nothing left running when that cannot be done."""

    def join(self, subscription: TopicSubscription) -> None:
        """Become a member with this subscription."""

    def wait_for_assignment(self, timeout_ms: int) -> bool:
        """Wait for the first whole share; raises the error that ended the membership, if one did."""

    def commit(self, positions: Mapping[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, CommitFailure]:
        """Write these positions of what is ours; gives back what was not written, with the reason."""

    def leave(self) -> bool:
        """Give everything back and leave the group; False when that could not be done in time."""

    def close(self) -> bool:
        """End everything, the holder included.  True when nothing was left behind."""
