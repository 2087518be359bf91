"""What a ``SimpleConsumer`` does at a broker: the same cases for the fake ones and the real ones.

Ported in meaning from ``PrimitiveApiTest``, ``OffsetCommitTest`` and ``LogOffsetTest`` of the original.
"""

from __future__ import annotations

import itertools

import pytest

from bridge.coordinator.config import GroupCoordinatorConfig
from tests.conformance.brokers_under_test import BrokerUnderTest
from zkconsumer.errors import KafkaException, UsageError
from zkconsumer.kafka import error_codes as codes
from zkconsumer.kafka.error_codes import BrokerError
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.simple_consumer import SimpleConsumer
from zkconsumer.simple_requests import (
    FetchRequestBuilder,
    GroupCoordinatorRequest,
    OffsetCommitRequest,
    OffsetFetchRequest,
    OffsetMetadataAndError,
    OffsetRequest,
    PartitionOffsetRequestInfo,
    TopicMetadataRequest,
)
from zkconsumer.testing.sandbox.waiting import wait_until
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, TopicPartition
from zkconsumer.wire.schemas import FETCH, FIND_COORDINATOR, LIST_OFFSETS, OFFSET_COMMIT, OFFSET_FETCH
from zkconsumer.zk import paths

METADATA_CHARS_MAX = GroupCoordinatorConfig().offset_metadata_max_chars

TIMEOUT_MS = 10_000
SIZE = 10_000
NOWHERE = TopicPartition("no-such-topic", 0)

_numbers = itertools.count()


def consumer_of(broker: BrokerUnderTest) -> SimpleConsumer:
    return SimpleConsumer(broker.host, broker.port, TIMEOUT_MS, client_id="simple-test", connect=broker.connect)


def a_group() -> str:
    return f"simple-group-{next(_numbers)}"


