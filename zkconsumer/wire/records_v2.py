"""Inside a batch of format 2 (0.11 and later).  Pure.

    int64 base offset, int32 size, int32 leader epoch, int8 magic, uint32 crc |
    int16 attributes, int32 last offset delta, int64 base timestamp, int64 max timestamp,
    int64 producer id, int16 producer epoch, int32 base sequence, int32 count | records, perhaps compressed

    record: varint bytes of the rest | int8 attributes, varlong timestamp delta, varint offset delta,
            varint length + key, varint length + value, varint count of headers, each: varint length + UTF-8 key,
            varint length + value

The checksum (CRC-32C) covers what follows it.  Attributes: bits 0 to 2 the codec, 3 log append time, 4
transactional, 5 control, 6 (3.1 and later) the base timestamp is a delete horizon, which changes nothing for a
reader.  Varints are zigzag: an odd first bit means negative, and a negative length null, as in every release.
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct, error

import google_crc32c

from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.types import RecordCounter
from zkconsumer.wire import compression
from zkconsumer.wire.entries import (
    NO_END,
    DecompressionBudget,
    LogEntry,
    Record,
    corrupt_entry_error,
    invalid_entry_error,
)

TALLY_STEP = 64
"""After how many records of a batch they are counted: one by one would cost each of them."""

HEADERS_MAX = 100_000
"""Headers of one record: each takes two bytes on the wire but much more as an object."""

_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_CONTROL = 0x20

_CRC = Struct(">I")
_CRC_POSITION = 17
_COVERED_POSITION = 21
_COVERED_HEADER = Struct(">hiqqqhii")
_CONTROL_KEY = Struct(">hh")
_TIMESTAMP_MIN = -(2**63)
_TIMESTAMP_MAX = 2**63 - 1


def read_batch(
    record_set: bytes | memoryview,
    entry: LogEntry,
    start_offset: int,
    check_crcs: bool,
    decompressed_bytes_max: int,
    tally: RecordCounter,
    allowance: DecompressionBudget | None = None,
    *,
    end_offset: int = NO_END,
) -> Iterator[Record]:
    """The records of one batch with ``start_offset`` <= offset < ``end_offset``; none of a control batch.

    ``allowance``: what a compressed batch is charged to; ``DecompressionLimitError`` when it does not suffice.

    Raises ``InvalidMessageException`` and ``UnsupportedCodec``, as ``iter_records`` describes.
    """
    covered = bytes(record_set[entry.position + _COVERED_POSITION : entry.end])
    # Before anything in there is believed: a damaged bit could make a control batch of it, or an empty one.
    if check_crcs and google_crc32c.value(covered) != _CRC.unpack_from(record_set, entry.position + _CRC_POSITION)[0]:
        raise corrupt_entry_error(entry, "the checksum does not match")
    attributes, _, base_timestamp, max_timestamp, _, _, _, count = _COVERED_HEADER.unpack_from(covered)
    if count < 0:
        raise corrupt_entry_error(entry, f"a batch of {count} records")
    # Compaction keeps the empty batch of an idempotent producer (0.11 and later).
    if attributes & _CONTROL or count == 0 or entry.last_offset < start_offset:
        return
    body, position = covered, _COVERED_HEADER.size
    if not attributes & _CODEC_MASK:
        allowance = None
    elif allowance is None:
        body, position = _decompress(attributes & _CODEC_MASK, covered, entry, decompressed_bytes_max), 0
    else:
        allowance.items -= count
        _check_budget(allowance, entry)
        limit = min(decompressed_bytes_max, allowance.decompressed_bytes)
        allowance.decompressed_bytes = 0
        body, position = _decompress(attributes & _CODEC_MASK, covered, entry, limit), 0
        allowance.decompressed_bytes = limit - len(body)
    tally.expanded_bytes = 0 if body is covered else len(body)
    append_time = max_timestamp if attributes & _LOG_APPEND_TIME else None
    span = range(start_offset, end_offset)
    yield from _records(body, position, count, entry, base_timestamp, append_time, span, tally, allowance)


def read_control_type(record_set: bytes | memoryview, entry: LogEntry) -> int | None:
    """The type of the control record in a control batch (KIP-98): 0 ends an aborted transaction, 1 a committed one.

    None when the batch holds no such record; the record reader says why when it reads the batch.
    """
    body = bytes(record_set[entry.position + _COVERED_POSITION + _COVERED_HEADER.size : entry.end])
    try:
        position = _read_long_varint(body, 1, body[0])[1] + 1  # behind the size and the attributes
        for _ in range(2):  # timestamp delta, offset delta
            position = _read_long_varint(body, position + 1, body[position])[1]
        size, position = _read_long_varint(body, position + 1, body[position])
        key = body[position : position + (size >> 1)]
        kind: int = _CONTROL_KEY.unpack_from(key)[1]
        return kind
    except (IndexError, error):
        return None


def _check_budget(allowance: DecompressionBudget, entry: LogEntry) -> None:
    if allowance.items < 0:
        raise invalid_entry_error(
            compression.DecompressionLimitError, entry, "a compressed batch holds too many records and headers"
        )


def _decompress(codec: int, covered: bytes, entry: LogEntry, decompressed_bytes_max: int) -> bytes:
    try:
        payload = memoryview(covered)[_COVERED_HEADER.size :]
        return bytes(compression.decompress(codec, payload, 2, decompressed_bytes_max))
    except (InvalidMessageException, UnsupportedCodec) as error:
        raise invalid_entry_error(type(error), entry, str(error)) from error


def _records(
    body: bytes,
    position: int,
    count: int,
    entry: LogEntry,
    base_timestamp: int,
    append_time: int | None,
    span: range,
    tally: RecordCounter,
    allowance: DecompressionBudget | None,
) -> Iterator[Record]:
    """The hot loop.  Varints of one and two bytes are read in place (keys are short: of one): a call costs more
    than the rest of a field.

    Nothing is compared with the end of ``body`` on the way.  A length can only move the position forward, so what
    goes too far either runs into IndexError or misses the end of its record, and both are errors.
    """
    bytes_total = len(body)
    base_offset = entry.offset
    last_offset = entry.last_offset
    offset_before = base_offset - 1
    timestamp_type = 0 if append_time is None else 1
    start_offset, end_offset = span.start, span.stop
    begin, place = 0, tally.position
    if place is not None and place.cursor is not None and place.cursor[0] == entry.position:
        _, position, begin, offset_before = place.cursor
    _read, unread, counted = begin - 1, 0, begin
    try:
        for first in range(begin, count, TALLY_STEP):
            for _read in range(first, min(first + TALLY_STEP, count)):
                size = body[position]
                position += 1
                if size >= 0x80:
                    if (high := body[position]) < 0x80:
                        size, position = size & 0x7F | high << 7, position + 1
                    else:
                        size, position = _read_long_varint(body, position, size)
                record_end = position + (size >> 1)
                if size & 1 or record_end > bytes_total:
                    raise corrupt_entry_error(entry, f"a record after offset {offset_before} is longer than its batch")

                position += 1
                delta = body[position]
                position += 1
                if delta >= 0x80:
                    if (high := body[position]) < 0x80:
                        delta, position = delta & 0x7F | high << 7, position + 1
                    else:
                        delta, position = _read_long_varint(body, position, delta)
                timestamp = base_timestamp + ((delta >> 1) ^ -(delta & 1))

                delta = body[position]
                position += 1
                if delta >= 0x80:
                    if (high := body[position]) < 0x80:
                        delta, position = delta & 0x7F | high << 7, position + 1
                    else:
                        delta, position = _read_long_varint(body, position, delta)
                offset = base_offset + (delta >> 1)
                if delta & 1 or not offset_before < offset <= last_offset:
                    raise corrupt_entry_error(
                        entry, f"a record after offset {offset_before} has none of those up to {last_offset}"
                    )
                if offset >= end_offset:
                    unread += 1
                    return
                offset_before = offset
                if offset < start_offset:
                    position = record_end
                    unread += 1
                    continue

                key = value = None
                size = body[position]
                position += 1
                if size >= 0x80:
                    size, position = _read_long_varint(body, position, size)
                if not size & 1:
                    key = body[position : (position := position + (size >> 1))]

                size = body[position]
                position += 1
                if size >= 0x80:
                    if (high := body[position]) < 0x80:
                        size, position = size & 0x7F | high << 7, position + 1
                    else:
                        size, position = _read_long_varint(body, position, size)
                if not size & 1:
                    value = body[position : (position := position + (size >> 1))]

                size = body[position]
                position += 1
                headers: tuple[tuple[str, bytes | None], ...] = ()
                if size:
                    headers, position = _headers(body, position, size, entry)
                    if allowance is not None:
                        allowance.items -= len(headers)
                        _check_budget(allowance, entry)
                if position != record_end:
                    raise corrupt_entry_error(entry, f"the fields of the record with offset {offset} do not fill it")
                if append_time is not None:
                    timestamp = append_time
                elif not _TIMESTAMP_MIN <= timestamp <= _TIMESTAMP_MAX:
                    raise corrupt_entry_error(
                        entry, f"the timestamp of the record with offset {offset} does not fit in 64 bits"
                    )
                yield Record(offset, timestamp, timestamp_type, key, value, headers)
            tally.count += _read + 1 - unread - counted
            counted = _read + 1 - unread
            if place is not None:
                place.cursor = entry.position, position, _read + 1, offset_before
    except IndexError as error:
        unread += 1
        raise corrupt_entry_error(entry, f"a record after offset {offset_before} is cut off") from error
    except InvalidMessageException:
        unread += 1
        raise
    finally:
        tally.count += _read + 1 - unread - counted
    if position != bytes_total:
        raise corrupt_entry_error(entry, f"{bytes_total - position} bytes follow the {count} records of the batch")


def _headers(
    body: bytes, position: int, size: int, entry: LogEntry
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    """The headers of a record, ``size`` being the first byte of their count, and the position after them.

    A key that is not UTF-8 has its bad bytes replaced, as in the Java client.
    """
    if size >= 0x80:
        size, position = _read_long_varint(body, position, size)
    if size & 1 or size >> 1 > HEADERS_MAX:
        raise corrupt_entry_error(entry, f"a record with more than {HEADERS_MAX} headers, or fewer than none")
    headers = []
    for _ in range(size >> 1):
        key_size, position = _read_long_varint(body, position + 1, body[position])
        if key_size & 1:
            raise corrupt_entry_error(entry, "a header without a key")
        key = body[position : (position := position + (key_size >> 1))].decode("utf-8", "replace")
        value_size, position = _read_long_varint(body, position + 1, body[position])
        value = None
        if not value_size & 1:
            value = body[position : (position := position + (value_size >> 1))]
        headers.append((key, value))
    return tuple(headers), position


def _read_long_varint(body: bytes, position: int, first: int) -> tuple[int, int]:
    """A varint whose first byte is ``first`` and whose others start at ``position``: as it stands, zigzag, and
    where it ends.  More than ten bytes are left standing, and then the record does not end where it should."""
    raw = first & 0x7F
    shift = 7
    while first >= 0x80 and shift < 70:
        first = body[position]
        position += 1
        raw |= (first & 0x7F) << shift
        shift += 7
    return raw, position
