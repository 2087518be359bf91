"""Record sets that no sound broker sends, one danger a test.  All but the checksum tests carry right checksums."""

from __future__ import annotations

import struct
import subprocess
import sys
import textwrap
import tracemalloc
import zlib
from collections.abc import Callable

import google_crc32c
import pytest

from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.wire.compression import compress, decompress
from zkconsumer.wire.entries import OFFSET_MAX
from zkconsumer.wire.record_set_builder import build_record_set, varint
from zkconsumer.wire.records import Record, iter_records, scan_record_set
from zkconsumer.wire.records_v2 import HEADERS_MAX

GZIP = 1
WHOLE_RECORD = b"\0" + varint(0) + varint(0) + varint(-1) + varint(-1) + varint(0)


def message(offset: int, fields: bytes, magic: int = 0, attributes: int = 0) -> bytes:
    """An entry of format 0 or 1 whose key and value parts are ``fields``."""
    body = bytes([magic, attributes]) + bytes(8 * magic) + fields
    return struct.pack(">qiI", offset, 4 + len(body), zlib.crc32(body)) + body


def sized(field: bytes | None) -> bytes:
    return struct.pack(">i", -1) if field is None else struct.pack(">i", len(field)) + field


def plain(offset: int, magic: int = 0) -> bytes:
    return message(offset, sized(None) + sized(b"value"), magic)


def wrapper(offset: int, inner: bytes, magic: int = 0, codec: int = GZIP) -> bytes:
    return message(offset, sized(None) + sized(compress(codec, inner, magic)), magic, codec)


def batch(
    payload: bytes = b"", *, base: int = 0, last_delta: int = 0, count: int = 1, attributes: int = 0, time_ms: int = 0
) -> bytes:
    covered = struct.pack(">hiqqqhii", attributes, last_delta, time_ms, time_ms, -1, -1, -1, count) + payload
    return struct.pack(">qiibI", base, 9 + len(covered), -1, 2, google_crc32c.value(covered)) + covered


def record(body: bytes) -> bytes:
    return varint(len(body)) + body


def fields(*, time_delta: int = 0, offset_delta: int = 0, rest: bytes = varint(-1) * 2 + varint(0)) -> bytes:
    return b"\0" + varint(time_delta) + varint(offset_delta) + rest


def read(record_set: bytes) -> list[Record]:
    return list(iter_records(record_set))


def assert_refused(record_set: bytes, text: str, by: Callable[[bytes], object] = read) -> None:
    with pytest.raises(InvalidMessageException, match=text) as caught:
        by(record_set)
    assert f"offset {vars(caught.value)['offset']} " in str(caught.value)


def test_the_bricks_of_these_tests_are_sound() -> None:
    assert len(read(plain(0) + plain(1, 1) + wrapper(3, plain(2) + plain(3)))) == 4
    assert len(read(wrapper(9, plain(0, 1) + plain(1, 1), 1) + batch(record(WHOLE_RECORD), base=10))) == 3
    assert record(fields()) == record(WHOLE_RECORD)


# --- headers of entries -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("by", [read, scan_record_set])
@pytest.mark.parametrize("size", [0, 13, -1, -12, -(2**31)])
def test_a_size_below_a_header_would_never_move_on(size: int, by: Callable[[bytes], object]) -> None:
    assert_refused(plain(0) + struct.pack(">qi", 1, size) + bytes(50), f"size of {size} bytes", by)


@pytest.mark.parametrize("by", [read, scan_record_set])
def test_a_size_below_a_header_is_seen_in_a_cut_off_tail(by: Callable[[bytes], object]) -> None:
    assert_refused(struct.pack(">qi", 1, 13), "size of 13 bytes", by)


@pytest.mark.parametrize("by", [read, scan_record_set])
@pytest.mark.parametrize("size", [14, 48])
def test_a_batch_smaller_than_its_header(size: int, by: Callable[[bytes], object]) -> None:
    assert_refused(struct.pack(">qiib", 1, size, 0, 2) + bytes(100), f"size of {size} bytes", by)


