"""The four codecs of record sets, each bounded.  Pure.

    codec 1  gzip     RFC 1952                              since 0.7
    codec 2  snappy   xerial blocks, or one raw block       since 0.8.0
    codec 3  lz4      LZ4 frame; see the note below         since 0.8.2
    codec 4  zstd     zstd frames, record format 2 only     since 2.1

What may live here: framing and limits.  The codecs themselves are zlib's and cramjam's, one call a batch (xerial
snappy: one call a block).

A few kilobytes can be made to expand without end, so no decoder may run free.  zlib takes a bound.  Snappy says
its size first.  LZ4 and zstd frames are made of blocks of bounded size: walking the block headers gives an upper
bound for nothing, and only a frame whose bound is above the limit is decoded into a buffer of fixed size.

LZ4 and message format 0: the frame header ends in a checksum byte that Kafka 0.8.2 and 0.9 computed over the
frame's magic too, which is wrong, and insisted upon (KAFKA-3160).  Format 0 is written with the wrong byte, which
every release reads, and read with either; formats 1 and 2 are held to the right one, as by the Java clients.
"""

from __future__ import annotations

import zlib
from types import ModuleType
from typing import Final

import cramjam

from zkconsumer.errors import InvalidMessageException, UnsupportedCodec

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

NAMES: Final = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

GZIP_MEMBERS_MAX: Final = 64
"""Concatenated gzip members in one batch.  Each costs a copy of what follows it; producers write one."""

_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES = 32 * 1024

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_RATIO_MAX = 255

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A50
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024


class ExpandsTooFar(InvalidMessageException):
    """Compressed bytes stand for more bytes, or for more records and headers, than the caller allows."""


def decompress(codec: int, data: bytes | memoryview, magic: int, limit: int) -> bytes:
    """The bytes that ``data``, the payload of a record set's entry of format ``magic`` (0, 1, 2), stands for.

    At most ``limit`` bytes come out, and no buffer much larger than that is made on the way.

    Raises ``InvalidMessageException`` when the bytes are not what the codec writes, its kind ``ExpandsTooFar`` when
    they expand beyond ``limit``, and ``UnsupportedCodec`` for a codec that does not exist, or not in that format.
    """
    payload = bytes(data)
    _refuse_unknown(codec, magic)
    try:
        if codec == GZIP:
            expanded = _gunzip(payload, limit)
        elif codec == SNAPPY:
            expanded = _unsnappy(payload, limit)
        elif codec == LZ4:
            frame = _lz4_with_right_checksum(payload, magic)
            expanded = _bounded(LZ4, cramjam.lz4, frame, _lz4_bound(frame), limit)
        elif codec == ZSTD:
            expanded = _bounded(ZSTD, cramjam.zstd, payload, _zstd_bound(payload), limit)
        else:
            expanded = payload
    except (zlib.error, cramjam.DecompressionError) as error:
        raise InvalidMessageException(f"{NAMES[codec]}: {error}") from error
    except IndexError as error:
        raise InvalidMessageException(f"{NAMES[codec]}: the data ends too early") from error
    if len(expanded) > limit:
        raise _too_large(codec, limit)
    return expanded


def compress(codec: int, data: bytes | memoryview, magic: int) -> bytes:
    """``data`` as a producer of the format's time would have compressed it; ``decompress`` undoes it.

    Raises ``UnsupportedCodec`` for a codec that does not exist, or not in that format.
    """
    payload = bytes(data)
    _refuse_unknown(codec, magic)
    if codec == GZIP:
        deflater = zlib.compressobj(wbits=_GZIP_WINDOW_BITS)
        return deflater.compress(payload) + deflater.flush()
    if codec == SNAPPY:
        return _snappy(payload)
    if codec == LZ4:
        return _lz4(payload, magic)
    if codec == ZSTD:
        return bytes(cramjam.zstd.compress(payload))
    return payload


def _refuse_unknown(codec: int, magic: int) -> None:
    if codec not in NAMES:
        raise UnsupportedCodec(f"codec {codec} is not known; 0 to {ZSTD} are")
    if codec == ZSTD and magic < 2:
        raise UnsupportedCodec(f"codec {codec} (zstd) does not exist in message format {magic}")


