"""Kafka's ZooKeeper-based high-level consumer, in the same group as the original Scala members.

    from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector

Errors are in ``zkconsumer.errors``, the old camelCase names in ``zkconsumer.javaapi``, fakes and real local clusters
for tests in ``zkconsumer.testing``.

The names below are loaded when they are first used, so that ``zkconsumer --help`` and tools that need one module do
not pay for kazoo and the rest.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from zkconsumer.config import ConsumerConfig
    from zkconsumer.connector import ZookeeperConsumerConnector
    from zkconsumer.core.listener import ConsumerRebalanceListener
    from zkconsumer.core.topic_filter import Blacklist, Whitelist
    from zkconsumer.simple_consumer import SimpleConsumer
    from zkconsumer.simple_requests import FetchRequestBuilder
    from zkconsumer.streams import ConsumerIterator, KafkaStream, MessageAndMetadata, default_decoder, string_decoder
    from zkconsumer.types import Hooks, TopicPartition

_HOMES = {
    "Blacklist": "zkconsumer.core.topic_filter",
    "ConsumerConfig": "zkconsumer.config",
    "ConsumerIterator": "zkconsumer.streams",
    "ConsumerRebalanceListener": "zkconsumer.core.listener",
    "FetchRequestBuilder": "zkconsumer.simple_requests",
    "Hooks": "zkconsumer.types",
    "KafkaStream": "zkconsumer.streams",
    "MessageAndMetadata": "zkconsumer.streams",
    "SimpleConsumer": "zkconsumer.simple_consumer",
    "TopicPartition": "zkconsumer.types",
    "Whitelist": "zkconsumer.core.topic_filter",
    "ZookeeperConsumerConnector": "zkconsumer.connector",
    "default_decoder": "zkconsumer.streams",
    "string_decoder": "zkconsumer.streams",
}

__all__ = [
    "Blacklist",
    "ConsumerConfig",
    "ConsumerIterator",
    "ConsumerRebalanceListener",
    "FetchRequestBuilder",
    "Hooks",
    "KafkaStream",
    "MessageAndMetadata",
    "SimpleConsumer",
    "TopicPartition",
    "Whitelist",
    "ZookeeperConsumerConnector",
    "default_decoder",
    "string_decoder",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'zkconsumer' has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
