"""A ``Fetcher`` on ``MockKafkaClient``, and the responses of brokers that it reads."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Any

from tests.metadata_responses import metadata_update
from tests.mock_kafka_client import MockKafkaClient
from zkconsumer.base.timer import Timer
from zkconsumer.kafka.error_codes import NONE, ErrorCode
from zkconsumer.kafka.fetch.fetch_config import FetchConfig
from zkconsumer.kafka.fetch.fetch_position import FetchPosition
from zkconsumer.kafka.fetch.fetched_records import FetchedRecords
from zkconsumer.kafka.fetch.fetcher import Fetcher
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.kafka.net.consumer_network_client import ConsumerNetworkClient
from zkconsumer.kafka.supported_versions import SupportedVersions, VersionRange
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record
from zkconsumer.wire.isolation_level import IsolationLevel
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.schemas import FETCH, LIST_OFFSETS, OFFSET_FOR_LEADER_EPOCH
from zkconsumer.wire.schemas.fetch import (
    AbortedTransaction,
    FetchPartitionResponse,
    FetchRequest,
    FetchResponse,
    FetchTopicResponse,
)
from zkconsumer.wire.schemas.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from zkconsumer.wire.schemas.offset_for_leader_epoch import (
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartitionResponse,
    OffsetForLeaderTopicResponse,
)

TOPIC = "test"
TP0, TP1, TP2, TP3 = (TopicPartition(TOPIC, number) for number in range(4))
RETRY_MS, REQUEST_MS = 100, 30_000
MANY = 1_000_000
EARLIEST, LATEST_OFFSET = -2, -1
POLLS_MAX = 10_000

ALL_VERSIONS = SupportedVersions(
    {
        FETCH.key: VersionRange(0, FETCH.highest),
        LIST_OFFSETS.key: VersionRange(0, LIST_OFFSETS.highest),
        OFFSET_FOR_LEADER_EPOCH.key: VersionRange(0, OFFSET_FOR_LEADER_EPOCH.highest),
    }
)
OLD_EPOCH_VERSIONS = SupportedVersions({**ALL_VERSIONS.ranges, OFFSET_FOR_LEADER_EPOCH.key: VersionRange(0, 2)})


class PollFetcher:
    """A fetcher with what it uses; the metadata has one node and four partitions of ``TOPIC``."""

    def __init__(
        self,
        *,
        max_poll_records: int = MANY,
        strategy: OffsetResetStrategy = OffsetResetStrategy.EARLIEST,
        isolation_level: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
        deserializer: Any = None,
        metadata_expire_ms: int = 300_000,
        client_rack_id: str = "",
        check_crcs: bool = True,
    ) -> None:
        self.clock = ManualClock()
        self.subscriptions = SubscriptionState(strategy)
        self.metadata = ConsumerMetadata(0, metadata_expire_ms, self.subscriptions)
        self.kafka = MockKafkaClient(self.clock, self.metadata)
        self.network = ConsumerNetworkClient(
            self.kafka, self.metadata, self.clock, retry_backoff_ms=RETRY_MS, request_timeout_ms=REQUEST_MS
        )
        config = FetchConfig(
            max_wait_ms=0,
            fetch_size=1000,
            max_poll_records=max_poll_records,
            isolation_level=isolation_level,
            retry_backoff_ms=RETRY_MS,
            request_timeout_ms=REQUEST_MS,
            client_rack_id=client_rack_id,
            check_crcs=check_crcs,
        )
        self.fetcher = Fetcher(
            self.network,
            self.metadata,
            self.subscriptions,
            config,
            self.clock,
            key_deserializer=deserializer,
            value_deserializer=deserializer,
        )

    def timer(self, timeout_ms: int = 0) -> Timer:
        return Timer(self.clock, timeout_ms)

    def assign(self, *partitions: TopicPartition, epoch: int = 0, nodes: int = 1) -> None:
        """Assign these, with metadata in which all leaders have this epoch."""
        self.subscriptions.assign_from_user(partitions)
        self.update_metadata(epoch=epoch, nodes=nodes)

    def update_metadata(self, counts: Mapping[str, int] | None = None, **fields: Any) -> None:
        self.kafka.update_metadata(metadata_update(counts or {TOPIC: 4}, **fields))

    def poll(self) -> None:
        """Poll the network client, without a wait, and take the responses."""
        self.network.poll(self.timer())
        self.fetcher.handle_responses()

    def seek(self, tp: TopicPartition, offset: int) -> None:
        """Seek, and keep the leader, as ``KafkaConsumer.seek`` does."""
        self.subscriptions.seek_unvalidated(tp, FetchPosition(offset, None, self.metadata.current_leader(tp)))

    def fetch(self, response: FetchResponse, *, sent: int = 1) -> dict[TopicPartition, FetchedRecords]:
        """Send fetches, get this response, and take the records."""
        self.receive(response, sent=sent)
        return self.fetcher.fetched_records()

    def receive(self, response: FetchResponse, *, sent: int = 1) -> None:
        """Send fetches, and get this response."""
        assert self.fetcher.send_fetches() == sent
        self.kafka.prepare(response)
        self.poll()
        assert not self.kafka.prepared, "the response was not taken"

    def position(self, tp: TopicPartition = TP0) -> int:
        position = self.subscriptions.position(tp)
        assert position is not None
        return position.offset

    def last_request(self) -> FetchRequest:
        """The newest request in flight, as a broker reads it."""
        body: FetchRequest = self.kafka.requests[-1].body
        return body

    def log_names(self) -> list[str]:
        names = [event.name for event in self.fetcher.log_events]
        self.fetcher.log_events.clear()
        return names


def record_set(first: int, count: int, *, number: int | None = None, magic: int = 2, epoch: int = -1) -> bytes:
    """``count`` records from an offset on, with the values ``value-<number>`` and so on (from the offset)."""
    number = first if number is None else number
    records = [Record(first + each, 0, 0, b"key", b"value-%d" % (number + each)) for each in range(count)]
    return with_epoch(build_record_set(records, magic), epoch)


def with_epoch(batch: bytes, epoch: int) -> bytes:
    """A batch of format 2 with this leader epoch, which the checksum does not cover."""
    if epoch < 0:
        return batch
    return batch[:12] + struct.pack(">i", epoch) + batch[16:]


RECORDS = record_set(1, 3)
NEXT_RECORDS = record_set(4, 2)
PARTIAL_RECORD = NEXT_RECORDS[:8] + struct.pack(">i", 10_000) + NEXT_RECORDS[12:]


def partition_response(
    tp: TopicPartition,
    records: bytes = b"",
    error: ErrorCode = NONE,
    *,
    high_watermark: int = 100,
    last_stable_offset: int = -1,
    log_start_offset: int = 0,
    aborted: Iterable[tuple[int, int]] = (),
    preferred_read_replica: int = -1,
) -> FetchPartitionResponse:
    return FetchPartitionResponse(
        partition_index=tp.partition,
        error_code=error.code,
        high_watermark=high_watermark,
        last_stable_offset=last_stable_offset,
        log_start_offset=log_start_offset,
        aborted_transactions=[AbortedTransaction(producer_id=pid, first_offset=first) for pid, first in aborted],
        preferred_read_replica=preferred_read_replica,
        records=records,
    )


def fetch_response(
    *rows: tuple[TopicPartition, FetchPartitionResponse],
    session_id: int = 0,
    throttle_ms: int = 0,
    error: ErrorCode = NONE,
    topic_ids: Mapping[str, bytes] | None = None,
) -> FetchResponse:
    topics = [
        FetchTopicResponse(topic=tp.topic, topic_id=(topic_ids or {}).get(tp.topic, bytes(16)), partitions=[row])
        for tp, row in rows
    ]
    return FetchResponse(throttle_time_ms=throttle_ms, error_code=error.code, session_id=session_id, responses=topics)


def full_fetch_response(
    tp: TopicPartition, records: bytes = b"", error: ErrorCode = NONE, **fields: Any
) -> FetchResponse:
    """The response to a full request for one partition, without a session."""
    throttle_ms = fields.pop("throttle_ms", 0)
    return fetch_response((tp, partition_response(tp, records, error, **fields)), throttle_ms=throttle_ms)


def list_offsets_response(
    offsets: Mapping[TopicPartition, int],
    errors: Mapping[TopicPartition, ErrorCode] | None = None,
    *,
    timestamp: int = 1,
    epoch: int = -1,
) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=tp.topic,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=tp.partition,
                        error_code=(errors or {}).get(tp, NONE).code,
                        timestamp=timestamp,
                        offset=offset,
                        leader_epoch=epoch,
                    )
                ],
            )
            for tp, offset in offsets.items()
        ]
    )


def epoch_end_response(
    ends: Mapping[TopicPartition, tuple[int, int]], errors: Mapping[TopicPartition, ErrorCode] | None = None
) -> OffsetForLeaderEpochResponse:
    """``ends``: the epoch and its end offset, of each partition."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderTopicResponse(
                topic=tp.topic,
                partitions=[
                    OffsetForLeaderPartitionResponse(
                        partition=tp.partition,
                        error_code=(errors or {}).get(tp, NONE).code,
                        leader_epoch=epoch,
                        end_offset=end_offset,
                    )
                ],
            )
            for tp, (epoch, end_offset) in ends.items()
        ]
    )


def values_of(records: FetchedRecords) -> list[Any]:
    return [record.value for record in records]


def offsets_of(records: FetchedRecords) -> list[int]:
    return list(records.offsets)
