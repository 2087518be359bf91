"""What is done when an append is settled.  Pure.

Kafka keeps closures for this; here they are values, so that the whole machine can be looked at, compared and copied.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.coordinator.member_metadata import DelayedRequest, Protocols
from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class DeliverAssignment:
    """The leader's assignment for this generation: deliver it."""

    generation_id: int


@dataclass(frozen=True, slots=True)
class ConfirmNewGroup:
    """The first record of a new group: if it fails, whoever waits in the group is told, and the group is gone."""


@dataclass(frozen=True, slots=True)
class AnswerStaticMember:
    """A static member came back under a new id, in a stable group: answer it, or undo that."""

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
    """Offsets: answer who committed them.  ``topics``: what was asked, in order.  ``too_large``: refused at once."""

    delayed_request: DelayedRequest
    topics: tuple[tuple[str, tuple[int, ...]], ...]
    too_large: frozenset[TopicPartition]


@dataclass(frozen=True, slots=True)
class LogAppendFailure:
    """Nobody waits for this; a failure is noted.  ``why`` it was written: what has expired is found again."""

    why: str


@dataclass(frozen=True, slots=True)
class AnswerOffsetDelete:
    """Tombstones of offsets: answer who deleted them, in this order, with the errors that are known already."""

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
