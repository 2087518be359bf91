"""What is read of a Delta table without Spark, before and after OPTIMIZE, VACUUM and the clean-up of its log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.audit.audit_facts import StoredRows
from bridge.spark.pipeline.audit.stored_rows import count_stored_rows
from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage, partition_ranges, to_json
from bridge.spark.pipeline.pipeline_spec import DeltaTarget
from bridge.spark.pipeline.sinks.delta_commits import LOG_FOLDER, commit_path
from bridge.spark.pipeline.sinks.delta_place import open_stored_table, store_place
from bridge.spark.pipeline.sinks.delta_snapshot import DeltaLogError
from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
from bridge.spark.pipeline.sinks.lineage_archive import LineageArchive
from bridge.spark.pipeline.sinks.parquet_manifest import RESERVATIONS, batch_path
from bridge.spark.pipeline.sinks.sink_choice import open_stored
from bridge.spark.pipeline.sinks.stored_delta_table import StoredDeltaTable
from tests.delta_log_fixtures import DeltaTableFiles
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.types import TopicPartition

TP = TopicPartition("clicks", 0)
LATER_MS = SYSTEM_CLOCK.now_ms() + 600_000


def lineage(batch: int, query: str = "q", kind: str = "batch", rows: int = 10) -> BatchLineage:
    ranges = partition_ranges([OffsetRange(TP, 10 * batch, 10 * batch + 10)])
    return BatchLineage(query, batch, kind, "clicks", "snapshot", "a", 1, ranges, BatchCounts(rows))


def stored(path: Path) -> StoredDeltaTable:
    found = open_stored(DeltaTarget(str(path), None))
    assert isinstance(found, StoredDeltaTable)
    return found


def counted(path: Path, rows: int | None = 30) -> StoredRows:
    return count_stored_rows(stored(path), rows, LATER_MS, SYSTEM_CLOCK)


@pytest.fixture
def table(tmp_path: Path) -> DeltaTableFiles:
    """Three batches of ten rows; the last one is not copied."""
    made = DeltaTableFiles(tmp_path / "rows")
    for batch in range(3):
        made.batch(lineage(batch), is_copied=batch < 2)
    return made


def files_below(path: Path) -> set[tuple[Path, int]]:
    return {(each, each.stat().st_mtime_ns) for each in path.rglob("*")}


def test_a_table_that_does_not_exist_has_no_batch(tmp_path: Path) -> None:
    found = stored(tmp_path / "none")
    assert (list(found.lineages()), list(found.reservations()), found.snapshot()) == ([], [], None)
    assert counted(tmp_path / "none", 0) == StoredRows(0)
    assert counted(tmp_path / "none", 5).missing == ("there is no table, and its batches have 5 rows",)


def test_batches_whose_commits_are_copied_and_those_that_are_not_are_read_once_and_nothing_is_written(
    table: DeltaTableFiles,
) -> None:
    before = files_below(table.path)
    assert [each.batch for each in stored(table.path).lineages()] == [0, 1, 2]
    assert counted(table.path).rows == 30
    assert list(stored(table.path).reservations()) == []
    assert files_below(table.path) == before


def test_a_batch_that_is_copied_while_it_is_read_counts_once(
    table: DeltaTableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = LineageArchive.not_copied

    def copied_after(archive: LineageArchive) -> list[BatchLineage]:
        found = read(archive)
        LineageArchive(LocalFolderStore(str(table.path))).update()
        return found

    monkeypatch.setattr(LineageArchive, "not_copied", copied_after)
    assert [each.batch for each in stored(table.path).lineages()] == [0, 1, 2]


def test_batches_are_sorted_by_their_keys_whether_or_not_they_are_copied(tmp_path: Path) -> None:
    table = DeltaTableFiles(tmp_path / "rows")
    table.batch(lineage(0, "m"))
    for query, batch in (("z", 0), ("a", 1), ("a", 0), ("m", 1)):
        table.batch(lineage(batch, query), is_copied=False)
    found = [each.key for each in stored(table.path).lineages()]
    assert found == [("a", 0), ("a", 1), ("m", 0), ("m", 1), ("z", 0)]


def test_a_reservation_ends_with_its_commit_also_before_the_copy(table: DeltaTableFiles) -> None:
    for number in (7, 8):
        wanted = lineage(number, "backfill-1", "backfill")
        file = table.path / batch_path(RESERVATIONS, "backfill-1", number)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(to_json(wanted))
    assert [each.batch for each in stored(table.path).reservations()] == [7, 8]
    table.batch(lineage(7, "backfill-1", "backfill"), is_copied=False)
    assert [each.batch for each in stored(table.path).reservations()] == [8]


MAINTENANCE: dict[str, Callable[[DeltaTableFiles], None]] = {
    "optimize": DeltaTableFiles.optimize,
    "vacuum": DeltaTableFiles.vacuum,
    "checkpoint": DeltaTableFiles.checkpoint,
}


@pytest.mark.parametrize("kind", ["classic", "parts", "sidecars"])
def test_maintenance_of_the_table_changes_nothing_that_is_read(table: DeltaTableFiles, kind: str) -> None:
    LineageArchive(LocalFolderStore(str(table.path))).update()
    before = list(stored(table.path).lineages()), counted(table.path)
    table.optimize()
    assert (list(stored(table.path).lineages()), counted(table.path)) == before
    table.vacuum()
    assert len(list(table.path.glob("*.parquet"))) == 1
    assert (list(stored(table.path).lineages()), counted(table.path)) == before
    table.checkpoint(2 if kind == "parts" else 1, in_sidecars=kind == "sidecars")
    table.clean_up()
    assert (list(stored(table.path).lineages()), counted(table.path)) == before
    table.batch(lineage(3))
    assert [each.batch for each in stored(table.path).lineages()] == [0, 1, 2, 3]
    assert counted(table.path, 40).rows == 40


def test_rows_that_a_deletion_vector_removes_do_not_count(table: DeltaTableFiles) -> None:
    table.delete(4)
    found = counted(table.path)
    assert (found.rows, found.missing_rows) == (26, 4)
    assert found.missing == (
        "the table has 26 rows, and its batches have 30: rows were deleted, or moved elsewhere; operations that change "
        "rows are in DESCRIBE HISTORY",
    )
    table.checkpoint()
    table.clean_up()
    assert counted(table.path) == found


def test_more_rows_than_the_batches_have_are_a_remark_and_so_is_a_replacement(table: DeltaTableFiles) -> None:
    found = counted(table.path, 28)
    assert (found.rows, found.missing_rows) == (30, 0)
    assert "2 rows are of other programs" in found.remark
    assert "rows of the table were replaced" in counted(table.path, None).remark


@pytest.mark.parametrize("harm", ["gone", "damaged", "short"])
def test_a_live_file_that_is_gone_damaged_or_shorter_is_missing(table: DeltaTableFiles, harm: str) -> None:
    file = next(table.path.glob("*.parquet"))
    if harm == "short":
        file.write_bytes((table.path / table.file(3, "other.parquet")["path"]).read_bytes())
    elif harm == "damaged":
        file.write_bytes(b"PAR1")
    else:
        file.unlink()
    found = counted(table.path)
    missing = 7 if harm == "short" else 10
    assert (found.rows, found.missing_rows, len(found.missing)) == (30 - missing, missing, 1)
    assert found.missing[0].startswith(f"{file.name} of version 3 must have 10 rows, and the file ")


def test_a_file_that_vacuum_removes_after_the_log_was_read_is_not_missing(
    table: DeltaTableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = StoredDeltaTable.snapshot
    has_run = False

    def maintained(stored_table: StoredDeltaTable) -> object:
        nonlocal has_run
        found = read(stored_table)
        if not has_run:
            has_run = True
            table.optimize()
            table.vacuum()
        return found

    monkeypatch.setattr(StoredDeltaTable, "snapshot", maintained)
    found = counted(table.path)
    assert (found.rows, found.missing) == (30, ())


def test_a_table_that_changes_all_the_time_is_not_checked(
    table: DeltaTableFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = StoredDeltaTable.snapshot
    table.file(5, "lost.parquet")
    table.commit({"add": table.live["lost.parquet"]})
    (table.path / "lost.parquet").unlink()

    def changed(stored_table: StoredDeltaTable) -> object:
        table.commit({"metaData": {"id": "t"}})
        return read(stored_table)

    monkeypatch.setattr(StoredDeltaTable, "snapshot", changed)
    found = counted(table.path, 35)
    assert (found.rows, found.problem) == (None, "the table was changed 4 times while it was read; repeat the audit")


def test_files_without_statistics_are_counted_by_their_footers(table: DeltaTableFiles) -> None:
    for name, rows in (("empty.parquet", 0), ("five.parquet", 5)):
        table.file(rows, name)
        table.commit({"add": {"path": name}})
    found = counted(table.path, 35)
    assert (found.rows, found.missing) == (35, ())
    (table.path / "five.parquet").unlink()
    found = counted(table.path, 35)
    assert (found.rows, found.missing_rows) == (30, 5)
    assert found.missing[0] == "five.parquet of version 5 must have rows, and the file does not exist"


def test_commits_that_the_clean_up_removes_while_they_are_read_are_read_from_the_checkpoint(
    table: DeltaTableFiles,
) -> None:
    class Cleaned(LocalFolderStore):
        """The log is cleaned up when commit 2 is about to be read."""

        def read(self, path: str) -> bytes:
            if path == commit_path(2) and (table.path / path).exists():
                table.checkpoint()
                table.clean_up()
            return super().read(path)

    found = StoredDeltaTable(Cleaned(str(table.path))).snapshot()
    assert found is not None
    assert (found.version, len(found.files)) == (3, 3)


def test_what_is_not_understood_of_a_table_is_not_checked_and_one_line(table: DeltaTableFiles) -> None:
    table.commit({"add": {"path": "file:/elsewhere/a.parquet"}})
    assert "files outside of its folder (file:/elsewhere/a.parquet)" in counted(table.path).problem
    table.commit({"protocol": {"minReaderVersion": 3, "readerFeatures": ["future"]}})
    assert "the table has the feature future" in counted(table.path).problem
    (table.path / commit_path(3)).unlink()
    assert "commit 3 is missing" in counted(table.path).problem


def test_a_damaged_checkpoint_is_an_error_for_the_operator(table: DeltaTableFiles) -> None:
    (table.path / LOG_FOLDER / f"{3:020}.checkpoint.parquet").write_bytes(b"PAR1 x")
    with pytest.raises(DeltaLogError, match="no complete parquet file"):
        stored(table.path).snapshot()


def test_the_time_limit_ends_the_counting(table: DeltaTableFiles) -> None:
    found = count_stored_rows(stored(table.path), 30, SYSTEM_CLOCK.now_ms(), SYSTEM_CLOCK)
    assert (found.rows, found.problem) == (None, "the time limit was reached after 0 files (--time-limit)")


def test_the_folder_of_a_table_of_a_catalog_is_known_once_a_pipeline_has_started(
    table: DeltaTableFiles, tmp_path: Path
) -> None:
    target = DeltaTarget(None, "shop.clicks", str(tmp_path / "checkpoint-lineage" / "sink"))
    with pytest.raises(
        PreconditionFailed, match=r"the Delta table shop\.clicks is not known without Spark: .*delta-table"
    ):
        open_stored_table(target)
    no_spark: object = None
    for place in (tmp_path / "before", table.path, table.path):
        store_place(target, f"file://{place}", no_spark)  # type: ignore[arg-type]
    assert [each.batch for each in open_stored_table(target).lineages()] == [0, 1, 2]
    assert [each.name for each in (tmp_path / "checkpoint-lineage" / "sink").iterdir() if each.is_file()] == [
        "delta-table"
    ]


def test_the_place_of_a_table_is_not_stored_beside_a_checkpoint_in_an_object_store() -> None:
    target = DeltaTarget(None, "shop.clicks", "s3a://bucket/checkpoint-lineage/sink")
    no_spark: object = None
    store_place(target, "file:///rows", no_spark)  # type: ignore[arg-type]
    with pytest.raises(UsageError, match="s3a"):
        open_stored_table(target)
