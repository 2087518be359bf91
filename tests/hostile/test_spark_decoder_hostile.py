"""What a small record set may cost an executor: memory is bounded by bytes, whatever the bytes stand for."""

from __future__ import annotations

import struct
import tracemalloc
import zlib

import google_crc32c
import pytest

from zkconsumer.errors import InvalidMessageException
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.record_set_builder import build_record_set, varint

pytest.importorskip("pyarrow", reason="the Spark source needs the extra [spark]")

from bridge.spark.decode.arrow_schema import SCHEMA
from tests.spark_decoder_fixtures import batches_of, decoder, target  # noqa: F401

HEADERS_TOO = target(SCHEMA)
SMALL_RECORDS, HEADERS, RECORDS_WITH_HEADERS = 80_000, 20_000, 20

ONE_BATCH = 10 * 1024 * 1024
"""What one Arrow batch of 16,384 rows may take on the way, as objects or as a table; all of the records would take
several times as much."""


def batch(records: bytes, count: int, codec: int = compression.GZIP) -> bytes:
    """A compressed batch that holds these bytes as so many records."""
    payload = compression.compress(codec, records, 2)
    covered = struct.pack(">hiqqqhii", codec, count - 1, 0, 0, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", 0, 9 + len(covered), -1, 2, google_crc32c.value(covered)) + covered


def record(delta: int, headers: bytes = b"", count: int = 0) -> bytes:
    body = b"\0" + varint(0) + varint(delta) + varint(-1) + varint(-1) + varint(count) + headers
    return varint(len(body)) + body


def peak_of(record_set: bytes) -> tuple[int, int]:
    """The rows, and the most memory that was in use at a time; each batch is dropped before the next."""
    warm_up = build_record_set([Record(0, 5, 0, b"k", b"v", (("h", b"v"),))], 2, compression.GZIP)
    list(batches_of(warm_up, into=HEADERS_TOO))
    tracemalloc.start()
    try:
        rows = sum(each.num_rows for each in batches_of(record_set, into=HEADERS_TOO))
        return rows, tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_batch_of_many_small_records_takes_the_memory_of_one_arrow_batch() -> None:
    records = b"".join(map(record, range(SMALL_RECORDS)))
    record_set = batch(records, SMALL_RECORDS)
    assert len(record_set) < len(records) / 2
    rows, peak = peak_of(record_set)
    assert rows == SMALL_RECORDS
    assert peak < 2 * len(records) + ONE_BATCH


def test_headers_count_as_much_as_records() -> None:
    """About 1 KB with 400,000 headers."""
    headers = record(0, b"\0\1" * HEADERS, HEADERS)
    records = b"".join(record(n, b"\0\1" * HEADERS, HEADERS) for n in range(RECORDS_WITH_HEADERS))
    record_set = batch(records, RECORDS_WITH_HEADERS)
    assert len(record_set) < len(headers)
    rows, peak = peak_of(record_set)
    assert rows == RECORDS_WITH_HEADERS
    assert peak < 2 * len(records) + 2 * ONE_BATCH


def test_what_expands_too_far_is_refused_without_the_memory() -> None:
    bomb = batch(bytes(64 * 1024 * 1024), 1)
    assert len(bomb) < 100_000
    tracemalloc.start()
    try:
        with pytest.raises(InvalidMessageException, match="expands to more than 1048576 bytes"):
            list(batches_of(bomb, decompressed_bytes_max=1 << 20))
        assert tracemalloc.get_traced_memory()[1] < 8 * 1024 * 1024
    finally:
        tracemalloc.stop()


def message(offset: int, attributes: int, value: bytes, behind: bytes = b"") -> bytes:
    """Every release lets bytes behind the value of a message pass."""
    body = bytes([1, attributes]) + bytes(8) + struct.pack(">ii", -1, len(value)) + value + behind
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def with_bytes_behind(messages: int, number: int, value: bytes = b"v") -> bytes:
    """Compressed messages, each of which holds one with so many bytes behind its value."""
    inner = compression.compress(compression.LZ4, message(0, 0, value, bytes(number)), 1)
    return b"".join(message(offset, compression.LZ4, inner) for offset in range(messages))


def test_bytes_that_belong_to_no_field_are_not_kept() -> None:
    rows, peak = peak_of(with_bytes_behind(50, 2_000_000))
    assert rows == 50
    assert peak < 2 * ONE_BATCH


@pytest.mark.parametrize("value", [b"small", bytes(300_000)], ids=["a joined table", "a table of its own"])
def test_one_entry_is_expanded_at_a_time(value: bytes) -> None:
    _, of_one = peak_of(with_bytes_behind(1, 20_000_000, value))
    _, of_five = peak_of(with_bytes_behind(5, 20_000_000, value))
    assert of_five < 1.3 * of_one


@pytest.mark.parametrize("codec", [compression.GZIP, compression.LZ4])
def test_many_compressed_entries_are_expanded_a_part_at_a_time(codec: int) -> None:
    """Each stands for 200 KB; joined are as many as one Arrow batch may have."""
    entry = [
        build_record_set([Record(20 * n + index, 5, 0, None, bytes(10_000)) for index in range(20)], 2, codec)
        for n in range(200)
    ]
    record_set = b"".join(entry)
    assert len(record_set) < 1_000_000
    rows, peak = peak_of(record_set)
    assert rows == 4_000
    assert peak < ONE_BATCH
