"""What must now be done: everything that ``core.group`` can ask of the shell.  Imperative; values only.

The order of a list of commands is a contract, and ``core.group`` is the only maker of such lists:

    stop and drain before commit, commit before release, release before claim, claim before position,
    position before fetch.

With a rebalance listener it is told of a release between drain and commit, and of a start between claim and position.

A command that writes carries the session in which it was decided; the shell drops it in any other session.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.member.events import MemberTimer, StoredOffset
    from zkconsumer.member.group_view import GroupControl, TopicSubscription
    from zkconsumer.member.offset_stores import CommitFailure, OffsetSource
    from zkconsumer.member.topic_count import ConsumerThreadId
    from zkconsumer.types import TopicPartition


# --- time and telling -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class StartTimer:
    """Fire ``timer`` once after ``delay_ms``; a running one is replaced."""

    timer: MemberTimer
    delay_ms: int


@dataclass(frozen=True, slots=True)
class StopTimer:
    """Forget ``timer``."""

    timer: MemberTimer


@dataclass(frozen=True, slots=True)
class SetLease:
    """Let the streams hand out records until this time of the monotonic clock."""

    until_ms: int


@dataclass(frozen=True, slots=True)
class LogEvent:
    """Write one log line: an event name and its words; ``about`` is what hooks are given of it."""

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
    """Ask ZooKeeper for a sign of life, noting when it was asked."""

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
    """Read members and topics, leaving watches; the owners too when asked.

    Those topics that our own ``subscription`` takes; with ``whole_group`` those that only others subscribe to as well.
    Of the owners ``owners_max`` are read, spread evenly; None: all of them.
    """

    ticket: int
    session_id: int
    subscription: TopicSubscription
    whole_group: bool
    with_owners: bool
    owners_max: int | None = None


@dataclass(frozen=True, slots=True)
class ListOwners:
    """List which partitions of these topics have an owner node, leaving watches.

    Of ``mine`` only nodes of this session count: one that somebody deleted and another member made anew is not there.
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
    """Ask the group's coordinator for the offsets of these partitions, for at most so long."""

    ticket: int
    session_id: int
    partitions: tuple[TopicPartition, ...]
    timeout_ms: int


# --- writing ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetToCommit:
    """One offset to be written, at the version that this ownership last read or wrote."""

    offset: int
    stored: StoredOffset
    owner: str


@dataclass(frozen=True, slots=True)
class PartitionToRelease:
    """One partition to be given back: commit ``offset`` if there is something to commit, then delete the owner node.

    With ``next_owner`` the node is made again, for another thread of this member.  ``verify`` asks to look first
    whether the node is of this session: the outcome of an earlier write is not known.
    """

    offset: int | None
    stored: StoredOffset
    owner: str
    next_owner: str | None = None
    verify_owner: bool = False


@dataclass(frozen=True, slots=True)
class AcquireOwnership:
    """Create the owner nodes of these partitions with these thread ids.

    ``look_first``: list the owners and claim what is free, instead of claiming blindly.  ``look_closely``: read
    the nodes that refuse us, to say who holds them.
    """

    ticket: int
    session_id: int
    owners: Mapping[TopicPartition, str]
    list_owners_first: bool
    identify_owners: bool
    control_version: int | None


@dataclass(frozen=True, slots=True)
class ReleaseOwnership:
    """Commit and give back; with ``next_owner``, hand over to another thread of this member in one step."""

    ticket: int
    session_id: int
    partitions: Mapping[TopicPartition, PartitionToRelease]
    control_version: int | None


@dataclass(frozen=True, slots=True)
class CommitToZooKeeper:
    """Write offsets of partitions that we own, and go on owning them."""

    ticket: int
    session_id: int
    offsets: Mapping[TopicPartition, OffsetToCommit]
    control_version: int | None


@dataclass(frozen=True, slots=True)
class CommitToKafka:
    """Tell the group's coordinator these offsets of partitions that we own, in so many attempts at most.

    Kafka knows no condition: lease, owner nodes and control znode are looked at immediately before each request.
    """

    ticket: int
    session_id: int
    offsets: Mapping[TopicPartition, int]
    attempts: int
    control_version: int | None


@dataclass(frozen=True, slots=True)
class CancelKafkaRequest:
    """Nobody waits any more for what was asked with this ticket: send nothing of it from now on."""

    cancelled_ticket: int


# --- streams and fetchers ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Drain:
    """Stop fetching and handing out these partitions; tell when each caller has come back for more."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ForceDrain:
    """Tell the positions of these partitions as they are; a message in hand counts as not consumed."""

    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class DropPartitions:
    """Stop these partitions and forget them: they are not ours any more."""

    partitions: tuple[TopicPartition, ...]
    why: str


BEGINNING = -2
"""The position of a partition that is to be read from its beginning, whatever the reset policy says."""


@dataclass(frozen=True, slots=True)
class StartFetching:
    """Fetch these partitions for these threads from these offsets (-1: ask the reset policy; or ``BEGINNING``).

    ``sources`` says which store told each offset.  ``epochs`` names each ownership: while it is the same, nobody else
    had the partition (in ZooKeeper the czxid of our owner node).
    """

    positions: Mapping[TopicPartition, int]
    threads: Mapping[TopicPartition, str]
    sources: Mapping[TopicPartition, OffsetSource]
    epochs: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class MoveToThread:
    """Give a drained partition, with what was not handed out, to another stream of this member.

    ``epochs``: what the ownership is called from here on, see ``StartFetching``.  Nobody else had it in between.
    """

    threads: Mapping[TopicPartition, str]
    epochs: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class CollectPositions:
    """Tell the consumed positions of everything that is being fetched."""


# --- the rebalance listener -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CallBeforeReleasing:
    """Tell the program's listener that these partitions are about to be given back."""

    ticket: int
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class CallBeforeStarting:
    """Tell the program's listener who has what in the group, before anything new is fetched."""

    ticket: int
    assignment: Mapping[TopicPartition, ConsumerThreadId]


@dataclass(frozen=True, slots=True)
class CallPartitionsLost:
    """Call the program's listener: these partitions are not ours any more, and were not given back."""

    partitions: tuple[TopicPartition, ...]


# --- answers to the program -------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CompleteCommit:
    """Answer a call of ``commit_offsets()``: what was not written, with the reason."""

    call_id: int
    failures: Mapping[TopicPartition, CommitFailure]


@dataclass(frozen=True, slots=True)
class AnnounceAssignment:
    """The member holds its whole share."""

    partition_count: int


@dataclass(frozen=True, slots=True)
class AnnounceLeft:
    """Everything was given back and the registration is gone."""

    unreleased: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class AnnounceControl:
    """The control znode is another than was said last; None: there is none.  For members that follow it."""

    control: GroupControl | None


@dataclass(frozen=True, slots=True)
class Fail:
    """End every stream with an error: ``kind`` names its class."""

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
    | Drain
    | ForceDrain
    | DropPartitions
    | StartFetching
    | MoveToThread
    | CollectPositions
    | CallBeforeReleasing
    | CallBeforeStarting
    | CallPartitionsLost
    | CompleteCommit
    | AnnounceAssignment
    | AnnounceLeft
    | AnnounceControl
    | Fail
)
