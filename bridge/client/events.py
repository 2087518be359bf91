"""What can happen to a member of a coordinator's group.  Values only.

Each is given to the machine's ``handle(event, now_ms)`` and answered with a list of ``commands``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

from zkconsumer.types import BrokerAddress, TopicPartition

if TYPE_CHECKING:
    from bridge.client.partition_assignor import ConsumerPartitionAssignor

RequestId: TypeAlias = int
"""Names one request until it is answered or given up.  Never used twice."""


@dataclass(frozen=True, slots=True)
class CoordinatorNode:
    """A broker by its number."""

    id: int
    address: BrokerAddress


@dataclass(frozen=True, slots=True)
class Polled:
    """What the program does at this moment; it is looked at again and again.

    ``busy_since_ms``: since when the program of ``stream`` works on one record; ``max.poll.interval.ms`` counts from
    there.  None: the program has no record.  It waits in a call for one, or has not asked for the first: it is alive.
    """

    busy_since_ms: int | None = None
    stream: str = ""


@dataclass(frozen=True, slots=True)
class Subscribed:
    """These topics are wanted from now on.

    ``takes``: of a filter, whether it takes a topic; ``topics`` are then those that it takes of what is known now.
    """

    topics: frozenset[str]
    matches_filter: Callable[[str], bool] | None = None


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """Nothing is wanted any more: the group is left."""


@dataclass(frozen=True, slots=True)
class MetadataUpdated:
    """How many partitions the topics have that were asked for; a topic that there is not is left out.

    ``asked``: the topics that the answer is about; None: all that there are.
    """

    partitions: Mapping[str, int]
    asked: frozenset[str] | None = None
    racks: Mapping[TopicPartition, frozenset[str]] = field(default_factory=dict)
    """Where partitions have replicas; what is left out has none that is known."""


@dataclass(frozen=True, slots=True)
class Responded:
    """A request was answered: a message of ``zkconsumer.wire.schemas`` of the request's API.

    ``version``: the one that it was asked in.
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


@dataclass(frozen=True, slots=True)
class RequestFailed:
    """A request has no answer and will have none; ``error`` where somebody must be told more (authentication)."""

    request: RequestId
    failure: Failure
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The connection to a node broke; its requests have each ``RequestFailed`` before."""

    node: int


class TimerKind(Enum):
    """What a deadline is for."""

    HEARTBEAT = "heartbeat"
    SESSION = "session"
    POLL = "poll"
    BACKOFF = "backoff"
    AUTO_COMMIT = "auto-commit"
    REBALANCE = "rebalance"
    CLOSE = "close"


@dataclass(frozen=True, slots=True)
class MemberTimerFired:
    """A deadline has passed; one that was cancelled, or set anew, may still come, and is passed over."""

    kind: TimerKind
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Offset:
    """What is committed of a partition: the next offset to read, and what may be said with it."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@dataclass(frozen=True, slots=True)
class CommitAsked:
    """Commit these; ``CommitDone`` with the same number follows.  ``retried``: on and on, as ``commitSync`` does."""

    number: int
    offsets: Mapping[TopicPartition, Offset]
    retried: bool


@dataclass(frozen=True, slots=True)
class PositionsReceived:
    """What has been consumed, for the automatic commit that was asked for by ``CollectPositions``: one for each."""

    offsets: Mapping[TopicPartition, Offset]


@dataclass(frozen=True, slots=True)
class FetchAsked:
    """What is committed of these?  ``FetchDone`` with the same number follows."""

    number: int
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class CallbackDone:
    """What ``Invoke`` with this number came to; ``error`` is what the program raised."""

    number: int
    result: Any = None
    error: Exception | None = None


@dataclass(frozen=True, slots=True)
class RejoinAsked:
    """``enforceRebalance`` (2.6, KIP-568): join again, for this reason."""

    reason: str


@dataclass(frozen=True, slots=True)
class AssignorsOffered:
    """From now on the group may divide by these, the best first: join again and say so."""

    assignors: tuple[ConsumerPartitionAssignor, ...]


@dataclass(frozen=True, slots=True)
class Closed:
    """The program ends: commit if that is automatic, leave if that is wanted, then ``MemberStopped``, in this time."""

    leave: bool = True
    timeout_ms: int = 30_000


Event: TypeAlias = (
    Polled | Subscribed | Unsubscribed | MetadataUpdated | Responded | RequestFailed | Disconnected | MemberTimerFired
    | CommitAsked | PositionsReceived | FetchAsked | CallbackDone | RejoinAsked
    | AssignorsOffered | Closed
)  # fmt: skip
