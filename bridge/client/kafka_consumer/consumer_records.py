"""``ConsumerRecords``: the records that one ``poll`` returns, as in ``org.apache.kafka.clients.consumer``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Generic, TypeVar

from zkconsumer.kafka.fetch.fetched_records import ConsumerRecord, FetchedRecords
from zkconsumer.types import TopicPartition

K = TypeVar("K")
V = TypeVar("V")


class ConsumerRecords(Generic[K, V]):
    """Iterating gives ``ConsumerRecord`` objects, one partition after the other, each in the order of its offsets.

    Nothing is made before it is read: ``records(partition)`` has the offsets, keys and values as columns.
    """

    __slots__ = ("_by_partition",)

    def __init__(self, by_partition: Mapping[TopicPartition, FetchedRecords[K, V]]) -> None:
        """``by_partition``: not changed any more."""
        self._by_partition = by_partition

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        if len(self._by_partition) == 1:
            for records in self._by_partition.values():
                return iter(records)
        return chain.from_iterable(part for records in self._by_partition.values() for part in records.iterators())

    def __len__(self) -> int:
        count = 0
        for records in self._by_partition.values():
            count += records.size
        return count

    def __repr__(self) -> str:
        return f"ConsumerRecords({', '.join(map(repr, self._by_partition.values()))})"

    def records(self, partition: TopicPartition) -> FetchedRecords[K, V]:
        """The records of one partition; none if it has none."""
        return self._by_partition.get(partition) or FetchedRecords(partition)

    def records_of_topic(self, topic: str) -> Iterable[ConsumerRecord[K, V]]:
        """The records of one topic (Java: ``records(topic)``)."""
        return (
            record
            for partition, records in self._by_partition.items()
            if partition.topic == topic
            for record in records
        )

    def partitions(self) -> frozenset[TopicPartition]:
        """The partitions that have records."""
        return frozenset(self._by_partition)

    def count(self) -> int:
        """The number of records, as ``len()``."""
        return len(self)

    def is_empty(self) -> bool:
        """Whether there are none."""
        return not self._by_partition


EMPTY: ConsumerRecords[Any, Any] = ConsumerRecords({})
"""The result of a ``poll`` without records."""
