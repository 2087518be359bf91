"""What must hold for every record set, and for every damage to one."""

from __future__ import annotations

import struct
import zlib
from contextlib import suppress
from itertools import pairwise

import cramjam
import google_crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.codec_fixtures import INSTALLED, decoding_with
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.wire.compression import compress, decompress
from zkconsumer.wire.record_set_builder import build_record_set, varint
from zkconsumer.wire.records import Record, iter_records, scan_record_set

DECLARED = InvalidMessageException, UnsupportedCodec
DECOMPRESSED_BYTES_MAX = 1 << 20
PACKAGES = ((None, None), INSTALLED)
"""The default, and what the extra ``[fast]`` installs (where it is not installed, the default once more)."""

RUNS = settings(deadline=None, max_examples=150)

formats = st.sampled_from([(magic, codec) for magic in (0, 1, 2) for codec in range(5 if magic == 2 else 4)])
fields = st.none() | st.binary(max_size=40) | st.integers(50, 300).map(lambda size: b"word " * size)
timestamps = st.integers(-1, 2**42) | st.integers(-(2**63), 2**63 - 1)
headers = st.lists(st.tuples(st.text(max_size=8), st.none() | st.binary(max_size=8)), max_size=3)


@st.composite
def batches(draw: st.DrawFn, magic: int, first_offset: int) -> list[Record]:
    """One to six records of a format, from ``first_offset`` on, with gaps."""
    records = []
    offset = first_offset - 1
    for gap in draw(st.lists(st.integers(1, 3) | st.integers(1, 10**6), min_size=1, max_size=6)):
        offset += gap
        timestamp = draw(timestamps) if magic else -1
        own_headers = tuple(draw(headers)) if magic == 2 else ()
        records.append(Record(offset, timestamp, 0 if magic else -1, draw(fields), draw(fields), own_headers))
    return records


@st.composite
def record_sets(draw: st.DrawFn) -> tuple[bytes, list[Record], int]:
    """A record set of one to three parts in any formats; its records; the number of its shallow entries."""
    record_set, records, entries = b"", [], 0
    first_offset = draw(st.integers(0, 2**60))
    for magic, codec in draw(st.lists(formats, min_size=1, max_size=3)):
        batch = draw(batches(magic, first_offset))
        record_set += build_record_set(batch, magic, codec)
        records += batch
        entries += len(batch) if magic < 2 and codec == 0 else 1
        first_offset = batch[-1].offset + 1
    return record_set, records, entries


def readable(record_set: bytes, check_crcs: bool = True) -> list[Record]:
    """The records before the first declared error; any other error fails the test."""
    records = []
    with suppress(*DECLARED):
        for record in iter_records(record_set, 0, check_crcs, decompressed_bytes_max=DECOMPRESSED_BYTES_MAX):
            records.append(record)  # noqa: PERF402 (extend would lose what came before the error)
    return records


def assert_well_formed(records: list[Record]) -> None:
    """Whatever the bytes were, a record can be used: in order, typed, and within 64 bits."""
    assert all(before.offset < after.offset for before, after in pairwise(records))
    for record in records:
        assert 0 <= record.offset < 2**63 - 1
        assert -(2**63) <= record.timestamp < 2**63
        assert record.timestamp_type in (-1, 0, 1)
        assert all(field is None or type(field) is bytes for field in (record.key, record.value))
        assert all(type(key) is str and (value is None or type(value) is bytes) for key, value in record.headers)


def payloads(records: list[Record]) -> list[tuple[bytes | None, bytes | None]]:
    return [(record.key, record.value) for record in records]


@RUNS
@given(record_sets())
def test_what_is_written_is_read(made: tuple[bytes, list[Record], int]) -> None:
    record_set, records, _ = made
    assert list(iter_records(record_set)) == records


@RUNS
@given(record_sets())
def test_scan_agrees_with_the_records(made: tuple[bytes, list[Record], int]) -> None:
    record_set, records, entries = made
    found = scan_record_set(record_set)
    assert (found.complete_bytes, found.entries, found.truncated) == (len(record_set), entries, False)
    assert found.next_offset == records[-1].offset + 1


