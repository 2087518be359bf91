"""``kafka.javaapi.consumer.SimpleConsumer`` with its requests and responses, under the old names.

    consumer = SimpleConsumer("broker-1", 9092, 100000, 64 * 1024, "audit")
    request = FetchRequestBuilder().clientId("audit").addFetch("clicks", 0, 42, 100000).build()
    response = consumer.fetch(request)
    if response.hasError() and response.errorCode("clicks", 0) == ErrorMapping.OffsetOutOfRangeCode():
        ...
    for messageAndOffset in response.messageSet("clicks", 0):
        handle(messageAndOffset.message().payload())

Every method calls ``zkconsumer.simple_consumer``; import the classes from ``zkconsumer.javaapi``.  The constructors
have the parameters of 0.8.2 to 1.1, in their order.  A ``versionId`` is used exactly; without one, the newest version
that both sides support is used.  For the offsets of a group the version also selects the store, so there the default is
0, ZooKeeper, as in Kafka's Java classes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Generic, Self, TypeVar, overload

from zkconsumer import simple_consumer as _simple
from zkconsumer import simple_requests as _requests
from zkconsumer.errors import InvalidMessageException, NoSuchElementException, UnsupportedCodec, UsageError
from zkconsumer.kafka.broker_connection import BlockingConnection, ConnectionFactory
from zkconsumer.kafka.error_codes import BrokerError, ErrorCode, error_code
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata as _OffsetAndMetadata
from zkconsumer.kafka.record_delivery import TypedMap
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, BrokerAddress, TopicPartition
from zkconsumer.wire.records import Record

TopicAndPartition = TopicPartition
"""``kafka.common.TopicAndPartition``."""

PartitionOffsetRequestInfo = _requests.PartitionOffsetRequestInfo
"""``kafka.api.PartitionOffsetRequestInfo``: a time, and the maximum number of offsets."""

DEFAULT_STORAGE_VERSION = 0
"""The default version of the two offset requests in Kafka's old Java classes: ZooKeeper."""


_Value = TypeVar("_Value")
_ValueWithError = TypeVar(
    "_ValueWithError", bound=_requests.PartitionMetadata | _requests.TopicMetadata | _requests.GroupCoordinatorResponse
)
_Response = TypeVar("_Response", bound=_requests.FetchResponse | _requests.OffsetResponse)


class ErrorMapping:
    """``kafka.common.ErrorMapping``: a method for each code by name, and the error for a code."""

    UnknownCode = staticmethod(lambda: -1)
    NoError = staticmethod(lambda: 0)
    OffsetOutOfRangeCode = staticmethod(lambda: 1)
    InvalidMessageCode = staticmethod(lambda: 2)
    UnknownTopicOrPartitionCode = staticmethod(lambda: 3)
    InvalidFetchSizeCode = staticmethod(lambda: 4)
    LeaderNotAvailableCode = staticmethod(lambda: 5)
    NotLeaderForPartitionCode = staticmethod(lambda: 6)
    RequestTimedOutCode = staticmethod(lambda: 7)
    BrokerNotAvailableCode = staticmethod(lambda: 8)
    ReplicaNotAvailableCode = staticmethod(lambda: 9)
    MessageSizeTooLargeCode = staticmethod(lambda: 10)
    StaleControllerEpochCode = staticmethod(lambda: 11)
    OffsetMetadataTooLargeCode = staticmethod(lambda: 12)
    OffsetsLoadInProgressCode = staticmethod(lambda: 14)
    ConsumerCoordinatorNotAvailableCode = staticmethod(lambda: 15)
    NotCoordinatorForConsumerCode = staticmethod(lambda: 16)

    @staticmethod
    def exceptionFor(code: int) -> BrokerError:
        return BrokerError(error_code(code), "the broker answered with an error")

    @staticmethod
    def maybeThrowException(code: int) -> None:
        if code != 0:
            raise ErrorMapping.exceptionFor(code)


# --- requests ---------------------------------------------------------------------------------------------------


def TopicMetadataRequest(*arguments: Any) -> _requests.TopicMetadataRequest:
    """``(topics)``, ``(topics, correlationId)`` or ``(versionId, correlationId, clientId, topics)``."""
    match arguments:
        case [int(version), int(correlation_id), str(client_id), topics]:
            return _requests.TopicMetadataRequest(list(topics), version, correlation_id, client_id)
        case [topics] if not isinstance(topics, str):
            return _requests.TopicMetadataRequest(list(topics))
        case [topics, int(correlation_id)] if not isinstance(topics, str):
            return _requests.TopicMetadataRequest(list(topics), correlation_id=correlation_id)
    takes = "(topics[, correlationId]) or (versionId, correlationId, clientId, topics)"
    raise UsageError(f"TopicMetadataRequest takes {takes}")


