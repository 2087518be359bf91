"""Counts what a sink has, to compare it with the lineage.

parquet     the footer of each file that a manifest names: it exists, is complete, and has that number of rows
delta       the footer of each live file, as parquet by the number of rows in the log; and the number of rows of the
            table: OPTIMIZE has moved rows to files of no batch, so only the sum is compared with the batches
postgres    the number of rows of the table: its rows do not contain their batch, so only the sum is compared
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from bridge.spark.pipeline.audit.audit_facts import StoredRows
from bridge.spark.pipeline.sinks.delta_commits import is_outside
from bridge.spark.pipeline.sinks.folder_store import DamagedFileError
from bridge.spark.pipeline.sinks.parquet_sink import ParquetSink
from bridge.spark.pipeline.sinks.postgres_sink import PostgresSink
from bridge.spark.pipeline.sinks.sink_choice import StoredBatches
from bridge.spark.pipeline.sinks.stored_delta_table import StoredDeltaTable
from zkconsumer.base.clock import Clock
from zkconsumer.errors import PreconditionFailed, UnavailableError

MISSING_SHOWN_MAX = 20

SNAPSHOTS_MAX = 4
"""How often the log of a Delta table is read if files are missing: with a new version they are counted again."""


def count_stored_rows(sink: StoredBatches, rows: int | None, deadline_ms: int, clock: Clock) -> StoredRows:
    """What the sink has.  ``rows``: the sum of its lineages; None: rows were replaced, so the sum is not known."""
    try:
        match sink:
            case ParquetSink():
                return _rows_of_files(sink, deadline_ms, clock)
            case StoredDeltaTable():
                return _rows_of_delta(sink, rows, deadline_ms, clock)
            case PostgresSink():
                return _rows_of_table(sink, rows, max(1, deadline_ms - clock.now_ms()))
    except UnavailableError as error:
        return StoredRows(problem=str(error))
    return StoredRows(remark=f"the rows of {type(sink).__name__} are not counted; only its lineage is compared")


# --- files --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ExpectedFile:
    """``rows``: what the file must have; None: not known.  ``deleted``: rows of it that do not count.  ``owner``: for
    the finding."""

    path: str
    rows: int | None
    deleted: int
    owner: str


def _rows_of_files(sink: ParquetSink, deadline_ms: int, clock: Clock) -> StoredRows:
    files = (
        ExpectedFile(file.path, file.rows, 0, manifest.lineage.name)
        for manifest in sink.manifests()
        for file in manifest.files
    )
    return _count_files(files, sink.footer_rows, deadline_ms, clock)


def _count_files(
    files: Iterable[ExpectedFile], footer_rows: Callable[[str], int], deadline_ms: int, clock: Clock
) -> StoredRows:
    counted = missing_rows = 0
    missing: list[str] = []
    for number, file in enumerate(files):
        if clock.now_ms() >= deadline_ms:
            text = f"the time limit was reached after {number} files (--time-limit)"
            return StoredRows(None, tuple(missing), missing_rows, problem=text)
        why = ""
        found = 0
        try:
            found = footer_rows(file.path)
        except FileNotFoundError:
            why = "the file does not exist"
        except DamagedFileError:
            why = "the file is no complete parquet file"
        kept = max(0, found - file.deleted)
        counted += kept
        lost = int(bool(why)) if file.rows is None else max(0, file.rows - file.deleted - kept)
        if why or lost:
            missing_rows += lost
            if len(missing) < MISSING_SHOWN_MAX:
                why = why or f"the file has {found} rows"
                rows = "rows" if file.rows is None else f"{file.rows} rows"
                missing.append(f"{file.path} of {file.owner} must have {rows}, and {why}")
    return StoredRows(counted, tuple(missing), missing_rows)


def _rows_of_delta(table: StoredDeltaTable, rows: int | None, deadline_ms: int, clock: Clock) -> StoredRows:
    counted: tuple[int, StoredRows] | None = None
    for _ in range(SNAPSHOTS_MAX):
        try:
            snapshot = table.snapshot()
        except PreconditionFailed as error:
            return StoredRows(problem=str(error))
        if snapshot is None:
            return StoredRows(0) if not rows else _missing_table(rows)
        if outside := [each.path for each in snapshot.files if is_outside(each.path)]:
            return StoredRows(
                problem=f"the table has files outside of its folder ({outside[0]}): a shallow clone is not counted"
            )
        if counted is not None and counted[0] == snapshot.version:
            break
        # Of another version files that are not live any more may have been removed.
        owner = f"version {snapshot.version}"
        files = (ExpectedFile(each.path, each.rows, each.deleted, owner) for each in snapshot.files)
        counted = snapshot.version, _count_files(files, table.file_rows, deadline_ms, clock)
        if counted[1].problem or not counted[1].missing:
            break
    else:
        return StoredRows(problem=f"the table was changed {SNAPSHOTS_MAX} times while it was read; repeat the audit")
    found = counted[1]
    return found if found.problem else _compared(found, rows, "operations that change rows are in DESCRIBE HISTORY")


def _missing_table(rows: int) -> StoredRows:
    return StoredRows(0, (f"there is no table, and its batches have {rows} rows",), rows)


# --- sums ---------------------------------------------------------------------------------------------------------


def _rows_of_table(sink: PostgresSink, rows: int | None, time_limit_ms: int) -> StoredRows:
    found = sink.count_rows(time_limit_ms)
    if found is None:
        if rows != 0:
            return StoredRows(problem="the table does not exist, or the server needs longer than --time-limit")
        return StoredRows(0)
    return _compared(StoredRows(found), rows, "")


def _compared(found: StoredRows, rows: int | None, hint: str) -> StoredRows:
    """The number of rows of a table against the sum of its batches.  ``hint``: where the reason may be found."""
    assert found.rows is not None, "the rows were counted"
    if rows is None:
        remark = "rows of the table were replaced, so their number is not compared with the batches"
        return replace(found, remark=remark)
    remark = "the rows of the table do not contain their batch, so only their number was compared"
    fewer = rows - found.rows - found.missing_rows
    if fewer > 0:
        text = f"the table has {found.rows} rows, and its batches have {rows}: rows were deleted, or moved elsewhere"
        text += f"; {hint}" if hint else ""
        return replace(found, missing=(*found.missing, text), missing_rows=found.missing_rows + fewer, remark=remark)
    if fewer < 0:
        remark += f"; {-fewer} rows are of other programs"
    return replace(found, remark=remark)
