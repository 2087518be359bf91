"""Kafka's ZooKeeper-based high-level consumer, in the same group as the original Scala members.

from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector

Errors are in ``zkconsumer.errors``, the old camelCase names in ``zkconsumer.javaapi``, fakes and real local clusters
for tests in ``zkconsumer.testing``.
"""

from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.streams import ConsumerIterator, KafkaStream, MessageAndMetadata, default_decoder, string_decoder
from zkconsumer.types import TopicPartition

__all__ = [
    "ConsumerConfig",
    "ConsumerIterator",
    "KafkaStream",
    "MessageAndMetadata",
    "TopicPartition",
    "ZookeeperConsumerConnector",
    "default_decoder",
    "string_decoder",
]