def GroupCoordinatorRequest(
    group: str, versionId: int | None = None, correlationId: int = 0, clientId: str | None = None
) -> _requests.GroupCoordinatorRequest:
    """``kafka.api.GroupCoordinatorRequest`` (0.9 and later)."""
    return _requests.GroupCoordinatorRequest(group, versionId, correlationId, clientId)


ConsumerMetadataRequest = GroupCoordinatorRequest
"""``kafka.api.ConsumerMetadataRequest`` (0.8.2)."""


class FetchRequestBuilder:
    """``kafka.api.FetchRequestBuilder``."""

    def __init__(self) -> None:
        self._builder = _requests.FetchRequestBuilder()

    def addFetch(self, topic: str, partition: int, offset: int, fetchSize: int) -> FetchRequestBuilder:
        self._builder.add_fetch(topic, partition, offset, fetchSize)
        return self

    def clientId(self, clientId: str) -> FetchRequestBuilder:
        self._builder.client_id(clientId)
        return self

    def maxWait(self, maxWait: int) -> FetchRequestBuilder:
        self._builder.max_wait(maxWait)
        return self

    def minBytes(self, minBytes: int) -> FetchRequestBuilder:
        self._builder.min_bytes(minBytes)
        return self

    def maxBytes(self, maxBytes: int) -> FetchRequestBuilder:
        self._builder.max_bytes(maxBytes)
        return self

    def requestVersion(self, versionId: int) -> FetchRequestBuilder:
        self._builder.request_version(versionId)
        return self

    def build(self) -> _requests.FetchRequest:
        return self._builder.build()


class OffsetRequest(_requests.OffsetRequest):
    """``kafka.javaapi.OffsetRequest(requestInfo, versionId, clientId)``, with the constants of ``kafka.api``'s."""

    __slots__ = ()

    def __init__(
        self,
        requestInfo: Mapping[TopicPartition, PartitionOffsetRequestInfo],
        versionId: int | None = None,
        clientId: str | None = None,
    ) -> None:
        super().__init__(requestInfo, versionId, 0, clientId)

    @staticmethod
    def EarliestTime() -> int:
        return EARLIEST_TIME

    @staticmethod
    def LatestTime() -> int:
        return LATEST_TIME

    @staticmethod
    def CurrentVersion() -> int:
        return 0


def OffsetAndMetadata(offset: int, metadata: str = "", timestamp: int = -1) -> _OffsetAndMetadata:
    """``kafka.common.OffsetAndMetadata``; only version 1 has a ``timestamp``, other versions reject one."""
    return _OffsetAndMetadata(offset, metadata, commit_timestamp_ms=timestamp)


def OffsetCommitRequest(
    groupId: str,
    requestInfo: Mapping[TopicPartition, _OffsetAndMetadata],
    correlationId: int = 0,
    clientId: str | None = None,
    versionId: int = DEFAULT_STORAGE_VERSION,
) -> _requests.OffsetCommitRequest:
    """``kafka.javaapi.OffsetCommitRequest``; version 0 commits to ZooKeeper, other versions to Kafka."""
    return _requests.OffsetCommitRequest(
        groupId, requestInfo, version=versionId, correlation_id=correlationId, client_id=clientId
    )


def OffsetFetchRequest(
    groupId: str, requestInfo: Sequence[TopicPartition], *numbersAndClientId: Any
) -> _requests.OffsetFetchRequest:
    """``(groupId, requestInfo, correlationId, clientId)`` or ``(…, versionId, correlationId, clientId)``."""
    version, correlation_id = DEFAULT_STORAGE_VERSION, 0
    client_id: str | None = None
    match numbersAndClientId:
        case []:
            pass
        case [int(correlation_id), str(client_id)]:
            pass
        case [int(version), int(correlation_id), str(client_id)]:
            pass
        case _:
            raise UsageError("OffsetFetchRequest takes groupId, requestInfo[, versionId], correlationId, clientId")
    return _requests.OffsetFetchRequest(
        groupId, requestInfo, version=version, correlation_id=correlation_id, client_id=client_id
    )


# --- responses --------------------------------------------------------------------------------------------------


class BrokerEndPoint:
    """``kafka.cluster.BrokerEndPoint`` (``Broker`` in 0.8)."""

    def __init__(self, address: BrokerAddress) -> None:
        self._address = address

    def id(self) -> int:
        return self._address.broker_id

    def host(self) -> str:
        return self._address.host

    def port(self) -> int:
        return self._address.port

    def connectionString(self) -> str:
        return f"{self._address.host}:{self._address.port}"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, BrokerEndPoint) and other._address == self._address

    def __hash__(self) -> int:
        return hash(self._address)

    def __repr__(self) -> str:
        return repr(self._address)


class _Wrapper(Generic[_Value]):
    """A class of Kafka's Java interface over a value of ``simple_requests``."""

    def __init__(self, value: _Value) -> None:
        self._value = value


