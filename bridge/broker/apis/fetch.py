"""Fetch: stored bytes, from the log or converted to an older format; a reader at the end of the log waits for more.

Fetch sessions (1.1, KIP-227) are kept as by Kafka's brokers: see ``bridge.broker.fetch_session_cache``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.broker.fetch_session_cache import FetchContext
from bridge.broker.log.log_validator import down_convert
from bridge.broker.topic_store import BrokerPartition
from bridge.coordinator.api_request import AclOperation
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka.error_codes import (
    CORRUPT_MESSAGE,
    KAFKA_STORAGE_ERROR,
    NONE,
    OFFSET_OUT_OF_RANGE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNSUPPORTED_COMPRESSION_TYPE,
    ErrorCode,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import READ_COMMITTED
from zkconsumer.wire.schemas.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)

if TYPE_CHECKING:
    from bridge.broker.node import BrokerNode
    from bridge.coordinator.api_request import ApiRequest
    from bridge.coordinator.release_features import BrokerRelease

MIN_ONE_MESSAGE_FROM = 3
"""The version from which the first entry is returned whole whatever its size (0.10.1, KIP-74)."""


TOPIC_IDS_FROM = 13

FETCH_WAIT_MS_MAX = 300_000
"""The maximum wait of a fetch, whatever it requests."""


@dataclass(slots=True)
class _FetchReadState:
    """The remaining limits of the request."""

    version: int
    magic_max: int
    bytes_left: int
    stored_bytes: int = 0
    has_error: bool = False


def handle_fetch(node: BrokerNode, call: ApiRequest) -> None:
    """Answer now, when enough bytes were appended, or when the wait time is over."""
    answer_fetch(node, call, node.fetch_sessions.new_context(call.body, call.version))


def answer_fetch(node: BrokerNode, call: ApiRequest, context: FetchContext | ErrorCode) -> None:
    """Answer a request for the partitions of ``context``, its fetch session; or with an error of the session."""
    body = call.body
    if isinstance(context, ErrorCode):
        call.reply(FetchResponse(error_code=context.code, responses=[]))
        return
    topics = context.topics
    answer, reading = _read_topics(node, call, topics)
    missing = min(body.min_bytes, body.max_bytes) - reading.stored_bytes
    if missing <= 0 or reading.has_error or body.max_wait_ms <= 0 or not topics:
        call.reply(context.build_response(answer))
        return
    waits_for = [
        TopicPartition(name, partition.partition)
        for topic in topics
        if (name := _topic_name(node, call, topic)) is not None
        for partition in topic.partitions
    ]
    wait_ms = min(body.max_wait_ms, FETCH_WAIT_MS_MAX)

    def complete() -> None:
        call.reply(context.build_response(_read_topics(node, call, topics)[0]))

    call.on_disconnect(node.cluster.fetch_purgatory.add(waits_for, missing, wait_ms, complete))


def max_magic_of_fetch(version: int) -> int:
    """The newest message format in a response of this version."""
    if version <= 1:
        return 0
    return 1 if version <= 3 else 2


def _topic_name(node: BrokerNode, call: ApiRequest, topic: FetchTopic) -> str | None:
    if call.version < TOPIC_IDS_FROM:
        return topic.topic
    found = node.cluster.topics.by_id(topic.topic_id)
    return None if found is None else found.name


def _read_topics(
    node: BrokerNode, call: ApiRequest, asked_topics: Sequence[FetchTopic]
) -> tuple[list[FetchTopicResponse], _FetchReadState]:
    room = min(call.body.max_bytes, node.cluster.config.fetch_max_bytes)
    reading = _FetchReadState(call.version, max_magic_of_fetch(call.version), room)
    topics = []
    for topic in asked_topics:
        name = _topic_name(node, call, topic)
        rows = []
        for requested in topic.partitions:
            row, took = _fetch_partition(node, call, name, requested, reading)
            if name is not None:
                row = call.injected.on_fetched(TopicPartition(name, requested.partition), row)
            if row.records:
                reading.bytes_left -= took
                reading.stored_bytes += took
            reading.has_error |= row.error_code != NONE.code
            rows.append(row)
        topics.append(FetchTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=rows))
    return topics, reading


def _fetch_partition(
    node: BrokerNode, call: ApiRequest, topic: str | None, requested: FetchPartition, reading: _FetchReadState
) -> tuple[FetchPartitionResponse, int]:
    """The row of the response, and the number of stored bytes in it: the limits of a request count stored bytes."""
    if topic is None:
        return _error_partition(requested, UNKNOWN_TOPIC_ID)
    if not node.is_authorized(call, AclOperation.READ, topic):
        return _error_partition(requested, TOPIC_AUTHORIZATION_FAILED)
    partition = node.partition_or_error(call, topic, requested.partition, requested.current_leader_epoch)
    if isinstance(partition, ErrorCode):
        return _error_partition(requested, partition)
    log = partition.log
    if not log.can_read_from(requested.fetch_offset):
        return _error_partition(requested, OFFSET_OUT_OF_RANGE)
    try:
        is_committed_only = call.body.isolation_level == READ_COMMITTED
        records, took = _read_records(partition, requested, reading, node.release, is_committed_only)
    except UnsupportedCodec:
        records_of_error = None if node.release.returns_null_records_for_unsupported_codec else b""
        return _error_partition(requested, UNSUPPORTED_COMPRESSION_TYPE, records=records_of_error)
    except InvalidMessageException:
        return _error_partition(requested, CORRUPT_MESSAGE)
    except OSError:
        return _error_partition(requested, KAFKA_STORAGE_ERROR)
    row = FetchPartitionResponse(
        partition_index=requested.partition,
        high_watermark=log.end,
        log_start_offset=log.start,
        aborted_transactions=log.aborted_transactions(requested.fetch_offset) if is_committed_only else None,
        records=records,
    )
    if is_committed_only or node.release.returns_last_stable_offset:
        row.last_stable_offset = log.last_stable_offset
    return row, took


def _read_records(
    partition: BrokerPartition,
    requested: FetchPartition,
    reading: _FetchReadState,
    release: BrokerRelease,
    is_committed_only: bool,
) -> tuple[bytes, int]:
    """The record set, and the number of bytes of the log in it.

    Its last entry may be cut off, as in Kafka.  Before version 3 the first one may be cut off, too, so that the reader
    requests more bytes.  Entries in a newer format than the version supports are converted; releases from 3.0 on omit a
    first entry that does not fit and needs conversion (``omits_unconvertible_entry``).
    """
    bytes_max = max(0, min(reading.bytes_left, requested.partition_max_bytes))
    returns_whole_first_entry = reading.version >= MIN_ONE_MESSAGE_FROM
    must_convert = partition.log.settings.validation_rules.magic > reading.magic_max
    stored = partition.log.read(
        requested.fetch_offset,
        bytes_max,
        min_one_message=returns_whole_first_entry and reading.stored_bytes == 0,
        may_truncate=not (returns_whole_first_entry or (must_convert and release.omits_unconvertible_entry)),
        has_tail=True,
        is_committed_only=is_committed_only,
    )
    if not must_convert:
        return stored, len(stored)
    return down_convert(stored, reading.magic_max, keeps_size=release.converts_lazily), len(stored)


def _error_partition(
    requested: FetchPartition, error: ErrorCode, records: bytes | None = b""
) -> tuple[FetchPartitionResponse, int]:
    row = FetchPartitionResponse(
        partition_index=requested.partition, error_code=error.code, high_watermark=-1, records=records
    )
    return row, 0
