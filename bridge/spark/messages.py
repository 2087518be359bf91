"""Messages of formats 0 and 1 as columns: all of a run at once.  Pure.

    int64 offset, int32 size, uint32 crc | int8 magic, int8 attributes, (format 1: int64 timestamp,)
                                           int32 length + key, int32 length + value

A message says only how long it is, so a run is a chain.  Compiled code walks it.  numpy does not: wherever the magic of
the first and attributes without a codec are, a message *may* begin; those of these places that follow each other by
their sizes are the chain, exactly.

Without compiled code the checksums of a run are verified by one checksum over all of it.  CRC-32 is linear: a message
followed by its own checksum leaves a remainder of zero, so a run in which every message is followed by its checksum,
and everything else between them is zero, does so too.  One damaged message cannot pass; two can cancel out once in
2**32.

Nothing here raises: what does not fit together gives None, and the record reader has the last word.
"""

from __future__ import annotations

import zlib
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from struct import Struct
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bridge.spark import compiled
from bridge.spark.spans import Columns, Limits, Number, Raw, narrowed, no_headers, values_at
from bridge.spark.varints import Bytes, Ints
from zkconsumer.wire.entries import ENTRY_PREFIX_BYTES, MAGIC_POSITION, MESSAGE_BYTES_MIN, OFFSET_MAX, Entry

WINDOW_BYTES_MIN = 4 * 1024
WINDOW_BYTES_MAX = 1024 * 1024
"""How far beginnings are looked for at a time; it grows with the run, so that a short one costs little."""

CODEC_MASK = 0x07
LOG_APPEND_TIME = 0x08

_ATTRIBUTES_POSITION = MAGIC_POSITION + 1
_HEAD_BYTES = _ATTRIBUTES_POSITION + 1
_HEADERS = {
    0: np.dtype(
        {
            "names": ["offset", "size", "crc", "body", "key"],
            "formats": [">i8", ">i4", ">u4", "<u4", ">i4"],
            "offsets": [0, 8, 12, 16, 18],
            "itemsize": 22,
        }
    ),
    1: np.dtype(
        {
            "names": ["offset", "size", "crc", "body", "timestamp", "key"],
            "formats": [">i8", ">i4", ">u4", "<u4", ">i8", ">i4"],
            "offsets": [0, 8, 12, 16, 18, 26],
            "itemsize": 30,
        }
    ),
}
"""Up to the key.  ``body``: the first four bytes that the checksum covers."""

_TIMESTAMP = Struct(">q")
_SIZE = np.dtype(">i4")
_LENGTH_BYTES = 4
_PATCH = np.dtype([("crc", "<u4"), ("zero", "V12"), ("body", "<u4")])
_ONES = np.uint32(0xFFFFFFFF)


@dataclass(frozen=True, slots=True)
class Messages:
    """A run of uncompressed messages that follow each other in one buffer, all of one magic.

    Their attributes may differ: the type of the timestamp is read from each, and other bits mean nothing to a reader.
    """

    magic: int
    starts: Ints
    ends: Ints
    offsets: Ints

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def end(self) -> int:
        """The byte behind the last."""
        return int(self.ends[-1])

    @property
    def first_offset(self) -> int:
        return int(self.offsets[0])

    @property
    def last_offset(self) -> int:
        return int(self.offsets[-1])

    def chosen(self, part: slice) -> Messages:
        """Some of them that follow each other."""
        return Messages(self.magic, self.starts[part], self.ends[part], self.offsets[part])

    def below(self, number: int) -> Messages:
        """The first so many."""
        return self.chosen(slice(number))

    def parts(self, bytes_max: int) -> Iterator[Messages]:
        """All of them, so many bytes at a time; a larger one stands alone."""
        low = 0
        while low < len(self):
            high = max(low + 1, int(self.ends.searchsorted(self.starts[low] + bytes_max, "right")))
            yield self.chosen(slice(low, high))
            low = high

    def up_to(self, end_offset: int) -> Messages:
        """Those up to the one that covers the last offset before ``end_offset``."""
        number = int(np.searchsorted(self.offsets, end_offset - 1)) + 1
        return self if number >= len(self) else self.below(number)

    def entries(self) -> list[Entry]:
        """The same for the record reader."""
        rows = zip(self.starts.tolist(), self.ends.tolist(), self.offsets.tolist(), strict=True)
        return [Entry(start, end, self.magic, offset, offset) for start, end, offset in rows]


