"""Columns as Arrow record batches with the schema of Spark's ``format("kafka")``; narrowed to what was asked for.

No object is made for a record, and every byte is copied once: by ``compiled.buffers`` where that is there, otherwise
by numpy and Arrow (``byte_fields``).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.spark import compiled
from bridge.spark.byte_fields import POOL, of_gathered, of_spans
from bridge.spark.spans import NEAR_BYTES, Columns, Headers, Number, Raw, columns_between
from bridge.spark.varints import Ints

BATCH_ROWS = 16_384
"""Rows of one Arrow batch; more gains nothing, fewer cost a round through the socket each."""

BATCH_BYTES = NEAR_BYTES
"""About how much stands in one Arrow batch at most.  With its other columns a batch stays below 1 MiB: the JVM's
allocator gives powers of two."""

CONSTANTS_KEPT = 64
"""Columns of a topic's name or a partition's number that are kept for the next batch."""

MS_MAX = (2**63 - 1) // 1000
"""Spark keeps microseconds in 64 bits: a timestamp beyond is put at the end of them."""

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

_OFFSET, _TIMESTAMP, _TIMESTAMP_TYPE = (SCHEMA.field(name).type for name in ("offset", "timestamp", "timestampType"))


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
    names, rows = schema.names, len(columns)
    made = (_compiled if compiled.is_there() else _in_numpy)(columns, names)
    made["topic"], made["partition"] = _repeated(topic, rows), _repeated(partition, rows)
    if "headers" in names:
        assert columns.headers is not None, "asked for when the columns were read"
        made["headers"] = _headers(columns.data, columns.headers)
    return pa.RecordBatch.from_arrays([made[name] for name in names], schema=schema)


def _compiled(columns: Columns, names: list[str]) -> dict[str, pa.Array]:
    rows = len(columns)
    offset, micros, kind, key, value = compiled.buffers(columns, "key" in names, "value" in names)
    made = {
        "offset": _numbers(_OFFSET, rows, offset),
        "timestamp": _numbers(_TIMESTAMP, rows, micros),
        "timestampType": _numbers(_TIMESTAMP_TYPE, rows, kind),
    }
    if key is not None:
        made["key"] = of_gathered(key, rows)
    if value is not None:
        made["value"] = of_gathered(value, rows)
    return made


def _numbers(kind: pa.DataType, rows: int, numbers: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, rows, [None, pa.py_buffer(numbers)], 0)


def _in_numpy(columns: Columns, names: list[str]) -> dict[str, pa.Array]:
    made = {
        "offset": pa.array(columns.offset),
        "timestamp": pa.array(_micros(columns.of(Number.TIMESTAMP))).view(_TIMESTAMP),
        "timestampType": pa.array(columns.of(Number.TIMESTAMP_TYPE).astype(np.int32)),
    }
    if "key" in names:
        made["key"] = of_spans(columns.data, columns.key)
    if "value" in names:
        made["value"] = of_spans(columns.data, columns.value)
    return made


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


def _headers(data: Raw, headers: Headers) -> pa.Array:
    """A record without headers has null, as in Spark's own source."""
    if not len(headers.name.start):
        return pa.nulls(len(headers.count), HEADERS)
    names, values = of_spans(data, headers.name), of_spans(data, headers.value)
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
