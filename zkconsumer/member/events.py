"""What happened: everything that can come into ``core.group``.  Past tense; values only.

An answer carries the ``ticket`` of the command that asked, so that an answer to a question of an earlier session
or attempt can be told from the one that is waited for.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

    from zkconsumer.member.group_view import GroupView, TopicSubscription
    from zkconsumer.types import TopicPartition


# --- the session ------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class SessionConnected:
    """ZooKeeper answers, in this session, with this negotiated time-out."""

    session_id: int
    timeout_ms: int


@dataclass(frozen=True, slots=True)
class SessionSuspended:
    """The connection broke; the session may still live."""


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
    """We ended the session ourselves."""


@dataclass(frozen=True, slots=True)
class MembershipEnded:
    """The membership ends for a reason outside of the core, and nothing more can be done in it."""

    why: str


# --- what the program asks for ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class JoinRequested:
    """Streams were created: be a member with this subscription, topics by name or a filter."""

    subscription: TopicSubscription


@dataclass(frozen=True, slots=True)
class ListenerSet:
    """The program gave a rebalance listener."""


@dataclass(frozen=True, slots=True)
class ExternalAssignmentSet:
    """Somebody else divides the group: this is our share from now on, partition -> our thread id; None: computed again.

    ``new``: what of it came into being while whoever divides was looking; it is read from its beginning.
    The owner nodes stay the lock: what is given is claimed like any other share.
    """

    threads: Mapping[TopicPartition, str] | None
    new: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class LeaveRequested:
    """The connector is being closed, or gave up."""


@dataclass(frozen=True, slots=True)
class CommitRequested:
    """``commit_offsets()`` was called; ``call`` is answered by a ``CompleteCommit``.

    ``until_ms``: how long the caller waits; what has not begun by then is not written any more.  None: for ever.
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
    """Another session holds a registration with our id; ``age_ms`` since it was made."""

    ticket: int
    session_id: int
    age_ms: int
    holder_host: str


@dataclass(frozen=True, slots=True)
class RegistrationFailed:
    """The registration could not be written, or its outcome is not known."""

    ticket: int
    why: str


@dataclass(frozen=True, slots=True)
class Deregistered:
    """Our registration znode is gone; with ``why``, it may still be there, and why."""

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
    """A watch fired: an owner node of this topic came or went."""

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
    CONFLICT = "refused"  # someone else's node is there
    NOT_OWNER = "not ours"  # our owner node is gone, or is not ours any more
    FAILED = "failed"  # an error, with its reason; may be tried again
    UNKNOWN = "unknown"  # it may have happened: the connection broke, or the coordinator cannot say


@dataclass(frozen=True, slots=True)
class AcquireResult:
    """How the claim of one partition ended; ``czxid`` names our node when it was won."""

    outcome: WriteOutcome
    czxid: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class AcquireOwnershipCompleted:
    """The claims came back; ``unwatched`` names the topics whose owners could not be listed with a watch."""

    ticket: int
    results: Mapping[TopicPartition, AcquireResult]
    unwatched: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """An offset znode: ``offset`` -1 when there is none, ``version`` -1 when the znode is missing.

    ``written_zxid``: in which transaction of ZooKeeper it was written last; 0 when that is not known.
    """

    offset: int = -1
    version: int = -1
    malformed: str = ""
    written_zxid: int = field(default=0, compare=False)


@dataclass(frozen=True, slots=True)
class PositionsRead:
    """The stored offsets of partitions that we own.

    A partition in neither map was not answered, because the connection broke: it is asked for again.
    """

    ticket: int
    stored: Mapping[TopicPartition, StoredOffset]
    failed: Mapping[TopicPartition, str]


@dataclass(frozen=True, slots=True)
class OffsetsFetched:
    """What the group's coordinator said of partitions that we own; -1 where it keeps no offset.

    ``failed`` has the reason for every partition that it did not tell.  ``unsupported``: no broker of the cluster
    keeps offsets, and why that is so.
    """

    ticket: int
    offsets: Mapping[TopicPartition, int]
    failed: Mapping[TopicPartition, str]
    unsupported: str = ""


@dataclass(frozen=True, slots=True)
class ZooKeeperWriteResult:
    """How a commit or a release of one partition ended, and what the offset znode is known to hold now.

    ``rewound_from`` is the lower value that somebody else had written over ours, and that we wrote over again.
    ``handed_over`` says that the owner node now names the other thread that the release asked for; ``czxid`` names
    that node.  ``why`` beside ``DONE``: the partition was given back, and its offset could not be written.
    """

    outcome: WriteOutcome
    stored: StoredOffset
    why: str = ""
    rewound_from: int | None = None
    is_thread_changed: bool = False
    czxid: int = 0


@dataclass(frozen=True, slots=True)
class ReleaseOwnershipCompleted:
    """The releases came back."""

    ticket: int
    results: Mapping[TopicPartition, ZooKeeperWriteResult]


@dataclass(frozen=True, slots=True)
class CommitToZooKeeperCompleted:
    """The commits came back."""

    ticket: int
    results: Mapping[TopicPartition, ZooKeeperWriteResult]


@dataclass(frozen=True, slots=True)
class KafkaCommitResult:
    """How a commit of one partition to Kafka ended.

    ``is_final``: trying again cannot help.  ``is_coordinator_group_active``: members of the modern kind are alive in a
    group of this name, and the broker takes offsets from nobody else.
    """

    outcome: WriteOutcome
    why: str = ""
    is_permanent: bool = False
    is_coordinator_group_active: bool = False


@dataclass(frozen=True, slots=True)
class CommitToKafkaCompleted:
    """The coordinator's answer to a commit, or what became of it."""

    ticket: int
    results: Mapping[TopicPartition, KafkaCommitResult]


# --- from the streams -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PartitionsDrained:
    """Nothing more is handed out of these; ``positions`` are the next offsets to consume (-1: not known yet)."""

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class PositionsCollected:
    """The consumed positions of everything that is being fetched, for an automatic commit."""

    positions: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class OffsetReset:
    """The reset policy moved a partition: there was no stored offset, or it was out of range."""

    partition: TopicPartition
    offset: int


@dataclass(frozen=True, slots=True)
class OffsetsOverwritten:
    """Somebody of ours put these offsets into their znodes, under our ownership, and not by a commit; they may be less
    than before.  What is committed from here on is bound to them."""

    stored: Mapping[TopicPartition, StoredOffset]


# --- from the rebalance listener --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ListenerReturned:
    """The listener came back from this call; with ``why``, by an exception."""

    ticket: int
    method_name: str
    why: str = ""


# --- time -------------------------------------------------------------------------------------------------------


class MemberTimer(Enum):
    """The timers that the core may start."""

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
    """A timer that was started ran out."""

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
    | PartitionsDrained
    | PositionsCollected
    | OffsetReset
    | OffsetsOverwritten
    | ListenerReturned
    | TimerFired
)
