"""Record sets as tables, by the compiled decoder.  Pure.

    record set --Cursor.table--> rows (positions and numbers of records) in the record set
                     |           or in what a compressed entry expanded to: ``compression.decompress``
                     |           or in a copy of several small entries
                     '- ODD --the reference reads this entry--> rows in bytes of their own

A table is a buffer of rows; no object is made for a record.  The reference is ``records.iter_records``: it reads each
entry that the compiled decoder does not accept, and only it raises errors.  So both return the same records and raise
the same errors.

Producers that do not wait send batches of a few records.  Where they are compressed, each has bytes of its own, and a
table for each would cost more than its records do.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterable, Iterator
from struct import Struct
from types import ModuleType
from typing import NamedTuple, TypeAlias

from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.types import RecordCounter
from zkconsumer.wire import compression
from zkconsumer.wire.entries import NO_END, LogEntry, Record, invalid_entry_error, iter_entries
from zkconsumer.wire.record_set_builder import varint
from zkconsumer.wire.records import DECOMPRESSED_BYTES_MAX, flat_bytes
from zkconsumer.wire.records_legacy import read_legacy_entry
from zkconsumer.wire.records_v2 import read_batch

TableData: TypeAlias = bytes | bytearray | memoryview

ROW = Struct("=qqiiiiiiii")
"""One row: offset, timestamp (ms since 1970), start and length of the key, start and length of the value, where the
headers start and end, their number, type of the timestamp.  A length of -1 is null."""

NO_LIMIT = 2**62
"""For ``max_bytes``: only the number of rows ends a table."""

JOINED_BYTES_MAX = 128 * 1024
"""Stays in a core's cache, and is as much as ``table_delivery.TABLE_ROWS`` records of 100 bytes.  A batch of a producer
with default settings has 16 KB, so some of them are joined when they have been compressed."""

DECODE_ERRORS = (InvalidMessageException, UnsupportedCodec)

REFERENCE_BYTES_MAX = 1 << 26
"""About how many bytes of keys, values and headers a table holds that the reference has read."""


class RecordTable(NamedTuple):
    """Records of one partition, in order of offset: ``size`` rows in ``rows``, whose positions are bytes of ``data``.

    Valid until the next table is requested: the buffer ``rows`` may be used again, ``data`` is not.
    """

    data: TableData
    rows: bytearray | memoryview
    size: int


class TableReader:
    """Reads a record set in tables: ``next`` goes to the next one, which is then in ``data``, ``rows`` and ``size``.

    ``decoder``: ``compiled.RECORD_DECODER``.  The records have ``start_offset`` <= offset < ``end_offset``.
    ``max_bytes``: no record of a table begins that many bytes after the first one.  ``joined_bytes_max``: small
    compressed entries that follow each other become one table, whose data is a copy of at most that many bytes;
    entries of more than a quarter of it are not joined.  ``excluded_batches``: as for ``iter_records``.
    ``with_instructions`` False: checksums without the processor's instructions.
    """

    __slots__ = (
        "_check_crcs",
        "_cursor",
        "_decompressed_bytes_max",
        "_end_offset",
        "_excluded_batches",
        "_flat",
        "_has_ended",
        "_max_bytes",
        "_of_reference",
        "_reference_rows",
        "_stops",
        "_table",
        "data",
        "rows",
        "size",
    )

    def __init__(
        self,
        decoder: ModuleType,
        record_set: bytes | memoryview,
        start_offset: int = 0,
        check_crcs: bool = True,
        *,
        end_offset: int = NO_END,
        excluded_batches: Collection[int] = (),
        max_bytes: int = NO_LIMIT,
        joined_bytes_max: int = JOINED_BYTES_MAX,
        decompressed_bytes_max: int = DECOMPRESSED_BYTES_MAX,
        with_instructions: bool = True,
    ) -> None:
        self._flat = flat_bytes(record_set)
        self._end_offset, self._max_bytes = end_offset, max_bytes
        self._check_crcs, self._decompressed_bytes_max = check_crcs, decompressed_bytes_max
        self._excluded_batches = excluded_batches
        positions = array("q", sorted(excluded_batches)) if excluded_batches else None
        self._cursor = decoder.Cursor(
            self._flat, start_offset, end_offset, check_crcs, positions, with_instructions, compression.decompress,
            compression.BLOCK_DECODERS, DECODE_ERRORS, decompressed_bytes_max, joined_bytes_max,
        )  # fmt: skip
        self._table = self._cursor.table
        self._stops = decoder.END, decoder.ODD
        self._has_ended = False
        self._of_reference: Iterator[RecordTable] | None = None
        """The tables of an entry that the reference reads."""
        self._reference_rows = bytearray()
        """Their rows: made for the first such entry, since a caller may keep its own buffers."""
        self.data: TableData = b""
        self.rows: bytearray | memoryview = bytearray()
        self.size = 0

    def next(self, buffer: bytearray | memoryview) -> bool:
        """Go to the next table, which is not empty; False: there is none.

        ``buffer``: for the rows, it becomes ``rows``; its size, a multiple of ``ROW.size``, bounds their number.  Rows
        of an entry that the reference has read are in another buffer, which is filled again.

        Raises as ``records.iter_records`` does, after the table with the records before the error.
        """
        self.data = b""  # the next entry is expanded now
        while True:
            if self._of_reference is not None:
                found = next(self._of_reference, None)
                if found is not None:
                    self.data, self.rows, self.size = found
                    return True
                self._of_reference = None
                self._cursor.skip()
            if self._has_ended:
                return False
            cursor = self._cursor
            try:
                data, count = self._table(buffer, self._max_bytes)
            except DECODE_ERRORS as error:
                raise invalid_entry_error(type(error), LogEntry(*cursor.entry), str(error)) from error
            end, odd = self._stops
            stop = cursor.stop
            if stop == end:
                self._has_ended = True
            elif stop == odd:
                self._of_reference = self._tables_of_reference(len(buffer))
            if count:
                self.data, self.rows, self.size = data, buffer, count
                return True

    def tables(self, buffer: bytearray) -> Iterator[RecordTable]:
        """All tables; ``buffer`` is filled again for each."""
        while self.next(buffer):
            yield RecordTable(self.data, self.rows, self.size)

    def _tables_of_reference(self, rows_bytes: int) -> Iterator[RecordTable]:
        """The tables of the entry where the compiled decoder has stopped."""
        cursor = self._cursor
        if not self._reference_rows:
            self._reference_rows = bytearray(rows_bytes)
        limits = _Limits(
            cursor.next_offset,
            self._end_offset,
            self._check_crcs,
            frozenset(self._excluded_batches),
            self._decompressed_bytes_max,
        )
        return _read_in_python(self._flat, cursor.position, cursor.offset_before, limits, self._reference_rows)


class _Limits(NamedTuple):
    start_offset: int
    end_offset: int
    check_crcs: bool
    excluded_batches: frozenset[int]
    decompressed_bytes_max: int


def _read_in_python(
    flat: bytes | memoryview, position: int, offset_before: int, limits: _Limits, rows: bytearray
) -> Iterator[RecordTable]:
    """The records of the entry at ``position``; raises its error after the records before it."""
    entry = next(iter_entries(flat, position, offset_before), None)
    if entry is None:
        return
    # An entry that ends below the start offset is not opened.  This one may be damaged after its last record.
    start = min(limits.start_offset, entry.last_offset)
    most, tally = limits.decompressed_bytes_max, RecordCounter()
    if entry.magic < 2:
        records = read_legacy_entry(
            flat, entry, offset_before, start, limits.check_crcs, most, tally, end_offset=limits.end_offset
        )
    else:
        start = entry.last_offset + 1 if position in limits.excluded_batches else start
        records = read_batch(flat, entry, start, limits.check_crcs, most, tally, end_offset=limits.end_offset)
    yield from tables_from_records((record for record in records if record.offset >= limits.start_offset), rows)


def tables_from_records(records: Iterable[Record], rows: bytearray) -> Iterator[RecordTable]:
    """Tables of records that were read one by one; all bytes are copied.

    An error of ``records`` is raised behind the table with the records before it.
    """
    data, count, failure = bytearray(), 0, None
    iterator = iter(records)
    while failure is None:
        try:
            record = next(iterator, None)
        except DECODE_ERRORS as error:
            record, failure = None, error
        if record is not None:
            _put(record, data, rows, count)
            count += 1
        if count and (record is None or (count + 1) * ROW.size > len(rows) or len(data) >= REFERENCE_BYTES_MAX):
            yield RecordTable(data, rows, count)
            data, count = bytearray(), 0
        if record is None and failure is None:
            return
    raise failure


def _put(record: Record, data: bytearray, rows: bytearray, index: int) -> None:
    key_start, key_length = _append(data, record.key)
    value_start, value_length = _append(data, record.value)
    headers_start = len(data)
    for name, value in record.headers:
        encoded = name.encode()
        data += varint(len(encoded)) + encoded
        data += varint(-1) if value is None else varint(len(value)) + value
    ROW.pack_into(
        rows, index * ROW.size, record.offset, record.timestamp, key_start, key_length, value_start, value_length,
        headers_start, len(data), len(record.headers), record.timestamp_type,
    )  # fmt: skip


def _append(data: bytearray, field: bytes | None) -> tuple[int, int]:
    start = len(data)
    if field is None:
        return start, -1
    data += field
    return start, len(field)
