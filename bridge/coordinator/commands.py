"""The commands of a group coordinator.  Values only; a list of them is executed in its order."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from bridge.coordinator.events import CoordinatorRecord, TimerKey, Token


@dataclass(frozen=True, slots=True)
class SendResponse:
    """Answer a request.  ``body`` is a response of its API, to be written in the version of the request."""

    token: Token
    body: Any


@dataclass(frozen=True, slots=True)
class Append:
    """Append these to a partition of ``__consumer_offsets``, all or none, and submit ``AppendCompleted`` exactly once,
    in every case.
    """

    partition: int
    epoch: int
    records: tuple[CoordinatorRecord, ...]
    token: Token


@dataclass(frozen=True, slots=True)
class LoadPartition:
    """Read the partition's log and submit ``PartitionLoaded`` with the same epoch."""

    partition: int
    epoch: int


@dataclass(frozen=True, slots=True)
class SetGroupTimer:
    """Submit ``GroupTimerFired`` with this key and deadline once it has passed; replaces one with the same key."""

    key: TimerKey
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class CancelGroupTimer:
    """Cancel the timer with this key."""

    key: TimerKey


@dataclass(frozen=True, slots=True)
class LogGroupEvent:
    """An event to log: its name, its fields, and Kafka's sentence about it, "" if Kafka logs none."""

    name: str
    fields: tuple[tuple[str, Any], ...] = ()
    sentence: str = ""


Command: TypeAlias = SendResponse | Append | LoadPartition | SetGroupTimer | CancelGroupTimer | LogGroupEvent
