"""The leaders of partitions, and the start and end of their logs: requests over a connection.

Each function sends one request in the best version that both sides support, and returns one result that does not
depend on the version.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from zkconsumer.errors import RemoteProtocolError
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.kafka.error_codes import (
    INVALID_TOPIC_EXCEPTION,
    LEADER_NOT_AVAILABLE,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode,
    error_code,
)
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, BrokerAddress, TopicPartition
from zkconsumer.wire.isolation_level import READ_UNCOMMITTED
from zkconsumer.wire.schemas import LIST_OFFSETS, METADATA
from zkconsumer.wire.schemas.list_offsets import (
    ISOLATION_LEVEL_FROM,
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from zkconsumer.wire.schemas.metadata import (
    MetadataPartition,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)

NO_AUTO_CREATION_FROM = 4
"""The Metadata version from which a request can forbid the broker to create the named topics (0.11)."""

ALL_TOPICS_IS_NULL_FROM = 1
"""The Metadata version from which an empty list of topics means none, and null means all."""

CLUSTER_ID_FROM = 2
"""The Metadata version from which a broker returns its cluster id (0.10.1)."""

NO_OFFSET = -1

FINAL_TOPIC_ERRORS = frozenset({TOPIC_AUTHORIZATION_FAILED, INVALID_TOPIC_EXCEPTION})
"""The errors for a topic that this user may not see, and for an invalid topic name."""

LeaderOrError: TypeAlias = BrokerAddress | ErrorCode
"""The broker that leads a partition, or the error."""


@dataclass(frozen=True, slots=True)
class LeaderMetadata:
    """The result of a Metadata request.

    ``brokers``: id → address, of the live ones.  ``partitions``: the leader of each partition of the existing topics.
    ``topics``: the errors of the others.  ``refused``: those of them that this user may not see, or whose names are
    invalid; a repeated request is useless.
    """

    brokers: Mapping[int, BrokerAddress]
    partitions: Mapping[TopicPartition, LeaderOrError]
    topic_errors: Mapping[str, ErrorCode]
    rejected_topics: Mapping[str, ErrorCode] = field(default_factory=dict)

    @property
    def with_leader(self) -> dict[TopicPartition, BrokerAddress]:
        """The partitions that have a leader."""
        return {tp: leader for tp, leader in self.partitions.items() if isinstance(leader, BrokerAddress)}


def fetch_leaders(
    connection: Connection, ranges: SupportedVersions, topics: Collection[str] | None, timeout_ms: int
) -> LeaderMetadata:
    """The leaders of the partitions of ``topics`` (None: of all topics).

    A partition has a leader if the response names a live one, whatever error it also contains (error 9 for a replica
    that is down), as in the Scala consumer.  The request creates no topic, except at a broker before 0.11 with
    automatic topic creation: name only existing topics.  Raises what ``Connection.request`` raises.
    """
    version = ranges.pick(METADATA)
    asked = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    if version < ALL_TOPICS_IS_NULL_FROM:
        asked = asked or []
    body = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    response = connection.request(METADATA, version, body, timeout_ms)
    return _leader_metadata(response, None if topics is None else set(topics), version)


def _leader_metadata(response: MetadataResponse, wanted: set[str] | None, version: int) -> LeaderMetadata:
    brokers = {b.node_id: BrokerAddress(b.node_id, b.host, b.port) for b in response.brokers}
    partitions: dict[TopicPartition, LeaderOrError] = {}
    topics: dict[str, ErrorCode] = {}
    for topic in response.topics:
        if topic.name is None or (wanted is not None and topic.name not in wanted):
            continue
        if topic.error_code != NONE.code:
            topics[topic.name] = error_code(topic.error_code)
        for partition in topic.partitions:
            partitions[TopicPartition(topic.name, partition.partition_index)] = _leader_or_error(partition, brokers)
    # A broker before 0.11 with topic creation also answers 29 for a topic that does not exist and may not be created.
    final = (
        FINAL_TOPIC_ERRORS if version >= NO_AUTO_CREATION_FROM else FINAL_TOPIC_ERRORS - {TOPIC_AUTHORIZATION_FAILED}
    )
    return LeaderMetadata(
        brokers, partitions, topics, {name: error for name, error in topics.items() if error in final}
    )


def _leader_or_error(partition: MetadataPartition, brokers: Mapping[int, BrokerAddress]) -> LeaderOrError:
    leader = brokers.get(partition.leader_id)
    if leader is not None:
        return leader
    if partition.error_code != NONE.code:
        return error_code(partition.error_code)
    return LEADER_NOT_AVAILABLE


def fetch_cluster_id(connection: Connection, ranges: SupportedVersions, timeout_ms: int) -> str | None:
    """The id of the broker's cluster; None: it returns none, like every broker before 0.10.1 (KIP-78).

    The request names no topic.  Raises what ``Connection.request`` raises.
    """
    version = ranges.pick(METADATA)
    if version < CLUSTER_ID_FROM:
        return None
    body = MetadataRequest(topics=[], allow_auto_topic_creation=False)
    return connection.request(METADATA, version, body, timeout_ms).cluster_id


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as Kafka describes it.

    ``partitions``: their numbers, ascending.  ``topic_id``: changes when the topic is deleted and created again (from
    2.8 on; before, always the same).  ``error``: None if there is none; ``is_unknown``: the topic does not exist.
    """

    partitions: tuple[int, ...]
    topic_id: bytes
    error: ErrorCode | None = None
    racks: Mapping[int, frozenset[str]] = field(default_factory=dict)
    """Partition -> the racks of its replicas, live or not, if brokers have racks (``broker.rack``, 0.10)."""

    @property
    def is_unknown(self) -> bool:
        """Whether the broker has no topic of this name."""
        return self.error == UNKNOWN_TOPIC_OR_PARTITION

    @property
    def final_error(self) -> ErrorCode | None:
        """The error after which a repeated request is useless, if there is one (see ``FINAL_TOPIC_ERRORS``)."""
        return self.error if self.error in FINAL_TOPIC_ERRORS else None