def _too_large(codec: int, limit: int) -> ExpandsTooFar:
    return ExpandsTooFar(f"{NAMES[codec]}: expands to more than {limit} bytes")


def _bounded(codec: int, decoder: ModuleType, payload: bytes, bound: int, limit: int) -> bytes:
    if bound <= limit:
        return bytes(decoder.decompress(payload))
    room = bytearray(limit)
    try:
        size: int = decoder.decompress_into(payload, room)
    except cramjam.DecompressionError as error:
        # The decoder does not say whether the room is too small or the bytes are damaged; the block headers say that
        # more than the limit may come out.
        raise ExpandsTooFar(f"{NAMES[codec]}: {error} (at most {limit} bytes are let out)") from error
    return bytes(memoryview(room)[:size])


# --- gzip -------------------------------------------------------------------------------------------------------


def _gunzip(payload: bytes, limit: int) -> bytes:
    members = []
    room = limit
    while payload:
        inflater = zlib.decompressobj(wbits=_GZIP_WINDOW_BITS)
        member = inflater.decompress(payload, room + 1)
        room -= len(member)
        if room < 0:
            raise _too_large(GZIP, limit)
        if not inflater.eof:
            raise InvalidMessageException("gzip: the data ends too early")
        members.append(member)
        if len(members) > GZIP_MEMBERS_MAX:
            raise InvalidMessageException(f"gzip: more than {GZIP_MEMBERS_MAX} members")
        payload = inflater.unused_data
    if not members:
        raise InvalidMessageException("gzip: no data")
    return members[0] if len(members) == 1 else b"".join(members)


# --- snappy -----------------------------------------------------------------------------------------------------


def _snappy(payload: bytes) -> bytes:
    framed = [_XERIAL_HEADER]
    for start in range(0, len(payload), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK_BYTES]))
        framed += [len(block).to_bytes(4, "big"), block]
    return b"".join(framed)


def _unsnappy(payload: bytes, limit: int) -> bytes:
    if not payload.startswith(_XERIAL_MAGIC):
        return _unsnappy_block(payload, limit, limit)
    # The two version fields are not looked at: there is one version, and some producers write it little-endian.
    position = len(_XERIAL_HEADER)
    if position > len(payload):
        raise InvalidMessageException("snappy: the xerial header is cut off")
    blocks = []
    room = limit
    while position < len(payload):
        start = position + 4
        position = start + int.from_bytes(payload[position:start], "big")
        if position > len(payload):
            raise InvalidMessageException("snappy: a xerial block is cut off")
        block = _unsnappy_block(payload[start:position], room, limit)
        room -= len(block)
        blocks.append(block)
    return b"".join(blocks)


def _unsnappy_block(block: bytes, room: int, limit: int) -> bytes:
    """One block, which may fill what is left (``room``) of ``limit`` bytes."""
    if cramjam.snappy.decompress_raw_len(block) > room:
        raise _too_large(SNAPPY, limit)
    return bytes(cramjam.snappy.decompress_raw(block))


# --- lz4 --------------------------------------------------------------------------------------------------------


def _lz4(payload: bytes, magic: int) -> bytes:
    # Independent blocks and no content size: the Java readers refuse linked blocks, the oldest also the size.
    compressor = cramjam.lz4.Compressor(content_checksum=False, block_linked=False)
    compressor.compress(payload)
    frame = bytes(compressor.finish())
    if magic > 0:
        return frame
    end = _lz4_descriptor_end(frame)
    return frame[:end] + bytes([_lz4_header_checksum(frame[:end])]) + frame[end + 1 :]


def _lz4_with_right_checksum(frame: bytes, magic: int) -> bytes:
    """``frame`` with the header checksum that the decoder insists on, where format 0's wrong one stood."""
    end = _lz4_descriptor_end(frame)
    found = frame[end]
    right = _lz4_header_checksum(frame[len(_LZ4_MAGIC) : end])
    if found == right:
        return frame
    if magic == 0 and found == _lz4_header_checksum(frame[:end]):
        return frame[:end] + bytes([right]) + frame[end + 1 :]
    raise InvalidMessageException("lz4: the checksum of the frame header does not match")