def test_a_message_of_format_1_smaller_than_its_header() -> None:
    for size in range(14, 22):
        body = bytes([1]) + bytes(size - 5)
        assert_refused(struct.pack(">qiI", 0, size, zlib.crc32(body)) + body, "format 1 is cut off")


@pytest.mark.parametrize("by", [read, scan_record_set])
@pytest.mark.parametrize("magic", [3, 127, 128, 255])
def test_a_format_that_does_not_exist(magic: int, by: Callable[[bytes], object]) -> None:
    with pytest.raises(UnsupportedCodec, match=f"offset 7 .*record format {magic} "):
        by(struct.pack(">qiiB", 7, 100, 0, magic))


def test_a_format_that_does_not_exist_can_be_passed_when_it_is_whole() -> None:
    newer = struct.pack(">qiiB", 7, 100, 0, 3) + bytes(95)
    for record_set, next_position in ((newer, 112), (newer[:-1], -1)):
        with pytest.raises(UnsupportedCodec) as caught:
            scan_record_set(record_set)
        assert vars(caught.value)["next_position"] == next_position


def test_the_largest_size_is_a_cut_off_tail_and_allocates_nothing() -> None:
    record_set = struct.pack(">qiib", 0, 2**31 - 1, 0, 0) + bytes(100)
    assert scan_record_set(record_set).truncated
    assert read(record_set) == []


# --- offsets, which no checksum covers --------------------------------------------------------------------------


@pytest.mark.parametrize("by", [read, scan_record_set])
@pytest.mark.parametrize("offset", [5, 4, 0])
def test_an_offset_that_does_not_increase_would_be_read_for_ever(offset: int, by: Callable[[bytes], object]) -> None:
    for again in (plain(offset), plain(offset, 1), batch(base=offset)):
        assert_refused(plain(5) + again, "do not follow offset 5", by)


@pytest.mark.parametrize("by", [read, scan_record_set])
def test_a_batch_may_not_begin_inside_the_one_before(by: Callable[[bytes], object]) -> None:
    first = batch(record(WHOLE_RECORD), base=0, last_delta=9)
    assert_refused(first + batch(base=9), "do not follow offset 9", by)


@pytest.mark.parametrize("by", [read, scan_record_set])
@pytest.mark.parametrize("offset", [-1, -(2**63)])
def test_a_negative_offset(offset: int, by: Callable[[bytes], object]) -> None:
    for entry in (plain(offset), plain(offset, 1), batch(base=offset, last_delta=5)):
        assert_refused(entry, "do not follow offset -1", by)


@pytest.mark.parametrize("by", [read, scan_record_set])
def test_a_last_offset_before_the_base_would_rewind_the_fetcher(by: Callable[[bytes], object]) -> None:
    assert_refused(batch(base=100, last_delta=-1), "offsets 100 to 99 ", by)


@pytest.mark.parametrize("by", [read, scan_record_set])
def test_an_offset_without_a_next_one_in_64_bits(by: Callable[[bytes], object]) -> None:
    assert scan_record_set(plain(OFFSET_MAX)).next_offset == 2**63 - 1
    for entry in (plain(OFFSET_MAX + 1), batch(base=OFFSET_MAX, last_delta=1)):
        assert_refused(entry, f"{OFFSET_MAX + 1} do not follow", by)


def test_offsets_inside_a_wrapper_that_do_not_increase() -> None:
    for inner in ((1, 1), (1, 0), (-1, 1)):
        for magic in (0, 1):
            assert_refused(wrapper(2, b"".join(plain(offset, magic) for offset in inner), magic), "does not follow")


def test_offsets_inside_a_wrapper_beyond_the_wrapper() -> None:
    assert_refused(wrapper(5, plain(5) + plain(6)), "5 to 6 inside do not fit")
    assert_refused(wrapper(5, plain(5, 1) + plain(6, 1), 1), "inside do not fit")


