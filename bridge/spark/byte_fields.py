"""Byte fields as Arrow's binary arrays; every byte is copied once.

Compiled code has put them behind each other.  numpy and Arrow have three ways of it:

    of one length    numpy picks them, as items of so many bytes (most keys are of one length)
    long fields      16 bytes a row say where each lies (Arrow's binary view); a cast puts them behind each other
    short ones       one array is laid over the buffer, cut where each begins and ends, and theirs are taken out of it

A cast sums the lengths first and takes exactly the memory that it needs.  ``take`` guesses, grows and shrinks, and
copies what it has each time: with values of 1 KB several times as much as there is.  A view holds up to 12 bytes in
itself, which would have to be gathered: where most are that short, ``take`` is the faster of the two.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bridge.spark import compiled
from bridge.spark.spans import Raw, Spans, values_at
from bridge.spark.varints import Ints

INLINE_BYTES_MAX = 12
"""What an Arrow view holds in itself."""

LONG_BYTES = 32
"""Fields that are longer than this in the mean are cast, others taken: near it both take the same time."""

INT32_MAX = 2**31 - 1

POOL = pa.system_memory_pool()
"""Arrow's own pools give memory back to the system after each batch, and take it again, page by page, for the next:
that is a tenth of the whole cost of a row."""

_BINARY = pa.binary()


def of_gathered(fields: compiled.Gathered, rows: int) -> pa.Array:
    """Fields that lie behind each other already."""
    ends, data, valid, nulls = fields
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(_BINARY, rows, buffers, nulls)


def of_spans(data: Raw, span: Spans) -> pa.Array:
    """Spans that follow each other in ``data``, as a binary array."""
    rows = len(span.start)
    if not rows:
        return pa.array([], _BINARY)
    if compiled.is_there():
        return of_gathered(compiled.gathered(data, span), rows)
    first = int(span.length[0])
    if first > 0 and (span.length == first).all():
        return _picked(data, span.start, first)
    length, is_null = np.maximum(span.length, 0), span.length < 0
    low = int(span.start[0])
    start = span.start - low
    assert start[-1] + length[-1] <= INT32_MAX, "a piece is smaller than that"
    make = _cast if int(length.sum()) > LONG_BYTES * rows else _taken
    return make(pa.py_buffer(data).slice(low), start, length, is_null if is_null.any() else None)


def _picked(data: Raw, start: Ints, length: int) -> pa.Array:
    """All of this length."""
    end = len(start) * length
    assert end <= INT32_MAX, "a piece is smaller than that"
    picked, ends = values_at(data, np.dtype((np.void, length)), start), np.arange(0, end + 1, length, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(start), [None, pa.py_buffer(ends), pa.py_buffer(picked)])


def _cast(data: pa.Buffer, start: Ints, length: Ints, is_null: NDArray[np.bool_] | None) -> pa.Array:
    """By way of views: length, and either the first four bytes, the buffer's number and the offset in it, or the bytes
    themselves, up to ``INLINE_BYTES_MAX``.  A cast does not look at the four bytes, and they are left at 0."""
    views = np.zeros((len(start), 4), np.int32)
    views[:, 0] = length
    views[:, 3] = start
    is_short = length <= INLINE_BYTES_MAX
    if is_short.any():
        inside = np.minimum(start[is_short, None] + np.arange(INLINE_BYTES_MAX), data.size - 1)
        views[is_short, 1:] = np.frombuffer(data, np.uint8)[inside].view(np.int32)
    valid = None if is_null is None else pa.py_buffer(np.packbits(~is_null, bitorder="little"))
    array = pa.Array.from_buffers(pa.binary_view(), len(start), [valid, pa.py_buffer(views), data])
    return pc.cast(array, pa.binary(), memory_pool=POOL)


def _taken(data: pa.Buffer, start: Ints, length: Ints, is_null: NDArray[np.bool_] | None) -> pa.Array:
    """Out of one array that is cut where each begins and ends."""
    cuts = np.empty((len(start), 2), np.int32)
    cuts[:, 0] = start
    cuts[:, 1] = start + length
    over = pa.Array.from_buffers(pa.binary(), cuts.size - 1, [None, pa.py_buffer(cuts), data])
    index = pa.array(np.arange(0, cuts.size, 2, dtype=np.int32), mask=is_null)
    return pc.take(over, index, boundscheck=False, memory_pool=POOL)