def an_empty_log(broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    with consumer_of(broker) as consumer:
        response = consumer.fetch(FetchRequestBuilder().add_fetch(topic, 0, 0, SIZE).build())
    assert not response.has_error
    assert list(response.messages(topic, 0)) == []
    assert response.high_watermark(topic, 0) == 0
    assert response.message_set(topic, 0).size_in_bytes == 0


def what_was_produced_in_every_version(broker: BrokerUnderTest, codec: str) -> None:
    topic = broker.topic(b"a", b"b", None, b"d", codec=codec)
    builder = FetchRequestBuilder().client_id("somebody-else").max_wait(100).min_bytes(1)
    known = broker.release.range_of(FETCH)
    assert known is not None
    with consumer_of(broker) as consumer:
        for version in [None, *range(known.lowest, min(known.highest, FETCH.client_highest) + 1)]:
            request = builder.request_version(version).add_fetch(topic, 0, 1, SIZE).build()
            response = consumer.fetch(request)
            messages = [(record.offset, record.value) for record in response.messages(topic, 0)]
            assert messages == [(1, b"b"), (2, None), (3, b"d")], f"version {version}: {messages}"
            assert [record.offset for record in response.message_set(topic, 0)][-3:] == [1, 2, 3]
            assert response.message_set(topic, 0).valid_bytes > 0
            assert response.messages(topic, 0).next_offset == 4
            assert response.correlation_id == request.correlation_id
            assert version in (None, response.version)


def several_topics_at_once(broker: BrokerUnderTest) -> None:
    topics = {broker.topic(): number for number in range(4)}
    for topic in topics:
        broker.topics.produce(topic, [b"a_" + topic.encode(), b"b_" + topic.encode()], "none")
    builder = FetchRequestBuilder()
    for topic in topics:
        builder.add_fetch(topic, 0, 0, SIZE)
    with consumer_of(broker) as consumer:
        response = consumer.fetch(builder.build())
    assert len(response.data) == 4
    for topic in topics:
        assert [r.value for r in response.messages(topic, 0)] == [b"a_" + topic.encode(), b"b_" + topic.encode()]


def what_is_wrong_is_said_of_each_partition(broker: BrokerUnderTest) -> None:
    topic = broker.topic(b"a")
    other = broker.topic(b"a")
    builder = FetchRequestBuilder().add_fetch(topic, 0, 99, SIZE).add_fetch(topic, 7, 0, SIZE)
    builder.add_fetch(NOWHERE.topic, 0, 0, SIZE).add_fetch(other, 0, 0, SIZE)
    with consumer_of(broker) as consumer:
        response = consumer.fetch(builder.build())
        assert response.has_error
        assert response.error(topic, 0) == codes.OFFSET_OUT_OF_RANGE
        assert response.error_code(topic, 7) == codes.UNKNOWN_TOPIC_OR_PARTITION.code
        assert response.error(*NOWHERE) == codes.UNKNOWN_TOPIC_OR_PARTITION
        assert [r.value for r in response.messages(other, 0)] == [b"a"]
        assert list(response.messages(topic, 0)) == []
        with pytest.raises(UsageError, match="no partition elsewhere/0 in this fetch response"):
            response.error("elsewhere", 0)
        response = consumer.fetch(FetchRequestBuilder().add_fetch(other, 0, -1, SIZE).build())
        assert response.error(other, 0) == codes.OFFSET_OUT_OF_RANGE


def who_leads(broker: BrokerUnderTest) -> None:
    topic = broker.topic()
    with consumer_of(broker) as consumer:
        response = consumer.send(TopicMetadataRequest([topic, NOWHERE.topic], correlation_id=5))
        everything = consumer.send(TopicMetadataRequest())
    assert response.correlation_id == 5
    found, missing = sorted(response.topics_metadata, key=lambda row: row.topic != topic)
    [partition] = found.partitions_metadata
    assert (found.topic, found.error, partition.partition_id, partition.error) == (topic, codes.NONE, 0, codes.NONE)
    assert partition.leader is not None
    assert partition.leader[1:] == (broker.host, broker.port)
    assert partition.replicas == partition.isr == (partition.leader,)
    assert (missing.topic, missing.error) == (NOWHERE.topic, codes.UNKNOWN_TOPIC_OR_PARTITION)
    assert topic in {row.topic for row in everything.topics_metadata}


def offsets_before_a_time(broker: BrokerUnderTest) -> None:
    topic = broker.topic(*[b"x"] * 5)
    at = TopicPartition(topic, 0)
    has_version_0 = broker.ranges.supports(LIST_OFFSETS, 0)

    def before(time: int, at: TopicPartition = at, version: int | None = None) -> tuple[int, ...]:
        response = consumer.get_offsets_before(OffsetRequest({at: PartitionOffsetRequestInfo(time, 10)}, version))
        assert response.version == (0 if has_version_0 else LIST_OFFSETS.client_highest) if version is None else version
        return response.offsets(*at)

    with consumer_of(broker) as consumer:
        assert consumer.earliest_or_latest_offset(at, EARLIEST_TIME) == 0
        assert consumer.earliest_or_latest_offset(at, LATEST_TIME) == 5
        assert before(EARLIEST_TIME) == (0,)
        assert before(LATEST_TIME) == ((5, 0) if has_version_0 else (5,))
        if has_version_0:
            assert before(1) == (), "no segment was written that early"
        if broker.ranges.supports(LIST_OFFSETS, 1) and broker.release.magic > 0:
            assert before(1, version=1) == (0,), "the first record at or after the time"
            assert before(2**50, version=1) == ()
        response = consumer.get_offsets_before(OffsetRequest({NOWHERE: PartitionOffsetRequestInfo(LATEST_TIME)}))
        assert response.has_error
        assert response.error(*NOWHERE) == codes.UNKNOWN_TOPIC_OR_PARTITION
        with pytest.raises(BrokerError, match="UNKNOWN_TOPIC_OR_PARTITION"):
            consumer.earliest_or_latest_offset(NOWHERE, LATEST_TIME)
        with pytest.raises(UsageError, match="time 12 is neither"):
            consumer.earliest_or_latest_offset(at, 12)


def ready(consumer: SimpleConsumer, broker: BrokerUnderTest, group: str) -> None:
    """Until the group has a coordinator that has loaded its offsets."""

    def is_found() -> bool:
        found = consumer.send(GroupCoordinatorRequest(group))
        assert (found.coordinator is None) == (found.error == codes.COORDINATOR_NOT_AVAILABLE)
        return found.coordinator is not None and found.coordinator[1:] == (broker.host, broker.port)

    def is_loaded() -> bool:
        response = consumer.fetch_offsets(OffsetFetchRequest(group, [NOWHERE], storage="kafka"))
        errors = {response.error, *(row.error for row in response.offsets.values())}
        return not errors & {codes.COORDINATOR_LOAD_IN_PROGRESS, codes.NOT_COORDINATOR}

    wait_until(is_found, "the group has a coordinator", TIMEOUT_MS)
    wait_until(is_loaded, "its offsets are loaded", TIMEOUT_MS)


def offsets_in_kafka_and_in_zookeeper_are_two_things(broker: BrokerUnderTest) -> None:
    at = TopicPartition(broker.topic(), 0)
    group = a_group()
    has_kafka = broker.release.range_of(FIND_COORDINATOR) is not None
    has_zookeeper = broker.ranges.supports(OFFSET_COMMIT, 0)
    with consumer_of(broker) as consumer:
        if has_kafka:
            ready(consumer, broker, group)
        if has_zookeeper:
            response = consumer.commit_offsets(
                OffsetCommitRequest(group, {at: OffsetAndMetadata(11, "lost")}, storage="zookeeper")
            )
            assert (response.version, response.has_error, response.error_code(at)) == (0, False, 0)
            assert broker.topics.znode(paths.offset(group, at)) == b"11"
            fetched = consumer.fetch_offsets(OffsetFetchRequest(group, [at], version=0))
            assert fetched.offset(at) == OffsetMetadataAndError(11, "", codes.NONE)
        else:
            with pytest.raises(KafkaException, match="no OffsetCommit v0, so it stores no offsets in ZooKeeper"):
                consumer.commit_offsets(OffsetCommitRequest(group, {at: OffsetAndMetadata(11)}, storage="zookeeper"))
        if not has_kafka:
            return
        nothing = consumer.fetch_offsets(OffsetFetchRequest(group, [at], storage="kafka"))
        assert nothing.offset(at) == OffsetMetadataAndError(-1, "", codes.NONE)
        for version in (None, 1, 2):
            known = broker.release.range_of(OFFSET_COMMIT)
            assert known is not None
            if version is not None and not known.lowest <= version <= known.highest:
                continue
            stored = {at: OffsetAndMetadata(20 + (version or 0), "kept")}
            response = consumer.commit_offsets(OffsetCommitRequest(group, stored, storage="kafka", version=version))
            assert (response.error(at), version in (None, response.version)) == (codes.NONE, True)
            fetched = consumer.fetch_offsets(OffsetFetchRequest(group, [at], storage="kafka"))
            assert fetched.offset(at) == OffsetMetadataAndError(20 + (version or 0), "kept", codes.NONE)
        if has_zookeeper:
            assert broker.topics.znode(paths.offset(group, at)) == b"11"


def commits_that_are_refused(broker: BrokerUnderTest) -> None:
    at, group = TopicPartition(broker.topic(), 0), a_group()
    too_long = OffsetAndMetadata(2, "x" * (METADATA_CHARS_MAX + 1))
    with consumer_of(broker) as consumer:
        if broker.release.range_of(FIND_COORDINATOR) is not None:
            ready(consumer, broker, group)
            refused = consumer.commit_offsets(OffsetCommitRequest(group, {at: too_long}, storage="kafka"))
            assert refused.commit_status == {at: codes.OFFSET_METADATA_TOO_LARGE}
            assert refused.has_error
            if broker.release.checks_topics_of_commits:
                offsets = {NOWHERE: OffsetAndMetadata(1), at: OffsetAndMetadata(1)}
                partly = consumer.commit_offsets(OffsetCommitRequest(group, offsets, storage="kafka"))
                assert partly.commit_status == {NOWHERE: codes.UNKNOWN_TOPIC_OR_PARTITION, at: codes.NONE}
        if broker.ranges.supports(OFFSET_COMMIT, 0):
            refused = consumer.commit_offsets(OffsetCommitRequest(group, {at: too_long}, version=0))
            assert refused.error_code(at) == codes.OFFSET_METADATA_TOO_LARGE.code
            unknown = consumer.commit_offsets(OffsetCommitRequest(group, {NOWHERE: OffsetAndMetadata(1)}, version=0))
            assert unknown.error(NOWHERE) == codes.UNKNOWN_TOPIC_OR_PARTITION
        if broker.ranges.supports(OFFSET_FETCH, 0):
            missing = consumer.fetch_offsets(OffsetFetchRequest(group, [at, NOWHERE], version=0))
            nothing = OffsetMetadataAndError(-1, "", codes.UNKNOWN_TOPIC_OR_PARTITION)
            assert missing.offsets == {at: nothing, NOWHERE: nothing}


CASES = [
    an_empty_log,
    several_topics_at_once,
    what_is_wrong_is_said_of_each_partition,
    who_leads,
    offsets_before_a_time,
    offsets_in_kafka_and_in_zookeeper_are_two_things,
    commits_that_are_refused,
]
CODECS = ["none", "gzip", "snappy", "lz4"]
