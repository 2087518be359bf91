"""Spark's rows are what the reference reads, for every record set and for every damage to one."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.property.test_records_property import batches, record_sets
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.wire import compression
from zkconsumer.wire.entries import NO_END
from zkconsumer.wire.record_set_builder import build_record_set, varint
from zkconsumer.wire.records import Record, iter_records

pytest.importorskip("pyarrow", reason="the Spark source needs the extra [spark]")

from bridge.spark.decode.arrow_records import MS_MAX
from tests.spark_decoder_fixtures import batches_of, decoder, rows_of, target  # noqa: F401

DECLARED = InvalidMessageException, UnsupportedCodec
RUNS = settings(deadline=None, max_examples=200)
EXPANDED_MAX = 1 << 20


def rows(record_set: bytes, first: int = 0, end: int = NO_END, max_rows: int = 3) -> Iterator[Record]:
    """The records as they come out of Arrow."""
    into = target(max_rows=max_rows)
    return rows_of(batches_of(record_set, first, end, into, decompressed_bytes_max=EXPANDED_MAX))


def expected(record_set: bytes, first: int = 0, end: int = NO_END) -> Iterator[Record]:
    """What the reference gives; Spark's microseconds end earlier than Kafka's milliseconds."""
    for record in iter_records(record_set, first, end_offset=end, decompressed_bytes_max=EXPANDED_MAX):
        yield record._replace(timestamp=max(-MS_MAX, min(record.timestamp, MS_MAX)))


def outcome(records: Iterable[Record]) -> tuple[list[Record], object]:
    """The records before the error, and the error as far as a user sees it."""
    found: list[Record] = []
    try:
        for record in records:
            found.append(record)  # noqa: PERF402 (extend would lose what came before the error)
    except DECLARED as error:
        return found, (type(error), str(error), vars(error))
    return found, None


@RUNS
@given(record_sets(), st.sampled_from([1, 3, 1000]))
def test_the_same_records_come_out_in_every_format(made: tuple[bytes, list[Record], int], max_rows: int) -> None:
    assert list(rows(made[0], max_rows=max_rows)) == list(expected(made[0]))


@RUNS
@given(record_sets(), st.data())
def test_the_same_records_are_within_the_limits(made: tuple[bytes, list[Record], int], data: st.DataObject) -> None:
    record_set, records, _ = made
    some = st.sampled_from([r.offset for r in records] + [0, 2**62]) | st.integers(0, 2**61)
    first, end = data.draw(some), data.draw(some)
    assert list(rows(record_set, first, end)) == list(expected(record_set, first, end))


@RUNS
@given(st.integers(1, 60), st.integers(0, 300), st.sampled_from([0, 1, 2]), st.booleans(), st.integers(0, 2**32))
def test_many_batches_of_any_length_come_out(number: int, size: int, magic: int, packed: bool, seed: int) -> None:
    """Large and small ones, compressed and not, in any order: small tables are joined, large ones are not."""
    record_set, records, offset = b"", [], 0
    for batch in range(number):
        each = 1 + (seed >> (batch % 16)) % 30
        codec = compression.LZ4 if packed and seed >> (batch % 11) & 1 else compression.NONE
        made = []
        for index in range(each):
            length = (size * (index * 7 + batch * 13 + seed % 11)) % 301
            made.append(Record(offset, 5 if magic else -1, 0 if magic else -1, b"k" * (index % 3), b"v" * length, ()))
            offset += 1
        record_set += build_record_set(made, magic, codec)
        records += made
    assert list(rows(record_set, max_rows=100)) == records
    assert list(rows_of(batches_of(record_set, into=target(max_rows=1000, max_bytes=2_000)))) == records


@RUNS
@given(record_sets(), st.data())
def test_whatever_is_damaged_ends_in_the_same_error_behind_the_same_records(
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
    end_offset = data.draw(st.just(NO_END) | st.sampled_from([record.offset for record in made[1]]))
    assert outcome(rows(record_set, 0, end_offset)) == outcome(expected(record_set, 0, end_offset))


@RUNS
@given(batches(2, 0), st.integers(0, 3))
def test_control_batches_give_nothing(batch: list[Record], codec: int) -> None:
    assert list(rows(build_record_set(batch, 2, codec, control=True))) == []


def test_a_length_that_leaves_64_bits_is_refused() -> None:
    """The sum of the lengths would come back to the end of the record."""
    sound = build_record_set([Record(0, 0, 0, b"kk", b"vv", ())], 2)
    huge = varint(2**62)
    body = sound[61:]
    damaged = bytearray(sound[:61] + varint(len(huge) + 5) + body[1:4] + huge + b"xx")
    damaged[8:12] = (len(damaged) - 12).to_bytes(4, "big")
    damaged[17:21] = google_crc32c.value(bytes(damaged[21:])).to_bytes(4, "big")
    with pytest.raises(InvalidMessageException):
        list(rows(bytes(damaged)))
