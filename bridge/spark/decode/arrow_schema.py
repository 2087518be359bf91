"""The schema of Spark's ``format("kafka")``, and the common parts of both ways to build its Arrow batches.

record set --wire.record_tables--> tables --> arrow_tables  -.
          '--wire.records--------> records -> arrow_records -'-> record_batch    (``arrow_decoder`` chooses)
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

from bridge.spark.arrow_scalars import integer_scalar, text_scalar
from bridge.spark.decode.corrupt_ranges import CorruptRange

BATCH_ROWS = 16_384
"""Rows of one Arrow batch; more have no advantage, fewer cost one transfer through the socket for each batch."""

BATCH_BYTES = 1800 * 1024
"""The approximate maximum of bytes of one Arrow batch.  They stay in a core's cache from their checksum to the copy for
Arrow.  With its other columns a batch stays below 2 MiB: the JVM's allocator rounds up to powers of two.  Half of it
costs a tenth more in Python, since each batch costs some hundred calls; twice as much leaves the cache."""

CONSTANT_COLUMNS_CACHED = 64
"""The maximum number of constant columns (a topic's name, a partition's number) that are kept for the next batch."""

POOL = pa.system_memory_pool()
"""Arrow's own pools return memory to the system after each batch, and request it again, page by page, for the next:
that is a tenth of the total cost of a row."""

MALLOC_KEEP_BYTES = 8 * 1024 * 1024


def _keep_freed_memory() -> None:
    """Let glibc keep the memory of a batch for the next batch.

    It returns blocks of 128 KB and more to the system when they are freed, until a larger one was freed: after that
    it keeps blocks up to that size (``mallopt(3)``, M_MMAP_THRESHOLD).  Otherwise each page of each batch is requested
    from the system again, which is a quarter of the total cost of a row of 100 bytes.  This block is not written, so it
    needs no memory.
    """
    pa.allocate_buffer(MALLOC_KEEP_BYTES, memory_pool=POOL)


_keep_freed_memory()

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


CORRUPT = "corrupt"
"""The column of ``onCorruptRecord=deadLetter``: with a value the row is no record but offsets that cannot be read."""

CORRUPT_FIELD = pa.field(CORRUPT, pa.struct([("end", pa.int64()), ("error", pa.string())]))

PAYLOAD_OF = {"keyIsUtf8": "key", "valueIsUtf8": "value"}
"""The columns of ``includeIsUtf8`` -> the column whose bytes they are about."""

ADDED_FIELDS = {CORRUPT: CORRUPT_FIELD} | {name: pa.field(name, pa.bool_()) for name in PAYLOAD_OF}
"""The fields that Spark's Kafka source does not have."""


def schema_of(columns: Sequence[str]) -> pa.Schema:
    """The fields with these names, in this order.  ``KeyError`` for one that does not exist."""
    return pa.schema([ADDED_FIELDS[name] if name in ADDED_FIELDS else SCHEMA.field(name) for name in columns])


def payload_names(names: Collection[str]) -> set[str]:
    """Those of ``key`` and ``value`` that are needed for columns with these names."""
    return {"key", "value"}.intersection(names) | {PAYLOAD_OF[name] for name in PAYLOAD_OF if name in names}


class ArrowBatchSpec(NamedTuple):
    """The batches of a partition's records: with exactly the fields of ``schema``, made by ``schema_of``.

    ``max_rows``: of one batch.  ``max_bytes``: the approximate size of one batch; it is larger by one row at most.
    """

    topic: str
    partition: int
    schema: pa.Schema
    max_rows: int = BATCH_ROWS
    max_bytes: int = BATCH_BYTES


def record_batch(target: ArrowBatchSpec, rows: int, made: dict[str, pa.Array]) -> pa.RecordBatch:
    """The batch of these columns, of those that have one value in all rows, and of those that follow from others."""
    names = target.schema.names
    if "topic" in names:
        made["topic"] = _repeated(target.topic, rows, target.max_rows)
    if "partition" in names:
        made["partition"] = _repeated(target.partition, rows, target.max_rows)
    if CORRUPT in names:
        made[CORRUPT] = _no_damage(max(rows, target.max_rows)).slice(0, rows)
    for name, payload in PAYLOAD_OF.items():
        if name in names:
            made[name] = _is_utf8(made[payload], target.max_rows)
    return pa.RecordBatch.from_arrays([made[name] for name in names], schema=target.schema)


def corrupt_batch(target: ArrowBatchSpec, passed_over: CorruptRange) -> pa.RecordBatch:
    """One row for offsets that cannot be read: the first of them, the end, the reason, and the bytes as value."""
    row: dict[str, object] = {
        "value": passed_over.data, "topic": target.topic, "partition": target.partition, "offset": passed_over.first,
        CORRUPT: {"end": passed_over.end, "error": passed_over.reason},
    }  # fmt: skip
    columns = [pa.array([row.get(field.name)], field.type) for field in target.schema]
    return pa.RecordBatch.from_arrays(columns, schema=target.schema)


def _repeated(value: str | int, rows: int, max_rows: int) -> pa.Array:
    """A column with one value; all batches use the same memory."""
    return _constant(value, max(rows, max_rows)).slice(0, rows)


def _is_utf8(payloads: pa.Array, max_rows: int) -> pa.Array:
    """For each of the payloads, in bytes, whether it is UTF-8; true for null."""
    rows = len(payloads)
    try:
        payloads.cast(pa.string())  # reads the bytes and copies nothing
    except pa.ArrowInvalid:
        return pa.array([_is_text(payload) for payload in payloads.to_pylist()], pa.bool_(), memory_pool=POOL)
    return _all_true(max(rows, max_rows)).slice(0, rows)


def _is_text(payload: bytes | None) -> bool:
    try:
        str(payload or b"", "utf-8")
    except UnicodeDecodeError:
        return False
    return True


@lru_cache(maxsize=CONSTANT_COLUMNS_CACHED)
def _all_true(rows: int) -> pa.Array:
    return pa.Array.from_buffers(pa.bool_(), rows, [None, pa.py_buffer(b"\xff" * (rows // 8 + 1))], 0)


@lru_cache(maxsize=CONSTANT_COLUMNS_CACHED)
def _no_damage(rows: int) -> pa.Array:
    return pa.nulls(rows, CORRUPT_FIELD.type, memory_pool=POOL)


@lru_cache(maxsize=CONSTANT_COLUMNS_CACHED)
def _constant(value: str | int, rows: int) -> pa.Array:
    one = text_scalar(value, pa.string()) if isinstance(value, str) else integer_scalar(value, pa.int32())
    return pa.repeat(one, rows, memory_pool=POOL)
