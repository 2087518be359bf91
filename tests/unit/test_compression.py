"""The codecs: round trips, the framings that Kafka's clients wrote, and the limit."""

from __future__ import annotations

import os
import zlib

import cramjam
import pytest

from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.wire.compression import GZIP, GZIP_MEMBERS_MAX, LZ4, NONE, SNAPPY, ZSTD, compress, decompress

ROOMY = 1 << 24
EVERY = [(NONE, 0), (GZIP, 0), (SNAPPY, 0), (LZ4, 0), (GZIP, 1), (SNAPPY, 1), (LZ4, 1)]
EVERY += [(NONE, 2), (GZIP, 2), (SNAPPY, 2), (LZ4, 2), (ZSTD, 2)]
LZ4_CHECKSUM_AT = 6
XERIAL_HEADER = b"\x82SNAPPY\0" + b"\0\0\0\1" * 2


def changed(data: bytes, at: int, byte: int) -> bytes:
    return data[:at] + bytes([byte]) + data[at + 1 :]


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


# --- gzip -------------------------------------------------------------------------------------------------------


def test_gzip_members_are_joined_up_to_a_limit_of_their_number() -> None:
    member = compress(GZIP, b"word ", 1)
    assert decompress(GZIP, member * GZIP_MEMBERS_MAX, 1, ROOMY) == b"word " * GZIP_MEMBERS_MAX
    with pytest.raises(InvalidMessageException, match=f"more than {GZIP_MEMBERS_MAX} members"):
        decompress(GZIP, member * (GZIP_MEMBERS_MAX + 1), 1, ROOMY)


def test_the_limit_counts_all_gzip_members() -> None:
    with pytest.raises(InvalidMessageException, match="more than 9 bytes"):
        decompress(GZIP, compress(GZIP, b"word ", 1) * 2, 1, 9)


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


def test_a_xerial_block_cut_anywhere_is_refused() -> None:
    packed = compress(SNAPPY, b"word " * 20, 1)
    for size in [*range(8, 16), *range(17, len(packed))]:
        with pytest.raises(InvalidMessageException):
            decompress(SNAPPY, packed[:size], 1, ROOMY)


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


def test_a_frame_that_needs_a_dictionary_is_refused() -> None:
    with pytest.raises(InvalidMessageException, match="dictionary"):
        decompress(LZ4, changed(JAVA_0_9_FRAME, 4, 0x61), 1, ROOMY)


# --- zstd -------------------------------------------------------------------------------------------------------


def test_zstd_frames_are_joined_and_skippable_ones_skipped() -> None:
    frame = compress(ZSTD, b"word ", 2)
    skippable = bytes.fromhex("502a4d18") + (3).to_bytes(4, "little") + b"abc"
    for limit in (10, ROOMY):
        assert decompress(ZSTD, frame + skippable + frame, 2, limit) == b"word word "


@pytest.mark.parametrize("size", [10, 300, 70_000, 400_000])
def test_zstd_frames_of_a_streaming_writer_are_read(size: int) -> None:
    # A streaming writer does not know the content size; Kafka's is one.
    data = (os.urandom(size // 3) * 4)[:size]
    writer = cramjam.zstd.Compressor()
    for start in range(0, size, 50_000):
        writer.compress(data[start : start + 50_000])
    packed = bytes(writer.finish())
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
