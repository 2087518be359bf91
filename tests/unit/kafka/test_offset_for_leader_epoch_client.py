"""``OffsetForLeaderEpochClient``: its requests, and what it reads from responses (OffsetForLeaderEpochClientTest)."""

from __future__ import annotations

import pytest

from zkconsumer.kafka.error_codes import (
    LEADER_NOT_AVAILABLE,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_SERVER_ERROR,
    UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode,
)
from zkconsumer.kafka.fetch.fetch_position import FetchPosition, PositionLookup
from zkconsumer.kafka.fetch.offset_for_leader_epoch_client import (
    OffsetForEpochResult,
    OffsetForLeaderEpochClient,
    group_by_leader,
    has_usable_version,
)
from zkconsumer.kafka.metadata.leader_and_epoch import NO_LEADER_OR_EPOCH, LeaderAndEpoch
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.supported_versions import SupportedVersions, VersionRange
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import OFFSET_FOR_LEADER_EPOCH
from zkconsumer.wire.schemas.fetch import EpochEndOffset
from zkconsumer.wire.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderPartitionResponse,
    OffsetForLeaderTopic,
    OffsetForLeaderTopicResponse,
)

TP, OTHER = TopicPartition("topic", 0), TopicPartition("other", 3)
NODE = Node(1, "localhost", 9092)


def lookup(tp: TopicPartition = TP, epoch: int | None = 1, leader: Node | None = None) -> PositionLookup:
    return PositionLookup(tp, 7, FetchPosition(0, epoch, LeaderAndEpoch(leader, 1)))


def response(*rows: tuple[TopicPartition, ErrorCode, int, int]) -> OffsetForLeaderEpochResponse:
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResponse(
                topic=tp.topic,
                partitions=[
                    OffsetForLeaderPartitionResponse(
                        error_code=error.code, partition=tp.partition, leader_epoch=epoch, end_offset=end
                    )
                ],
            )
            for tp, error, epoch, end in rows
        ]
    )


def result_of(*rows: tuple[TopicPartition, ErrorCode, int, int]) -> OffsetForEpochResult:
    return OffsetForLeaderEpochClient().handle_response({TP: lookup()}, response(*rows))


def test_an_empty_response_to_an_empty_request_is_an_empty_result() -> None:
    assert OffsetForLeaderEpochClient().handle_response({}, response()) == OffsetForEpochResult()


def test_a_partition_without_a_row_is_retried() -> None:
    assert result_of() == OffsetForEpochResult(partitions_to_retry=frozenset({TP}))


def test_the_end_offset_of_the_epoch_is_read() -> None:
    assert result_of((TP, NONE, 1, 10)) == OffsetForEpochResult({TP: EpochEndOffset(epoch=1, end_offset=10)})


def test_an_unauthorized_topic_is_in_the_result_beside_the_end_offsets_of_the_others() -> None:
    """Java raises TopicAuthorizationException, and the end offsets of the others are lost."""
    found = OffsetForLeaderEpochClient().handle_response(
        {TP: lookup(), OTHER: lookup(OTHER)}, response((TP, TOPIC_AUTHORIZATION_FAILED, -1, -1), (OTHER, NONE, 1, 5))
    )
    assert found.unauthorized_topics == {"topic"}
    assert found.end_offsets == {OTHER: EpochEndOffset(epoch=1, end_offset=5)}
    assert found.partitions_to_retry == frozenset()


@pytest.mark.parametrize(
    ("error", "level"),
    [(LEADER_NOT_AVAILABLE, "DEBUG"), (UNKNOWN_TOPIC_OR_PARTITION, "WARNING"), (UNKNOWN_SERVER_ERROR, "WARNING")],
)
def test_a_partition_with_an_error_is_retried(error: ErrorCode, level: str) -> None:
    found = result_of((TP, error, -1, -1))
    assert (found.partitions_to_retry, found.end_offsets) == ({TP}, {})
    assert [(line.level, line.name) for line in found.log_events] == [(level, "position-validation-failed")]


def test_a_partition_that_was_not_requested_is_ignored() -> None:
    found = result_of((TP, NONE, 1, 10), (OTHER, NONE, 1, 10))
    assert set(found.end_offsets) == {TP}
    assert [str(line) for line in found.log_events] == ["unrequested-partition-ignored partition=other/3"]


def test_the_request_has_the_epochs_of_the_positions_and_leaves_out_those_without() -> None:
    no_leader_epoch = PositionLookup(OTHER, 8, FetchPosition(0, 4, NO_LEADER_OR_EPOCH))
    no_epoch = TopicPartition("topic", 1)
    request = OffsetForLeaderEpochClient().prepare_request(
        {TP: lookup(epoch=2), OTHER: no_leader_epoch, no_epoch: lookup(no_epoch, epoch=None)}
    )
    assert request == OffsetForLeaderEpochRequest(
        replica_id=-1,
        topics=[
            OffsetForLeaderTopic(
                topic="topic",
                partitions=[OffsetForLeaderPartition(partition=0, current_leader_epoch=1, leader_epoch=2)],
            ),
            OffsetForLeaderTopic(
                topic="other",
                partitions=[OffsetForLeaderPartition(partition=3, current_leader_epoch=-1, leader_epoch=4)],
            ),
        ],
    )


def test_positions_are_validated_at_their_leaders_and_those_without_a_leader_wait() -> None:
    other_node = Node(2, "localhost", 9093)
    first, second = lookup(leader=NODE), lookup(OTHER, leader=other_node)
    without = lookup(TopicPartition("topic", 9))
    assert group_by_leader([first, without, second]) == {NODE: {TP: first}, other_node: {OTHER: second}}


@pytest.mark.parametrize(("highest", "is_usable"), [(2, False), (3, True), (4, True), (None, False)])
def test_consumers_validate_at_brokers_from_version_3_on(highest: int | None, is_usable: bool) -> None:
    ranges = {} if highest is None else {OFFSET_FOR_LEADER_EPOCH.key: VersionRange(0, highest)}
    assert has_usable_version(SupportedVersions(ranges)) is is_usable
