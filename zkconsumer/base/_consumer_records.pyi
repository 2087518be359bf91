"""The records of ``poll``, compiled (``_consumer_records.c``).  Internal: ``kafka.fetch.fetched_records`` uses it."""

from collections.abc import Iterator
from typing import Any, Self

from zkconsumer.kafka.fetch.fetched_records import ConsumerRecord as ConsumerRecord

class RecordIterator:
    """Iterates over ``rows[low:high]``; ``keys``, ``values``: the objects of all rows, None: bytes."""

    def __new__(
        cls,
        topic: str,
        partition: int,
        leader_epoch: int | None,
        data: Any,
        rows: bytes,
        low: int,
        high: int,
        keys: list[Any] | None,
        values: list[Any] | None,
        /,
    ) -> Self: ...
    def __iter__(self) -> Iterator[ConsumerRecord[Any, Any]]: ...
    def __next__(self) -> ConsumerRecord[Any, Any]: ...
