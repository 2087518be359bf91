"""Writing record sets: for the writer of topics (``bridge.spark.sink``), the fakes and the tests.  Pure.

    format 0, 1, no codec    one message per record
    format 0, 1, codec       one wrapper around a message set
    format 2                 one batch

What is written here is what a broker would hand out: offsets are those of the records.  A producer numbers its
records from 0.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterable
from itertools import pairwise

import google_crc32c

from zkconsumer.errors import UsageError
from zkconsumer.wire import compression
from zkconsumer.wire.entries import BATCH_BYTES_MIN, OFFSET_AND_SIZE, Record

_LOG_APPEND_TIME = 0x08
_CONTROL = 0x20

_CRC = struct.Struct(">I")
_INT32 = struct.Struct(">i")
_HEADER_0 = struct.Struct(">bb")
_HEADER_1 = struct.Struct(">bbq")
_BATCH_HEADER = struct.Struct(">qiib")
_COVERED_HEADER = struct.Struct(">hiqqqhii")

_NO_LEADER_EPOCH = -1
_NO_PRODUCER = -1, -1, -1


def build_record_set(
    records: Iterable[Record],
    magic: int,
    codec: int = 0,
    *,
    base_offset: int | None = None,
    last_offset: int | None = None,
    log_append_time: bool = False,
    control: bool = False,
) -> bytes:
    """``records`` as the bytes of format ``magic`` (0, 1, 2) compressed with ``codec`` (0 to 3, format 2 also 4).

    Offsets must increase.  ``base_offset`` is where the inner offsets of format 1 and of a batch count from (the
    first record's), and ``last_offset`` the last that a batch covers (the last record's): give them to leave the
    gaps that compaction leaves; a batch may then be empty.  With ``log_append_time`` (formats 1 and 2) all records
    get one append time, the greatest of their timestamps; the ``timestamp_type`` of a record is not looked at.
    ``control`` (format 2) marks a control batch.  Format 0 drops the timestamps.  No records and no ``base_offset``
    make no bytes.

    Raises ``UsageError`` for what the format cannot express, ``UnsupportedCodec`` for a codec that it has not.
    """
    batch = list(records)
    base = base_offset if base_offset is not None else batch[0].offset if batch else None
    last = last_offset if last_offset is not None else batch[-1].offset if batch else base
    _check_expressible(batch, magic, base, last, control)
    if base is None or last is None:
        return b""
    try:
        if magic == 2:
            attributes = codec | (_LOG_APPEND_TIME if log_append_time else 0) | (_CONTROL if control else 0)
            return _batch(batch, attributes, base, last)
        return _legacy_entries(batch, magic, codec, base, log_append_time and magic == 1)
    except struct.error as error:
        raise UsageError(f"an offset, timestamp or size does not fit in record format {magic}: {error}") from error


def _check_expressible(batch: list[Record], magic: int, base: int | None, last: int | None, control: bool) -> None:
    if magic not in (0, 1, 2):
        raise UsageError(f"record format {magic} is not known; 0, 1 and 2 are")
    if magic < 2 and (control or any(record.headers for record in batch)):
        raise UsageError(f"record format {magic} has neither headers nor control batches; format 2 has")
    if magic < 2 and not batch and base is not None:
        raise UsageError(f"record format {magic} has no empty entry; format 2 has")
    if magic < 2 and batch and last != batch[-1].offset:
        raise UsageError(f"in record format {magic} the last offset is that of the last record")
    offsets = [record.offset for record in batch]
    if any(before >= after for before, after in pairwise(offsets)):
        raise UsageError(f"offsets must increase: {offsets}")
    if batch and base is not None and last is not None and not base <= offsets[0] <= offsets[-1] <= last:
        raise UsageError(f"offsets {offsets[0]} to {offsets[-1]} are not within {base} to {last}")


def _legacy_entries(batch: list[Record], magic: int, codec: int, base: int, log_append_time: bool) -> bytes:
    newest = max(record.timestamp for record in batch)
    if codec == compression.NONE:
        return _message_set(batch, magic, 0, newest if log_append_time else None)
    # Only the wrapper says "log append time": a broker does not open it to mark the messages inside.
    inner = _message_set(batch, magic, base if magic == 1 else 0, None)
    compressed = compression.compress(codec, inner, magic)
    attributes = codec | (_LOG_APPEND_TIME if log_append_time else 0)
    return _message(batch[-1].offset, magic, attributes, newest, None, compressed)


def _message_set(batch: list[Record], magic: int, shift: int, append_time: int | None) -> bytes:
    if append_time is None:
        return b"".join(_message(r.offset - shift, magic, 0, r.timestamp, r.key, r.value) for r in batch)
    return b"".join(_message(r.offset, magic, _LOG_APPEND_TIME, append_time, r.key, r.value) for r in batch)


def _message(offset: int, magic: int, attributes: int, timestamp: int, key: bytes | None, value: bytes | None) -> bytes:
    header = _HEADER_0.pack(magic, attributes) if magic == 0 else _HEADER_1.pack(magic, attributes, timestamp)
    body = header + _sized(key) + _sized(value)
    return OFFSET_AND_SIZE.pack(offset, _CRC.size + len(body)) + _CRC.pack(zlib.crc32(body)) + body


def _sized(field: bytes | None) -> bytes:
    return _INT32.pack(-1) if field is None else _INT32.pack(len(field)) + field


def _batch(batch: list[Record], attributes: int, base: int, last: int) -> bytes:
    base_timestamp = batch[0].timestamp if batch else -1
    newest = max((record.timestamp for record in batch), default=-1)
    plain = _records(batch, base, base_timestamp)
    # An empty batch has no payload to compress, and says so (as the broker's cleaner writes it).
    codec = attributes & 7 if batch else compression.NONE
    payload = compression.compress(codec, plain, 2)
    attributes = attributes & ~7 | codec
    covered = _COVERED_HEADER.pack(attributes, last - base, base_timestamp, newest, *_NO_PRODUCER, len(batch)) + payload
    size = BATCH_BYTES_MIN + len(payload)
    return _BATCH_HEADER.pack(base, size, _NO_LEADER_EPOCH, 2) + _CRC.pack(google_crc32c.value(covered)) + covered


def _records(batch: list[Record], base_offset: int, base_timestamp: int) -> bytes:
    """The records of a batch.  One loop with one join, since most of the work of a writer of topics is done here."""
    pieces: list[bytes] = []
    last_headers: tuple[tuple[str, bytes | None], ...] = ()
    encoded_headers = _NO_HEADERS
    for offset, timestamp, _, key, value, headers in batch:
        if headers is not last_headers:  # often all records of a batch have the same tuple
            last_headers, encoded_headers = headers, _headers(headers)
        timestamp_delta = varint(timestamp - base_timestamp)
        offset_delta = varint(offset - base_offset)
        key_size, key = (_NULL, b"") if key is None else (varint(len(key)), key)
        value_size, value = (_NULL, b"") if value is None else (varint(len(value)), value)
        size = 1 + len(timestamp_delta) + len(offset_delta) + len(key_size) + len(key) + len(value_size) + len(value)
        pieces += (
            varint(size + len(encoded_headers)), b"\x00", timestamp_delta, offset_delta, key_size, key, value_size,
            value, encoded_headers,
        )  # fmt: skip
    return b"".join(pieces)


def _headers(headers: tuple[tuple[str, bytes | None], ...]) -> bytes:
    fields = [varint(len(headers))]
    for key, value in headers:
        fields += (_varsized(key.encode("utf-8")), _varsized(value))
    return b"".join(fields)


def _varsized(field: bytes | None) -> bytes:
    return _NULL if field is None else varint(len(field)) + field


def varint(number: int) -> bytes:
    """``number`` as a zigzag varint, the only integer inside a record of format 2; any size that Python holds."""
    return _SMALL_VARINTS[number] if 0 <= number < _SMALL_VARINTS_COUNT else _encode_varint(number)


def _encode_varint(number: int) -> bytes:
    raw = number << 1 if number >= 0 else (-number << 1) - 1
    encoded = bytearray()
    while raw > 0x7F:
        encoded.append(raw & 0x7F | 0x80)
        raw >>= 7
    encoded.append(raw)
    return bytes(encoded)


_SMALL_VARINTS_COUNT = 4096
_SMALL_VARINTS = tuple(map(_encode_varint, range(_SMALL_VARINTS_COUNT)))
"""The varints of most sizes and offset deltas."""

_NULL = _encode_varint(-1)
_NO_HEADERS = varint(0)
