"""Divides the rows of an Arrow batch among the partitions of topics, and cuts them into record sets.  Pure.

    RecordBatch --SinkRows--> columns --assign--> (topic, partition) of each row --divide--> PartitionRows

The work is done for whole columns.  Python has a loop only over the *distinct* keys and topics of a batch, and over the
record sets.

The partition of a row:

    column ``partition``   wins, if it is not null
    a key                  murmur2, as Java's default partitioner
    neither                sticky: the same partition for ``STICKY_BYTES`` of rows, then the next one with a leader

Differences from Java's default partitioner (3.x): the sticky partition advances by one, and not to a random one, so the
result depends on the input only; a task begins at ``start``, so that tasks do not all begin at the same partition.

The rows of one partition keep their order.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from bridge.spark.sink.sink_columns import HEADERS, KEY, PARTITION, SOURCE, STAGE, TIMESTAMP, TOPIC, VALUE
from bridge.spark.sink.topic_partitions import PartitionCounts
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record
from zkconsumer.wire.murmur2 import partition_of_key

STICKY_BYTES = 16 * 1024
"""After so many bytes of rows without a key the next partition follows: ``batch.size`` of Java's producer."""

RECORD_OVERHEAD_BYTES = 40
"""A record has at most so many bytes besides its fields, in every format."""

RECORD_SET_OVERHEAD_BYTES = 61
"""The head of a batch of format 2; with a codec a wrapper of formats 0 and 1 has less."""

HEADER_OVERHEAD_BYTES = 10
"""The two lengths of a header."""

SOURCE_HEADER = "zkconsumer.source"
STAGE_HEADER = "zkconsumer.stage"

COLUMN_HEADERS: Mapping[str, str] = {SOURCE: SOURCE_HEADER, STAGE: STAGE_HEADER}
"""Column of texts -> the header that it becomes; only for format 2."""

_SORT_SHIFT = 32
"""A sort key is the number of the topic, shifted by this, plus the partition."""

_CREATE_TIME = 0

RecordHeaders = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, eq=False)
class PartitionRows:
    """Rows of one partition for one record set: columns of an Arrow table, not encoded yet.

    ``table`` has a copy of the rows, and not a slice of the task's batch: rows that wait for a leader must not keep the
    batches of all other partitions in memory.
    ``data_bytes``: an upper bound of the size of the record set without compression.  ``now_ms``: the timestamp of rows
    that have none, in ms since 1970.  ``headers``: of every row, after its own ones; only for format 2.
    """

    tp: TopicPartition
    table: pa.RecordBatch
    data_bytes: int
    now_ms: int
    headers: RecordHeaders = ()

    def __len__(self) -> int:
        return int(self.table.num_rows)

    def halves(self) -> list[PartitionRows]:
        """The first and the second half; only for two rows or more."""
        assert len(self) > 1, "one row cannot be divided"
        middle = len(self) // 2
        return [self._slice(0, middle), self._slice(middle, len(self) - middle)]

    def _slice(self, first: int, count: int) -> PartitionRows:
        data_bytes = int(pc.sum(self.row_sizes().slice(first, count)).as_py()) + RECORD_SET_OVERHEAD_BYTES
        return PartitionRows(self.tp, self.table.slice(first, count), data_bytes, self.now_ms, self.headers)

    def row_sizes(self) -> pa.Array:
        """An upper bound of the bytes of each record."""
        return _record_sizes(self.table, self.headers)

    def records(self, magic: int) -> list[Record]:
        """The records for format ``magic``, numbered from 0.

        Formats 0 and 1 have no headers: the sink's own are left out.  Raises ``UsageError`` for a row with headers of
        the column ``headers``.
        """
        count = len(self)
        values, keys = (_pylist(self.table, name) for name in (VALUE, KEY))
        headers = self._record_headers() if magic == 2 else self._without_headers(magic)
        return list(
            map(Record, range(count), self._timestamps(), repeat(_CREATE_TIME), keys, values, headers)
        )  # fmt: skip

    def _timestamps(self) -> Iterator[int]:
        if TIMESTAMP not in self.table.schema.names:
            return repeat(self.now_ms, len(self))
        return iter(pc.fill_null(self.table.column(TIMESTAMP), self.now_ms).to_pylist())

    def _record_headers(self) -> Iterator[RecordHeaders]:
        names = self.table.schema.names
        if HEADERS not in names and not COLUMN_HEADERS.keys() & set(names):
            return repeat(self.headers, len(self))
        own = _pylist(self.table, HEADERS)
        texts = [_pylist(self.table, name) for name in COLUMN_HEADERS]
        return map(self._headers_of, own, *texts)

    def _headers_of(self, own: Sequence[dict[str, Any]] | None, *texts: str | None) -> RecordHeaders:
        mine = tuple((each["key"], each["value"]) for each in own if each is not None) if own else ()
        if any(name is None for name, _ in mine):
            raise UsageError(f"{self.tp}: a header has no key. Correct column headers in the query")
        named = zip(COLUMN_HEADERS.values(), texts, strict=True)
        return (*mine, *self.headers, *((name, text.encode()) for name, text in named if text is not None))

    def _without_headers(self, magic: int) -> Iterator[RecordHeaders]:
        if HEADERS in self.table.schema.names and len(self.table.column(HEADERS).flatten()):
            raise UsageError(
                f"{self.tp}: a row has headers, and the broker's record format {magic} has none (brokers before 0.11). "
                "Drop the column headers from the query, or write to newer brokers"
            )
        return repeat((), len(self))


