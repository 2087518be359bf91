"""The events of a coordinator group's member.  Values only.

Each is passed to the machine's ``handle(event, now_ms)``, which returns a list of ``commands``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from zkconsumer.member.ownership import PositionsCollected
from zkconsumer.types import BrokerAddress, TopicPartition

if TYPE_CHECKING:
    from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor

RequestId: TypeAlias = int
"""Identifies one request until it is answered or abandoned.  Never used twice."""


@dataclass(frozen=True, slots=True)
class CoordinatorNode:
    """A broker with its number."""

    id: int
    address: BrokerAddress


@dataclass(frozen=True, slots=True)
class Polled:
    """The current state of the program; it is reported regularly.

    ``busy_since_ms``: since when the program of ``stream`` works on one record; ``max.poll.interval.ms`` counts from
    there.  None: the program has no record.  It waits in a call for one, or has not asked for the first: it is alive.
    """

    busy_since_ms: int | None = None
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """Subscribe to these topics from now on.

    ``matches_filter``: for a filter, whether it matches a topic; ``topics`` are then the known topics that it matches.
    """

    topics: frozenset[str]
    matches_filter: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """Unsubscribe from everything: the member leaves the group."""


@dataclass(frozen=True, slots=True)
class MetadataUpdated:
    """The number of partitions of the requested topics; a topic that does not exist is missing.

    ``asked``: the requested topics; None: all topics of the cluster.
    """

    partitions: Mapping[str, int]
    asked: frozenset[str] | None = None
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)
    """The racks with replicas of each partition; a missing partition has no known rack."""


@dataclass(frozen=True, slots=True)
class Responded:
    """A request was answered: a message of ``zkconsumer.wire.schemas`` of the request's API.

    ``version``: the version of the request.
    """

    request: RequestId
    body: Any
    version: int = 0


class Failure(Enum):
    """Why a request has no answer."""

    DISCONNECTED = "disconnected"
    TIMED_OUT = "timed out"
    NO_BROKER = "no broker"
    UNSUPPORTED = "unsupported"
    INVALID = "invalid"
    """It has a value that cannot be sent; ``error`` names it.  Nothing is wrong with the broker."""


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request has no answer and will not have one; ``error`` where the program needs the cause (authentication)."""

    request: RequestId
    failure: Failure
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to a node broke; each of its requests has received ``RequestFailed`` before."""

    node: int


class TimerKind(Enum):
    """The purpose of a deadline."""

    HEARTBEAT = "heartbeat"
    SESSION = "session"
    POLL = "poll"
    BACKOFF = "backoff"
    AUTO_COMMIT = "auto-commit"
    REBALANCE = "rebalance"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class MemberTimerFired:
    """A deadline has passed; the event of one that was cancelled, or set again, may still arrive, and is ignored."""

    kind: TimerKind
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Offset:
    """A committed position of a partition: the next offset to read, with its metadata and leader epoch."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """Commit these; ``CommitDone`` with the same number follows.  ``retried``: until the time-out, as
    ``commitSync``; ``timeout_ms`` None: ``default.api.timeout.ms``."""

    number: int
    offsets: Mapping[TopicPartition, Offset]
    retried: bool
    timeout_ms: int | None = None


@dataclass(frozen=True, slots=True)
class OffsetsCollected:
    """The answer to ``CollectPositions`` with complete offsets, instead of ``PositionsCollected``."""

    offsets: Mapping[TopicPartition, Offset]


@dataclass(frozen=True, slots=True)
class FetchAsked:
    """Fetch the committed offsets of these.  ``FetchDone`` with the same number follows."""

    number: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class CallbackDone:
    """The result of ``Invoke`` with this number; ``error`` is the exception of the program."""

    number: int
    result: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class RejoinAsked:
    """``enforceRebalance`` (2.6, KIP-568): join again, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class AssignorsOffered:
    """Use these assignors from now on, in order of preference: join again with them."""

    assignors: tuple[ConsumerPartitionAssignor, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """The program closes: commit if that is automatic, leave if requested, then ``MemberStopped``, within this time."""

    leave: bool = True
    timeout_ms: int = 30_000


Event: TypeAlias = (
    Polled | Subscribed | Unsubscribed | MetadataUpdated | Responded | RequestFailed | Disconnected | MemberTimerFired
    | CommitAsked | PositionsCollected | OffsetsCollected | FetchAsked | CallbackDone | RejoinAsked
    | AssignorsOffered | Closed
)  # fmt: skip