def test_offsets_inside_a_wrapper_that_reach_back_behind_the_entry_before() -> None:
    assert_refused(plain(4) + wrapper(6, plain(4) + plain(6)), "4 to 6 inside do not fit between 4 and 6")
    assert_refused(plain(4) + wrapper(6, plain(0, 1) + plain(2, 1), 1), "4 to 6 inside do not fit between 4 and 6")


@pytest.mark.parametrize("deltas", [(0, 0), (1, 0), (-1,), (0, 3), (0, 2**40)])
def test_offsets_inside_a_batch_that_do_not_increase_or_leave_it(deltas: tuple[int, int]) -> None:
    payload = b"".join(record(fields(offset_delta=delta)) for delta in deltas)
    assert_refused(batch(payload, last_delta=2, count=len(deltas)), "has none of those up to 2")


# --- checksums --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("make", [lambda: plain(0), lambda: plain(0, 1), lambda: batch(record(WHOLE_RECORD))])
def test_a_flipped_bit_in_the_last_byte(make: Callable[[], bytes]) -> None:
    entry = bytearray(make())
    entry[-1] ^= 1
    assert_refused(bytes(entry), "checksum")


def test_a_flipped_bit_that_makes_a_control_batch_does_not_hide_the_records() -> None:
    entry = bytearray(batch(record(WHOLE_RECORD)))
    entry[22] ^= 0x20
    assert_refused(bytes(entry), "checksum")


def test_a_flipped_bit_in_the_last_offset_does_not_hide_the_records_from_a_later_start() -> None:
    entry = bytearray(batch(record(fields()) + record(fields(offset_delta=4)), last_delta=4, count=2))
    entry[26] ^= 4
    with pytest.raises(InvalidMessageException, match="checksum"):
        list(iter_records(bytes(entry), 3))


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_inside_a_sound_wrapper_has_its_own_checksum(magic: int) -> None:
    inner = bytearray(plain(0, magic))
    inner[-1] ^= 1
    record_set = wrapper(0, bytes(inner), magic)
    assert_refused(record_set, "checksum of the message with offset 0 inside")
    assert len(list(iter_records(record_set, check_crcs=False))) == 1


# --- inside messages of formats 0 and 1 -------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [6, 2**31 - 1])
def test_a_key_or_value_longer_than_its_message(length: int, magic: int) -> None:
    far = struct.pack(">i", length)
    assert_refused(message(0, far + b"key" + sized(b""), magic), "key of")
    assert_refused(message(0, sized(b"key") + far + b"value", magic), "value of")
    assert_refused(message(0, sized(b"a longer key"), magic), "key of")


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("length", [-1, -2, -(2**31)])
def test_a_negative_length_is_null_as_in_every_release(length: int, magic: int) -> None:
    [seen] = read(message(0, struct.pack(">ii", length, length), magic))
    assert (seen.key, seen.value) == (None, None)


@pytest.mark.parametrize("magic", [0, 1])
def test_bytes_after_the_value_are_let_pass_as_in_every_release(magic: int) -> None:
    [seen] = read(message(0, sized(b"key") + sized(b"value") + b"more", magic))
    assert (seen.key, seen.value) == (b"key", b"value")


# --- wrappers ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_in_a_wrapper_could_go_on_for_ever(magic: int) -> None:
    assert_refused(wrapper(0, wrapper(0, plain(0, magic), magic), magic), "compressed message inside a compressed")


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_without_a_value(magic: int) -> None:
    assert_refused(message(0, sized(None) * 2, magic, GZIP), "without a value")


@pytest.mark.parametrize("magic", [0, 1])
def test_a_wrapper_without_a_message_inside(magic: int) -> None:
    assert_refused(wrapper(0, b"", magic), "without a message")


@pytest.mark.parametrize("magic", [0, 1])
def test_a_message_set_cut_off_inside_a_wrapper_would_lose_records_silently(magic: int) -> None:
    inner = plain(0, magic) + plain(1, magic)
    for size in range(1, len(inner)):
        if size != len(inner) // 2:
            assert_refused(wrapper(1, inner[:size], magic), "cut off|cannot be")


