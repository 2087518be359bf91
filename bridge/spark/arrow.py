"""Columns as Arrow record batches with the schema of Spark's ``format("kafka")``; narrowed to what was asked for.

No object is made for a record, and every byte is copied once: by ``compiled.gathered`` where that is there.  numpy and
Arrow have three ways of it:

    of one length    numpy picks them, as items of so many bytes (most keys are of one length)
    long fields      16 bytes a row say where each lies (Arrow's binary view); a cast puts them behind each other
    short ones       one array is laid over the buffer, cut where each begins and ends, and theirs are taken out of it

A cast sums the lengths first and takes exactly the memory that it needs.  ``take`` guesses, grows and shrinks, and
copies what it has each time: with values of 1 KB several times as much as there is.  A view holds up to 12 bytes in
itself, which would have to be gathered: where most are that short, ``take`` is the faster of the two.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bridge.spark import compiled
from bridge.spark.spans import NEAR_BYTES, Columns, Headers, Raw, Spans, columns_between, values_at
from bridge.spark.varints import Ints

BATCH_ROWS = 16_384
"""Rows of one Arrow batch; more gains nothing, fewer cost a round through the socket each."""

BATCH_BYTES = NEAR_BYTES
"""About how much stands in one Arrow batch at most.  With its other columns a batch stays below 1 MiB: the JVM's
allocator gives powers of two."""

CONSTANTS_KEPT = 64
"""Columns of a topic's name or a partition's number that are kept for the next batch."""

INLINE_BYTES_MAX = 12
"""What an Arrow view holds in itself."""

LONG_BYTES = 32
"""Fields that are longer than this in the mean are cast, others taken: near it both take the same time."""

INT32_MAX = 2**31 - 1
MS_MAX = (2**63 - 1) // 1000
"""Spark keeps microseconds in 64 bits: a timestamp beyond is put at the end of them."""

POOL = pa.system_memory_pool()
"""Arrow's own pools give memory back to the system after each batch, and take it again, page by page, for the next:
that is a tenth of the whole cost of a row."""

HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))

SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
        ("headers", HEADERS),
    ]
)
"""The schema of Spark's Kafka source (2.4 and later; headers from 3.0, with ``includeHeaders``)."""

_BINARY, _OFFSET, _TIMESTAMP, _TIMESTAMP_TYPE = (
    SCHEMA.field(name).type for name in ("value", "offset", "timestamp", "timestampType")
)


def record_batches(
    columns: Columns, topic: str, partition: int, schema: pa.Schema, rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The columns as batches with exactly the fields of ``schema``, a part of ``SCHEMA``.

    A batch has at most ``rows`` rows, whose values begin within ``BATCH_BYTES`` bytes: it is larger by one row at most.
    """
    # Values lie in the order of the records, each behind its key.
    starts = columns.value.start
    low, total = 0, len(starts)
    while low < total:
        behind = int(starts.searchsorted(starts[low] + BATCH_BYTES))
        high = min(low + rows, max(low + 1, behind), total)
        part = columns if high - low == total else columns_between(columns, low, high)
        yield _record_batch(part, topic, partition, schema)
        low = high


def _record_batch(columns: Columns, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    made: list[pa.Array] = []
    rows = len(columns)
    for name in schema.names:
        if name == "key":
            made.append(_binary(columns.data, columns.key))
        elif name == "value":
            made.append(_binary(columns.data, columns.value))
        elif name == "topic":
            made.append(_repeated(topic, rows))
        elif name == "partition":
            made.append(_repeated(partition, rows))
        elif name == "offset":
            made.append(_shown(columns.offset, rows, _OFFSET))
        elif name == "timestamp":
            made.append(_shown(_micros(columns.timestamp), rows, _TIMESTAMP))
        elif name == "timestampType":
            made.append(_shown(columns.timestamp_type, rows, _TIMESTAMP_TYPE))
        elif name == "headers":
            assert columns.headers is not None, "asked for when the columns were read"
            made.append(_headers(columns.data, columns.headers))
    return pa.RecordBatch.from_arrays(made, schema=schema)


def _repeated(value: str | int, rows: int) -> pa.Array:
    """A column with one value; batch after batch shows the same memory."""
    return _constant(value, max(rows, BATCH_ROWS)).slice(0, rows)


@lru_cache(maxsize=CONSTANTS_KEPT)
def _constant(value: str | int, rows: int) -> pa.Array:
    kind = pa.string() if isinstance(value, str) else pa.int32()
    return pa.repeat(pa.scalar(value, kind), rows, memory_pool=POOL)


def _shown(numbers: bytes | NDArray[Any], rows: int, kind: pa.DataType) -> pa.Array:
    """Numbers that are taken where they lie."""
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers)], 0)


def _micros(ms: Ints) -> bytes | Ints:
    if compiled.is_there():
        return compiled.micros(ms)
    if len(ms) and int(ms.min()) >= -MS_MAX and int(ms.max()) <= MS_MAX:
        return ms * 1000
    return np.clip(ms, -MS_MAX, MS_MAX) * 1000


def _binary(data: Raw, span: Spans) -> pa.Array:
    """Spans that follow each other in ``data``, as a binary array."""
    rows = len(span.start)
    if not rows:
        return pa.array([], pa.binary())
    if compiled.is_there():
        ends, fields, valid, nulls = compiled.gathered(data, span)
        buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(fields)]
        return pa.Array.from_buffers(_BINARY, rows, buffers, nulls)
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


def _headers(data: Raw, headers: Headers) -> pa.Array:
    """A record without headers has null, as in Spark's own source."""
    if not len(headers.name.start):
        return pa.nulls(len(headers.count), HEADERS)
    names, values = _binary(data, headers.name), _binary(data, headers.value)
    struct = pa.StructArray.from_arrays([_texts(names), values], fields=list(HEADERS.value_type))
    ends: Ints = np.cumsum(headers.count)
    offsets = np.concatenate([[0], ends]).astype(np.int32)
    return pa.ListArray.from_arrays(pa.array(offsets), struct, type=HEADERS, mask=pa.array(headers.count == 0))


def _texts(names: pa.Array) -> pa.Array:
    """UTF-8, with what is none replaced, as the Java client reads it."""
    try:
        return pc.cast(names, pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if name is None else name.decode("utf-8", "replace") for name in names.to_pylist()])
