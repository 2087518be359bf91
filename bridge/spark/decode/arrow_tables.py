"""Converts tables of the compiled decoder to Arrow batches.

No object is created for a record.  Each selected field is copied once, after the one before it, into memory that Arrow
uses without another copy.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import ModuleType
from typing import TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from bridge.spark.decode.arrow_schema import HEADERS, SCHEMA, ArrowBatchSpec, payload_names, record_batch
from zkconsumer.wire.record_tables import RecordTable, TableData

_Gathered: TypeAlias = tuple[bytes, bytes, bytes | None, int]
"""Consecutive fields: the end of each (after a 0), their bytes, a bit for each that is not null (None: none is
null), and the number of nulls."""

_BINARY = pa.binary()
_OFFSET, _TIMESTAMP, _TIMESTAMP_TYPE = (SCHEMA.field(name).type for name in ("offset", "timestamp", "timestampType"))
_NUMBERS = frozenset(("offset", "timestamp", "timestampType"))


def batches_of_table(decoder: ModuleType, table: RecordTable, target: ArrowBatchSpec) -> Iterator[pa.RecordBatch]:
    """The table as batches; the values of each start within ``target.max_bytes`` bytes."""
    low = 0
    while low < table.size:
        high = min(low + target.max_rows, decoder.cut(table.rows, low, table.size, target.max_bytes))
        yield _batch(decoder, table, low, high, target)
        low = high


def _batch(decoder: ModuleType, table: RecordTable, low: int, high: int, target: ArrowBatchSpec) -> pa.RecordBatch:
    data, rows, _ = table
    names, count = target.schema.names, high - low
    made: dict[str, pa.Array] = {}
    if not _NUMBERS.isdisjoint(names):
        offset, micros, kind = decoder.numbers(rows, low, high, True)
        made["offset"] = _fixed(_OFFSET, count, offset)
        made["timestamp"] = _fixed(_TIMESTAMP, count, micros)
        made["timestampType"] = _fixed(_TIMESTAMP_TYPE, count, kind)
    for name in payload_names(names):
        made[name] = _binary(decoder.fields(data, rows, low, high, name == "key"), count)
    if "headers" in names:
        made["headers"] = _headers(decoder, data, rows, low, high)
    return record_batch(target, count, made)


def _fixed(kind: pa.DataType, count: int, numbers: bytes) -> pa.Array:
    return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(numbers)], 0)


def _binary(fields: _Gathered, count: int) -> pa.Array:
    ends, data, valid, nulls = fields
    buffers = [None if valid is None else pa.py_buffer(valid), pa.py_buffer(ends), pa.py_buffer(data)]
    return pa.Array.from_buffers(_BINARY, count, buffers, nulls)


def _headers(decoder: ModuleType, data: TableData, rows: TableData, low: int, high: int) -> pa.Array:
    """A record without headers has null, as in Spark's own source."""
    ends, having, without, number, names, values = decoder.headers(data, rows, low, high)
    count = high - low
    if without == count:
        return pa.nulls(count, HEADERS)
    struct = pa.StructArray.from_arrays(
        [_texts(_binary(names, number)), _binary(values, number)], fields=list(HEADERS.value_type)
    )
    return pa.Array.from_buffers(HEADERS, count, [pa.py_buffer(having), pa.py_buffer(ends)], without, children=[struct])


def _texts(names: pa.Array) -> pa.Array:
    """UTF-8, with invalid bytes replaced, as the Java client reads it."""
    try:
        return pc.cast(names, pa.string())
    except pa.ArrowInvalid:
        return pa.array([None if name is None else name.decode("utf-8", "replace") for name in names.to_pylist()])