def _lz4_descriptor_end(frame: bytes) -> int:
    """Where the header checksum stands: after magic, flags, block size and, when there is one, content size."""
    if not frame.startswith(_LZ4_MAGIC):
        raise InvalidMessageException("lz4: no frame starts here")
    flags = frame[4]
    if flags & 0x01:
        raise InvalidMessageException("lz4: a dictionary is needed")
    return 14 if flags & 0x08 else 6


def _lz4_header_checksum(header: bytes) -> int:
    return _xxh32_short(header) >> 8 & 0xFF


def _lz4_bound(frame: bytes) -> int:
    """An upper bound of the expanded size of ``frame``, from its block headers.

    Raises ``InvalidMessageException`` for a frame that is not whole or does not end where the data ends, and
    ``IndexError`` for one that ends within its header.
    """
    flags = frame[4]
    block_checksum_bytes = 4 if flags & 0x10 else 0
    content_checksum_bytes = 4 if flags & 0x04 else 0
    block_bytes_max = 1 << 8 + 2 * (frame[5] >> 4 & 7)
    position = _lz4_descriptor_end(frame) + 1
    bound = 0
    while position + 4 <= len(frame):
        header = int.from_bytes(frame[position : position + 4], "little")
        position += 4
        if header == 0:
            # The decoder would go on with another frame, whose blocks have not been counted.
            if position + content_checksum_bytes != len(frame):
                raise InvalidMessageException("lz4: the frame does not end where the data ends")
            return bound
        size = header & 0x7FFFFFFF
        is_stored = header >> 31
        bound += size if is_stored else min(block_bytes_max, _LZ4_RATIO_MAX * size)
        position += size + block_checksum_bytes
    raise InvalidMessageException("lz4: the data ends too early")


def _xxh32_short(data: bytes) -> int:
    """XXH32, seed 0, of fewer than 16 bytes: all that a frame header needs."""
    assert len(data) < 16, "from 16 bytes on, XXH32 has another first stage"
    mask = 0xFFFFFFFF
    prime1, prime2, prime3, prime4, prime5 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D, 0x27D4EB2F, 0x165667B1
    mixed = prime5 + len(data)
    whole = len(data) & ~3
    for start in range(0, whole, 4):
        mixed = (mixed + int.from_bytes(data[start : start + 4], "little") * prime3) & mask
        mixed = (mixed << 17 | mixed >> 15) * prime4 & mask
    for byte in data[whole:]:
        mixed = (mixed + byte * prime5) & mask
        mixed = (mixed << 11 | mixed >> 21) * prime1 & mask
    mixed = (mixed ^ mixed >> 15) * prime2 & mask
    mixed = (mixed ^ mixed >> 13) * prime3 & mask
    return mixed ^ mixed >> 16


# --- zstd -------------------------------------------------------------------------------------------------------


def _zstd_bound(payload: bytes) -> int:
    """An upper bound of the expanded size of all frames in ``payload``, from their block headers.

    Raises ``InvalidMessageException`` for what is no zstd frame, and ``IndexError`` for one that is cut off.
    """
    position = bound = 0
    while position < len(payload):
        magic = int.from_bytes(payload[position : position + 4], "little")
        position += 4
        if magic & 0xFFFFFFF0 == _ZSTD_SKIPPABLE:
            position += 4 + int.from_bytes(payload[position : position + 4], "little")
            continue
        if magic != _ZSTD_MAGIC:
            raise InvalidMessageException("zstd: no frame starts here")
        flags = payload[position]
        is_single_segment = flags >> 5 & 1
        content_size_bytes = (is_single_segment, 2, 4, 8)[flags >> 6]
        position += 1 + (1 - is_single_segment) + (0, 1, 2, 4)[flags & 3] + content_size_bytes
        is_last = 0
        while not is_last:
            header = payload[position] | payload[position + 1] << 8 | payload[position + 2] << 16
            is_last, kind, size = header & 1, header >> 1 & 3, header >> 3
            # Kinds: 0 stored, 1 one byte repeated, 2 compressed, 3 reserved (left to the decoder to refuse).
            bound += _ZSTD_BLOCK_BYTES_MAX if kind == 2 else size
            position += 3 + (1 if kind == 1 else size)
        position += 4 if flags & 4 else 0
    return bound
