"""ListOffsets and OffsetForLeaderEpoch: where a log begins, ends, reaches a time, or parts from another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.broker.topics import Partition
from bridge.coordinator.calls import Operation
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka.error_codes import (
    CORRUPT_MESSAGE,
    KAFKA_STORAGE_ERROR,
    TOPIC_AUTHORIZATION_FAILED,
    UNSUPPORTED_FOR_MESSAGE_FORMAT,
    UNSUPPORTED_VERSION,
    ErrorCode,
)
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME
from zkconsumer.wire.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from zkconsumer.wire.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResponse,
    OffsetForLeaderTopicResponse,
)

if TYPE_CHECKING:
    from bridge.broker.node import Node
    from bridge.coordinator.calls import Call

NEWEST_TIMESTAMP_TIME, EARLIEST_LOCAL_TIME, LATEST_TIERED_TIME = -3, -4, -5
"""Times with a meaning: the record with the highest timestamp (3.0, KIP-734), and two of tiered storage."""

_SINCE = {NEWEST_TIMESTAMP_TIME: (7, (3, 0)), EARLIEST_LOCAL_TIME: (8, (3, 6)), LATEST_TIERED_TIME: (9, (3, 9))}
"""Time → the version that has it, and the release that refuses it in versions below."""


def list_offsets(node: Node, call: Call) -> ListOffsetsResponse:
    """One answer for each partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name, partitions=[_row(node, call, topic.name, asked) for asked in topic.partitions]
            )
            for topic in call.body.topics
        ]
    )


def _row(node: Node, call: Call, topic: str, asked: ListOffsetsPartition) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    partition: Partition | ErrorCode = TOPIC_AUTHORIZATION_FAILED
    if node.may(call, Operation.DESCRIBE, topic):
        partition = node.led(topic, asked.partition_index, asked.current_leader_epoch)
    if not isinstance(partition, ErrorCode) and _is_too_new(node, call.version, asked.timestamp):
        partition = UNSUPPORTED_VERSION
    if isinstance(partition, ErrorCode):
        answer.error_code = partition.code
    elif call.version == 0:
        is_latest = asked.timestamp == LATEST_TIME
        if asked.timestamp == EARLIEST_TIME:
            starts = [partition.log.start]
        else:
            starts = partition.log.segment_starts(asked.timestamp, is_latest, node.cluster.scheduler.now_ms())
        answer.old_style_offsets = starts[: max(0, asked.max_num_offsets)]
    else:
        try:
            _find(partition, asked.timestamp, answer)
        except (InvalidMessageException, UnsupportedCodec):
            answer.error_code = CORRUPT_MESSAGE.code
        except OSError:
            answer.error_code = KAFKA_STORAGE_ERROR.code
    return answer


def _is_too_new(node: Node, version: int, time_ms: int) -> bool:
    since = _SINCE.get(time_ms)
    return since is not None and version < since[0] and node.cluster.release.version >= since[1]


def _find(partition: Partition, time_ms: int, answer: ListOffsetsPartitionResponse) -> None:
    log = partition.log
    if time_ms == LATEST_TIME:
        answer.offset = log.end
    elif time_ms in (EARLIEST_TIME, EARLIEST_LOCAL_TIME):
        answer.offset = log.start
    elif time_ms == LATEST_TIERED_TIME:
        return
    elif log.settings.rules.magic == 0:
        answer.error_code = UNSUPPORTED_FOR_MESSAGE_FORMAT.code
        return
    else:
        found = log.newest() if time_ms == NEWEST_TIMESTAMP_TIME else log.first_at_or_after(time_ms)
        if found is None:
            return
        answer.timestamp, answer.offset = found
    answer.leader_epoch = partition.leader_epoch


def offset_for_leader_epoch(node: Node, call: Call) -> OffsetForLeaderEpochResponse:
    """Where the reign of an epoch ended."""
    topics = []
    for topic in call.body.topics:
        rows = []
        for asked in topic.partitions:
            partition: Partition | ErrorCode = TOPIC_AUTHORIZATION_FAILED
            if node.may(call, Operation.DESCRIBE, topic.topic):
                partition = node.led(topic.topic, asked.partition, asked.current_leader_epoch)
            row = OffsetForLeaderPartitionResponse(partition=asked.partition)
            if isinstance(partition, ErrorCode):
                row.error_code = partition.code
            else:
                row.leader_epoch, row.end_offset = partition.log.end_of_epoch(
                    asked.leader_epoch, partition.leader_epoch
                )
            rows.append(row)
        topics.append(OffsetForLeaderTopicResponse(topic=topic.topic, partitions=rows))
    return OffsetForLeaderEpochResponse(topics=topics)
