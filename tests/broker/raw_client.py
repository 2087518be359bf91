"""A client of few words for tests: one connection, one request after the other."""

from __future__ import annotations

import struct
from typing import Any, TypeVar

import google_crc32c

from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.records import iter_records
from zkconsumer.wire.schemas import (
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
    Api,
)
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorRequest
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest
from zkconsumer.wire.schemas.init_producer_id import InitProducerIdRequest
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest
from zkconsumer.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from zkconsumer.wire.schemas.offset_commit import OffsetCommitPartition, OffsetCommitRequest, OffsetCommitTopic
from zkconsumer.wire.schemas.offset_fetch import OffsetFetchRequest, OffsetFetchTopic
from zkconsumer.wire.schemas.produce import ProducePartition, ProducePartitionResponse, ProduceRequest, ProduceTopic
from zkconsumer.wire.schemas.sync_group import SyncGroupAssignment, SyncGroupRequest

R = TypeVar("R")

TIMEOUT_MS = 30_000
"""For an answer: only one that does not come takes so long."""
SUBSCRIPTION = bytes.fromhex("00000000000100017400000000")
"""ConsumerProtocol v0: topic ``t``, no user data."""


class RawClient:
    """Errors of the protocol are given back as numbers."""

    def __init__(self, address: BrokerAddress, client_id: str = "talk") -> None:
        self.connection = BlockingConnection(address.host, address.port, client_id=client_id)

    def __enter__(self) -> RawClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.connection.close()

    def ask(self, api: Api[Any, R], version: int, body: Any, timeout_ms: int = TIMEOUT_MS) -> R:
        return self.connection.request(api, version, body, timeout_ms)

    def metadata(self, *topics: str, version: int = 7, creates: bool = True) -> MetadataResponse:
        names = [MetadataRequestTopic(name=topic) for topic in topics]
        return self.ask(METADATA, version, MetadataRequest(topics=names, allow_auto_topic_creation=creates))

    def produce(
        self, topic: str, partition: int, *values: bytes, version: int = 7, records: bytes | None = None
    ) -> ProducePartitionResponse:
        magic = 2 if version >= 3 else version // 2
        data = build_record_set([Record(at, 1_000, 0, None, value) for at, value in enumerate(values)], magic)
        sent = ProducePartition(index=partition, records=data if records is None else records)
        body = ProduceRequest(acks=-1, timeout_ms=1_000, topic_data=[ProduceTopic(name=topic, partition_data=[sent])])
        return self.ask(PRODUCE, version, body).responses[0].partition_responses[0]

    def fetch_body(self, topic: str, partition: int, offset: int, **limits: int) -> FetchRequest:
        asked = FetchPartition(
            partition=partition, fetch_offset=offset, partition_max_bytes=limits.pop("partition_max_bytes", 1_000_000)
        )
        limits = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1_000_000} | limits
        return FetchRequest(topics=[FetchTopic(topic=topic, partitions=[asked])], **limits)

    def fetch(self, topic: str, partition: int, offset: int, *, version: int = 11, **limits: int) -> Any:
        body = self.fetch_body(topic, partition, offset, **limits)
        return self.ask(FETCH, version, body).responses[0].partitions[0]

    def values(self, topic: str, partition: int) -> list[bytes | None]:
        return [record.value for record in iter_records(self.fetch(topic, partition, 0).records)]

    def producer_id(self) -> int:
        return self.ask(INIT_PRODUCER_ID, 1, InitProducerIdRequest(transaction_timeout_ms=0)).producer_id

    def find_coordinator(self, group: str, *, version: int = 1) -> Any:
        return self.ask(FIND_COORDINATOR, version, FindCoordinatorRequest(key=group))

    def join(self, group: str, member: str = "", *, version: int = 2, session_ms: int = 30_000) -> Any:
        body = JoinGroupRequest(
            group_id=group,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms,
            member_id=member,
            protocol_type="consumer",
            protocols=[JoinGroupProtocol(name="range", metadata=SUBSCRIPTION)],
        )
        return self.ask(JOIN_GROUP, version, body)

    def sync(self, group: str, generation: int, member: str, assignments: dict[str, bytes]) -> Any:
        rows = [SyncGroupAssignment(member_id=name, assignment=share) for name, share in assignments.items()]
        body = SyncGroupRequest(group_id=group, generation_id=generation, member_id=member, assignments=rows)
        return self.ask(SYNC_GROUP, 1, body)

    def heartbeat(self, group: str, generation: int, member: str) -> int:
        body = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
        return self.ask(HEARTBEAT, 1, body).error_code

    def commit(
        self, group: str, topic: str, partition: int, offset: int, generation: int = -1, member: str = "", *,
        version: int = 3,
    ) -> int:  # fmt: skip
        row = OffsetCommitPartition(partition_index=partition, committed_offset=offset)
        body = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=member,
            topics=[OffsetCommitTopic(name=topic, partitions=[row])],
        )
        return self.ask(OFFSET_COMMIT, version, body).topics[0].partitions[0].error_code

    def committed(self, group: str, topic: str, partition: int, *, version: int = 3) -> tuple[int, int]:
        """Offset and error code."""
        body = OffsetFetchRequest(group_id=group, topics=[OffsetFetchTopic(name=topic, partition_indexes=[partition])])
        answer = self.ask(OFFSET_FETCH, version, body)
        if answer.error_code:
            return -1, answer.error_code
        row = answer.topics[0].partitions[0]
        return row.committed_offset, row.error_code


def idempotent(producer: int, sequence: int, value: bytes, epoch: int = 0) -> bytes:
    """One record of an idempotent producer."""
    data = bytearray(build_record_set([Record(0, 1_000, 0, None, value)], 2))
    struct.pack_into(">qhi", data, 43, producer, epoch, sequence)
    struct.pack_into(">I", data, 17, google_crc32c.value(bytes(data[21:])))
    return bytes(data)
