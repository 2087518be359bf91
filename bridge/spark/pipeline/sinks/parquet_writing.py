"""Writes the rows of a frame as parquet files in a folder: by Spark's own writer, no Python for a row.

A time folder is a partition column.  Spark sorts the rows of a task by it, unless
``spark.sql.maxConcurrentOutputFileWriters`` of the session permits as many open files as a task has folders.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeAlias

from bridge.spark.pipeline.lineage import BatchAttempt
from bridge.spark.pipeline.pipeline_spec import ParquetTarget
from bridge.spark.pipeline.sinks.parquet_manifest import TIME_FOLDER_COLUMNS, time_folder_sql
from bridge.spark.pipeline.sinks.sink import MESSAGE_TIME_COLUMN

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

WriteFiles: TypeAlias = "Callable[[DataFrame, str, ParquetTarget, BatchAttempt], int]"
"""Writes a frame to the folder of a URI, which does not exist; returns the number of rows that were written."""


_GLOB_CHARACTERS = re.compile(r"([\\*?{}\[\]])")


def literal_path(uri: str) -> str:
    """A URI for Spark's reader, which takes a path as a pattern."""
    return _GLOB_CHARACTERS.sub(r"\\\1", uri)


def write_parquet_files(frame: DataFrame, uri: str, target: ParquetTarget, attempt: BatchAttempt) -> int:
    """A ``WriteFiles``.  The rows are counted in the executors, independent of the files that the driver sees."""
    from pyspark.sql import Observation, functions

    observed = Observation(f"rows-{attempt.attempt}")
    frame = frame.observe(observed, functions.count(functions.lit(1)).alias("rows"))
    column = TIME_FOLDER_COLUMNS[target.partition_by_time]
    if column is not None:
        sql = time_folder_sql(target.partition_by_time, MESSAGE_TIME_COLUMN, attempt.started_ms)
        frame = frame.withColumn(column, functions.expr(sql)).drop(MESSAGE_TIME_COLUMN)
    writer = frame.write.option("compression", target.compression)
    writer = writer if column is None else writer.partitionBy(column)
    writer.parquet(uri)
    return int(observed.get["rows"])
