"""What a Metadata response contains, independent of its version, as Java's ``MetadataResponse``.  Pure.

Differences from Java, which supports brokers from 0.10 on (version 1): at version 0 (0.8 and 0.9) the response does not
show which topics are internal, so their names decide.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

from zkconsumer.kafka.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    ErrorCode,
    error_code,
)
from zkconsumer.kafka.metadata.cluster import Cluster, PartitionInfo
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.types import INTERNAL_TOPICS, TopicPartition
from zkconsumer.wire.field_types import NO_UUID
from zkconsumer.wire.schemas.metadata import MetadataPartition, MetadataResponse, MetadataTopic

RELIABLE_EPOCHS_FROM = 9
"""The version (2.4) from which leader epochs are reliable: earlier brokers may answer an old epoch while a partition is
reassigned, and then reject it themselves (FENCED_LEADER_EPOCH)."""

INTERNAL_FROM = 1
"""The version (0.10) from which topics have ``is_internal``."""


class PartitionMetadata(NamedTuple):
    """One partition of a response.  ``leader_id`` and ``leader_epoch`` None: unknown.  The lists have node ids."""

    topic_partition: TopicPartition
    error: ErrorCode = NONE
    leader_id: int | None = None
    leader_epoch: int | None = None
    replica_ids: tuple[int, ...] = ()
    in_sync_replica_ids: tuple[int, ...] = ()
    offline_replica_ids: tuple[int, ...] = ()

    def without_leader_epoch(self) -> PartitionMetadata:
        """A copy whose leader epoch is unknown."""
        return self._replace(leader_epoch=None)

    def to_partition_info(self, nodes: Mapping[int, Node]) -> PartitionInfo:
        """The partition with nodes instead of ids; the leader is None if it is not among the nodes."""

        def resolved(ids: tuple[int, ...]) -> tuple[Node, ...]:
            return tuple(nodes.get(node_id) or Node(node_id, "", -1) for node_id in ids)

        leader = None if self.leader_id is None else nodes.get(self.leader_id)
        replicas = resolved(self.replica_ids)
        in_sync = replicas if self.in_sync_replica_ids == self.replica_ids else resolved(self.in_sync_replica_ids)
        return PartitionInfo(*self.topic_partition, leader, replicas, in_sync, resolved(self.offline_replica_ids))


def has_reliable_leader_epochs(version: int) -> bool:
    """Whether a response of this version orders the changes of a partition by its leader epochs."""
    return version >= RELIABLE_EPOCHS_FROM


def nodes_of(response: MetadataResponse) -> dict[int, Node]:
    """The brokers, by id."""
    return {row.node_id: Node(row.node_id, row.host, row.port, row.rack) for row in response.brokers}


def named_topics(response: MetadataResponse) -> Iterator[tuple[str, MetadataTopic]]:
    """The topics with their names; one without a name (an unknown id was requested) is skipped."""
    for topic in response.topics:
        if topic.name is not None:
            yield topic.name, topic


def is_internal_topic(name: str, topic: MetadataTopic, version: int) -> bool:
    """Whether a topic of a response is one of Kafka's own."""
    return topic.is_internal if version >= INTERNAL_FROM else name in INTERNAL_TOPICS


def partition_metadata(topic: str, row: MetadataPartition) -> PartitionMetadata:
    """A row of a response as value."""
    return PartitionMetadata(
        TopicPartition(topic, row.partition_index),
        error_code(row.error_code),
        row.leader_id if row.leader_id >= 0 else None,
        row.leader_epoch if row.leader_epoch >= 0 else None,
        tuple(row.replica_nodes),
        tuple(row.isr_nodes),
        tuple(row.offline_replicas),
    )


def topic_errors(response: MetadataResponse) -> dict[str, ErrorCode]:
    """The topics whose metadata could not be read, with their errors."""
    return {name: error_code(topic.error_code) for name, topic in named_topics(response) if topic.error_code}


def cluster_from_response(
    response: MetadataResponse, version: int, is_retained: Callable[[str], bool] = lambda topic: True
) -> Cluster:
    """The cluster of one response to a request of this version, without the topics that are not retained.

    Unlike ``Metadata`` it compares no epochs with an earlier response (Java's ``MetadataResponse.buildCluster``).
    """
    nodes = nodes_of(response)
    errors = {topic: error for topic, error in topic_errors(response).items() if is_retained(topic)}
    readable = [
        (name, topic) for name, topic in named_topics(response) if topic.error_code == NONE.code and is_retained(name)
    ]
    return Cluster.of(
        response.cluster_id,
        nodes.values(),
        (
            partition_metadata(name, row).to_partition_info(nodes)
            for name, topic in readable
            for row in topic.partitions
        ),
        unauthorized_topics=(topic for topic, error in errors.items() if error == TOPIC_AUTHORIZATION_FAILED),
        invalid_topics=(topic for topic, error in errors.items() if error == INVALID_TOPIC_EXCEPTION),
        internal_topics=(name for name, topic in readable if is_internal_topic(name, topic, version)),
        controller=nodes.get(response.controller_id),
        topic_ids={name: topic.topic_id for name, topic in readable if topic.topic_id != NO_UUID},
    )
