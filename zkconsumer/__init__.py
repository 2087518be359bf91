"""Kafka's ZooKeeper-based high-level consumer for Python; its members join the same groups as Scala consumers.

    from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector

``__version__`` is the release.  This module also exports the types in the signatures of these classes, for
annotations.  Errors are in ``zkconsumer.errors``, the old camelCase names in ``zkconsumer.javaapi``, fakes and real
local clusters for tests in ``zkconsumer.testing``.

The names below are imported at their first use, so that ``zkconsumer --help`` and tools that need one module do not
import kazoo and the rest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from zkconsumer.platforms import check_platform as _check_platform
from zkconsumer.version import __version__ as __version__

_check_platform()

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.config import ConsumerConfig
    from zkconsumer.connector import ZookeeperConsumerConnector
    from zkconsumer.connector_base import ConsumerConnector, Position
    from zkconsumer.kafka.broker_connection import Connection, ConnectionFactory
    from zkconsumer.kafka.broker_security import SecureConnectionFactory, connection_factory_from_config
    from zkconsumer.kafka.chunk_reader import PoisonMessage
    from zkconsumer.kafka.error_codes import BrokerError, ErrorCode
    from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
    from zkconsumer.kafka.record_batch import RecordBatch
    from zkconsumer.kafka.record_columns import ByteColumn
    from zkconsumer.member.listener_state_machine import ConsumerRebalanceListener, PartitionsLostListener
    from zkconsumer.member.offset_stores import OffsetSource
    from zkconsumer.member.topic_count import ConsumerThreadId
    from zkconsumer.member.topic_filter import Blacklist, TopicFilter, Whitelist
    from zkconsumer.observe.metric_names import MetricKind, MetricRow
    from zkconsumer.observe.metrics import MetricSample
    from zkconsumer.simple_consumer import SimpleConsumer
    from zkconsumer.simple_requests import (
        FetchRequest,
        FetchRequestBuilder,
        FetchResponse,
        FetchResponsePartitionData,
        GroupCoordinatorRequest,
        GroupCoordinatorResponse,
        MessageSet,
        OffsetCommitRequest,
        OffsetCommitResponse,
        OffsetFetchRequest,
        OffsetFetchResponse,
        OffsetMetadataAndError,
        OffsetRequest,
        OffsetResponse,
        OffsetStorage,
        PartitionFetchInfo,
        PartitionMetadata,
        PartitionOffsetRequestInfo,
        PartitionOffsetsResponse,
        TopicMetadata,
        TopicMetadataRequest,
        TopicMetadataResponse,
    )
    from zkconsumer.streams import (
        ConsumerIterator,
        Decoder,
        KafkaStream,
        MessageAndMetadata,
        default_decoder,
        string_decoder,
    )
    from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, BrokerAddress, Hooks, TopicPartition
    from zkconsumer.wire.primitives import RecordSet
    from zkconsumer.wire.records import Record
    from zkconsumer.zk.store import ZkStore
    from zkconsumer.zk.topic_watcher import TopicEventHandler, ZookeeperTopicEventWatcher

_MODULE_BY_NAME = {
    "Blacklist": "zkconsumer.member.topic_filter",
    "BrokerAddress": "zkconsumer.types",
    "BrokerError": "zkconsumer.kafka.error_codes",
    "ByteColumn": "zkconsumer.kafka.record_columns",
    "Clock": "zkconsumer.base.clock",
    "ConnectionFactory": "zkconsumer.kafka.broker_connection",
    "Connection": "zkconsumer.kafka.broker_connection",
    "ConsumerConfig": "zkconsumer.config",
    "ConsumerConnector": "zkconsumer.connector_base",
    "ConsumerIterator": "zkconsumer.streams",
    "ConsumerRebalanceListener": "zkconsumer.member.listener_state_machine",
    "ConsumerThreadId": "zkconsumer.member.topic_count",
    "Decoder": "zkconsumer.streams",
    "EARLIEST_TIME": "zkconsumer.types",
    "ErrorCode": "zkconsumer.kafka.error_codes",
    "FetchRequest": "zkconsumer.simple_requests",
    "FetchRequestBuilder": "zkconsumer.simple_requests",
    "FetchResponse": "zkconsumer.simple_requests",
    "FetchResponsePartitionData": "zkconsumer.simple_requests",
    "GroupCoordinatorRequest": "zkconsumer.simple_requests",
    "GroupCoordinatorResponse": "zkconsumer.simple_requests",
    "Hooks": "zkconsumer.types",
    "KafkaStream": "zkconsumer.streams",
    "LATEST_TIME": "zkconsumer.types",
    "MessageAndMetadata": "zkconsumer.streams",
    "MessageSet": "zkconsumer.simple_requests",
    "MetricKind": "zkconsumer.observe.metric_names",
    "MetricRow": "zkconsumer.observe.metric_names",
    "OffsetAndMetadata": "zkconsumer.kafka.offset_and_metadata",
    "OffsetCommitRequest": "zkconsumer.simple_requests",
    "OffsetCommitResponse": "zkconsumer.simple_requests",
    "OffsetFetchRequest": "zkconsumer.simple_requests",
    "OffsetFetchResponse": "zkconsumer.simple_requests",
    "OffsetMetadataAndError": "zkconsumer.simple_requests",
    "OffsetRequest": "zkconsumer.simple_requests",
    "OffsetResponse": "zkconsumer.simple_requests",
    "OffsetStorage": "zkconsumer.simple_requests",
    "PartitionFetchInfo": "zkconsumer.simple_requests",
    "PartitionMetadata": "zkconsumer.simple_requests",
    "PartitionOffsetRequestInfo": "zkconsumer.simple_requests",
    "PartitionOffsetsResponse": "zkconsumer.simple_requests",
    "PartitionsLostListener": "zkconsumer.member.listener_state_machine",
    "PoisonMessage": "zkconsumer.kafka.chunk_reader",
    "Position": "zkconsumer.connector_base",
    "Record": "zkconsumer.wire.records",
    "RecordBatch": "zkconsumer.kafka.record_batch",
    "RecordSet": "zkconsumer.wire.primitives",
    "MetricSample": "zkconsumer.observe.metrics",
    "SecureConnectionFactory": "zkconsumer.kafka.broker_security",
    "SimpleConsumer": "zkconsumer.simple_consumer",
    "OffsetSource": "zkconsumer.member.offset_stores",
    "TopicEventHandler": "zkconsumer.zk.topic_watcher",
    "TopicFilter": "zkconsumer.member.topic_filter",
    "TopicMetadata": "zkconsumer.simple_requests",
    "TopicMetadataRequest": "zkconsumer.simple_requests",
    "TopicMetadataResponse": "zkconsumer.simple_requests",
    "TopicPartition": "zkconsumer.types",
    "Whitelist": "zkconsumer.member.topic_filter",
    "ZkStore": "zkconsumer.zk.store",
    "ZookeeperConsumerConnector": "zkconsumer.connector",
    "ZookeeperTopicEventWatcher": "zkconsumer.zk.topic_watcher",
    "connection_factory_from_config": "zkconsumer.kafka.broker_security",
    "default_decoder": "zkconsumer.streams",
    "string_decoder": "zkconsumer.streams",
}

__all__ = [
    "EARLIEST_TIME",
    "LATEST_TIME",
    "Blacklist",
    "BrokerAddress",
    "BrokerError",
    "ByteColumn",
    "Clock",
    "Connection",
    "ConnectionFactory",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerIterator",
    "ConsumerRebalanceListener",
    "ConsumerThreadId",
    "Decoder",
    "ErrorCode",
    "FetchRequest",
    "FetchRequestBuilder",
    "FetchResponse",
    "FetchResponsePartitionData",
    "GroupCoordinatorRequest",
    "GroupCoordinatorResponse",
    "Hooks",
    "KafkaStream",
    "MessageAndMetadata",
    "MessageSet",
    "MetricKind",
    "MetricRow",
    "MetricSample",
    "OffsetAndMetadata",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetMetadataAndError",
    "OffsetRequest",
    "OffsetResponse",
    "OffsetSource",
    "OffsetStorage",
    "PartitionFetchInfo",
    "PartitionMetadata",
    "PartitionOffsetRequestInfo",
    "PartitionOffsetsResponse",
    "PartitionsLostListener",
    "PoisonMessage",
    "Position",
    "Record",
    "RecordBatch",
    "RecordSet",
    "SecureConnectionFactory",
    "SimpleConsumer",
    "TopicEventHandler",
    "TopicFilter",
    "TopicMetadata",
    "TopicMetadataRequest",
    "TopicMetadataResponse",
    "TopicPartition",
    "Whitelist",
    "ZkStore",
    "ZookeeperConsumerConnector",
    "ZookeeperTopicEventWatcher",
    "connection_factory_from_config",
    "default_decoder",
    "string_decoder",
]

if not TYPE_CHECKING:
    from zkconsumer.base.lazy_names import lazy_names as _lazy_names

    __getattr__, __dir__ = _lazy_names(__name__, _MODULE_BY_NAME)
