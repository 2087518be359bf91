"""Where the records of uncompressed batches begin: each says only how long it is, so they form chains.  Pure.

    batch 1   len record len record len record ...        a chain is walked from its beginning to its end
    batch 2   len record len record ...

Going from record to record in Python costs as much as all the rest of decoding, so chains are walked side by side:
all of them go forward by one record in one step of numpy.  Where there are few (large batches) they are cut first:
near each of many places a record is *guessed* by what its first bytes look like, and each guess begins a chain.

Nothing of this has to be right.  What comes out is held against the one thing that counts, that each record ends
exactly where the next begins; a wrong guess costs another walk, without guesses.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from bridge.spark.spans import Raw
from bridge.spark.varints import LAST_SHIFT, Bytes, Ints, read_varints

TOGETHER_MIN = 24
"""With fewer chains a step of numpy costs more than walking them one by one."""

STEPS_MIN, STEPS_MAX = 8, 256
"""How far chains are walked before those that have ended are left out; the first time also fewer steps."""

CUT_BELOW_CHAINS = 256
"""So many chains make a step cheap; where there are fewer, they are cut."""

CUT_CHAINS = 512
"""About how many chains there are to be after cutting."""

CUT_RECORDS_MIN = 16
"""Pieces are not shorter than this: looking for the first record of one costs as much as walking some."""

CUT_RECORD_BYTES_MAX = 2048
"""Larger records are few for their bytes: they may as well be walked one by one."""

RECORD_BYTES_MIN = 6
"""Attributes, two deltas, two lengths and the number of headers, a byte each."""


def _jumps() -> Ints:
    """How far the next record is, by the first two bytes of one; 0 where they do not tell, or tell nonsense."""
    high, low = np.divmod(np.arange(1 << 16), 256)
    one = 1 + (low >> 1)
    two = np.where(high < 0x80, 2 + ((low & 0x7F | high << 7) >> 1), 0)
    is_negative = (low & 1).astype(bool)
    return np.where(is_negative, 0, np.where(low < 0x80, one, two)).astype(np.int64)


_JUMPS = _jumps()


def walk_chains(data: Bytes, raw: Raw, begin: Ints, end: Ints, count: Ints) -> tuple[Ints, Ints] | None:
    """For every record of every chain: where its fields begin, and where it ends; chain after chain.

    ``begin``, ``end`` and ``count`` of each chain, which lie one behind the other; ``raw`` is the same bytes as
    ``data``.  None unless the chains have so many records, each ends where the next begins, and the last at ``end``.
    """
    if (count > (end - begin) // (RECORD_BYTES_MIN + 1)).any():
        return None
    words = np.ndarray((len(raw) - 1,), np.dtype("<u2"), buffer=raw, strides=(1,))
    cut = _cut(data, words, begin, end, count) if len(begin) < CUT_BELOW_CHAINS else None
    if cut is not None:
        walked = _held(data, _starts(raw, words, *cut), begin, end, count)
        if walked is not None:
            return walked
    return _held(data, _starts(raw, words, begin, end, count), begin, end, count)


def _held(data: Bytes, starts: Ints, begin: Ints, end: Ints, count: Ints) -> tuple[Ints, Ints] | None:
    """Fields and ends of the records that start there, held against the one thing that counts."""
    behind = np.cumsum(count)
    if len(starts) != behind[-1] or (starts[behind - count] != begin).any():
        return None
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    ends[behind - 1] = end
    size, fields = read_varints(data, starts)
    return None if (fields + size != ends).any() else (fields, ends)


# --- walking ------------------------------------------------------------------------------------------------------


def _starts(raw: Raw, words: NDArray[np.uint16], begin: Ints, end: Ints, count: Ints) -> Ints:
    """Where records start, in order, if the bytes are sound; ``count``: about how many there are in each chain."""
    found: list[Ints] = []
    # A chain that has come to its end stays there; no record is so short that it could start at the last two bytes.
    position, stop, left = begin, np.minimum(end, len(words) - 1), count
    while len(position) >= TOGETHER_MIN:
        steps = max(1, min(int(np.median(left)), STEPS_MAX))
        rows = np.empty((steps, len(position)), np.int64)
        for row in rows:
            row[:] = position
            position = np.minimum(position + _JUMPS[words[position]], stop)
        columns = rows.T
        found.append(columns[columns < stop[:, None]])
        # Those that do not move any more have met a longer record, or a damaged one.
        for stuck in np.flatnonzero((position < stop) & (_JUMPS[words[position]] == 0)).tolist():
            found.append(_alone(raw, int(position[stuck]), int(stop[stuck])))
            position[stuck] = stop[stuck]
        goes_on = position < stop
        position, stop, left = position[goes_on], stop[goes_on], np.maximum(left[goes_on] - steps, STEPS_MIN)
    found += [_alone(raw, first, last) for first, last in zip(position.tolist(), stop.tolist(), strict=True)]
    if len(found) == 1:
        return found[0]
    # A few sorted runs: ``unique`` would take a hundred times as long.
    starts: Ints = np.sort(np.concatenate(found), kind="stable")
    is_new = np.append(True, starts[1:] != starts[:-1])
    return starts if is_new.all() else starts[is_new]


def _alone(raw: Raw, position: int, stop: int) -> Ints:
    """The records of one chain, one after the other; the walk ends at one that is damaged."""
    starts = []
    while position < stop:
        starts.append(position)
        size = raw[position]
        position += 1
        if size >= 0x80:
            if (high := raw[position]) < 0x80:
                size = size & 0x7F | high << 7
                position += 1
            else:
                size, position = _longer(raw, position, size)
        if size & 1:
            break
        position += size >> 1
    return np.array(starts, np.int64)


def _longer(raw: Raw, at: int, size: int) -> tuple[int, int]:
    """A varint of three bytes and more, whose first is ``size``."""
    size &= 0x7F
    shift = 7
    byte = 0x80
    while byte >= 0x80 and shift <= LAST_SHIFT:
        byte = raw[at] if at < len(raw) else 0
        at += 1
        size |= (byte & 0x7F) << shift
        shift += 7
    return size, at


# --- cutting ------------------------------------------------------------------------------------------------------


def _cut(
    data: Bytes, words: NDArray[np.uint16], begin: Ints, end: Ints, count: Ints
) -> tuple[Ints, Ints, Ints] | None:
    """The chains in more and shorter pieces that begin at guessed records, as begin, end and about how many records;
    None where that is not worth while."""
    size = end - begin
    record_bytes = int(size.sum()) // max(1, int(count.sum())) + 1
    piece_bytes = max(int(size.sum()) // CUT_CHAINS, CUT_RECORDS_MIN * record_bytes)
    window = 2 * record_bytes + 16
    pieces = np.maximum(size - window, 0) // piece_bytes
    total = int(pieces.sum())
    if record_bytes > CUT_RECORD_BYTES_MAX or total < TOGETHER_MIN:
        return None
    chain = np.repeat(np.arange(len(begin)), pieces)
    number = np.arange(total) - np.repeat(np.cumsum(pieces) - pieces, pieces) + 1
    near = begin[chain] + number * piece_bytes
    cuts = np.sort(np.append(begin, _guess(data, words, near, window, end[chain])))
    chain = np.searchsorted(begin, cuts, side="right") - 1
    ends = end[chain]
    ends[:-1] = np.where(chain[1:] == chain[:-1], cuts[1:], ends[:-1])
    return cuts, ends, (ends - cuts) // record_bytes + 1


def _guess(data: Bytes, words: NDArray[np.uint16], near: Ints, window: int, end: Ints) -> Ints:
    """The first place behind each of ``near`` that looks like the beginning of a record with another behind it.

    A record begins with its length (almost always one or two bytes), its attributes (always 0), its timestamp and its
    offset; the offset of the next is greater by one, but where a compaction took some.
    """
    windows = np.ndarray((len(data) - window + 1, window), np.uint8, buffer=data.data, strides=(1, 1))[near]
    attributes, before = windows[:, 2:], windows[:, 1:-1]
    row, column = np.nonzero((attributes == 0) & (before - 1 < 0x7F))
    ends_at = near[row] + column + 1
    row = np.concatenate([row, row])
    start = np.concatenate([ends_at - 1, ends_at])
    is_start = _prefix_bytes(data, start) + start == np.concatenate([ends_at, ends_at]) + 1
    next_start = start + _JUMPS[words[start]]
    is_start &= (next_start > start + RECORD_BYTES_MIN) & (next_start + RECORD_BYTES_MIN < end[row])
    row, start, next_start = row[is_start], start[is_start], next_start[is_start]
    next_fields = next_start + _prefix_bytes(data, next_start)
    is_start = data[next_fields] == 0
    is_start &= _offset_delta(data, start + _prefix_bytes(data, start)) + 1 == _offset_delta(data, next_fields)
    row, start = row[is_start], start[is_start]
    order = np.lexsort((start, row))
    _, first = np.unique(row[order], return_index=True)
    found: Ints = start[order][first]
    return found


def _prefix_bytes(data: Bytes, start: Ints) -> Ints:
    """How many bytes say how long a record is; for what has more than two, two."""
    return 1 + (data[start] >= 0x80).astype(np.int64)


def _offset_delta(data: Bytes, fields: Ints) -> Ints:
    _, at = read_varints(data, fields + 1)
    return read_varints(data, at)[0]
