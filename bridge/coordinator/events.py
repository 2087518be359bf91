"""What can happen to a group coordinator.  Values only.

Each is given to ``GroupCoordinator.handle(event, now_ms)`` and answered with a list of ``commands``.  ``now_ms`` never
goes back.  Appends of one partition are answered in the order in which they were commanded.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

Token: TypeAlias = int
"""Names one request until it is answered, or one append until it is settled.  Never used twice."""

TimerKey: TypeAlias = tuple[str, ...]
"""What a timer is for: a word (``"join"``, ``"sync"``, ``"heartbeat"``, ``"expiry"``) and what it belongs to."""


@dataclass(frozen=True, slots=True)
class CoordinatorRecord:
    """One record of a partition of ``__consumer_offsets``; ``value`` None is a tombstone.

    ``producer_id``: of the transaction that it is part of.  ``is_marker``: it is a control record, which ends the
    transaction of that producer; its key says how.  We append neither, but a log may hold both.
    """

    key: bytes
    value: bytes | None
    producer_id: int | None = None
    is_marker: bool = False


@dataclass(frozen=True, slots=True)
class RequestReceived:
    """Somebody asks.  ``body`` is a message of ``zkconsumer.wire.schemas`` of this API and version.

    What the API layer decides (rights, topics that there are not) was decided before.
    """

    token: Token
    api_key: int
    version: int
    body: Any
    client_id: str
    client_host: str


@dataclass(frozen=True, slots=True)
class GroupTimerFired:
    """A deadline has passed; one that was cancelled, or set anew, may still come, and is passed over."""

    key: TimerKey
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class AppendCompleted:
    """What became of an ``Append``: 0 or the log's error code, and the offset of its first record (-1: none)."""

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
    """These topics are gone, and what groups have stored for them goes too."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True)
class ShutDown:
    """The broker goes down: what is parked is answered, and from now on everything is (15)."""


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
