"""ListOffsets and OffsetForLeaderEpoch: the start and end of a log, the offset at a time, and the end of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.broker.topic_store import BrokerPartition
from bridge.coordinator.api_request import AclOperation
from bridge.coordinator.release_features import EARLIEST_LOCAL_TIMESTAMP, LATEST_TIERED_TIMESTAMP, MAX_TIMESTAMP
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
from zkconsumer.wire.isolation_level import READ_COMMITTED
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
    from bridge.broker.node import BrokerNode
    from bridge.coordinator.api_request import ApiRequest


def list_offsets(node: BrokerNode, call: ApiRequest) -> ListOffsetsResponse:
    """One answer for each partition."""
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[_list_partition(node, call, topic.name, asked) for asked in topic.partitions],
            )
            for topic in call.body.topics
        ]
    )


def _list_partition(
    node: BrokerNode, call: ApiRequest, topic: str, asked: ListOffsetsPartition
) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    partition: BrokerPartition | ErrorCode = TOPIC_AUTHORIZATION_FAILED
    if node.is_authorized(call, AclOperation.DESCRIBE, topic):
        partition = node.partition_or_error(call, topic, asked.partition_index, asked.current_leader_epoch)
    if not isinstance(partition, ErrorCode) and node.release.rejects_timestamp(asked.timestamp, call.version):
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
            is_special = node.release.is_special_timestamp(asked.timestamp)
            is_committed_only = call.body.isolation_level == READ_COMMITTED
            _find_offset(partition, asked.timestamp, is_special, answer, is_committed_only=is_committed_only)
        except (InvalidMessageException, UnsupportedCodec):
            answer.error_code = CORRUPT_MESSAGE.code
        except OSError:
            answer.error_code = KAFKA_STORAGE_ERROR.code
    return answer


def _find_offset(
    partition: BrokerPartition,
    time_ms: int,
    is_special_timestamp: bool,
    answer: ListOffsetsPartitionResponse,
    *,
    is_committed_only: bool,
) -> None:
    """``is_special_timestamp``: see ``BrokerRelease``.  ``is_committed_only``: only before the last stable offset."""
    log = partition.log
    end = log.last_stable_offset if is_committed_only else log.end
    if time_ms == LATEST_TIME:
        answer.offset = end
    elif time_ms == EARLIEST_TIME or (is_special_timestamp and time_ms == EARLIEST_LOCAL_TIMESTAMP):
        answer.offset = log.start
    elif is_special_timestamp and time_ms == LATEST_TIERED_TIMESTAMP:
        return
    elif log.settings.validation_rules.magic == 0:
        answer.error_code = UNSUPPORTED_FOR_MESSAGE_FORMAT.code
        return
    else:
        found = (
            log.max_timestamp() if is_special_timestamp and time_ms == MAX_TIMESTAMP else log.first_at_or_after(time_ms)
        )
        if found is None or found.offset >= end:
            return
        answer.timestamp, answer.offset = found
    answer.leader_epoch = partition.leader_epoch


def offset_for_leader_epoch(node: BrokerNode, call: ApiRequest) -> OffsetForLeaderEpochResponse:
    """The end offset of an epoch."""
    topics = []
    for topic in call.body.topics:
        rows = []
        for asked in topic.partitions:
            partition: BrokerPartition | ErrorCode = TOPIC_AUTHORIZATION_FAILED
            if node.is_authorized(call, AclOperation.DESCRIBE, topic.topic):
                partition = node.partition_or_error(call, topic.topic, asked.partition, asked.current_leader_epoch)
            row = OffsetForLeaderPartitionResponse(partition=asked.partition)
            if isinstance(partition, ErrorCode):
                row.error_code = partition.code
            else:
                row.leader_epoch, row.end_offset = partition.log.end_offset_for_epoch(
                    asked.leader_epoch, partition.leader_epoch
                )
            rows.append(row)
        topics.append(OffsetForLeaderTopicResponse(topic=topic.topic, partitions=rows))
    return OffsetForLeaderEpochResponse(topics=topics)
