"""Metadata and DescribeCluster: the nodes, the topics, and the leaders."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from bridge.broker.topic_store import (
    BROKER_INTERNAL_TOPICS,
    OFFSETS_TOPIC,
    PARTITIONS_MAX,
    BrokerPartition,
    BrokerTopic,
    NewTopic,
    is_valid_topic_name,
)
from bridge.coordinator.api_request import AclOperation
from zkconsumer.kafka.error_codes import (
    INVALID_REQUEST,
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_ID,
    UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas.describe_cluster import DescribeClusterBroker, DescribeClusterResponse
from zkconsumer.wire.schemas.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataTopic,
)

if TYPE_CHECKING:
    from bridge.broker.node import BrokerNode
    from bridge.coordinator.api_request import ApiRequest

ALL_TOPICS_IS_NULL_FROM = 1

TOPIC_ID_LOOKUP_FROM = 12
"""Topics have ids in versions 10 and 11 already, but cannot be requested by them."""

_log = logging.getLogger(__name__)


def handle_metadata(node: BrokerNode, call: ApiRequest) -> MetadataResponse:
    """The nodes, topics and leaders; a request that names a topic may create it."""
    cluster, body = node.cluster, call.body
    wants_all = not body.topics if call.version < ALL_TOPICS_IS_NULL_FROM else body.topics is None
    if wants_all:
        topics = [
            _topic_metadata(node, call, topic)
            for topic in cluster.topics
            if node.is_authorized(call, AclOperation.DESCRIBE, topic.name)
        ]
    else:
        # A topic that is named twice is returned once, as by real brokers: otherwise a short request has an unbounded
        # response.
        once = {(asked.name, asked.topic_id): asked for asked in body.topics}
        missing = _create_missing_topics(node, call, [asked.name for asked in once.values() if asked.name is not None])
        topics = [_requested_topic(node, call, asked, missing) for asked in once.values()]
    return MetadataResponse(
        brokers=[
            MetadataBroker(node_id=address.broker_id, host=address.host, port=address.port)
            for address in cluster.addresses(call.listener)
        ],
        cluster_id=cluster.topics.cluster_id,
        controller_id=cluster.controller_id,
        topics=topics,
    )


def describe_cluster(node: BrokerNode, call: ApiRequest) -> DescribeClusterResponse:
    """Only the nodes."""
    cluster = node.cluster
    return DescribeClusterResponse(
        endpoint_type=call.body.endpoint_type,
        cluster_id=cluster.topics.cluster_id,
        controller_id=cluster.controller_id,
        brokers=[
            DescribeClusterBroker(broker_id=address.broker_id, host=address.host, port=address.port)
            for address in cluster.addresses(call.listener)
        ],
    )


def _requested_topic(
    node: BrokerNode, call: ApiRequest, asked: MetadataRequestTopic, missing: dict[str, ErrorCode]
) -> MetadataTopic:
    topics = node.cluster.topics
    if asked.name is None and call.version < TOPIC_ID_LOOKUP_FROM:
        return _error_topic("", INVALID_REQUEST)
    if asked.name is None:
        topic = topics.by_id(asked.topic_id)
        if topic is None or not node.is_authorized(call, AclOperation.DESCRIBE, topic.name):
            return MetadataTopic(error_code=UNKNOWN_TOPIC_ID.code, name=None, topic_id=asked.topic_id, partitions=[])
        return _topic_metadata(node, call, topic)
    denied = node.topic_error(call, AclOperation.DESCRIBE, asked.name)
    if denied is not NONE:
        return _error_topic(asked.name, denied)
    if asked.name in missing:
        return _error_topic(asked.name, missing[asked.name])
    topic = topics.get(asked.name)
    assert topic is not None, "a requested topic that does not exist is in the missing ones"
    return _topic_metadata(node, call, topic)


def _create_missing_topics(node: BrokerNode, call: ApiRequest, names: list[str]) -> dict[str, ErrorCode]:
    """Create the missing topics; return the error for each.

    As in real brokers: the topics are created, and the client must request Metadata again for their leaders.
    """
    cluster = node.cluster
    topic_store = cluster.topics
    missing = {
        name: _missing_topic_error(node, call, name)
        for name in names
        if topic_store.get(name) is None and node.is_authorized(call, AclOperation.DESCRIBE, name)
    }
    partitions = cluster.config.num_partitions
    replication_factor = min(cluster.config.default_replication_factor, len(cluster.nodes))
    wanted = [name for name, error in missing.items() if error is LEADER_NOT_AVAILABLE]
    new = [
        NewTopic(name, topic_store.assign_replicas(partitions, replication_factor, at), {})
        for at, name in enumerate(wanted[: max(1, PARTITIONS_MAX // partitions)])
        if name != OFFSETS_TOPIC
    ]
    try:
        cluster.create_topics(new)
        if OFFSETS_TOPIC in wanted:
            cluster.create_offsets_topic()
    except OSError as error:
        _log.error("topic-creation-failed topics=%d first=%s error=%s", len(wanted), wanted[0], error)
        missing |= dict.fromkeys((name for name in wanted if topic_store.get(name) is None), UNKNOWN_TOPIC_OR_PARTITION)
    return missing


def _missing_topic_error(node: BrokerNode, call: ApiRequest, name: str) -> ErrorCode:
    """The error for a missing topic; one that is created now has no leader yet."""
    if not is_valid_topic_name(name):
        return INVALID_TOPIC_EXCEPTION
    if not (call.body.allow_auto_topic_creation and node.cluster.config.auto_create_topics_enable):
        return UNKNOWN_TOPIC_OR_PARTITION
    return LEADER_NOT_AVAILABLE if node.is_authorized(call, AclOperation.CREATE, name) else TOPIC_AUTHORIZATION_FAILED


def _error_topic(name: str, error: ErrorCode) -> MetadataTopic:
    return MetadataTopic(error_code=error.code, name=name, is_internal=name in BROKER_INTERNAL_TOPICS, partitions=[])


def _topic_metadata(node: BrokerNode, call: ApiRequest, topic: BrokerTopic) -> MetadataTopic:
    return MetadataTopic(
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_partition_metadata(node, call, partition) for partition in topic.partitions],
    )


def _partition_metadata(node: BrokerNode, call: ApiRequest, partition: BrokerPartition) -> MetadataPartition:
    stopped = node.cluster.stopped_nodes
    leader = -1 if partition.leader in stopped else partition.leader
    error = LEADER_NOT_AVAILABLE if leader < 0 else NONE
    return MetadataPartition(
        error_code=call.injected.partitions.get(TopicPartition(partition.topic, partition.index), error).code,
        partition_index=partition.index,
        leader_id=leader,
        leader_epoch=partition.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=[replica for replica in partition.replicas if replica not in stopped],
        offline_replicas=[replica for replica in partition.replicas if replica in stopped],
    )
