"""Reads one partition without a group: who leads it, where it begins, and its records."""

from __future__ import annotations

import sys

from zkconsumer import (
    EARLIEST_TIME,
    BrokerAddress,
    ConnectionFactory,
    ErrorCode,
    FetchRequest,
    FetchRequestBuilder,
    FetchResponse,
    MessageSet,
    OffsetRequest,
    OffsetResponse,
    PartitionMetadata,
    PartitionOffsetRequestInfo,
    Record,
    SimpleConsumer,
    TopicMetadataRequest,
    TopicMetadataResponse,
    TopicPartition,
)


def leader_of(consumer: SimpleConsumer, at: TopicPartition) -> BrokerAddress | None:
    """The broker that leads a partition."""
    answer: TopicMetadataResponse = consumer.send(TopicMetadataRequest([at.topic]))
    partitions: tuple[PartitionMetadata, ...] = answer.topics_metadata[0].partitions_metadata
    return next(found.leader for found in partitions if found.partition_id == at.partition)


def first_offset(consumer: SimpleConsumer, at: TopicPartition) -> int:
    """The first offset that the broker has."""
    request = OffsetRequest({at: PartitionOffsetRequestInfo(EARLIEST_TIME)})
    answer: OffsetResponse = consumer.get_offsets_before(request)
    error: ErrorCode = answer.error(*at)
    assert not error.code, str(error)
    return answer.offsets(*at)[0]


def records(consumer: SimpleConsumer, at: TopicPartition, offset: int) -> list[Record]:
    """What one request brings."""
    request: FetchRequest = FetchRequestBuilder().add_fetch(*at, offset, 1024 * 1024).build()
    answer: FetchResponse = consumer.fetch(request)
    found: MessageSet = answer.messages(*at)
    return list(found)


def read(host: str, port: int, at: TopicPartition, connect: ConnectionFactory | None = None) -> list[Record]:
    """The first records of a partition, from its leader."""

    def to(host: str, port: int) -> SimpleConsumer:
        if connect is None:
            return SimpleConsumer(host, port, client_id="audit")
        return SimpleConsumer(host, port, client_id="audit", connect=connect)

    with to(host, port) as any_broker:
        leader = leader_of(any_broker, at)
    if leader is None:
        return []
    with to(leader.host, leader.port) as consumer:
        return records(consumer, at, first_offset(consumer, at))


if __name__ == "__main__":
    for record in read(sys.argv[1], int(sys.argv[2]), TopicPartition(sys.argv[3], int(sys.argv[4]))):
        print(record.offset, record.value)
