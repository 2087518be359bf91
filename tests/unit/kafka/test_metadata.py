"""``Metadata``: when it is updated, which update wins, and its errors (Kafka's MetadataTest)."""

from __future__ import annotations

from typing import Any

import pytest

from tests.metadata_responses import (
    EMPTY,
    LATEST,
    metadata_response,
    metadata_update,
    partition_row,
    topic_row,
    update_now,
)
from zkconsumer.errors import (
    InvalidTopicException,
    KafkaException,
    SaslAuthenticationException,
    TopicAuthorizationException,
    UnsupportedVersionException,
    UsageError,
)
from zkconsumer.kafka.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from zkconsumer.kafka.metadata.cluster import EMPTY_CLUSTER, Cluster, ClusterResource
from zkconsumer.kafka.metadata.leader_and_epoch import LeaderAndEpoch
from zkconsumer.kafka.metadata.metadata import Metadata
from zkconsumer.kafka.metadata.metadata_cache import EMPTY_METADATA_CACHE, MetadataCache
from zkconsumer.kafka.metadata.metadata_request_builder import MetadataRequestBuilder
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import METADATA
from zkconsumer.wire.schemas.metadata import MetadataBroker, MetadataRequest, MetadataResponse

BACKOFF_MS, EXPIRE_MS = 100, 1000
TP = TopicPartition("topic-1", 0)
ONE = {"topic-1": 1}


@pytest.fixture
def metadata() -> Metadata:
    return Metadata(BACKOFF_MS, EXPIRE_MS)


class RetainingMetadata(Metadata):
    """Retains the topics in ``retained``; partial updates are possible."""

    def __init__(self) -> None:
        super().__init__(BACKOFF_MS, EXPIRE_MS)
        self.retained: set[str] | None = None

    def retain_topic(self, topic: str, is_internal: bool, now_ms: int) -> bool:
        return self.retained is None or topic in self.retained

    def new_metadata_request_builder_for_new_topics(self) -> MetadataRequestBuilder | None:
        return self.new_metadata_request_builder()


# --- when ---------------------------------------------------------------------------------------------------------


def test_an_update_after_close_is_an_error(metadata: Metadata) -> None:
    metadata.close()
    assert metadata.is_closed
    with pytest.raises(UsageError, match="closed"):
        update_now(metadata, EMPTY)


def test_an_update_is_due_at_once_after_bootstrap(metadata: Metadata) -> None:
    metadata.bootstrap([("localhost", 9002)])
    assert metadata.fetch() == Cluster.bootstrap([("localhost", 9002)])
    for now_ms in (0, ManualClock().now_ms()):
        assert metadata.time_to_allow_update(now_ms) == 0
        assert metadata.time_to_next_update(now_ms) == 0


@pytest.mark.parametrize(("backoff_ms", "expire_ms"), [(100, 1000), (1000, 100), (0, 0), (0, 100), (100, 0)])
def test_the_next_update_is_due_when_the_metadata_expires_or_is_requested(backoff_ms: int, expire_ms: int) -> None:
    metadata, now_ms, larger_ms = Metadata(backoff_ms, expire_ms), 10_000, max(backoff_ms, expire_ms)
    assert metadata.time_to_next_update(now_ms) == 0
    update_now(metadata, EMPTY, now_ms)
    assert metadata.time_to_next_update(now_ms) == larger_ms
    metadata.request_update()
    assert metadata.time_to_next_update(now_ms) == backoff_ms
    update_now(metadata, EMPTY, now_ms)
    assert metadata.time_to_next_update(now_ms) == larger_ms
    assert metadata.time_to_next_update(now_ms + larger_ms) == 0
    assert metadata.time_to_next_update(now_ms + larger_ms + 1) == 0


def test_a_failed_update_is_repeated_after_the_backoff_also_if_it_is_requested(metadata: Metadata) -> None:
    metadata.failed_update(10_000)
    assert metadata.time_to_next_update(10_000) == BACKOFF_MS
    metadata.request_update()
    assert metadata.time_to_next_update(10_000) == BACKOFF_MS
    assert metadata.time_to_next_update(10_000 + BACKOFF_MS) == 0
    assert metadata.time_to_next_update(10_000 + BACKOFF_MS + 1) == 0


