"""The compiled decoder gives what the reference gives: for every kind of entry, every limit, every damage.

Records, error, and what a fetcher is told, each time (``seen_by_both``).  Damage inside of an entry comes with right
checksums around it, so that what is inside is believed.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass

import google_crc32c
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.decoder_comparison import seen_by_both
from tests.property.test_records_property import batches, formats
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.wire import compiled, compression
from zkconsumer.wire.entries import NO_END, Record, codec_of, iter_entries
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.schemas.fetch import AbortedTransaction
from zkconsumer.wire.transactions import aborted_batches

if compiled.RECORD_DECODER is None:
    pytest.skip("installed without a compiler, or ZKCONSUMER_NO_EXTENSIONS is set", allow_module_level=True)

RUNS = settings(deadline=None, max_examples=150)
EXPANDED_MAX = 1 << 20

TRANSACTIONAL, CONTROL, DELETE_HORIZON = 0x10, 0x20, 0x40
PRODUCERS = st.integers(1, 3)
MAGIC_AT, CRC_AT = 16, {0: 12, 1: 12, 2: 17}
ATTRIBUTES_AT, PRODUCER_AT = 21, 43
"""Of a batch."""

PAYLOAD_AT = {0: 26, 1: 34, 2: 61}
"""Of an entry without a key."""

INNER_CRC_AT = 12
flips = st.lists(st.tuples(st.floats(0, 1, exclude_max=True), st.integers(1, 255)), min_size=1, max_size=3)


@dataclass(frozen=True)
class Entry:
    """One entry or several messages of a format without a codec, and the records that it is made of."""

    data: bytes
    records: tuple[Record, ...]
    last_offset: int
    is_control: bool = False


def signed(entry: bytes) -> bytes:
    """With the checksum that its bytes have."""
    magic = entry[MAGIC_AT]
    at = CRC_AT[magic]
    covered = entry[at + 4 :]
    value = google_crc32c.value(covered) if magic == 2 else zlib.crc32(covered)
    return entry[:at] + struct.pack(">I", value) + covered


def flipped(data: bytes, where: list[tuple[float, int]]) -> bytes:
    out = bytearray(data)
    for place, bits in where:
        if out:
            out[int(place * len(out))] ^= bits
    return bytes(out)


@st.composite
def entries(draw: st.DrawFn, first_offset: int) -> Entry:
    """Records of any format, in a transaction or not; a marker; an empty batch.  Compaction has left gaps."""
    kind = draw(st.sampled_from(["records"] * 6 + ["marker", "empty"]))
    if kind == "empty":
        last = first_offset + draw(st.integers(0, 5))
        return Entry(build_record_set([], 2, base_offset=first_offset, last_offset=last), (), last)
    if kind == "marker":
        key = struct.pack(">hh", 0, draw(st.integers(0, 1)))
        data = build_record_set([Record(first_offset, 5, 0, key, struct.pack(">hi", 0, 0))], 2, control=True)
        return Entry(with_producer(data, draw(PRODUCERS), TRANSACTIONAL | CONTROL), (), first_offset, True)
    magic, codec = draw(formats)
    is_append = magic > 0 and draw(st.booleans())
    records = draw(batches(magic, first_offset + draw(st.integers(0, 3))))
    last = records[-1].offset + (draw(st.integers(0, 3)) if magic == 2 else 0)
    data = build_record_set(
        records, magic, codec, base_offset=first_offset if magic else None, last_offset=last, log_append_time=is_append
    )
    if is_append:
        newest = max(record.timestamp for record in records)
        records = [record._replace(timestamp=newest, timestamp_type=1) for record in records]
    if magic == 2:
        bits = draw(st.sampled_from([0, TRANSACTIONAL, TRANSACTIONAL | DELETE_HORIZON]))
        data = with_producer(data, draw(PRODUCERS), bits)
    return Entry(data, tuple(records), last)


def with_producer(batch: bytes, producer: int, attributes: int) -> bytes:
    """A batch of that producer, with more bits in its attributes."""
    made = bytearray(batch)
    made[ATTRIBUTES_AT + 1] |= attributes
    struct.pack_into(">q", made, PRODUCER_AT, producer)
    return signed(bytes(made))


@st.composite
def record_sets(draw: st.DrawFn) -> list[Entry]:
    """One to five entries, one behind the other."""
    made: list[Entry] = []
    offset = draw(st.integers(0, 2**60))
    for _ in range(draw(st.integers(1, 5))):
        made.append(draw(entries(offset)))
        offset = made[-1].last_offset + draw(st.integers(1, 3))
    return made


def joined(made: list[Entry]) -> bytes:
    return b"".join(entry.data for entry in made)


def offsets_of(made: list[Entry]) -> st.SearchStrategy[int]:
    """Offsets of records, around the ends of entries, and far away."""
    at = [each for entry in made for each in (entry.last_offset, *(record.offset for record in entry.records))]
    return st.sampled_from([0, *at, *(each + 1 for each in at), 2**62])


@RUNS
@given(record_sets(), st.data())
def test_what_is_written_is_read_within_all_limits(made: list[Entry], data: st.DataObject) -> None:
    record_set = joined(made)
    start, end = data.draw(offsets_of(made)), data.draw(offsets_of(made) | st.just(NO_END))
    records, failure = seen_by_both(record_set, start, end_offset=end, rows=data.draw(st.integers(1, 9)))
    assert failure is None
    assert records == [each for entry in made for each in entry.records if start <= each.offset < end]


@RUNS
@given(record_sets(), st.floats(0, 1), st.booleans(), st.data())
def test_a_tail_that_is_cut_off_anywhere(
    made: list[Entry], where: float, check_crcs: bool, data: st.DataObject
) -> None:
    record_set = joined(made)
    cut = record_set[: int(where * (len(record_set) + 1))]
    start, end = data.draw(offsets_of(made)), data.draw(offsets_of(made) | st.just(NO_END))
    records, failure = seen_by_both(cut, start, end_offset=end, check_crcs=check_crcs)
    assert failure is None
    written = [each for entry in made for each in entry.records if start <= each.offset < end]
    assert records == written[: len(records)]


@RUNS
@given(record_sets(), st.lists(st.tuples(PRODUCERS, st.integers(0, 4)), max_size=4), st.booleans(), st.data())
def test_aborted_transactions_are_left_out(
    made: list[Entry], aborted: list[tuple[int, int]], check_crcs: bool, data: st.DataObject
) -> None:
    record_set = joined(made)
    begun = [
        AbortedTransaction(producer_id=producer, first_offset=made[number % len(made)].last_offset)
        for producer, number in aborted
    ]
    excluded_batches = aborted_batches(record_set, begun)
    start = data.draw(offsets_of(made))
    records, failure = seen_by_both(record_set, start, excluded_batches=excluded_batches, check_crcs=check_crcs)
    assert failure is None
    gone = [
        range(entry.offset, entry.last_offset + 1)
        for entry in iter_entries(record_set)
        if entry.position in excluded_batches
    ]
    kept = [each for entry in made for each in entry.records if not any(each.offset in one for one in gone)]
    assert records == [each for each in kept if each.offset >= start]


@RUNS
@given(record_sets(), flips, st.booleans(), st.booleans(), st.data())
def test_damage_anywhere(
    made: list[Entry], where: list[tuple[float, int]], is_signed: bool, check_crcs: bool, data: st.DataObject
) -> None:
    """Also of headers that are believed, because the checksum is right: codec, flags, counts, last offset."""
    number = data.draw(st.integers(0, len(made) - 1))
    pieces = [entry.data for entry in made]
    damaged = flipped(pieces[number], where)
    pieces[number] = signed(damaged) if is_signed and damaged[MAGIC_AT] <= 2 else damaged
    excluded_batches = data.draw(st.sets(st.sampled_from([0, len(pieces[0])])))
    end = data.draw(offsets_of(made) | st.just(NO_END))
    seen_by_both(
        b"".join(pieces), data.draw(offsets_of(made)), check_crcs=check_crcs, end_offset=end,
        excluded_batches=excluded_batches, decompressed_bytes_max=EXPANDED_MAX,
    )  # fmt: skip


FIELDS = {21: ">h", 23: ">i", 27: ">q", 35: ">q", 57: ">i"}
"""Of the header of a batch: attributes, last offset delta, first timestamp, greatest timestamp, number of records."""


@RUNS
@given(st.data(), st.booleans())
def test_a_batch_whose_header_says_something_else(data: st.DataObject, is_compressed: bool) -> None:
    """Numbers at their limits, which the records in it may leave, with a right checksum."""
    records = data.draw(batches(2, data.draw(st.sampled_from([0, 5, 2**60]))))
    entry = bytearray(build_record_set(records, 2, compression.GZIP if is_compressed else compression.NONE))
    for at in data.draw(st.sets(st.sampled_from(sorted(FIELDS)), min_size=1)):
        low = -(2 ** (8 * struct.calcsize(FIELDS[at]) - 1))
        near = st.integers(0, 300) if at == ATTRIBUTES_AT else st.integers(-2, 8)
        struct.pack_into(FIELDS[at], entry, at, data.draw(near | st.sampled_from([low, low + 1, -low - 1, -low - 2])))
    seen_by_both(signed(bytes(entry)), check_crcs=data.draw(st.booleans()), decompressed_bytes_max=EXPANDED_MAX)


@RUNS
@given(st.sampled_from([0, 1, 2]), st.integers(0, 4), flips, st.booleans(), st.booleans(), st.data())
def test_damage_inside_of_a_sound_entry(
    magic: int, codec: int, where: list[tuple[float, int]], is_signed: bool, check_crcs: bool, data: st.DataObject
) -> None:
    """What a codec expands to is damaged; in a wrapper the messages have right checksums again, or have not."""
    codec = min(codec, 4 if magic == 2 else 3)
    records = data.draw(batches(magic, data.draw(st.integers(0, 100))))
    entry = build_record_set(records, magic, codec)
    if magic < 2 and codec == 0:
        first = next(iter_entries(entry))
        entry = entry[: first.end]
    payload = entry[PAYLOAD_AT[magic] :]
    plain = bytes(compression.decompress(codec, payload, magic, EXPANDED_MAX)) if codec else payload
    damaged = flipped(plain, where)
    if magic < 2 and codec and is_signed:
        damaged = signed_messages(damaged)
    packed = compression.compress(codec, damaged, magic) if codec else damaged
    head = bytearray(entry[: PAYLOAD_AT[magic]])
    struct.pack_into(">i", head, 8, len(head) - 12 + len(packed))
    if magic < 2 and codec:
        struct.pack_into(">i", head, PAYLOAD_AT[magic] - 4, len(packed))
    end = data.draw(st.sampled_from([each.offset for each in records] + [NO_END]))
    seen_by_both(
        signed(bytes(head) + packed), data.draw(st.sampled_from([0, records[-1].offset])), check_crcs=check_crcs,
        end_offset=end, rows=data.draw(st.integers(1, 9)), decompressed_bytes_max=EXPANDED_MAX,
    )  # fmt: skip


def signed_messages(message_set: bytes) -> bytes:
    """The messages with the checksums that their bytes have, as far as they are whole."""
    out, position = bytearray(message_set), 0
    while position + 16 < len(out):
        (size,) = struct.unpack_from(">i", out, position + 8)
        end = position + 12 + size
        if size < 14 or end > len(out):
            break
        struct.pack_into(">I", out, position + INNER_CRC_AT, zlib.crc32(bytes(out[position + 16 : end])))
        position = end
    return bytes(out)


@RUNS
@given(record_sets(), st.integers(0, 2000))
def test_what_expands_too_far(made: list[Entry], most: int) -> None:
    record_set = joined(made)
    _, failure = seen_by_both(record_set, decompressed_bytes_max=most)
    has_codec = any(codec_of(record_set, entry) for entry in iter_entries(record_set))
    assert failure is None or (has_codec and issubclass(failure[0], InvalidMessageException | UnsupportedCodec))


@RUNS
@given(st.sampled_from([0, 1, 2]), st.binary(max_size=150), st.booleans())
def test_random_bytes_behind_a_right_checksum(magic: int, rest: bytes, check_crcs: bool) -> None:
    body = bytes([magic]) + (b"" if magic < 2 else bytes(4)) + rest
    size = 4 + len(body)
    entry = struct.pack(">qi", 5, size) + bytes(4) + body
    seen_by_both(signed(entry), check_crcs=check_crcs, decompressed_bytes_max=EXPANDED_MAX)


@RUNS
@given(st.binary(max_size=200), st.booleans())
def test_random_bytes(record_set: bytes, check_crcs: bool) -> None:
    seen_by_both(record_set, check_crcs=check_crcs, decompressed_bytes_max=EXPANDED_MAX)
