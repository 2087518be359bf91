"""A member of a coordinator's group with ``poll``: deserializers, a listener, commits, and columns."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from bridge import (
    ConsumerGroupMetadata,
    ConsumerRebalanceListener,
    ConsumerRecord,
    ConsumerRecords,
    FetchedRecords,
    KafkaConsumer,
    MetricName,
    OffsetAndTimestamp,
)
from zkconsumer import OffsetAndMetadata, TopicPartition


class Ledger:
    """The partitions that this member has, and what it has counted of each."""

    def __init__(self) -> None:
        self.counts: dict[TopicPartition, int] = {}

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        for tp in partitions:
            self.counts.pop(tp, None)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self.counts.update(dict.fromkeys(partitions, 0))


def total(settings: Mapping[str, object], topic: str, until: int) -> int:
    """The sum of the values of so many records, committed record by record."""
    ledger: ConsumerRebalanceListener = Ledger()
    consumer: KafkaConsumer[str, int] = KafkaConsumer(
        {**settings, "key.deserializer": "StringDeserializer", "value.deserializer": "LongDeserializer"}
    )
    found = read = 0
    with consumer:
        consumer.subscribe([topic], ledger)
        while read < until:
            records: ConsumerRecords[str, int] = consumer.poll(1_000)
            for record in records:
                found += value_of(record)
            for tp in records.partitions():
                columns: FetchedRecords[str, int] = records.records(tp)
                read += len(columns.offsets)
                consumer.commit_sync({tp: OffsetAndMetadata(columns.offsets[-1] + 1)})
        group: ConsumerGroupMetadata = consumer.group_metadata()
        assert group.generation_id > 0
        times: dict[TopicPartition, OffsetAndTimestamp | None] = consumer.offsets_for_times(
            dict.fromkeys(consumer.assignment(), 0)
        )
        assert all(times.values())
        metrics: dict[MetricName, float] = consumer.metrics()
        assert metrics
    return found


def value_of(record: ConsumerRecord[str, int]) -> int:
    """The value and the length of the key; 0 for a tombstone."""
    key: str | None = record.key
    value: int | None = record.value
    return 0 if value is None else value + (0 if key is None else len(key))
