"""The four codecs of record sets, each bounded.  Pure.

    codec 1  gzip     RFC 1952                              since 0.7
    codec 2  snappy   xerial blocks, or one raw block       since 0.8.0
    codec 3  lz4      LZ4 frame; see the note below         since 0.8.2
    codec 4  zstd     zstd frames, record format 2 only     since 2.1

This file has framing and limits.  Packages decode, without the GIL and in one call for each batch (gzip: a member):

    codec     default     extra [fast]    what the default decodes in any case
    gzip      cramjam     isal            less than 200 bytes, reserved header flags, and what isal refuses
    snappy    cramjam
    lz4       cramjam
    zstd      cramjam     zstandard       several frames, a content size of 0, and what zstandard refuses

Of gzip, cramjam decodes one member of at least 2 KiB.  zlib decodes the others, reserved header flags, and what cramjam
refuses.  The default decides, so the extra changes neither what is accepted nor which error is raised.  Three
differences are known, in bytes that no compressor writes: if the checksum of the member matches, isal accepts
incomplete Huffman codes and cramjam reads zeros where a reference is to bytes before the member; zlib rejects both.
zstandard may accept a reference to bytes before the window of the frame.
``implementations`` returns the packages in use, ``bench/codecs.py`` measures their speed.

A few kilobytes can expand to any size, so every decoder has a limit.  zlib and isal take one.  Snappy data begins
with its size.  LZ4 and zstd frames consist of blocks of bounded size: reading the block headers gives an
upper bound at almost no cost, and cramjam writes into a buffer that is no larger.  libzstd allocates the window that
the header of a frame requests, at most 128 MiB, and writes as much of it as the frame expands to.

LZ4 and message format 0: the frame header ends with a checksum byte that Kafka 0.8.2 and 0.9 wrongly computed over the
frame's magic too, and required (KAFKA-3160).  Format 0 is written with the wrong byte, which every release reads, and
read with either; formats 1 and 2 must have the right one, as in the Java clients.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from typing import Any, Final

import cramjam

from zkconsumer.errors import InvalidMessageException, UnsupportedCodec

_isal: Any
try:
    from isal import __version__ as _isal_release
    from isal import isal_zlib as _isal
except ImportError:
    _isal = None

_zstandard: Any
try:
    import zstandard as _zstandard
except ImportError:
    _zstandard = None

NONE: Final = 0
GZIP: Final = 1
SNAPPY: Final = 2
LZ4: Final = 3
ZSTD: Final = 4

CODEC_NAMES: Final = {NONE: "none", GZIP: "gzip", SNAPPY: "snappy", LZ4: "lz4", ZSTD: "zstd"}

GZIP_MEMBERS_MAX: Final = 64
"""Concatenated gzip members in one batch.  Each costs a copy of what follows it; producers write one."""

_GZIP_WINDOW_BITS = 16 + zlib.MAX_WBITS
_ISAL_BYTES_MIN = 200
_CRAMJAM_GZIP_BYTES_MIN = 2048
_GZIP_RATIO_MAX = 1032
_GZIP_FLAGS_POSITION = 3
_GZIP_FLAGS_RESERVED = 0xE0

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + (1).to_bytes(4, "big") * 2
_XERIAL_BLOCK_BYTES = 32 * 1024
_XERIAL_START = Struct(">8s8xI").unpack_from
_XERIAL_BLOCK = Struct(">I").unpack_from
_XERIAL_BLOCK_POSITION = 20
_SNAPPY_SIZE_SHIFT_MAX = 28

_LZ4_MAGIC = b"\x04\x22\x4d\x18"
_LZ4_RATIO_MAX = 255
_LZ4_START = Struct("<7sI").unpack_from
_LZ4_BLOCK_POSITION = 11
_LZ4_AROUND_BLOCK_BYTES = _LZ4_BLOCK_POSITION + 4
_LZ4_BLOCK_BYTES = 64 * 1024
_LZ4_STORED = 0x80000000

_ZSTD_MAGIC = 0xFD2FB528
_ZSTD_SKIPPABLE = 0x184D2A50
_ZSTD_BLOCK_BYTES_MAX = 128 * 1024
_ZSTD_START = Struct("<IB").unpack_from

_UINT32 = Struct("<I").unpack_from

BLOCK_DECODERS: Final = (
    cramjam.gzip.decompress_into if _isal is None else None,
    cramjam.snappy.decompress_raw_into,
    cramjam.lz4.decompress_block_into,
    cramjam.zstd.decompress_into if _zstandard is None else None,
    cramjam.DecompressionError,
)
"""For the compiled decoder: what expands one large member of gzip, one block of snappy and of lz4, and a small
payload of zstd, and what these raise.  None: ``decompress`` has something better."""

_SMALL_BYTES_MAX = 4096
"""Compressed bytes.  Up to this size the decoding costs less than the work around it."""


class DecompressionLimitError(InvalidMessageException):
    """Compressed bytes expand to more bytes, or to more records and headers, than the caller allows."""


def implementations() -> dict[str, str]:
    """The package that decodes each codec here, and its release: ``{"gzip": "isal 1.9.1", ...}``.

    The extra ``[fast]`` (isal and zstandard) makes gzip and zstd faster.  It changes no result.
    """
    default = f"cramjam {cramjam.__version__}"
    return {
        CODEC_NAMES[GZIP]: f"{default}, zlib {zlib.ZLIB_RUNTIME_VERSION}" if _isal is None else f"isal {_isal_release}",
        CODEC_NAMES[SNAPPY]: default,
        CODEC_NAMES[LZ4]: default,
        CODEC_NAMES[ZSTD]: default if _zstandard is None else f"zstandard {_zstandard.__version__}",
    }


def decompress(codec: int, data: bytes | memoryview, magic: int, limit: int) -> bytes | bytearray:
    """Decompress ``data``, the payload of a record set's entry of format ``magic`` (0, 1, 2).

    ``data``: contiguous bytes; a ``memoryview`` of format ``B`` is copied for rare forms of lz4 frames only.  The
    result belongs to the caller.  Its type is what the codec's package fills without a copy; a ``bytearray`` may occupy
    twice its length.

    The result has at most ``limit`` bytes, and no much larger buffer is allocated.  Any number of threads
    may call this at once; the packages release the GIL.

    Raises ``InvalidMessageException`` when the bytes are not what the codec writes, its kind
    ``DecompressionLimitError`` when they expand beyond ``limit``, and ``UnsupportedCodec`` for a codec that does not
    exist, or not in that format.
    """
    try:
        if codec == GZIP:
            return _gunzip(data, limit)
        if codec == SNAPPY:
            return _unsnappy(data, limit)
        if codec == LZ4:
            return _unlz4(data, magic, limit)
        if codec == ZSTD and magic >= 2:
            return _unzstd(data, limit)
    except (zlib.error, cramjam.DecompressionError) as error:
        raise InvalidMessageException(f"{CODEC_NAMES[codec]}: {error}") from error
    except (IndexError, struct.error) as error:
        raise InvalidMessageException(f"{CODEC_NAMES[codec]}: the data ends too early") from error
    _check_codec(codec, magic)
    if len(data) > limit:
        raise _too_large(NONE, limit)
    return bytes(data)


def compress(codec: int, data: bytes | memoryview, magic: int) -> bytes:
    """``data`` as a producer of the format's time would have compressed it; ``decompress`` undoes it.

    Raises ``UnsupportedCodec`` for a codec that does not exist, or not in that format.
    """
    payload = bytes(data)
    _check_codec(codec, magic)
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


def _check_codec(codec: int, magic: int) -> None:
    if codec not in CODEC_NAMES:
        raise UnsupportedCodec(f"codec {codec} is not known; 0 to {ZSTD} are")
    if codec == ZSTD and magic < 2:
        raise UnsupportedCodec(f"codec {codec} (zstd) does not exist in message format {magic}")


def _too_large(codec: int, limit: int) -> DecompressionLimitError:
    return DecompressionLimitError(f"{CODEC_NAMES[codec]}: expands to more than {limit} bytes")


def _expanded(
    codec: int, into: Callable[[Any, bytearray], int], packed: bytes | memoryview, bound: int, limit: int
) -> bytearray:
    """What ``into``, a function of cramjam, expands ``packed`` to: at most ``bound`` bytes, of which ``limit`` may come
    out."""
    out = bytearray(bound if bound < limit else limit)
    try:
        size = into(packed, out)
    except cramjam.DecompressionError as error:
        if bound <= limit:
            raise
        # The decoder does not say whether the room is too small or the bytes are damaged; the block headers say that
        # more than the limit may come out.
        raise DecompressionLimitError(f"{CODEC_NAMES[codec]}: {error} (at most {limit} bytes are let out)") from error
    del out[size:]
    return out


def _expanded_within(
    room: int, limit: int, into: Callable[[Any, bytearray], int], packed: bytes | memoryview
) -> bytearray | None:
    """A first try; None when ``room`` is too small, or ``limit``, or the bytes are damaged."""
    out = bytearray(room if room < limit else limit)
    try:
        size = into(packed, out)
    except cramjam.DecompressionError:
        return None
    del out[size:]
    return out


def _usual_buffer_bytes(packed_bytes: int) -> int:
    """A size that few batches exceed.

    To clear the memory for the worst case costs more than to decode a small batch.
    """
    return 16 * packed_bytes if packed_bytes <= _SMALL_BYTES_MAX else max(4 * packed_bytes, 16 * _SMALL_BYTES_MAX)


# --- gzip -------------------------------------------------------------------------------------------------------


def _gunzip(data: bytes | memoryview, limit: int) -> bytes | bytearray:
    if _isal is not None and len(data) >= _ISAL_BYTES_MIN:
        try:
            return _gunzip_using(_isal, data, limit)
        except _isal.error:
            pass  # zlib decides
    if _isal is None and len(data) >= _CRAMJAM_GZIP_BYTES_MIN and not data[_GZIP_FLAGS_POSITION] & _GZIP_FLAGS_RESERVED:
        (size,) = _UINT32(data, len(data) - 4)
        if size <= min(limit, _GZIP_RATIO_MAX * len(data)):
            member = _expanded_within(size, limit, cramjam.gzip.decompress_into, data)
            if member is not None:
                return member
    return _gunzip_using(zlib, data, limit)


def _gunzip_using(package: Any, data: bytes | memoryview, limit: int) -> bytes:
    members: list[bytes] = []
    payload = data
    room = limit
    while payload:
        if payload[_GZIP_FLAGS_POSITION] & _GZIP_FLAGS_RESERVED:
            package = zlib
        inflater = package.decompressobj(_GZIP_WINDOW_BITS)
        member: bytes = inflater.decompress(payload, room + 1)
        room -= len(member)
        if room < 0:
            raise _too_large(GZIP, limit)
        if not inflater.eof:
            raise InvalidMessageException("gzip: the data ends too early")
        payload = inflater.unused_data
        if not payload and not members:
            return member
        members.append(member)
        if len(members) > GZIP_MEMBERS_MAX:
            raise InvalidMessageException(f"gzip: more than {GZIP_MEMBERS_MAX} members")
    if not members:
        raise InvalidMessageException("gzip: no data")
    return b"".join(members)


# --- snappy -----------------------------------------------------------------------------------------------------


def _snappy(payload: bytes) -> bytes:
    framed = [_XERIAL_HEADER]
    for start in range(0, len(payload), _XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(payload[start : start + _XERIAL_BLOCK_BYTES]))
        framed += [len(block).to_bytes(4, "big"), block]
    return b"".join(framed)


def _unsnappy(data: bytes | memoryview, limit: int) -> bytearray:
    # The two version fields are ignored: there is one version, and some producers write it little-endian.
    start, block_bytes = _XERIAL_START(data) if len(data) >= _XERIAL_BLOCK_POSITION else (data[:8], None)
    if start != _XERIAL_MAGIC:
        block = data
    elif block_bytes == len(data) - _XERIAL_BLOCK_POSITION:
        block = data[_XERIAL_BLOCK_POSITION:]
    else:
        block = _joined_blocks(data, limit)
    size = cramjam.snappy.decompress_raw_len(block)
    if size > limit:
        raise _too_large(SNAPPY, limit)
    out = bytearray(size)
    cramjam.snappy.decompress_raw_into(block, out)
    return out


def _joined_blocks(data: bytes | memoryview, limit: int) -> bytes:
    """The xerial blocks of ``data`` as one raw block, so that one call decodes them.

    A raw block is its size and then literals and references back.  A xerial block refers to itself only, so one can
    follow the other.  Old producers write blocks of 1 KiB: to call the decoder costs more than to decode one, and each
    call gives up the GIL.  A wrong block can pass that refers back to the block before it, or is shorter than its size
    where another is longer; the checksum of the entry covers damage.
    """
    position = len(_XERIAL_HEADER)
    end = len(data)
    if position > end:
        raise InvalidMessageException("snappy: the xerial header is cut off")
    total = 0
    parts: list[bytes | memoryview] = [b""]
    while position < end:
        (block_bytes,) = _XERIAL_BLOCK(data, position)
        start = position + 4
        position = start + block_bytes
        if position > end:
            raise InvalidMessageException("snappy: a xerial block is cut off")
        size = data[start]
        start += 1
        if size > 0x7F:
            size &= 0x7F
            shift = 7
            more = 0x80
            while more > 0x7F and shift <= _SNAPPY_SIZE_SHIFT_MAX:
                more = data[start]
                start += 1
                size |= (more & 0x7F) << shift
                shift += 7
        if start > position:
            raise InvalidMessageException("snappy: a xerial block ends within its size")
        total += size
        parts.append(data[start:position])
    if total > limit:
        raise _too_large(SNAPPY, limit)
    parts[0] = _snappy_size(total)
    return b"".join(parts)


def _snappy_size(size: int) -> bytes:
    encoded = bytearray()
    while size > 0x7F:
        encoded.append(size & 0x7F | 0x80)
        size >>= 7
    encoded.append(size)
    return bytes(encoded)


# --- lz4 --------------------------------------------------------------------------------------------------------


def _lz4(payload: bytes, magic: int) -> bytes:
    # As the Java producer: independent blocks of 64 KB, no checksum of a block or of all, no content size.
    descriptor = b"\x60\x40"
    covered = _LZ4_MAGIC + descriptor if magic == 0 else descriptor
    frame = [_LZ4_MAGIC, descriptor, bytes([_lz4_header_checksum(covered)])]
    for start in range(0, len(payload), _LZ4_BLOCK_BYTES):
        plain = payload[start : start + _LZ4_BLOCK_BYTES]
        block = bytes(cramjam.lz4.compress_block(plain, store_size=False))
        if len(block) < len(plain):
            frame += [len(block).to_bytes(4, "little"), block]
        else:
            frame += [(len(plain) | _LZ4_STORED).to_bytes(4, "little"), plain]
    return b"".join([*frame, bytes(4)])


def _unlz4(data: bytes | memoryview, magic: int, limit: int) -> bytes | bytearray:
    expanded = _unlz4_plain(data, magic, limit)
    if expanded is not None:
        return expanded
    frame = _lz4_with_right_checksum(bytes(data), magic)
    block_bytes_max, bound = _lz4_bound(frame)
    room = _usual_buffer_bytes(len(frame))
    if room < bound <= block_bytes_max:  # several blocks: all but the last are full
        expanded = _expanded_within(room, limit, cramjam.lz4.decompress_into, frame)
        if expanded is not None:
            return expanded
    return _expanded(LZ4, cramjam.lz4.decompress_into, frame, bound, limit)


def _unlz4_plain(data: bytes | memoryview, magic: int, limit: int) -> bytes | bytearray | None:
    """Decodes what most batches are: one independent block in a frame without more checksums or sizes; else None.

    The frame decoder makes a context for each frame, which costs several times as much as to decode a small block.  It
    gets what is refused here.
    """
    if len(data) < _LZ4_AROUND_BLOCK_BYTES:
        return None
    header, size = _LZ4_START(data)
    block_bytes = len(data) - _LZ4_AROUND_BLOCK_BYTES
    block_bytes_max = _LZ4_PLAIN_HEADERS[magic > 0].get(header, -1)
    if size & ~_LZ4_STORED != block_bytes or block_bytes > block_bytes_max or _UINT32(data, len(data) - 4) != (0,):
        return None
    if size != block_bytes:
        return bytes(data[_LZ4_BLOCK_POSITION:-4]) if block_bytes <= limit else None
    room = _usual_buffer_bytes(block_bytes)
    if room > block_bytes_max:
        room = block_bytes_max
    return _expanded_within(room, limit, cramjam.lz4.decompress_block_into, data[_LZ4_BLOCK_POSITION:-4])


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
    """The position of the header checksum: after magic, flags, block size and the content size, if there is one."""
    if not frame.startswith(_LZ4_MAGIC):
        raise InvalidMessageException("lz4: no frame starts here")
    flags = frame[4]
    if flags & 0x01:
        raise InvalidMessageException("lz4: a dictionary is needed")
    return 14 if flags & 0x08 else 6


@lru_cache(maxsize=64)
def _lz4_header_checksum(header: bytes) -> int:
    # Cached: producers write few different headers, and Python takes longer to compute this than cramjam to decode.
    return _xxh32_short(header) >> 8 & 0xFF


def _lz4_bound(frame: bytes) -> tuple[int, int]:
    """How much a block of ``frame`` may hold, and from the block headers an upper bound of the expanded size.

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
        (header,) = _UINT32(frame, position)
        position += 4
        if header == 0:
            # The decoder would go on with another frame, whose blocks have not been counted.
            if position + content_checksum_bytes != len(frame):
                raise InvalidMessageException("lz4: the frame does not end where the data ends")
            return block_bytes_max, bound
        size = header & ~_LZ4_STORED
        bound += size if header & _LZ4_STORED else min(block_bytes_max, _LZ4_RATIO_MAX * size)
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


