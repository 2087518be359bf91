"""Batches in parquet files: each once, whatever two drivers do at the same time, and where one of them ends."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge.spark.pipeline.lineage import BatchAttempt, BatchCounts, BatchLineage, LineageConflictError
from bridge.spark.pipeline.pipeline_spec import ParquetTarget
from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
from bridge.spark.pipeline.sinks.hadoop_folder_store import HadoopFolderStore
from bridge.spark.pipeline.sinks.parquet_sink import ParquetSink
from bridge.spark.pipeline.sinks.parquet_table import read_parquet_table
from bridge.spark.pipeline.sinks.sink import MESSAGE_TIME_COLUMN, CommitOutcome, StagedBatch
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.real

NOW_MS = 1_790_000_000_000
DAY_MS = 86_400_000
QUERY = "9b2d4f2e-0000-4000-8000-000000000001"

Staged = StagedBatch[Any]


def attempt(name: str, batch: int = 0) -> BatchAttempt:
    return BatchAttempt(QUERY, batch, name, NOW_MS)


def lineage(staged: Staged, first: int = 0) -> BatchLineage:
    """Of a batch with the offsets from ``first`` on."""
    it = staged.attempt
    ranges = {TopicPartition("clicks", 0): ((first, first + 3),)}
    counts = BatchCounts(staged.rows, 1, 0, 0)
    return BatchLineage(it.query, it.batch, "batch", "clicks", "claim", it.attempt, NOW_MS, ranges, counts)


def rows(spark: SparkSession, first: int = 0) -> DataFrame:
    return spark.createDataFrame([(n, f"v{n}") for n in range(first, first + 3)], "a int, b string").repartition(2)


def target(path: Path, kind: str = "none") -> ParquetTarget:
    return ParquetTarget(str(path), kind, "snappy")


def open_sink(spark: SparkSession, path: Path) -> ParquetSink:
    """As a driver does at its start."""
    made = ParquetSink(LocalFolderStore(str(path)), target(path))
    made.prepare(rows(spark).schema)
    return made


def values(spark: SparkSession, path: Path) -> list[int]:
    return sorted(row.a for row in read_parquet_table(spark, str(path)).collect())


def parquet_files(path: Path) -> list[str]:
    return sorted(each.relative_to(path).as_posix() for each in path.rglob("*.parquet") if each.is_file())


def test_a_batch_that_is_written_twice_is_there_once_with_its_lineage(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "a table [1]"
    sink = open_sink(spark, path)
    assert sink.committed(QUERY, 0) is None
    first = sink.write(rows(spark), attempt("t1"))
    assert sink.commit(first, lineage(first)) is CommitOutcome.COMMITTED
    again = sink.write(rows(spark), attempt("t2"))
    assert sink.commit(again, lineage(again)) is CommitOutcome.ALREADY_COMMITTED
    assert values(spark, path) == [0, 1, 2]
    assert sink.committed(QUERY, 0) == lineage(first)
    assert list(sink.lineages()) == [lineage(first)]
    assert all(name.startswith(f"{QUERY}-0-t1-") for name in parquet_files(path))
    manifest = json.loads(next(path.rglob("batches/*/*.json")).read_text())
    assert [each["path"] for each in manifest["files"]] == parquet_files(path)
    assert [(path / each["path"]).stat().st_size for each in manifest["files"]] == [
        each["bytes"] for each in manifest["files"]
    ]


def test_the_same_batch_with_other_ranges_is_an_error_and_changes_nothing(spark: SparkSession, tmp_path: Path) -> None:
    sink = open_sink(spark, tmp_path)
    first = sink.write(rows(spark), attempt("t1"))
    sink.commit(first, lineage(first))
    other = sink.write(rows(spark, 1), attempt("t2"))
    with pytest.raises(LineageConflictError, match=r"clicks/0 \[0, 3\).*clicks/0 \[1, 4\)"):
        sink.commit(other, lineage(other, 1))
    assert values(spark, tmp_path) == [0, 1, 2]
    assert all("-t1-" in name for name in parquet_files(tmp_path)), "the files of the refused attempt are removed"


def test_a_table_without_a_batch_has_columns_and_no_rows(spark: SparkSession, tmp_path: Path) -> None:
    sink = open_sink(spark, tmp_path / "t")
    sink.write(rows(spark), attempt("t1"))
    assert read_parquet_table(spark, str(tmp_path / "t")).dtypes == [("a", "int"), ("b", "string")]
    assert values(spark, tmp_path / "t") == [], "rows that are not committed are not visible"
    with pytest.raises(PreconditionFailed, match="is not a table of a pipeline"):
        read_parquet_table(spark, str(tmp_path))


def test_a_batch_without_rows_is_a_batch(spark: SparkSession, tmp_path: Path) -> None:
    sink = open_sink(spark, tmp_path)
    staged = sink.write(rows(spark).where("a > 5"), attempt("t1"))
    assert sink.commit(staged, lineage(staged)) is CommitOutcome.COMMITTED
    assert staged.rows == 0
    assert values(spark, tmp_path) == []
    assert parquet_files(tmp_path) == []


def test_files_are_in_folders_of_message_time_and_strange_times_in_one(spark: SparkSession, tmp_path: Path) -> None:
    from pyspark.sql import functions

    times = [
        None, -1, 631_151_999_999, 631_152_000_000, -5_000, NOW_MS, NOW_MS + DAY_MS, NOW_MS + DAY_MS + 1, 2**50,
    ]  # fmt: skip
    frame = spark.createDataFrame(list(enumerate(times)), "a int, ms bigint")
    frame = frame.select("a", functions.expr(f"timestamp_millis(ms) as {MESSAGE_TIME_COLUMN}"))
    spark.conf.set("spark.sql.session.timeZone", "America/New_York")
    try:
        for kind, now, end in (("day", "2026-09-21", "2026-09-22"), ("hour", "2026-09-21-14", "2026-09-22-14")):
            path = tmp_path / kind
            sink = ParquetSink(LocalFolderStore(str(path)), target(path, kind))
            assert sink.needs_message_time
            sink.prepare(frame.drop(MESSAGE_TIME_COLUMN).schema)
            staged = sink.write(frame, attempt("t1"))
            sink.commit(staged, lineage(staged))
            assert values(spark, path) == list(range(9))
            assert read_parquet_table(spark, str(path)).columns == ["a"]
            first = "1990-01-01" + "-00" * (kind == "hour")
            assert {each.partition("/")[0].partition("=")[2] for each in parquet_files(path)} == {
                "without-time", "out-of-range", first, now, end,
            }  # fmt: skip
            strange = spark.read.parquet(f"{path}/message_{kind}=out-of-range")
            assert sorted(row.a for row in strange.collect()) == [2, 4, 7, 8]
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
    assert datetime.fromtimestamp(NOW_MS / 1000, UTC).strftime("%Y-%m-%d-%H") == "2026-09-21-14"


def test_what_cannot_be_written_is_a_line_each_and_nothing_is_written(spark: SparkSession, tmp_path: Path) -> None:
    path = tmp_path / "table"
    sink = ParquetSink(LocalFolderStore(str(path)), target(path, "day"))
    bad = spark.sql("select null as n, 1 as A, 2 as a, 'x' as message_day, array(named_struct('v', null)) as deep")
    problems = sink.check(bad.schema)
    assert [line.split(":")[0] for line in problems] == [
        "column n", "columns A and a", "column message_day", "column deep",
    ]  # fmt: skip
    with pytest.raises(PreconditionFailed, match="column n: parquet has no type void"):
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
    (tmp_path / "file").write_text("x")
    assert "is a file" in ParquetSink(LocalFolderStore(str(tmp_path / "file" / "t")), target(path)).check(bad.schema)[0]


def hadoop_store(spark: SparkSession, path: Path) -> HadoopFolderStore:
    """The local folder through Hadoop, without checksum files, since those cannot be appended to."""
    context: Any = spark.sparkContext
    configuration = context._jvm.org.apache.hadoop.conf.Configuration(context._jsc.hadoopConfiguration())
    configuration.set("fs.AbstractFileSystem.file.impl", "org.apache.hadoop.fs.local.RawLocalFs")
    configuration.set("fs.file.impl", "org.apache.hadoop.fs.RawLocalFileSystem")
    return HadoopFolderStore(f"file://{path}", context._gateway, configuration)


def test_the_store_of_hadoop_has_the_rules_of_a_folder_store(spark: SparkSession, tmp_path: Path) -> None:
    for store in (hadoop_store(spark, tmp_path / "h"), LocalFolderStore(str(tmp_path / "l"))):
        assert store.access_problem() is None
        assert store.names("d") == []
        with pytest.raises(FileNotFoundError):
            store.fill("d/a", b"x")
        with pytest.raises(FileNotFoundError):
            store.read("d/a")
        store.create_empty("d/a")
        store.fill("d/a", b"x\xff")
        store.publish("d/a", "e/f/b")
        assert store.read("e/f/b") == b"x\xff"
        store.create_empty("d/c")
        with pytest.raises(FileExistsError):
            store.publish("d/c", "e/f/b")
        with pytest.raises(FileNotFoundError):
            store.publish("d/none", "e/f/g")
        with pytest.raises(FileNotFoundError):
            store.move("d/none", "e/f/g")
        store.move("d/c", "e/c")
        store.create_empty("e/_hidden/x")
        assert store.data_files("e") == [("c", 0), ("f/b", 2)]
        assert store.names("e") == ["_hidden", "c", "f"]
        store.remove("e/c")
        store.remove("e/c")
        assert store.remove_tree("e")
        assert store.remove_tree("e")
        assert store.names("e") == []


def test_batches_are_committed_through_hadoop(spark: SparkSession, tmp_path: Path) -> None:
    sink = ParquetSink(hadoop_store(spark, tmp_path), target(tmp_path))
    sink.prepare(rows(spark).schema)
    for name, outcome in (("t1", CommitOutcome.COMMITTED), ("t2", CommitOutcome.ALREADY_COMMITTED)):
        staged = sink.write(rows(spark), attempt(name))
        assert sink.commit(staged, lineage(staged)) is outcome
    assert values(spark, tmp_path) == [0, 1, 2]
    sink.write(rows(spark), attempt("t3"))
    assert sink.remove_leftovers(NOW_MS) == 1
    assert list(tmp_path.rglob("attempts/*")) == []