def run_of_messages(raw: Raw, position: int, offset_before: int) -> Messages | None:
    """The longest run of complete uncompressed messages from ``position`` on whose offsets increase."""
    data = np.frombuffer(raw, np.uint8)
    if position + _HEAD_BYTES > len(data):
        return None
    magic, attributes = raw[position + MAGIC_POSITION], raw[position + _ATTRIBUTES_POSITION]
    if magic > 1 or attributes & CODEC_MASK:
        return None
    starts, ends = _chain(data, raw, position)
    if not len(starts):
        return None
    offsets = values_at(raw, np.dtype(">i8"), starts).astype(np.int64)
    before = np.empty_like(offsets)
    before[0], before[1:] = offset_before, offsets[:-1]
    wrong = (offsets <= before) | (offsets > OFFSET_MAX)
    run = Messages(magic, starts, ends, offsets)
    if wrong.any():
        sound = int(wrong.argmax())
        return run.below(sound) if sound else None
    return run


def plain_columns(raw: Raw, run: Messages, limits: Limits) -> Columns | None:
    """The records of a run of uncompressed messages, or None when something does not fit together."""
    numbers = _rows(raw, run, limits.check_crcs)
    return None if numbers is None else _columns(raw, numbers, limits)


@dataclass(frozen=True, slots=True)
class Wrapped:
    """What one compressed message holds, or one from ``as_wrapped``.

    ``begin``: of its messages in the common buffer; ``append_time`` or None.
    """

    entry: Entry
    begin: int
    append_time: int | None


def as_wrapped(raw: Raw, entry: Entry) -> tuple[bytes, int | None]:
    """An uncompressed message as what a compressed one would hold that holds nothing else: its bytes, and its append
    time or None."""
    message = bytes(raw[entry.position : entry.end])
    is_append = entry.magic == 1 and message[_ATTRIBUTES_POSITION] & LOG_APPEND_TIME
    if not is_append or len(message) < _HEADERS[1].itemsize:
        return message, None
    return message, int(_TIMESTAMP.unpack_from(message, _ATTRIBUTES_POSITION + 1)[0])


def wrapped_columns(buffer: bytes, wrapped: list[Wrapped], offset_before: int, limits: Limits) -> Columns | None:
    """The records of compressed messages that were expanded into one buffer, one behind the other.

    ``offset_before``: the last offset of what stands before the first of them.
    """
    # Offsets begin anew in each wrapper, so the run is not asked for that.
    data = np.frombuffer(buffer, np.uint8)
    if len(buffer) < _HEAD_BYTES:
        return None
    magic, attributes = buffer[MAGIC_POSITION], buffer[_ATTRIBUTES_POSITION]
    if magic > 1 or attributes & CODEC_MASK:
        return None
    starts, ends = _chain(data, buffer, 0)
    if not len(starts) or ends[-1] != len(buffer):
        return None
    inner = values_at(buffer, np.dtype(">i8"), starts).astype(np.int64)
    begin = np.array([each.begin for each in wrapped], np.int64)
    first = np.searchsorted(starts, begin)
    if (first >= len(starts)).any() or (starts[first] != begin).any() or (first[1:] <= first[:-1]).any():
        return None
    behind = np.append(first[1:], len(starts))
    if (inner < 0).any() or (inner > OFFSET_MAX).any():
        return None
    outer = np.array([each.entry.offset for each in wrapped], np.int64)
    is_relative = np.array([each.entry.magic == 1 for each in wrapped])
    shift: Ints = np.where(is_relative, outer - inner[behind - 1], 0)
    if (shift < 0).any() or (inner[behind - 1] + shift > outer).any():
        return None
    count = behind - first
    offsets = inner + np.repeat(shift, count)
    if offsets[0] <= offset_before or (offsets[1:] <= offsets[:-1]).any():
        return None
    # A wrapper may not reach back to the offset of the one before either, even if that holds no such message.
    if (offsets[first[1:]] <= outer[:-1]).any():
        return None
    run = Messages(magic, starts, ends, offsets)
    numbers = _rows(buffer, run, limits.check_crcs)
    if numbers is None:
        return None
    if magic == 1:
        # What the wrappers say counts.
        is_append = np.repeat([each.append_time is not None for each in wrapped], count)
        append = np.array([each.append_time or 0 for each in wrapped], np.int64)
        timestamp = numbers[Number.TIMESTAMP]
        numbers[Number.TIMESTAMP] = np.where(is_append, np.repeat(append, count), timestamp)
        numbers[Number.TIMESTAMP_TYPE] = is_append
    return _columns(buffer, numbers, limits)