def test_a_failed_update_does_not_change_when_the_last_one_succeeded(metadata: Metadata) -> None:
    update_now(metadata, EMPTY, 100)
    assert metadata.time_to_next_update(1000) == 100
    metadata.failed_update(1100)
    assert metadata.time_to_next_update(1100) == 100
    assert metadata.last_successful_update_ms == 100
    update_now(metadata, EMPTY, 100)
    assert metadata.time_to_next_update(1000) == 100


def test_an_update_for_new_topics_does_not_wait_for_the_backoff(metadata: Metadata) -> None:
    update_now(metadata, EMPTY, 100)
    metadata.request_update_for_new_topics()
    assert metadata.time_to_next_update(100) == 0


def test_each_response_and_each_bootstrap_increases_the_update_version(metadata: Metadata) -> None:
    assert metadata.request_update() == 0
    metadata.bootstrap([("localhost", 9002)])
    assert metadata.update_version == 1
    update_now(metadata, EMPTY)
    assert metadata.request_update_for_new_topics() == metadata.update_version == 2


# --- which request a response answers -------------------------------------------------------------------------------


def test_a_response_to_an_older_request_leaves_the_update_for_new_topics_due() -> None:
    metadata = RetainingMetadata()
    topic = metadata_update({"topic": 1})
    metadata.request_update()
    asked = metadata.new_metadata_request_and_version(0)
    metadata.update(asked.request_version, topic, LATEST, False, 0)
    assert not metadata.update_requested

    metadata.request_update_for_new_topics()
    asked = metadata.new_metadata_request_and_version(0)
    metadata.request_update_for_new_topics()
    metadata.update(asked.request_version, topic, LATEST, True, 0)
    assert metadata.update_requested, "the second topics were added after the request"

    asked = metadata.new_metadata_request_and_version(0)
    metadata.update(asked.request_version, topic, LATEST, True, 0)
    assert not metadata.update_requested


def test_an_update_is_partial_only_if_nothing_but_new_topics_is_missing() -> None:
    metadata = RetainingMetadata()
    assert not metadata.update_requested
    metadata.request_update()
    asked = metadata.new_metadata_request_and_version(0)
    assert not asked.is_partial_update
    metadata.update(asked.request_version, metadata_update({"topic": 1}), LATEST, False, 0)
    assert not metadata.update_requested

    metadata.request_update_for_new_topics()
    asked = metadata.new_metadata_request_and_version(0)
    assert asked.is_partial_update
    metadata.update(asked.request_version, metadata_update({"topic": 1}), LATEST, True, 0)
    assert not metadata.update_requested

    metadata.request_update()
    metadata.request_update_for_new_topics()
    asked = metadata.new_metadata_request_and_version(0)
    assert not asked.is_partial_update, "both are requested"
    metadata.update(asked.request_version, metadata_update({"topic": 1}), LATEST, False, 0)
    assert not metadata.update_requested

    metadata.request_update_for_new_topics()
    asked = metadata.new_metadata_request_and_version(EXPIRE_MS)
    assert not asked.is_partial_update, "the metadata has expired"
    metadata.update(asked.request_version, metadata_update({"topic": 1}), LATEST, True, EXPIRE_MS)
    assert not metadata.update_requested

    metadata.request_update_for_new_topics()
    first = metadata.new_metadata_request_and_version(0)
    metadata.request_update_for_new_topics()
    second = metadata.new_metadata_request_and_version(0)
    assert first.is_partial_update
    assert second.is_partial_update
    metadata.update(first.request_version, metadata_update({"topic-1": 1}), LATEST, True, 0)
    assert metadata.update_requested
    metadata.update(second.request_version, metadata_update({"topic-2": 1}), LATEST, True, 0)
    assert not metadata.update_requested
    assert metadata.fetch().topics == {"topic", "topic-1", "topic-2"}


# --- leader epochs --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(METADATA.client_highest + 1))
def test_leader_epochs_are_ignored_before_version_9(metadata: Metadata, version: int) -> None:
    row = partition_row(0, leader_id=5, leader_epoch=10, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])
    update_now(metadata, metadata_response(topic_row("topic-1", row)), 100, version=version)
    found = metadata.partition_metadata_if_current(TP)
    assert found is not None
    assert found.leader_epoch == (10 if version >= 9 else None)
    assert metadata.last_seen_leader_epoch(TP) == (10 if version >= 9 else None)


