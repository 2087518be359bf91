"""The shared Spark session is what tests take it for."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.spark_session_fixtures import ROOT, checkpoint_of, run_available_now, sunk

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real


def where_it_runs(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    import pyarrow as pa

    import bridge

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"python": [sys.executable], "tree": [str(Path(bridge.__file__).parents[1])]})


def test_workers_run_this_python_and_this_tree(spark: SparkSession) -> None:
    [row] = spark.range(1, numPartitions=1).mapInArrow(where_it_runs, "python string, tree string").collect()
    assert row.python == sys.executable
    assert row.tree == str(ROOT)


def test_a_query_goes_on_where_its_checkpoint_stands(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "in"
    spark.range(3).write.parquet(str(folder))
    stream = spark.readStream.schema("id long").parquet(str(folder))
    run_available_now(stream, tmp_path)
    assert sorted(row.id for row in sunk(spark, tmp_path)) == [0, 1, 2]
    spark.range(3, 5).write.mode("append").parquet(str(folder))
    run_available_now(stream, tmp_path)
    assert sorted(row.id for row in sunk(spark, tmp_path)) == [0, 1, 2, 3, 4]
    assert (checkpoint_of(tmp_path) / "commits" / "1").exists()
