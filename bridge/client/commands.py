"""What a member of a coordinator's group wants done.  Values only; a list of them is carried out in its order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, TypeAlias

from bridge.client.events import CoordinatorNode, Offset, RequestId, TimerKind
from zkconsumer.errors import ZkConsumerError
from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class Send:
    """Send a request and say ``Responded`` or ``Failed``, once.

    ``node`` None: to whichever broker has least to do.  ``version_most`` bounds the version that is picked; the highest
    that both sides know is taken.
    """

    request: RequestId
    node: int | None
    api_key: int
    body: Any
    timeout_ms: int
    version_most: int = 0x7FFF


@dataclass(frozen=True, slots=True)
class ConnectCoordinator:
    """Open the coordinator's own connection (apart from the one that fetches)."""

    node: CoordinatorNode


@dataclass(frozen=True, slots=True)
class DisconnectCoordinator:
    """Close it; what is on its way has ``Failed``."""

    node: int


@dataclass(frozen=True, slots=True)
class SetMemberTimer:
    """Say ``TimerFired`` with this kind and deadline once it has passed; takes the place of one of the same kind."""

    kind: TimerKind
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelMemberTimer:
    """Nobody waits for this any more."""

    kind: TimerKind


class Callback(Enum):
    """What a program, or an assignor, is asked; each answered by ``CallbackDone``."""

    REVOKED = "on_partitions_revoked"
    ASSIGNED = "on_partitions_assigned"
    LOST = "on_partitions_lost"


@dataclass(frozen=True, slots=True)
class Invoke:
    """Call the program; heartbeats go on meanwhile."""

    number: int
    callback: Callback
    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class StopPartitions:
    """Hand out nothing more of these, before they are committed and given back."""

    partitions: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class StartPartitions:
    """These are ours in this generation; where from is asked by ``FetchAsked``.

    ``new``: those of them that came into being under our eyes (``newcomers``).
    """

    partitions: frozenset[TopicPartition]
    generation: int
    new: frozenset[TopicPartition] = frozenset()


@dataclass(frozen=True, slots=True)
class RequestPositions:
    """Say ``PositionsCollected``, once, for an automatic commit.

    After ``StopPartitions`` the positions are those that stay: what the program has in hand then is consumed, or not.
    """


@dataclass(frozen=True, slots=True)
class CommitDone:
    """What a commit came to: no error, one for all, or one a partition."""

    number: int
    error: ZkConsumerError | None
    refused: Mapping[TopicPartition, ZkConsumerError]


@dataclass(frozen=True, slots=True)
class FetchDone:
    """What is committed; None for a partition of which nothing is."""

    number: int
    offsets: Mapping[TopicPartition, Offset | None]
    error: ZkConsumerError | None = None


@dataclass(frozen=True, slots=True)
class NeedMetadata:
    """Ask for these topics (None: all) and say ``MetadataUpdated``."""

    topics: frozenset[str] | None


@dataclass(frozen=True, slots=True)
class Raise:
    """Raise this out of the program's next call; ``is_fatal``: and out of all that follow."""

    error: ZkConsumerError
    is_fatal: bool


@dataclass(frozen=True, slots=True)
class MemberStopped:
    """Everything is given back; nothing follows."""


@dataclass(frozen=True, slots=True)
class LogMemberEvent:
    """Something to be logged and counted: a word and its fields."""

    name: str
    fields: tuple[tuple[str, Any], ...] = ()


Command: TypeAlias = (
    Send
    | ConnectCoordinator
    | DisconnectCoordinator
    | SetMemberTimer
    | CancelMemberTimer
    | Invoke
    | StopPartitions
    | StartPartitions
    | RequestPositions
    | CommitDone
    | FetchDone
    | NeedMetadata
    | Raise
    | MemberStopped
    | LogMemberEvent
)