class _ErrorWrapper(_Wrapper[_ValueWithError]):
    """The same for a value with an error."""

    def error(self) -> ErrorCode:
        return self._value.error

    def errorCode(self) -> int:
        return self._value.error.code


class PartitionMetadata(_ErrorWrapper[_requests.PartitionMetadata]):
    """``kafka.javaapi.PartitionMetadata``."""

    def partitionId(self) -> int:
        return self._value.partition_id

    def leader(self) -> BrokerEndPoint | None:
        return None if self._value.leader is None else BrokerEndPoint(self._value.leader)

    def replicas(self) -> list[BrokerEndPoint]:
        return [BrokerEndPoint(address) for address in self._value.replicas]

    def isr(self) -> list[BrokerEndPoint]:
        return [BrokerEndPoint(address) for address in self._value.isr]


class TopicMetadata(_ErrorWrapper[_requests.TopicMetadata]):
    """``kafka.javaapi.TopicMetadata``."""

    def topic(self) -> str:
        return self._value.topic

    def partitionsMetadata(self) -> list[PartitionMetadata]:
        return [PartitionMetadata(row) for row in self._value.partitions_metadata]


class TopicMetadataResponse(_Wrapper[_requests.TopicMetadataResponse]):
    """``kafka.javaapi.TopicMetadataResponse``."""

    def topicsMetadata(self) -> list[TopicMetadata]:
        return [TopicMetadata(row) for row in self._value.topics_metadata]


class GroupCoordinatorResponse(_ErrorWrapper[_requests.GroupCoordinatorResponse]):
    """``kafka.javaapi.GroupCoordinatorResponse`` (0.8.2: ``ConsumerMetadataResponse``)."""

    def coordinator(self) -> BrokerEndPoint | None:
        return None if self._value.coordinator is None else BrokerEndPoint(self._value.coordinator)


class Message(_Wrapper[Record]):
    """``kafka.message.Message``: payload and key as bytes, None for null."""

    def payload(self) -> bytes | None:
        return self._value.value

    def key(self) -> bytes | None:
        return self._value.key

    def hasKey(self) -> bool:
        return self._value.key is not None

    def isNull(self) -> bool:
        return self._value.value is None

    def timestamp(self) -> int:
        return self._value.timestamp


class MessageAndOffset(_Wrapper[Record]):
    """``kafka.message.MessageAndOffset``."""

    def message(self) -> Message:
        return Message(self._value)

    def offset(self) -> int:
        return self._value.offset

    def nextOffset(self) -> int:
        return self._value.offset + 1


class _ReadAheadIterator:
    """Reads the next message of a message set ahead; as an iterator it returns the message's index in ``messages``.

    A signal handler may raise at any bytecode.  So ``messages`` contains the message until the program has received it.
    ``_is_reading`` is True while the set is decoded.  If it is True at the start of a read, the decoder (a generator)
    was interrupted; a new one then starts after ``_given``, the offset of the last message that ``has_next`` found.
    """

    def __init__(self, messages: Iterable[Record]) -> None:
        self.messages: list[MessageAndOffset] = []
        self._set = messages
        self._records: Iterator[Record] | None = None
        self._is_reading = False
        self._given = -1

    def __iter__(self) -> _ReadAheadIterator:
        return self

    def __next__(self) -> int:
        if not self.has_next():
            raise NoSuchElementException("the message set has no more messages")
        return -1

    def has_next(self) -> bool:
        if not self.messages:
            self._read()
        if not self.messages:
            return False
        self._given = self.messages[0].offset()
        self._is_reading = False
        return True

    def _read(self) -> None:
        if self._records is None or self._is_reading:
            given = self._given
            self._records = (record for record in self._set if record.offset > given)
        self._is_reading = True
        try:
            record = next(self._records, None)
        except (InvalidMessageException, UnsupportedCodec):
            self._is_reading = False
            raise
        if record is None:
            self._is_reading = False
        else:
            self.messages.append(MessageAndOffset(record))


class MessageSetIterator(TypedMap[MessageAndOffset]):
    """An iterator with the methods of Java and of Python.  ``__next__`` runs in C: ``messages.pop(-1)``."""

    _ahead: _ReadAheadIterator

    def __new__(cls, messages: Iterable[Record]) -> Self:
        ahead = _ReadAheadIterator(messages)
        made = super().__new__(cls, ahead.messages.pop, ahead)
        made._ahead = ahead
        return made

    def hasNext(self) -> bool:
        return self._ahead.has_next()

    def next(self) -> MessageAndOffset:
        next(self._ahead)
        message = self._ahead.messages[0]
        del self._ahead.messages[0]  # not a call, so CPython handles no signal between this and the return
        return message


