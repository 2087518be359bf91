"""``RecordSetReader``: reads the records of a fetched record set in portions, for ``CompletedFetch``.  Pure.

    record set --wire.record_tables--> tables --RecordSetReader.peek / skip--> slices of at most so many records
             '--wire.records, without the compiled decoder--> lists of records ----'

It decodes lazily: an entry is checked and decompressed when its first record is requested.  Control batches, and with
``read_committed`` the batches of aborted transactions, have no records here.

Invariants: ``chunk`` has records that were decoded and not skipped, from ``begin`` on, or is None; ``_bytes_before``
has the bytes of the chunks before it.  ``_error`` is the error of the entry after them; once set it stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from struct import Struct
from typing import NamedTuple, Protocol

from zkconsumer.kafka.fetch.fetched_records import BatchEpochs
from zkconsumer.kafka.net.frame_receiver import uninitialized_bytes
from zkconsumer.kafka.record_columns import BatchColumns, RecordColumns, TableColumns
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import Record, iter_entries
from zkconsumer.wire.primitives import RecordSet
from zkconsumer.wire.record_tables import DECODE_ERRORS, ROW, RecordTable, TableData, read_tables
from zkconsumer.wire.records import iter_records
from zkconsumer.wire.transactions import aborted_batches, read_aborted_transactions

TABLE_ROWS_MIN, TABLE_ROWS_MAX = 4 * 1024, 16 * 1024
"""The rows of one table: 192 to 768 KB."""

_LEADER_EPOCH_POSITION = 12
_INT32 = Struct(">i")
_INTS_OF_ROW, _LONGS_OF_ROW = ROW.size // 4, ROW.size // 8
_KEY_START, _VALUE_START, _VALUE_LENGTH, _HEADERS_END = 4, 6, 7, 9


class RowBuffers:
    """Buffers for tables of records of which at most ``records_max`` are read at a time; the readers of one thread may
    share them.

    A table that fills at least half of its buffer keeps it.  Of a smaller one the rows are copied, so that a few rows
    do not keep the whole buffer.
    """

    __slots__ = ("_next", "records_max", "table_rows")

    def __init__(self, records_max: int) -> None:
        small_lists = -(-TABLE_ROWS_MIN // records_max)
        self.records_max = records_max
        self.table_rows = min(small_lists * records_max, TABLE_ROWS_MAX)
        """The most rows of a table: a multiple of ``records_max``, so that most lists come from one table."""
        self._next: bytearray | None = None

    def next_buffer(self, first_list: int) -> bytearray | memoryview:
        """The buffer for the next table, with undefined content.

        ``first_list``: how many rows of it are read first; ``records_max`` are read each time after that.
        """
        if self._next is None:
            self._next = uninitialized_bytes(self.table_rows * ROW.size)
        if first_list < self.records_max <= self.table_rows:
            return memoryview(self._next)[: (self.table_rows - self.records_max + first_list) * ROW.size]
        return self._next

    def kept_rows(self, table: RecordTable) -> bytes | bytearray:
        """The rows of a table, perhaps with others after them, which stay as they are."""
        size_bytes = table.size * ROW.size
        buffer = self._next
        if buffer is None or memoryview(table.rows).obj is not buffer or 2 * size_bytes < len(buffer):
            return bytes(memoryview(table.rows)[:size_bytes])
        self._next = None
        return buffer


class RecordSetOutline(NamedTuple):
    """``begin``: the byte of the first entry that covers the requested offset, or a later one."""

    begin: int
    epochs: BatchEpochs


def outline_of(record_set: RecordSet, start_offset: int) -> RecordSetOutline:
    """Read the headers of the entries, up to the first damaged one.

    Entries before ``begin`` are not needed, and it does not matter whether they are damaged: after a seek past a
    damaged entry, a broker may still send it.
    """
    if compiled.RECORD_DECODER is not None:
        begin, starts, epochs = compiled.RECORD_DECODER.outline(record_set, start_offset)
        return RecordSetOutline(begin, BatchEpochs(starts, epochs))
    return outline_in_python(record_set, start_offset)


def outline_in_python(record_set: RecordSet, start_offset: int) -> RecordSetOutline:
    """The same in Python, which is the reference."""
    starts: list[int] = []
    epochs: list[int | None] = []
    next_offset = begin = 0
    try:
        for entry in iter_entries(record_set):
            if entry.last_offset < start_offset:
                begin = entry.end
            epoch = None
            if entry.magic > 1:
                number = _INT32.unpack_from(record_set, entry.position + _LEADER_EPOCH_POSITION)[0]
                epoch = number if number >= 0 else None
            if not epochs or epochs[-1] != epoch:
                starts.append(next_offset)
                epochs.append(epoch)
            next_offset = entry.last_offset + 1
    except DECODE_ERRORS:
        pass  # the reader of the records raises it
    return RecordSetOutline(begin, BatchEpochs(starts, epochs))


def excluded_batches(record_set: RecordSet, aborted: bytes) -> list[int]:
    """The positions of the batches of these aborted transactions, up to the first damaged header."""
    transactions = read_aborted_transactions(aborted)
    try:
        return aborted_batches(record_set, transactions)
    except DECODE_ERRORS as error:
        # The bytes before are sound, and the reader of the records raises the error.
        return aborted_batches(record_set[: vars(error)["position"]], transactions)


class RecordsPart(NamedTuple):
    """Records that follow each other: how many, and the offset of the last one."""

    columns: BatchColumns
    size: int
    last_offset: int


class _Chunk(Protocol):
    """Decoded records; ``count``: how many."""

    @property
    def count(self) -> int: ...

    def part(self, begin: int, end: int) -> RecordsPart:
        """These records."""

    def size_bytes(self, end: int) -> int:
        """About how many bytes the records before ``end`` have."""


class TableChunk:
    """Rows of a decoded table, with the ``data`` that they refer to; ``offsets``: a view of the offset of each row."""

    __slots__ = ("count", "data", "offsets", "rows")

    def __init__(self, table: RecordTable, buffers: RowBuffers) -> None:
        self.data: TableData = table.data
        self.rows = buffers.kept_rows(table)
        self.offsets = memoryview(self.rows).cast("q")[::_LONGS_OF_ROW]
        self.count = table.size

    def part(self, begin: int, end: int) -> RecordsPart:
        size = end - begin
        return RecordsPart(TableColumns(self.data, self.rows, size, begin), size, self.offsets[end - 1])

    def size_bytes(self, end: int) -> int:
        """From the first key to the end of the last record: also what is between records."""
        ints, last = memoryview(self.rows).cast("i"), (end - 1) * _INTS_OF_ROW
        value_end = ints[last + _VALUE_START] + max(0, ints[last + _VALUE_LENGTH])
        return max(value_end, ints[last + _HEADERS_END]) - ints[_KEY_START]


class _ListChunk:
    def __init__(self, records: list[Record]) -> None:
        self._records = records
        self.count = len(records)

    def part(self, begin: int, end: int) -> RecordsPart:
        records = self._records[begin:end]
        return RecordsPart(RecordColumns(records), end - begin, records[-1].offset)

    def size_bytes(self, end: int) -> int:
        return sum(len(record.key or b"") + len(record.value or b"") for record in self._records[:end])


@dataclass(slots=True, eq=False)
class RecordSetReader:
    """See the module.  ``excluded``: of ``excluded_batches``.

    ``first_list``: how many records are read first.  ``chunk``, ``begin``: a caller may take rows of a ``TableChunk``
    instead of ``peek``, which saves calls.
    """

    record_set: RecordSet
    start_offset: int
    buffers: RowBuffers
    check_crcs: bool
    excluded: list[int]
    first_list: int
    _chunks: Iterator[_Chunk] = field(init=False)
    chunk: _Chunk | None = field(init=False, default=None)
    begin: int = field(init=False, default=0)
    _bytes_before: int = field(init=False, default=0)
    _error: Exception | None = field(init=False, default=None)

    def __post_init__(self) -> None:
        self._chunks = self._tables() if compiled.RECORD_DECODER is not None else self._lists()

    def peek(self, records_max: int) -> RecordsPart | None:
        """The next records, at least one; None: there is none.

        ``InvalidMessageException``, ``UnsupportedCodec``: the next entry is damaged; raised again by each call.
        """
        chunk = self.chunk
        if chunk is None or self.begin == chunk.count:
            chunk = self.next_chunk()
            if chunk is None:
                return None
        begin, end = self.begin, self.begin + records_max
        return chunk.part(begin, end if end < chunk.count else chunk.count)

    def skip(self, size: int) -> None:
        """Skip so many records of ``peek``."""
        self.begin += size
        assert self.chunk is not None, "peeked before"
        assert self.begin <= self.chunk.count, "these were peeked"

    @property
    def size_bytes(self) -> int:
        """About how many bytes the skipped records have."""
        return self._bytes_before + (self.chunk.size_bytes(self.begin) if self.chunk and self.begin else 0)

    def next_chunk(self) -> _Chunk | None:
        """Go to the records after those of ``chunk``; the same errors as ``peek``."""
        if self._error is not None:
            raise self._error
        self._bytes_before, self.chunk, self.begin = self.size_bytes, None, 0
        try:
            self.chunk = next(self._chunks, None)
        except DECODE_ERRORS as error:
            self._error = error
            raise
        return self.chunk

    def _tables(self) -> Iterator[_Chunk]:
        decoder = compiled.RECORD_DECODER
        assert decoder is not None, "tables are made by it"
        tables = read_tables(
            decoder,
            self.record_set,
            self._next_buffer,
            self.start_offset,
            self.check_crcs,
            excluded_batches=self.excluded,
        )
        return (TableChunk(table, self.buffers) for table in tables)

    def _next_buffer(self) -> bytearray | memoryview:
        buffer = self.buffers.next_buffer(self.first_list)
        self.first_list = self.buffers.records_max
        return buffer

    def _lists(self) -> Iterator[_Chunk]:
        """The records before an error come first, then the error."""
        records = iter_records(
            self.record_set, self.start_offset, self.check_crcs, excluded_batches=frozenset(self.excluded)
        )
        size = self.buffers.table_rows
        failure: Exception | None = None
        while failure is None:
            found: list[Record] = []
            try:
                for record in islice(records, size):
                    found.append(record)  # noqa: PERF402 (those before an error stay)
            except DECODE_ERRORS as error:
                failure = error
            if found:
                yield _ListChunk(found)
            elif failure is None:
                return
        raise failure
