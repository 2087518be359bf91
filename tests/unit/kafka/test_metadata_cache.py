"""``MetadataCache``: partitions, and what a merge keeps (Kafka's MetadataCacheTest)."""

from __future__ import annotations

from zkconsumer.kafka.metadata.cluster import EMPTY_CLUSTER, Cluster
from zkconsumer.kafka.metadata.metadata_cache import EMPTY_METADATA_CACHE, MetadataCache
from zkconsumer.kafka.metadata.metadata_responses import PartitionMetadata
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.types import TopicPartition

NODES = {number: Node(number, "localhost", 2070 + number) for number in (6, 7, 8)}
OLD_ID, NEW_ID = b"o" * 16, b"n" * 16


def row(topic: str, partition: int = 0, leader_id: int = 6, epoch: int = 1) -> PartitionMetadata:
    return PartitionMetadata(TopicPartition(topic, partition), leader_id=leader_id, leader_epoch=epoch)


def test_a_leader_that_is_not_among_the_nodes_is_no_leader_and_a_replica_has_no_address() -> None:
    tp = TopicPartition("topic", 0)
    metadata = PartitionMetadata(tp, leader_id=5, leader_epoch=10, replica_ids=(5, 6, 7), in_sync_replica_ids=(5, 6, 7))
    cluster = MetadataCache.of("id", NODES, [metadata]).cluster
    assert cluster.leader_for(tp) is None
    info = cluster.partition(tp)
    assert info is not None
    assert info.leader is None
    assert info.replicas == (Node(5, "", -1), NODES[6], NODES[7])
    assert info.replicas[0].is_empty
    assert info.in_sync_replicas == info.replicas


def test_before_the_first_response_there_are_the_bootstrap_addresses_or_nothing() -> None:
    cache = MetadataCache.bootstrap([("host", 9092)])
    assert cache.cluster == Cluster.bootstrap([("host", 9092)])
    assert cache.node_by_id(-1) == Node(-1, "host", 9092)
    assert EMPTY_METADATA_CACHE.cluster is EMPTY_CLUSTER


def test_a_merge_takes_the_update_and_keeps_the_retained_topics() -> None:
    old = MetadataCache.of(
        "old",
        {6: NODES[6]},
        [row("keep", 0), row("drop", 0), row("both", 0, epoch=1), row("both", 1, epoch=1)],
        unauthorized_topics={"keep-u", "drop-u"},
        invalid_topics={"keep-i", "drop-i"},
        internal_topics={"keep"},
        controller=NODES[6],
        topic_ids={"keep": OLD_ID, "drop": OLD_ID, "both": OLD_ID},
    )
    update = MetadataCache.of(
        "new",
        {7: NODES[7]},
        [row("both", 0, leader_id=7, epoch=2)],
        unauthorized_topics={"new-u"},
        invalid_topics={"new-i"},
        controller=NODES[7],
        topic_ids={"both": NEW_ID},
    )
    asked: list[tuple[str, bool]] = []

    def is_retained(topic: str, is_internal: bool) -> bool:
        asked.append((topic, is_internal))
        return topic.startswith("keep")

    merged = old.merge_with(update, is_retained)
    assert set(merged.partitions) == {TopicPartition("keep", 0), TopicPartition("both", 0)}
    assert merged.partition_metadata(TopicPartition("both", 0)) == row("both", 0, leader_id=7, epoch=2)
    assert merged.unauthorized_topics == {"keep-u", "new-u"}
    assert merged.invalid_topics == {"keep-i", "new-i"}
    assert merged.internal_topics == {"keep"}
    assert merged.topic_ids == {"keep": OLD_ID, "both": NEW_ID}
    assert (merged.cluster_id, merged.controller, dict(merged.nodes)) == ("new", NODES[7], {7: NODES[7]})
    assert ("keep", True) in asked
    assert ("drop", False) in asked


def test_a_topic_whose_id_is_not_in_the_update_has_none_afterwards() -> None:
    old = MetadataCache.of("id", NODES, [row("a")], topic_ids={"a": OLD_ID})
    merged = old.merge_with(MetadataCache.of("id", NODES, [row("a")]), lambda topic, is_internal: topic != "a")
    assert merged.topic_id("a") is None
    assert merged.partition_metadata(TopicPartition("a", 0)) == row("a")