def fetch_topics(
    connection: Connection, ranges: SupportedVersions, topics: Collection[str] | None, timeout_ms: int
) -> tuple[Mapping[str, TopicDescription], Sequence[BrokerAddress]]:
    """The partitions of ``topics`` (None: of all topics), and the live brokers.

    The request creates no topic: brokers before 0.11 cannot be forbidden to, and are asked for all topics instead.
    Raises what ``Connection.request`` raises, and ``RemoteProtocolError`` for a response without brokers, which comes
    from a broker that has just started and has no metadata yet.
    """
    version = ranges.pick(METADATA)
    if version < NO_AUTO_CREATION_FROM:
        topics = None
    asked = None if topics is None else [MetadataRequestTopic(name=topic) for topic in topics]
    if version < ALL_TOPICS_IS_NULL_FROM:
        asked = []
    body = MetadataRequest(topics=asked, allow_auto_topic_creation=False)
    response = connection.request(METADATA, version, body, timeout_ms)
    if not response.brokers:
        raise RemoteProtocolError(f"{connection.host}:{connection.port}: Metadata names no broker; it is starting up")
    rack_of = {broker.node_id: broker.rack for broker in response.brokers if broker.rack}
    answered_topics = {
        topic.name: TopicDescription(
            tuple(sorted(partition.partition_index for partition in topic.partitions)),
            topic.topic_id,
            error_code(topic.error_code) if topic.error_code != NONE.code else None,
            _racks(topic.partitions, rack_of),
        )
        for topic in response.topics
        if topic.name is not None
    }
    return answered_topics, [BrokerAddress(b.node_id, b.host, b.port) for b in response.brokers]


def _racks(partitions: Sequence[MetadataPartition], rack_of: Mapping[int, str]) -> dict[int, frozenset[str]]:
    if not rack_of:
        return {}
    return {
        partition.partition_index: frozenset(rack_of[node] for node in partition.replica_nodes if node in rack_of)
        for partition in partitions
    }


def list_offsets(
    connection: Connection,
    ranges: SupportedVersions,
    times: Mapping[TopicPartition, int],
    timeout_ms: int,
    isolation_level: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, int | ErrorCode]:
    """The offsets of partitions of one leader at times: ``EARLIEST_TIME``, ``LATEST_TIME`` or milliseconds since 1970.

    For milliseconds: the first offset at or after that time (from ListOffsets v1, 0.10.1), or the newest start of a
    segment last written at or before it (v0); −1 if there is none.  Each partition has its own error (6: the broker
    does not lead it any more).  ``isolation_level`` ``READ_COMMITTED``: the latest offset is the last stable offset
    (brokers from 0.11 on; those before have no transactions).  Raises what ``Connection.request`` raises.
    """
    version = ranges.pick(LIST_OFFSETS)
    body = list_offsets_request(times)
    if version >= ISOLATION_LEVEL_FROM:
        body.isolation_level = isolation_level
    response = connection.request(LIST_OFFSETS, version, body, timeout_ms)
    return parse_list_offsets(response, version, times)


def list_offsets_request(times: Mapping[TopicPartition, int]) -> ListOffsetsRequest:
    """The request of ``list_offsets``, for callers that send several before the first response."""
    topics: dict[str, list[ListOffsetsPartition]] = {}
    for tp, time in times.items():
        partition = ListOffsetsPartition(partition_index=tp.partition, timestamp=time)
        topics.setdefault(tp.topic, []).append(partition)
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=name, partitions=rows) for name, rows in topics.items()])


def parse_list_offsets(
    response: ListOffsetsResponse, version: int, times: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int | ErrorCode]:
    """The result of ``list_offsets`` from a response in this version.

    Raises ``RemoteProtocolError`` if it is invalid.
    """
    answered = {
        TopicPartition(topic.name, partition.partition_index): partition
        for topic in response.topics
        for partition in topic.partitions
    }
    return {tp: _offset(tp, time, version, answered.get(tp)) for tp, time in times.items()}


def _offset(
    tp: TopicPartition, time: int, version: int, answered: ListOffsetsPartitionResponse | None
) -> int | ErrorCode:
    if answered is None:
        raise RemoteProtocolError(f"ListOffsets v{version} was not answered for {tp}")
    if answered.error_code != NONE.code:
        return error_code(answered.error_code)
    if version > 0:
        offset = answered.offset
    else:
        offset = answered.old_style_offsets[0] if answered.old_style_offsets else NO_OFFSET
    if offset < 0 and (offset != NO_OFFSET or time in (EARLIEST_TIME, LATEST_TIME)):
        raise RemoteProtocolError(f"ListOffsets v{version} answered offset {offset} for {tp} at time {time}")
    return offset
