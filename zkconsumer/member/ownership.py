"""The interface between a membership in a group and the processing of its partitions: values and Protocols.  Pure.

    Membership  --PartitionCommand: StartFetching, Drain, DropPartitions ...-->  PartitionProcessor
                <--PartitionEvent: PartitionsDrained, PositionsCollected, OffsetReset--

A *membership* manages the place in the group: the assignment, the committed offsets, and when a partition is released.
A *partition processor* works on the partitions meanwhile: ``StreamFetcher`` fetches them for the streams of a
connector, the membership process of a Spark query leases them to micro-batches.  Each can be replaced without the
other.  ``ZooKeeperMembership``, ``bridge.client.coordinator_membership.CoordinatorMembership`` and, with both inside,
``bridge.migration.dual.connector.migrating_membership.MigratingMembership`` are the memberships; all three pass these
values on as they are, and none of the values depends on where the group is.

One partition:  StartFetching --> Drain --> PartitionsDrained --> DropPartitions, or MoveToThread, which starts it again
                                    '-- ForceDrain, when the program does not acknowledge its record in time --^

Common terms:

``epoch``      identifies one ownership of one partition; while it is the same, no other member owned the partition in
               between (ZooKeeper: the czxid of our owner node; coordinator: the generation in which it became ours)
``lease``      until when partitions may be processed without another answer from the group
``position``   the next offset to consume, -1 if it is not known
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from zkconsumer.errors import ZkConsumerError
    from zkconsumer.member.group_view import TopicSubscription
    from zkconsumer.member.offset_stores import CommitFailure, OffsetSource
    from zkconsumer.types import TopicPartition


# --- commands of a membership -----------------------------------------------------------------------------------

BEGINNING = -2
"""The start position of a partition that is read from its beginning, regardless of the reset policy."""


@dataclass(frozen=True, slots=True)
class StartFetching:
    """Fetch these partitions for these threads from these offsets (-1: ask the reset policy; or ``BEGINNING``).

    ``sources``: from which store each offset was read.  ``epochs`` identifies each ownership: while it is the same, no
    other member owned the partition (in ZooKeeper it is the czxid of our owner node).
    """

    positions: Mapping[TopicPartition, int]
    threads: Mapping[TopicPartition, str]
    sources: Mapping[TopicPartition, OffsetSource]
    epochs: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Drain:
    """Stop fetching and delivering these partitions; report ``PartitionsDrained`` when all records are acknowledged."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ForceDrain:
    """Report the positions of these partitions now; a delivered, unacknowledged record counts as not consumed."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """Stop these partitions and discard their state: this member does not own them any more."""

    partitions: tuple[TopicPartition, ...]
    why: str


@dataclass(frozen=True, slots=True)
class MoveToThread:
    """Move a drained partition, with its undelivered records, to another stream of this member.

    ``epochs``: the new ids of the ownership, see ``StartFetching``.  No other member owned it in between.
    """

    threads: Mapping[TopicPartition, str]
    epochs: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CollectPositions:
    """Report the consumed positions of all partitions that are fetched (``PositionsCollected``)."""


PartitionCommand: TypeAlias = StartFetching | Drain | ForceDrain | DropPartitions | MoveToThread | CollectPositions


# --- events of a partition processor ----------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionsDrained:
    """These partitions deliver no more records; ``positions``: the next offsets to consume (-1: not known yet)."""

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class PositionsCollected:
    """The consumed positions of all partitions that are fetched, for an automatic commit."""

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The reset policy set the position of a partition: it had no stored offset, or one that was out of range."""

    partition: TopicPartition
    offset: int


PartitionEvent: TypeAlias = PartitionsDrained | PositionsCollected | OffsetReset


class BusyStream(NamedTuple):
    """``since_ms``: when the program received its record, in ms of the lease's clock; ``stream``: its thread id."""

    since_ms: int
    stream: str


@dataclass(frozen=True, slots=True)
class AssignmentStatus:
    """What a membership knows about its group besides the partitions that it owns.

    ``partition_counts``: the topics of the subscription.  ``other_members`` and ``not_acquired`` (partition -> reason)
    are empty where the group does not show them.  ``blocked_reason``: why this member has no assignment until an
    operator acts; "" if nothing blocks it.  ``is_stable``: False in a generation that ends, where a partition that is
    being revoked is in no assignment.  ``is_cooperative``: a new member may get its partitions one generation later.
    """

    partition_counts: Mapping[str, int]
    missing_topics: frozenset[str] = frozenset()
    other_members: tuple[str, ...] = ()
    not_acquired: Mapping[TopicPartition, str] = field(default_factory=dict)
    blocked_reason: str = ""
    is_stable: bool = True
    is_cooperative: bool = False


# --- the two sides ----------------------------------------------------------------------------------------------


class PartitionProcessor(Protocol):
    """Works on the partitions of a membership."""

    def execute(self, command: PartitionCommand) -> None:
        """Execute or start the command, without blocking.

        The membership calls this on its own thread, in the order of ``member.commands``.  Everything else may be
        called on any thread.
        """

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

    def end(self, error: ZkConsumerError | None) -> None:
        """Stop all processing, because of ``error`` or (None) a close; may be called twice."""

    def request_stop(self) -> None:
        """Ask all threads to stop; does not wait."""

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end of all threads; False if one still runs."""


class MembershipEventLoop(Protocol):
    """The event loop of a membership, through which its processor reports events."""

    def submit(self, event: PartitionEvent) -> None:
        """Queue an event, from any thread."""

    def handle_event(self, event: PartitionEvent) -> None:
        """Handle an event now; only inside of a ``call_soon`` call."""

    def call_soon(self, action: Callable[[], None]) -> None:
        """Queue a call for the membership's thread."""

    def call_every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Run ``action`` periodically on the membership's thread; the interval is not exact.

        Call it before ``attach_processor``.
        """


class Membership(Protocol):
    """A membership in a group, in ZooKeeper or at a coordinator."""

    @property
    def event_loop(self) -> MembershipEventLoop:
        """Where a processor submits its events."""

    @property
    def failure(self) -> ZkConsumerError | None:
        """The error that ended this membership; None while it runs."""

    def assignment_status(self) -> AssignmentStatus:
        """The present state of the assignment; only on the membership's thread."""

    def attach_processor(self, processor: PartitionProcessor) -> None:
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
