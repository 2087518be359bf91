"""Counts what a sink has, to compare it with the lineage.

parquet     the footer of each file that a manifest names: it exists, is complete, and has that number of rows
postgres    the number of rows of the table: its rows do not contain their batch, so only the sum is compared
"""

from __future__ import annotations

from typing import Any

from bridge.spark.pipeline.audit.audit_facts import StoredRows
from bridge.spark.pipeline.sinks.folder_store import DamagedFileError
from bridge.spark.pipeline.sinks.parquet_sink import ParquetSink
from bridge.spark.pipeline.sinks.postgres_sink import PostgresSink
from bridge.spark.pipeline.sinks.sink import Sink
from zkconsumer.base.clock import Clock
from zkconsumer.errors import UnavailableError

MISSING_SHOWN_MAX = 20


def count_stored_rows(sink: Sink[Any], rows: int | None, deadline_ms: int, clock: Clock) -> StoredRows:
    """What the sink has.  ``rows``: the sum of its lineages; None: rows were replaced, so the sum is not known."""
    try:
        match sink:
            case ParquetSink():
                return _rows_of_files(sink, deadline_ms, clock)
            case PostgresSink():
                return _rows_of_table(sink, rows, max(1, deadline_ms - clock.now_ms()))
    except UnavailableError as error:
        return StoredRows(problem=str(error))
    return StoredRows(remark=f"the rows of {type(sink).__name__} are not counted; only its lineage is compared")


def _rows_of_files(sink: ParquetSink, deadline_ms: int, clock: Clock) -> StoredRows:
    counted = missing_rows = files = 0
    missing: list[str] = []
    for manifest in sink.manifests():
        for file in manifest.files:
            if clock.now_ms() >= deadline_ms:
                text = f"the time limit was reached after {files} files (--time-limit)"
                return StoredRows(None, tuple(missing), missing_rows, problem=text)
            files += 1
            why = ""
            found = 0
            try:
                found = sink.footer_rows(file.path)
            except FileNotFoundError:
                why = "the file does not exist"
            except DamagedFileError:
                why = "the file is no complete parquet file"
            counted += found
            if found < file.rows:
                missing_rows += file.rows - found
                if len(missing) < MISSING_SHOWN_MAX:
                    why = why or f"the file has {found} rows"
                    missing.append(f"{file.path} of {manifest.lineage.name} must have {file.rows} rows, and {why}")
    return StoredRows(counted, tuple(missing), missing_rows)


def _rows_of_table(sink: PostgresSink, rows: int | None, time_limit_ms: int) -> StoredRows:
    found = sink.count_rows(time_limit_ms)
    if found is None:
        if rows != 0:
            return StoredRows(problem="the table does not exist, or the server needs longer than --time-limit")
        return StoredRows(0)
    if rows is None:
        return StoredRows(
            found, remark="rows of the table were replaced, so their number is not compared with the batches"
        )
    remark = "the rows of a table of PostgreSQL do not contain their batch, so only their number was compared"
    if found < rows:
        text = f"the table has {found} rows, and its batches have {rows}: rows were deleted, or moved elsewhere"
        return StoredRows(found, (text,), rows - found, remark)
    if found > rows:
        remark += f"; {found - rows} rows are of other programs"
    return StoredRows(found, remark=remark)
