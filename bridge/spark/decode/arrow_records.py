"""Converts records that were read one by one to Arrow batches: used where the compiled decoder is missing.

Each record is an object; the number of objects at a time is limited.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa

from bridge.spark.decode.arrow_schema import (
    ADDED_FIELDS,
    HEADERS,
    POOL,
    SCHEMA,
    ArrowBatchSpec,
    payload_names,
    record_batch,
)
from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.wire.entries import Record

OBJECTS_MAX = 1 << 17
"""The maximum number of records and headers that exist as objects at a time."""

_MADE_BY_RECORD_BATCH = ("topic", "partition", *ADDED_FIELDS)

MS_MAX = (2**63 - 1) // 1000
"""Spark stores microseconds in 64 bits: a timestamp outside becomes the nearest limit."""


def batches_of_records(records: Iterable[Record], target: ArrowBatchSpec) -> Iterator[pa.RecordBatch]:
    """The records as batches.

    An error of ``records`` is raised after the batch with the records before it.
    """
    some: list[Record] = []
    size = objects = 0
    try:
        for record in records:
            some.append(record)
            size += _size(record)
            objects += 1 + len(record.headers)
            if len(some) == target.max_rows or size >= target.max_bytes or objects >= OBJECTS_MAX:
                yield _batch(some, target)
                some, size, objects = [], 0, 0
    except (InvalidMessageException, UnsupportedCodec):
        if some:
            yield _batch(some, target)
        raise
    if some:
        yield _batch(some, target)


def _size(record: Record) -> int:
    size = len(record.key or b"") + len(record.value or b"")
    for name, value in record.headers:
        size += len(name) + len(value or b"")
    return size


def _batch(records: list[Record], target: ArrowBatchSpec) -> pa.RecordBatch:
    names = target.schema.names
    own = payload_names(names).union(names).difference(_MADE_BY_RECORD_BATCH)
    made = {name: _column(name, records) for name in own}
    return record_batch(target, len(records), made)


def _column(name: str, records: list[Record]) -> pa.Array:
    kind = SCHEMA.field(name).type
    if name == "timestamp":
        micros = [max(-MS_MAX, min(record.timestamp, MS_MAX)) * 1000 for record in records]
        return pa.array(micros, pa.int64(), memory_pool=POOL).view(kind)
    if name == "timestampType":
        return pa.array([record.timestamp_type for record in records], kind, memory_pool=POOL)
    if name == "headers":
        # A record without headers has null, as in Spark's own source.
        return pa.array([record.headers or None for record in records], HEADERS, memory_pool=POOL)
    return pa.array([getattr(record, name) for record in records], kind, memory_pool=POOL)
