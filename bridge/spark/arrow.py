"""Columns as Arrow record batches with the schema of Spark's ``format("kafka")``; narrowed to what was asked for.

One Arrow array is laid over the whole buffer, whose cuts are the beginnings and ends of all keys and values; the
columns are taken out of it, which copies every byte once and makes no object a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from bridge.spark.spans import Columns, Headers, Raw, Spans, columns_between
from bridge.spark.varints import Ints

BATCH_ROWS = 16_384
"""Rows of one Arrow batch; more gains nothing, fewer cost a round through the socket each."""

BATCH_BYTES = 2 * 1024 * 1024
"""About how much stands in one Arrow batch at most.  The worker and the JVM each hold it once; more of it costs memory
and gains nothing."""

CONSTANTS_KEPT = 64
"""Columns of a topic's name or a partition's number that are kept for the next batch."""

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


def record_batches(
    columns: Columns, topic: str, partition: int, schema: pa.Schema, rows: int = BATCH_ROWS
) -> Iterator[pa.RecordBatch]:
    """The columns as batches with exactly the fields of ``schema``, a part of ``SCHEMA``.

    A batch has at most ``rows`` rows, whose values begin within ``BATCH_BYTES`` bytes: it is larger by one row at most.
    """
    # Values lie in the order of the records, each behind its key.
    starts = columns.value.start
    low = 0
    while low < len(columns):
        behind = int(starts.searchsorted(starts[low] + BATCH_BYTES))
        high = min(low + rows, max(low + 1, behind), len(columns))
        yield _record_batch(columns_between(columns, low, high), topic, partition, schema)
        low = high


def _record_batch(columns: Columns, topic: str, partition: int, schema: pa.Schema) -> pa.RecordBatch:
    names = schema.names
    made = dict(_byte_columns(columns, [name for name in ("key", "value") if name in names]))
    rows = len(columns)
    for name in names:
        if name == "topic":
            made[name] = _repeated(topic, rows)
        elif name == "partition":
            made[name] = _repeated(partition, rows)
        elif name == "offset":
            made[name] = pa.array(columns.offset)
        elif name == "timestamp":
            made[name] = pa.array(_micros(columns.timestamp)).view(pa.timestamp("us", "UTC"))
        elif name == "timestampType":
            made[name] = pa.array(columns.timestamp_type)
        elif name == "headers":
            assert columns.headers is not None, "asked for when the columns were read"
            made[name] = _headers(columns.data, columns.headers)
    return pa.RecordBatch.from_arrays([made[name] for name in names], schema=schema)


def _repeated(value: str | int, rows: int) -> pa.Array:
    """A column with one value; batch after batch shows the same memory."""
    return _constant(value, max(rows, BATCH_ROWS)).slice(0, rows)


@lru_cache(maxsize=CONSTANTS_KEPT)
def _constant(value: str | int, rows: int) -> pa.Array:
    kind = pa.string() if isinstance(value, str) else pa.int32()
    return pa.repeat(pa.scalar(value, kind), rows, memory_pool=POOL)


def _micros(ms: Ints) -> Ints:
    if len(ms) and int(ms.min()) >= -MS_MAX and int(ms.max()) <= MS_MAX:
        return ms * 1000
    return np.clip(ms, -MS_MAX, MS_MAX) * 1000


def _byte_columns(columns: Columns, names: list[str]) -> Iterator[tuple[str, pa.Array]]:
    spans = [columns.key if name == "key" else columns.value for name in names]
    return zip(names, _taken(columns.data, spans), strict=True)


def _taken(data: Raw, spans: list[Spans]) -> list[pa.Array]:
    """Spans that follow each other in ``data`` as binary arrays: first all that are first, and so on."""
    if not spans:
        return []
    rows, kinds = len(spans[0].start), len(spans)
    if not rows:
        return [pa.array([], pa.binary()) for _ in spans]
    cuts = np.empty((rows, 2 * kinds), np.int64)
    for kind, span in enumerate(spans):
        cuts[:, 2 * kind] = span.start
        cuts[:, 2 * kind + 1] = span.start + np.maximum(span.length, 0)
    flat = cuts.reshape(-1)
    low, high = int(flat[0]), int(flat[-1])
    assert high - low <= INT32_MAX, "a piece is smaller than that"
    offsets = pa.py_buffer((flat - low).astype(np.int32))
    over = pa.Array.from_buffers(pa.binary(), len(flat) - 1, [None, offsets, pa.py_buffer(data).slice(low)])
    first = np.arange(0, len(flat), 2 * kinds, dtype=np.int32)
    return [
        pc.take(over, _indices(first + 2 * kind, span), boundscheck=False, memory_pool=POOL)
        for kind, span in enumerate(spans)
    ]


def _indices(index: NDArray[np.int32], span: Spans) -> pa.Array:
    is_null = span.length < 0
    return pa.array(index, mask=is_null) if is_null.any() else pa.array(index)


def _headers(data: Raw, headers: Headers) -> pa.Array:
    """A record without headers has null, as in Spark's own source."""
    if not len(headers.name.start):
        return pa.nulls(len(headers.count), HEADERS)
    names, values = _taken(data, [headers.name, headers.value])
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