def _columns(raw: Raw, numbers: NDArray[np.int64], limits: Limits) -> Columns:
    headers = no_headers(numbers.shape[1]) if limits.with_headers else None
    return narrowed(Columns(raw, numbers, headers), limits)


# --- the chain ----------------------------------------------------------------------------------------------------


def _chain(data: Bytes, raw: Raw, position: int) -> tuple[Ints, Ints]:
    """Where the complete uncompressed messages from ``position`` on begin and end, as long as the magic stays."""
    magic = int(data[position + MAGIC_POSITION])
    if compiled.is_there():
        bounds = compiled.bounds(raw, position, magic, codec=0)
        return bounds[:-1], bounds[1:]
    starts: list[Ints] = []
    ends: list[Ints] = []
    window = WINDOW_BYTES_MIN
    total = len(data)
    while True:
        stop = min(total - _HEAD_BYTES + 1, position + window)
        if stop <= position:
            break
        may_begin = data[position + MAGIC_POSITION : stop + MAGIC_POSITION] == magic
        may_begin &= data[position + _ATTRIBUTES_POSITION : stop + _ATTRIBUTES_POSITION] & CODEC_MASK == 0
        at = np.flatnonzero(may_begin) + position
        if not len(at) or at[0] != position:
            break
        follows = at + ENTRY_PREFIX_BYTES + values_at(raw, _SIZE, at + 8).astype(np.int64)
        # Most places that only look like a beginning are not followed by another: gone here, they break no chain.
        leads_on = (follows >= stop) | may_begin.take(follows - position, mode="clip")
        leads_on[0] = True
        chosen = np.flatnonzero(leads_on)
        chosen = chosen[_following(at[chosen], follows[chosen])]
        last = int(np.searchsorted(at, follows[chosen[-1]]))
        if last < len(at) and at[last] == follows[chosen[-1]]:
            # The last one of the run, which leads nowhere either.
            chosen = np.append(chosen, last)
        at, follows = at[chosen], follows[chosen]
        sound = (follows - at >= ENTRY_PREFIX_BYTES + MESSAGE_BYTES_MIN) & (follows <= total)
        whole = len(sound) if sound.all() else int(sound.argmin())
        starts.append(at[:whole])
        ends.append(follows[:whole])
        if whole < len(sound):
            break
        position = int(follows[-1])
        if position < stop:
            break
        window = min(2 * window, WINDOW_BYTES_MAX)
    if not starts:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    return np.concatenate(starts), np.concatenate(ends)


