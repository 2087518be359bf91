"""The sink of a section of the pipeline file."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bridge.spark.pipeline.pipeline_spec import DeltaTarget, ParquetTarget, PostgresTarget, SinkTarget, TopicTarget
from bridge.spark.pipeline.sinks.replaced_rows import ReplacedRows
from bridge.spark.pipeline.sinks.sink import Sink
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_DELTA = (
    "format delta: Delta 4.4.0 fits pyspark 4.2.0 and not 4.3, where it appends and then fails with NoSuchMethodError; "
    "this release does not write Delta tables. Use the format parquet or postgres"
)

NO_TOPIC = (
    "format topic: a pipeline does not write to topics in this release, since a topic has no commit of a batch; set "
    'the format parquet or postgres, or write with writeStream.format("zkconsumer") in a program'
)


NO_REPLACE = (
    "a replacement needs a table whose rows can be deleted in the commit of others: [sink] format postgres; files of "
    "parquet are never changed. Nothing was changed. Read only what no batch has read, or load a new folder "
    "with a new checkpoint"
)


def replacing(sink: Sink[Any]) -> Callable[[ReplacedRows], Sink[Any]]:
    """How to open the sink for replacements.  Raises ``UsageError`` for a sink that cannot delete rows."""
    from bridge.spark.pipeline.sinks.postgres_sink import PostgresSink

    if not isinstance(sink, PostgresSink):
        raise UsageError(NO_REPLACE)
    return sink.replacing


def open_sink(target: SinkTarget, spark: SparkSession) -> Sink[Any]:
    """The sink of ``[sink]`` or ``[dead-letters]``; nothing is written and no server is called.

    Raises ``UsageError`` for a format, or a file system, that has no exactly-once commit here.
    """
    match target:
        case ParquetTarget():
            from bridge.spark.pipeline.sinks.folder_choice import open_folder
            from bridge.spark.pipeline.sinks.parquet_sink import ParquetSink

            return ParquetSink(open_folder(target.path, spark), target)
        case PostgresTarget():
            from bridge.spark.pipeline.sinks.postgres_sink import PostgresSink

            return PostgresSink(target)
        case DeltaTarget():
            raise UsageError(NO_DELTA)
        case TopicTarget():
            raise UsageError(NO_TOPIC)
