"""``MetadataCache``: the latest metadata of the topics that a client uses, as in Kafka 3.0.  Pure.

A cache is immutable.  A full update makes a new one; a partial update merges the topics of its response into the
cache (``merge_with``), with the nodes and the controller of the response.

A partition may name a leader that is not among the nodes: the response with the largest epoch of the partition need not
be the last response.  Such a partition has no leader until an update names both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import TypeVar

from zkconsumer.kafka.metadata.cluster import EMPTY_CLUSTER, Cluster, ClusterResource
from zkconsumer.kafka.metadata.metadata_responses import PartitionMetadata
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.types import TopicPartition

K = TypeVar("K")
V = TypeVar("V")


@dataclass(frozen=True)
class MetadataCache:
    """``topic_ids``: 16 bytes for each topic whose id is known.  ``controller`` None: unknown.

    ``sentinel``: the cluster before the first response, which is not computed from the other fields.
    """

    cluster_id: str | None = None
    nodes: Mapping[int, Node] = field(default_factory=lambda: MappingProxyType({}))
    partitions: Mapping[TopicPartition, PartitionMetadata] = field(default_factory=lambda: MappingProxyType({}))
    unauthorized_topics: frozenset[str] = frozenset()
    invalid_topics: frozenset[str] = frozenset()
    internal_topics: frozenset[str] = frozenset()
    controller: Node | None = None
    topic_ids: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}))
    sentinel: Cluster | None = None

    @staticmethod
    def of(
        cluster_id: str | None,
        nodes: Mapping[int, Node],
        partitions: Iterable[PartitionMetadata],
        *,
        unauthorized_topics: Iterable[str] = (),
        invalid_topics: Iterable[str] = (),
        internal_topics: Iterable[str] = (),
        controller: Node | None = None,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> MetadataCache:
        """A cache from copies of these."""
        return MetadataCache(
            cluster_id,
            _frozen(nodes),
            _frozen({metadata.topic_partition: metadata for metadata in partitions}),
            frozenset(unauthorized_topics),
            frozenset(invalid_topics),
            frozenset(internal_topics),
            controller,
            _frozen(topic_ids or {}),
        )

    @staticmethod
    def bootstrap(addresses: Iterable[tuple[str, int]]) -> MetadataCache:
        """The cache before the first response: (host, port) of ``bootstrap.servers``, with the ids −1, −2, …"""
        cluster = Cluster.bootstrap(addresses)
        return MetadataCache(nodes=_frozen({node.id: node for node in cluster.nodes}), sentinel=cluster)

    @cached_property
    def cluster(self) -> Cluster:
        """The cache as a program sees it."""
        if self.sentinel is not None:
            return self.sentinel
        return Cluster.of(
            self.cluster_id,
            self.nodes.values(),
            (metadata.to_partition_info(self.nodes) for metadata in self.partitions.values()),
            unauthorized_topics=self.unauthorized_topics,
            invalid_topics=self.invalid_topics,
            internal_topics=self.internal_topics,
            controller=self.controller,
            topic_ids=self.topic_ids,
        )

    @property
    def cluster_resource(self) -> ClusterResource:
        """The identity of the cluster."""
        return ClusterResource(self.cluster_id)

    def partition_metadata(self, tp: TopicPartition) -> PartitionMetadata | None:
        """The partition, None if it is not known."""
        return self.partitions.get(tp)

    def topic_id(self, topic: str) -> bytes | None:
        """The id of a topic, None if it is not known."""
        return self.topic_ids.get(topic)

    def node_by_id(self, node_id: int) -> Node | None:
        """The node, None if it is not known."""
        return self.nodes.get(node_id)

    def merge_with(self, update: MetadataCache, is_retained: Callable[[str, bool], bool]) -> MetadataCache:
        """A cache with everything in ``update``, and with the topics of this one that are retained.

        ``is_retained(topic, is_internal)`` is called for topics of this cache; it must be false for the topics of the
        response, so that what the response does not repeat of them (an id, a partition, an error) is not kept.
        """

        def retained(topic: str) -> bool:
            return is_retained(topic, topic in self.internal_topics)

        kept = {tp.topic for tp in self.partitions} | self.unauthorized_topics | self.invalid_topics
        kept |= self.internal_topics | self.topic_ids.keys()
        kept = {topic for topic in kept if retained(topic)}
        kept_partitions = {tp: metadata for tp, metadata in self.partitions.items() if tp.topic in kept}
        kept_ids = {topic: topic_id for topic, topic_id in self.topic_ids.items() if topic in kept}
        return MetadataCache(
            update.cluster_id,
            update.nodes,
            _frozen({**kept_partitions, **update.partitions}),
            update.unauthorized_topics | (self.unauthorized_topics & kept),
            update.invalid_topics | (self.invalid_topics & kept),
            update.internal_topics | (self.internal_topics & kept),
            update.controller,
            _frozen({**kept_ids, **update.topic_ids}),
        )


def _frozen(mapping: Mapping[K, V]) -> Mapping[K, V]:
    return MappingProxyType(dict(mapping))


EMPTY_METADATA_CACHE = MetadataCache(sentinel=EMPTY_CLUSTER)
