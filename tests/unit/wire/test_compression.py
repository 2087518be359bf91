"""The codecs: round trips, the framings that Kafka's clients wrote, and the limit; with each package that decodes."""

from __future__ import annotations

import os
import re
import sys
import threading
import zlib
from concurrent.futures import ThreadPoolExecutor

import cramjam
import pytest

from tests.codec_fixtures import codecs_in_use  # noqa: F401
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.wire import compression
from zkconsumer.wire.compression import (
    CODEC_NAMES,
    GZIP,
    GZIP_MEMBERS_MAX,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    DecompressionLimitError,
    compress,
    decompress,
    implementations,
)

ROOMY = 1 << 24
EVERY = [(NONE, 0), (GZIP, 0), (SNAPPY, 0), (LZ4, 0), (GZIP, 1), (SNAPPY, 1), (LZ4, 1)]
EVERY += [(NONE, 2), (GZIP, 2), (SNAPPY, 2), (LZ4, 2), (ZSTD, 2)]
LZ4_CHECKSUM_AT = 6
XERIAL_HEADER = b"\x82SNAPPY\0" + b"\0\0\0\1" * 2


def changed(data: bytes, at: int, byte: int) -> bytes:
    return data[:at] + bytes([byte]) + data[at + 1 :]


def xerial(data: bytes, block_bytes: int) -> bytes:
    """In blocks of this size."""
    framed = XERIAL_HEADER
    for start in range(0, len(data), block_bytes):
        block = bytes(cramjam.snappy.compress_raw(data[start : start + block_bytes]))
        framed += len(block).to_bytes(4, "big") + block
    return framed


def lz4_frame(*blocks: bytes, header: bytes = bytes.fromhex("04224d18604082"), is_stored: bool = False) -> bytes:
    """As Java writes it: independent blocks of at most 64 KiB, without sizes and checksums."""
    mark = 0x80000000 if is_stored else 0
    return header + b"".join((mark | len(block)).to_bytes(4, "little") + block for block in blocks) + bytes(4)


def lz4_block(data: bytes) -> bytes:
    return bytes(cramjam.lz4.compress_block(data, store_size=False))


def zstd_frame(*parts: bytes) -> bytes:
    """As Java writes it: without the content size."""
    writer = cramjam.zstd.Compressor()
    for part in parts:
        writer.compress(part)
    return bytes(writer.finish())


