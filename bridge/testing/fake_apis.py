"""The responses of a fake broker, API by API.  Every function is called with the cluster's lock held."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import TypeAlias

from bridge.testing.fake_faults import (
    CorruptRecords,
    NullRecords,
    PartitionError,
    PartitionFault,
    SlowTieredStorage,
)
from bridge.testing.fake_log import FakeLog, FakeReadRules, ZstdNotConvertibleError
from bridge.testing.fake_state import ClusterState, FakePartition, topic_id
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka import error_codes as codes
from zkconsumer.kafka.error_codes import ErrorCode
from zkconsumer.kafka.fetch_session_cache import FetchContext
from zkconsumer.kafka.release_features import MAX_TIMESTAMP, BrokerRelease
from zkconsumer.types import EARLIEST_TIME, LATEST_TIME, TopicPartition
from zkconsumer.wire.schemas.fetch import (
    FetchPartition,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    FetchTopicResponse,
)
from zkconsumer.wire.schemas.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from zkconsumer.wire.schemas.metadata import (
    MetadataBroker,
    MetadataPartition,
    MetadataRequest,
    MetadataResponse,
    MetadataTopic,
)
from zkconsumer.wire.schemas.produce import (
    ProducePartition,
    ProducePartitionResponse,
    ProduceRequest,
    ProduceResponse,
    ProduceTopicResponse,
)

Faults: TypeAlias = Mapping[TopicPartition, PartitionFault]

ALL_TOPICS_IS_NULL_FROM = 1
AT_LEAST_ONE_FROM = 3
READ_COMMITTED = 1
UNKNOWN_EPOCH = -1
_ACKS = (-1, 0, 1)


# --- Metadata ----------------------------------------------------------------------------------------------------


def metadata(
    state: ClusterState, version: int, body: MetadataRequest, faults: Faults, errors: Mapping[str, ErrorCode]
) -> MetadataResponse:
    """The live brokers and the requested topics; ``errors``: by topic, the error that replaces the topic."""
    brokers = [
        MetadataBroker(node_id=a.broker_id, host=a.host, port=a.port)
        for a in map(state.addresses.__getitem__, sorted(state.running_brokers))
    ]
    wants_all = not body.topics if version < ALL_TOPICS_IS_NULL_FROM else body.topics is None
    if wants_all:
        names = sorted(state.topics.keys() - errors.keys())
    else:
        names = [topic.name or "" for topic in body.topics or []]
    topics = [
        MetadataTopic(error_code=errors[name].code, name=name, partitions=[]) if name in errors
        else _metadata_topic(state, name, body.allow_auto_topic_creation, faults)
        for name in names
    ]  # fmt: skip
    return MetadataResponse(
        brokers=brokers,
        cluster_id=state.cluster_id,
        controller_id=min(state.running_brokers, default=-1),
        topics=topics,
    )


def _metadata_topic(state: ClusterState, name: str, may_create: bool, faults: Faults) -> MetadataTopic:
    if name not in state.topics:
        error = codes.UNKNOWN_TOPIC_OR_PARTITION
        if may_create and state.auto_create_partitions:
            # As in real brokers: the topic is created, and the client must request Metadata again for its leaders.
            state.add_partitions(name, state.auto_create_partitions)
            error = codes.LEADER_NOT_AVAILABLE
        return MetadataTopic(error_code=error.code, name=name, partitions=[])
    rows = [
        _metadata_partition(state, index, partition, faults.get(TopicPartition(name, index)))
        for index, partition in enumerate(state.topics[name])
    ]
    return MetadataTopic(name=name, topic_id=topic_id(name), partitions=rows)


def _metadata_partition(
    state: ClusterState, index: int, partition: FakePartition, fault: PartitionFault | None
) -> MetadataPartition:
    leader = state.leader_of(partition)
    error = codes.LEADER_NOT_AVAILABLE if leader is None else codes.NONE
    alive = [replica for replica in partition.replicas if replica in state.running_brokers]
    return MetadataPartition(
        error_code=fault.code if isinstance(fault, PartitionError) else error.code,
        partition_index=index,
        leader_id=-1 if leader is None else leader,
        leader_epoch=partition.log.leader_epoch,
        replica_nodes=list(partition.replicas),
        isr_nodes=alive,
        offline_replicas=[replica for replica in partition.replicas if replica not in state.running_brokers],
    )


# --- what Fetch, ListOffsets and Produce have in common ----------------------------------------------------------


def _led(state: ClusterState, broker_id: int, tp: TopicPartition, epoch: int) -> FakePartition | ErrorCode:
    """The partition, if this broker leads it in the epoch of the client's request."""
    partition = state.partition(tp)
    if partition is None:
        return codes.UNKNOWN_TOPIC_OR_PARTITION
    if partition.leader != broker_id:
        return codes.NOT_LEADER_OR_FOLLOWER
    if epoch != UNKNOWN_EPOCH and epoch < partition.log.leader_epoch:
        return codes.FENCED_LEADER_EPOCH
    if epoch != UNKNOWN_EPOCH and epoch > partition.log.leader_epoch:
        return codes.UNKNOWN_LEADER_EPOCH
    return partition


