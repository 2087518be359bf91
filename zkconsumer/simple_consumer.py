"""``SimpleConsumer``: requests to one broker, without a group.

    with SimpleConsumer("broker-1", 9092, client_id="audit") as consumer:
        request = FetchRequestBuilder().add_fetch("clicks", 0, 42, 1024 * 1024).build()
        for record in consumer.fetch(request).messages("clicks", 0):
            print(record.offset, record.value)

It has one connection and one request at a time: threads that use the same consumer wait for each other.  A request
connects if necessary.  When it fails because of the network or the broker, the connection is opened again and the
request is sent once more without a log line, as the Scala consumer does: **a request may be executed twice**.  The
second error is raised, with host and port.  A request is not repeated if ``close`` or ``disconnect`` of another thread
ended it (0.9 and later), or if the answer has an error code.

Differences to the Scala consumer: after ``close`` a call raises an error (there, its retry connects again); an
unreachable broker raises ``BrokerUnreachable`` (there, ``ClosedChannelException``); a request without a version uses
the newest version that both sides support.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, TypeVar, overload

from zkconsumer.errors import (
    BrokerUnreachable,
    ConnectorClosed,
    KafkaException,
    RemoteProtocolError,
    UsageError,
    ZkConsumerError,
)
from zkconsumer.kafka.broker_connection import BlockingConnection, Connection, ConnectionFactory
from zkconsumer.kafka.error_codes import NONE as NO_ERROR
from zkconsumer.kafka.error_codes import BrokerError, ErrorCode, error_code
from zkconsumer.kafka.group_offsets import (
    KAFKA_STORE_FROM,
    find_coordinator_request,
    offset_commit_topics,
    offset_fetch_request,
    parse_find_coordinator,
    parse_offset_commit,
    parse_offset_fetch,
)
from zkconsumer.kafka.metadata_client import ALL_TOPICS_IS_NULL_FROM
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.simple_requests import (
    FetchRequest,
    FetchResponse,
    FetchResponsePartitionData,
    GroupCoordinatorRequest,
    GroupCoordinatorResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetMetadataAndError,
    OffsetRequest,
    OffsetResponse,
    PartitionFetchInfo,
    PartitionMetadata,
    PartitionOffsetRequestInfo,
    PartitionOffsetsResponse,
    TopicMetadata,
    TopicMetadataRequest,
    TopicMetadataResponse,
)
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, BrokerAddress, TopicPartition
from zkconsumer.wire import schemas
from zkconsumer.wire.request_frames import RESPONSE_BYTES_MAX
from zkconsumer.wire.schemas.fetch import RESPONSE_BYTES_UNLIMITED, FetchPartition, FetchTopic
from zkconsumer.wire.schemas.list_offsets import ListOffsetsPartition, ListOffsetsTopic
from zkconsumer.wire.schemas.message_schema import Api
from zkconsumer.wire.schemas.metadata import MetadataPartition, MetadataRequestTopic
from zkconsumer.zk.paths import check_client_id

Q = TypeVar("Q")
R = TypeVar("R")
T = TypeVar("T")

VersionChooser = Callable[[SupportedVersions], int]
"""Selects the version of a request that has none."""

SO_TIMEOUT_MS = 30_000
BUFFER_SIZE = 64 * 1024
"""The defaults of ``socket.timeout.ms`` and ``socket.receive.buffer.bytes``; Kafka's SimpleConsumer has no defaults."""

RETENTION_VERSION_MAX = 4
"""The last version of OffsetCommit that has a retention time."""

log = logging.getLogger("zkconsumer.simple_consumer")