def _following(at: Ints, follows: Ints) -> slice | Ints:
    """Which of the places are those of the chain from the first on."""
    breaks = np.flatnonzero(follows[:-1] != at[1:])
    if not len(breaks):
        return slice(None)
    behind = np.searchsorted(at, follows[breaks])
    is_place = at.take(behind, mode="clip") == follows[breaks]
    last_of_pieces, leads_to = breaks.tolist(), np.where(is_place, behind, -1).tolist()
    is_chosen = np.zeros(len(at), bool)
    low = piece = 0
    while low >= 0:
        piece = bisect_left(last_of_pieces, low, piece)
        if piece == len(last_of_pieces):
            is_chosen[low:] = True
            break
        is_chosen[low : last_of_pieces[piece] + 1] = True
        low = leads_to[piece] if leads_to[piece] > last_of_pieces[piece] else -1
    return np.flatnonzero(is_chosen)


# --- what stands in them ------------------------------------------------------------------------------------------


def _rows(raw: Raw, run: Messages, check_crcs: bool) -> NDArray[np.int64] | None:
    """A row for each of ``Number`` that messages have; with the type of timestamp that the messages say."""
    numbers = (_compiled if compiled.is_there() else _in_numpy)(raw, run, check_crcs)
    if numbers is not None:
        numbers[Number.OFFSET] = run.offsets
        attributes = np.frombuffer(raw, np.uint8).take(run.starts + _ATTRIBUTES_POSITION)
        numbers[Number.TIMESTAMP_TYPE] = -1 if run.magic == 0 else attributes & LOG_APPEND_TIME != 0
    return numbers


def _compiled(raw: Raw, run: Messages, check_crcs: bool) -> NDArray[np.int64] | None:
    return compiled.rows_of_messages(raw, run.starts, run.ends, run.magic, check_crcs)


def _in_numpy(raw: Raw, run: Messages, check_crcs: bool) -> NDArray[np.int64] | None:
    header = _HEADERS[run.magic]
    # The least has a header and the length of a value.
    if int((run.ends - run.starts).min()) < header.itemsize + _LENGTH_BYTES:
        return None
    heads = values_at(raw, header, run.starts)
    if check_crcs and not _is_sound(raw, run, heads):
        return None
    key_start = run.starts + header.itemsize
    key_length = heads["key"].astype(np.int64)
    key_end = key_start + np.maximum(key_length, 0)
    value_start = key_end + _LENGTH_BYTES
    if (value_start > run.ends).any():
        return None
    value_length = values_at(raw, _SIZE, key_end).astype(np.int64)
    if (value_start + value_length > run.ends).any():
        return None
    if run.magic == 0:
        timestamp = np.full(len(run), -1, np.int64)
    else:
        timestamp = heads["timestamp"].astype(np.int64)
    is_here_later = np.zeros_like(timestamp)
    return np.vstack([is_here_later, timestamp, is_here_later, key_start, key_length, value_start, value_length])


def _is_sound(raw: Raw, run: Messages, heads: NDArray[Any]) -> bool:
    """Whether all checksums match: in a copy, each body is followed by its checksum, and by zeros up to the next.

    A checksum begins with ones, which is the same as turning the first four bytes over; it ends turned over.
    """
    low, high = int(run.starts[0]), int(run.ends[-1])
    copy = np.empty(high - low + _LENGTH_BYTES, np.uint8)
    copy[: high - low] = np.frombuffer(raw, np.uint8)[low:high]
    remainder = heads["crc"].astype(np.uint32) ^ _ONES
    patch = np.zeros(len(run), _PATCH)
    patch["crc"][1:] = remainder[:-1]
    patch["body"] = heads["body"] ^ _ONES
    everywhere: NDArray[Any] = np.ndarray((len(copy) - _PATCH.itemsize + 1,), _PATCH, copy, strides=(1,))
    everywhere[run.starts - low] = patch
    copy[-_LENGTH_BYTES:] = remainder[-1:].astype("<u4").view(np.uint8)
    return zlib.crc32(copy.data, 0xFFFFFFFF) == 0xFFFFFFFF