def test_metadata_with_an_older_epoch_is_ignored(metadata: Metadata) -> None:
    new = partition_row(0, 1, 10, replica_nodes=[1, 2, 3], isr_nodes=[1, 2, 3])
    old = partition_row(0, 1, 9, replica_nodes=[1, 2, 3], isr_nodes=[1, 2])
    update_now(metadata, metadata_response(topic_row("topic-1", new)), 100)
    update_now(metadata, metadata_response(topic_row("topic-1", old)), 101)
    assert metadata.last_seen_leader_epoch(TP) == 10
    found = metadata.partition_metadata_if_current(TP)
    assert found is not None
    assert (found.in_sync_replica_ids, found.leader_epoch) == ((1, 2, 3), 10)


def test_an_update_is_requested_for_each_newer_epoch_of_another_response(metadata: Metadata) -> None:
    assert not metadata.update_requested
    update_now(metadata, metadata_update(ONE, epoch=0), 10)
    epochs = [42, 42, 41, 41, 42, 43, 43, 42, 41, 44]
    for epoch, is_newer in zip(epochs, [1, 0, 0, 0, 0, 1, 0, 0, 0, 1], strict=True):
        assert metadata.update_last_seen_epoch_if_newer(TP, epoch) is bool(is_newer)
        assert metadata.update_requested is bool(is_newer)
        update_now(metadata, EMPTY)
        assert not metadata.update_requested


def test_the_last_seen_epoch_grows_only(metadata: Metadata) -> None:
    update_now(metadata, EMPTY)
    for epoch in (0, 1, 2):
        assert not metadata.update_last_seen_epoch_if_newer(TP, epoch), "no epoch is known"
    assert metadata.last_seen_leader_epoch(TP) is None
    update_now(metadata, metadata_update(ONE, epoch=10), 1)
    assert metadata.last_seen_leader_epoch(TP) == 10
    assert not metadata.update_last_seen_epoch_if_newer(TP, 1)
    assert not metadata.update_last_seen_epoch_if_newer(TP, 10)
    assert metadata.last_seen_leader_epoch(TP) == 10
    assert metadata.update_last_seen_epoch_if_newer(TP, 12)
    assert metadata.last_seen_leader_epoch(TP) == 12
    update_now(metadata, metadata_update(ONE, epoch=12), 2)
    update_now(metadata, metadata_update(ONE, epoch=11), 3)
    assert metadata.last_seen_leader_epoch(TP) == 12


def test_a_negative_epoch_is_an_error(metadata: Metadata) -> None:
    with pytest.raises(ValueError, match="not negative"):
        metadata.update_last_seen_epoch_if_newer(TP, -1)


def ids(letter: str) -> dict[str, bytes]:
    return {"topic-1": letter.encode() * 16}


def test_the_epoch_of_a_topic_that_was_deleted_and_created_again_may_be_lower(metadata: Metadata) -> None:
    update_now(metadata, EMPTY)
    update_now(metadata, metadata_update(ONE, epoch=10, topic_ids=ids("a")), 1)
    assert metadata.last_seen_leader_epoch(TP) == 10
    update_now(metadata, metadata_update(errors={"topic-1": UNKNOWN_TOPIC_OR_PARTITION}), 1)
    assert metadata.last_seen_leader_epoch(TP) == 10
    update_now(metadata, metadata_update(ONE, epoch=5, topic_ids=ids("b")), 1)
    assert metadata.last_seen_leader_epoch(TP) == 5


def test_the_epoch_goes_back_when_the_topic_id_changes_or_becomes_known(metadata: Metadata) -> None:
    update_now(metadata, EMPTY)
    for topic_ids, epoch, expected in [
        (None, 100, 100),
        (ids("a"), 10, 10),
        (ids("a"), 10, 10),
        (ids("a"), 12, 12),
        (ids("b"), 3, 3),
        (ids("c"), 20, 20),
    ]:
        update_now(metadata, metadata_update(ONE, epoch=epoch, topic_ids=topic_ids), 1)
        assert metadata.last_seen_leader_epoch(TP) == expected


def test_the_epoch_does_not_go_back_while_the_topic_id_is_the_same(metadata: Metadata) -> None:
    """Also when the topic was missing in a response between (Java accepts the old epoch then)."""
    update_now(metadata, metadata_update(ONE, epoch=10, topic_ids=ids("a")))
    update_now(metadata, metadata_update(errors={"topic-1": LEADER_NOT_AVAILABLE}, topic_ids=ids("a")))
    update_now(metadata, metadata_update(ONE, epoch=9, topic_ids=ids("a")))
    assert metadata.last_seen_leader_epoch(TP) == 10
    update_now(metadata, metadata_update(ONE, epoch=9))
    update_now(metadata, metadata_update(ONE, epoch=9, topic_ids=ids("a")))
    assert metadata.last_seen_leader_epoch(TP) == 10