@RUNS
@given(record_sets(), st.integers(0, 10**6))
def test_reading_from_an_offset_is_reading_everything_and_dropping(
    made: tuple[bytes, list[Record], int], step: int
) -> None:
    record_set, records, _ = made
    start = records[0].offset + step % (records[-1].offset - records[0].offset + 2)
    assert list(iter_records(record_set, start)) == [record for record in records if record.offset >= start]


@RUNS
@given(record_sets(), st.floats(0, 1))
def test_a_record_set_cut_anywhere_gives_the_records_of_its_complete_entries(
    made: tuple[bytes, list[Record], int], where: float
) -> None:
    record_set, records, entries = made
    cut = record_set[: int(where * len(record_set))]
    found = scan_record_set(cut)
    read = list(iter_records(cut))
    assert read == records[: len(read)]
    assert read == list(iter_records(cut[: found.complete_bytes]))
    assert found.truncated == (found.complete_bytes < len(cut))
    assert found.entries <= entries
    assert found.next_offset == (read[-1].offset + 1 if read else -1)


@RUNS
@given(record_sets(), st.floats(0, 1, exclude_max=True), st.integers(1, 255))
def test_a_damaged_byte_never_changes_a_record_that_is_handed_out(
    made: tuple[bytes, list[Record], int], where: float, flip: int
) -> None:
    # Offsets are the exception: in no format does the checksum cover them.
    record_set, records, _ = made
    damaged = bytearray(record_set)
    damaged[int(where * len(record_set))] ^= flip
    read = readable(bytes(damaged))
    assert payloads(read) == payloads(records)[: len(read)]
    assert_well_formed(read)


@RUNS
@given(record_sets(), st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), max_size=4))
def test_damage_behind_the_checksum_gives_declared_errors_or_well_formed_records(
    made: tuple[bytes, list[Record], int], flips: list[tuple[float, int]]
) -> None:
    record_set = bytearray(made[0])
    for where, flip in flips:
        record_set[int(where * len(record_set))] ^= flip
    assert_well_formed(readable(bytes(record_set), check_crcs=False))


@RUNS
@given(st.binary(max_size=200), st.booleans())
@example(b"\xff" * 100, True)
@example(bytes(100), True)
def test_random_bytes_give_declared_errors_or_well_formed_records(record_set: bytes, check_crcs: bool) -> None:
    assert_well_formed(readable(record_set, check_crcs))
    try:
        found = scan_record_set(record_set)
    except DECLARED:
        return
    assert 0 <= found.complete_bytes <= len(record_set)


@RUNS
@given(st.integers(0, 127), st.integers(-3, 2**31 - 1), st.integers(-3, 6), st.binary(max_size=120))
def test_a_batch_with_a_right_checksum_and_random_records_gives_declared_errors_or_well_formed_records(
    attributes: int, last_delta: int, count: int, records: bytes
) -> None:
    covered = struct.pack(">hiqqqhii", attributes, last_delta, 10**12, 10**12, -1, -1, -1, count) + records
    header = struct.pack(">qiibI", 5, 9 + len(covered), 0, 2, google_crc32c.value(covered))
    assert_well_formed(readable(header + covered))


@RUNS
@given(st.sampled_from([0, 1]), st.integers(0, 15), st.binary(max_size=120))
def test_a_message_with_a_right_checksum_and_random_fields_gives_declared_errors_or_well_formed_records(
    magic: int, attributes: int, rest: bytes
) -> None:
    body = bytes([magic, attributes]) + rest
    assert_well_formed(readable(struct.pack(">qiI", 5, 4 + len(body), zlib.crc32(body)) + body))