def _lz4_plain_headers() -> tuple[dict[bytes, int], dict[bytes, int]]:
    """Headers of frames that consist of independent blocks only, as Java and librdkafka write them, and the most bytes
    that a block of theirs may hold: in format 0, and in formats 1 and 2."""
    old, new = {}, {}
    for code in range(4, 8):
        descriptor = bytes([0x60, code << 4])
        right = _LZ4_MAGIC + descriptor + bytes([_lz4_header_checksum(descriptor)])
        wrong = _LZ4_MAGIC + descriptor + bytes([_lz4_header_checksum(_LZ4_MAGIC + descriptor)])
        old[wrong] = old[right] = new[right] = 1 << 8 + 2 * code
    return old, new


_LZ4_PLAIN_HEADERS = _lz4_plain_headers()


# --- zstd -------------------------------------------------------------------------------------------------------

_zstd_decompressors: list[Any] = []
"""Those of zstandard that are not in use.  Each serves one call at a time; to make one costs more than to decode a
small batch.  There are as many as calls have been made at once."""


def _unzstd(data: bytes | memoryview, limit: int) -> bytes | bytearray:
    expanded: bytes | bytearray | None = None
    if _zstandard is not None:
        expanded = _unzstd_with_zstandard(data, limit)
    if expanded is None and len(data) <= _SMALL_BYTES_MAX:
        expanded = _expanded_within(_usual_buffer_bytes(len(data)), limit, cramjam.zstd.decompress_into, data)
    if expanded is not None:
        return expanded
    _, size, bound = _zstd_walk(data)
    return _expanded(ZSTD, cramjam.zstd.decompress_into, data, bound if size < 0 else min(size, bound), limit)


