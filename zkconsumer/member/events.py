"""The events that ``MemberStateMachine`` handles.  Names in the past tense; values only.

An answer carries the ``ticket`` of its command, so that an answer that belongs to an earlier session or attempt can be
distinguished from the expected one.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.member.ownership import PartitionEvent

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.member.group_view import GroupView, TopicSubscription
    from zkconsumer.types import TopicPartition


# --- the session ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionConnected:
    """The connection is established, in this session, with this negotiated timeout.

    The timeout may be smaller or larger than the requested one.  ``is_new`` False:
    the session of before a disconnect, with its ephemeral znodes, but without its watches.
    """

    session_id: int
    timeout_ms: int
    is_new: bool = True


@dataclass(frozen=True, slots=True)
class SessionSuspended:
    """The connection broke; the session may still live.

    Every watch is dropped.  A program that needs one reads again, with a watch, after the next ``SessionConnected``.
    """


@dataclass(frozen=True, slots=True)
class SessionLost:
    """The session expired, and with it every ephemeral node of ours."""

    session_id: int


@dataclass(frozen=True, slots=True)
class SessionAnswered:
    """A request of this session, sent at that time, was answered."""

    session_id: int
    sent_at_ms: int


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """This member closed the session."""


@dataclass(frozen=True, slots=True)
class MembershipEnded:
    """The membership ended for a reason outside of this package; ``why`` is that reason."""

    why: str


# --- requests of the program ------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinRequested:
    """Streams were created: join with this subscription, which names topics or has a topic filter."""

    subscription: TopicSubscription


@dataclass(frozen=True, slots=True)
class ListenerSet:
    """The program set a rebalance listener."""


@dataclass(frozen=True, slots=True)
class ExternalAssignmentSet:
    """The assignment comes from outside from now on: partition -> our thread id; None: this member computes it again.

    ``new``: the newly created partitions in it; they are read from their beginning.
    Owner nodes remain the lock: the member acquires these partitions like any other assignment.
    """

    threads: Mapping[TopicPartition, str] | None
    new: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The connector is being closed, or failed."""


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """``commit_offsets()`` was called; a ``CompleteCommit`` with ``call_id`` answers it.

    ``until_ms``: until when the caller waits; a commit that has not started by then is not made.  None: no limit.
    """

    call_id: int
    positions: Mapping[TopicPartition, int]
    until_ms: int | None = None


# --- registration -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Registered:
    """Our registration znode exists under our session."""

    ticket: int


@dataclass(frozen=True, slots=True)
class RegistrationConflict:
    """The registration znode of our id exists already, and another session created it, ``age_ms`` ago.

    ``session_id``: that session.  ``host``: the host of the client that has it, as ZooKeeper's servers report it
    (four-letter command ``cons``); it begins with "unknown" until they have answered, and if none of them reports it.
    """

    ticket: int
    session_id: int
    age_ms: int
    host: str


@dataclass(frozen=True, slots=True)
class RegistrationFailed:
    """The registration could not be written, or its outcome is unknown."""

    ticket: int
    why: str


@dataclass(frozen=True, slots=True)
class Deregistered:
    """Our registration znode is deleted; with ``why``, the delete failed for that reason and it may still exist."""

    ticket: int
    why: str = ""


# --- watches ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupChanged:
    """A watch fired: members, a registration, a topic or the control znode changed."""

    changed_path: str
    is_control: bool = False
    """It was the control znode."""


@dataclass(frozen=True, slots=True)
class OwnersChanged:
    """A watch fired: an owner node of this topic was created or deleted."""

    topic: str


# --- answers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupRead:
    """The group as it is now."""

    ticket: int
    view: GroupView


@dataclass(frozen=True, slots=True)
class GroupReadFailed:
    """The group could not be read."""

    ticket: int
    why: str


@dataclass(frozen=True, slots=True)
class OwnersListed:
    """Which partitions of these topics have an owner node."""

    ticket: int
    owned: Mapping[str, frozenset[int]]


class WriteOutcome(Enum):
    """How one write for one partition ended."""

    DONE = "done"
    CONFLICT = "refused"  # another member's node exists
    NOT_OWNER = "not ours"  # our owner node does not exist, or is not ours any more
    FAILED = "failed"  # an error, with its reason; may be tried again
    UNKNOWN = "unknown"  # it may have happened: the connection broke, or the coordinator's answer leaves it open


