"""Reads entries of message formats 0 and 1: one message, or a *wrapper* with a compressed message set.  Pure.

    uint32 crc | int8 magic, int8 attributes, (format 1: int64 timestamp,) int32 length + key, int32 length + value

The checksum (CRC-32) covers all bytes after it.  Attributes: bits 0 to 2 are the codec, bit 3 is "log append time"
(format 1).  The value of a wrapper is a compressed message set.  In format 0 the offsets inside are absolute.  In
format 1 they are relative, and the wrapper has the absolute offset of the last message inside: absolute = wrapper's
offset - last inner offset + inner offset.  A negative length means null, as in every release.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable, Iterator
from struct import Struct

from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.types import RecordCounter
from zkconsumer.wire import compression
from zkconsumer.wire.entries import (
    ENTRY_PREFIX_BYTES,
    MAGIC_POSITION,
    MESSAGE_BYTES_MIN,
    NO_END,
    OFFSET_AND_SIZE,
    LogEntry,
    Record,
    corrupt_entry_error,
    corrupt_record_error,
    invalid_entry_error,
)

_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08

_CRC = Struct(">I")
_INT32 = Struct(">i")
_HEADER_0 = Struct(">bi")
_HEADER_1 = Struct(">bqi")


def read_legacy_entry(
    record_set: bytes | memoryview,
    entry: LogEntry,
    offset_before: int,
    start_offset: int,
    check_crcs: bool,
    decompressed_bytes_max: int,
    tally: RecordCounter,
    end_offset: int = NO_END,
) -> Iterable[Record]:
    """The records of one entry of format 0 or 1 with ``start_offset`` <= offset < ``end_offset``.

    ``offset_before``: the last offset of the entries before; every offset inside a wrapper must be larger.
    The checksum of the entry is verified, and a wrapper is decompressed, before this function returns; the messages
    inside a wrapper are read lazily.  An uncompressed message makes no iterator, which would cost as much as the
    message.  Raises ``InvalidMessageException`` and ``UnsupportedCodec``, as ``iter_records`` describes; the iterable
    raises them, too.
    """
    body = _checked(record_set, entry, check_crcs)
    if entry.offset < start_offset:
        return ()
    attributes, timestamp, key, value = _fields(body, entry)
    if not attributes & _CODEC_MASK:
        tally.count += 1
        tally.expanded_bytes = 0
        timestamp_type = -1 if body[0] == 0 else 1 if attributes & _LOG_APPEND_TIME else 0
        return (Record(entry.offset, timestamp, timestamp_type, key, value, ()),)
    inner, append_time = _decompressed_set(body, attributes, timestamp, value, entry, decompressed_bytes_max)
    tally.expanded_bytes = len(inner)
    shift = _shift(inner, entry, offset_before)
    return _inner_records(inner, entry, shift, append_time, range(start_offset, end_offset), check_crcs, tally)


def open_wrapper(
    record_set: bytes | memoryview, entry: LogEntry, check_crcs: bool, decompressed_bytes_max: int
) -> tuple[bytes, int | None]:
    """The decompressed message set of a wrapper, and its append time, which replaces the timestamps inside, or None.

    Raises as ``read_legacy_entry`` does; the messages inside are not checked.
    """
    body = _checked(record_set, entry, check_crcs)
    attributes, timestamp, _, value = _fields(body, entry)
    return _decompressed_set(body, attributes, timestamp, value, entry, decompressed_bytes_max)


def _checked(record_set: bytes | memoryview, entry: LogEntry, check_crcs: bool) -> bytes:
    """The bytes of the entry from its magic on; with ``check_crcs`` the checksum is verified."""
    body = bytes(record_set[entry.position + MAGIC_POSITION : entry.end])
    if check_crcs and zlib.crc32(body) != _CRC.unpack_from(record_set, entry.position + ENTRY_PREFIX_BYTES)[0]:
        raise corrupt_entry_error(entry, "the checksum does not match")
    return body


def _decompressed_set(
    body: bytes, attributes: int, timestamp: int, value: bytes | None, entry: LogEntry, decompressed_bytes_max: int
) -> tuple[bytes, int | None]:
    inner = _decompress(attributes & _CODEC_MASK, value, entry, decompressed_bytes_max)
    is_append_time = body[0] == 1 and attributes & _LOG_APPEND_TIME
    return inner, timestamp if is_append_time else None


def _fields(body: bytes, entry: LogEntry) -> tuple[int, int, bytes | None, bytes | None]:
    """Attributes, timestamp (-1 in format 0), key and value of a message, from its magic on.

    Bytes after the value are ignored, as in every release; the checksum covers them.
    """
    bytes_total = len(body)
    if body[0] == 0:
        attributes, key_bytes = _HEADER_0.unpack_from(body, 1)
        timestamp = -1
        position = 6
    elif bytes_total < 18:
        raise corrupt_entry_error(entry, "a message of format 1 is cut off")
    else:
        attributes, timestamp, key_bytes = _HEADER_1.unpack_from(body, 1)
        position = 14
    key = value = None
    if key_bytes >= 0:
        start = position
        position += key_bytes
        key = body[start:position]
    if position + 4 > bytes_total:
        raise corrupt_entry_error(entry, f"a key of {key_bytes} bytes is longer than its message")
    (value_bytes,) = _INT32.unpack_from(body, position)
    if value_bytes >= 0:
        position += 4
        value = body[position : position + value_bytes]
        if position + value_bytes > bytes_total:
            raise corrupt_entry_error(entry, f"a value of {value_bytes} bytes is longer than its message")
    return attributes, timestamp, key, value


def _decompress(codec: int, value: bytes | None, entry: LogEntry, decompressed_bytes_max: int) -> bytes:
    if value is None:
        raise corrupt_entry_error(entry, "a compressed message without a value")
    try:
        return bytes(compression.decompress(codec, value, entry.magic, decompressed_bytes_max))
    except (InvalidMessageException, UnsupportedCodec) as error:
        raise invalid_entry_error(type(error), entry, str(error)) from error


def _shift(inner: bytes, entry: LogEntry, offset_before: int) -> int:
    """The number to add to the offsets inside a wrapper to make them absolute.

    It checks the size and the offset of every message inside, and raises for an invalid one.  It stores none of them,
    so a wrapper of millions of empty messages needs no memory.
    """
    bytes_total = len(inner)
    position = 0
    first = last = -1
    while position < bytes_total:
        if position + ENTRY_PREFIX_BYTES > bytes_total:
            raise corrupt_entry_error(entry, "the compressed message set inside is cut off")
        offset, size = OFFSET_AND_SIZE.unpack_from(inner, position)
        position += ENTRY_PREFIX_BYTES + size
        if size < MESSAGE_BYTES_MIN or position > bytes_total:
            raise corrupt_entry_error(entry, f"a message of {size} bytes inside cannot be")
        if offset <= last:
            raise corrupt_entry_error(entry, f"inside, offset {offset} does not follow offset {last}")
        if first < 0:
            first = offset
        last = offset
    if last < 0:
        raise corrupt_entry_error(entry, "a compressed message set without a message")
    shift = entry.offset - last if entry.magic == 1 else 0
    if shift < 0 or last + shift > entry.offset or first + shift <= offset_before:
        offsets = f"{first + shift} to {last + shift}"
        raise corrupt_entry_error(
            entry, f"offsets {offsets} inside do not fit between {offset_before} and {entry.offset}"
        )
    return shift


def _inner_records(
    inner: bytes,
    entry: LogEntry,
    shift: int,
    append_time: int | None,
    span: range,
    check_crcs: bool,
    tally: RecordCounter,
) -> Iterator[Record]:
    """The records of a wrapper; ``append_time``, if not None, replaces the timestamps of the messages inside."""
    crc32 = zlib.crc32
    unpack_prefix = OFFSET_AND_SIZE.unpack_from
    end = 0
    while end < len(inner):
        position = end
        offset, size = unpack_prefix(inner, position)
        offset += shift
        end += ENTRY_PREFIX_BYTES + size
        if offset >= span.stop:
            return
        if offset < span.start:
            continue
        body = inner[position + MAGIC_POSITION : end]
        if check_crcs and crc32(body) != _CRC.unpack_from(inner, position + ENTRY_PREFIX_BYTES)[0]:
            what = f"the checksum of the message with offset {offset} inside does not match"
            raise corrupt_record_error(entry, what, offset)
        if body[0] > 1:
            raise corrupt_entry_error(entry, f"a message of format {body[0]} inside a message of format {entry.magic}")
        attributes, timestamp, key, value = _fields(body, entry)
        if attributes & _CODEC_MASK:
            raise corrupt_entry_error(entry, "a compressed message inside a compressed message")
        tally.count += 1
        if body[0] == 0:
            yield Record(offset, -1, -1, key, value, ())
        elif append_time is None:
            yield Record(offset, timestamp, 0, key, value, ())
        else:
            yield Record(offset, append_time, 1, key, value, ())
