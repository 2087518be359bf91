"""The commands of a member's state machine.  Values only; a list of them is executed in its order.

Two of them are those of ``zkconsumer.member.ownership``: ``Drain`` before partitions are committed and released, and
``CollectPositions`` for an automatic commit, answered once by ``PositionsCollected``.  After ``Drain`` the positions
are final: a record that the program is processing then is consumed, or not.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.group.events import CoordinatorNode, Offset, RequestId, TimerKind
from zkconsumer.member.ownership import CollectPositions, Drain
from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request, and answer with ``Responded`` or ``RequestFailed``, once.

    ``node`` None: to the broker with the fewest pending requests.  ``version_most`` limits the version; the highest one
    that both sides support is used.
    """

    request: RequestId
    node: int | None
    api_key: int
    body: Any
    timeout_ms: int
    version_most: int = 0x7FFF


@dataclass(frozen=True, slots=True)
class ConnectCoordinator:
    """Open the connection to the coordinator (separate from those that fetch)."""

    node: CoordinatorNode


@dataclass(frozen=True, slots=True)
class DisconnectCoordinator:
    """Close it; requests in flight fail with ``RequestFailed``."""

    node: int


@dataclass(frozen=True, slots=True)
class SetMemberTimer:
    """Submit ``MemberTimerFired`` with this kind and deadline once it has passed; replaces one of the same kind."""

    kind: TimerKind
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelMemberTimer:
    """Stop this timer."""

    kind: TimerKind


class Callback(Enum):
    """The kinds of calls to the program or an assignor; each is answered by ``CallbackDone``."""

    REVOKED = "on_partitions_revoked"
    ASSIGNED = "on_partitions_assigned"
    LOST = "on_partitions_lost"


@dataclass(frozen=True, slots=True)
class Invoke:
    """Call the program; heartbeats continue meanwhile."""

    number: int
    callback: Callback
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class StartPartitions:
    """We own these in this generation; ``FetchAsked`` requests their committed offsets.

    ``new``: those of them that were created while we were in the group (``new_partitions``).
    """

    partitions: frozenset[TopicPartition]
    generation: int
    new: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class CommitDone:
    """The result of a commit: no error, one for all partitions, or one for each rejected partition."""

    number: int
    error: ZkConsumerError | None
    refused: Mapping[TopicPartition, ZkConsumerError]


@dataclass(frozen=True, slots=True)
class FetchDone:
    """The committed offsets; None for a partition without one."""

    number: int
    offsets: Mapping[TopicPartition, Offset | None]
    error: ZkConsumerError | None = None


@dataclass(frozen=True, slots=True)
class NeedMetadata:
    """Request the partitions of these topics (None: all) and answer with ``MetadataUpdated``."""

    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise this in the program's next call; ``is_fatal``: and in all later ones."""

    error: ZkConsumerError
    is_fatal: bool


@dataclass(frozen=True, slots=True)
class MemberStopped:
    """All partitions are released; no more commands follow."""


@dataclass(frozen=True, slots=True)
class LogMemberEvent:
    """An event to log and count: its name, its fields, and Kafka's sentence about it, "" if Kafka logs none."""

    name: str
    fields: tuple[tuple[str, Any], ...] = ()
    sentence: str = ""


Command: TypeAlias = (
    Send
    | ConnectCoordinator
    | DisconnectCoordinator
    | SetMemberTimer
    | CancelMemberTimer
    | Invoke
    | Drain
    | StartPartitions
    | CollectPositions
    | CommitDone
    | FetchDone
    | NeedMetadata
    | Raise
    | MemberStopped
    | LogMemberEvent
)