@RUNS
@given(st.sampled_from([0, 1]), st.integers(1, 3), st.lists(st.tuples(st.integers(-2, 9), st.binary(max_size=40))))
def test_a_wrapper_around_random_messages_gives_declared_errors_or_well_formed_records(
    magic: int, codec: int, inner: list[tuple[int, bytes]]
) -> None:
    message_set = b"".join(struct.pack(">qi", offset, len(rest)) + rest for offset, rest in inner)
    value = compress(codec, message_set, magic)
    body = bytes([magic, codec]) + bytes(8 * magic) + struct.pack(">ii", -1, len(value)) + value
    record_set = struct.pack(">qiI", 9, 4 + len(body), zlib.crc32(body)) + body
    for check_crcs in (True, False):
        assert_well_formed(readable(record_set, check_crcs))


@RUNS
@given(st.integers(1, 4), st.binary(max_size=3000), st.integers(0, 3000))
def test_decompression_is_exact_at_every_limit(codec: int, data: bytes, limit: int) -> None:
    packed = compress(codec, data, 2)
    for packages in PACKAGES:
        with decoding_with(*packages):
            try:
                assert decompress(codec, packed, 2, limit) == data
                assert len(data) <= limit
            except InvalidMessageException:
                assert len(data) > limit


@RUNS
@given(st.integers(0, 7), st.integers(0, 2), st.binary(max_size=100), st.integers(0, 10**4))
def test_no_payload_makes_a_codec_raise_anything_else_or_exceed_its_limit(
    codec: int, magic: int, payload: bytes, limit: int
) -> None:
    starts = {1: b"\x1f\x8b\x08\0\0\0\0\0\0\0", 2: b"\x82SNAPPY\0" + bytes(8), 3: b"\x04\x22\x4d\x18"}
    for start in (b"", starts.get(codec, b"\x28\xb5\x2f\xfd")):
        for packages in PACKAGES:
            with suppress(*DECLARED), decoding_with(*packages):
                assert len(decompress(codec, start + payload, magic, limit)) <= limit


def streamed(data: bytes) -> bytes:
    """A zstd frame without a content size."""
    writer = cramjam.zstd.Compressor()
    writer.compress(data)
    return bytes(writer.finish())


@RUNS
@given(
    codec=st.sampled_from([1, 2, 3, 4, 4]),
    data=st.binary(max_size=300) | st.integers(1, 600).map(lambda size: b"word " * size),
    frames=st.integers(1, 2),
    is_streamed=st.booleans(),
    place=st.floats(0, 1) | st.integers(0, 12),
    byte=st.integers(0, 255) | st.none(),
    cut=st.integers(0, 12) | st.just(0),
)
def test_the_packages_of_the_extra_change_nothing_for_any_damage(
    codec: int, data: bytes, frames: int, is_streamed: bool, place: float, byte: int | None, cut: int
) -> None:
    made = streamed(data) if codec == 4 and is_streamed else compress(codec, data, 2)
    damaged = bytearray(made * frames)
    if byte is not None and damaged:
        damaged[min(int(place * len(damaged)) if isinstance(place, float) else place, len(damaged) - 1)] = byte
    packed = bytes(damaged[: len(damaged) - cut])
    seen: list[bytes | type[Exception]] = []
    for packages in PACKAGES:
        with decoding_with(*packages):
            try:
                seen.append(bytes(decompress(codec, packed, 2, DECOMPRESSED_BYTES_MAX)))
            except DECLARED as error:
                seen.append(type(error))
    default, fast = seen
    # The head of ``compression`` says where the fast packages are less strict: what comes out is right even so.
    assert fast == default or (default is InvalidMessageException and fast == data * frames)


@RUNS
@given(st.integers(-(2**63), 2**63 - 1))
def test_a_varint_is_zigzag_in_groups_of_seven_bits(number: int) -> None:
    groups = [byte & 0x7F for byte in varint(number)]
    raw = sum(group << 7 * place for place, group in enumerate(groups))
    assert (raw >> 1) ^ -(raw & 1) == number
    assert [byte >> 7 for byte in varint(number)] == [1] * (len(groups) - 1) + [0]
