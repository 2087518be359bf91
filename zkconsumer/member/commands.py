"""The commands that ``MemberStateMachine`` returns and ``runtime`` executes.  Imperative names; values only.

The commands about partitions are those of ``ownership``, which every kind of membership uses.

The order in a list of commands is a contract; only ``member_state_machine`` makes such lists:

    stop and drain before commit, commit before release, release before acquire, acquire before reading the position,
    reading the position before fetch.

The rebalance listener is called for released partitions between drain and commit, and for started partitions between
acquire and reading the position.

A command that writes carries the session in which it was decided; ``runtime`` drops it in any other session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from zkconsumer.member.ownership import PartitionCommand

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.member.events import MemberTimer, StoredOffset
    from zkconsumer.member.group_view import ControlRecord, TopicSubscription
    from zkconsumer.member.offset_stores import CommitFailure
    from zkconsumer.member.topic_count import ConsumerThreadId
    from zkconsumer.types import TopicPartition


# --- timers, lease, logs ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Fire ``timer`` once after ``delay_ms``; replaces one that is running."""

    timer: MemberTimer
    delay_ms: int


@dataclass(frozen=True, slots=True)
class StopTimer:
    """Cancel ``timer``."""

    timer: MemberTimer


@dataclass(frozen=True, slots=True)
class SetLease:
    """Allow the streams to deliver records until this time of the monotonic clock, in ms."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Write one log line: event name and message; ``hook_arguments`` are passed to the hook of the event."""

    level: str
    name: str
    message: str
    hook_arguments: tuple[Any, ...] = ()


@dataclass(frozen=True, slots=True)
class IncrementCounter:
    """Add to a counter."""

    name: str
    amount: int = 1


# --- registration -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ProbeSession:
    """Send a request to ZooKeeper that only shows that the session lives, and record when it was sent."""

    session_id: int


@dataclass(frozen=True, slots=True)
class Register:
    """Create our registration znode."""

    ticket: int
    session_id: int
    subscription: TopicSubscription


@dataclass(frozen=True, slots=True)
class Deregister:
    """Delete our registration znode."""

    ticket: int
    session_id: int


# --- reading ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ReadGroup:
    """Read members and topics and set watches; with ``with_owners`` also read the owner nodes.

    It reads the topics of our own ``subscription``; with ``whole_group`` also those of the other members only.
    ``owners_max``: how many owner nodes are read, spread evenly; None: all of them.
    """

    ticket: int
    session_id: int
    subscription: TopicSubscription
    whole_group: bool
    with_owners: bool
    owners_max: int | None = None


@dataclass(frozen=True, slots=True)
class ListOwners:
    """List which partitions of these topics have an owner node, and set watches.

    For ``own_partitions`` only a node of this session counts: a node that another member created is reported as
    missing.
    """

    ticket: int
    session_id: int
    topics: tuple[str, ...]
    own_partitions: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True)
class ReadPositions:
    """Read the stored offsets of these partitions."""

    ticket: int
    session_id: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class FetchOffsets:
    """Fetch the committed offsets of these partitions from the group coordinator, within ``timeout_ms``."""

    ticket: int
    session_id: int
    partitions: tuple[TopicPartition, ...]
    timeout_ms: int


# --- writing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """One offset to write; ``stored`` has the version of the offset znode that this owner last read or wrote.

    ``is_reset``: the reset policy has moved the position since then, so a larger offset that is found is replaced.
    """

    offset: int
    stored: StoredOffset
    is_reset: bool = False


@dataclass(frozen=True, slots=True)
class PartitionToRelease:
    """One partition to release: commit ``offset`` unless it is None, then delete the owner node.

    With ``next_owner`` the node is created again, for another thread of this member.  ``verify_owner``: first check
    whether the node belongs to this session.  The answer to an earlier write of the node was lost, so it may be that of
    another member by now.  ``is_reset``: as in ``OffsetToCommit``.
    """

    offset: int | None
    stored: StoredOffset
    next_owner: str | None = None
    verify_owner: bool = False
    is_reset: bool = False


@dataclass(frozen=True, slots=True)
class AcquireOwnership:
    """Create the owner nodes of these partitions with these thread ids.

    ``list_owners_first``: list the owners and create only the missing nodes, instead of trying all.
    ``identify_owners``: read the nodes that conflict with ours, to report their owners.
    """

    ticket: int
    session_id: int
    owners: Mapping[TopicPartition, str]
    list_owners_first: bool
    identify_owners: bool
    control_version: int | None


@dataclass(frozen=True, slots=True)
class ReleaseOwnership:
    """Commit and delete the owner nodes; with ``next_owner``, replace the node by that thread's in the same write."""

    ticket: int
    session_id: int
    partitions: Mapping[TopicPartition, PartitionToRelease]
    control_version: int | None


@dataclass(frozen=True, slots=True)
class CommitToZooKeeper:
    """Write offsets of partitions that this member owns and keeps."""

    ticket: int
    session_id: int
    offsets: Mapping[TopicPartition, OffsetToCommit]
    control_version: int | None


@dataclass(frozen=True, slots=True)
class CommitToKafka:
    """Commit offsets of owned partitions to the group coordinator, in at most ``attempts`` attempts.

    A commit to Kafka cannot have a condition.  So the lease, the owner nodes and the control znode are checked
    immediately before each request.
    """

    ticket: int
    session_id: int
    offsets: Mapping[TopicPartition, int]
    attempts: int
    control_version: int | None


@dataclass(frozen=True, slots=True)
class CancelKafkaRequest:
    """The result of the request with this ticket is no longer needed: send no more requests for it."""

    cancelled_ticket: int


# --- the rebalance listener -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallBeforeReleasing:
    """Call the program's listener: these partitions will be released."""

    ticket: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CallBeforeStarting:
    """Call the program's listener with the assignment of the group, before a new partition is fetched."""

    ticket: int
    assignment: Mapping[TopicPartition, ConsumerThreadId]


@dataclass(frozen=True, slots=True)
class CallPartitionsLost:
    """Call the program's listener: this member lost these partitions; it did not release them."""

    partitions: tuple[TopicPartition, ...]


# --- answers to the program -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompleteCommit:
    """Complete a call of ``commit_offsets()``: the partitions whose offset was not written, with the reason."""

    call_id: int
    failures: Mapping[TopicPartition, CommitFailure]


@dataclass(frozen=True, slots=True)
class AnnounceAssignment:
    """The member owns all partitions of its assignment."""

    partition_count: int


@dataclass(frozen=True, slots=True)
class AnnounceLeft:
    """The member has left the group; ``unreleased``: partitions whose owner node could not be deleted."""

    unreleased: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AnnounceControl:
    """The control znode changed since the last announcement; None: it does not exist.  For migrating members."""

    control: ControlRecord | None
    version: int | None


@dataclass(frozen=True, slots=True)
class Fail:
    """End every stream with an error; ``error_class`` is the name of its class."""

    error_class: str
    message: str


Command: TypeAlias = (
    StartTimer
    | StopTimer
    | SetLease
    | LogEvent
    | IncrementCounter
    | ProbeSession
    | Register
    | Deregister
    | ReadGroup
    | ListOwners
    | ReadPositions
    | FetchOffsets
    | AcquireOwnership
    | ReleaseOwnership
    | CommitToZooKeeper
    | CommitToKafka
    | CancelKafkaRequest
    | PartitionCommand
    | CallBeforeReleasing
    | CallBeforeStarting
    | CallPartitionsLost
    | CompleteCommit
    | AnnounceAssignment
    | AnnounceLeft
    | AnnounceControl
    | Fail
)
