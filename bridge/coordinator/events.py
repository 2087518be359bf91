"""The events of a group coordinator.  Values only.

Each is passed to ``GroupCoordinator.handle(event, now_ms)``, which returns a list of ``commands``.  ``now_ms`` never
decreases.  Appends of one partition are answered in the order of their commands.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Token: TypeAlias = int
"""Names one request until it is answered, or one append until it is settled.  Never used twice."""

TimerKey: TypeAlias = tuple[str, ...]
"""The purpose of a timer: a word (``"join"``, ``"sync"``, ``"heartbeat"``, ``"expiry"``) and its group or member."""


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record of a partition of ``__consumer_offsets``; ``value`` None is a tombstone.

    ``producer_id``: of the transaction that contains it.  ``is_marker``: it is a control record, which ends the
    transaction of that producer; its key has the result.  We append neither, but a log may contain both.
    """

    key: bytes
    value: bytes | None
    producer_id: int | None = None
    is_marker: bool = False


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """A request arrived.  ``body`` is a message of ``zkconsumer.wire.schemas`` of this API and version.

    The API layer has checked it before (access rights, missing topics).
    """

    token: Token
    api_key: int
    version: int
    body: Any
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class GroupTimerFired:
    """A deadline has passed; the event of one that was cancelled, or set again, may still arrive, and is ignored."""

    key: TimerKey
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class AppendCompleted:
    """The result of an ``Append``: 0 or the log's error code, and the offset of its first record (-1: none)."""

    token: Token
    error_code: int
    base_offset: int = -1


@dataclass(frozen=True, slots=True)
class Elected:
    """This broker leads the partition from now on: it is loading until ``PartitionLoaded``."""

    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class PartitionLoaded:
    """The partition's whole log, in order, as (offset, record)."""

    partition: int
    epoch: int
    records: Sequence[tuple[int, CoordinatorRecord]]


@dataclass(frozen=True, slots=True)
class Resigned:
    """Another broker leads the partition now."""

    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class TopicsDeleted:
    """These topics were deleted; the groups' offsets for them are deleted too."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The broker shuts down: parked requests are answered, and later ones at once (15)."""


Event: TypeAlias = (
    RequestReceived
    | GroupTimerFired
    | AppendCompleted
    | Elected
    | PartitionLoaded
    | Resigned
    | TopicsDeleted
    | ShutDown
)
