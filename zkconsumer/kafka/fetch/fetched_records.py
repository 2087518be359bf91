"""``FetchedRecords``: the records of one partition that ``poll`` returns, in columns.  Pure.

    tables of ``wire.record_tables`` --RecordSlice--> FetchedRecords --records[i], iteration--> ConsumerRecord

The columns are buffers with the fields of all records, so that an object is made for a record only when the program
touches it.  Offsets and timestamps are read without any.

Keys and values are bytes, or what the deserializers return.  Deserializers run when ``poll`` takes the records: an
error of theirs is then the error of ``poll``, and the position stays in front of the record, as in Java.

Differences from Java: a list of records is a sequence with columns; ``timestamp_type`` is a number (0 producer, 1 log
append, -1 none).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import accumulate, chain, pairwise, repeat, starmap
from operator import sub
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, Protocol, TypeAlias, TypeVar, overload

from zkconsumer.kafka.record_columns import (
    BatchColumns,
    ByteColumn,
    ByteColumnBuffers,
    FixedColumnViews,
    TableColumns,
)
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_tables import TableData

NULL_SIZE = -1
"""``serialized_key_size`` and ``serialized_value_size`` of null."""

RecordHeaders: TypeAlias = tuple[tuple[str, bytes | None], ...]

K = TypeVar("K")
V = TypeVar("V")
T_co = TypeVar("T_co", covariant=True)


class Deserializer(Protocol[T_co]):
    """Makes a key or a value from its bytes, as ``org.apache.kafka.common.serialization.Deserializer``.

    Two methods are optional: ``configure(values, is_key)`` receives the settings of the consumer, and ``close()`` is
    called when the consumer is closed.
    """

    def deserialize(self, topic: str, headers: tuple[tuple[str, bytes | None], ...], data: bytes) -> T_co:
        """The object; not called for null.  ``headers``: name and value of each.

        Any exception becomes a ``RecordDeserializationException``.
        """


class ConsumerRecord(Generic[K, V]):
    """One record, as ``org.apache.kafka.clients.consumer.ConsumerRecord``.

    ``timestamp``: ms since 1970, -1 in message format 0.  ``timestamp_type``: 0 producer, 1 log append, -1 none.
    ``headers``: name and value of each.  ``leader_epoch``: None before message format 2.  Sizes in bytes, -1 for null.
    Records are equal if all fields are.
    """

    __slots__ = (
        "headers",
        "key",
        "leader_epoch",
        "offset",
        "partition",
        "serialized_key_size",
        "serialized_value_size",
        "timestamp",
        "timestamp_type",
        "topic",
        "value",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp: int,
        timestamp_type: int,
        key: K | None,
        value: V | None,
        headers: tuple[tuple[str, bytes | None], ...],
        leader_epoch: int | None,
        serialized_key_size: int,
        serialized_value_size: int,
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp = timestamp
        self.timestamp_type = timestamp_type
        self.key = key
        self.value = value
        self.headers = headers
        self.leader_epoch = leader_epoch
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size

    def _fields(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in _FIELDS)

    def __eq__(self, other: object) -> bool:
        return self._fields() == other._fields() if isinstance(other, ConsumerRecord) else NotImplemented

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"ConsumerRecord({', '.join(f'{name}={getattr(self, name)!r}' for name in _FIELDS)})"

    def __reduce__(self) -> tuple[object, ...]:
        return ConsumerRecord, self._fields()


_FIELDS = (
    "topic",
    "partition",
    "offset",
    "timestamp",
    "timestamp_type",
    "key",
    "value",
    "headers",
    "leader_epoch",
    "serialized_key_size",
    "serialized_value_size",
)

_COMPILED = compiled.CONSUMER_RECORDS
if _COMPILED is not None and not TYPE_CHECKING:
    ConsumerRecord = _COMPILED.ConsumerRecord


class BatchEpochs:
    """The leader epoch of each batch of a record set: ascending first offsets, and the epoch from there on."""

    def __init__(self, starts: Sequence[int] = (), epochs: Sequence[int | None] = ()) -> None:
        self._starts = starts
        self._epochs = epochs
        self.last = epochs[-1] if epochs else None
        """The epoch of the last batch, None if unknown."""
        self.is_uniform = len(epochs) <= 1
        """All batches have this epoch."""

    def at(self, offset: int) -> int | None:
        """The epoch of the batch with this offset, None if unknown."""
        if self.is_uniform:
            return self.last
        return self._epochs[max(0, bisect_right(self._starts, offset) - 1)]

    def of_each(self, offsets: Iterable[int]) -> Iterator[int | None]:
        """The epochs of these offsets."""
        return repeat(self.last) if self.is_uniform else map(self.at, offsets)

    def runs(self, columns: BatchColumns) -> Sequence[tuple[int, int, int | None]]:
        """Parts of these records with one epoch each: first index, index after the last, epoch."""
        if self.is_uniform:
            return ((0, len(columns), self.last),)
        found = []
        offsets = memoryview(columns.fixed_columns()[0]).cast("q")
        low = 0
        for start, epoch in zip([*self._starts[1:], None], self._epochs or [None], strict=False):
            high = len(offsets) if start is None else bisect_left(offsets, start)
            if high > low:
                found.append((low, high, epoch))
            low = max(low, high)
        return found


class RecordSlice(NamedTuple):
    """Some records that follow each other.  ``keys``, ``values``: the deserialized ones, None: they are bytes."""

    columns: BatchColumns
    epochs: BatchEpochs
    keys: list[Any] | None = None
    values: list[Any] | None = None


def bytes_of(gathered: ByteColumnBuffers) -> list[bytes | None]:
    """The fields of a column as objects."""
    if gathered.nulls:
        return list(ByteColumn(gathered))
    data = gathered.data
    return [data[start:end] for start, end in pairwise(memoryview(gathered.ends).cast("i"))]


def headers_of(columns: BatchColumns) -> Iterable[RecordHeaders]:
    """The headers of each record; an endless repetition of none if no record has any."""
    ends, names, values = columns.headers()
    bounds = memoryview(ends).cast("i")
    if not bounds[-1]:
        return repeat(())
    decoded = ((name or b"").decode("utf-8", "replace") for name in bytes_of(names))
    pairs = list(zip(decoded, bytes_of(values), strict=True))
    return [tuple(pairs[first:end]) for first, end in pairwise(bounds)]


def _size(field: bytes | None) -> int:
    return NULL_SIZE if field is None else len(field)


def _sizes(gathered: ByteColumnBuffers, fields: Sequence[bytes | None]) -> Iterator[int]:
    """The sizes of the fields of a column."""
    if gathered.nulls:
        return map(_size, fields)
    ends = memoryview(gathered.ends).cast("i")
    return map(sub, ends[1:], ends)


class FetchedRecords(FixedColumnViews, Sequence[ConsumerRecord[K, V]]):
    """Records of one partition in order of offset, perhaps none.  ``records[i]`` makes one object.

    ``offsets``, ``timestamps`` (ms since 1970, -1 in message format 0): int64 buffers.  ``timestamp_types``: int32.
    ``keys``, ``values``: lists, made when they are first read.  ``size``: the number of the records, as ``len()``.
    """

    def __init__(self, partition: TopicPartition, slices: Sequence[RecordSlice] = (), size: int | None = None) -> None:
        """``size``: the number of the records, for a caller that has it already."""
        self.partition = partition
        self.slices = slices
        self.size = sum(len(part.columns) for part in slices) if size is None else size

    def __repr__(self) -> str:
        offsets = f"offsets {self.offsets[0]} to {self.offsets[-1]}" if len(self) else "none"
        return f"FetchedRecords({self.partition} {offsets}, {len(self)} records)"

    def __len__(self) -> int:
        return self.size

    @overload
    def __getitem__(self, index: int) -> ConsumerRecord[K, V]: ...

    @overload
    def __getitem__(self, index: slice) -> list[ConsumerRecord[K, V]]: ...

    def __getitem__(self, index: int | slice) -> ConsumerRecord[K, V] | list[ConsumerRecord[K, V]]:
        if isinstance(index, slice):
            return [self[each] for each in range(len(self))[index]]
        index = range(len(self))[index]
        number = bisect_right(self._starts, index) - 1
        part, index = self.slices[number], index - self._starts[number]
        [record] = part.columns.records(index, index + 1)
        return self._consumer_record(part, index, record)

    def __iter__(self) -> Iterator[ConsumerRecord[K, V]]:
        parts = self.iterators()
        return iter(parts[0]) if len(parts) == 1 else chain.from_iterable(parts)

    def joined_with(self, later: FetchedRecords[K, V]) -> FetchedRecords[K, V]:
        """These records and later ones of the same partition."""
        return FetchedRecords(self.partition, [*self.slices, *later.slices], self.size + later.size)

    def iterators(self) -> list[Iterable[ConsumerRecord[K, V]]]:
        """The records in several parts; an iteration over these parts costs less than one over a generator."""
        found: list[Iterable[ConsumerRecord[K, V]]] = []
        topic, partition = self.partition
        for part in self.slices:
            columns, epochs, keys, values = part
            if _COMPILED is not None and isinstance(columns, TableColumns):
                data, rows, first = columns.data, columns.rows, columns.first
                for low, high, epoch in epochs.runs(columns):
                    found.append(
                        _COMPILED.RecordIterator(topic, partition, epoch, data, rows, first, low, high, keys, values)
                    )
            else:
                found.append(starmap(ConsumerRecord, self._fields_of_each(part)))
        return found

    def _fields_of_each(self, part: RecordSlice) -> Iterator[tuple[Any, ...]]:
        columns = part.columns
        numbers = columns.fixed_columns()
        offsets = memoryview(numbers[0]).cast("q")
        gathered_keys, gathered_values = columns.keys(), columns.values()
        raw_keys, raw_values = bytes_of(gathered_keys), bytes_of(gathered_values)
        return zip(
            repeat(self.partition.topic),
            repeat(self.partition.partition),
            offsets,
            memoryview(numbers[1]).cast("q"),
            memoryview(numbers[2]).cast("i"),
            raw_keys if part.keys is None else part.keys,
            raw_values if part.values is None else part.values,
            headers_of(columns),
            part.epochs.of_each(offsets),
            _sizes(gathered_keys, raw_keys),
            _sizes(gathered_values, raw_values),
        )

    def _consumer_record(self, part: RecordSlice, index: int, record: Record) -> ConsumerRecord[K, V]:
        return ConsumerRecord(
            *self.partition,
            record.offset,
            record.timestamp,
            record.timestamp_type,
            record.key if part.keys is None else part.keys[index],
            record.value if part.values is None else part.values[index],
            record.headers,
            part.epochs.at(record.offset),
            _size(record.key),
            _size(record.value),
        )

    @cached_property
    def _starts(self) -> list[int]:
        """The index of the first record of each part, and the number of all."""
        return list(accumulate((len(part.columns) for part in self.slices), initial=0))

    @cached_property
    def _numbers(self) -> tuple[bytes, bytes, bytes]:
        parts = [part.columns.fixed_columns() for part in self.slices]
        if len(parts) == 1:
            return parts[0]
        offsets, timestamps, types = (b"".join(part[number] for part in parts) for number in range(3))
        return offsets, timestamps, types

    @cached_property
    def keys(self) -> Sequence[K | None]:
        return self._joined(lambda part: bytes_of(part.columns.keys()) if part.keys is None else part.keys)

    @cached_property
    def values(self) -> Sequence[V | None]:
        return self._joined(lambda part: bytes_of(part.columns.values()) if part.values is None else part.values)

    def _joined(self, column: Callable[[RecordSlice], Sequence[Any]]) -> Sequence[Any]:
        return column(self.slices[0]) if len(self.slices) == 1 else list(chain.from_iterable(map(column, self.slices)))


class TableRecords(FetchedRecords[bytes, bytes]):
    """Rows of one table, as bytes: fewer calls for each list, for programs with small lists."""

    def __init__(
        self,
        partition: TopicPartition,
        epochs: BatchEpochs,
        data: TableData,
        rows: bytes | bytearray,
        first: int,
        size: int,
    ) -> None:
        self.partition = partition
        self._epochs = epochs
        self._data = data
        self._rows = rows
        self._first = first
        self.size = size

    @cached_property
    def slices(self) -> Sequence[RecordSlice]:  # type: ignore[override]
        return (RecordSlice(TableColumns(self._data, self._rows, self.size, self._first), self._epochs),)

    def __iter__(self) -> Iterator[ConsumerRecord[bytes, bytes]]:
        epochs = self._epochs
        if _COMPILED is None or not epochs.is_uniform:
            return super().__iter__()
        topic, partition = self.partition
        made: Iterator[ConsumerRecord[bytes, bytes]] = _COMPILED.RecordIterator(
            topic, partition, epochs.last, self._data, self._rows, self._first, 0, self.size, None, None
        )
        return made
