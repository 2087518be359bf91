"""Members of coordinator groups, the group coordinator, and the migration of groups between it and ZooKeeper.

    from bridge import CoordinatorConsumerConfig, CoordinatorConsumerConnector, MigratingConsumerConnector

The types in their signatures, Kafka's assignors and the errors of a coordinator's group are here as well.  Imports
zkconsumer, never the other way round.  Names are loaded when they are first used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.base.lazy_names import lazy_names as _lazy_names

if TYPE_CHECKING:
    from bridge.client.assignors import (
        CooperativeStickyAssignor,
        RangeAssignor,
        RoundRobinAssignor,
        StickyAssignor,
    )
    from bridge.client.config import CoordinatorConsumerConfig
    from bridge.client.consumer_interceptors import ConsumerInterceptor
    from bridge.client.coordinator_connector import CoordinatorConsumerConnector
    from bridge.client.kafka_consumer.consumer_metrics import MetricName
    from bridge.client.kafka_consumer.consumer_records import ConsumerRecords
    from bridge.client.kafka_consumer.kafka_consumer import ConsumerGroupMetadata, KafkaConsumer
    from bridge.client.kafka_consumer.kafka_consumer_config import KafkaConsumerConfig
    from bridge.client.kafka_consumer.offset_calls import OffsetCommitCallback
    from bridge.client.kafka_consumer.rebalance_listener import ConsumerRebalanceListener
    from bridge.migration.dual.connector.migrating_connector import MigratingConsumerConnector
    from zkconsumer.kafka.fetch.fetched_records import ConsumerRecord, Deserializer, FetchedRecords
    from zkconsumer.kafka.fetch.list_offsets_requests import OffsetAndTimestamp
    from zkconsumer.kafka.group.errors import (
        AssignorFailed,
        CommitFailedException,
        FencedInstanceIdException,
        GroupAuthorizationException,
        GroupMaxSizeReachedException,
        InconsistentGroupProtocolException,
        InvalidGroupIdException,
        InvalidSessionTimeoutException,
        OffsetFetchFailed,
        RebalanceCallbackFailed,
        RebalanceInProgressException,
        RetriableCommitFailedException,
        SerializationException,
        TopicAuthorizationException,
        UnsupportedVersionException,
    )
    from zkconsumer.kafka.group.partition_assignor import (
        Assignment,
        ConsumerPartitionAssignor,
        RebalanceProtocol,
        Subscription,
    )
    from zkconsumer.kafka.metadata.cluster import ClusterResource, ClusterResourceListener, PartitionInfo
    from zkconsumer.kafka.metadata.node import Node

_MODULE_BY_NAME = {
    "Assignment": "zkconsumer.kafka.group.partition_assignor",
    "AssignorFailed": "zkconsumer.kafka.group.errors",
    "ClusterResource": "zkconsumer.kafka.metadata.cluster",
    "ClusterResourceListener": "zkconsumer.kafka.metadata.cluster",
    "CommitFailedException": "zkconsumer.kafka.group.errors",
    "ConsumerGroupMetadata": "bridge.client.kafka_consumer.kafka_consumer",
    "ConsumerInterceptor": "bridge.client.consumer_interceptors",
    "ConsumerPartitionAssignor": "zkconsumer.kafka.group.partition_assignor",
    "ConsumerRebalanceListener": "bridge.client.kafka_consumer.rebalance_listener",
    "ConsumerRecord": "zkconsumer.kafka.fetch.fetched_records",
    "ConsumerRecords": "bridge.client.kafka_consumer.consumer_records",
    "CooperativeStickyAssignor": "bridge.client.assignors",
    "CoordinatorConsumerConfig": "bridge.client.config",
    "CoordinatorConsumerConnector": "bridge.client.coordinator_connector",
    "Deserializer": "zkconsumer.kafka.fetch.fetched_records",
    "FencedInstanceIdException": "zkconsumer.kafka.group.errors",
    "FetchedRecords": "zkconsumer.kafka.fetch.fetched_records",
    "GroupAuthorizationException": "zkconsumer.kafka.group.errors",
    "GroupMaxSizeReachedException": "zkconsumer.kafka.group.errors",
    "InconsistentGroupProtocolException": "zkconsumer.kafka.group.errors",
    "InvalidGroupIdException": "zkconsumer.kafka.group.errors",
    "InvalidSessionTimeoutException": "zkconsumer.kafka.group.errors",
    "KafkaConsumer": "bridge.client.kafka_consumer.kafka_consumer",
    "KafkaConsumerConfig": "bridge.client.kafka_consumer.kafka_consumer_config",
    "MetricName": "bridge.client.kafka_consumer.consumer_metrics",
    "MigratingConsumerConnector": "bridge.migration.dual.connector.migrating_connector",
    "Node": "zkconsumer.kafka.metadata.node",
    "OffsetAndTimestamp": "zkconsumer.kafka.fetch.list_offsets_requests",
    "OffsetCommitCallback": "bridge.client.kafka_consumer.offset_calls",
    "OffsetFetchFailed": "zkconsumer.kafka.group.errors",
    "PartitionInfo": "zkconsumer.kafka.metadata.cluster",
    "RangeAssignor": "bridge.client.assignors",
    "RebalanceCallbackFailed": "zkconsumer.kafka.group.errors",
    "RebalanceInProgressException": "zkconsumer.kafka.group.errors",
    "RebalanceProtocol": "zkconsumer.kafka.group.partition_assignor",
    "RetriableCommitFailedException": "zkconsumer.kafka.group.errors",
    "RoundRobinAssignor": "bridge.client.assignors",
    "SerializationException": "zkconsumer.kafka.group.errors",
    "StickyAssignor": "bridge.client.assignors",
    "Subscription": "zkconsumer.kafka.group.partition_assignor",
    "TopicAuthorizationException": "zkconsumer.kafka.group.errors",
    "UnsupportedVersionException": "zkconsumer.kafka.group.errors",
}

__all__ = [
    "Assignment",
    "AssignorFailed",
    "ClusterResource",
    "ClusterResourceListener",
    "CommitFailedException",
    "ConsumerGroupMetadata",
    "ConsumerInterceptor",
    "ConsumerPartitionAssignor",
    "ConsumerRebalanceListener",
    "ConsumerRecord",
    "ConsumerRecords",
    "CooperativeStickyAssignor",
    "CoordinatorConsumerConfig",
    "CoordinatorConsumerConnector",
    "Deserializer",
    "FencedInstanceIdException",
    "FetchedRecords",
    "GroupAuthorizationException",
    "GroupMaxSizeReachedException",
    "InconsistentGroupProtocolException",
    "InvalidGroupIdException",
    "InvalidSessionTimeoutException",
    "KafkaConsumer",
    "KafkaConsumerConfig",
    "MetricName",
    "MigratingConsumerConnector",
    "Node",
    "OffsetAndTimestamp",
    "OffsetCommitCallback",
    "OffsetFetchFailed",
    "PartitionInfo",
    "RangeAssignor",
    "RebalanceCallbackFailed",
    "RebalanceInProgressException",
    "RebalanceProtocol",
    "RetriableCommitFailedException",
    "RoundRobinAssignor",
    "SerializationException",
    "StickyAssignor",
    "Subscription",
    "TopicAuthorizationException",
    "UnsupportedVersionException",
]

if not TYPE_CHECKING:
    __getattr__, __dir__ = _lazy_names(__name__, _MODULE_BY_NAME)
