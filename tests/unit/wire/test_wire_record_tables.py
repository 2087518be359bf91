"""What the compiled decoder makes of tables: columns, joined tables, parts; nothing outside of a buffer is read.

``wire.tables`` and the Spark source call these functions with tables of the decoder itself; here they get others.  And
how it reads the records of a batch in a loop of their own, as long as their numbers are small.
"""

from __future__ import annotations

import gzip
import random
import struct
from array import array
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import cramjam
import pytest

from tests.decoder_comparison import seen_by_both
from zkconsumer.errors import InvalidMessageException
from zkconsumer.wire import compiled, compression
from zkconsumer.wire.entries import NO_END, Record
from zkconsumer.wire.record_set_builder import build_record_set, varint
from zkconsumer.wire.record_tables import ROW, RecordTable, TableReader
from zkconsumer.wire.records import _scan_in_python, iter_records, scan_record_set

if compiled.RECORD_DECODER is None:
    pytest.skip("installed without a compiler, or ZKCONSUMER_NO_EXTENSIONS is set", allow_module_level=True)

RECORDS = compiled.RECORD_DECODER
OUTSIDE = r"a field is outside of the data, or the fields have 2 GiB or more"


def row(
    *, offset: int = 0, time: int = 0, key: tuple[int, int] = (0, -1), value: tuple[int, int] = (0, -1),
    headers: tuple[int, int, int] = (0, 0, 0), kind: int = 0,
) -> bytes:  # fmt: skip
    return ROW.pack(offset, time, *key, *value, *headers, kind)


