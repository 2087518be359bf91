"""Batches in a Delta table: each once, whatever two drivers do at the same time, and what the operator does between."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge.spark.pipeline.audit.stored_rows import count_stored_rows
from bridge.spark.pipeline.lineage import BatchAttempt, BatchCounts, BatchLineage, LineageConflictError, from_json
from bridge.spark.pipeline.pipeline_spec import DeltaTarget
from bridge.spark.pipeline.sinks.delta_sink import DeltaSink
from bridge.spark.pipeline.sinks.delta_table import AppendRows, append_rows
from bridge.spark.pipeline.sinks.replaced_rows import OffsetColumns, ReplacedRows
from bridge.spark.pipeline.sinks.sink import AttemptRemovedError, CommitOutcome, StagedBatch
from bridge.spark.pipeline.sinks.sink_choice import open_stored
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.real

NOW_MS = 1_790_000_000_000
QUERY = "9b2d4f2e-0000-4000-8000-000000000001"
WAIT_S = 120

Staged = StagedBatch[Any]


def attempt(name: str, batch: int = 0) -> BatchAttempt:
    return BatchAttempt(QUERY, batch, name, NOW_MS)


def lineage(staged: Staged, first: int | None = None) -> BatchLineage:
    """Of a batch with three offsets, from ``first`` on."""
    it = staged.attempt
    first = 3 * it.batch if first is None else first
    ranges = {TopicPartition("clicks", 0): ((first, first + 3),)}
    counts = BatchCounts(staged.rows, 1, 0, 0)
    return BatchLineage(it.query, it.batch, "batch", "clicks", "claim", it.attempt, NOW_MS, ranges, counts)


def rows(spark: SparkSession, first: int = 0) -> DataFrame:
    return spark.createDataFrame([(n, f"v{n}") for n in range(first, first + 3)], "a int, b string").repartition(2)


def open_sink(spark: SparkSession, path: Path, append: AppendRows = append_rows) -> DeltaSink:
    """As a driver does at its start."""
    made = DeltaSink(spark, DeltaTarget(str(path), None), append)
    made.prepare(rows(spark).schema)
    return made


def run(sink: DeltaSink, spark: SparkSession, name: str, batch: int = 0) -> CommitOutcome:
    staged = sink.write(rows(spark, 3 * batch), attempt(name, batch))
    return sink.commit(staged, lineage(staged))


def values(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row.a for row in spark.read.format("delta").load(str(path)).collect())


def history(spark: SparkSession, path: Path) -> list[str]:
    """The lineages in Delta's own history, newest first."""
    found = spark.sql(f"DESCRIBE HISTORY delta.`{path}`").select("userMetadata").collect()
    return [row.userMetadata for row in found if row.userMetadata is not None]


def audited(path: Path) -> tuple[list[int], int | None, tuple[str, ...]]:
    """What an audit reads without Spark: the batches, the number of rows, and what is missing."""
    table = open_stored(DeltaTarget(str(path), None))
    lineages = list(table.lineages())
    rows = sum(each.counts.rows for each in lineages)
    found = count_stored_rows(table, rows, SYSTEM_CLOCK.now_ms() + 60_000, SYSTEM_CLOCK)
    assert found.problem == ""
    return [each.batch for each in lineages], found.rows, found.missing


def leftovers(path: Path) -> list[Path]:
    return list(path.glob("_zkconsumer/attempts/*"))


