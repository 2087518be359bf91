"""What a group coordinator wants done.  Values only; a list of them is carried out in its order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from bridge.coordinator.events import CoordinatorRecord, TimerKey, Token


@dataclass(frozen=True, slots=True)
class SendResponse:
    """Answer a request.  ``body`` is a response of its API, to be written in the version that was asked in."""

    token: Token
    body: Any


@dataclass(frozen=True, slots=True)
class Append:
    """Add these to a partition of ``__consumer_offsets``, all or none, and say ``AppendCompleted``: once, whatever
    happens.
    """

    partition: int
    epoch: int
    records: tuple[CoordinatorRecord, ...]
    token: Token


@dataclass(frozen=True, slots=True)
class LoadPartition:
    """Read the partition's log and say ``PartitionLoaded`` with the same epoch."""

    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SetGroupTimer:
    """Say ``TimerFired`` with this key and deadline once it has passed; takes the place of one with the same key."""

    key: TimerKey
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelGroupTimer:
    """Nobody waits for this any more."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class LogGroupEvent:
    """Something to be logged and counted: a word and its fields."""

    name: str
    fields: tuple[tuple[str, Any], ...] = ()


Command: TypeAlias = SendResponse | Append | LoadPartition | SetGroupTimer | CancelGroupTimer | LogGroupEvent
