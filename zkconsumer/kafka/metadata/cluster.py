"""``Cluster``: the nodes, topics and partitions at one moment, as ``org.apache.kafka.common.Cluster``.  Pure.

A cluster is immutable, so any thread may read one that another thread has replaced already.

Differences from Java: the nodes keep their order (``least_loaded_node`` of the network client begins at a random one,
so a random order here is not needed), and the lists by topic and by node are made when they are first read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import NamedTuple, Protocol

from zkconsumer.kafka.metadata.node import Node
from zkconsumer.types import TopicPartition
from zkconsumer.wire.field_types import NO_UUID


class PartitionInfo(NamedTuple):
    """One partition, as ``org.apache.kafka.common.PartitionInfo``.

    ``leader`` None: there is none, or it is not among the cluster's nodes.  A replica that is not among the nodes has
    its id and no address (``Node.is_empty``).
    """

    topic: str
    partition: int
    leader: Node | None
    replicas: tuple[Node, ...] = ()
    in_sync_replicas: tuple[Node, ...] = ()
    offline_replicas: tuple[Node, ...] = ()


class ClusterResource(NamedTuple):
    """The identity of a cluster; ``cluster_id`` None: its brokers have none (before 0.10.1)."""

    cluster_id: str | None


class ClusterResourceListener(Protocol):
    """Is called with the identity of the cluster after each update of the metadata (Java's interface, KIP-78)."""

    def on_update(self, cluster_resource: ClusterResource) -> None:
        """An update has arrived.  An exception is logged and has no other effect."""


@dataclass(frozen=True)
class Cluster:
    """``partitions``: those whose topic has metadata, by name and number.  ``controller`` None: unknown.

    ``is_bootstrap_configured``: no broker has answered yet, and the nodes are those of ``bootstrap.servers``.
    """

    cluster_id: str | None = None
    nodes: tuple[Node, ...] = ()
    partitions: Mapping[TopicPartition, PartitionInfo] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    unauthorized_topics: frozenset[str] = frozenset()
    invalid_topics: frozenset[str] = frozenset()
    internal_topics: frozenset[str] = frozenset()
    controller: Node | None = None
    topic_ids: Mapping[str, bytes] = field(default_factory=lambda: MappingProxyType({}), hash=False)
    is_bootstrap_configured: bool = False

    @staticmethod
    def of(
        cluster_id: str | None,
        nodes: Iterable[Node],
        partitions: Iterable[PartitionInfo],
        *,
        unauthorized_topics: Iterable[str] = (),
        invalid_topics: Iterable[str] = (),
        internal_topics: Iterable[str] = (),
        controller: Node | None = None,
        topic_ids: Mapping[str, bytes] | None = None,
    ) -> Cluster:
        """A cluster from copies of these; ``topic_ids`` has 16 bytes for each topic whose id is known."""
        return Cluster(
            cluster_id,
            tuple(nodes),
            MappingProxyType({TopicPartition(info.topic, info.partition): info for info in partitions}),
            frozenset(unauthorized_topics),
            frozenset(invalid_topics),
            frozenset(internal_topics),
            controller,
            MappingProxyType(dict(topic_ids or {})),
        )

    @staticmethod
    def bootstrap(addresses: Iterable[tuple[str, int]]) -> Cluster:
        """The cluster before the first response: (host, port) of ``bootstrap.servers``, with the ids −1, −2, …"""
        nodes = tuple(Node(-1 - number, host, port) for number, (host, port) in enumerate(addresses))
        return Cluster(nodes=nodes, is_bootstrap_configured=True)

    @property
    def cluster_resource(self) -> ClusterResource:
        """The identity of the cluster."""
        return ClusterResource(self.cluster_id)

    @property
    def topics(self) -> frozenset[str]:
        """The topics with partitions."""
        return self._topics

    def node_by_id(self, node_id: int) -> Node | None:
        """The node, None if it is not known."""
        return self._nodes_by_id.get(node_id)

    def node_if_online(self, tp: TopicPartition, node_id: int) -> Node | None:
        """The node, None if it is not known or if its replica of the partition is offline."""
        node, info = self.node_by_id(node_id), self.partitions.get(tp)
        return None if node is None or info is None or node in info.offline_replicas else node

    def leader_for(self, tp: TopicPartition) -> Node | None:
        """The leader, None if there is none or if the partition is not known."""
        info = self.partitions.get(tp)
        return None if info is None else info.leader

    def partition(self, tp: TopicPartition) -> PartitionInfo | None:
        """The partition, None if it is not known."""
        return self.partitions.get(tp)

    def partitions_for_topic(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic; none if the topic is not known."""
        return self._by_topic.get(topic, ())

    def available_partitions_for_topic(self, topic: str) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic that have a leader."""
        return tuple(info for info in self.partitions_for_topic(topic) if info.leader is not None)

    def partition_count_for_topic(self, topic: str) -> int | None:
        """The number of partitions, None if the topic is not known."""
        infos = self._by_topic.get(topic)
        return None if infos is None else len(infos)

    def partitions_for_node(self, node_id: int) -> tuple[PartitionInfo, ...]:
        """The partitions that this node leads."""
        return self._by_leader.get(node_id, ())

    def topic_id(self, topic: str) -> bytes:
        """The id of a topic, 16 bytes; ``NO_UUID`` if it is not known (brokers before 2.8 have none)."""
        return self.topic_ids.get(topic, NO_UUID)

    def with_partitions(self, partitions: Mapping[TopicPartition, PartitionInfo]) -> Cluster:
        """A copy with these partitions in addition, or instead."""
        return Cluster.of(
            self.cluster_id,
            self.nodes,
            {**self.partitions, **partitions}.values(),
            unauthorized_topics=self.unauthorized_topics,
            invalid_topics=self.invalid_topics,
            internal_topics=self.internal_topics,
            controller=self.controller,
            topic_ids=self.topic_ids,
        )

    @cached_property
    def _topics(self) -> frozenset[str]:
        return frozenset(self._by_topic)

    @cached_property
    def _nodes_by_id(self) -> dict[int, Node]:
        return {node.id: node for node in self.nodes}

    @cached_property
    def _by_topic(self) -> dict[str, tuple[PartitionInfo, ...]]:
        found: dict[str, list[PartitionInfo]] = {}
        for info in self.partitions.values():
            found.setdefault(info.topic, []).append(info)
        return {topic: tuple(infos) for topic, infos in found.items()}

    @cached_property
    def _by_leader(self) -> dict[int, tuple[PartitionInfo, ...]]:
        found: dict[int, list[PartitionInfo]] = {}
        for info in self.partitions.values():
            if info.leader is not None:
                found.setdefault(info.leader.id, []).append(info)
        return {node_id: tuple(infos) for node_id, infos in found.items()}


EMPTY_CLUSTER = Cluster()