def test_a_batch_that_is_written_twice_is_there_once_with_its_lineage(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a table [1]"
    sink = open_sink(spark, path)
    assert sink.committed(QUERY, 0) is None
    first = sink.write(rows(spark), attempt("t1"))
    assert values(spark, path) == [], "rows that are not committed are not visible"
    assert sink.commit(first, lineage(first)) is CommitOutcome.COMMITTED
    again = sink.write(rows(spark), attempt("t2"))
    assert sink.commit(again, lineage(again)) is CommitOutcome.ALREADY_COMMITTED
    assert values(spark, path) == [0, 1, 2]
    assert sink.committed(QUERY, 0) == lineage(first)
    assert list(sink.lineages()) == [lineage(first)]
    assert [from_json(text, "history") for text in history(spark, path)] == [lineage(first)]
    assert leftovers(path) == []
    empty = sink.write(rows(spark).where("a > 5"), attempt("t1", 1))
    assert sink.commit(empty, lineage(empty)) is CommitOutcome.COMMITTED
    assert sink.commit(empty, lineage(empty)) is CommitOutcome.COMMITTED, "a batch without rows is a batch"
    assert [each.counts.rows for each in open_sink(spark, path).lineages()] == [3, 0]


def test_the_same_batch_with_other_ranges_is_an_error_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    sink = open_sink(spark, tmp_path)
    run(sink, spark, "t1")
    other = sink.write(rows(spark, 1), attempt("t2"))
    with pytest.raises(LineageConflictError, match=r"clicks/0 \[0, 3\).*clicks/0 \[1, 4\)"):
        sink.commit(other, lineage(other, 1))
    assert values(spark, tmp_path) == [0, 1, 2]
    assert leftovers(tmp_path) == []


class StoppedAppend:
    """An append whose task waits until it may end; ``errors`` has what the append ended with."""

    def __init__(self, folder: Path) -> None:
        self.errors: list[str] = []
        self._started, self._may_end = folder / "started", folder / "may-end"

    def append(self, frame: DataFrame, target: DeltaTarget, options: Mapping[str, str]) -> None:
        started, may_end = self._started, self._may_end

        def wait(batches: Iterable[Any]) -> Iterable[Any]:
            import time

            started.touch()
            while not may_end.exists():
                time.sleep(0.05)
            yield from batches

        try:
            append_rows(frame.coalesce(1).mapInArrow(wait, frame.schema), target, options)
        except Exception as error:
            self.errors.append(str(error))
            raise

    @contextmanager
    def while_it_waits(self, commit: Callable[[], CommitOutcome]) -> Iterator[list[CommitOutcome]]:
        """Commits in another thread; the body runs while the task waits.  Yields the list that gets the outcome."""
        outcomes: list[CommitOutcome] = []
        thread = threading.Thread(target=lambda: outcomes.append(commit()), daemon=True)
        thread.start()
        try:
            waited = threading.Event()
            while not self._started.exists() and thread.is_alive():
                waited.wait(0.05)
            yield outcomes
        finally:
            self._may_end.touch()
            thread.join(WAIT_S)


@pytest.mark.parametrize("batches", [1, 2])
def test_a_driver_that_is_stopped_inside_its_append_conflicts_with_the_second_one(
    spark: SparkSession, tmp_path: Path, batches: int
) -> None:
    """A task of the first driver's append waits until the second driver has committed the batch, and the next one."""
    stopped = StoppedAppend(tmp_path)
    path = tmp_path / "table"
    second = open_sink(spark, path)
    first = open_sink(spark, path, stopped.append)
    with stopped.while_it_waits(lambda: run(first, spark, "t1")) as outcomes:
        theirs = [run(second, spark, "t2", batch) for batch in range(batches)]
        second.remove_leftovers(NOW_MS)
    assert theirs == [CommitOutcome.COMMITTED] * batches
    assert outcomes == [CommitOutcome.ALREADY_COMMITTED]
    assert len(stopped.errors) == 1
    assert "CONCURRENT_TRANSACTION" in stopped.errors[0] or "ConcurrentTransactionException" in stopped.errors[0]
    assert values(spark, path) == list(range(3 * batches))
    assert {each.attempt for each in first.lineages()} == {"t2"}
    assert leftovers(path) == []


@pytest.mark.parametrize("point", ["before write", "before commit", "before append", "after append"])
def test_a_driver_that_is_stopped_at_any_point_writes_a_batch_once(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    second = open_sink(spark, tmp_path)
    theirs: list[CommitOutcome] = []

    def act(now: str) -> None:
        if now == point:
            theirs.append(run(second, spark, "t2"))
            if point != "after append":
                theirs.append(run(second, spark, "t2", 1))
            second.remove_leftovers(NOW_MS)

    def append(frame: DataFrame, target: DeltaTarget, options: Mapping[str, str]) -> None:
        act("before append")
        append_rows(frame, target, options)
        act("after append")

    first = open_sink(spark, tmp_path, append)
    act("before write")
    staged = first.write(rows(spark), attempt("t1"))
    act("before commit")
    ours = first.commit(staged, lineage(staged))
    if point == "after append":
        assert (ours, theirs) == (CommitOutcome.COMMITTED, [CommitOutcome.ALREADY_COMMITTED])
        assert values(spark, tmp_path) == [0, 1, 2]
    else:
        assert (ours, theirs) == (CommitOutcome.ALREADY_COMMITTED, [CommitOutcome.COMMITTED] * 2)
        assert values(spark, tmp_path) == [0, 1, 2, 3, 4, 5]
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("point", ["after write", "before append", "after append"])
def test_after_a_crash_at_any_point_a_new_attempt_completes_the_batch(
    spark: SparkSession, tmp_path: Path, point: str
) -> None:
    def append(frame: DataFrame, target: DeltaTarget, options: Mapping[str, str]) -> None:
        if point == "after append":
            append_rows(frame, target, options)
        raise InterruptedError(point)

    first = open_sink(spark, tmp_path, append)
    staged = first.write(rows(spark), attempt("t1"))
    if point != "after write":
        with pytest.raises(InterruptedError):
            first.commit(staged, lineage(staged))
    sink = open_sink(spark, tmp_path)
    is_there = point == "after append"
    assert (sink.committed(QUERY, 0) is not None) == is_there
    assert sink.remove_leftovers(NOW_MS) == is_there, "another attempt may be live"
    assert run(sink, spark, "t2") is (CommitOutcome.ALREADY_COMMITTED if is_there else CommitOutcome.COMMITTED)
    sink.remove_leftovers(NOW_MS)
    assert values(spark, tmp_path) == [0, 1, 2]
    assert leftovers(tmp_path) == []


def test_an_old_attempt_that_was_removed_cannot_be_committed(spark: SparkSession, tmp_path: Path) -> None:
    sink = open_sink(spark, tmp_path)
    staged = sink.write(rows(spark), attempt("t1"))
    assert sink.remove_leftovers(NOW_MS + 5, 5) == 0
    next(tmp_path.glob("_zkconsumer/attempts/*/*.parquet")).unlink()
    with pytest.raises(AttemptRemovedError, match="start the query again"):
        sink.commit(staged, lineage(staged))
    assert sink.remove_leftovers(NOW_MS + 10, 5) == 1
    with pytest.raises(AttemptRemovedError, match="start the query again"):
        sink.commit(staged, lineage(staged))
    assert values(spark, tmp_path) == []
    assert run(sink, spark, "t2") is CommitOutcome.COMMITTED


def test_optimize_and_vacuum_between_batches_change_neither_lineages_nor_live_attempts(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = open_sink(spark, tmp_path)
    run(sink, spark, "t1", 0)
    staged = sink.write(rows(spark, 3), attempt("t1", 1))
    assert audited(tmp_path) == ([0], 3, ())
    spark.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    try:
        spark.sql(f"OPTIMIZE delta.`{tmp_path}`").collect()
        spark.sql(f"VACUUM delta.`{tmp_path}` RETAIN 0 HOURS").collect()
    finally:
        spark.conf.unset("spark.databricks.delta.retentionDurationCheck.enabled")
    assert audited(tmp_path) == ([0], 3, ())
    assert sink.commit(staged, lineage(staged)) is CommitOutcome.COMMITTED
    assert audited(tmp_path) == ([0, 1], 6, ())
    assert run(open_sink(spark, tmp_path), spark, "t2", 0) is CommitOutcome.ALREADY_COMMITTED
    assert values(spark, tmp_path) == [0, 1, 2, 3, 4, 5]
    assert [each.batch for each in sink.lineages()] == [0, 1]


def remove_old_commits(path: Path) -> int:
    """As Delta does after ``delta.logRetentionDuration``: the commits before the newest checkpoint."""
    log = path / "_delta_log"
    newest = json.loads((log / "_last_checkpoint").read_text())["version"]
    removed = [each for each in log.glob("*.json") if int(each.stem) < newest]
    for each in removed:
        each.unlink()
    return len(removed)


def test_a_batch_whose_commit_was_removed_from_the_log_is_known_by_its_copy_or_is_an_error(
    spark: SparkSession, tmp_path: Path
) -> None:
    sink = open_sink(spark, tmp_path)
    name = f"delta.`{tmp_path}`"
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('delta.checkpointInterval' = '2')")
    for batch in range(4):
        run(sink, spark, "t1", batch)
    spark.sql(f"ALTER TABLE {name} SET TBLPROPERTIES ('a' = 'b')")
    assert audited(tmp_path) == ([0, 1, 2, 3], 12, ())
    assert remove_old_commits(tmp_path) > 3
    assert audited(tmp_path) == ([0, 1, 2, 3], 12, ())
    assert [each.batch for each in open_sink(spark, tmp_path).lineages()] == [0, 1, 2, 3]
    assert run(open_sink(spark, tmp_path), spark, "t2", 2) is CommitOutcome.ALREADY_COMMITTED
    (tmp_path / "_zkconsumer").rename(tmp_path / "_moved")
    late = open_sink(spark, tmp_path)
    staged = late.write(rows(spark), attempt("t3", 1))
    with pytest.raises(LineageConflictError, match=r"no commit with its offsets is left.*new checkpoint"):
        late.commit(staged, lineage(staged))
    assert values(spark, tmp_path) == list(range(12))
    assert leftovers(tmp_path) == []
    assert run(late, spark, "t3", 4) is CommitOutcome.COMMITTED


def test_a_replacement_beside_the_live_query_is_one_commit_and_fails_none_of_its_batches(
    spark: SparkSession, tmp_path: Path
) -> None:
    """A task of the replacement waits until the live query has committed a batch; then the replacement tries again."""
    stopped, path = StoppedAppend(tmp_path), tmp_path / "table"
    schema = "v string, topic string, partition int, offset bigint"

    def placed(first: int, value: str, count: int = 3) -> DataFrame:
        made = [(value, "clicks", 0, n) for n in range(first, first + count)]
        return spark.createDataFrame(made, schema).repartition(2)

    def live(batch: int) -> CommitOutcome:
        staged = second.write(placed(3 * batch, "old"), attempt("t1", batch))
        return second.commit(staged, lineage(staged))

    second = DeltaSink(spark, DeltaTarget(str(path), None))
    second.prepare(placed(0, "").schema)
    assert [live(0), live(1)] == [CommitOutcome.COMMITTED] * 2
    deleted: list[int] = []
    places = OffsetColumns("topic", "partition", "offset")
    first = DeltaSink(spark, DeltaTarget(str(path), None), stopped.append).replacing(
        ReplacedRows(places, deleted.append)
    )
    staged = first.write(placed(1, "new", 2), BatchAttempt("replace-1", 0, "t9", NOW_MS))
    wanted = replace(lineage(staged, 1), kind="replace", counts=BatchCounts(2, 1))
    first.reserve(wanted, {})
    with stopped.while_it_waits(lambda: first.commit(staged, wanted)) as outcomes:
        assert live(2) is CommitOutcome.COMMITTED
    assert (outcomes, deleted) == ([CommitOutcome.COMMITTED], [3])
    assert len(stopped.errors) == 1
    assert "CONCURRENT_APPEND" in stopped.errors[0]
    found = spark.read.format("delta").load(str(path)).collect()
    assert sorted((row.offset, row.v) for row in found) == [
        (0, "old"), (1, "new"), (2, "new"), *((n, "old") for n in range(4, 9)),
    ]  # fmt: skip
    assert [(each.kind, each.batch) for each in second.lineages()] == [
        ("batch", 0), ("batch", 1), ("batch", 2), ("replace", 0),
    ]  # fmt: skip
    assert list(second.reservations()) == []
    assert leftovers(path) == []
    empty = first.write(placed(0, "x").where("offset < 0"), BatchAttempt("replace-2", 0, "t9", NOW_MS))
    gone = replace(lineage(empty, 3), query="replace-2", kind="replace", counts=BatchCounts(0, 3))
    assert first.commit(empty, gone) is CommitOutcome.COMMITTED
    assert (deleted, spark.read.format("delta").load(str(path)).count()) == ([3, 2], 6)


def test_a_table_of_the_catalog_is_created_and_written(spark: SparkSession) -> None:
    sink = DeltaSink(spark, DeltaTarget(None, "clicks_table"))
    assert sink.check(rows(spark).schema) == []
    assert not spark.catalog.tableExists("clicks_table"), "check changes nothing"
    with pytest.raises(PreconditionFailed, match="clicks_table is not a Delta table"):
        sink.committed(QUERY, 0)
    sink.prepare(rows(spark).schema)
    assert run(sink, spark, "t1") is CommitOutcome.COMMITTED
    assert run(sink, spark, "t2") is CommitOutcome.ALREADY_COMMITTED
    assert sorted(row.a for row in spark.table("clicks_table").collect()) == [0, 1, 2]


def test_what_cannot_be_written_is_a_line_each_and_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    sink = DeltaSink(spark, DeltaTarget(str(path), None))
    bad = spark.sql("select null as n, 1 as A, 2 as a, 3 as `x y`")
    assert [line.split(":")[0] for line in sink.check(bad.schema)] == [
        "column 'x y'", "column n", "columns A and a",
    ]  # fmt: skip
    with pytest.raises(PreconditionFailed, match="a Delta table has no such name"):
        sink.prepare(bad.schema)
    assert not path.exists()
    sink.prepare(rows(spark).schema)
    assert sink.check(rows(spark).select("b", "a").schema) == [], "the order of the columns is free"
    other = sink.check(spark.sql("select 'x' as a, 1 as c").schema)
    assert sorted(line.split(";")[0] for line in other) == [
        "column a: the table has the type integer, the rows have string",
        "column b: the table has it, and the rows do not",
        "column c: the table does not have it",
    ]  # fmt: skip
    assert "ALTER TABLE ... ADD COLUMNS" in "".join(other)
    retention = "'delta.setTransactionRetentionDuration' = 'interval 9 day'"
    spark.sql(f"ALTER TABLE delta.`{path}` SET TBLPROPERTIES ({retention})")
    [line] = sink.check(rows(spark).schema)
    assert "Delta forgets which batches it has" in line
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "x.csv").write_text("x")
    [line] = DeltaSink(spark, DeltaTarget(str(tmp_path / "other"), None)).check(rows(spark).schema)
    assert "this is no Delta table, and it has other files (x.csv)" in line
    spark.sql("create table plain_table (a int, b string) using parquet")
    [line] = DeltaSink(spark, DeltaTarget(None, "plain_table")).check(rows(spark).schema)
    assert line == "plain_table: this is a table of the format parquet; choose another table"
    [line] = DeltaSink(spark, DeltaTarget("s3a://bucket/t", None)).check(rows(spark).schema)
    assert "the file system s3a has no atomic create-if-absent" in line
    [line] = DeltaSink(spark, DeltaTarget(None, "no_database.t")).check(rows(spark).schema)
    assert line.startswith("no_database.t: [SCHEMA_NOT_FOUND] ")


def test_columns_are_not_merged_when_the_session_says_so(spark: SparkSession, tmp_path: Path) -> None:
    sink = open_sink(spark, tmp_path)
    spark.conf.set("spark.databricks.delta.schema.autoMerge.enabled", "true")
    try:
        staged = sink.write(rows(spark).selectExpr("*", "1 as c"), attempt("t1"))
        with pytest.raises(Exception, match="schema mismatch"):
            sink.commit(staged, lineage(staged))
    finally:
        spark.conf.unset("spark.databricks.delta.schema.autoMerge.enabled")
    assert spark.read.format("delta").load(str(tmp_path)).columns == ["a", "b"]
