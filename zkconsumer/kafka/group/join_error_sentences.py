"""How Kafka's client logs an error of JoinGroup or SyncGroup.  Pure.

The sentences are those of ``AbstractCoordinator.JoinGroupResponseHandler`` and ``SyncGroupResponseHandler`` (3.0).
Kafka logs no sentence for some errors of SyncGroup, because it raises them: they get one of the same form here.
"""

from __future__ import annotations

from enum import Enum

from zkconsumer.kafka.error_codes import error_code
from zkconsumer.kafka.group import error_policy as policy
from zkconsumer.kafka.group.events import CoordinatorNode
from zkconsumer.kafka.group.generation import Generation
from zkconsumer.kafka.group.kafka_text_forms import error_message, generation_text, node_text, optional_text
from zkconsumer.kafka.group.pending_commands import RequestKind

_FATAL_IN_JOIN = frozenset({23, 24, 26, policy.GROUP_AUTHORIZATION_FAILED, policy.GROUP_MAX_SIZE_REACHED})
"""The errors of JoinGroup that Kafka logs as fatal: the program must change something."""


class JoinErrorKind(Enum):
    """The consequence of an error, which decides about the level of its line."""

    RETRIED = "the member joins again"
    REJECTED = "the program receives the error"
    MEMBER_ID_GIVEN = "not an error: the coordinator gives a member its id"


def join_error_sentence(
    what: RequestKind,
    code: int,
    sent: Generation,
    *,
    coordinator: CoordinatorNode | None,
    group_instance_id: str | None,
    given_member_id: str = "",
) -> tuple[JoinErrorKind, str]:
    """The kind of the error ``code`` in the response to ``what``, and Kafka's sentence; ``sent``: the generation of the
    request."""
    name, message = what.value, error_message(code)
    was = f"Sent generation was {generation_text(sent)}"
    is_generation_over = what is RequestKind.SYNC_GROUP and code == policy.ILLEGAL_GENERATION
    if code == policy.UNKNOWN_MEMBER_ID or is_generation_over:
        return JoinErrorKind.RETRIED, f"{name} failed: {message} Need to re-join the group. {was}"
    if code in (policy.COORDINATOR_NOT_AVAILABLE, policy.NOT_COORDINATOR):
        return JoinErrorKind.RETRIED, f"{name} failed: {message} Marking coordinator unknown. {was}"
    if code == policy.FENCED_INSTANCE_ID:
        instance = optional_text(group_instance_id)
        words = f"The group instance id {instance} has been fenced by another instance. {was}"
        return JoinErrorKind.REJECTED, f"{name} failed: {words}"
    if what is RequestKind.SYNC_GROUP:
        if code == policy.REBALANCE_IN_PROGRESS:
            words = f"The group began another rebalance. Need to re-join the group. {was}"
            return JoinErrorKind.RETRIED, f"{name} failed: {words}"
    elif code == policy.COORDINATOR_LOAD_IN_PROGRESS:
        return JoinErrorKind.RETRIED, f"{name} failed: Coordinator {node_text(coordinator)} is loading the group."
    elif code == policy.REBALANCE_IN_PROGRESS:
        words = "which could indicate a replication timeout on the broker. Will retry."
        return JoinErrorKind.RETRIED, f"{name} failed due to non-fatal error: REBALANCE_IN_PROGRESS, {words}"
    elif code == policy.MEMBER_ID_REQUIRED:
        words = f"Will set the member id as {given_member_id} and then rejoin. {was}"
        return (
            JoinErrorKind.MEMBER_ID_GIVEN,
            f"{name} failed due to non-fatal error: {error_code(code).name} {words}",
        )
    elif code == policy.UNSUPPORTED_VERSION:
        words = "Please unset field group.instance.id and retry to see if the problem resolves"
        return JoinErrorKind.REJECTED, f"{name} failed due to unsupported version error. {words}"
    elif code in _FATAL_IN_JOIN:
        return JoinErrorKind.REJECTED, f"{name} failed due to fatal error: {message}"
    return JoinErrorKind.REJECTED, f"{name} failed due to unexpected error: {message}"