def test_partitions_that_a_new_topic_gets_later_do_not_have_the_epochs_of_the_old_topic(metadata: Metadata) -> None:
    """Java keeps the old epoch of partition 1, and ignores the new topic's partition 1 for good."""
    update_now(metadata, metadata_update({"topic-1": 2}, epoch=10, topic_ids=ids("a")))
    lines = update_now(metadata, metadata_update({"topic-1": 1}, epoch=0, topic_ids=ids("b")))
    assert lines == [f"topic-id-changed topic=topic-1 old_id={'61' * 16} new_id={'62' * 16}"]
    update_now(metadata, metadata_update({"topic-1": 2}, epoch=0, topic_ids=ids("b")))
    assert metadata.current_leader(TopicPartition("topic-1", 1)) == LeaderAndEpoch(Node(0, "localhost", 1969), 0)


def in_sync(metadata: Metadata) -> int:
    info = metadata.fetch().partition(TP)
    assert info is not None
    return len(info.in_sync_replicas)


def test_old_metadata_is_rejected_also_after_the_topic_was_missing(metadata: Metadata) -> None:
    def without_isr(epoch: int) -> MetadataResponse:
        return metadata_response(topic_row("topic-1", partition_row(0, 0, epoch, isr_nodes=[])))

    update_now(metadata, EMPTY)
    update_now(metadata, metadata_update(ONE, epoch=100), 10)
    assert metadata.fetch().partition(TP) is not None
    update_now(metadata, without_isr(99), 20)
    assert (in_sync(metadata), metadata.last_seen_leader_epoch(TP)) == (1, 100)
    update_now(metadata, without_isr(100), 20)
    assert (in_sync(metadata), metadata.last_seen_leader_epoch(TP)) == (0, 100)
    update_now(metadata, metadata_update(), 20)
    assert (metadata.fetch().partition(TP), metadata.last_seen_leader_epoch(TP)) == (None, 100)
    update_now(metadata, metadata_update(ONE, epoch=99), 10)
    assert (metadata.fetch().partition(TP), metadata.last_seen_leader_epoch(TP)) == (None, 100)


def test_metadata_behind_an_epoch_of_another_response_is_not_current(metadata: Metadata) -> None:
    update_now(metadata, EMPTY)
    assert not metadata.update_last_seen_epoch_if_newer(TP, 99)
    response = metadata_update({"topic-1": 5}, epoch=100)
    update_now(metadata, response, 10)
    assert metadata.update_last_seen_epoch_if_newer(TP, 101)
    for _ in range(2):
        assert metadata.fetch().partition_count_for_topic("topic-1") == 5
        assert metadata.partition_metadata_if_current(TP) is None
        assert metadata.current_leader(TP) == LeaderAndEpoch(None, 101)
        update_now(metadata, response, 20)
    update_now(metadata, metadata_update({"topic-1": 5}, epoch=101), 30)
    assert metadata.partition_metadata_if_current(TP) is not None
    assert metadata.current_leader(TP) == LeaderAndEpoch(Node(0, "localhost", 1969), 101)


def test_without_epochs_the_metadata_is_always_current(metadata: Metadata) -> None:
    update_now(metadata, EMPTY)
    update_now(metadata, metadata_update(ONE), 10)
    assert metadata.last_seen_leader_epoch(TP) is None
    for _ in range(2):
        found = metadata.partition_metadata_if_current(TP)
        assert found is not None
        assert (found.topic_partition, found.leader_id, found.leader_epoch) == (TP, 0, None)
        assert not metadata.update_last_seen_epoch_if_newer(TP, 10)
    assert metadata.current_leader(TP) == LeaderAndEpoch(Node(0, "localhost", 1969), None)


