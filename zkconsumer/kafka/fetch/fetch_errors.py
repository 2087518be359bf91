"""What a consumer does about the error of a partition in a Fetch response (Kafka 3.0; topic ids: 3.1).  Pure."""

from __future__ import annotations

from enum import Enum

from zkconsumer.kafka.error_codes import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_TOPIC_ID,
    KAFKA_STORAGE_ERROR,
    LEADER_NOT_AVAILABLE,
    NOT_LEADER_OR_FOLLOWER,
    OFFSET_NOT_AVAILABLE,
    OFFSET_OUT_OF_RANGE,
    REPLICA_NOT_AVAILABLE,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode,
)


class FetchErrorAction(Enum):
    """What follows; in each case the partition is fetched again, unless its position is reset."""

    UPDATE_METADATA = "update-metadata"
    """The leader has changed, or the topic: the metadata must be newer than the response."""
    RETRY = "retry"
    """The broker has older metadata, or has failed once."""
    RESET_POSITION = "reset-position"
    """``auto.offset.reset`` applies, unless a preferred replica answered, which may lack the newest records."""
    RAISE = "raise"
    """The program has to act."""


_ACTIONS: dict[ErrorCode, FetchErrorAction] = {
    NOT_LEADER_OR_FOLLOWER: FetchErrorAction.UPDATE_METADATA,
    REPLICA_NOT_AVAILABLE: FetchErrorAction.UPDATE_METADATA,
    KAFKA_STORAGE_ERROR: FetchErrorAction.UPDATE_METADATA,
    FENCED_LEADER_EPOCH: FetchErrorAction.UPDATE_METADATA,
    OFFSET_NOT_AVAILABLE: FetchErrorAction.UPDATE_METADATA,
    UNKNOWN_TOPIC_OR_PARTITION: FetchErrorAction.UPDATE_METADATA,
    UNKNOWN_TOPIC_ID: FetchErrorAction.UPDATE_METADATA,
    INCONSISTENT_TOPIC_ID: FetchErrorAction.UPDATE_METADATA,
    OFFSET_OUT_OF_RANGE: FetchErrorAction.RESET_POSITION,
    UNKNOWN_LEADER_EPOCH: FetchErrorAction.RETRY,
    UNKNOWN_SERVER_ERROR: FetchErrorAction.RETRY,
}

CHANGE_OF_LEADER_ERRORS = frozenset(
    {
        NOT_LEADER_OR_FOLLOWER,
        REPLICA_NOT_AVAILABLE,
        KAFKA_STORAGE_ERROR,
        FENCED_LEADER_EPOCH,
        OFFSET_NOT_AVAILABLE,
        UNKNOWN_LEADER_EPOCH,
    }
)
"""Errors that are normal while a leader changes; their log lines have the level DEBUG, the others WARNING."""

CHANGE_OF_LEADER_LOOKUP_ERRORS = CHANGE_OF_LEADER_ERRORS | {LEADER_NOT_AVAILABLE}
"""The same of ListOffsets and OffsetForLeaderEpoch."""


def fetch_error_action(error: ErrorCode) -> FetchErrorAction:
    """The action; an error without a row is raised."""
    return _ACTIONS.get(error, FetchErrorAction.RAISE)
