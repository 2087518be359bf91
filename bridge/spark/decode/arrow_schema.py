"""The schema of Spark's ``format("kafka")``, and what Arrow batches of it have in common however they are made.

record set --wire.tables--> tables ---> arrow_tables  -.
          '--wire.records--> records -> arrow_records -'-> record_batch    (``decoder`` chooses)
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import pyarrow as pa

BATCH_ROWS = 16_384
"""Rows of one Arrow batch; more gains nothing, fewer cost a round through the socket each."""

BATCH_BYTES = 900 * 1024
"""About how many bytes one Arrow batch has at most.  They stay in a core's cache from their checksum to the copy that
Arrow gets.  With its other columns a batch stays below 1 MiB: the JVM's allocator gives powers of two."""

CONSTANT_COLUMNS_CACHED = 64
"""Columns of a topic's name or a partition's number that are kept for the next batch."""

POOL = pa.system_memory_pool()
"""Arrow's own pools give memory back to the system after each batch, and take it again, page by page, for the next:
that is a tenth of the whole cost of a row."""

MALLOC_KEEP_BYTES = 8 * 1024 * 1024


def _keep_freed_memory() -> None:
    """Let glibc keep what a batch took for the next batch.

    It gives blocks of 128 KB and more back to the system when they are freed, until a larger one was freed: after that
    it keeps blocks up to that size (``mallopt(3)``, M_MMAP_THRESHOLD).  Else each page of each batch is taken from the
    system again, which is a quarter of the whole cost of a row of 100 bytes.  This block is not written, so it costs
    nothing.
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


class ArrowBatchSpec(NamedTuple):
    """What the records of a partition become: batches with exactly the fields of ``schema``, a part of ``SCHEMA``.

    ``max_rows``: of one batch.  ``max_bytes``: about how many bytes one batch has; it is larger by one row at most.
    """

    topic: str
    partition: int
    schema: pa.Schema
    max_rows: int = BATCH_ROWS
    max_bytes: int = BATCH_BYTES


def record_batch(target: ArrowBatchSpec, rows: int, made: dict[str, pa.Array]) -> pa.RecordBatch:
    """The batch of these columns, to which those are added that have one value in all rows."""
    names = target.schema.names
    if "topic" in names:
        made["topic"] = _repeated(target.topic, rows, target.max_rows)
    if "partition" in names:
        made["partition"] = _repeated(target.partition, rows, target.max_rows)
    return pa.RecordBatch.from_arrays([made[name] for name in names], schema=target.schema)


def _repeated(value: str | int, rows: int, max_rows: int) -> pa.Array:
    """A column with one value; batch after batch shows the same memory."""
    return _constant(value, max(rows, max_rows)).slice(0, rows)


@lru_cache(maxsize=CONSTANT_COLUMNS_CACHED)
def _constant(value: str | int, rows: int) -> pa.Array:
    kind = pa.string() if isinstance(value, str) else pa.int32()
    return pa.repeat(pa.scalar(value, kind), rows, memory_pool=POOL)