def test_a_leader_that_a_stale_response_does_not_have_is_no_leader(metadata: Metadata) -> None:
    """A broker comes online and is elected, and the client sees the two events in the opposite order."""

    def response(leader_id: int, epoch: int, nodes: list[int]) -> MetadataResponse:
        found = metadata_response(topic_row("topic-1", partition_row(0, leader_id, epoch, replica_nodes=[0, 1, 2])))
        found.brokers = [MetadataBroker(node_id=node, host="localhost", port=9092 + node) for node in nodes]
        return found

    update_now(metadata, response(0, 10, [0, 1, 2]), 10)
    update_now(metadata, response(1, 8, [1, 2]), 20)
    assert metadata.fetch().leader_for(TP) is None
    assert metadata.last_seen_leader_epoch(TP) == 10
    assert metadata.current_leader(TP) == LeaderAndEpoch(None, 10)


def test_a_partition_or_a_topic_with_an_error_of_its_leader_requests_an_update(metadata: Metadata) -> None:
    update_now(metadata, metadata_update(errors={"topic-1": LEADER_NOT_AVAILABLE}))
    assert metadata.update_requested
    row = partition_row(0, -1, 7, error_code=LEADER_NOT_AVAILABLE.code)
    update_now(metadata, metadata_response(topic_row("topic-1", row)))
    assert metadata.update_requested
    assert metadata.current_leader(TP) == LeaderAndEpoch(None, 7), "its epoch is taken"
    update_now(metadata, metadata_update(ONE))
    assert not metadata.update_requested


# --- the cluster ----------------------------------------------------------------------------------------------------


class Listener:
    def __init__(self) -> None:
        self.seen: list[ClusterResource] = []

    def on_update(self, cluster_resource: ClusterResource) -> None:
        self.seen.append(cluster_resource)


def test_listeners_get_the_cluster_id_of_each_response_but_not_of_bootstrap() -> None:
    listener = Listener()
    metadata = Metadata(BACKOFF_MS, EXPIRE_MS, [listener])
    metadata.bootstrap([("www.example.com", 9002)])
    assert listener.seen == []
    assert update_now(metadata, metadata_update({"topic": 1, "topic1": 1})) == ["cluster-id-changed cluster_id=dummy"]
    assert listener.seen == [ClusterResource("dummy")]
    assert update_now(metadata, metadata_update()) == []
    assert listener.seen == [ClusterResource("dummy")] * 2


def test_a_listener_that_raises_is_logged_and_the_next_one_is_called() -> None:
    class Broken:
        def on_update(self, cluster_resource: ClusterResource) -> None:
            raise RuntimeError("no")

    listener = Listener()
    metadata = Metadata(BACKOFF_MS, EXPIRE_MS, [Broken(), listener])
    lines = update_now(metadata, metadata_update())
    assert lines[-1].startswith("cluster-resource-listener-failed listener=Broken reason=")
    assert len(listener.seen) == 1


def test_the_cluster_has_what_the_response_has(metadata: Metadata) -> None:
    errors = {"topic3": INVALID_TOPIC_EXCEPTION, "topic4": TOPIC_AUTHORIZATION_FAILED}
    counts = {"topic1": 2, "topic2": 3, "__consumer_offsets": 3}
    update_now(metadata, metadata_update(counts, nodes=4, errors=errors))
    cluster = metadata.fetch()
    assert cluster.cluster_resource == ClusterResource("dummy")
    assert len(cluster.nodes) == 4
    assert (cluster.invalid_topics, cluster.unauthorized_topics) == ({"topic3"}, {"topic4"})
    assert len(cluster.topics) == 3
    assert cluster.internal_topics == {"__consumer_offsets"}
    assert [len(cluster.partitions_for_topic(topic)) for topic in ("topic1", "topic2")] == [2, 3]
    assert MetadataCache.bootstrap([("localhost", 0)]).cluster == Cluster.bootstrap([("localhost", 0)])
    assert EMPTY_METADATA_CACHE.cluster == EMPTY_CLUSTER


def test_a_replica_that_is_offline_is_not_online(metadata: Metadata) -> None:
    row = partition_row(0, 0, 99, isr_nodes=[], offline_replicas=[1])
    update_now(metadata, EMPTY)
    update_now(metadata, metadata_response(topic_row("topic-1", row), nodes=2), 10)
    cluster = metadata.fetch()
    assert cluster.node_if_online(TP, 0) == cluster.node_by_id(0) == Node(0, "localhost", 1969)
    assert cluster.node_if_online(TP, 1) is None
    assert cluster.node_by_id(1) == Node(1, "localhost", 1970)


def merge_of(metadata: RetainingMetadata, retained: set[str], nodes: int, **response: Any) -> Cluster:
    metadata.retained = retained
    update_now(metadata, metadata_update(nodes=nodes, **response), is_partial=True)
    return metadata.fetch()


