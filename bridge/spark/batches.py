"""Batches of format 2 as columns: all records of many batches at once.  Pure.

    batches --headers, checksums--> one buffer --``batch_rows``--> what stands in the records --> columns

Nothing is believed: each record must end where the next begins, offsets must increase, the last record must end its
batch.  Where something does not fit together, the record reader of ``zkconsumer.wire`` reads the same batches and has
the last word, be it records or an error.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator

import google_crc32c
import numpy as np
from numpy.typing import NDArray

from bridge.spark import compiled
from bridge.spark.batch_rows import rows_of_batches
from bridge.spark.batch_runs import COVERED_POSITION, HEADER_BYTES, MAGIC, BatchRun, Fact
from bridge.spark.spans import PIECE_BYTES_MAX, Columns, Headers, Limits, Number, Raw, Spans, narrowed, pieces_of
from bridge.spark.varints import Bytes, Ints, read_varints
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

STEPS_MAX = 64
"""A record with more headers is walked alone: a step of numpy costs as much as some ten headers."""

_CODEC_MASK = 0x07
_CONTROL = 0x20


def batch_columns(raw: Raw, run: BatchRun, limits: Limits) -> Iterator[Columns]:
    """Uncompressed batches are read where they lie, compressed ones out of a buffer of what they expanded to."""
    # The last may stand behind the end, where it was only looked for.
    run = run.chosen(slice(int(run.of(Fact.OFFSET).searchsorted(limits.end_offset))))
    is_ours = (run.of(Fact.ATTRIBUTES) & _CONTROL == 0) & (run.of(Fact.COUNT) > 0)
    is_for_us = is_ours & (run.of(Fact.LAST_OFFSET) >= limits.first_offset)
    if not is_for_us.all():
        # Markers of transactions stand between the batches of each: left in, they would part them.
        others = run.chosen(~is_for_us)
        if limits.check_crcs:
            _Checksums(raw, others).verify(slice(None))
        _counts_or_raise(others)
        run = run.chosen(is_for_us)
    checksums = _Checksums(raw, run) if limits.check_crcs else None
    for which in _parts(run):
        if checksums is not None:
            checksums.verify(which)
        part = run.chosen(which)
        if part.table[0, Fact.COUNT] > PIECE_RECORDS_MAX:
            yield from _one_by_one(raw, part, limits)
        elif part.table[0, Fact.ATTRIBUTES] & _CODEC_MASK:
            yield from _packed_columns(raw, part, limits)
        else:
            yield from _columns(raw, raw, part, limits)


def _counts_or_raise(run: BatchRun) -> None:
    count = run.of(Fact.COUNT)
    if (count < 0).any():
        wrong = int((count < 0).argmax())
        raise corrupt(run.entry(wrong), f"a batch of {count[wrong]} records")


class _Checksums:
    """Of all batches, of which some are verified at a time, when they are wanted."""

    def __init__(self, raw: Raw, run: BatchRun) -> None:
        self._run = run
        # A slice of an array is taken as it is; one of a memoryview would have to be copied into bytes.
        self._data = np.frombuffer(raw, np.uint8)
        self._covered = list(map(slice, (run.of(Fact.START) + COVERED_POSITION).tolist(), run.of(Fact.END).tolist()))
        self._said = run.of(Fact.CRC).tolist()

    def verify(self, which: slice) -> None:
        found = list(map(google_crc32c.value, map(self._data.__getitem__, self._covered[which])))
        said = self._said[which]
        if found != said:
            wrong = next(index for index, (one, other) in enumerate(zip(found, said, strict=True)) if one != other)
            raise corrupt(self._run.chosen(which).entry(wrong), "the checksum does not match")


def _parts(run: BatchRun) -> Iterator[slice]:
    """Which are read together: batches that follow each other, compressed or not, with not too many bytes and records;
    one with more stands alone."""
    packed = run.of(Fact.ATTRIBUTES) & _CODEC_MASK != 0
    turns = [*(np.flatnonzero(packed[1:] != packed[:-1]) + 1).tolist(), len(run)]
    records = np.cumsum(run.of(Fact.COUNT)).tolist()
    starts, ends, bytes_max = run.of(Fact.START).tolist(), run.of(Fact.END).tolist(), compiled.piece_bytes_max()
    low = before = 0
    while low < len(run):
        turn = turns[bisect_right(turns, low)]
        near = bisect_right(ends, starts[low] + bytes_max, low)
        few = bisect_right(records, before + PIECE_RECORDS_MAX, low)
        high = max(low + 1, min(turn, near, few))
        yield slice(low, high)
        low, before = high, records[high - 1]


def _packed_columns(raw: Raw, run: BatchRun, limits: Limits) -> Iterator[Columns]:
    """Compressed batches, some megabytes of what they hold at a time."""
    expanded: list[bytes] = []
    low = size = 0
    for index, attributes in enumerate(run.of(Fact.ATTRIBUTES).tolist()):
        more = _decompress(attributes & _CODEC_MASK, raw, run.entry(index), limits)
        if expanded and size + len(more) > PIECE_BYTES_MAX:
            yield from _expanded_columns(raw, expanded, run.chosen(slice(low, index)), limits)
            expanded, low, size = [], index, 0
        expanded.append(more)
        size += len(more)
    yield from _expanded_columns(raw, expanded, run.chosen(slice(low, None)), limits)


def _expanded_columns(raw: Raw, expanded: list[bytes], run: BatchRun, limits: Limits) -> Iterator[Columns]:
    sizes = np.array([len(each) for each in expanded], np.int64)
    yield from _columns(b"".join(expanded), raw, run.expanded(sizes), limits)


def _decompress(codec: int, raw: Raw, entry: Entry, limits: Limits) -> bytes:
    payload = memoryview(raw)[entry.position + HEADER_BYTES : entry.end]
    try:
        return compression.decompress(codec, payload, MAGIC, limits.decompressed_bytes_max)
    except (InvalidMessageException, UnsupportedCodec) as error:
        raise bad_entry(type(error), entry, str(error)) from error


def _columns(buffer: Raw, raw: Raw, run: BatchRun, limits: Limits) -> Iterator[Columns]:
    """``buffer``: in which the records of the batches lie."""
    fast = _columns_at_once(buffer, run, limits)
    if fast is None:
        yield from _one_by_one(raw, run, limits)
    else:
        yield fast


def _one_by_one(raw: Raw, run: BatchRun, limits: Limits) -> Iterator[Columns]:
    """By the record reader; the checksums were verified."""
    tally, most = Tally(), limits.decompressed_bytes_max
    entries = map(run.entry, range(len(run)))
    read = (record for each in entries for record in read_batch(raw, each, limits.first_offset, False, most, tally))
    yield from pieces_of(read, limits)


def _columns_at_once(buffer: Raw, run: BatchRun, limits: Limits) -> Columns | None:
    """All records of these batches, or None when something does not fit together."""
    numbers = rows_of_batches(buffer, run)
    if numbers is None:
        return None
    headers = None
    if limits.with_headers:
        start, count, end = numbers[Number.HEADERS_START], numbers[Number.HEADER_COUNT], numbers[Number.END]
        headers = _headers(buffer, start, end, count)
        if headers is None:
            return None
    return narrowed(Columns(buffer, numbers, headers), limits)


def _headers(raw: Raw, at: Ints, ends: Ints, count: Ints) -> Headers | None:
    """The headers of all records, header after header of those that have so many."""
    if int(count.max()) > HEADERS_MAX:
        return None
    total = int(count.sum())
    if total > min(PIECE_HEADERS_MAX, len(raw)):
        return None
    numbers = compiled.headers(raw, at, ends, count, total) if compiled.is_there() else _in_numpy(raw, at, ends, count)
    if numbers is None:
        return None
    return Headers(count, Spans(numbers[0], numbers[1]), Spans(numbers[2], numbers[3]))


def _in_numpy(raw: Raw, at: Ints, ends: Ints, count: Ints) -> NDArray[np.int64] | None:
    """As ``compiled.headers``: all records go on by one header in a step, and those with more than ``STEPS_MAX``
    headers are read from the table of all places in them, since so many steps would cost more."""
    data = np.frombuffer(raw, np.uint8)
    index = np.cumsum(count) - count
    numbers = np.zeros((4, int(count.sum())), np.int64)
    position = at.copy()
    having = np.flatnonzero((count > 0) & (count <= STEPS_MAX))
    step = 0
    while having.size:
        *of_each, position[having] = _header_at(data, position[having])
        numbers[:, index[having] + step] = of_each
        step += 1
        having = having[count[having] > step]
    for row in np.flatnonzero(count > STEPS_MAX).tolist():
        starts = _walk(data, int(at[row]), int(ends[row]), int(count[row]))
        if starts is None:
            return None
        *of_each, _ = _header_at(data, starts)
        numbers[:, index[row] : index[row] + count[row]] = of_each
        position[row] = ends[row]
    if (position != ends).any() or (numbers[1] < 0).any() or (numbers[1::2] > len(data)).any():
        return None
    return numbers


def _header_at(data: Bytes, at: Ints) -> tuple[Ints, Ints, Ints, Ints, Ints]:
    """Start and length of name and value of the headers at these places, and what follows them."""
    name_length, name_start = read_varints(data, at)
    value_length, value_start = read_varints(data, name_start + np.maximum(name_length, 0))
    return name_start, name_length, value_start, value_length, value_start + np.maximum(value_length, 0)


def _walk(data: Bytes, first: int, behind: int, count: int) -> Ints | None:
    """Where the headers between two places begin; None unless there are exactly so many.

    What follows a header that would begin at each of the places is looked up for all of them at once.
    """
    follows = (_header_at(data, np.arange(first, behind))[-1] - first).tolist()
    size, position, found = behind - first, 0, []
    for _ in range(count):
        if position >= size:
            return None
        found.append(position)
        position = follows[position]
    return np.array(found, np.int64) + first if position == size else None