# --- ListOffsets -------------------------------------------------------------------------------------------------


def list_offsets(
    state: ClusterState, broker_id: int, release: BrokerRelease, version: int, body: ListOffsetsRequest, faults: Faults
) -> ListOffsetsResponse:
    """The start and the end of partitions, or the offset at a time."""
    topics = []
    for topic in body.topics:
        rows = []
        for asked in topic.partitions:
            tp = TopicPartition(topic.name, asked.partition_index)
            partition = _led(state, broker_id, tp, asked.current_leader_epoch)
            fault = faults.get(tp)
            if isinstance(fault, PartitionError):
                partition = codes.error_code(fault.code)
            asks_newest = asked.timestamp == MAX_TIMESTAMP and release.is_special_timestamp(asked.timestamp)
            if asks_newest and release.rejects_timestamp(asked.timestamp, version):
                partition = codes.UNSUPPORTED_VERSION
            if isinstance(partition, ErrorCode):
                rows.append(ListOffsetsPartitionResponse(partition_index=tp.partition, error_code=partition.code))
            elif version == 0:
                rows.append(_segment_starts(partition.log, asked, state.clock.wall_ms()))
            else:
                rows.append(_offset_at(partition.log, asked, asks_newest))
        topics.append(ListOffsetsTopicResponse(name=topic.name, partitions=rows))
    return ListOffsetsResponse(topics=topics)


def _offset_at(log: FakeLog, asked: ListOffsetsPartition, asks_newest: bool) -> ListOffsetsPartitionResponse:
    answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index)
    if asked.timestamp == LATEST_TIME:
        answer.offset = log.end
    elif asked.timestamp == EARLIEST_TIME:
        answer.offset = log.start
    elif log.magic == 0:
        answer.error_code = codes.UNSUPPORTED_FOR_MESSAGE_FORMAT.code
    else:
        record = log.newest() if asks_newest else log.first_at_or_after(asked.timestamp)
        if record is not None:
            answer.timestamp, answer.offset = record.timestamp, record.offset
    answer.leader_epoch = UNKNOWN_EPOCH if answer.offset < 0 else log.leader_epoch
    return answer


def _segment_starts(log: FakeLog, asked: ListOffsetsPartition, wall_ms: int) -> ListOffsetsPartitionResponse:
    """Version 0, newest first: the end and the start.  The whole log is one segment, always just written."""
    if asked.timestamp == EARLIEST_TIME:
        offsets = [log.start]
    elif asked.timestamp == LATEST_TIME or asked.timestamp >= wall_ms:
        offsets = list(dict.fromkeys([log.end, log.start]))
    else:
        offsets = []
    return ListOffsetsPartitionResponse(
        partition_index=asked.partition_index, old_style_offsets=offsets[: asked.max_num_offsets]
    )


# --- Produce -----------------------------------------------------------------------------------------------------


def produce(state: ClusterState, broker_id: int, body: ProduceRequest, faults: Faults) -> ProduceResponse:
    """Append, and wake waiting readers."""
    topics = []
    for topic in body.topic_data:
        rows = []
        for sent in topic.partition_data:
            tp = TopicPartition(topic.name, sent.index)
            rows.append(_produce_partition(state, broker_id, body.acks, tp, sent, faults.get(tp)))
        topics.append(ProduceTopicResponse(name=topic.name, partition_responses=rows))
    state.changed.notify_all()
    return ProduceResponse(responses=topics)


def _produce_partition(
    state: ClusterState,
    broker_id: int,
    acks: int,
    tp: TopicPartition,
    sent: ProducePartition,
    fault: PartitionFault | None,
) -> ProducePartitionResponse:
    partition = _led(state, broker_id, tp, UNKNOWN_EPOCH)
    if isinstance(fault, PartitionError):
        partition = codes.error_code(fault.code)
    if acks not in _ACKS:
        partition = codes.INVALID_REQUIRED_ACKS
    if not isinstance(partition, ErrorCode):
        try:
            base_offset = partition.log.append_produced(sent.records or b"")
            return ProducePartitionResponse(
                index=tp.partition, base_offset=base_offset, log_start_offset=partition.log.start
            )
        except (InvalidMessageException, UnsupportedCodec):
            partition = codes.CORRUPT_MESSAGE
    return ProducePartitionResponse(index=tp.partition, error_code=partition.code)


