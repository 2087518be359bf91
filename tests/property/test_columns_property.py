"""The columnar reader gives what the record reader gives, for every record set and for every damage to one."""

from __future__ import annotations

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_records_property import batches, record_sets
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.wire.build import build_record_set, varint
from zkconsumer.wire.records import Record, iter_records

pytest.importorskip("pyarrow", reason="the columnar reader needs the extra [spark]")

from bridge.spark.arrow import SCHEMA, record_batches
from bridge.spark.columns import read_columns
from bridge.spark.spans import Number
from tests.fix_decoder import decoder  # noqa: F401

DECLARED = InvalidMessageException, UnsupportedCodec
RUNS = settings(deadline=None, max_examples=200)


def rows(record_set: bytes, first: int = 0, end: int = 2**63 - 1, batch_rows: int = 3) -> list[Record]:
    """The records as they come out of Arrow."""
    found = []
    for columns in read_columns(record_set, first, end, with_headers=True, decompressed_bytes_max=1 << 20):
        offsets = [b.column("timestampType").to_pylist() for b in record_batches(columns, "t", 0, SCHEMA, batch_rows)]
        assert sum(map(len, offsets)) == len(columns)
        at = 0
        for batch in record_batches(columns, "t", 0, SCHEMA, batch_rows):
            batch.validate(full=True)
            for row in batch.drop_columns(["timestamp"]).to_pylist():
                headers = tuple((header["key"], header["value"]) for header in row["headers"] or ())
                timestamp = int(columns.of(Number.TIMESTAMP)[at])
                found.append(
                    Record(row["offset"], timestamp, row["timestampType"], row["key"], row["value"], headers)
                )
                at += 1
    return found


def expected(record_set: bytes, first: int = 0, end: int = 2**63 - 1) -> list[Record]:
    return [r for r in iter_records(record_set, first, decompressed_bytes_max=1 << 20) if r.offset < end]


@RUNS
@given(record_sets())
def test_the_same_records_come_out_in_every_format(made: tuple[bytes, list[Record], int]) -> None:
    assert rows(made[0]) == expected(made[0])


@RUNS
@given(record_sets(), st.data())
def test_the_same_records_are_within_the_limits(made: tuple[bytes, list[Record], int], data: st.DataObject) -> None:
    record_set, records, _ = made
    some = st.sampled_from([r.offset for r in records] + [0, 2**62]) | st.integers(0, 2**61)
    first, end = data.draw(some), data.draw(some)
    assert rows(record_set, first, end) == expected(record_set, first, end)


@RUNS
@given(st.integers(1, 400), st.integers(0, 300), st.data())
def test_many_batches_of_any_length_come_out(number: int, size: int, data: st.DataObject) -> None:
    """Enough of them to go through all three ways of walking."""
    seed = data.draw(st.integers(0, 2**32))
    same = data.draw(st.booleans())
    record_set, records, offset = b"", [], 0
    for batch in range(number):
        each = 1 + (seed >> (batch % 16)) % 30
        made = []
        for index in range(each):
            length = size if same else (size * (index * 7 + batch * 13 + seed % 11)) % 301
            made.append(Record(offset, 1_700_000_000_000 + offset, 0, b"k" * (index % 3), b"v" * length, ()))
            offset += 1
        record_set += build_record_set(made, 2, 0)
        records += made
    assert rows(record_set, batch_rows=1000) == records


@RUNS
@given(record_sets(), st.data())
def test_whatever_is_damaged_is_refused_by_both_or_read_alike(
    made: tuple[bytes, list[Record], int], data: st.DataObject
) -> None:
    """Bits are turned anywhere, and the checksum of a batch is made right again, so that its insides are believed."""
    damaged = bytearray(made[0])
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(damaged) - 1))] ^= data.draw(st.integers(1, 255))
    if len(damaged) > 61 and damaged[16] == 2:
        end = min(len(damaged), 12 + int.from_bytes(damaged[8:12], "big", signed=False))
        damaged[17:21] = google_crc32c.value(bytes(damaged[21:end])).to_bytes(4, "big")
    record_set = bytes(damaged)
    try:
        known: list[Record] | None = expected(record_set)
    except DECLARED:
        known = None
    try:
        found: list[Record] | None = rows(record_set)
    except DECLARED:
        found = None
    assert found == known


@given(batches(2, 0), st.integers(0, 3))
def test_control_batches_give_nothing(batch: list[Record], codec: int) -> None:
    assert rows(build_record_set(batch, 2, codec, control=True)) == []


def test_a_length_that_leaves_64_bits_is_refused() -> None:
    """The sum of the lengths would come back to the end of the record."""
    sound = build_record_set([Record(0, 0, 0, b"kk", b"vv", ())], 2)
    huge = varint(2**62)
    body = sound[61:]
    damaged = bytearray(sound[:61] + varint(len(huge) + 5) + body[1:4] + huge + b"xx")
    damaged[8:12] = (len(damaged) - 12).to_bytes(4, "big")
    damaged[17:21] = google_crc32c.value(bytes(damaged[21:])).to_bytes(4, "big")
    with pytest.raises(InvalidMessageException):
        rows(bytes(damaged))


