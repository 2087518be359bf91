"""The meaning of a coordinator's errors for a client that commits offsets without being a member.  Pure."""

from __future__ import annotations

from zkconsumer.kafka import error_codes as codes
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.member.events import KafkaCommitResult, WriteOutcome

ACTIVE_GROUP_ERRORS = frozenset(
    {codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION, codes.REBALANCE_IN_PROGRESS, codes.STALE_MEMBER_EPOCH}
)
"""A coordinator's errors for a client that is not a member, while the group of this name has members."""

ACTIVE_GROUP_HINT = (
    "a coordinator group of this name has members (KafkaConsumer), and the coordinator accepts offsets "
    "from them only: stop them, or give this group another group.id"
)

FINAL_COMMIT_ERROR_HINTS = {
    codes.UNKNOWN_TOPIC_OR_PARTITION: "the partition does not exist at the brokers: its topic was deleted",
    codes.OFFSET_METADATA_TOO_LARGE: "the metadata of the offset is longer than offset.metadata.max.bytes",
    codes.INVALID_COMMIT_OFFSET_SIZE: "the broker cannot store a commit of this size",
    codes.INVALID_GROUP_ID: "the brokers do not accept this group.id",
    codes.TOPIC_AUTHORIZATION_FAILED: "the brokers' ACLs do not let this user read the topic",
    codes.GROUP_AUTHORIZATION_FAILED: "the brokers' ACLs do not let this user use the group",
}
"""Errors after which a repeated commit is useless, and their meaning."""

FINAL_FETCH_ERRORS = frozenset(
    {codes.INVALID_GROUP_ID, codes.TOPIC_AUTHORIZATION_FAILED, codes.GROUP_AUTHORIZATION_FAILED}
)
"""Errors after which a repeated request is useless.  UNKNOWN_TOPIC_OR_PARTITION is not one: brokers of 0.8.2 return it
until they have learned of the topic, also right after a restart, and then there may be an offset."""


UNKNOWN_OUTCOME_ERRORS = frozenset({codes.REQUEST_TIMED_OUT, codes.COORDINATOR_NOT_AVAILABLE})
"""A coordinator also returns this if the commit is in its log and the other replicas did not follow in time."""


def is_final_commit_error(code: ErrorCode) -> bool:
    """Whether a repeated commit is useless while nothing changes."""
    return code in ACTIVE_GROUP_ERRORS or code in FINAL_COMMIT_ERROR_HINTS


def describe_error(code: ErrorCode) -> str:
    """The code's name, number and meaning."""
    hint = ACTIVE_GROUP_HINT if code in ACTIVE_GROUP_ERRORS else FINAL_COMMIT_ERROR_HINTS.get(code)
    return f"{code}: {hint}" if hint else str(code)


def commit_result(code: ErrorCode) -> KafkaCommitResult:
    """The result of a commit with this code."""
    if code == codes.NONE:
        return KafkaCommitResult(WriteOutcome.DONE)
    outcome = WriteOutcome.UNKNOWN if code in UNKNOWN_OUTCOME_ERRORS else WriteOutcome.FAILED
    return KafkaCommitResult(outcome, describe_error(code), is_final_commit_error(code), code in ACTIVE_GROUP_ERRORS)