class SimpleConsumer:
    """Requests to the broker at ``host:port``; several threads may use it; it is a context manager.

    ``so_timeout_ms``: timeout of the connect and of each answer (for a fetch, plus its ``max_wait_ms``); because of the
    retry a broker that does not answer costs twice that.  ``buffer_size``: of the socket, in bytes.  ``client_id``: for
    requests without one; letters, digits, ``.``, ``_``, ``-`` (else ``InvalidNameError``).  ``connect``: creates the
    connection; pass your own for TLS or SASL.

    Every request raises ``BrokerUnreachable`` and ``RemoteProtocolError`` when the second try fails, too,
    ``KafkaException`` when the broker and this program have no common version, ``ConnectorClosed`` after or during
    ``close``, and ``UsageError`` for invalid arguments.
    """

    def __init__(
        self,
        host: str,
        port: int,
        so_timeout_ms: int = SO_TIMEOUT_MS,
        buffer_size: int = BUFFER_SIZE,
        client_id: str = "",
        *,
        connect: ConnectionFactory = BlockingConnection,
    ) -> None:
        if so_timeout_ms <= 0:
            raise UsageError(f"so_timeout_ms is {so_timeout_ms}: it must be a positive number of milliseconds")
        self.host = host
        self.port = port
        self.so_timeout_ms = so_timeout_ms
        self.buffer_size = buffer_size
        self.client_id = check_client_id(client_id)
        self._new_connection = connect
        self._request_lock = threading.Lock()
        # The second lock is taken only briefly; it protects the connection that ``close`` takes from a waiting thread.
        self._connection_lock = threading.Lock()
        self._connection: Connection | None = None
        self._api_versions: tuple[Connection, SupportedVersions] | None = None
        self._is_closed = False

    def __enter__(self) -> SimpleConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"SimpleConsumer({self.host}:{self.port})"

    # --- the connection -----------------------------------------------------------------------------------------

    def connect(self) -> None:
        """Connect now, and request the broker's API versions; otherwise the first request does it."""
        with self._request_lock:
            self._negotiated(self._connected())

    def disconnect(self) -> None:
        """Close the connection, from any thread; a request that waits for its answer raises ``ConnectorClosed``.

        The next request connects again.  (``disconnectToHandleJavaIOBug`` of 0.9 and later.)
        """
        with self._connection_lock:
            connection, self._connection = self._connection, None
        if connection is not None:
            connection.close()

    def reconnect(self) -> None:
        """``disconnect`` and ``connect``."""
        self.disconnect()
        self.connect()

    def close(self) -> None:
        """Close the consumer permanently, from any thread, also repeatedly; a waiting request ends at once."""
        self._is_closed = True
        self.disconnect()

    # --- requests -----------------------------------------------------------------------------------------------

    @overload
    def send(self, request: TopicMetadataRequest) -> TopicMetadataResponse: ...

    @overload
    def send(self, request: GroupCoordinatorRequest) -> GroupCoordinatorResponse: ...

    def send(
        self, request: TopicMetadataRequest | GroupCoordinatorRequest
    ) -> TopicMetadataResponse | GroupCoordinatorResponse:
        """The metadata of topics (leaders of partitions), or the coordinator of a group."""
        if isinstance(request, TopicMetadataRequest):
            return self._metadata(request)
        version, response = self._request(
            schemas.FIND_COORDINATOR,
            request,
            lambda ranges: ranges.pick(schemas.FIND_COORDINATOR),
            lambda version: find_coordinator_request(version, request.group),
        )
        found = parse_find_coordinator(response, version, request.group)
        if isinstance(found, ErrorCode):
            return GroupCoordinatorResponse(None, found, request.correlation_id)
        return GroupCoordinatorResponse(found, NO_ERROR, request.correlation_id)

    def _metadata(self, request: TopicMetadataRequest) -> TopicMetadataResponse:
        topics = [MetadataRequestTopic(name=topic) for topic in request.topics]

        def body(version: int) -> Any:
            return schemas.METADATA.request(
                topics=topics or (None if version >= ALL_TOPICS_IS_NULL_FROM else []),
                allow_auto_topic_creation=request.allow_auto_topic_creation,
            )

        _, response = self._request(schemas.METADATA, request, lambda ranges: ranges.pick(schemas.METADATA), body)
        brokers = {b.node_id: BrokerAddress(b.node_id, b.host, b.port) for b in response.brokers}
        metadata = [
            TopicMetadata(
                topic.name or "",
                tuple(_partition_metadata(row, brokers) for row in topic.partitions),
                error_code(topic.error_code),
            )
            for topic in response.topics
        ]
        return TopicMetadataResponse(tuple(brokers.values()), tuple(metadata), request.correlation_id)

    def fetch(self, request: FetchRequest) -> FetchResponse:
        """The records of some partitions from given offsets, or the error of each partition."""
        asked = dict(request.request_info)
        if len(asked) != len(request.request_info):
            raise UsageError(
                "a fetch contains a partition twice; request each partition once, as answers have no order"
            )
        body = schemas.FETCH.request(
            replica_id=request.replica_id,
            max_wait_ms=request.max_wait_ms,
            min_bytes=request.min_bytes,
            max_bytes=request.max_bytes,
            topics=_by_topic(request),
        )
        version, response = self._request(
            schemas.FETCH,
            request,
            lambda ranges: ranges.pick(schemas.FETCH),
            lambda _: body,
            timeout_ms=self.so_timeout_ms + request.max_wait_ms,
            response_bytes_max=_answer_bytes_max(asked),
        )
        if response.error_code != NO_ERROR.code:
            raise BrokerError(error_code(response.error_code), f"{self.host}:{self.port}: Fetch v{version}")
        data = {}
        for topic in response.responses:
            for row in topic.partitions:
                at = TopicPartition(topic.topic, row.partition_index)
                if at not in asked:
                    raise RemoteProtocolError(
                        f"{self.host}:{self.port}: the answer to Fetch contains {at}, which was not requested"
                    )
                records = b"" if row.records is None else row.records
                data[at] = FetchResponsePartitionData(
                    error_code(row.error_code), row.high_watermark, records, asked[at].offset
                )
        return FetchResponse(data, request.correlation_id, version, response.throttle_time_ms)

    def get_offsets_before(self, request: OffsetRequest) -> OffsetResponse:
        """The offsets for a time; their meaning depends on the version, see ``OffsetRequest``."""
        topics: dict[str, list[ListOffsetsPartition]] = {}
        for at, info in request.request_info.items():
            row = ListOffsetsPartition(
                partition_index=at.partition, timestamp=info.time, max_num_offsets=info.max_num_offsets
            )
            topics.setdefault(at.topic, []).append(row)
        body = schemas.LIST_OFFSETS.request(
            replica_id=request.replica_id,
            topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()],
        )
        version, response = self._request(schemas.LIST_OFFSETS, request, _oldest_list_offsets, lambda _: body)
        found = {}
        for topic in response.topics:
            for each in topic.partitions:
                offsets = each.old_style_offsets if version == 0 else [each.offset] if each.offset >= 0 else []
                at = TopicPartition(topic.name, each.partition_index)
                found[at] = PartitionOffsetsResponse(error_code(each.error_code), tuple(offsets))
        return OffsetResponse(found, request.correlation_id, version)

    def earliest_or_latest_offset(self, at: TopicPartition, time: int, replica_id: int = -1) -> int:
        """The first offset of a partition (``time`` −2) or its end (−1).

        Raises ``BrokerError`` with the broker's code: 3, the partition does not exist; 6, the broker is not its leader.
        """
        if time not in (EARLIEST_TIME, LATEST_TIME):
            raise UsageError(
                f"time {time} is neither −2 (earliest) nor −1 (latest); call get_offsets_before for other times"
            )
        request = OffsetRequest({at: PartitionOffsetRequestInfo(time)}, replica_id=replica_id)
        response = self.get_offsets_before(request)
        error, offsets = response.error(*at), response.offsets(*at)
        if error != NO_ERROR:
            raise BrokerError(error, f"{self.host}:{self.port}: ListOffsets v{response.version} for {at}")
        if not offsets:
            raise RemoteProtocolError(f"{self.host}:{self.port}: the answer to ListOffsets contains no offset for {at}")
        return offsets[0]

    def commit_offsets(self, request: OffsetCommitRequest) -> OffsetCommitResponse:
        """Commit offsets of a group, to the store of the request."""

        def choose(ranges: SupportedVersions) -> int:
            if request.storage == "zookeeper":
                return _version_0(schemas.OFFSET_COMMIT, ranges)
            at_most = None if request.retention_ms == -1 else RETENTION_VERSION_MAX
            return ranges.pick(schemas.OFFSET_COMMIT, at_most, KAFKA_STORE_FROM)

        def body(version: int) -> Any:
            if request.retention_ms != -1 and not 2 <= version <= RETENTION_VERSION_MAX:
                raise UsageError(f"OffsetCommit v{version} has no retention_ms; only versions 2 to 4 have it")
            return schemas.OFFSET_COMMIT.request(
                group_id=request.group_id,
                generation_id_or_member_epoch=request.generation_id,
                member_id=request.member_id,
                retention_time_ms=request.retention_ms,
                topics=offset_commit_topics(request.offsets),
            )

        version, response = self._request(schemas.OFFSET_COMMIT, request, choose, body)
        return OffsetCommitResponse(parse_offset_commit(response), request.correlation_id, version)

    def fetch_offsets(self, request: OffsetFetchRequest) -> OffsetFetchResponse:
        """The committed offsets of a group, from the store of the request."""

        def choose(ranges: SupportedVersions) -> int:
            if request.storage == "zookeeper":
                return _version_0(schemas.OFFSET_FETCH, ranges)
            return ranges.pick(schemas.OFFSET_FETCH, at_least=KAFKA_STORE_FROM)

        version, response = self._request(
            schemas.OFFSET_FETCH,
            request,
            choose,
            lambda version: offset_fetch_request(version, request.group_id, request.partitions),
        )
        error, rows = parse_offset_fetch(response, version, request.group_id)
        offsets = {
            at: OffsetMetadataAndError(row.committed_offset, row.metadata or "", error_code(row.error_code))
            for at, row in rows.items()
        }
        return OffsetFetchResponse(offsets, request.correlation_id, version, error)

    # --- helpers ------------------------------------------------------------------------------------------------

    def _request(
        self,
        api: Api[Q, R],
        request: Any,
        choose: VersionChooser,
        body: Callable[[int], Q],
        *,
        timeout_ms: int | None = None,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> tuple[int, R]:
        """Send a request; return the version that was used, and the response."""
        client_id = None if request.client_id is None else check_client_id(request.client_id)

        def once() -> tuple[int, R]:
            connection = self._connected()
            version = request.version if request.version is not None else choose(self._negotiated(connection))
            return version, connection.request(
                api,
                version,
                body(version),
                timeout_ms or self.so_timeout_ms,
                response_bytes_max=response_bytes_max,
                client_id=client_id,
            )

        with self._request_lock:
            try:
                return self._repeated_once(once, api, request.version)
            except ZkConsumerError:
                raise
            except BaseException:  # of a signal handler: the answer to the request may still come
                self.disconnect()
                raise

    def _repeated_once(self, once: Callable[[], T], api: Api[Any, Any], version: int | None) -> T:
        try:
            return once()
        except (BrokerUnreachable, RemoteProtocolError) as error:
            log.info("simple-consumer-reconnecting broker=%s:%d reason=%r", self.host, self.port, str(error))
            self.disconnect()
        try:
            return once()
        except (BrokerUnreachable, RemoteProtocolError) as error:
            self.disconnect()
            if version is not None and isinstance(error, BrokerConnectionError):
                _add_advice(error, api, version)
            raise

    def _connected(self) -> Connection:
        with self._connection_lock:
            if self._is_closed:
                raise ConnectorClosed(f"the SimpleConsumer of {self.host}:{self.port} is closed; create another one")
            if self._connection is None:
                self._connection = self._new_connection(
                    self.host,
                    self.port,
                    client_id=self.client_id,
                    connect_timeout_ms=self.so_timeout_ms,
                    receive_buffer_bytes=self.buffer_size,
                )
            return self._connection

    def _negotiated(self, connection: Connection) -> SupportedVersions:
        """The API versions, requested once per connection: after a reconnect the broker may have another release."""
        if self._api_versions is None or self._api_versions[0] is not connection:
            self._api_versions = connection, negotiate(connection, self.so_timeout_ms)
        return self._api_versions[1]


def _add_advice(error: BrokerConnectionError, api: Api[Any, Any], version: int) -> None:
    if error.reason in (ConnectionFailureReason.CLOSED, ConnectionFailureReason.TIMED_OUT):
        error.add_note(
            f"The request has version {version}: a broker that does not support {api.name} v{version} closes the "
            "connection or (0.9) does not answer, and so does a port for TLS or SASL.  Without a version, the newest "
            "version that both sides support is used."
        )


def _partition_metadata(row: MetadataPartition, brokers: Mapping[int, BrokerAddress]) -> PartitionMetadata:
    def addresses(ids: list[int]) -> tuple[BrokerAddress, ...]:
        return tuple(brokers.get(broker_id, BrokerAddress(broker_id, "", -1)) for broker_id in ids)

    return PartitionMetadata(
        row.partition_index,
        brokers.get(row.leader_id),
        addresses(row.replica_nodes),
        addresses(row.isr_nodes),
        error_code(row.error_code),
    )


def _by_topic(request: FetchRequest) -> list[FetchTopic]:
    """Group adjacent partitions of one topic, in the order in which they were added."""
    topics: list[FetchTopic] = []
    for at, info in request.request_info:
        row = FetchPartition(partition=at.partition, fetch_offset=info.offset, partition_max_bytes=info.fetch_size)
        if not topics or topics[-1].topic != at.topic:
            topics.append(FetchTopic(topic=at.topic, partitions=[]))
        topics[-1].partitions.append(row)
    return topics


def _answer_bytes_max(asked: Mapping[TopicPartition, PartitionFetchInfo]) -> int:
    """The requested bytes, plus one message larger than that."""
    return min(RESPONSE_BYTES_UNLIMITED, sum(info.fetch_size for info in asked.values()) + RESPONSE_BYTES_MAX)


def _oldest_list_offsets(ranges: SupportedVersions) -> int:
    """Version 0, which has the meaning of the old names; if the broker lacks it (4.0), the newest common version."""
    return 0 if ranges.supports(schemas.LIST_OFFSETS, 0) else ranges.pick(schemas.LIST_OFFSETS)


def _version_0(api: Api[Any, Any], ranges: SupportedVersions) -> int:
    if not ranges.supports(api, 0):
        raise KafkaException(
            f"this broker has no {api.name} v0, so it stores no offsets in ZooKeeper: write the znodes with "
            'zkconsumer.zk, or set storage="kafka"'
        )
    return 0
