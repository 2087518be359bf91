"""Every kind of record set comes out of Spark's rows as the reference reads it, and in batches of bounded size."""

from __future__ import annotations

import itertools
import zlib
from struct import pack, pack_into

import cramjam
import google_crc32c
import pytest

from zkconsumer.errors import InvalidMessageException
from zkconsumer.wire import compression
from zkconsumer.wire.entries import NO_END, Record, iter_entries
from zkconsumer.wire.record_set_builder import build_record_set, varint
from zkconsumer.wire.records import iter_records

pytest.importorskip("pyarrow", reason="the Spark source needs the extra [spark]")

from bridge.spark.decode import arrow_records
from bridge.spark.decode.arrow_schema import BATCH_BYTES, PAYLOAD_OF, SCHEMA, schema_of
from tests.call_counter import calls_of
from tests.spark_decoder_fixtures import COMPILED, PYTHON, batches_of, decoder, only_fast, rows_of, target  # noqa: F401

HEADERS = (("a", b"1"), ("b", None), ("", b""))
KEYS = [b"key", None, b"", b"k" * 70]
VALUES = [b"value", None, b"", b"v" * 200]
NO_HEADERS = SCHEMA.remove(SCHEMA.get_field_index("headers"))
BATCHES, IN_A_BATCH = 6, 16
RECORDS = BATCHES * IN_A_BATCH

MATRIX = [
    (magic, codec, append)
    for magic, codec, append in itertools.product((0, 1, 2), compression.CODEC_NAMES, (False, True))
    if not (magic == 0 and append) and not (magic < 2 and codec == compression.ZSTD)
]


def made(magic: int, codec: int, append: bool) -> bytes:
    """Keys and values of every kind, in every pair; headers on some; timestamps that go back and forth."""
    record_set = b""
    kinds = itertools.cycle(itertools.product(KEYS, VALUES))
    for batch in range(BATCHES):
        first = 1000 + batch * IN_A_BATCH
        records = [
            Record(
                offset,
                10**12 + (offset * 7919) % 50,
                0,
                *next(kinds),
                HEADERS if magic == 2 and offset % 5 == 0 else (),
            )
            for offset in range(first, first + IN_A_BATCH)
        ]
        record_set += build_record_set(records, magic, codec, log_append_time=append)
    return record_set


def rows(record_set: bytes, first: int = 0, end: int = NO_END) -> list[Record]:
    return list(rows_of(batches_of(record_set, first, end, target(max_rows=7))))