def texts(ends: bytes, data: bytes, valid: bytes | None, nulls: int) -> list[bytes | None]:
    """The fields as Arrow reads them."""
    bounds = array("i", ends).tolist()
    found: list[bytes | None] = [data[low:high] for low, high in pairwise(bounds)]
    if valid is not None:
        found = [each if valid[n // 8] >> n % 8 & 1 else None for n, each in enumerate(found)]
    assert found.count(None) == nulls
    return found


# --- columns ----------------------------------------------------------------------------------------------------------


def test_fields_are_copied_behind_each_other() -> None:
    spans = [(0, 3), (3, 0), (0, -1), (8, 0), (1, 2)]
    table = b"".join(row(key=span, value=(7, 1)) for span in spans)
    assert texts(*RECORDS.fields(b"abcdefgh", table, 0, 5, True)) == [b"abc", b"", None, b"", b"bc"]
    assert texts(*RECORDS.fields(b"abcdefgh", table, 1, 4, True)) == [b"", None, b""]
    assert texts(*RECORDS.fields(b"abcdefgh", table, 0, 5, False)) == [b"h"] * 5
    assert RECORDS.fields(b"abcdefgh", table, 0, 0, True) == (bytes(4), b"", None, 0)


@pytest.mark.parametrize(
    "span", [(4, 5), (9, 0), (-1, 1), (0, 2**31 - 1), (2**31 - 1, 2**31 - 1), (-(2**31), 2**31 - 1)], ids=str
)
def test_a_field_outside_of_the_data_is_not_copied(span: tuple[int, int]) -> None:
    for is_key in (True, False):
        table = row() + row(key=span) if is_key else row() + row(value=span)
        with pytest.raises(ValueError, match=OUTSIDE):
            RECORDS.fields(b"12345678", table, 0, 2, is_key)
        assert texts(*RECORDS.fields(b"12345678", table, 0, 2, not is_key)) == [None, None]


def test_fields_of_more_than_2_gib_are_not_copied() -> None:
    """Their bytes are the same here, so that the test needs no such memory."""
    table = row(key=(0, 1 << 30)) * 2
    with pytest.raises(ValueError, match=OUTSIDE):
        RECORDS.fields(bytearray(1 << 30), table, 0, 2, True)


@pytest.mark.parametrize(("low", "high"), [(-1, 1), (0, 3), (2, 1), (-(2**62), 2**62)])
def test_rows_outside_of_the_table_are_not_read(low: int, high: int) -> None:
    table = row() * 2 + b"less than a row"
    calls: list[Any] = [
        lambda: RECORDS.fields(b"", table, low, high, True),
        lambda: RECORDS.numbers(table, low, high, True),
        lambda: RECORDS.headers(b"", table, low, high),
        lambda: RECORDS.cut(table, low, high, 1),
    ]
    for call in calls:
        with pytest.raises(ValueError, match="the rows are outside of the table"):
            call()


def test_times_are_given_in_ms_or_in_us() -> None:
    most = (2**63 - 1) // 1000
    times = [0, -1, most, most + 1, 2**63 - 1, -most, -most - 1, -(2**63)]
    table = b"".join(row(offset=n, time=time, kind=n % 3 - 1) for n, time in enumerate(times))
    offsets, ms, kinds = RECORDS.numbers(table, 0, len(times), False)
    assert (array("q", offsets).tolist(), array("q", ms).tolist()) == (list(range(8)), times)
    assert array("i", kinds).tolist() == [-1, 0, 1, -1, 0, 1, -1, 0]
    _, us, _ = RECORDS.numbers(table, 2, 8, True)
    assert array("q", us).tolist() == [most * 1000] * 3 + [-most * 1000] * 3


def header(name: bytes, value: bytes | None) -> bytes:
    return varint(len(name)) + name + (varint(-1) if value is None else varint(len(value)) + value)


def test_headers_are_columns_of_their_own() -> None:
    written = header(b"a", b"1") + header(b"b", None)
    data = written + header(b"", b"")
    table = row(headers=(0, len(written), 2)) + row() + row(headers=(len(written), len(data), 1)) + row()
    ends, having, without, number, names, values = RECORDS.headers(data, table, 0, 4)
    assert array("i", ends).tolist() == [0, 2, 2, 3, 3]
    assert (having, without, number) == (bytes([0b0101]), 2, 3)
    assert texts(*names) == [b"a", b"b", b""]
    assert texts(*values) == [b"1", None, b""]
    ends, having, without, number, names, values = RECORDS.headers(data, table, 1, 2)
    assert (ends, having, without, number, texts(*names)) == (bytes(8), b"\0", 1, 0, [])


@pytest.mark.parametrize(
    "place",
    [(0, 8, 1), (0, 9, 2), (0, 7, 2), (-1, 7, 2), (7, 0, 2), (0, 7, 2**31 - 1), (0, 7, -1), (0, 7, 1), (1, 7, 2)],
    ids=str,
)
def test_headers_that_do_not_fill_their_place_are_refused(place: tuple[int, int, int]) -> None:
    data = header(b"a", b"1") + header(b"bc", None)
    assert len(data) == 8
    with pytest.raises(ValueError, match="the headers of a row do not have the length in the row"):
        RECORDS.headers(data, row(headers=place), 0, 1)


def test_a_part_ends_where_the_values_are_too_far_away() -> None:
    table = b"".join(row(value=(start, 10)) for start in (5, 15, 25, 35, 45))
    assert [RECORDS.cut(table, 0, 5, most) for most in (1, 10, 11, 20, 21, 1000)] == [1, 1, 2, 2, 3, 5]
    assert [RECORDS.cut(table, 3, 5, most) for most in (1, 10, 11)] == [4, 4, 5]
    assert RECORDS.cut(table, 2, 2, 1) == 2


# --- joined tables ----------------------------------------------------------------------------------------------------


def tables_of(
    record_set: bytes, max_rows: int = 1000, joined_bytes_max: int = 100_000, **options: Any
) -> Iterator[RecordTable]:
    reader = TableReader(RECORDS, record_set, joined_bytes_max=joined_bytes_max, **options)
    return reader.tables(bytearray(max_rows * ROW.size))


def records_of(table: RecordTable) -> list[Record]:
    """Keys, values and headers as the table has them."""
    data, rows, count = table
    numbers = RECORDS.numbers(rows, 0, count, False)
    offsets, ms, kinds = (array(kind, each) for kind, each in zip("qqi", numbers, strict=True))
    keys, values = (texts(*RECORDS.fields(data, rows, 0, count, is_key)) for is_key in (True, False))
    ends, _, _, _, names, of_names = RECORDS.headers(data, rows, 0, count)
    pairs = [((name or b"").decode(), each) for name, each in zip(texts(*names), texts(*of_names), strict=True)]
    bounds = array("i", ends).tolist()
    return [
        Record(offsets[n], ms[n], kinds[n], keys[n], values[n], tuple(pairs[bounds[n] : bounds[n + 1]]))
        for n in range(count)
    ]


def small_entries(number: int, codec: int, size: int = 20) -> list[bytes]:
    """Entries of four records, with and without headers."""
    made = []
    for first in range(0, 4 * number, 4):
        each = [
            Record(first + n, 5, 0, b"k" * n or None, b"v" * size, (("h", b"x"),) if n == 2 else ()) for n in range(4)
        ]
        made.append(build_record_set(each, 2, codec))
    return made


def test_small_entries_become_one_table() -> None:
    record_set = b"".join(small_entries(20, compression.LZ4))
    [table] = tables_of(record_set)
    assert records_of(table) == list(iter_records(record_set))


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_joined_table_has_no_more_rows_and_bytes_than_allowed(magic: int) -> None:
    records = [Record(n, 5 if magic else -1, 0 if magic else -1, b"k", b"v" * 20) for n in range(200)]
    record_set = b"".join(build_record_set(records[low : low + 4], magic, compression.LZ4) for low in range(0, 200, 4))
    found = []
    for table in tables_of(record_set, max_rows=41):
        assert table.size <= 41
        found += records_of(table)
    assert found == records
    found, sizes = [], []
    for table in tables_of(record_set, joined_bytes_max=2_000):
        assert len(table.data) <= 2_000
        found += records_of(table)
        sizes.append(table.size)
    assert found == records
    assert min(sizes[:-1]) > 20


def test_large_entries_are_not_joined_and_come_in_order() -> None:
    """Their rows are positions in the record set itself, or in what they expanded to."""
    large = [Record(40 + n, 5, 0, b"k", bytes(50_000), ()) for n in range(2)]
    packed = [Record(42 + n, 5, 0, b"k", bytes(50_000), ()) for n in range(2)]
    small = small_entries(20, compression.LZ4)
    whole = [build_record_set(large, 2), build_record_set(packed, 2, compression.GZIP)]
    record_set = b"".join([*small[:10], *whole, *small[15:]])
    counts, found = [], []
    for table in tables_of(record_set):
        counts.append(table.size)
        found += records_of(table)
        assert (table.data is record_set) == (table.size == 2 and 40 in {each.offset for each in found[-2:]})
    assert counts == [40, 2, 2, 20]
    assert found == list(iter_records(record_set))


def test_an_entry_that_does_not_fit_behind_others_is_expanded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    large = build_record_set([Record(20, 5, 0, None, bytes(99_900))], 2, compression.GZIP)
    record_set = b"".join([*small_entries(5, compression.GZIP), large])
    expanded: list[Any] = []
    monkeypatch.setattr(compression, "decompress", spied(compression.decompress, expanded))
    assert [table.size for table in tables_of(record_set)] == [20, 1]
    assert len(expanded) == 6


def spied(function: Any, calls: list[Any]) -> Any:
    def call(*args: Any) -> Any:
        calls.append(args)
        return function(*args)

    return call


@pytest.mark.parametrize("joined_bytes_max", [0, 1, 7, 8, 100, 300, 1_000, 1 << 28])
@pytest.mark.parametrize("max_rows", [1, 3, 4, 5, 1000])
def test_the_same_records_come_whatever_is_joined(joined_bytes_max: int, max_rows: int) -> None:
    made = []
    for n, entry in enumerate(zip(*(small_entries(24, codec) for codec in (0, 1, 2, 3, 4)), strict=True)):
        made.append(entry[n % 5])
    record_set = b"".join(made)
    found = [each for table in tables_of(record_set, max_rows, joined_bytes_max) for each in records_of(table)]
    assert found == list(iter_records(record_set))


@pytest.mark.parametrize("joined_bytes_max", [-1, (1 << 28) + 1])
def test_a_joined_table_has_a_bound(joined_bytes_max: int) -> None:
    with pytest.raises(ValueError, match="at most 256 MiB"):
        next(tables_of(b"", joined_bytes_max=joined_bytes_max))


def test_an_interruption_while_an_entry_is_expanded_is_raised_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when a signal handler raises: the reader begins again where the program is."""
    calls: list[Any] = []

    def interrupted(*args: Any) -> Any:
        calls.append(args)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return decompress(*args)

    decompress = compression.decompress
    monkeypatch.setattr(compression, "decompress", interrupted)
    with pytest.raises(KeyboardInterrupt):
        next(tables_of(b"".join(small_entries(5, compression.GZIP))))
    assert len(calls) == 3


def test_what_is_before_an_error_comes_before_it() -> None:
    entries = small_entries(5, compression.LZ4)
    damaged = bytearray(b"".join(entries))
    damaged[-1] ^= 1
    tables = tables_of(bytes(damaged))
    assert [record.offset for record in records_of(next(tables))] == list(range(16))
    with pytest.raises(InvalidMessageException, match="offset 16 "):
        next(tables)


def test_compressed_and_other_entries_are_joined() -> None:
    """The extent of the rows counts, and not that of the record set in which some of them lie."""
    small = small_entries(400, compression.LZ4), small_entries(400, compression.NONE)
    record_set = b"".join(small[n % 2][n] for n in range(400))
    assert len(record_set) > 40_000
    [table] = tables_of(record_set, max_rows=10_000)
    assert records_of(table) == list(iter_records(record_set))


# --- frames of which the decoder gives a block to the package ---------------------------------------------------------


DEFAULT_DECODERS = (cramjam.gzip.decompress_into, *compression.BLOCK_DECODERS[1:3], cramjam.zstd.decompress_into)
"""Without the extra ``[fast]``."""


@pytest.mark.parametrize(
    ("codec", "magic"),
    [(1, 0), (1, 1), (1, 2), (2, 0), (2, 1), (2, 2), (3, 0), (3, 1), (3, 2), (4, 2)],
    ids=lambda number: str(number),
)
def test_the_frames_of_producers_are_read_without_python(
    monkeypatch: pytest.MonkeyPatch, codec: int, magic: int
) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(compression, "decompress", spied(compression.decompress, calls))
    monkeypatch.setattr(compression, "BLOCK_DECODERS", (*DEFAULT_DECODERS, compression.BLOCK_DECODERS[4]))
    values = random.Random(1)
    records = [
        Record(n, *((5, 0) if magic else (-1, -1)), b"k", values.randbytes(700) if codec == 1 else b"value " * 20)
        for n in range(40)
    ]
    record_set = b"".join(build_record_set(records[low : low + 4], magic, codec) for low in range(0, 40, 4))
    assert [each for table in tables_of(record_set) for each in records_of(table)] == records
    assert not calls


def test_a_gzip_member_that_the_package_refuses_is_read_by_python(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(compression, "decompress", spied(compression.decompress, calls))
    monkeypatch.setattr(compression, "BLOCK_DECODERS", (*DEFAULT_DECODERS, compression.BLOCK_DECODERS[4]))
    value = random.Random(1).randbytes(5_000)
    batch = bytearray(build_record_set([Record(0, 5, 0, None, value)], 2, compression.GZIP))
    payload = gzip.decompress(bytes(batch[61:]))
    batch[61:] = gzip.compress(payload[:4_000]) + gzip.compress(payload[4_000:])  # two members
    record_set = with_right_checksum(batch)
    assert [each.value for table in tables_of(record_set) for each in records_of(table)] == [value]
    assert len(calls) == 1


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
@pytest.mark.parametrize("max_rows", [7, 50, 1000])
@pytest.mark.parametrize("size", [30, 300, 3_000])
def test_a_table_keeps_its_bytes_while_the_next_ones_are_read(
    monkeypatch: pytest.MonkeyPatch, codec: int, max_rows: int, size: int
) -> None:
    monkeypatch.setattr(compression, "BLOCK_DECODERS", (*DEFAULT_DECODERS, compression.BLOCK_DECODERS[4]))
    values = random.Random(codec)
    records = [Record(n, 5, 0, b"k", values.randbytes(size // 3) * 3) for n in range(240)]
    record_set = b"".join(build_record_set(records[low : low + 20], 2, codec) for low in range(0, 240, 20))
    held = [
        (table.data, bytes(table.data), records_of(table))
        for table in tables_of(record_set, max_rows, joined_bytes_max=131_072)
    ]
    assert [each for _, _, found in held for each in found] == records
    assert all(bytes(data) == then for data, then, _ in held)


def test_zstandard_decodes_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []
    monkeypatch.setattr(compression, "decompress", spied(compression.decompress, calls))
    monkeypatch.setattr(
        compression, "BLOCK_DECODERS", (*compression.BLOCK_DECODERS[:3], None, compression.BLOCK_DECODERS[4])
    )
    record_set = b"".join(small_entries(3, compression.ZSTD))
    assert len([each for table in tables_of(record_set) for each in records_of(table)]) == 12
    assert len(calls) == 3


@pytest.mark.parametrize("blocks", [(), (None, None, None), [None] * 5])
def test_the_decoder_wants_all_packages(blocks: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        RECORDS.Cursor(b"", 0, NO_END, True, None, True, compression.decompress, blocks, (ValueError,), 100, 100)


def lz4_batch(frame: bytes, payload: bytes) -> bytes:
    """A batch of one record whose lz4 frame is ``frame``."""
    batch = bytearray(build_record_set([Record(0, 5, 0, None, payload)], 2, compression.LZ4))
    batch[61:] = frame
    return with_right_checksum(batch)


def with_right_checksum(batch: bytearray) -> bytes:
    """A batch of format 2 with the size and the checksum of its bytes."""
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, RECORDS.crc32c(bytes(batch[21:]), 2))
    return bytes(batch)


def test_a_block_that_expands_further_than_most_is_read_as_well() -> None:
    """And damaged frames, frames with checksums, and those beyond the limit are left to ``compression.decompress``."""
    far = bytes(60_000)  # 255 times
    record_set = build_record_set([Record(0, 5, 0, None, far)], 2, compression.LZ4)
    [table] = tables_of(record_set, joined_bytes_max=0)
    assert records_of(table)[0].value == far
    with pytest.raises(InvalidMessageException, match=r"expands to more than|let out"):
        next(tables_of(record_set, decompressed_bytes_max=50_000))
    frame = record_set[61:]
    for at, bit in ((4, 0x10), (5, 0x80), (6, 0x01), (7, 0x01), (len(frame) - 1, 1), (12, 0xFF)):
        damaged = bytearray(frame)
        damaged[at] ^= bit
        with pytest.raises(InvalidMessageException, match=r"lz4|offset 0"):
            next(tables_of(lz4_batch(bytes(damaged), far)))


# --- scan with an end -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", [-(2**63), -1, 0, 1, 3, 4, 5, 12, 13, 100, NO_END])
@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_a_scan_ends_with_the_entry_that_covers_the_end(magic: int, codec: int, end: int) -> None:
    entries = [
        build_record_set([Record(first + n, 5, 0, b"k", b"v") for n in range(4)], magic, codec) for first in (0, 4, 9)
    ]
    whole = b"".join(entries)
    found = scan_record_set(whole, end)
    assert found == _scan_in_python(whole, end)
    firsts = [0, 1, 2, 3, 4, 5, 6, 7, 9, 10, 11, 12] if not codec and magic < 2 else [0, 4, 9]
    lasts = firsts if not codec and magic < 2 else [3, 7, 12]
    covered = next((last for last in lasts if last >= end - 1), 12)
    assert found.next_offset == (covered + 1 if end > 0 else -1)
    assert found.starts_with_compressed_wrapper == (codec == 1 and magic < 2 and end > 0)
    if 0 < end <= 8:
        assert scan_record_set(whole[: found.complete_bytes] + b"\xff" * 100, end).next_offset == found.next_offset


def test_a_scan_raises_for_what_is_before_the_end_alone() -> None:
    sound = build_record_set([Record(n, 5, 0, b"k", b"v") for n in range(4)], 2)
    bad = struct.pack(">qi", 4, 3) + bytes(30)
    assert scan_record_set(sound + bad, 4).next_offset == 4
    with pytest.raises(InvalidMessageException, match="a size of 3 bytes"):
        scan_record_set(sound + bad, 5)


# --- usual records ----------------------------------------------------------------------------------------------------


def body(
    delta: int, *, delta_ms: int = 0, key: bytes = varint(-1), value: bytes = varint(1) + b"v", headers: bytes = b"\0"
) -> bytes:
    """A record of a batch.  ``key``, ``value``: with their lengths; ``headers``: with their number."""
    fields = b"\0" + varint(delta_ms) + varint(delta) + key + value + headers
    return varint(len(fields)) + fields


def batch_of(bodies: list[bytes], last_delta: int = 2, base_ms: int = 1_000) -> bytes:
    batch = bytearray(build_record_set([Record(7, 0, 0, None, b"")], 2))
    batch[61:] = b"".join(bodies)
    struct.pack_into(">i", batch, 23, last_delta)
    struct.pack_into(">qq", batch, 27, base_ms, base_ms)
    struct.pack_into(">i", batch, 57, len(bodies))
    return with_right_checksum(batch)


PADDING = body(2, value=varint(40) + b"p" * 40)
"""The last record of a batch, so that the record before it is not near to its end."""

USUAL: dict[str, list[bytes]] = {
    "null and empty fields": [body(0, key=varint(0), value=varint(-1)), body(1, value=varint(0)), PADDING],
    "large and small numbers": [body(0, delta_ms=8_191), body(1, delta_ms=-3), body(2, delta_ms=8_192)],
    "headers": [
        body(0, headers=varint(1) + header(b"h", b"x")),
        body(1, headers=varint(1) + header(b"i", None)),
        PADDING,
    ],
}

REFUSED: dict[str, list[bytes]] = {
    "an offset twice": [body(0), body(0), PADDING],
    "an offset after the last one of the batch": [body(0), body(3), PADDING],
    "a byte after the value that is no number of headers": [body(0), body(1, headers=b"\1"), PADDING],
    "a header that is missing": [body(0), body(1, headers=b"\2"), PADDING],
    "a byte after the headers": [body(0), body(1, headers=b"\0\0"), PADDING],
    "a key that is longer than its record": [body(0), body(1, key=varint(30) + b"k"), PADDING],
    "a value that is longer than its record": [body(0), body(1, value=varint(30) + b"v"), PADDING],
    "a record that is longer than its batch": [body(0), varint(2_000) + body(1)[1:], PADDING],
    "a record that ends after its batch": [body(0), body(1), PADDING[:-5]],
    "a record without fields": [body(0), b"\0", PADDING],
}


@pytest.mark.parametrize("start_offset", [0, 8])
@pytest.mark.parametrize("bodies", USUAL.values(), ids=USUAL)
def test_usual_records_are_read_as_in_python(bodies: list[bytes], start_offset: int) -> None:
    read = seen_by_both(batch_of(bodies), start_offset)
    assert (len(read.records), read.failure) == (3 if start_offset == 0 else 2, None)


@pytest.mark.parametrize("bodies", REFUSED.values(), ids=REFUSED)
def test_a_damaged_record_among_usual_ones_is_refused_as_in_python(bodies: list[bytes]) -> None:
    assert seen_by_both(batch_of(bodies) + bytes(7) + b"the next batch").failure is not None


@pytest.mark.parametrize("base_ms", [2**63 - 1, 2**63 - 6, 2**62, -(2**63), -(2**62) - 1])
def test_timestamps_at_the_bounds_of_64_bits_are_read_as_in_python(base_ms: int) -> None:
    seen_by_both(batch_of([body(0), body(1, delta_ms=5), PADDING], base_ms=base_ms))