@dataclass(frozen=True, slots=True)
class AcquireResult:
    """The result of acquiring one partition; ``czxid`` identifies our owner node when it was created."""

    outcome: WriteOutcome
    czxid: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class AcquireOwnershipCompleted:
    """The results of ``AcquireOwnership``; ``unwatched``: topics whose owners could not be listed with a watch."""

    ticket: int
    results: Mapping[TopicPartition, AcquireResult]
    unwatched: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """An offset znode: ``offset`` is -1 without an offset, ``version`` is -1 when the znode does not exist.

    ``written_zxid``: the ZooKeeper transaction that wrote it last; 0 if unknown.
    """

    offset: int = -1
    version: int = -1
    written_zxid: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class PositionsRead:
    """The stored offsets of partitions that we own.

    A partition in neither map has no answer because the connection broke; it is read again.
    """

    ticket: int
    stored: Mapping[TopicPartition, StoredOffset]
    failed: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    """The committed offsets of owned partitions at the group coordinator; -1: no committed offset.

    ``failed``: partition -> why its offset is unknown.  ``unsupported``: why no broker of the cluster stores offsets;
    "" if brokers do.
    """

    ticket: int
    offsets: Mapping[TopicPartition, int]
    failed: Mapping[TopicPartition, str]
    unsupported: str = ""


@dataclass(frozen=True, slots=True)
class ZooKeeperWriteResult:
    """The result of a commit or a release of one partition; ``stored``: the known content of the offset znode now.

    ``rewound_from``: the smaller offset that another client had written over ours, and that we overwrote again.
    ``is_thread_changed``: the owner node now names the ``next_owner`` of the release; ``czxid`` identifies that node.
    ``why`` with ``DONE``: the partition was released, but its offset could not be written.
    """

    outcome: WriteOutcome
    stored: StoredOffset
    why: str = ""
    rewound_from: int | None = None
    is_thread_changed: bool = False
    czxid: int = 0


@dataclass(frozen=True, slots=True)
class ReleaseOwnershipCompleted:
    """The results of ``ReleaseOwnership``."""

    ticket: int
    results: Mapping[TopicPartition, ZooKeeperWriteResult]


@dataclass(frozen=True, slots=True)
class CommitToZooKeeperCompleted:
    """The results of ``CommitToZooKeeper``."""

    ticket: int
    results: Mapping[TopicPartition, ZooKeeperWriteResult]


@dataclass(frozen=True, slots=True)
class KafkaCommitResult:
    """The result of a commit of one partition to Kafka.

    ``is_permanent``: a retry cannot succeed.  ``is_coordinator_group_active``: the coordinator group of this name has
    live members, and the broker accepts offsets only from them.
    """

    outcome: WriteOutcome
    why: str = ""
    is_permanent: bool = False
    is_coordinator_group_active: bool = False


@dataclass(frozen=True, slots=True)
class CommitToKafkaCompleted:
    """The results of ``CommitToKafka``."""

    ticket: int
    results: Mapping[TopicPartition, KafkaCommitResult]


@dataclass(frozen=True, slots=True)
class OffsetsOverwritten:
    """This process wrote these offsets to their znodes while we own the partitions, but not by a commit.

    They may be smaller than before.  Later commits check the versions of these znodes."""

    stored: Mapping[TopicPartition, StoredOffset]


# --- from the rebalance listener --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListenerReturned:
    """The listener returned from this call; with ``why``, by an exception."""

    ticket: int
    method_name: str
    why: str = ""


# --- time -------------------------------------------------------------------------------------------------------


class MemberTimer(Enum):
    """The timers that ``MemberStateMachine`` starts."""

    PROBE = "probe"
    DEBOUNCE = "debounce"
    COLLECT_POSITIONS = "collect"
    LIST_OWNERS = "owners"
    RETRY = "retry"
    DRAIN = "drain"
    SETTLE = "settle"
    COMMIT = "commit"
    REGISTER = "register"
    DIAGNOSE = "diagnose"
    LISTENER = "listener"
    RELEASE_WAITS_FOR_KAFKA = "kafka"
    MISSING_TOPICS = "missing"


@dataclass(frozen=True, slots=True)
class TimerFired:
    """A timer expired."""

    timer: MemberTimer


Event: TypeAlias = (
    SessionConnected
    | SessionSuspended
    | SessionLost
    | SessionAnswered
    | SessionClosed
    | MembershipEnded
    | JoinRequested
    | ExternalAssignmentSet
    | ListenerSet
    | LeaveRequested
    | CommitRequested
    | Registered
    | RegistrationConflict
    | RegistrationFailed
    | Deregistered
    | GroupChanged
    | OwnersChanged
    | GroupRead
    | GroupReadFailed
    | OwnersListed
    | AcquireOwnershipCompleted
    | PositionsRead
    | ReleaseOwnershipCompleted
    | CommitToZooKeeperCompleted
    | OffsetsFetched
    | CommitToKafkaCompleted
    | PartitionEvent
    | OffsetsOverwritten
    | ListenerReturned
    | TimerFired
)