class ByteBufferMessageSet(_Wrapper[_requests.MessageSet]):
    """``kafka.javaapi.message.ByteBufferMessageSet``: all received messages, also from before the requested offset."""

    def iterator(self) -> MessageSetIterator:
        return MessageSetIterator(self._value)

    __iter__ = iterator

    def sizeInBytes(self) -> int:
        return self._value.size_in_bytes

    def validBytes(self) -> int:
        return self._value.valid_bytes


class _PartitionErrors(_Wrapper[_Response]):
    """The errors of a response with one result for each partition."""

    def hasError(self) -> bool:
        return self._value.has_error

    def error(self, topic: str, partition: int) -> ErrorCode:
        return self._value.error(topic, partition)

    def errorCode(self, topic: str, partition: int) -> int:
        return self._value.error_code(topic, partition)


class FetchResponse(_PartitionErrors[_requests.FetchResponse]):
    """``kafka.javaapi.FetchResponse``."""

    def messageSet(self, topic: str, partition: int) -> ByteBufferMessageSet:
        return ByteBufferMessageSet(self._value.message_set(topic, partition))

    def highWatermark(self, topic: str, partition: int) -> int:
        return self._value.high_watermark(topic, partition)


class OffsetResponse(_PartitionErrors[_requests.OffsetResponse]):
    """``kafka.javaapi.OffsetResponse``."""

    def offsets(self, topic: str, partition: int) -> list[int]:
        return list(self._value.offsets(topic, partition))


class OffsetCommitResponse(_Wrapper[_requests.OffsetCommitResponse]):
    """``kafka.javaapi.OffsetCommitResponse``."""

    def errors(self) -> dict[TopicPartition, ErrorCode]:
        return dict(self._value.commit_status)

    def hasError(self) -> bool:
        return self._value.has_error

    def error(self, at: TopicPartition) -> ErrorCode:
        return self._value.error(at)

    def errorCode(self, at: TopicPartition) -> int:
        return self._value.error_code(at)


class OffsetFetchResponse(_Wrapper[_requests.OffsetFetchResponse]):
    """``kafka.javaapi.OffsetFetchResponse``; the values have ``offset``, ``metadata`` and ``error``."""

    def offsets(self) -> dict[TopicPartition, _requests.OffsetMetadataAndError]:
        return dict(self._value.offsets)


# --- the consumer -----------------------------------------------------------------------------------------------


class SimpleConsumer:
    """``kafka.javaapi.consumer.SimpleConsumer``; also a context manager.  ``connect`` as in the Python class."""

    def __init__(
        self,
        host: str,
        port: int,
        soTimeout: int,
        bufferSize: int,
        clientId: str,
        *,
        connect: ConnectionFactory = BlockingConnection,
    ) -> None:
        self._consumer = _simple.SimpleConsumer(host, port, soTimeout, bufferSize, clientId, connect=connect)

    def host(self) -> str:
        return self._consumer.host

    def port(self) -> int:
        return self._consumer.port

    def soTimeout(self) -> int:
        return self._consumer.so_timeout_ms

    def bufferSize(self) -> int:
        return self._consumer.buffer_size

    def clientId(self) -> str:
        return self._consumer.client_id

    @overload
    def send(self, request: _requests.TopicMetadataRequest) -> TopicMetadataResponse: ...

    @overload
    def send(self, request: _requests.GroupCoordinatorRequest) -> GroupCoordinatorResponse: ...

    def send(
        self, request: _requests.TopicMetadataRequest | _requests.GroupCoordinatorRequest
    ) -> TopicMetadataResponse | GroupCoordinatorResponse:
        if isinstance(request, _requests.TopicMetadataRequest):
            return TopicMetadataResponse(self._consumer.send(request))
        return GroupCoordinatorResponse(self._consumer.send(request))

    def fetch(self, request: _requests.FetchRequest) -> FetchResponse:
        return FetchResponse(self._consumer.fetch(request))

    def getOffsetsBefore(self, request: _requests.OffsetRequest) -> OffsetResponse:
        return OffsetResponse(self._consumer.get_offsets_before(request))

    def commitOffsets(self, request: _requests.OffsetCommitRequest) -> OffsetCommitResponse:
        return OffsetCommitResponse(self._consumer.commit_offsets(request))

    def fetchOffsets(self, request: _requests.OffsetFetchRequest) -> OffsetFetchResponse:
        return OffsetFetchResponse(self._consumer.fetch_offsets(request))

    def earliestOrLatestOffset(
        self, topicAndPartition: TopicPartition, earliestOrLatest: int, consumerId: int = -1
    ) -> int:
        return self._consumer.earliest_or_latest_offset(topicAndPartition, earliestOrLatest, consumerId)

    def disconnectToHandleJavaIOBug(self) -> None:
        self._consumer.disconnect()

    def close(self) -> None:
        self._consumer.close()

    def __enter__(self) -> SimpleConsumer:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()
