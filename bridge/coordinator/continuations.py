"""The actions after an append is settled.  Pure.

Kafka uses closures for this; here they are values, so that the whole machine can be inspected, compared and copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.coordinator.member_metadata import DelayedRequest, Protocols
from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class DeliverAssignment:
    """The leader's assignment of this generation: deliver it."""

    generation_id: int


@dataclass(frozen=True, slots=True)
class ConfirmNewGroup:
    """The first record of a new group: if it fails, the waiting members receive the error, and the group is deleted."""


@dataclass(frozen=True, slots=True)
class AnswerStaticMember:
    """A static member rejoined a stable group under a new id: answer it, or undo that."""

    parked: DelayedRequest
    generation_id: int
    group_instance_id: str
    old_member_id: str
    new_member_id: str
    old_leader_id: str | None
    old_protocols: Protocols
    old_rebalance_timeout_ms: int
    old_session_timeout_ms: int


@dataclass(frozen=True, slots=True)
class AnswerCommit:
    """Offsets: answer the client.  ``topics``: the requested ones, in order.  ``too_large``: rejected at once."""

    delayed_request: DelayedRequest
    topics: tuple[tuple[str, tuple[int, ...]], ...]
    too_large: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class LogAppendFailure:
    """No client waits for this; a failure is logged.  ``why`` it was written: expired data is found again."""

    why: str


@dataclass(frozen=True, slots=True)
class AnswerOffsetDelete:
    """Tombstones of offsets: answer the client, in this order, with the errors that are known already."""

    parked: DelayedRequest
    topics: tuple[tuple[str, tuple[int, ...]], ...]
    refused: tuple[tuple[TopicPartition, int], ...]


@dataclass(slots=True)
class PendingGroupDeletions:
    """One DeleteGroups: it is answered when the last of its groups is settled.  ``errors``: group → error so far."""

    parked: DelayedRequest
    errors: dict[str, int]
    waiting: set[str] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class AnswerGroupDelete:
    """The tombstones of one group of a DeleteGroups."""

    group_id: str
    deletions: PendingGroupDeletions


Continuation: TypeAlias = (
    DeliverAssignment
    | ConfirmNewGroup
    | AnswerStaticMember
    | AnswerCommit
    | LogAppendFailure
    | AnswerOffsetDelete
    | AnswerGroupDelete
)