def test_a_partial_update_is_merged_with_the_topics_that_are_retained() -> None:
    metadata = RetainingMetadata()
    topic_ids = {"old-valid": b"o" * 16, "keep-valid": b"k" * 16, "new-valid": b"n" * 16}
    retained = {f"{age}-{kind}" for age in ("old", "keep") for kind in ("invalid", "denied", "valid")}
    cluster = merge_of(
        metadata,
        retained,
        2,
        counts={"old-valid": 2, "keep-valid": 3},
        errors={
            "old-invalid": INVALID_TOPIC_EXCEPTION,
            "keep-invalid": INVALID_TOPIC_EXCEPTION,
            "old-denied": TOPIC_AUTHORIZATION_FAILED,
            "keep-denied": TOPIC_AUTHORIZATION_FAILED,
        },
        epoch=100,
        topic_ids=topic_ids,
        cluster_id="old",
    )
    assert (cluster.cluster_id, len(cluster.nodes)) == ("old", 2)
    assert cluster.invalid_topics == {"old-invalid", "keep-invalid"}
    assert cluster.unauthorized_topics == {"old-denied", "keep-denied"}
    assert {topic: len(cluster.partitions_for_topic(topic)) for topic in cluster.topics} == {
        "old-valid": 2,
        "keep-valid": 3,
    }
    assert cluster.topic_ids == {"old-valid": b"o" * 16, "keep-valid": b"k" * 16}

    retained = {f"{age}-{kind}" for age in ("new", "keep") for kind in ("invalid", "denied", "valid")}
    cluster = merge_of(
        metadata,
        retained,
        3,
        counts={"keep-valid": 2, "new-valid": 4},
        errors={"new-invalid": INVALID_TOPIC_EXCEPTION, "new-denied": TOPIC_AUTHORIZATION_FAILED},
        epoch=200,
        topic_ids=topic_ids,
        cluster_id="new",
    )
    assert (cluster.cluster_id, len(cluster.nodes)) == ("new", 3)
    assert cluster.invalid_topics == {"keep-invalid", "new-invalid"}
    assert cluster.unauthorized_topics == {"keep-denied", "new-denied"}
    assert {topic: len(cluster.partitions_for_topic(topic)) for topic in cluster.topics} == {
        "keep-valid": 2,
        "new-valid": 4,
    }
    assert cluster.topic_ids == {"keep-valid": b"k" * 16, "new-valid": b"n" * 16}
    assert metadata.topic_id("old-valid") is None
    assert metadata.last_seen_leader_epoch(TopicPartition("old-valid", 0)) is None

    cluster = merge_of(metadata, set(), 3, counts={"new-valid": 4}, epoch=300, topic_ids=topic_ids, cluster_id="new")
    assert (cluster.topics, cluster.invalid_topics, cluster.unauthorized_topics) == (set(), set(), set())
    assert cluster.topic_ids == {}
    assert metadata.topic_id("new-valid") is None


def test_a_topic_loses_its_id_when_a_response_does_not_have_it() -> None:
    metadata = RetainingMetadata()
    counts, topic_ids = {"valid-1": 2, "valid-2": 3}, {"valid-1": b"1" * 16, "valid-2": b"2" * 16}
    update_now(metadata, metadata_update(counts, epoch=100, topic_ids=topic_ids), is_partial=True)
    assert [metadata.topic_id(topic) for topic in counts] == [b"1" * 16, b"2" * 16]
    del topic_ids["valid-1"]
    update_now(metadata, metadata_update(counts, epoch=200, topic_ids=topic_ids), is_partial=True)
    assert [metadata.topic_id(topic) for topic in counts] == [None, b"2" * 16]
    cluster = metadata.fetch()
    assert cluster.topics == {"valid-1", "valid-2"}
    assert len(cluster.partitions_for_topic("valid-1")) == 2
    assert cluster.topic_ids == {"valid-2": b"2" * 16}


# --- errors ---------------------------------------------------------------------------------------------------------


def test_an_invalid_topic_is_raised_once_and_cleared_by_a_good_update(metadata: Metadata) -> None:
    response = metadata_update(errors={"topic dfsa": INVALID_TOPIC_EXCEPTION})
    assert "topics-invalid topics=topic dfsa" in update_now(metadata, response)
    with pytest.raises(InvalidTopicException, match="topic dfsa") as caught:
        metadata.maybe_throw_any_exception()
    assert caught.value.invalid_topics == {"topic dfsa"}
    metadata.maybe_throw_any_exception()
    update_now(metadata, response)
    update_now(metadata, EMPTY)
    metadata.maybe_throw_any_exception()


