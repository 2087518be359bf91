"""Batches of format 2 as columns: all records of many batches at once.  Pure; numpy only.

    batches --headers, checksums--> one buffer --chains--> where records begin --varints--> columns

Nothing is believed: each record must end where the next begins, offsets must increase, the last record must end its
batch.  Where something does not fit together, the record reader of ``zkconsumer.wire`` reads the same batches and has
the last word, be it records or an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from bridge.spark.chains import walk_chains
from bridge.spark.spans import PIECE_BYTES_MAX, Columns, Headers, Limits, Raw, Spans, narrowed, pieces_of
from bridge.spark.varints import TOO_LARGE, Bytes, Ints, read_varints
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.types import Tally
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Entry, bad_entry, corrupt
from zkconsumer.wire.records_v2 import HEADERS_MAX, read_batch

PIECE_RECORDS_MAX = 1 << 20
"""Records that are decoded at once: each takes some 150 bytes meanwhile, and a megabyte of compressed batch may stand
for 30 million.  A batch of more, which no producer of our time writes, is read one record after the other."""

PIECE_HEADERS_MAX = 4 << 20
"""Headers that are decoded at once, at some 60 bytes each; where there are more, the same."""

OFFSET_DELTA_END = 1 << 31
"""Offsets of records are 32 bits behind the one of their batch."""

_COVERED_POSITION = 21
_CRC_BYTES = 4
_HEADER = Struct(">Ihiqqqhii")
_RECORDS_POSITION = _COVERED_POSITION - _CRC_BYTES + _HEADER.size
_CODEC_MASK = 0x07
_LOG_APPEND_TIME = 0x08
_CONTROL = 0x20


@dataclass(slots=True)
class _Batches:
    """Batches whose records lie in one buffer; lists of one number a batch."""

    entries: list[Entry] = field(default_factory=list)
    begin: list[int] = field(default_factory=list)
    end: list[int] = field(default_factory=list)
    records: int = 0
    count: list[int] = field(default_factory=list)
    base_timestamp: list[int] = field(default_factory=list)
    append_time: list[int] = field(default_factory=list)
    is_append: list[bool] = field(default_factory=list)


def batch_columns(raw: Raw, entries: list[Entry], limits: Limits) -> Iterator[Columns]:
    """Uncompressed batches are read where they lie, compressed ones out of a buffer of what they expanded to."""
    plain, packed = _Batches(), _Batches()
    parts: list[bytes] = []
    size = 0
    for entry in entries:
        header = None if entry.offset >= limits.end_offset else _header(raw, entry, limits)
        if header is None:
            continue
        attributes, base_timestamp, max_timestamp, count = header
        codec = attributes & _CODEC_MASK
        is_too_long = count > PIECE_RECORDS_MAX
        expanded = b"" if is_too_long or not codec else _decompress(codec, raw, entry, limits)
        if plain.entries and (codec or plain.records + count > PIECE_RECORDS_MAX):
            yield from _columns(raw, raw, plain, limits)
            plain = _Batches()
        is_full = size + len(expanded) > PIECE_BYTES_MAX or packed.records + count > PIECE_RECORDS_MAX
        if packed.entries and (not codec or is_full):
            yield from _columns(b"".join(parts), raw, packed, limits)
            packed, parts, size = _Batches(), [], 0
        if is_too_long:
            yield from _one_by_one(raw, [entry], limits)
            continue
        if codec:
            parts.append(expanded)
            begin, size = size, size + len(expanded)
            into, end = packed, size
        else:
            into, begin, end = plain, entry.position + _RECORDS_POSITION, entry.end
        into.entries.append(entry)
        into.begin.append(begin)
        into.end.append(end)
        into.records += count
        into.count.append(count)
        into.base_timestamp.append(base_timestamp)
        into.append_time.append(max_timestamp)
        into.is_append.append(bool(attributes & _LOG_APPEND_TIME))
    if plain.entries:
        yield from _columns(raw, raw, plain, limits)
    if packed.entries:
        yield from _columns(b"".join(parts), raw, packed, limits)


def _header(raw: Raw, entry: Entry, limits: Limits) -> tuple[int, int, int, int] | None:
    """Attributes, base and greatest timestamp, number of records; None for a batch without records for anybody."""
    covered_at = entry.position + _COVERED_POSITION
    crc, attributes, _, base_timestamp, max_timestamp, _, _, _, count = _HEADER.unpack_from(
        raw, covered_at - _CRC_BYTES
    )
    if limits.check_crcs and google_crc32c.value(bytes(raw[covered_at : entry.end])) != crc:
        raise corrupt(entry, "the checksum does not match")
    if count < 0:
        raise corrupt(entry, f"a batch of {count} records")
    if attributes & _CONTROL or count == 0 or entry.last_offset < limits.first_offset:
        return None
    return attributes, base_timestamp, max_timestamp, count


def _decompress(codec: int, raw: Raw, entry: Entry, limits: Limits) -> bytes:
    payload = memoryview(raw)[entry.position + _RECORDS_POSITION : entry.end]
    try:
        return compression.decompress(codec, payload, 2, limits.decompressed_bytes_max)
    except (InvalidMessageException, UnsupportedCodec) as error:
        raise bad_entry(type(error), entry, str(error)) from error


def _columns(buffer: Raw, raw: Raw, batches: _Batches, limits: Limits) -> Iterator[Columns]:
    fast = _columns_at_once(buffer, batches, limits)
    if fast is None:
        yield from _one_by_one(raw, batches.entries, limits)
    else:
        yield fast


def _one_by_one(raw: Raw, entries: list[Entry], limits: Limits) -> Iterator[Columns]:
    """By the record reader; the checksums were verified."""
    tally, most = Tally(), limits.decompressed_bytes_max
    read = (record for each in entries for record in read_batch(raw, each, limits.first_offset, False, most, tally))
    yield from pieces_of(read, limits)


def _columns_at_once(buffer: Raw, batches: _Batches, limits: Limits) -> Columns | None:
    """All records of these batches, or None when something does not fit together."""
    data = np.frombuffer(buffer, np.uint8)
    begin, end, count = (np.array(numbers, np.int64) for numbers in (batches.begin, batches.end, batches.count))
    walked = walk_chains(data, buffer, begin, end, count)
    if walked is None:
        return None
    fields, ends = walked
    last = np.cumsum(count) - 1

    delta_ms, at = read_varints(data, fields + 1)
    delta, at = read_varints(data, at)
    key_length, key_start = read_varints(data, at)
    value_length, value_start = read_varints(data, key_start + np.maximum(key_length, 0))
    header_count, at = read_varints(data, value_start + np.maximum(value_length, 0))
    total = len(data)
    if max(int(key_length.max()), int(value_length.max()), int(header_count.max())) > total:
        return None
    if int(delta.min()) < 0 or int(header_count.min()) < 0 or int(delta.max()) >= OFFSET_DELTA_END:
        return None
    if max(int(delta_ms.max()), -int(delta_ms.min())) >= TOO_LARGE:
        return None
    has_headers = bool(header_count.any())
    if has_headers:
        if ((at > ends) | ((at != ends) & (header_count == 0))).any():
            return None
    elif (at != ends).any():
        return None
    bases = np.array([entry.offset for entry in batches.entries], np.int64)
    if int(bases.max()) > TOO_LARGE:
        return None
    lasts = np.array([entry.last_offset for entry in batches.entries], np.int64)
    offset = np.repeat(bases, count) + delta
    if (offset[1:] <= offset[:-1]).any() or (offset[last] > lasts).any():
        return None
    timestamp, timestamp_type = _timestamps(batches, count, delta_ms)
    if timestamp is None:
        return None
    headers = None
    if limits.with_headers:
        headers = _headers(data, at, ends, header_count)
        if headers is None:
            return None
    found = Columns(
        buffer, offset, timestamp, timestamp_type, Spans(key_start, key_length), Spans(value_start, value_length),
        headers,
    )  # fmt: skip
    return narrowed(found, limits)


def _timestamps(batches: _Batches, count: Ints, delta_ms: Ints) -> tuple[Ints | None, NDArray[np.int32]]:
    base = np.array(batches.base_timestamp, np.int64)
    if ((base > TOO_LARGE) | (base < -TOO_LARGE)).any():
        return None, np.empty(0, np.int32)
    timestamp: Ints = np.repeat(base, count) + delta_ms
    timestamp_type = np.zeros(len(timestamp), np.int32)
    if any(batches.is_append):
        is_append = np.repeat(np.array(batches.is_append), count)
        timestamp = np.where(is_append, np.repeat(np.array(batches.append_time, np.int64), count), timestamp)
        timestamp_type[is_append] = 1
    return timestamp, timestamp_type


def _headers(data: Bytes, at: Ints, ends: Ints, count: Ints) -> Headers | None:
    """The headers of all records, header after header of those that have so many."""
    # One step each header of the record that has most, and some numbers for each header of all.
    if int(count.max()) > HEADERS_MAX:
        return None
    total = int(count.sum())
    if total > min(PIECE_HEADERS_MAX, len(data)):
        return None
    index = np.cumsum(count) - count
    name_start, name_length, value_start, value_length = (np.zeros(total, np.int64) for _ in range(4))
    position = at.copy()
    having = np.flatnonzero(count > 0)
    step = 0
    while having.size:
        slot = index[having] + step
        length, behind = read_varints(data, position[having])
        name_start[slot], name_length[slot] = behind, length
        length, behind = read_varints(data, behind + np.maximum(length, 0))
        value_start[slot], value_length[slot] = behind, length
        position[having] = behind + np.maximum(length, 0)
        step += 1
        having = having[count[having] > step]
    if (position != ends).any() or (name_length < 0).any():
        return None
    if (name_length > len(data)).any() or (value_length > len(data)).any():
        return None
    return Headers(count, Spans(name_start, name_length), Spans(value_start, value_length))