def _unzstd_with_zstandard(data: bytes | memoryview, limit: int) -> bytes | None:
    """None for what zstandard refuses, and for what it does not read as others do: it lets pass what follows the first
    frame, takes a content size of 0 for an empty frame, and does not bound one that has a content size."""
    frames, size, bound = _zstd_walk(data)
    if frames != 1 or size == 0 or size > limit:
        return None
    try:
        decompressor = _zstd_decompressors.pop()
    except IndexError:
        decompressor = _zstandard.ZstdDecompressor()
    try:
        expanded: bytes = decompressor.decompress(data, bound if bound < limit else limit)
    except _zstandard.ZstdError:
        return None
    finally:
        _zstd_decompressors.append(decompressor)
    return expanded


def _zstd_walk(payload: bytes | memoryview) -> tuple[int, int, int]:
    """The number of frames in ``payload``, the sum of their content sizes (-1 when one has none), and an upper bound of
    the expanded size from the block headers.

    Raises ``InvalidMessageException`` for what is no zstd frame, and ``IndexError`` or ``struct.error`` for one that
    is cut off.
    """
    position = frames = size = bound = 0
    while position < len(payload):
        frames += 1
        magic, flags = _ZSTD_START(payload, position)
        if magic != _ZSTD_MAGIC:
            if magic & 0xFFFFFFF0 != _ZSTD_SKIPPABLE:
                raise InvalidMessageException("zstd: no frame starts here")
            position += 8 + _UINT32(payload, position + 4)[0]
            continue
        is_single_segment = flags >> 5 & 1
        start = position + 6 - is_single_segment + (0, 1, 2, 4)[flags & 3]
        content_size_bytes = (is_single_segment, 2, 4, 8)[flags >> 6]
        position = start + content_size_bytes
        if not content_size_bytes:
            size = -1
        elif size >= 0:
            size += int.from_bytes(payload[start:position], "little") + (256 if content_size_bytes == 2 else 0)
        is_last = 0
        while not is_last:
            header = payload[position] | payload[position + 1] << 8 | payload[position + 2] << 16
            is_last, kind, block_bytes = header & 1, header >> 1 & 3, header >> 3
            # Kinds: 0 stored, 1 one byte repeated, 2 compressed, 3 reserved (left to the decoder to refuse).
            bound += _ZSTD_BLOCK_BYTES_MAX if kind == 2 else block_bytes
            position += 3 + (1 if kind == 1 else block_bytes)
        position += flags & 4
    return frames, size, bound