@pytest.mark.parametrize("size", [0, 1, 100, 32 * 1024 + 1, 64 * 1024 + 1, 300_000])
@pytest.mark.parametrize(("codec", "magic"), EVERY)
def test_what_goes_in_comes_out(codec: int, magic: int, size: int) -> None:
    data = (os.urandom(size // 10) * 11)[:size]
    assert decompress(codec, compress(codec, data, magic), magic, ROOMY) == data
    assert decompress(codec, memoryview(compress(codec, memoryview(data), magic)), magic, ROOMY) == data


@pytest.mark.parametrize(("codec", "magic"), [pair for pair in EVERY if pair[0] != NONE])
def test_compressing_makes_it_smaller(codec: int, magic: int) -> None:
    assert len(compress(codec, b"word " * 10_000, magic)) < 10_000


@pytest.mark.parametrize("data", [b"word " * 200, os.urandom(1000)], ids=["dense", "stored"])
@pytest.mark.parametrize(("codec", "magic"), EVERY)
def test_the_limit_lets_out_so_many_bytes_and_not_one_more(codec: int, magic: int, data: bytes) -> None:
    packed = compress(codec, data, magic)
    assert decompress(codec, packed, magic, len(data)) == data
    with pytest.raises(InvalidMessageException, match=f"{len(data) - 1} bytes"):
        decompress(codec, packed, magic, len(data) - 1)


@pytest.mark.parametrize("codec", [5, 6, 7, -1])
def test_a_codec_that_does_not_exist_is_named(codec: int) -> None:
    with pytest.raises(UnsupportedCodec, match=f"codec {codec} "):
        decompress(codec, b"", 2, ROOMY)
    with pytest.raises(UnsupportedCodec, match=f"codec {codec} "):
        compress(codec, b"", 2)


@pytest.mark.parametrize("magic", [0, 1])
def test_zstd_does_not_exist_before_format_2(magic: int) -> None:
    with pytest.raises(UnsupportedCodec, match=rf"zstd.*format {magic}"):
        decompress(ZSTD, compress(ZSTD, b"word", 2), magic, ROOMY)
    with pytest.raises(UnsupportedCodec, match=rf"zstd.*format {magic}"):
        compress(ZSTD, b"word", magic)


@pytest.mark.parametrize(("codec", "magic"), [(GZIP, 1), (LZ4, 0), (LZ4, 1), (ZSTD, 2)])
def test_a_payload_cut_anywhere_is_refused(codec: int, magic: int) -> None:
    packed = compress(codec, b"word " * 20 + os.urandom(20), magic)
    for size in range(len(packed)):
        with pytest.raises(InvalidMessageException):
            decompress(codec, packed[:size], magic, ROOMY)


@pytest.mark.parametrize(("codec", "magic"), [(GZIP, 1), (SNAPPY, 1), (LZ4, 0), (LZ4, 1), (ZSTD, 2)])
@pytest.mark.parametrize("junk", [b"\0", b"\xff" * 3, b"not a frame, and long enough to be one"])
def test_junk_after_the_payload_is_refused(codec: int, magic: int, junk: bytes) -> None:
    with pytest.raises(InvalidMessageException):
        decompress(codec, compress(codec, b"word " * 20, magic) + junk, magic, ROOMY)


def test_the_packages_are_told_with_their_releases(codecs_in_use: str) -> None:  # noqa: F811
    gzip, zstd = {"default": ("cramjam", "cramjam"), "fast": ("isal", "zstandard")}[codecs_in_use]
    told = implementations()
    assert [line.split()[0] for line in told.values()] == [gzip, "cramjam", "cramjam", zstd]
    assert list(told) == [CODEC_NAMES[codec] for codec in (GZIP, SNAPPY, LZ4, ZSTD)]
    assert all(re.fullmatch(r"\w+ \d+\.\d[\w.-]*(, zlib \d+\.\d[\w.-]*)?", line) for line in told.values()), told


@pytest.mark.parametrize(("codec", "magic"), EVERY)
def test_a_result_is_bytes_of_the_caller_s_own(codec: int, magic: int) -> None:
    packed = compress(codec, b"word " * 200, magic)
    one, other = decompress(codec, packed, magic, ROOMY), decompress(codec, packed, magic, ROOMY)
    assert isinstance(one, bytes | bytearray)
    if isinstance(one, bytearray):
        one[0] = 0
    assert other == b"word " * 200
    assert packed == compress(codec, b"word " * 200, magic)


@pytest.mark.parametrize("data", [b"", b"w", b"word " * 20, b"a" * 60_000, os.urandom(5000)], ids=len)
@pytest.mark.parametrize(("codec", "magic"), [pair for pair in EVERY if pair[0] != NONE])
def test_a_result_occupies_at_most_twice_its_length(codec: int, magic: int, data: bytes) -> None:
    expanded = decompress(codec, compress(codec, data, magic), magic, ROOMY)
    assert sys.getsizeof(expanded) <= 2 * len(data) + 100


@pytest.mark.parametrize(("codec", "magic"), [pair for pair in EVERY if pair[0] != NONE])
def test_a_call_gives_up_the_gil(codec: int, magic: int) -> None:
    packed = compress(codec, os.urandom(1000) * 300, magic)
    before = sys.getswitchinterval()
    may_run, has_run = threading.Lock(), threading.Event()

    def run() -> None:
        with may_run:
            has_run.set()

    may_run.acquire()
    thread = threading.Thread(target=run)
    thread.start()
    try:
        # Now the other thread runs only when this one gives the interpreter up by itself.
        sys.setswitchinterval(1000)
        may_run.release()
        calls = 0
        while not has_run.is_set() and calls < 5000:
            decompress(codec, packed, magic, ROOMY)
            calls += 1
        assert has_run.is_set()
    finally:
        sys.setswitchinterval(before)
        thread.join()


def test_many_threads_at_once_get_each_their_own() -> None:
    def check(number: int) -> None:
        data = (b"%d " % number) * (300 + 50 * number)
        for codec, magic in EVERY:
            packed = compress(codec, data, magic)
            for _ in range(10):
                assert decompress(codec, packed, magic, ROOMY) == data
                with pytest.raises(InvalidMessageException):
                    decompress(codec, packed, magic, len(data) - 1)

    with ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(check, number) for number in range(40)]:
            done.result()


# --- gzip -------------------------------------------------------------------------------------------------------


def test_gzip_members_are_joined_up_to_a_limit_of_their_number() -> None:
    member = compress(GZIP, b"word ", 1)
    assert decompress(GZIP, member * GZIP_MEMBERS_MAX, 1, ROOMY) == b"word " * GZIP_MEMBERS_MAX
    with pytest.raises(InvalidMessageException, match=f"more than {GZIP_MEMBERS_MAX} members"):
        decompress(GZIP, member * (GZIP_MEMBERS_MAX + 1), 1, ROOMY)


def test_the_limit_counts_all_gzip_members() -> None:
    with pytest.raises(InvalidMessageException, match="more than 9 bytes"):
        decompress(GZIP, compress(GZIP, b"word ", 1) * 2, 1, 9)


def test_a_gzip_member_that_is_cut_off_or_damaged_is_refused_behind_others() -> None:
    member = compress(GZIP, b"word " * 50, 1)
    for damaged in (member[:-1], member[:11], changed(member, len(member) - 5, member[-5] ^ 1)):
        with pytest.raises(InvalidMessageException, match="gzip"):
            decompress(GZIP, member + damaged, 1, ROOMY)


def test_gzip_members_without_content_are_read_and_no_member_is_refused() -> None:
    empty = compress(GZIP, b"", 1)
    assert decompress(GZIP, empty * 2, 1, 0) == b""
    with pytest.raises(InvalidMessageException, match="gzip: no data"):
        decompress(GZIP, b"", 1, ROOMY)


@pytest.mark.parametrize("size", [0, 99, 101, 2**32 - 1])
def test_the_size_at_the_end_of_a_gzip_member_must_be_right(size: int) -> None:
    packed = compress(GZIP, b"word " * 20, 1)
    with pytest.raises(InvalidMessageException, match="gzip"):
        decompress(GZIP, packed[:-4] + size.to_bytes(4, "little"), 1, ROOMY)


def test_a_gzip_header_may_have_a_name_and_a_checksum_which_is_verified() -> None:
    packed = compress(GZIP, b"word " * 20, 1)
    header = packed[:3] + b"\x0a" + packed[4:10] + b"name\0"
    checked = header + (zlib.crc32(header) & 0xFFFF).to_bytes(2, "little")
    assert decompress(GZIP, checked + packed[10:], 1, ROOMY) == b"word " * 20
    with pytest.raises(InvalidMessageException, match="gzip"):
        decompress(GZIP, header + b"\0\0" + packed[10:], 1, ROOMY)


@pytest.mark.parametrize("flag", [0x20, 0x40, 0x80])
@pytest.mark.parametrize("before", [0, 1])
def test_gzip_flags_that_are_reserved_are_refused(flag: int, before: int) -> None:
    packed = compress(GZIP, b"word " * 20, 1)
    with pytest.raises(InvalidMessageException, match="gzip"):
        decompress(GZIP, packed * before + changed(packed, 3, flag), 1, ROOMY)


def test_a_gzip_checksum_is_verified() -> None:
    packed = compress(GZIP, b"word " * 20, 1)
    with pytest.raises(InvalidMessageException, match="gzip"):
        decompress(GZIP, changed(packed, len(packed) - 5, packed[-5] ^ 1), 1, ROOMY)


def test_deflate_without_the_gzip_header_is_refused() -> None:
    with pytest.raises(InvalidMessageException, match="gzip"):
        decompress(GZIP, zlib.compress(b"word"), 1, ROOMY)


# --- snappy -----------------------------------------------------------------------------------------------------


def test_snappy_is_written_in_xerial_blocks_of_32_kib() -> None:
    data = os.urandom(40_000)
    packed = compress(SNAPPY, data, 0)
    assert packed.startswith(XERIAL_HEADER)
    size = int.from_bytes(packed[16:20], "big")
    assert bytes(cramjam.snappy.decompress_raw(packed[20 : 20 + size])) == data[: 32 * 1024]


def test_snappy_without_frame_is_read() -> None:
    assert decompress(SNAPPY, bytes(cramjam.snappy.compress_raw(b"word " * 99)), 1, ROOMY) == b"word " * 99


def test_the_version_fields_of_a_xerial_header_are_not_looked_at() -> None:
    packed = compress(SNAPPY, b"word ", 1)
    assert decompress(SNAPPY, packed[:8] + b"\1\0\0\0" * 2 + packed[16:], 1, ROOMY) == b"word "


@pytest.mark.parametrize("block_bytes", [1, 100, 127, 128, 1024, 16_383, 16_384])
def test_xerial_blocks_of_any_size_are_joined(block_bytes: int) -> None:
    data = (os.urandom(3000) * 10)[: 40 * block_bytes + 1]
    assert decompress(SNAPPY, xerial(data, block_bytes), 1, len(data)) == data
    assert decompress(SNAPPY, memoryview(xerial(data, block_bytes)), 1, len(data)) == data


def test_a_xerial_frame_without_blocks_is_empty() -> None:
    assert decompress(SNAPPY, XERIAL_HEADER, 1, 0) == b""


def test_a_xerial_block_that_is_damaged_is_refused_among_others() -> None:
    blocks = [bytes(cramjam.snappy.compress_raw(os.urandom(20))) for _ in range(3)]
    assert blocks[1][0] == 20
    for damaged in (b"", blocks[1][:-1], b"\x80" * 7, changed(blocks[1], 0, 19), changed(blocks[1], 0, 0x94)):
        framed = XERIAL_HEADER
        for block in (blocks[0], damaged, blocks[2]):
            framed += len(block).to_bytes(4, "big") + block
        with pytest.raises(InvalidMessageException, match="snappy"):
            decompress(SNAPPY, framed, 1, ROOMY)


def test_a_xerial_block_that_claims_too_much_is_refused_before_anything_is_decoded() -> None:
    sound = bytes(cramjam.snappy.compress_raw(b"word "))
    claim = b"\xff\xff\xff\xff\x0f" + sound[1:]
    framed = XERIAL_HEADER
    for block in (sound, claim):
        framed += len(block).to_bytes(4, "big") + block
    with pytest.raises(DecompressionLimitError, match=f"more than {ROOMY} bytes"):
        decompress(SNAPPY, framed, 1, ROOMY)


def test_a_xerial_block_cut_anywhere_is_refused() -> None:
    packed = compress(SNAPPY, b"word " * 20, 1)
    two = xerial(b"word " * 20, 50)
    assert decompress(SNAPPY, two, 1, ROOMY) == b"word " * 20
    between = 20 + int.from_bytes(two[16:20], "big")
    cuts = [packed[:size] for size in [*range(8, 16), *range(17, len(packed))]]
    cuts += [two[:size] for size in range(17, len(two)) if size != between]
    for cut in cuts:
        with pytest.raises(InvalidMessageException):
            decompress(SNAPPY, cut, 1, ROOMY)


@pytest.mark.parametrize("length", [b"\x00\x00\x00\x00", b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff"])
def test_a_xerial_block_length_that_cannot_be_is_refused(length: bytes) -> None:
    with pytest.raises(InvalidMessageException):
        decompress(SNAPPY, XERIAL_HEADER + length + b"\x01\x00a", 1, ROOMY)


def test_the_limit_counts_all_xerial_blocks() -> None:
    block = bytes(cramjam.snappy.compress_raw(b"word "))
    framed = XERIAL_HEADER + (len(block).to_bytes(4, "big") + block) * 2
    assert decompress(SNAPPY, framed, 1, 10) == b"word word "
    with pytest.raises(InvalidMessageException, match="snappy: expands to more than"):
        decompress(SNAPPY, framed, 1, 9)


# --- lz4 --------------------------------------------------------------------------------------------------------

JAVA_0_9_FRAME = bytes.fromhex("04224d1860401a050000805858585858") + bytes(4)
"""``XXXXX`` stored, behind the header that kafka-clients 0.9.0.1 writes (0x1a is its wrong checksum)."""


def test_format_0_reads_the_wrong_header_checksum_of_kafka_0_8_2_and_0_9() -> None:
    assert decompress(LZ4, JAVA_0_9_FRAME, 0, ROOMY) == b"XXXXX"


def test_format_0_reads_the_right_header_checksum_too() -> None:
    assert decompress(LZ4, changed(JAVA_0_9_FRAME, LZ4_CHECKSUM_AT, 0x82), 0, ROOMY) == b"XXXXX"


@pytest.mark.parametrize("magic", [1, 2])
def test_formats_1_and_2_insist_on_the_right_header_checksum(magic: int) -> None:
    assert decompress(LZ4, changed(JAVA_0_9_FRAME, LZ4_CHECKSUM_AT, 0x82), magic, ROOMY) == b"XXXXX"
    with pytest.raises(InvalidMessageException, match="checksum of the frame header"):
        decompress(LZ4, JAVA_0_9_FRAME, magic, ROOMY)


@pytest.mark.parametrize("magic", [0, 1, 2])
def test_a_header_checksum_that_is_neither_is_refused(magic: int) -> None:
    with pytest.raises(InvalidMessageException, match="checksum of the frame header"):
        decompress(LZ4, changed(JAVA_0_9_FRAME, LZ4_CHECKSUM_AT, 0x83), magic, ROOMY)


def test_format_0_is_written_with_the_checksum_that_0_8_2_insists_on() -> None:
    # The flags depend on the release of cramjam.  kafka-clients 0.9.0.1 writes 1a for the one, reads ec for the other.
    wrong, right = {"6040": (0x1A, 0x82), "7040": (0xEC, 0xAD)}[compress(LZ4, b"word", 0)[4:6].hex()]
    assert compress(LZ4, b"word", 0)[LZ4_CHECKSUM_AT] == wrong
    assert compress(LZ4, b"word", 1)[LZ4_CHECKSUM_AT] == right


@pytest.mark.parametrize("magic", [0, 1])
def test_lz4_blocks_are_independent_and_without_content_size_as_the_java_readers_demand(magic: int) -> None:
    flags = compress(LZ4, b"word " * 50_000, magic)[4]
    assert flags & 0x20
    assert not flags & 0x08


def test_a_frame_with_a_content_size_is_read_in_either_checksum() -> None:
    # The decoder verifies the byte, so it also verifies ours: magic and descriptor are 14 bytes long here.
    header = bytes.fromhex("04224d18684005") + bytes(7)
    block = JAVA_0_9_FRAME[LZ4_CHECKSUM_AT + 1 :]
    accepted = []
    for checksum in range(256):
        try:
            assert decompress(LZ4, header + bytes([checksum]) + block, 0, ROOMY) == b"XXXXX"
            accepted.append(checksum)
        except InvalidMessageException:
            continue
    assert len(accepted) == 2


def test_a_frame_of_linked_blocks_is_read() -> None:
    data = os.urandom(2000) * 100
    assert decompress(LZ4, bytes(cramjam.lz4.compress(data)), 1, ROOMY) == data


@pytest.mark.parametrize("magic", [0, 1, 2])
@pytest.mark.parametrize("data", [b"w", b"word " * 30, b"a" * 65_536, os.urandom(5000) * 13], ids=len)
def test_a_frame_of_one_block_is_read_however_far_it_expands(data: bytes, magic: int) -> None:
    frame = lz4_frame(lz4_block(data))
    for limit in (len(data), ROOMY):
        assert decompress(LZ4, frame, magic, limit) == data
        assert decompress(LZ4, memoryview(frame), magic, limit) == data
    with pytest.raises(DecompressionLimitError, match=f"{len(data) - 1} bytes"):
        decompress(LZ4, frame, magic, len(data) - 1)


def test_a_frame_of_several_blocks_or_none_is_read() -> None:
    first, second = b"a" * 65_536, os.urandom(300) * 40
    frame = lz4_frame(lz4_block(first), lz4_block(second))
    for limit in (len(first + second), ROOMY):
        assert decompress(LZ4, frame, 1, limit) == first + second
    assert decompress(LZ4, lz4_frame(), 1, 0) == b""


def test_a_stored_block_is_read() -> None:
    data = os.urandom(1000)
    frame = lz4_frame(data, is_stored=True)
    for limit in (1000, ROOMY):
        assert decompress(LZ4, frame, 1, limit) == data
        assert decompress(LZ4, lz4_frame(data[:400], data[400:], is_stored=True), 1, limit) == data
    with pytest.raises(DecompressionLimitError, match="999 bytes"):
        decompress(LZ4, frame, 1, 999)


@pytest.mark.parametrize("is_stored", [False, True])
def test_a_block_above_the_size_of_its_frame_is_refused(is_stored: bool) -> None:
    data = bytes(65_537) if is_stored else lz4_block(bytes(65_537))
    with pytest.raises(InvalidMessageException, match="lz4"):
        decompress(LZ4, lz4_frame(data, is_stored=is_stored), 1, ROOMY)
    larger = bytes.fromhex("04224d186050") + b"\xfb"
    assert decompress(LZ4, lz4_frame(data, header=larger, is_stored=is_stored), 1, ROOMY) == bytes(65_537)


def test_a_frame_of_one_block_that_is_cut_or_damaged_is_refused() -> None:
    frame = lz4_frame(lz4_block(b"word " * 30))
    damaged = [frame[:size] for size in range(len(frame))]
    damaged += [frame + b"\0", frame + bytes(4), frame[:-4] + b"\1\0\0\0", changed(frame, 7, frame[7] - 1)]
    damaged += [lz4_frame(lz4_block(b"word " * 30)[:-1]), lz4_frame(b""), lz4_frame(b"\xff" * 20)]
    for each in damaged:
        with pytest.raises(InvalidMessageException, match="lz4"):
            decompress(LZ4, each, 1, ROOMY)


@pytest.mark.parametrize("flags", [0x64, 0x70, 0x74])
def test_checksums_of_the_content_and_of_a_block_are_verified(flags: int) -> None:
    descriptor = bytes([flags, 0x40])
    header = bytes.fromhex("04224d18") + descriptor + bytes([compression._xxh32_short(descriptor) >> 8 & 0xFF])
    checksum = compression._xxh32_short(b"XXXXX").to_bytes(4, "little")
    of_block, of_content = checksum if flags & 0x10 else b"", checksum if flags & 0x04 else b""
    frame = header + bytes.fromhex("05000080") + b"XXXXX" + of_block + bytes(4) + of_content
    assert decompress(LZ4, frame, 1, ROOMY) == b"XXXXX"
    for at in range(frame.index(b"XXXXX"), len(frame)):
        with pytest.raises(InvalidMessageException, match="lz4"):
            decompress(LZ4, changed(frame, at, frame[at] ^ 1), 1, ROOMY)


def test_a_frame_that_needs_a_dictionary_is_refused() -> None:
    with pytest.raises(InvalidMessageException, match="dictionary"):
        decompress(LZ4, changed(JAVA_0_9_FRAME, 4, 0x61), 1, ROOMY)


# --- zstd -------------------------------------------------------------------------------------------------------


def test_zstd_frames_are_joined_and_skippable_ones_skipped() -> None:
    frame = compress(ZSTD, b"word ", 2)
    skippable = bytes.fromhex("502a4d18") + (3).to_bytes(4, "little") + b"abc"
    for limit in (10, ROOMY):
        assert decompress(ZSTD, frame + skippable + frame, 2, limit) == b"word word "


def test_a_decompressor_of_zstandard_serves_one_call_at_a_time_and_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    zstandard = pytest.importorskip("zstandard")
    real = zstandard.ZstdDecompressor
    made = []
    both_are_in = threading.Barrier(2, timeout=30)

    class Watched:
        def __init__(self) -> None:
            made.append(self)
            self._real = real()
            self._in_use = threading.Lock()

        def decompress(self, data: bytes, size: int) -> bytes:
            assert self._in_use.acquire(blocking=False), "a decompressor is not safe for two threads"
            try:
                both_are_in.wait()
                return bytes(self._real.decompress(data, size))
            finally:
                self._in_use.release()

    monkeypatch.setattr(zstandard, "ZstdDecompressor", Watched)
    monkeypatch.setattr(compression, "_zstandard", zstandard)
    monkeypatch.setattr(compression, "_zstd_decompressors", [Watched()])
    packed = zstd_frame(b"word " * 20)
    with ThreadPoolExecutor(2) as pool:
        for _ in range(20):
            calls = [pool.submit(decompress, ZSTD, packed, 2, ROOMY) for _ in range(2)]
            assert [call.result() for call in calls] == [b"word " * 20] * 2
    assert len(made) == 2


def test_zstd_frames_without_a_content_size_are_joined_too() -> None:
    frame = zstd_frame(b"word ")
    assert not frame[4] & 0xE0
    for joined in (frame * 2, frame + compress(ZSTD, b"word ", 2), compress(ZSTD, b"word ", 2) + frame):
        for limit in (10, ROOMY):
            assert decompress(ZSTD, joined, 2, limit) == b"word word "
        with pytest.raises(DecompressionLimitError, match="9 bytes"):
            decompress(ZSTD, joined, 2, 9)


def test_a_skippable_zstd_frame_may_come_first_or_alone() -> None:
    skippable = bytes.fromhex("5f2a4d18") + (3).to_bytes(4, "little") + b"abc"
    assert decompress(ZSTD, skippable, 2, ROOMY) == b""
    for frame in (zstd_frame(b"word "), compress(ZSTD, b"word ", 2)):
        assert decompress(ZSTD, skippable + frame, 2, ROOMY) == b"word "
        with pytest.raises(InvalidMessageException, match="zstd"):
            decompress(ZSTD, skippable[:-1] + frame, 2, ROOMY)


@pytest.mark.parametrize("size", [100, 9000])
def test_a_zstd_frame_without_a_content_size_is_refused_when_it_is_cut_or_something_follows(size: int) -> None:
    data = os.urandom(size)
    packed = zstd_frame(data)
    assert decompress(ZSTD, packed, 2, ROOMY) == data
    damaged = [packed[:cut] for cut in [*range(min(size, 200)), *range(size - 20, len(packed))]]
    damaged += [packed + junk for junk in (b"\0", b"\xff" * 3, bytes(4), bytes(40), packed[:4], packed[:9])]
    for each in damaged:
        with pytest.raises(InvalidMessageException, match="zstd"):
            decompress(ZSTD, each, 2, ROOMY)


@pytest.mark.parametrize(("flags", "size_bytes"), [(0x20, 1), (0x60, 2), (0xA0, 4), (0xE0, 8)])
def test_a_content_size_must_be_right(flags: int, size_bytes: int) -> None:
    data = os.urandom(300 if size_bytes == 2 else 200)
    block = (1 | len(data) << 3).to_bytes(3, "little") + data

    def frame(said: int) -> bytes:
        return bytes.fromhex("28b52ffd") + bytes([flags]) + said.to_bytes(size_bytes, "little") + block

    right = len(data) - (256 if size_bytes == 2 else 0)
    assert decompress(ZSTD, frame(right), 2, ROOMY) == data
    wrong = [0, 1, right - 1, right + 1, 255, 2**16 - 1, 2**20, 2**31, 2**32 - 1, 2**62, 2**63, 2**64 - 1]
    for said in wrong:
        if said < 256**size_bytes:
            with pytest.raises(InvalidMessageException, match="zstd"):
                decompress(ZSTD, frame(said), 2, ROOMY)


@pytest.mark.parametrize("size", [10, 300, 70_000, 400_000])
def test_zstd_frames_of_a_streaming_writer_are_read(size: int) -> None:
    # A streaming writer does not know the content size; Kafka's is one.
    data = (os.urandom(size // 3) * 4)[:size]
    packed = zstd_frame(*(data[start : start + 50_000] for start in range(0, size, 50_000)))
    for limit in (size, ROOMY):
        assert decompress(ZSTD, packed, 2, limit) == data


@pytest.mark.parametrize(
    "frame",
    [
        "28b52ffd246465000028776f72642001008ca968014592e8e2",
        "28b52ffd040065000028776f72642001008ca968014592e8e2",
    ],
    ids=["content size", "no content size"],
)
def test_a_zstd_checksum_is_verified(frame: str) -> None:
    packed = bytes.fromhex(frame)
    for limit in (100, ROOMY):
        assert decompress(ZSTD, packed, 2, limit) == b"word " * 20
        with pytest.raises(InvalidMessageException, match="zstd"):
            decompress(ZSTD, changed(packed, len(packed) - 1, packed[-1] ^ 1), 2, limit)