@pytest.mark.usefixtures("only_fast")
@pytest.mark.parametrize(("magic", "codec", "append"), MATRIX)
def test_every_format_codec_and_kind_of_time(magic: int, codec: int, append: bool) -> None:
    record_set = made(magic, codec, append)
    expected = list(iter_records(record_set))
    assert len(expected) == RECORDS
    assert rows(record_set) == expected
    for first, end in [(1003, 1050), (1016, 1032), (1095, 2000), (0, 1001), (1040, 1041), (3000, 4000)]:
        assert rows(record_set, first, end) == [r for r in expected if first <= r.offset < end]
    for cut in (1, 20, len(record_set) // 2, len(record_set) - 1):
        assert rows(record_set[:cut]) == list(iter_records(record_set[:cut]))


@pytest.mark.usefixtures("only_fast")
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_snappy_as_one_raw_block(magic: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As librdkafka writes it; Java writes the blocks of xerial."""
    monkeypatch.setattr(compression, "_snappy", lambda payload: bytes(cramjam.snappy.compress_raw(payload)))
    record_set = made(magic, compression.SNAPPY, False)
    assert compression._XERIAL_MAGIC not in record_set
    assert rows(record_set) == list(iter_records(record_set))


@pytest.mark.usefixtures("only_fast")
def test_formats_follow_each_other() -> None:
    """A topic whose format was changed, and changed back."""
    record_set, expected = b"", []
    for number, (magic, codec) in enumerate([(0, 0), (0, 1), (1, 0), (1, 2), (2, 0), (2, 3), (1, 0), (0, 0)]):
        records = [Record(100 * number + n, 5, 0, b"k", b"v" * n, ()) for n in range(20)]
        record_set += build_record_set(records, magic, codec)
        expected += records
    assert [(r.offset, r.key, r.value) for r in rows(record_set)] == [(r.offset, r.key, r.value) for r in expected]
    assert rows(record_set) == list(iter_records(record_set))


@pytest.mark.usefixtures("only_fast")
@pytest.mark.parametrize("filler", [b"\x01\x00" * 40, b"\x00" * 80, b"\x01" * 80])
@pytest.mark.parametrize("magic", [0, 1])
def test_values_that_look_like_beginnings_of_messages(magic: int, filler: bytes) -> None:
    inner = build_record_set([Record(3, 5, 0, b"k", filler)], magic)
    values = [filler[: n % 80] + inner[: n % 110] + filler for n in range(300)]
    record_set = build_record_set([Record(n, 5, 0, None, value) for n, value in enumerate(values)], magic)
    assert rows(record_set) == list(iter_records(record_set))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("number", [1, 2, 63, 64])
def test_one_damaged_message_among_many_is_found(magic: int, number: int) -> None:
    """What is before it comes out."""
    sound = build_record_set([Record(n, 5, 0, b"key", b"value" * (n % 5)) for n in range(65)], magic)
    start = list(iter_entries(sound))[number].position
    for at in (12, 16 if magic else 17, 25 + 4 * magic, -1):
        damaged = bytearray(sound)
        damaged[start + at] ^= 0x10 if at != 12 else 0x01
        found = []
        with pytest.raises(Exception, match=r"checksum|format|codec|size|longer|cut off|not known"):
            for row in rows_of(batches_of(bytes(damaged))):
                found.append(row.offset)  # noqa: PERF401 (a list made at once would be lost with the error)
        assert found == list(range(number if at >= 0 else number - 1))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_compressed_message_before_the_beginning_is_not_opened(magic: int) -> None:
    damaged = bytearray(build_record_set([Record(n, 5, 0, b"k", b"v" * n) for n in range(20)], magic, compression.GZIP))
    damaged[-30] ^= 0x10
    damaged[12:16] = pack(">I", zlib.crc32(bytes(damaged[16:])))
    record_set = bytes(damaged) + made(magic, compression.GZIP, False)
    assert rows(record_set, 20) == list(iter_records(record_set, 20))
    with pytest.raises(InvalidMessageException, match="gzip"):
        rows(record_set, 19)


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_what_is_behind_the_end_is_not_looked_at(magic: int, codec: int) -> None:
    record_set = made(magic, codec, False)
    for behind in (b"\xff" * 200, made(magic, codec, False), b"\0" * 40):
        assert len(rows(record_set + behind, 0, 1000 + RECORDS)) == RECORDS


# --- batches of Arrow -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("magic", "codec"), [(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1)])
def test_batches_are_bounded_by_bytes_and_by_rows(magic: int, codec: int) -> None:
    expected = list(iter_records(record_set := made(magic, codec, False)))
    largest = max(len(record.key or b"") + len(record.value or b"") for record in expected)
    for most in (1, 500, 2_000):
        batches = list(batches_of(record_set, into=target(NO_HEADERS, max_bytes=most)))
        sizes = [
            sum(len(each or b"") for name in ("key", "value") for each in batch.column(name).to_pylist())
            for batch in batches
        ]
        assert max(sizes) < most + largest
        assert len(sizes) >= sum(sizes) // (most + largest)
        assert sum(batch.num_rows for batch in batches) == RECORDS
    numbers = [batch.num_rows for batch in batches_of(record_set, into=target(NO_HEADERS, max_rows=40))]
    assert max(numbers) <= 40
    assert sum(numbers) == RECORDS
    assert len(numbers) <= 1 + RECORDS // (40 // 4)


@pytest.mark.parametrize(("magic", "codec"), [(1, 0), (1, 1), (2, 0), (2, 1)])
def test_many_small_entries_are_one_batch(magic: int, codec: int) -> None:
    """Spark carries each batch through a socket, and each costs as much as some hundred rows."""
    made = [Record(n, 5, 0, b"key", b"value " * (n % 9)) for n in range(2_000)]
    record_set = b"".join(build_record_set(made[low : low + 3], magic, codec) for low in range(0, len(made), 3))
    assert [batch.num_rows for batch in batches_of(record_set)] == [len(made)]
    assert list(rows_of(batches_of(record_set))) == made


@pytest.mark.parametrize("magic", [1, 2])
def test_entries_of_many_bytes_are_batches_of_what_stays_in_the_cache(magic: int) -> None:
    """What the figures of migration_docs/reference/spark-speed.md rest on."""
    made = [Record(n, 5, 0, b"k" * (n % 5) or None, b"v" * (n * 31 % 2000), ()) for n in range(4_000)]
    record_set = b"".join(build_record_set(made[low : low + 16], magic) for low in range(0, len(made), 16))
    sizes = [batch.num_rows for batch in batches_of(record_set)]
    assert len(sizes) <= 2 + len(record_set) // (BATCH_BYTES - 100_000)
    assert sum(sizes) == len(made)


@pytest.mark.parametrize("magic", [1, 2])
def test_an_entry_larger_than_a_batch_comes_whole(magic: int) -> None:
    made = [Record(n, 5, 0, b"k", b"v" * 1_000, ()) for n in range(3_000)]
    record_set = build_record_set(made, magic) + build_record_set([Record(5_000, 5, 0, b"k", b"v", ())], magic)
    assert sum(batch.num_rows for batch in batches_of(record_set)) == len(made) + 1


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_fields_of_every_length_come_out(magic: int) -> None:
    """Null, empty, short and long ones, also at the end of the buffer."""
    lengths = [0, 1, 11, 12, 13, 300, None, 4]
    fields = [None if length is None else bytes(range(length % 256)) + b"x" * (length // 256) for length in lengths]
    pairs = itertools.product(fields, fields)
    records = [Record(n, 10**12, 0, key, value) for n, (key, value) in enumerate(pairs)]
    for end in range(1, len(records) + 1, 5):
        record_set = build_record_set(records[:end], magic, compression.NONE)
        assert rows(record_set) == list(iter_records(record_set))


def test_objects_are_bounded_where_records_are_read_one_by_one(
    monkeypatch: pytest.MonkeyPatch,
    decoder: str,  # noqa: F811
) -> None:
    monkeypatch.setattr(arrow_records, "OBJECTS_MAX", 4)
    record_set = made(2, compression.NONE, False)
    numbers = [batch.num_rows for batch in batches_of(record_set)]
    assert numbers == [RECORDS] if decoder == COMPILED else max(numbers) == 4
    assert rows(record_set) == list(iter_records(record_set))


def test_times_beyond_microseconds_are_put_at_the_end_of_them() -> None:
    most = arrow_records.MS_MAX
    times = [0, -1, most, most + 1, 2**63 - 1, -most, -most - 1, -(2**63)]
    record_set = build_record_set([Record(n, time, 0, None, None) for n, time in enumerate(times)], 1)
    assert [row.timestamp for row in rows_of(batches_of(record_set))] == [0, -1, most, most, most, -most, -most, -most]


def test_names_of_headers_that_are_no_text_are_replaced() -> None:
    record_set = with_headers(0, varint(3) + b"a\xffb" + varint(1) + b"v" + varint(0) + varint(-1), 2)
    [row] = rows_of(batches_of(record_set))
    assert row.headers == (("a\ufffdb", b"v"), ("", None))


def test_a_record_without_headers_has_null() -> None:
    """As in Spark's own source."""
    for count in (0, 1):
        record_set = with_headers(0, b"\0\1" * count, count) + with_headers(1, b"", 0)
        [batch] = batches_of(record_set)
        assert batch.column("headers").to_pylist() == [[{"key": "", "value": None}] if count else None, None]


def test_columns_that_were_not_asked_for_are_not_made() -> None:
    record_set = made(2, compression.NONE, False)
    for names in (["value"], ["headers", "offset"], ["topic", "partition"], ["timestampType", "key"]):
        schema = SCHEMA.empty_table().select(names).schema
        [batch] = batches_of(record_set, into=target(schema))
        assert batch.schema.equals(schema)
        assert batch.num_rows == RECORDS


# --- damage -----------------------------------------------------------------------------------------------------------


def test_a_record_of_more_headers_than_are_read_is_refused_at_once() -> None:
    """A kilobyte may stand for a hundred million."""
    headers = (("", None),) * 100_001
    record_set = build_record_set([Record(7, 5, 0, b"key", b"value", headers)], 2, compression.ZSTD)
    with pytest.raises(InvalidMessageException, match="a record with more than 100000 headers"):
        rows(record_set)


def test_an_offset_beyond_64_bits_is_refused() -> None:
    fields = bytes(2) + varint(20) + varint(-1) + varint(-1) + varint(0)
    body = varint(len(fields)) + fields
    covered = pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + body
    rest = pack(">iBI", 0, 2, google_crc32c.value(covered)) + covered
    record_set = pack(">qi", 2**63 - 10, len(rest)) + rest
    with pytest.raises(InvalidMessageException):
        rows(record_set)


def several(*codecs: int) -> list[bytes]:
    """Batches of three records each."""
    return [
        build_record_set([Record(3 * number + n, 1_000 + n, 0, b"k", b"value", ()) for n in range(3)], 2, codec)
        for number, codec in enumerate(codecs)
    ]


def test_a_number_of_records_below_zero_is_refused() -> None:
    batches = several(0, 0)
    damaged = bytearray(b"".join(batches))
    pack_into(">i", damaged, len(batches[0]) + 57, -1)
    with pytest.raises(InvalidMessageException, match=r"offset 3 .*a batch of -1 records"):
        list(batches_of(bytes(damaged), check_crcs=False))


def test_the_damaged_batch_is_named() -> None:
    damaged = bytearray(b"".join(several(0, 0, 0, 0, 0)))
    damaged[-1] ^= 1
    with pytest.raises(InvalidMessageException, match=r"offset 12 .*the checksum does not match"):
        rows(bytes(damaged))
    # What is behind the end is not read.
    assert len(rows(bytes(damaged), 0, 12)) == 12


@pytest.mark.usefixtures("only_fast")
def test_compressed_and_other_batches_take_turns() -> None:
    record_set = b"".join(several(compression.NONE, compression.NONE, compression.GZIP, compression.LZ4, 0))
    [batch] = batches_of(record_set)
    assert batch.column("offset").to_pylist() == list(range(15))


def test_markers_of_transactions_part_nothing() -> None:
    record_set = b""
    for number in range(0, 6, 2):
        marker = [Record((number + 1) * 3, 5, 0, b"\0\0\0\1", b"\0" * 6, ())]
        record_set += several(*[compression.LZ4] * 6)[number] + build_record_set(marker, 2, control=True)
    [batch] = batches_of(record_set)
    assert batch.column("offset").to_pylist() == [0, 1, 2, 6, 7, 8, 12, 13, 14]
    damaged = bytearray(record_set)
    damaged[-1] ^= 1
    with pytest.raises(InvalidMessageException, match=r"offset 15 .*the checksum does not match"):
        rows(bytes(damaged))


def test_a_damaged_message_among_compressed_ones_is_found() -> None:
    inner = compression.compress(compression.GZIP, message(0, 0), 1)
    pieces = [message(at, 1, inner) if at % 2 else message(at, 0) for at in range(20)]
    pieces[10] = pieces[10][:-1] + b"\0"
    with pytest.raises(InvalidMessageException, match="offset 10"):
        rows(b"".join(pieces))


@pytest.mark.parametrize("headers", [3, 1_000])
@pytest.mark.parametrize("change", [b"\1", b"\2", varint(-2), varint(1 << 40), varint(1 << 62), b"\xff" * 11])
def test_headers_that_do_not_fit_their_record_are_refused(headers: int, change: bytes) -> None:
    """The last name has another length than it says, or none."""
    record_set = with_headers(0, b"\0\1" * (headers - 1) + change + b"\1", headers)
    with pytest.raises(InvalidMessageException):
        list(iter_records(record_set))
    with pytest.raises(InvalidMessageException):
        rows(record_set)


@pytest.mark.parametrize("off", [-1, 1])
def test_more_or_fewer_headers_than_a_record_has_are_refused(off: int) -> None:
    with pytest.raises(InvalidMessageException):
        rows(with_headers(0, b"\0\1" * 1_000, 1_000 + off))


# --- what a producer may write costs a reader no more than other bytes ----------------------------------------------

CALLS_MAX = 3_000
"""Function calls for a record set, however many records and headers it has: nothing is done for each of them."""


@pytest.fixture
def is_compiled(decoder: str) -> None:  # noqa: F811
    if decoder == PYTHON:
        pytest.skip("there something is done for each record")


def message(offset: int, attributes: int, value: bytes | None = None, magic: int = 1) -> bytes:
    """A message without a key, with any attributes."""
    times = pack(">q", offset) if magic else b""
    sized = pack(">i", -1) if value is None else pack(">i", len(value)) + value
    body = bytes([magic, attributes]) + times + pack(">i", -1) + sized
    return pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def with_headers(offset: int, headers: bytes, count: int) -> bytes:
    """A batch of one record without key and value, with these headers."""
    body = b"\0\0\0\1\1" + varint(count) + headers
    body = varint(len(body)) + body
    covered = pack(">hiqqqhii", 0, 0, 0, 0, -1, -1, -1, 1) + body
    return pack(">qiibI", offset, 9 + len(covered), -1, 2, google_crc32c.value(covered)) + covered


@pytest.mark.usefixtures("only_fast", "is_compiled")
@pytest.mark.parametrize("magic", [0, 1])
def test_messages_whose_attributes_differ_are_read_together(magic: int) -> None:
    """Only the codec counts; an unused bit, and the type of the timestamp, may differ from message to message."""
    record_set = b"".join(message(at, [0, 0x10, 0x08, 0xF8][at % 4], magic=magic) for at in range(5_000))
    assert rows(record_set) == list(iter_records(record_set))
    calls_of(lambda: list(batches_of(record_set)), CALLS_MAX)


@pytest.mark.usefixtures("only_fast", "is_compiled")
@pytest.mark.parametrize("plain", [1, 2, 15])
@pytest.mark.parametrize(("magic", "append"), [(0, 0), (1, 0), (1, 0x08)])
def test_compressed_messages_among_others_are_read_together(plain: int, magic: int, append: int) -> None:
    """One producer compresses, another does not."""

    def compressed(at: int) -> bytes:
        inner = message(at if magic == 0 else 0, 0, magic=magic)
        return message(at, compression.GZIP | append, compression.compress(compression.GZIP, inner, magic), magic)

    record_set = b"".join(message(at, append, magic=magic) if at % (plain + 1) else compressed(at) for at in range(600))
    assert [batch.num_rows for batch in batches_of(record_set)] == [600]
    assert rows(record_set) == list(iter_records(record_set))
    assert rows(record_set, 100, 301) == [r for r in iter_records(record_set) if 100 <= r.offset < 301]


@pytest.mark.usefixtures("only_fast", "is_compiled")
@pytest.mark.parametrize("headers", [1, 64, 1_000, 20_000])
def test_as_many_headers_as_a_record_may_have_are_read_together(headers: int) -> None:
    some = [b"\0\1", b"\2a\0", b"\4ab\2c", b"\0" + varint(100) + bytes(100), varint(100) + b"n" * 100 + b"\1"]
    written = b"".join(some[at % len(some)] for at in range(headers))
    record_set = b"".join(with_headers(at, written, headers) if at % 2 else with_headers(at, b"", 0) for at in range(4))
    assert rows(record_set) == list(iter_records(record_set))
    calls_of(lambda: list(batches_of(record_set)), CALLS_MAX)


# --- whether a payload is text ------------------------------------------------------------------------------------

TEXTS = [b"", b"a", "ä€𝄞".encode(), None]
NO_TEXTS = [b"\xff", b"\xc3", b"\xa4", b"\xed\xa0\x80", b"\xc0\x80", b"\xf4\x90\x80\x80"]
"""Among them the halves of one letter in two records that follow each other."""


@pytest.mark.parametrize("columns", [(*SCHEMA.names, *PAYLOAD_OF), ("offset", "valueIsUtf8", "keyIsUtf8")])
@pytest.mark.parametrize("more", [[], NO_TEXTS])
def test_for_each_payload_a_column_has_whether_it_is_utf8(columns: tuple[str, ...], more: list[bytes]) -> None:
    payloads = [*TEXTS, *more]
    records = [Record(n, 0, 0, payloads[-1 - n], payload, ()) for n, payload in enumerate(payloads)]
    into = target(schema_of(columns), max_rows=7)
    batches = list(batches_of(build_record_set(records, 2, compression.NONE), into=into))
    assert [batch.schema for batch in batches] == [into.schema] * len(batches)
    rows = [row for batch in batches for row in batch.to_pylist()]
    assert [row["offset"] for row in rows] == list(range(len(payloads)))
    assert [row["valueIsUtf8"] for row in rows] == [payload not in NO_TEXTS for payload in payloads]
    assert [row["keyIsUtf8"] for row in rows] == [payload not in NO_TEXTS for payload in reversed(payloads)]
