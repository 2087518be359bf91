"""The error codes that a group coordinator answers with, by Kafka's names.  Pure.

They are integers, so that messages can contain them directly.  ``zkconsumer.kafka.error_codes`` has the meaning of each
for a client.
"""

from __future__ import annotations

from enum import IntEnum


class Errors(IntEnum):
    """Kafka's ``Errors``, those that a group coordinator or its log uses."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    MESSAGE_TOO_LARGE = 10
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    UNSUPPORTED_VERSION = 35
    KAFKA_STORAGE_ERROR = 56
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    UNSTABLE_OFFSET_COMMIT = 88


_ANY_APPEND_ERRORS: dict[int, int] = {
    Errors.UNKNOWN_TOPIC_OR_PARTITION: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_ENOUGH_REPLICAS: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Errors.COORDINATOR_NOT_AVAILABLE,
    Errors.NOT_LEADER_OR_FOLLOWER: Errors.NOT_COORDINATOR,
    Errors.KAFKA_STORAGE_ERROR: Errors.NOT_COORDINATOR,
}
_TOO_LARGE = (Errors.MESSAGE_TOO_LARGE, Errors.RECORD_LIST_TOO_LARGE, Errors.INVALID_FETCH_SIZE)

_GROUP_APPEND_ERRORS: dict[int, int] = {
    **_ANY_APPEND_ERRORS,
    Errors.REQUEST_TIMED_OUT: Errors.REBALANCE_IN_PROGRESS,
    **dict.fromkeys(_TOO_LARGE, Errors.UNKNOWN_SERVER_ERROR),
}
_OFFSET_APPEND_ERRORS: dict[int, int] = {
    **_ANY_APPEND_ERRORS,
    **dict.fromkeys(_TOO_LARGE, Errors.INVALID_COMMIT_OFFSET_SIZE),
}


def group_append_error(code: int) -> int:
    """The member's error when the log rejected its group's record: ``storeGroup`` of Kafka 0.9 to 3.9."""
    return _GROUP_APPEND_ERRORS.get(code, code)


def offset_append_error(code: int) -> int:
    """The member's error when the log rejected its offsets: ``storeOffsets`` of Kafka 0.9 to 3.9."""
    return _OFFSET_APPEND_ERRORS.get(code, code)
