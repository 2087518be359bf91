"""``RowBuffers``: a table keeps its buffer, and no other table writes into it."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from zkconsumer.kafka.fetch.record_set_reader import TABLE_ROWS_MAX, TABLE_ROWS_MIN, RecordSetReader, RowBuffers
from zkconsumer.kafka.record_columns import TableColumns
from zkconsumer.wire import compiled
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.record_tables import ROW, TableReader

pytestmark = pytest.mark.skipif(compiled.RECORD_DECODER is None, reason="tables are made by the compiled decoder")


def record_set_of(count: int) -> bytes:
    return build_record_set([Record(n, 0, 0, b"k", b"v%d" % n, ()) for n in range(count)], 2)


def test_a_table_keeps_its_buffer_if_it_fills_half_of_it_and_the_next_table_has_another_one() -> None:
    count = 2 * TABLE_ROWS_MIN + 5
    reader = RecordSetReader(record_set_of(count), 0, RowBuffers(1), True, [], first_list=1)
    found: list[TableColumns] = []
    while (part := reader.peek(TABLE_ROWS_MIN)) is not None:
        reader.skip(part.size)
        assert isinstance(part.columns, TableColumns)
        found.append(part.columns)
    first, second, last = found
    assert [len(first), len(second), len(last)] == [TABLE_ROWS_MIN, TABLE_ROWS_MIN, 5]
    assert isinstance(first.rows, bytearray)
    assert first.rows is not second.rows
    assert len(last.rows) == 5 * ROW.size, "a copy: it fills less than half"
    offsets = [record.offset for columns in found for record in columns.records(0, len(columns))]
    assert offsets == list(range(count))


def test_only_the_first_list_is_short_if_it_completes_the_list_of_another_fetch() -> None:
    """With tables of equal size each list after it would end in another table than it begins."""
    buffers = RowBuffers(1000)
    reader = RecordSetReader(record_set_of(3 * buffers.table_rows), 0, buffers, True, [], first_list=300)
    sizes = []
    while (part := reader.peek(1000 if sizes else 300)) is not None:
        reader.skip(part.size)
        sizes.append(part.size)
    assert sizes == [300, *[1000] * (3 * buffers.table_rows // 1000 - 1), 700]


def test_tables_of_small_fetches_share_one_buffer_whatever_is_read_of_them_first() -> None:
    """A poll of many partitions with a few records each allocates no memory for each of them."""
    buffers = RowBuffers(500)
    whole = buffers.next_buffer(500)
    for first_list in (499, 300, 1):
        reader = RecordSetReader(record_set_of(3), 0, buffers, True, [], first_list)
        assert reader.peek(3) is not None
    assert buffers.next_buffer(500) is whole


def test_a_first_table_that_is_shorter_keeps_the_buffer_if_it_fills_half_of_it() -> None:
    buffers = RowBuffers(500)
    whole = buffers.next_buffer(500)
    reader = RecordSetReader(record_set_of(2 * buffers.table_rows), 0, buffers, True, [], first_list=300)
    part = reader.peek(300)
    assert part is not None
    assert isinstance(part.columns, TableColumns)
    assert part.columns.rows is whole
    assert buffers.next_buffer(500) is not whole


def test_lists_that_are_larger_than_any_table_change_no_table() -> None:
    buffers = RowBuffers(10 * TABLE_ROWS_MAX)
    assert len(buffers.next_buffer(5)) == TABLE_ROWS_MAX * ROW.size


def test_tables_of_an_entry_that_the_compiled_decoder_does_not_accept_are_in_a_buffer_that_is_not_kept() -> None:
    class OddCursor:
        """A cursor that accepts no entry."""

        position, offset_before, next_offset, stop = 0, -1, 0, "odd"

        def __init__(self, *_: Any) -> None:
            pass

        def table(self, rows: bytearray, max_bytes: int) -> tuple[None, int]:
            return None, 0

        def skip(self) -> None:
            self.stop = "end"

    shared = bytearray(4 * ROW.size)
    decoder: Any = SimpleNamespace(Cursor=OddCursor, END="end", ODD="odd")
    sizes = []
    reader = TableReader(decoder, record_set_of(10))
    while reader.next(shared):
        assert reader.rows is not shared
        sizes.append(reader.size)
    assert sizes == [4, 4, 2]