@pytest.mark.parametrize("size", [-12, 0, 13, 2**31 - 1])
def test_a_size_inside_a_wrapper_that_would_never_move_on_or_leave_it(size: int) -> None:
    assert_refused(wrapper(0, struct.pack(">qi", 0, size) + bytes(20)), f"message of {size} bytes inside")


@pytest.mark.parametrize("magic", [0, 1])
def test_a_batch_inside_a_wrapper(magic: int) -> None:
    assert_refused(wrapper(0, batch(record(WHOLE_RECORD)), magic), "checksum of the message")
    with pytest.raises(InvalidMessageException, match="format 2 inside"):
        list(iter_records(wrapper(0, batch(record(WHOLE_RECORD)), magic), check_crcs=False))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [4, 5, 6, 7])
def test_a_codec_that_does_not_exist_in_the_format(codec: int, magic: int) -> None:
    with pytest.raises(UnsupportedCodec, match=rf"offset 3 .*codec {codec}"):
        read(message(3, sized(None) + sized(b"value"), magic, codec))


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_payload_that_the_codec_did_not_write(codec: int) -> None:
    assert_refused(batch(b"\xff" * 50, attributes=codec), "gzip|snappy|lz4|zstd")
    if codec < 4:
        assert_refused(message(0, sized(None) + sized(b"\xff" * 50), 1, codec), "gzip|snappy|lz4")


# --- inside batches ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [-1, -(2**31)])
def test_a_negative_count_of_records(count: int) -> None:
    assert_refused(batch(record(WHOLE_RECORD), count=count), "a batch of -")


@pytest.mark.parametrize("codec", range(8))
def test_an_empty_batch_that_claims_a_codec_has_nothing_to_decompress(codec: int) -> None:
    assert read(batch(b"", count=0, attributes=codec)) == []


def test_a_count_of_records_above_those_that_are_there() -> None:
    assert_refused(batch(record(WHOLE_RECORD), count=2, last_delta=9), "cut off")
    assert_refused(batch(b"", count=2**31 - 1, last_delta=2**31 - 1), "cut off")


def test_a_count_of_records_below_those_that_are_there_would_lose_records_silently() -> None:
    payload = record(fields()) + record(fields(offset_delta=1))
    assert_refused(batch(payload, count=1, last_delta=1), "bytes follow the 1 records")


@pytest.mark.parametrize("length", [-1, 100, 2**31 - 1, 2**62])
def test_a_record_length_that_is_negative_or_leaves_the_batch(length: int) -> None:
    assert_refused(batch(varint(length) + WHOLE_RECORD), "longer than its batch")


@pytest.mark.parametrize("wrong", [-1, 1])
def test_a_record_whose_fields_do_not_fill_it(wrong: int) -> None:
    payload = varint(len(WHOLE_RECORD) + wrong) + WHOLE_RECORD + WHOLE_RECORD
    assert_refused(batch(payload, count=2, last_delta=1), "do not fill it")


@pytest.mark.parametrize("place", range(6))
def test_a_varint_that_never_ends(place: int) -> None:
    parts = [varint(len(WHOLE_RECORD)), b"\0", varint(0), varint(0), varint(-1), varint(-1), varint(0)]
    del parts[1 + place :]
    assert_refused(batch(b"".join(parts) + b"\xff" * 200), "longer than|cut off|do not fill|none of those|headers")


def test_a_varint_of_more_than_ten_bytes_is_not_added_up() -> None:
    # Without a bound, one of a megabyte would cost hours.
    for zeros in (9, 10, 11):
        body = b"\0" + b"\x80" * zeros + b"\0" + varint(0) + varint(-1) * 2 + varint(0)
        if zeros < 10:
            assert len(read(batch(record(body)))) == 1
        else:
            assert_refused(batch(record(body)), "do not fill it|headers")


