"""The sentences about records that brokers do not accept: the error, and who must act.  Pure."""

from __future__ import annotations

from collections.abc import Mapping

from zkconsumer.errors import KafkaException
from zkconsumer.kafka.error_codes import (
    CORRUPT_MESSAGE,
    INVALID_RECORD,
    INVALID_TIMESTAMP,
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    MESSAGE_TOO_LARGE,
    POLICY_VIOLATION,
    RECORD_LIST_TOO_LARGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    UNSUPPORTED_COMPRESSION_TYPE,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
    ErrorCode,
)

TOO_LARGE = (MESSAGE_TOO_LARGE, RECORD_LIST_TOO_LARGE)
"""The record set, or a record of it, is larger than the broker accepts."""

_NO_KEY = "Look into the broker's log; a record of a compacted topic must have a key"

_ADVICE: Mapping[ErrorCode, str] = {
    TOPIC_AUTHORIZATION_FAILED: "Allow this user WRITE and DESCRIBE on the topic, or log in as another user",
    INVALID_TOPIC_EXCEPTION: "Correct the name of the topic",
    UNKNOWN_TOPIC_OR_PARTITION: "Create the topic, or correct the option topic or the column topic",
    LEADER_NOT_AVAILABLE: "Start the brokers with the replicas of the partition",
    INVALID_TIMESTAMP: "Correct column timestamp in the query, or the limits of the topic (message.timestamp.*)",
    UNSUPPORTED_COMPRESSION_TYPE: "Set another kafka.compression.type",
    UNSUPPORTED_FOR_MESSAGE_FORMAT: "Set another kafka.compression.type, or raise the topic's message.format.version",
    INVALID_RECORD: _NO_KEY,
    CORRUPT_MESSAGE: _NO_KEY,
    POLICY_VIOLATION: "Change the rows, or the policy of the brokers",
}


class RecordsNotWritten(KafkaException):
    """A broker does not accept records of a Spark sink; the text has the partition, the error and what to change."""


def delivery_advice(code: ErrorCode) -> str:
    """What to do about the error of a partition."""
    return _ADVICE.get(code, "Look into the broker's log")


def too_large_advice(data_bytes: int) -> str:
    """What to do about a single record that the broker does not accept."""
    return (
        f"A row has about {data_bytes} bytes: raise max.message.bytes of the topic, or message.max.bytes of the "
        "brokers, or drop the row in the query"
    )
