"""The sink of a section of the pipeline file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.spark.pipeline.pipeline_spec import ParquetTarget, SinkTarget
from bridge.spark.pipeline.sinks.folder_choice import open_folder
from bridge.spark.pipeline.sinks.parquet_sink import ParquetSink
from bridge.spark.pipeline.sinks.sink import Sink
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def open_sink(target: SinkTarget, spark: SparkSession) -> Sink[Any]:
    """The sink of ``[sink]`` or ``[dead-letters]``; nothing is written and no server is called.

    Raises ``UsageError`` for a format, or a file system, without exactly-once commits here.
    """
    match target:
        case ParquetTarget():
            return ParquetSink(open_folder(target.path, spark), target)
    name = type(target).__name__.removesuffix("Target").lower()
    raise UsageError(f'format = "{name}": this release writes Parquet files only; set format = "parquet"')
