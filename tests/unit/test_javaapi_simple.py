"""The old names of ``SimpleConsumer``: what they forward, their overloads, and their defaults."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from bridge.testing.fake_cluster import FakeCluster
from zkconsumer import javaapi
from zkconsumer.errors import NoSuchElementException, UsageError
from zkconsumer.javaapi import (
    ConsumerMetadataRequest,
    ErrorMapping,
    FetchRequestBuilder,
    GroupCoordinatorRequest,
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetRequest,
    PartitionOffsetRequestInfo,
    SimpleConsumer,
    TopicAndPartition,
    TopicMetadataRequest,
)
from zkconsumer.kafka.error_codes import ERROR_CODES, BrokerError
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.schemas import FETCH

AT = TopicAndPartition("t", 0)


@pytest.fixture
def cluster() -> FakeCluster:
    made = FakeCluster(release="1.1.1")
    made.create_topic("t", 1)
    made.append("t", 0, [b"a", None], keys=[b"k", None], timestamp_ms=5)
    return made


@pytest.fixture
def consumer(cluster: FakeCluster) -> Iterator[SimpleConsumer]:
    with SimpleConsumer(*cluster.address(0)[1:], 5000, 65536, "me", connect=cluster.connect) as made:
        yield made


def test_the_constructor_is_the_originals(cluster: FakeCluster, consumer: SimpleConsumer) -> None:
    told = consumer.host(), consumer.port(), consumer.soTimeout(), consumer.bufferSize(), consumer.clientId()
    assert told == (*cluster.address(0)[1:], 5000, 65536, "me")


def test_a_fetch(cluster: FakeCluster, consumer: SimpleConsumer) -> None:
    builder = FetchRequestBuilder().clientId("c").maxWait(1).minBytes(1).maxBytes(1000).requestVersion(3)
    response = consumer.fetch(builder.addFetch("t", 0, 0, 1000).build())
    assert (response.hasError(), response.errorCode("t", 0), response.highWatermark("t", 0)) == (False, 0, 2)
    assert response.error("t", 0).name == "NONE"
    messages = response.messageSet("t", 0)
    assert 0 < messages.validBytes() == messages.sizeInBytes()
    it = messages.iterator()
    assert it.hasNext()
    first, second = it.next(), it.next()
    assert (first.offset(), first.nextOffset(), second.offset()) == (0, 1, 1)
    message, empty = first.message(), second.message()
    assert (message.payload(), message.key(), message.hasKey(), message.isNull()) == (b"a", b"k", True, False)
    assert (empty.payload(), empty.key(), empty.hasKey(), empty.isNull()) == (None, None, False, True)
    assert message.timestamp() == 5
    assert not it.hasNext()
    with pytest.raises(NoSuchElementException):
        it.next()
    assert [m.offset() for m in messages] == [0, 1]
    [seen] = [seen for seen in cluster.requests if seen.api is FETCH]
    assert (seen.version, seen.client_id, seen.body.max_wait_ms, seen.body.max_bytes) == (3, "c", 1, 1000)


@pytest.mark.parametrize("arguments", [(["t"],), (["t"], 7), (0, 7, "c", ["t"])])
def test_metadata(consumer: SimpleConsumer, cluster: FakeCluster, arguments: tuple[Any, ...]) -> None:
    response = consumer.send(TopicMetadataRequest(*arguments))
    assert isinstance(response, javaapi.TopicMetadataResponse)
    [topic] = response.topicsMetadata()
    [partition] = topic.partitionsMetadata()
    assert (topic.topic(), topic.errorCode(), topic.error().name) == ("t", 0, "NONE")
    assert (partition.partitionId(), partition.errorCode(), partition.error().name) == (0, 0, "NONE")
    leader = partition.leader()
    assert leader is not None
    host, port = cluster.address(0)[1:]
    assert (leader.id(), leader.host(), leader.port()) == (0, host, port)
    assert leader.connectionString() == f"{host}:{port}"
    assert partition.replicas() == partition.isr() == [leader]
    assert {leader} == set(partition.replicas())


def test_a_partition_without_a_leader_has_none(consumer: SimpleConsumer, cluster: FakeCluster) -> None:
    cluster.move_leader("t", 0, None)
    response = consumer.send(TopicMetadataRequest(["t"]))
    assert isinstance(response, javaapi.TopicMetadataResponse)
    partition = response.topicsMetadata()[0].partitionsMetadata()[0]
    assert (partition.leader(), partition.errorCode()) == (None, ErrorMapping.LeaderNotAvailableCode())


@pytest.mark.parametrize("request_class", [GroupCoordinatorRequest, ConsumerMetadataRequest])
def test_the_coordinator(consumer: SimpleConsumer, cluster: FakeCluster, request_class: Any) -> None:
    response = consumer.send(request_class("g", 0, 3, "c"))
    assert isinstance(response, javaapi.GroupCoordinatorResponse)
    assert (response.errorCode(), response.error().name) == (0, "NONE")
    assert response.coordinator() == javaapi.BrokerEndPoint(BrokerAddress(*cluster.address(0)))


def test_offsets_before(consumer: SimpleConsumer) -> None:
    info = {AT: PartitionOffsetRequestInfo(OffsetRequest.LatestTime(), 5)}
    response = consumer.getOffsetsBefore(OffsetRequest(info, OffsetRequest.CurrentVersion(), "c"))
    assert (response.hasError(), response.errorCode("t", 0), response.offsets("t", 0)) == (False, 0, [2, 0])
    assert response.error("t", 0).name == "NONE"
    assert consumer.earliestOrLatestOffset(AT, OffsetRequest.EarliestTime(), -1) == 0


def test_the_java_classes_mean_zookeeper_unless_they_say_otherwise(
    cluster: FakeCluster, consumer: SimpleConsumer
) -> None:
    stored = {AT: OffsetAndMetadata(1, "m", -1)}
    response = consumer.commitOffsets(OffsetCommitRequest("g", stored, 0, "c"))
    assert (response.hasError(), response.errorCode(AT), response.error(AT).code) == (False, 0, 0)
    assert {at: error.code for at, error in response.errors().items()} == {AT: 0}
    assert cluster.committed("g") == {}
    for request in (OffsetFetchRequest("g", [AT]), OffsetFetchRequest("g", [AT], 0, "c")):
        assert consumer.fetchOffsets(request).offsets()[AT].offset == 1
    in_kafka = OffsetFetchRequest("g", [AT], 1, 0, "c")
    assert consumer.fetchOffsets(in_kafka).offsets()[AT].offset == -1
    consumer.commitOffsets(OffsetCommitRequest("g", {AT: OffsetAndMetadata(5, "m", 77)}, 0, "c", 1))
    assert consumer.fetchOffsets(in_kafka).offsets()[AT][:2] == (5, "m")
    assert consumer.fetchOffsets(OffsetFetchRequest("g", [AT])).offsets()[AT].offset == 1


@pytest.mark.parametrize(
    ("make", "arguments"),
    [(TopicMetadataRequest, ("t",)), (TopicMetadataRequest, ()), (OffsetFetchRequest, ("g", [AT], "c"))],
)
def test_arguments_that_no_overload_takes_are_refused(make: Any, arguments: tuple[Any, ...]) -> None:
    with pytest.raises(UsageError, match="takes"):
        make(*arguments)


def test_the_codes_by_name_are_kafkas() -> None:
    names = {
        "OffsetOutOfRangeCode": "OFFSET_OUT_OF_RANGE",
        "UnknownTopicOrPartitionCode": "UNKNOWN_TOPIC_OR_PARTITION",
        "LeaderNotAvailableCode": "LEADER_NOT_AVAILABLE",
        "NotLeaderForPartitionCode": "NOT_LEADER_OR_FOLLOWER",
        "RequestTimedOutCode": "REQUEST_TIMED_OUT",
        "BrokerNotAvailableCode": "BROKER_NOT_AVAILABLE",
        "ReplicaNotAvailableCode": "REPLICA_NOT_AVAILABLE",
        "MessageSizeTooLargeCode": "MESSAGE_TOO_LARGE",
        "OffsetMetadataTooLargeCode": "OFFSET_METADATA_TOO_LARGE",
        "OffsetsLoadInProgressCode": "COORDINATOR_LOAD_IN_PROGRESS",
        "ConsumerCoordinatorNotAvailableCode": "COORDINATOR_NOT_AVAILABLE",
        "NotCoordinatorForConsumerCode": "NOT_COORDINATOR",
        "NoError": "NONE",
        "UnknownCode": "UNKNOWN_SERVER_ERROR",
        "InvalidMessageCode": "CORRUPT_MESSAGE",
        "InvalidFetchSizeCode": "INVALID_FETCH_SIZE",
        "StaleControllerEpochCode": "STALE_CONTROLLER_EPOCH",
    }
    assert {name: ERROR_CODES[getattr(ErrorMapping, name)()].name for name in names} == names
    ErrorMapping.maybeThrowException(0)
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        ErrorMapping.maybeThrowException(1)


def test_disconnecting_leaves_it_usable(consumer: SimpleConsumer) -> None:
    consumer.send(TopicMetadataRequest(["t"]))
    consumer.disconnectToHandleJavaIOBug()
    consumer.send(TopicMetadataRequest(["t"]))