def _pylist(table: pa.RecordBatch, name: str) -> Iterator[Any]:
    """The values of a column; None for each row if there is no such column."""
    if name not in table.schema.names:
        return repeat(None, table.num_rows)
    return iter(table.column(name).to_pylist())


class StickyPartitions:
    """The partitions for rows without a key, of one task.

    ``_bytes``: topic -> the bytes of such rows so far; the position in the cycle of partitions follows from it.
    """

    def __init__(self, start: int) -> None:
        assert start >= 0, "it is the number of a task"
        self._start = start
        self._bytes: dict[str, int] = {}

    def assign(self, topic: str, sizes: pa.Array, partitions: Sequence[int]) -> pa.Array:
        """The partition of each row, among ``partitions``; ``sizes``: the bytes of the rows."""
        before = self._bytes.get(topic, 0)
        totals = pc.add(pc.cumulative_sum(sizes), before)
        turns = pc.add(pc.divide(pc.subtract(totals, sizes), STICKY_BYTES), self._start)
        self._bytes[topic] = int(totals[-1].as_py()) if len(totals) else before
        numbers = pc.subtract(turns, pc.multiply(pc.divide(turns, len(partitions)), len(partitions)))
        return pc.take(pa.array(partitions, pa.int64()), numbers)


class SinkRows:
    """The rows of one Arrow batch, as the sink's columns.

    ``default_topic``: the option ``topic``.  Raises ``UsageError`` for a row without a topic.
    """

    def __init__(self, batch: pa.RecordBatch, default_topic: str | None) -> None:
        self._table = _normalized(batch)
        self._sizes = _row_sizes(self._table)
        self._default_topic = default_topic
        if default_topic is not None:
            self._topics: list[str] = [default_topic] if batch.num_rows else []
            self._topic_numbers = pa.repeat(pa.scalar(0, pa.int64()), batch.num_rows)
            return
        column = self._table.column(TOPIC)
        if column.null_count:
            raise UsageError(
                "a row has no topic: column topic is null. Give each row a topic in the query, or set the option topic"
            )
        encoded = pc.dictionary_encode(column)
        self._topics = encoded.dictionary.to_pylist()
        self._topic_numbers = encoded.indices.cast(pa.int64())

    @property
    def topics(self) -> list[str]:
        """The topics of the rows, in the order of their first rows."""
        return self._topics

    def divide(
        self,
        partitions_of: Callable[[str], PartitionCounts],
        sticky: StickyPartitions,
        record_set_bytes: int,
        record_bytes_max: int,
        *,
        now_ms: int,
        headers: RecordHeaders = (),
    ) -> Iterator[PartitionRows]:
        """The rows, as record sets of at most ``record_set_bytes``; a larger row has one of its own.

        Raises ``UsageError`` for a row with a partition that its topic does not have, and for a row whose record has
        more than ``record_bytes_max``.
        """
        if not self._table.num_rows:
            return
        partitions = self._assign(partitions_of, sticky)
        order_by = pc.add(pc.shift_left(self._topic_numbers, _SORT_SHIFT), partitions)
        order = pc.array_sort_indices(order_by)  # stable
        sizes = _record_sizes(self._table, headers).take(order)
        _check_sizes(sizes, record_bytes_max - RECORD_SET_OVERHEAD_BYTES)
        set_bytes = record_set_bytes - RECORD_SET_OVERHEAD_BYTES
        ends = pc.cumulative_sum(sizes).to_pylist()
        first = 0
        for run in pc.value_counts(order_by.take(order)).to_pylist():
            topic, partition = run["values"] >> _SORT_SHIFT, run["values"] & ((1 << _SORT_SHIFT) - 1)
            tp = TopicPartition(self._topics[topic], partition)
            last = first + run["counts"]
            while first < last:
                before = ends[first - 1] if first else 0
                end = max(bisect_right(ends, before + set_bytes, first, last), first + 1)
                count, data_bytes = end - first, ends[end - 1] - before + RECORD_SET_OVERHEAD_BYTES
                table = self._table.take(order.slice(first, count))
                yield PartitionRows(tp, table, data_bytes, now_ms, headers)
                first = end

    def _assign(self, partitions_of: Callable[[str], PartitionCounts], sticky: StickyPartitions) -> pa.Array:
        """The partition of each row, an int64 array without nulls."""
        if len(self._topics) == 1:
            return self._assign_in(self._topics[0], self._table, self._sizes, partitions_of, sticky)
        rows = pa.array(range(self._table.num_rows), pa.int64())
        places, assigned = [], []
        for number, topic in enumerate(self._topics):
            is_here = pc.equal(self._topic_numbers, number)
            table, sizes = self._table.filter(is_here), self._sizes.filter(is_here)
            places.append(rows.filter(is_here))
            assigned.append(self._assign_in(topic, table, sizes, partitions_of, sticky))
        back = pc.array_sort_indices(pa.concat_arrays(places))
        return pa.concat_arrays(assigned).take(back)

    @staticmethod
    def _assign_in(
        topic: str,
        table: pa.RecordBatch,
        sizes: pa.Array,
        partitions_of: Callable[[str], PartitionCounts],
        sticky: StickyPartitions,
    ) -> pa.Array:
        there = partitions_of(topic)
        names = table.schema.names
        chosen = pa.nulls(table.num_rows, pa.int64())
        if PARTITION in names:
            chosen = table.column(PARTITION).cast(pa.int64())
            _check_partitions(topic, chosen, there.total)
        if KEY in names and chosen.null_count:
            chosen = pc.coalesce(chosen, _partitions_by_key(table.column(KEY), there.total))
        if chosen.null_count:
            is_open = pc.is_null(chosen)
            partitions = there.with_leader or tuple(range(there.total))
            chosen = pc.replace_with_mask(
                chosen, is_open, sticky.assign(topic, sizes.filter(is_open), partitions)
            )  # fmt: skip
        return chosen


