"""``Cluster`` is immutable, and its lists agree with each other (Kafka's ClusterTest)."""

from __future__ import annotations

from dataclasses import FrozenInstanceError
from typing import Any

import pytest

from tests.metadata_responses import LATEST, metadata_response, metadata_update, partition_row, topic_row
from zkconsumer.kafka.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    TOPIC_AUTHORIZATION_FAILED,
)
from zkconsumer.kafka.metadata.cluster import EMPTY_CLUSTER, Cluster, ClusterResource, PartitionInfo
from zkconsumer.kafka.metadata.metadata_responses import cluster_from_response
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.types import TopicPartition
from zkconsumer.wire.field_types import NO_UUID

NODES = (Node(0, "localhost", 99), Node(1, "localhost", 100), Node(2, "localhost", 101), Node(11, "localhost", 102))
A_ID, B_ID = b"a" * 16, b"b" * 16


def info(topic: str, partition: int, leader: Node | None, offline: tuple[Node, ...] = ()) -> PartitionInfo:
    return PartitionInfo(topic, partition, leader, NODES, NODES, offline)


def cluster() -> Cluster:
    partitions = [
        info("a", 0, NODES[0]),
        info("a", 1, None),
        info("a", 2, NODES[2]),
        info("b", 0, None),
        info("b", 1, NODES[0]),
        info("c", 0, None),
    ]
    return Cluster.of(
        "id",
        NODES,
        partitions,
        unauthorized_topics={"c"},
        invalid_topics={"d"},
        internal_topics={"e"},
        controller=NODES[1],
        topic_ids={"a": A_ID},
    )


def test_the_bootstrap_cluster_has_the_configured_addresses_with_negative_ids() -> None:
    found = Cluster.bootstrap([("140.211.11.105", 9002), ("www.example.com", 9003)])
    assert found.nodes == (Node(-1, "140.211.11.105", 9002), Node(-2, "www.example.com", 9003))
    assert found.is_bootstrap_configured
    assert found.node_by_id(-2) == Node(-2, "www.example.com", 9003)
    assert not EMPTY_CLUSTER.is_bootstrap_configured
    assert EMPTY_CLUSTER.nodes == ()


@pytest.mark.parametrize(
    "name",
    ["invalid_topics", "internal_topics", "unauthorized_topics", "topics", "nodes"],
)
def test_what_a_cluster_contains_cannot_be_changed(name: str) -> None:
    found: Any = getattr(cluster(), name)
    assert isinstance(found, (frozenset, tuple))


def test_the_lists_and_mappings_of_a_cluster_cannot_be_changed() -> None:
    found: Any = cluster()
    for partitions in (
        found.partitions_for_topic("a"),
        found.available_partitions_for_topic("b"),
        found.partitions_for_node(0),
    ):
        assert isinstance(partitions, tuple)
    with pytest.raises(TypeError):
        found.partitions[TopicPartition("f", 0)] = info("f", 0, None)
    with pytest.raises(TypeError):
        found.topic_ids["f"] = A_ID
    with pytest.raises(FrozenInstanceError):
        found.nodes = ()


def test_a_change_of_the_arguments_does_not_change_the_cluster() -> None:
    ids = {"a": A_ID}
    found = Cluster.of("id", NODES, [], topic_ids=ids)
    ids["a"] = B_ID
    assert found.topic_id("a") == A_ID


def test_the_partitions_of_a_topic_are_available_if_they_have_a_leader() -> None:
    found = cluster()
    assert [row.partition for row in found.partitions_for_topic("a")] == [0, 1, 2]
    assert [row.partition for row in found.available_partitions_for_topic("a")] == [0, 2]
    assert found.available_partitions_for_topic("c") == ()
    assert found.partitions_for_topic("unknown") == ()
    assert found.partition_count_for_topic("a") == 3
    assert found.partition_count_for_topic("unknown") is None
    assert found.topics == {"a", "b", "c"}


def test_partitions_are_found_by_their_leader_and_leaders_by_their_partition() -> None:
    found = cluster()
    assert [(row.topic, row.partition) for row in found.partitions_for_node(0)] == [("a", 0), ("b", 1)]
    assert found.partitions_for_node(1) == ()
    assert found.leader_for(TopicPartition("a", 2)) == NODES[2]
    assert found.leader_for(TopicPartition("a", 1)) is None
    assert found.leader_for(TopicPartition("unknown", 0)) is None
    assert found.partition(TopicPartition("a", 1)) == info("a", 1, None)
    assert found.partition(TopicPartition("a", 7)) is None


def test_the_identity_and_the_ids_of_topics() -> None:
    found = cluster()
    assert found.cluster_resource == ClusterResource("id")
    assert (found.topic_id("a"), found.topic_id("b")) == (A_ID, NO_UUID)
    assert found.controller == NODES[1]


def test_equal_clusters_are_equal_and_have_the_same_hash() -> None:
    assert cluster() == cluster()
    assert hash(cluster()) == hash(cluster())
    assert cluster() != cluster().with_partitions({TopicPartition("f", 0): info("f", 0, None)})


def test_a_copy_with_other_partitions_keeps_everything_else() -> None:
    tp = TopicPartition("a", 1)
    found = cluster().with_partitions({tp: info("a", 1, NODES[3])})
    assert found.leader_for(tp) == NODES[3]
    assert found.partition_count_for_topic("a") == 3
    assert (found.controller, found.topic_ids, found.unauthorized_topics) == (NODES[1], {"a": A_ID}, {"c"})


def test_a_replica_that_is_offline_has_no_online_node() -> None:
    tp = TopicPartition("a", 0)
    found = Cluster.of("id", NODES, [info("a", 0, NODES[0], offline=(NODES[1],))])
    assert found.node_if_online(tp, 0) == NODES[0]
    assert found.node_if_online(tp, 1) is None
    assert found.node_if_online(tp, 99) is None
    assert found.node_if_online(TopicPartition("unknown", 0), 0) is None


def test_the_cluster_of_a_response_has_its_topics_errors_and_ids() -> None:
    response = metadata_update(
        {"a": 2, "b": 1},
        nodes=2,
        errors={"bad name": INVALID_TOPIC_EXCEPTION, "secret": TOPIC_AUTHORIZATION_FAILED, "new": LEADER_NOT_AVAILABLE},
        topic_ids={"a": A_ID},
    )
    found = cluster_from_response(response, LATEST)
    assert found.cluster_id == "dummy"
    assert found.controller == Node(0, "localhost", 1969)
    assert found.topics == {"a", "b"}
    assert (found.invalid_topics, found.unauthorized_topics) == ({"bad name"}, {"secret"})
    assert found.topic_ids == {"a": A_ID}
    assert found.leader_for(TopicPartition("a", 1)) == Node(1, "localhost", 1970)
    assert cluster_from_response(response, LATEST, lambda topic: topic == "b").topics == {"b"}


def test_a_topic_of_a_response_without_a_name_is_ignored() -> None:
    unknown = topic_row("", topic_id=A_ID)
    unknown.name = None
    assert cluster_from_response(metadata_response(unknown, topic_row("a", partition_row(0))), LATEST).topics == {"a"}


@pytest.mark.parametrize(("version", "internal"), [(0, {"__consumer_offsets"}), (1, set())])
def test_before_version_1_the_names_show_which_topics_are_internal(version: int, internal: set[str]) -> None:
    response = metadata_response(topic_row("__consumer_offsets", partition_row(0), is_internal=False))
    assert cluster_from_response(response, version).internal_topics == internal