# --- Fetch -------------------------------------------------------------------------------------------------------


def fetch(
    state: ClusterState,
    broker_id: int,
    release: BrokerRelease,
    version: int,
    body: FetchRequest,
    context: FetchContext | ErrorCode,
    faults: Faults,
    *,
    is_final: bool,
) -> FetchResponse | None:
    """The available records; None: too few yet, and the client can wait (``is_final`` False)."""
    if isinstance(context, ErrorCode):
        return FetchResponse(error_code=context.code, responses=[])
    stored_bytes = 0
    has_error = False
    topics: dict[str, list[FetchPartitionResponse]] = {}
    for name, asked in _asked(context.topics):
        tp = TopicPartition(name, asked.partition)
        room = body.max_bytes - stored_bytes if version >= AT_LEAST_ONE_FROM else asked.partition_max_bytes
        how = FakeReadRules(
            magic_max=newest_magic(version),
            at_least_one=version >= AT_LEAST_ONE_FROM and stored_bytes == 0,
            empty_if_cut=version >= AT_LEAST_ONE_FROM,
            converts_lazily=release.converts_lazily,
            hides_unconvertible=release.omits_unconvertible_entry,
        )
        bytes_max = max(0, min(room, asked.partition_max_bytes))
        row, took = _fetch_partition(state, broker_id, tp, asked, bytes_max, how, faults.get(tp))
        if row.error_code == codes.NONE.code:
            is_committed_only = body.isolation_level == READ_COMMITTED
            if is_committed_only or release.returns_last_stable_offset:
                row.last_stable_offset = row.high_watermark
            row.aborted_transactions = [] if is_committed_only else None
        stored_bytes += took
        has_error |= row.error_code != codes.NONE.code
        topics.setdefault(name, []).append(row)
    if stored_bytes < body.min_bytes and topics and not has_error and not is_final:
        return None
    return context.build_response([FetchTopicResponse(topic=name, partitions=rows) for name, rows in topics.items()])


def _asked(topics: Iterable[FetchTopic]) -> Iterator[tuple[str, FetchPartition]]:
    for topic in topics:
        for asked in topic.partitions:
            yield topic.topic, asked


def _fetch_partition(
    state: ClusterState,
    broker_id: int,
    tp: TopicPartition,
    asked: FetchPartition,
    bytes_max: int,
    how: FakeReadRules,
    fault: PartitionFault | None,
) -> tuple[FetchPartitionResponse, int]:
    """The response for one partition, and how many bytes of its log it has."""
    partition = _led(state, broker_id, tp, asked.current_leader_epoch)
    if isinstance(fault, PartitionError):
        partition = codes.error_code(fault.code)
    if isinstance(fault, NullRecords):
        return _no_records(tp, codes.error_code(fault.code), None)
    if isinstance(partition, ErrorCode):
        return _no_records(tp, partition, b"")
    log = partition.log
    if not log.holds(asked.fetch_offset):
        return _no_records(tp, codes.OFFSET_OUT_OF_RANGE, b"")
    try:
        records, took = log.read(asked.fetch_offset, bytes_max, how)
    except ZstdNotConvertibleError:
        return _no_records(tp, codes.UNSUPPORTED_COMPRESSION_TYPE, None)
    if isinstance(fault, SlowTieredStorage):
        records, took = b"", 0
    if isinstance(fault, CorruptRecords) and records:
        damaged = bytearray(records)
        damaged[fault.at % len(damaged)] ^= 0xFF
        records = bytes(damaged)
    row = FetchPartitionResponse(
        partition_index=tp.partition, high_watermark=log.end, log_start_offset=log.start, records=records
    )
    return row, took


def newest_magic(fetch_version: int) -> int:
    """The newest message format in a response of this version."""
    if fetch_version <= 1:
        return 0
    return 1 if fetch_version <= 3 else 2


def _no_records(tp: TopicPartition, error: ErrorCode, records: bytes | None) -> tuple[FetchPartitionResponse, int]:
    row = FetchPartitionResponse(
        partition_index=tp.partition, error_code=error.code, high_watermark=-1, records=records
    )
    return row, 0