def test_an_unauthorized_topic_is_raised_once_and_cleared_by_a_good_update(metadata: Metadata) -> None:
    response = metadata_update({"good": 1}, errors={"foo": TOPIC_AUTHORIZATION_FAILED})
    assert "topics-unauthorized topics=foo" in update_now(metadata, response)
    with pytest.raises(TopicAuthorizationException, match="foo") as caught:
        metadata.maybe_throw_any_exception()
    assert caught.value.unauthorized_topics == {"foo"}
    assert metadata.fetch().topics == {"good"}, "the other topics are there"
    metadata.maybe_throw_any_exception()
    update_now(metadata, response)
    update_now(metadata, EMPTY)
    metadata.maybe_throw_any_exception()


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        ("sensitive-1", TopicAuthorizationException),
        ("sensitive-2", TopicAuthorizationException),
        ("invalid", InvalidTopicException),
        ("another", None),
    ],
)
def test_the_error_of_one_topic_is_raised_and_all_are_cleared(
    metadata: Metadata, topic: str, error: type[Exception] | None
) -> None:
    errors = {
        "invalid": INVALID_TOPIC_EXCEPTION,
        "sensitive-1": TOPIC_AUTHORIZATION_FAILED,
        "sensitive-2": TOPIC_AUTHORIZATION_FAILED,
    }
    update_now(metadata, metadata_update(errors=errors))
    if error is None:
        metadata.maybe_throw_exception_for_topic(topic)
    else:
        with pytest.raises(error) as caught:
            metadata.maybe_throw_exception_for_topic(topic)
        assert {topic} in (
            getattr(caught.value, "unauthorized_topics", None),
            getattr(caught.value, "invalid_topics", None),
        )
    metadata.maybe_throw_any_exception()


def test_a_fatal_error_is_raised_once_and_before_the_errors_of_topics(metadata: Metadata) -> None:
    update_now(metadata, metadata_update(errors={"foo": TOPIC_AUTHORIZATION_FAILED}))
    metadata.fatal_error(SaslAuthenticationException("wrong password"))
    with pytest.raises(SaslAuthenticationException):
        metadata.maybe_throw_fatal_exception()
    metadata.maybe_throw_fatal_exception()
    metadata.fatal_error(KafkaException("broken"))
    with pytest.raises(KafkaException, match="broken"):
        metadata.maybe_throw_any_exception()
    metadata.maybe_throw_any_exception()


# --- requests -------------------------------------------------------------------------------------------------------


def test_the_request_for_all_topics_is_an_empty_list_at_version_0_and_null_afterwards() -> None:
    builder = MetadataRequestBuilder.all_topics()
    assert builder.is_all_topics
    assert builder.build(0) == MetadataRequest(topics=[])
    assert builder.build(1) == MetadataRequest(topics=None)


def test_a_request_that_forbids_the_creation_of_topics_needs_version_4() -> None:
    builder = MetadataRequestBuilder(("a",), allow_auto_topic_creation=False)
    assert builder.version_min == 4
    request = builder.build(4)
    assert [topic.name for topic in request.topics or ()] == ["a"]
    assert not request.allow_auto_topic_creation
    with pytest.raises(UnsupportedVersionException, match=r"allow\.auto\.create\.topics"):
        builder.build(3)
    assert MetadataRequestBuilder(("a",)).version_min == 0


def test_a_reader_in_another_thread_never_sees_the_version_of_an_update_before_the_update() -> None:
    """It reads the version, whether an update is requested, and the cluster, in this order."""
    seen: list[tuple[int, bool, frozenset[str]]] = []

    class WatchedMetadata(Metadata):
        def retain_topic(self, topic: str, is_internal: bool, now_ms: int) -> bool:
            seen.append((self.update_version, self.update_requested, frozenset(self.fetch().topics)))
            return True

    metadata = WatchedMetadata(100, 1000)
    metadata.bootstrap([("localhost", 1969)])
    version = metadata.update_version
    update_now(metadata, metadata_update({"t": 1}))
    assert seen
    assert set(seen) == {(version, True, frozenset())}
    assert (metadata.update_version, metadata.update_requested) == (version + 1, False)