@pytest.mark.parametrize("rest", [varint(2**40), varint(-1) + varint(2**62)], ids=["key", "value"])
def test_a_key_or_value_length_far_outside_the_batch(rest: bytes) -> None:
    assert_refused(batch(record(fields(rest=rest)) + bytes(20)), "cut off")


@pytest.mark.parametrize("count", [-1, HEADERS_MAX + 1, 2**31 - 1, 2**62])
def test_a_count_of_headers_that_would_fill_the_memory(count: int) -> None:
    assert_refused(batch(record(fields(rest=varint(-1) * 2 + varint(count)) + b"\0\1" * 100)), "headers")


def test_a_count_of_headers_above_those_that_are_there() -> None:
    assert_refused(batch(record(fields(rest=varint(-1) * 2 + varint(HEADERS_MAX)))), "cut off")


def test_a_header_without_a_key() -> None:
    assert_refused(batch(record(fields(rest=varint(-1) * 2 + varint(1) + varint(-1) * 2))), "header without a key")


def test_the_most_headers_that_are_allowed_are_read() -> None:
    [seen] = read(batch(record(fields(rest=varint(-1) * 2 + varint(HEADERS_MAX) + b"\0\1" * HEADERS_MAX))))
    assert seen.headers == (("", None),) * HEADERS_MAX


@pytest.mark.parametrize(("base", "delta"), [(2**63 - 1, 1), (-(2**63), -1), (0, 2**64)])
def test_a_timestamp_that_leaves_64_bits(base: int, delta: int) -> None:
    assert_refused(batch(record(fields(time_delta=delta)), time_ms=base), "timestamp")


# --- bombs ------------------------------------------------------------------------------------------------------

BOMBS = """
    import resource, struct, sys, zlib
    import cramjam
    from zkconsumer.errors import InvalidMessageException
    from zkconsumer.wire import compression

    if sys.argv[1] == "default":
        compression._isal = compression._zstandard = None
    compression._ISAL_BYTES_MIN = 0

    LIMIT = 16 << 20
    BOMB = 1 << 30

    def gzip():
        deflater = zlib.compressobj(wbits=31)
        start = deflater.compress(bytes(1 << 20)) + deflater.flush(zlib.Z_FULL_FLUSH)
        again = deflater.compress(bytes(1 << 20)) + deflater.flush(zlib.Z_FULL_FLUSH)
        return start + again * (BOMB >> 20) + deflater.flush()

    def gzip_members():
        deflater = zlib.compressobj(wbits=31)
        return (deflater.compress(bytes(1 << 20)) + deflater.flush()) * 64

    def xerial():
        block = bytes(cramjam.snappy.compress_raw(bytes(1 << 20)))
        return b"\\x82SNAPPY\\0" + bytes(8) + (struct.pack(">i", len(block)) + block) * 64

    def snappy_claim():
        return b"\\xff\\xff\\xff\\xff\\x0f" + bytes(cramjam.snappy.compress_raw(bytes(1000)))[2:]

    def xerial_claim():
        block = snappy_claim()
        return b"\\x82SNAPPY\\0" + bytes(8) + (struct.pack(">i", len(block)) + block) * 2

    def lz4():
        writer = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
        writer.compress(bytes(64 << 10))
        frame = bytes(writer.finish())
        return frame[:7] + frame[7:-4] * (BOMB >> 16) + bytes(4)

    def lz4_large_blocks():
        block = bytes(cramjam.lz4.compress_block(bytes(4 << 20), store_size=False))
        framed = struct.pack("<I", len(block)) + block
        return bytes.fromhex("04224d18607073") + framed * (BOMB >> 22) + bytes(4)

    def zstd_blocks(kind, last):
        return struct.pack("<I", (128 << 10) << 3 | kind << 1 | last)[:3] + b"A"

    def zstd():
        return bytes.fromhex("28b52ffd0070") + zstd_blocks(1, 0) * (BOMB >> 17) + zstd_blocks(1, 1)

    def zstd_frames():
        return (bytes.fromhex("28b52ffd0070") + zstd_blocks(1, 0) * 7 + zstd_blocks(1, 1)) * (BOMB >> 20)

    def zstd_with_size():
        size = (BOMB + (128 << 10)).to_bytes(8, "little")
        return bytes.fromhex("28b52ffdc070") + size + zstd_blocks(1, 0) * (BOMB >> 17) + zstd_blocks(1, 1)

    def zstd_claim(size):
        return bytes.fromhex("28b52ffdc070") + size.to_bytes(8, "little") + b"\\x21\\0\\0word"

    def zstd_empty_blocks():
        block = bytes.fromhex("040000")  # expands to no byte, but could to 128 KiB
        return bytes.fromhex("28b52ffd0070") + block * (BOMB >> 17) + b"\\x21\\0\\0word"

    bombs = [(1, gzip()), (1, gzip_members())]
    bombs += [(2, xerial()), (2, snappy_claim()), (2, xerial_claim())]
    bombs += [(3, lz4()), (3, lz4_large_blocks())]
    bombs += [(4, zstd()), (4, zstd_frames()), (4, zstd_with_size())]
    bombs += [(4, zstd_claim(LIMIT)), (4, zstd_claim(BOMB)), (4, zstd_claim(2**63)), (4, zstd_claim(2**64 - 3))]
    bombs += [(4, zstd_empty_blocks())]
    with open("/proc/self/statm") as statm:
        now = int(statm.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + 10 * LIMIT,) * 2)
    for codec, bomb in bombs:
        try:
            expanded = compression.decompress(codec, bomb, 2, LIMIT)
        except InvalidMessageException as error:
            print(codec, type(error).__name__, error)
        else:
            print(codec, bytes(expanded))
"""


