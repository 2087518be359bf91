"""What the coordinator does when the log has accepted or rejected an append: the remaining action, as a value.  Pure.

The state machine passes such a value with each append, and receives it again with the result of the append.  Kafka uses
closures for this; values can be inspected, compared and copied with the whole machine.  ``parked`` and
``delayed_request``: the request of a client that waits for this result.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TypeAlias

from bridge.coordinator.member_metadata import DelayedRequest, Protocols
from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class DeliverAssignment:
    """The record with the leader's assignment of this generation: send the assignment to the waiting members."""

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
    """The records of a commit: answer the client.

    ``topics``: the partitions of the request, in its order.  ``too_large``: those whose metadata was too long; they
    were not appended.
    """

    delayed_request: DelayedRequest
    topics: tuple[tuple[str, tuple[int, ...]], ...]
    too_large: frozenset[TopicPartition]
    consumer_id: str = ""
    """The member that commits, for the log; "" for a client that is not a member."""


EMPTIED = "all members have left"
"""Why a group without members is written."""


@dataclass(frozen=True, slots=True)
class LogAppendFailure:
    """An append for which no client waits: a failure is only logged.  ``why``: the reason of the append, for the log.

    A failed removal of expired offsets is tried again by the next periodic check.
    """

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
    offsets: int = 0
    """How many offsets are deleted with the groups, for the log."""


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
