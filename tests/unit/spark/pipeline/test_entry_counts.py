"""Records, markers and holes of record sets in all formats; a hole counts only if a later entry proves it."""

from __future__ import annotations

import pytest

from bridge.spark.pipeline.audit.entry_counts import OffsetCounts, count_entries
from tests.transactional_records import ABORT, COMMIT, batch, marker
from zkconsumer.errors import UnsupportedCodec
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set

GZIP = 1


def records(*offsets: int) -> list[Record]:
    return [Record(offset, 0, 0, None, b"v") for offset in offsets]


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_records_and_holes_between_entries(magic: int, codec: int) -> None:
    data = build_record_set(records(0, 1, 2), magic, codec) + build_record_set(records(7, 8, 9), magic, codec)
    assert count_entries(data, 0, 10) == (OffsetCounts(records=6, absent=4), 10)
    assert count_entries(data, 1, 8) == (OffsetCounts(records=3, absent=4), 8)
    assert count_entries(data, 4, 6) == (OffsetCounts(absent=2), 6)


@pytest.mark.parametrize("codec", [0, GZIP])
@pytest.mark.parametrize("magic", [1, 2])
def test_holes_in_an_entry(magic: int, codec: int) -> None:
    data = build_record_set(records(0, 3, 5), magic, codec)
    assert count_entries(data, 0, 6) == (OffsetCounts(records=3, absent=3), 6)
    assert count_entries(data, 0, 4) == (OffsetCounts(records=2, absent=2), 4)
    assert count_entries(data, 2, 5) == (OffsetCounts(records=1, absent=2), 5)


def test_a_batch_without_records_keeps_its_offsets_as_a_hole() -> None:
    data = build_record_set([], 2, base_offset=4, last_offset=9)
    assert count_entries(data, 4, 20) == (OffsetCounts(absent=6), 10)


def test_the_end_of_an_answer_proves_no_hole() -> None:
    data = build_record_set(records(0, 1), 2)
    assert count_entries(data, 0, 100) == (OffsetCounts(records=2), 2)
    assert count_entries(data[:-1], 0, 100) == (OffsetCounts(), 0)
    assert count_entries(b"", 5, 100) == (OffsetCounts(), 5)


def test_a_later_entry_proves_a_hole_up_to_the_end_of_the_range() -> None:
    data = build_record_set(records(0), 2) + build_record_set(records(50), 2)
    assert count_entries(data, 0, 10) == (OffsetCounts(records=1, absent=9), 10)


def test_markers_and_aborted_records_are_no_records() -> None:
    data = batch(0, 5, 7) + marker(5, 7, ABORT) + batch(6, 2, 8) + marker(8, 8, COMMIT)
    assert count_entries(data, 0, 9) == (OffsetCounts(records=7, markers=2), 9)
    assert count_entries(data, 0, 9, {0}) == (OffsetCounts(records=2, markers=2, aborted=5), 9)
    assert count_entries(data, 2, 5, {0}) == (OffsetCounts(aborted=3), 5)
    assert count_entries(data, 0, 5) == (OffsetCounts(records=5), 5)


def test_an_entry_before_the_first_offset_is_not_counted() -> None:
    data = build_record_set(records(0, 1), 2) + build_record_set(records(2, 3), 2)
    assert count_entries(data, 2, 4) == (OffsetCounts(records=2), 4)


def test_a_count_in_a_header_that_is_damaged_is_bounded_by_the_offsets() -> None:
    data = bytearray(build_record_set(records(0, 1, 2), 2))
    data[57:61] = (2**31 - 1).to_bytes(4, "big")
    assert count_entries(bytes(data), 0, 3) == (OffsetCounts(records=3), 3)
    data[57:61] = b"\xff\xff\xff\xff"
    assert count_entries(bytes(data), 0, 3) == (OffsetCounts(absent=3), 3)


def test_an_unknown_format_is_an_error() -> None:
    data = bytearray(build_record_set(records(0), 2))
    data[16] = 9
    with pytest.raises(UnsupportedCodec):
        count_entries(bytes(data), 0, 1)


def test_counts_add_up() -> None:
    one = OffsetCounts(1, 2, 3, 4, 5, 6, 7)
    assert (one + one).offsets == 2 * one.offsets == 56