@pytest.mark.parametrize("packages", ["default", "fast"])
def test_a_bomb_of_any_codec_does_not_allocate_beyond_the_limit(packages: str) -> None:
    # Each would expand to a gigabyte or claims to; the process may not grow by more than 160 MiB.
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(BOMBS), packages],
        capture_output=True, text=True, timeout=100, check=False,
    )  # fmt: skip
    refused = [line.split()[:2] for line in done.stdout.splitlines()]
    too_far, wrong = "DecompressionLimitError", "InvalidMessageException"
    kinds = [["1", too_far]] * 2 + [["2", too_far]] * 3 + [["3", too_far]] * 2 + [["4", too_far]] * 3
    assert refused == [*kinds, *[["4", wrong]] * 4, ["4", "b'word'"]], done.stderr
    assert done.stdout.count(str(16 << 20)) == len(kinds)


def test_a_second_lz4_frame_does_not_slip_past_the_limit() -> None:
    harmless = compress(3, b"a", 2)
    with pytest.raises(InvalidMessageException, match="does not end where the data ends"):
        decompress(3, harmless + compress(3, bytes(1 << 20), 2), 2, 1 << 17)


def test_the_limit_holds_for_every_entry_that_is_compressed() -> None:
    records = [Record(0, 0, 0, None, b"word " * 1000)]
    for magic, codec in [(0, 1), (0, 2), (0, 3), (1, 1), (1, 2), (1, 3), (2, 1), (2, 2), (2, 3), (2, 4)]:
        record_set = build_record_set(records, magic, codec)
        assert len(list(iter_records(record_set, decompressed_bytes_max=6000))) == 1
        with pytest.raises(InvalidMessageException, match=r"offset 0 .*5000 bytes"):
            list(iter_records(record_set, decompressed_bytes_max=5000))


def test_a_wrapper_of_a_great_many_empty_messages_is_walked_without_keeping_them() -> None:
    count = 400_000
    inner = bytearray(struct.pack(">qiIbbii", 0, 14, 0, 0, 0, -1, -1) * count)
    for number in range(count):
        struct.pack_into(">q", inner, 26 * number, number)
    records = iter_records(wrapper(count - 1, bytes(inner)), check_crcs=False)
    tracemalloc.start()
    try:
        assert next(records).offset == 0
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # The decompressed set, twice for a moment; a list of its places would be several times that.
    assert peak < 3 * len(inner)