def _check_sizes(sizes: pa.Array, bytes_max: int) -> None:
    size = pc.max(sizes).as_py()
    if size > bytes_max:
        raise UsageError(
            f"a row has {size} bytes with key and headers, and kafka.max.request.size allows {bytes_max}. "
            "Raise it, and max.message.bytes of the topic, or drop the row in the query"
        )


def _check_partitions(topic: str, chosen: pa.Array, count: int) -> None:
    bounds = pc.min_max(chosen)
    low, high = bounds["min"].as_py(), bounds["max"].as_py()
    if low is not None and not 0 <= low <= high < count:
        wrong = low if low < 0 else high
        raise UsageError(
            f"a row has partition {wrong}, and topic {topic} has partitions 0 to {count - 1}. Correct column "
            "partition in the query, drop it, or add partitions to the topic"
        )


def _partitions_by_key(keys: pa.Array, count: int) -> pa.Array:
    """The partition of each key; null where there is no key."""
    encoded = pc.dictionary_encode(keys)
    of_distinct = [partition_of_key(key, count) for key in encoded.dictionary.to_pylist()]
    return pc.take(pa.array(of_distinct, pa.int64()), encoded.indices)


def _normalized(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Keys and values as bytes, timestamps in ms as integers."""
    columns = dict(zip(batch.schema.names, batch.columns, strict=True))
    for name in (VALUE, KEY):
        if name in columns:
            columns[name] = _as_binary(columns[name])
    if TIMESTAMP in columns:
        # To integers before the division: a cast to another unit would refuse fractions of a millisecond.
        in_us = columns[TIMESTAMP].cast(pa.timestamp("us", columns[TIMESTAMP].type.tz)).cast(pa.int64())
        columns[TIMESTAMP] = _floor_divide(in_us, 1000)
    return pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns))


def _as_binary(column: pa.Array) -> pa.Array:
    if pa.types.is_string(column.type):
        return column.cast(pa.binary())
    return column.cast(pa.large_binary()) if pa.types.is_large_string(column.type) else column


def _floor_divide(numbers: pa.Array, by: int) -> pa.Array:
    quotients = pc.divide(numbers, by)
    is_rounded_up = pc.greater(pc.multiply(quotients, by), numbers)
    return pc.subtract(quotients, is_rounded_up.cast(pa.int64()))


def _record_sizes(table: pa.RecordBatch, headers: RecordHeaders) -> pa.Array:
    """An upper bound of the bytes of each record with these headers besides its own."""
    of_headers = sum(len(name) + len(value or b"") + HEADER_OVERHEAD_BYTES for name, value in headers)
    return pc.add(_row_sizes(table), of_headers)


def _row_sizes(table: pa.RecordBatch) -> pa.Array:
    sizes = pa.repeat(pa.scalar(RECORD_OVERHEAD_BYTES, pa.int64()), table.num_rows)
    names = table.schema.names
    for name in (VALUE, KEY, *COLUMN_HEADERS):
        if name in names:
            sizes = pc.add(sizes, _lengths(table.column(name)))
        if name in names and name in COLUMN_HEADERS:
            sizes = pc.add(sizes, len(COLUMN_HEADERS[name]) + HEADER_OVERHEAD_BYTES)
    return pc.add(sizes, _header_sizes(table.column(HEADERS))) if HEADERS in names else sizes


def _lengths(column: pa.Array) -> pa.Array:
    return pc.fill_null(pc.binary_length(column), 0).cast(pa.int64())


def _header_sizes(column: pa.Array) -> pa.Array:
    """The bytes of the headers of each row."""
    of_each = column.flatten()
    sizes = pc.add(pc.add(_lengths(of_each.field("key")), _lengths(of_each.field("value"))), HEADER_OVERHEAD_BYTES)
    totals = pa.concat_arrays([pa.array([0], pa.int64()), pc.cumulative_sum(sizes)])
    ends = pc.cumulative_sum(pc.fill_null(pc.list_value_length(column), 0).cast(pa.int64()))
    starts = pa.concat_arrays([pa.array([0], pa.int64()), ends[:-1]]) if len(ends) else ends
    return pc.subtract(totals.take(ends), totals.take(starts))
