"""The requests and responses of ``SimpleConsumer``, as values.

A request with ``version`` None uses the newest version that both sides support; one with a number exactly that.
``client_id`` None means the consumer's own; ``correlation_id`` is the program's: the response returns it, and it is not
sent to the broker (the connection numbers its requests).

The names are those of ``kafka.api`` and ``kafka.common`` as of 1.1, with this package's spelling.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias, TypeVar

from zkconsumer.errors import UsageError
from zkconsumer.kafka.error_codes import NONE, ErrorCode
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.primitives import RecordSet
from zkconsumer.wire.records import Record, iter_records, scan_record_set
from zkconsumer.wire.schemas.fetch import RESPONSE_BYTES_UNLIMITED

T = TypeVar("T")

ORDINARY_CONSUMER_ID = -1
"""``replica_id`` of a consumer; −2 is Kafka's debugging consumer, others are brokers."""

OffsetStorage: TypeAlias = Literal["zookeeper", "kafka"]
"""Where a group's offsets are stored: version 0 of the requests means ZooKeeper, all later ones mean Kafka."""


# --- Metadata ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class TopicMetadataRequest:
    """Request the metadata of these topics; without topics, of every topic, as in the Scala consumer.

    ``allow_auto_topic_creation``: a broker may create missing topics, if it is configured so.  Only brokers from 0.11
    on respect False.
    """

    topics: Sequence[str] = ()
    version: int | None = None
    correlation_id: int = 0
    client_id: str | None = None
    allow_auto_topic_creation: bool = False


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """``leader`` None: no leader.  Error 9 (a replica is down) is possible together with a leader that works.

    A replica that is down has an empty host and port −1.
    """

    partition_id: int
    leader: BrokerAddress | None
    replicas: tuple[BrokerAddress, ...]
    isr: tuple[BrokerAddress, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic; ``error`` 3: no topic of this name exists."""

    topic: str
    partitions_metadata: tuple[PartitionMetadata, ...]
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class TopicMetadataResponse:
    """The live brokers, and one entry for each topic."""

    brokers: tuple[BrokerAddress, ...]
    topics_metadata: tuple[TopicMetadata, ...]
    correlation_id: int


# --- the coordinator --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class GroupCoordinatorRequest:
    """Request the broker that stores this group's offsets in Kafka (0.8.2: ``ConsumerMetadataRequest``)."""

    group: str
    version: int | None = None
    correlation_id: int = 0
    client_id: str | None = None


@dataclass(frozen=True, slots=True)
class GroupCoordinatorResponse:
    """``coordinator`` None: none is available; ``error``: why (15 for the first request in a new cluster)."""

    coordinator: BrokerAddress | None
    error: ErrorCode
    correlation_id: int


# --- Fetch ------------------------------------------------------------------------------------------------------


class PartitionFetchInfo(NamedTuple):
    """The offset to read from, and the maximum number of bytes."""

    offset: int
    fetch_size: int


@dataclass(frozen=True, slots=True)
class FetchRequest:
    """Read these partitions, in this order (from version 3 on the first ones have priority when the answer is full).

    ``max_wait_ms``: how long the broker waits for ``min_bytes``.  ``max_bytes``: of the whole answer, from version 3
    on.  ``FetchRequestBuilder`` creates it.
    """

    request_info: Sequence[tuple[TopicPartition, PartitionFetchInfo]]
    max_wait_ms: int = 0
    min_bytes: int = 0
    max_bytes: int = RESPONSE_BYTES_UNLIMITED
    version: int | None = None
    correlation_id: int = 0
    client_id: str | None = None
    replica_id: int = ORDINARY_CONSUMER_ID


class FetchRequestBuilder:
    """Builds objects of ``FetchRequest`` one after the other; correlation ids start at 0, as in the Scala consumer.

    ``build`` removes the partitions; all other values remain for the next request.
    """

    def __init__(self) -> None:
        self._correlation_id = 0
        self._client_id: str | None = None
        self._max_wait_ms = 0
        self._min_bytes = 0
        self._max_bytes = RESPONSE_BYTES_UNLIMITED
        self._version: int | None = None
        self._request_info: list[tuple[TopicPartition, PartitionFetchInfo]] = []

    def add_fetch(self, topic: str, partition: int, offset: int, fetch_size: int) -> FetchRequestBuilder:
        """Read one partition from ``offset`` on, ``fetch_size`` bytes at most."""
        self._request_info.append((TopicPartition(topic, partition), PartitionFetchInfo(offset, fetch_size)))
        return self

    def client_id(self, client_id: str) -> FetchRequestBuilder:
        """The client id of the requests (quotas, logs); without it the consumer's own client id."""
        self._client_id = client_id
        return self

    def max_wait(self, max_wait_ms: int) -> FetchRequestBuilder:
        """How long the broker may wait for ``min_bytes``; default 0, as in the Scala consumer."""
        self._max_wait_ms = max_wait_ms
        return self

    def min_bytes(self, min_bytes: int) -> FetchRequestBuilder:
        """From how many bytes on the broker answers early; default 0, as in the Scala consumer."""
        self._min_bytes = min_bytes
        return self

    def max_bytes(self, max_bytes: int) -> FetchRequestBuilder:
        """The maximum size of the whole answer (0.10.1); default no limit, as in the Scala consumer."""
        self._max_bytes = max_bytes
        return self

    def request_version(self, version: int | None) -> FetchRequestBuilder:
        """Exactly this version (0.9); None: the newest that both sides support."""
        self._version = version
        return self

    def build(self) -> FetchRequest:
        """The request; the builder has no partitions afterwards."""
        request = FetchRequest(
            tuple(self._request_info),
            self._max_wait_ms,
            self._min_bytes,
            self._max_bytes,
            self._version,
            self._correlation_id,
            self._client_id,
        )
        self._correlation_id += 1
        self._request_info.clear()
        return request


class MessageSet:
    """The records of one partition in an answer; each iteration decodes them again.

    An iterator raises ``InvalidMessageException`` or ``UnsupportedCodec`` when it reaches a record that cannot be
    decoded, after the records before it; ``valid_bytes`` and ``next_offset`` raise them for impossible sizes and
    offsets.  If ``size_in_bytes`` is above 0 and ``valid_bytes`` is 0, the first message is larger than the fetch size
    (request or broker before version 3).
    """

    def __init__(self, records: RecordSet, start_offset: int = 0) -> None:
        self._records = records
        self._start_offset = start_offset

    def __iter__(self) -> Iterator[Record]:
        return iter_records(self._records, self._start_offset)

    @property
    def size_in_bytes(self) -> int:
        """The size of all received bytes, also of an incomplete last message."""
        return len(self._records)

    @property
    def valid_bytes(self) -> int:
        """The size of the complete messages (or batches)."""
        return scan_record_set(self._records).complete_bytes

    @property
    def next_offset(self) -> int:
        """The next offset to fetch; −1 without a complete message.  Not always last offset + 1: logs have gaps."""
        return scan_record_set(self._records).next_offset

    def __repr__(self) -> str:
        return f"MessageSet({self.size_in_bytes} bytes)"


@dataclass(frozen=True, slots=True)
class FetchResponsePartitionData:
    """The result for one partition; ``high_watermark``: the end of the log for readers, −1 with an error."""

    error: ErrorCode
    high_watermark: int
    records: RecordSet
    fetch_offset: int


@dataclass(frozen=True, slots=True)
class FetchResponse:
    """The response to a fetch; ``version`` is the one that was used.

    A partition that was not fetched raises ``UsageError`` (in the Scala consumer: ``IllegalArgumentException``).
    """

    data: Mapping[TopicPartition, FetchResponsePartitionData]
    correlation_id: int
    version: int
    throttle_time_ms: int = 0

    def messages(self, topic: str, partition: int) -> MessageSet:
        """The records from the requested offset on."""
        row = self._row(topic, partition)
        return MessageSet(row.records, row.fetch_offset)

    def message_set(self, topic: str, partition: int) -> MessageSet:
        """All received records, as in the Scala consumer: a compressed set may start before the requested offset."""
        return MessageSet(self._row(topic, partition).records)

    def high_watermark(self, topic: str, partition: int) -> int:
        """The offset of the next record, as visible to readers; −1 with an error."""
        return self._row(topic, partition).high_watermark

    def error(self, topic: str, partition: int) -> ErrorCode:
        """The broker's error for this partition; ``NONE`` without one."""
        return self._row(topic, partition).error

    def error_code(self, topic: str, partition: int) -> int:
        """``error`` as Kafka's number."""
        return self.error(topic, partition).code

    @property
    def has_error(self) -> bool:
        """Whether any partition has an error."""
        return any(row.error != NONE for row in self.data.values())

    def _row(self, topic: str, partition: int) -> FetchResponsePartitionData:
        return _row(self.data, TopicPartition(topic, partition), "fetch response")


# --- ListOffsets ------------------------------------------------------------------------------------------------


class PartitionOffsetRequestInfo(NamedTuple):
    """``time``: milliseconds since 1970, −1 (the end) or −2 (the start); ``max_num_offsets``: the maximum number."""

    time: int
    max_num_offsets: int = 1


@dataclass(frozen=True, slots=True)
class OffsetRequest:
    """Request the offsets for a time.  Their meaning depends on the version.

    Version 0: the starts of the segments that were last written at or before the time, newest first, and the end of
    the log before them for −1.  From version 1 on (0.10.1): one offset, of the first record at or after the time.
    With ``version`` None it is 0 if the broker supports it, as all brokers before 4.0 do.
    """

    request_info: Mapping[TopicPartition, PartitionOffsetRequestInfo]
    version: int | None = None
    correlation_id: int = 0
    client_id: str | None = None
    replica_id: int = ORDINARY_CONSUMER_ID


class PartitionOffsetsResponse(NamedTuple):
    """Offsets, newest first; empty if the log has none for the time."""

    error: ErrorCode
    offsets: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class OffsetResponse:
    """The offsets; their meaning depends on ``version``, the version that was used."""

    partition_error_and_offsets: Mapping[TopicPartition, PartitionOffsetsResponse]
    correlation_id: int
    version: int

    def offsets(self, topic: str, partition: int) -> tuple[int, ...]:
        """The offsets, newest first."""
        return self._row(topic, partition).offsets

    def error(self, topic: str, partition: int) -> ErrorCode:
        """The broker's error for this partition; ``NONE`` without one."""
        return self._row(topic, partition).error

    def error_code(self, topic: str, partition: int) -> int:
        """``error`` as Kafka's number."""
        return self.error(topic, partition).code

    @property
    def has_error(self) -> bool:
        """Whether any partition has an error."""
        return any(row.error != NONE for row in self.partition_error_and_offsets.values())

    def _row(self, topic: str, partition: int) -> PartitionOffsetsResponse:
        return _row(self.partition_error_and_offsets, TopicPartition(topic, partition), "offset response")


# --- OffsetCommit and OffsetFetch -------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class OffsetCommitRequest:
    """Commit offsets of a group.  Set the store: ``storage``, or an exact ``version``, which implies it.

    ``zookeeper``: any broker writes the znodes (only brokers with ZooKeeper); the metadata are lost.
    ``kafka``: only the group coordinator accepts it (``GroupCoordinatorRequest``), other brokers answer error 16.

    ``generation_id`` and ``member_id`` are for members of a coordinator group.  ``retention_ms``: how long the broker
    stores the offsets (versions 2 to 4); −1: its own setting.
    """

    group_id: str
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    storage: OffsetStorage | None = None
    version: int | None = None
    correlation_id: int = 0
    client_id: str | None = None
    generation_id: int = -1
    member_id: str = ""
    retention_ms: int = -1

    def __post_init__(self) -> None:
        _check_storage("OffsetCommitRequest", self.storage, self.version)


@dataclass(frozen=True, slots=True)
class OffsetCommitResponse:
    """The result for each partition."""

    commit_status: Mapping[TopicPartition, ErrorCode]
    correlation_id: int
    version: int

    @property
    def has_error(self) -> bool:
        """Whether an offset was not stored."""
        return any(error != NONE for error in self.commit_status.values())

    def error(self, at: TopicPartition) -> ErrorCode:
        """The error of this partition's offset; ``NONE``: it is stored."""
        return _row(self.commit_status, at, "offset commit response")

    def error_code(self, at: TopicPartition) -> int:
        """``error`` as Kafka's number."""
        return self.error(at).code


@dataclass(frozen=True, slots=True)
class OffsetFetchRequest:
    """Fetch committed offsets of a group.  Set the store as for ``OffsetCommitRequest``."""

    group_id: str
    partitions: Sequence[TopicPartition]
    storage: OffsetStorage | None = None
    version: int | None = None
    correlation_id: int = 0
    client_id: str | None = None

    def __post_init__(self) -> None:
        _check_storage("OffsetFetchRequest", self.storage, self.version)


class OffsetMetadataAndError(NamedTuple):
    """``offset`` −1: nothing is stored; with error 3 in version 0 and at brokers of 0.8.2, else without error."""

    offset: int
    metadata: str
    error: ErrorCode


@dataclass(frozen=True, slots=True)
class OffsetFetchResponse:
    """The committed offsets.  ``error``: of the whole group, from version 2 on; with one, ``offsets`` is empty."""

    offsets: Mapping[TopicPartition, OffsetMetadataAndError]
    correlation_id: int
    version: int
    error: ErrorCode = field(default=NONE)

    def offset(self, at: TopicPartition) -> OffsetMetadataAndError:
        """The committed offset of this partition; ``UsageError`` if it is not in the response."""
        return _row(self.offsets, at, f"offset fetch response ({self.error})")


def _check_storage(name: str, storage: OffsetStorage | None, version: int | None) -> None:
    if storage is None and version is None:
        raise UsageError(
            f'{name}: set where the offsets are stored: storage="zookeeper", storage="kafka", or a version'
        )
    if storage not in (None, "zookeeper", "kafka"):
        raise UsageError(f'{name}: storage must be "zookeeper" or "kafka", not {storage!r}')
    if storage is not None and version is not None and (version == 0) != (storage == "zookeeper"):
        raise UsageError(f"{name}: version {version} does not mean {storage}; 0 means zookeeper, other versions kafka")


def _row(rows: Mapping[TopicPartition, T], at: TopicPartition, name: str) -> T:
    if at not in rows:
        raise UsageError(f"no partition {at} in this {name}; it contains {', '.join(map(str, rows)) or 'none'}")
    return rows[at]
