"""What the errors of a group's coordinator mean to somebody who keeps offsets there without being a member.  Pure."""

from __future__ import annotations

from zkconsumer.kafka import error_codes as codes
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.member.events import KafkaCommitResult, WriteOutcome

ACTIVE_GROUP_ERRORS = frozenset(
    {codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION, codes.REBALANCE_IN_PROGRESS, codes.STALE_MEMBER_EPOCH}
)
"""What a coordinator answers to somebody outside, while members of the modern kind are in a group of this name."""

ACTIVE_GROUP_HINT = (
    "members of the modern kind (KafkaConsumer) are alive in a group of this name, and the coordinator takes offsets "
    "from them alone: stop them, or give this group another group.id"
)

FINAL_COMMIT_ERROR_HINTS = {
    codes.UNKNOWN_TOPIC_OR_PARTITION: "the brokers do not know the partition: its topic was deleted",
    codes.OFFSET_METADATA_TOO_LARGE: "the note beside the offset is longer than offset.metadata.max.bytes",
    codes.INVALID_COMMIT_OFFSET_SIZE: "the broker cannot store a commit of this size",
    codes.INVALID_GROUP_ID: "the brokers do not take this group.id",
    codes.TOPIC_AUTHORIZATION_FAILED: "the brokers' ACLs do not let this user read the topic",
    codes.GROUP_AUTHORIZATION_FAILED: "the brokers' ACLs do not let this user use the group",
}
"""Errors after which committing again is in vain, and what they mean."""

FINAL_FETCH_ERRORS = frozenset(
    {codes.INVALID_GROUP_ID, codes.TOPIC_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED}
)
"""Errors after which asking again is in vain.  Not so UNKNOWN_TOPIC_OR_PARTITION: brokers of 0.8.2 answer it until they
have learnt of the topic, also right after a restart, and then there may be an offset."""


UNKNOWN_OUTCOME_ERRORS = frozenset({codes.REQUEST_TIMED_OUT, codes.COORDINATOR_NOT_AVAILABLE})
"""What a coordinator answers, too, when a commit stands in its log and the other replicas did not follow in time."""


def is_final_commit_error(code: ErrorCode) -> bool:
    """Whether committing again is in vain as long as things are as they are."""
    return code in ACTIVE_GROUP_ERRORS or code in FINAL_COMMIT_ERROR_HINTS


def describe_error(code: ErrorCode) -> str:
    """The code's name and number, and what it means."""
    hint = ACTIVE_GROUP_HINT if code in ACTIVE_GROUP_ERRORS else FINAL_COMMIT_ERROR_HINTS.get(code)
    return f"{code}: {hint}" if hint else str(code)


def commit_result(code: ErrorCode) -> KafkaCommitResult:
    """What became of a commit that was answered with this code."""
    if code == codes.NONE:
        return KafkaCommitResult(WriteOutcome.DONE)
    outcome = WriteOutcome.UNKNOWN if code in UNKNOWN_OUTCOME_ERRORS else WriteOutcome.FAILED
    return KafkaCommitResult(outcome, describe_error(code), is_final_commit_error(code), code in ACTIVE_GROUP_ERRORS)
