"""``RecordSetReader``: reads the records of a fetched record set in portions, for ``CompletedFetch``.  Pure.

    record set --wire.record_tables--> tables --RecordSetReader.peek / skip--> slices of at most so many records
             '--wire.records, without the compiled decoder--> lists of records ----'

It decodes lazily: an entry is checked and decompressed when its first record is requested.  Control batches, and with
``read_committed`` the batches of aborted transactions, have no records here.

A chunk is one of these tables or lists.

Invariants: of the ``count`` records of the present chunk, those before ``begin`` were skipped; ``_bytes_before`` has
the bytes of the chunks before it.  ``_error`` is the error of the entry after them; once set it stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from struct import Struct
from typing import NamedTuple

from zkconsumer.kafka.fetch.fetched_records import BatchEpochs
from zkconsumer.kafka.net.frame_receiver import uninitialized_bytes
from zkconsumer.kafka.record_columns import BatchColumns, RecordColumns, TableColumns
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import Record, iter_entries
from zkconsumer.wire.primitives import RecordSet
from zkconsumer.wire.record_tables import DECODE_ERRORS, ROW, TableData, TableReader
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

    def kept_rows(self, rows: bytearray | memoryview, size: int) -> bytes | bytearray:
        """The first rows of a table, perhaps with others after them, which stay as they are."""
        size_bytes = size * ROW.size
        buffer = self._next
        if buffer is None or memoryview(rows).obj is not buffer or 2 * size_bytes < len(buffer):
            return bytes(memoryview(rows)[:size_bytes])
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


class RecordSetReader:
    """See the module.  ``excluded``: of ``excluded_batches``.

    ``first_list``: how many records are read first.  ``count``: of the chunk's records; those before ``begin`` were
    skipped.  ``data``, ``rows``: its table, with a view of the offset of each row in ``offsets``; a caller may take
    rows of it instead of ``peek``, which saves calls.  ``data`` None: the records are in a list.
    """

    __slots__ = (
        "_buffers",
        "_bytes_before",
        "_error",
        "_first_list",
        "_list",
        "_lists",
        "_tables",
        "begin",
        "count",
        "data",
        "is_reading",
        "offsets",
        "rows",
    )

    def __init__(
        self,
        record_set: RecordSet,
        start_offset: int,
        buffers: RowBuffers,
        check_crcs: bool,
        excluded: list[int],
        first_list: int,
    ) -> None:
        self._buffers = buffers
        self._first_list = first_list
        self.begin = self.count = 0
        self.data: TableData | None = None
        self.rows: bytes | bytearray = b""
        self.offsets = memoryview(b"")
        self.is_reading = False
        """Between two calls: an exception of a signal handler has ended ``next_chunk``, and records may be missing."""
        self._list: list[Record] = []
        self._bytes_before = 0
        self._error: Exception | None = None
        decoder = compiled.RECORD_DECODER
        self._tables: TableReader | None = None
        self._lists: Iterator[list[Record]] = iter(())
        if decoder is not None:
            self._tables = TableReader(decoder, record_set, start_offset, check_crcs, excluded_batches=excluded)
        else:
            records = iter_records(record_set, start_offset, check_crcs, excluded_batches=frozenset(excluded))
            self._lists = lists_of(records, buffers.table_rows)

    def peek(self, records_max: int) -> RecordsPart | None:
        """The next records, at least one; None: there is none.

        ``InvalidMessageException``, ``UnsupportedCodec``: the next entry is damaged; raised again by each call.
        """
        if self.begin == self.count and not self.next_chunk():
            return None
        begin = self.begin
        end = min(begin + records_max, self.count)
        if self.data is None:
            records = self._list[begin:end]
            return RecordsPart(RecordColumns(records), end - begin, records[-1].offset)
        return RecordsPart(TableColumns(self.data, self.rows, end - begin, begin), end - begin, self.offsets[end - 1])

    def skip(self, size: int) -> None:
        """Skip so many records of ``peek``."""
        self.begin += size
        assert self.begin <= self.count, "these were peeked"

    @property
    def size_bytes(self) -> int:
        """About how many bytes the skipped records have."""
        return self._bytes_before + self._chunk_bytes()

    def next_chunk(self) -> bool:
        """Go to the records after those of this chunk; False: there is none; the same errors as ``peek``."""
        if self._error is not None:
            raise self._error
        self.is_reading = True
        self._bytes_before += self._chunk_bytes()
        self.begin = self.count = 0
        try:
            if self._tables is not None:
                self._next_table(self._tables)
            else:
                self._list = next(self._lists, [])
                self.count = len(self._list)
        except DECODE_ERRORS as error:
            self._error = error
            self.is_reading = False
            raise
        self.is_reading = False
        return self.count > 0

    def _next_table(self, tables: TableReader) -> None:
        buffers = self._buffers
        self.data = None  # the next entry is expanded now
        buffer = buffers.next_buffer(self._first_list)
        self._first_list = buffers.records_max
        if tables.next(buffer):
            self.data, size = tables.data, tables.size
            self.rows = rows = buffers.kept_rows(tables.rows, size)
            self.offsets = memoryview(rows).cast("q")[::_LONGS_OF_ROW]
            self.count = size

    def _chunk_bytes(self) -> int:
        """From the first key to the end of the last skipped record of a table: also what is between records."""
        if not self.begin:
            return 0
        if self.data is None:
            return sum(len(record.key or b"") + len(record.value or b"") for record in self._list[: self.begin])
        ints, last = memoryview(self.rows).cast("i"), (self.begin - 1) * _INTS_OF_ROW
        value_end = ints[last + _VALUE_START] + max(0, ints[last + _VALUE_LENGTH])
        return max(value_end, ints[last + _HEADERS_END]) - ints[_KEY_START]


def lists_of(records: Iterator[Record], size: int) -> Iterator[list[Record]]:
    """The records in lists of this size.  The records before an error come first, then the error."""
    failure: Exception | None = None
    while failure is None:
        found: list[Record] = []
        try:
            for record in islice(records, size):
                found.append(record)  # noqa: PERF402 (those before an error stay)
        except DECODE_ERRORS as error:
            failure = error
        if found:
            yield found
        elif failure is None:
            return
    raise failure
