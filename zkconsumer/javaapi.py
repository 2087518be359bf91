"""The API of Kafka's Java consumer under its old names, for programs that are ported line by line.

    from zkconsumer.javaapi import Consumer, ConsumerConfig

    connector = Consumer.createJavaConsumerConnector(ConsumerConfig(props))
    stream = connector.createMessageStreams({"clicks": 1})["clicks"][0]
    it = stream.iterator()
    while it.hasNext():
        handle(it.next().message())

Every method calls the method with the Python name; errors are the same classes.  The names are those of
``kafka.consumer`` and ``kafka.javaapi.consumer`` as of 1.1, and older ones.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import Any, Protocol, Self, runtime_checkable

from zkconsumer import config as _config
from zkconsumer.connector_base import ConsumerConnector as _Connector
from zkconsumer.connector_selection import create_connector, read_config
from zkconsumer.errors import (
    ConsumerRebalanceFailedException,
    ConsumerTimeoutException,
    InvalidConfigException,
    InvalidMessageException,
    MessageSizeTooLargeException,
    MessageStreamsExistException,
    NoSuchElementException,
    UsageError,
    ZkTimeoutException,
)
from zkconsumer.javaapi_simple import (
    BrokerEndPoint,
    ByteBufferMessageSet,
    ConsumerMetadataRequest,
    ErrorMapping,
    FetchRequestBuilder,
    FetchResponse,
    GroupCoordinatorRequest,
    GroupCoordinatorResponse,
    Message,
    MessageAndOffset,
    MessageSetIterator,
    OffsetAndMetadata,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetRequest,
    OffsetResponse,
    PartitionMetadata,
    PartitionOffsetRequestInfo,
    SimpleConsumer,
    TopicAndPartition,
    TopicMetadata,
    TopicMetadataRequest,
    TopicMetadataResponse,
)
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata as _OffsetAndMetadata
from zkconsumer.member.topic_count import ConsumerThreadId
from zkconsumer.member.topic_filter import Blacklist, TopicFilter, Whitelist
from zkconsumer.streams import ConsumerIterator as _Iterator
from zkconsumer.streams import DeliveringIterator
from zkconsumer.streams import KafkaStream as _Stream
from zkconsumer.streams import MessageAndMetadata as _Message
from zkconsumer.types import TopicPartition
from zkconsumer.utf8 import string_function
from zkconsumer.zk.topic_watcher import ZookeeperTopicEventWatcher as _TopicWatcher

__all__ = [
    "Blacklist",
    "BrokerEndPoint",
    "ByteBufferMessageSet",
    "Consumer",
    "ConsumerConfig",
    "ConsumerConnector",
    "ConsumerIterator",
    "ConsumerMetadataRequest",
    "ConsumerRebalanceFailedException",
    "ConsumerRebalanceListener",
    "ConsumerThreadId",
    "ConsumerTimeoutException",
    "Decoder",
    "DefaultDecoder",
    "ErrorMapping",
    "FetchRequestBuilder",
    "FetchResponse",
    "GroupCoordinatorRequest",
    "GroupCoordinatorResponse",
    "IntegerDecoder",
    "InvalidConfigException",
    "InvalidMessageException",
    "KafkaStream",
    "LongDecoder",
    "Message",
    "MessageAndMetadata",
    "MessageAndOffset",
    "MessageSetIterator",
    "MessageSizeTooLargeException",
    "MessageStreamsExistException",
    "NoSuchElementException",
    "OffsetAndMetadata",
    "OffsetCommitRequest",
    "OffsetCommitResponse",
    "OffsetFetchRequest",
    "OffsetFetchResponse",
    "OffsetRequest",
    "OffsetResponse",
    "PartitionMetadata",
    "PartitionOffsetRequestInfo",
    "PartitionsLostListener",
    "SimpleConsumer",
    "StringDecoder",
    "TopicAndPartition",
    "TopicEventHandler",
    "TopicFilter",
    "TopicMetadata",
    "TopicMetadataRequest",
    "TopicMetadataResponse",
    "TopicPartition",
    "Whitelist",
    "ZkTimeoutException",
    "ZookeeperTopicEventWatcher",
]


class Decoder(Protocol):
    """``kafka.serializer.Decoder``: converts bytes to any value."""

    def fromBytes(self, data: bytes) -> Any:
        """Decode; ``key()`` or ``message()`` raises the exceptions of this method."""


class DefaultDecoder:
    """The unchanged bytes.  ``props`` is accepted as in the Scala consumer, and not used."""

    def __init__(self, props: Mapping[str, str] | None = None) -> None:
        self.props = props

    def fromBytes(self, data: bytes) -> bytes:
        return data


class StringDecoder:
    """Text in the encoding of the property ``serializer.encoding``; default UTF-8.

    As in Java, malformed bytes become U+FFFD, and UTF-16 without a byte order mark is big-endian.  ``UsageError``:
    Python has no such encoding.
    """

    def __init__(self, props: Mapping[str, str] | None = None) -> None:
        self.encoding = (props or {}).get("serializer.encoding", "utf-8")
        try:
            string_function(self.encoding)
        except LookupError as error:
            raise UsageError(f"serializer.encoding is {self.encoding!r}, which Python does not have") from error

    def fromBytes(self, data: bytes) -> str:
        return string_function(self.encoding)(data)


class LongDecoder:
    """Eight bytes, big endian, signed (0.8.2 and later)."""

    def __init__(self, props: Mapping[str, str] | None = None) -> None:
        self.props = props

    def fromBytes(self, data: bytes) -> int:
        return int(struct.unpack(">q", data)[0])


class IntegerDecoder:
    """Four bytes, big endian, signed (0.10 and later)."""

    def __init__(self, props: Mapping[str, str] | None = None) -> None:
        self.props = props

    def fromBytes(self, data: bytes) -> int:
        return int(struct.unpack(">i", data)[0])


def ConsumerConfig(props: Mapping[str, str]) -> _config.ConsumerConfig:
    """``new ConsumerConfig(props)``: all keys and values are strings, as in a properties file.

    With ``consumer.connector=migrating`` or ``coordinator`` the properties may also have the keys of Kafka's own
    consumer, as a ``bridge.CoordinatorConsumerConfig``.
    """
    return read_config(props)


class MessageAndMetadata:
    """``kafka.message.MessageAndMetadata``; each call decodes again; null is None."""

    def __init__(self, message: _Message[Any, Any]) -> None:
        self._message = message

    def topic(self) -> str:
        return self._message.topic

    def partition(self) -> int:
        return self._message.partition

    def offset(self) -> int:
        return self._message.offset

    def key(self) -> Any:
        return self._message.key

    def message(self) -> Any:
        return self._message.value

    def timestamp(self) -> int:
        return self._message.timestamp

    def timestampType(self) -> int:
        return self._message.timestamp_type

    def __repr__(self) -> str:
        return repr(self._message)


class ConsumerIterator(DeliveringIterator[MessageAndMetadata]):
    """``kafka.consumer.ConsumerIterator``."""

    _iterator: _Iterator[Any, Any]

    def __new__(cls, iterator: _Iterator[Any, Any]) -> Self:
        made = super().__new__(cls, iterator.delivery, MessageAndMetadata)
        made._iterator = iterator
        return made

    def hasNext(self) -> bool:
        return self._iterator.has_next()

    def peek(self) -> MessageAndMetadata | None:
        message = self._iterator.peek()
        return None if message is None else MessageAndMetadata(message)

    def skipPoison(self) -> None:
        """Skip the message that the last call could not deliver (the Scala consumer has no such method)."""
        self._iterator.skip_poison()

    def clearCurrentChunk(self) -> None:
        self._iterator.clear_current_chunk()

    def remove(self) -> None:
        """Raise ``UsageError`` (in the Scala consumer: ``UnsupportedOperationException``)."""
        raise UsageError("a message cannot be removed from a stream")


class KafkaStream:
    """``kafka.consumer.KafkaStream``: ``iterator()`` returns the same iterator every time."""

    def __init__(self, stream: _Stream[Any, Any]) -> None:
        self._stream = stream
        self._iterator = ConsumerIterator(stream.iterator())

    def iterator(self) -> ConsumerIterator:
        return self._iterator

    __iter__ = iterator

    def clear(self) -> None:
        self._stream.clear()

    def toString(self) -> str:
        return repr(self._stream)

    __repr__ = toString


class ConsumerRebalanceListener(Protocol):
    """``kafka.javaapi.consumer.ConsumerRebalanceListener`` (0.9 and later); real sets and maps (KAFKA-2284)."""

    def beforeReleasingPartitions(self, partitionOwnership: dict[str, set[int]]) -> None:
        """The partitions that will be released: topic -> partitions."""

    def beforeStartingFetchers(
        self, consumerId: str, globalPartitionAssignment: dict[str, dict[int, ConsumerThreadId]]
    ) -> None:
        """The assignment of the group: topic -> partition -> thread."""


@runtime_checkable
class PartitionsLostListener(ConsumerRebalanceListener, Protocol):
    """A listener that is also called for lost partitions (``onPartitionsLost`` of Kafka 2.4)."""

    def onPartitionsLost(self, partitions: dict[str, set[int]]) -> None:
        """The partitions that were lost without a release: topic -> partitions."""


class _ListenerAdapter:
    """Adapts a listener with the old names to the new names."""

    def __init__(self, listener: ConsumerRebalanceListener) -> None:
        self._listener = listener

    def on_partitions_lost(self, partitions: dict[str, set[int]]) -> None:
        if isinstance(self._listener, PartitionsLostListener):
            self._listener.onPartitionsLost(partitions)

    def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
        self._listener.beforeReleasingPartitions(partitions)

    def before_starting_fetchers(self, consumer_id: str, assignment: dict[str, dict[int, ConsumerThreadId]]) -> None:
        self._listener.beforeStartingFetchers(consumer_id, assignment)


class ConsumerConnector:
    """``kafka.javaapi.consumer.ConsumerConnector``; also a context manager."""

    def __init__(self, connector: _Connector[Any]) -> None:
        self.connector = connector

    def createMessageStreams(
        self,
        topicCountMap: Mapping[str, int],
        keyDecoder: Decoder | None = None,
        valueDecoder: Decoder | None = None,
    ) -> dict[str, list[KafkaStream]]:
        """``createMessageStreams(topicCountMap)`` and ``(topicCountMap, keyDecoder, valueDecoder)``."""
        decoders = (keyDecoder or DefaultDecoder()).fromBytes, (valueDecoder or DefaultDecoder()).fromBytes
        streams = self.connector.create_message_streams(topicCountMap, *decoders)
        return {topic: [KafkaStream(stream) for stream in row] for topic, row in streams.items()}

    def createMessageStreamsByFilter(
        self,
        topicFilter: TopicFilter,
        numStreams: int = 1,
        keyDecoder: Decoder | None = None,
        valueDecoder: Decoder | None = None,
    ) -> list[KafkaStream]:
        """``createMessageStreamsByFilter(topicFilter[, numStreams[, keyDecoder, valueDecoder]])``."""
        decoders = (keyDecoder or DefaultDecoder()).fromBytes, (valueDecoder or DefaultDecoder()).fromBytes
        streams = self.connector.create_message_streams_by_filter(topicFilter, numStreams, *decoders)
        return [KafkaStream(stream) for stream in streams]

    def setConsumerRebalanceListener(self, consumerRebalanceListener: ConsumerRebalanceListener) -> None:
        """Call it before streams are created.  Raises ``UsageError`` if one of the two methods is missing."""
        for name in ("beforeReleasingPartitions", "beforeStartingFetchers"):
            if not callable(getattr(consumerRebalanceListener, name, None)):
                raise UsageError(f"{consumerRebalanceListener!r} is not a rebalance listener: it has no method {name}")
        self.connector.set_consumer_rebalance_listener(_ListenerAdapter(consumerRebalanceListener))

    def commitOffsets(
        self,
        offsets_or_retry: Mapping[TopicPartition, int | _OffsetAndMetadata] | bool = True,
        retryOnFailure: bool = True,
    ) -> None:
        """``commitOffsets()``, ``commitOffsets(retryOnFailure)`` and ``commitOffsets(offsets, retryOnFailure)``.

        An offset may be a number, or an ``OffsetAndMetadata`` as in Java, whose metadata are not stored.
        """
        if isinstance(offsets_or_retry, bool):
            self.connector.commit_offsets(retry_on_failure=offsets_or_retry)
            return
        offsets: Any = offsets_or_retry
        if isinstance(offsets, Mapping):
            offsets = {tp: x.offset if isinstance(x, _OffsetAndMetadata) else x for tp, x in offsets.items()}
        self.connector.commit_offsets(offsets, retry_on_failure=retryOnFailure)

    def shutdown(self) -> None:
        self.connector.shutdown()

    def __enter__(self) -> ConsumerConnector:
        self.connector.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.connector.__exit__(*error)


class Consumer:
    """``kafka.consumer.Consumer``: the two methods that create a connector: the one that ``consumer.connector`` names.

    Without this key, or with ``zookeeper``, it is a member of a ZooKeeper group, as in the Scala consumer.
    """

    @staticmethod
    def create(config: _config.ConsumerConfig) -> ConsumerConnector:
        return ConsumerConnector(create_connector(config))

    @staticmethod
    def createJavaConsumerConnector(config: _config.ConsumerConfig) -> ConsumerConnector:
        return ConsumerConnector(create_connector(config))


class TopicEventHandler(Protocol):
    """``kafka.consumer.TopicEventHandler``."""

    def handleTopicEvent(self, allTopics: Sequence[str]) -> None:
        """All topics that exist now."""


class ZookeeperTopicEventWatcher:
    """``kafka.consumer.ZookeeperTopicEventWatcher``, with a connection string instead of a ``ZkUtils`` object."""

    def __init__(self, zkConnect: str, eventHandler: TopicEventHandler, **options: Any) -> None:
        self._handler = eventHandler
        self.watcher = _TopicWatcher(zkConnect, self, **options)

    def handle_topic_event(self, all_topics: Sequence[str]) -> None:
        self._handler.handleTopicEvent(all_topics)

    def shutdown(self) -> None:
        self.watcher.shutdown()
