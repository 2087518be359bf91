"""The sink of a section of the pipeline file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.spark.pipeline.pipeline_spec import DeltaTarget, ParquetTarget, PostgresTarget, SinkTarget, TopicTarget
from bridge.spark.pipeline.sinks.sink import Sink
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NO_TOPIC = (
    "format topic: a pipeline does not write to topics in this release, since a topic has no commit of a batch; set "
    'the format parquet or postgres, or write with writeStream.format("zkconsumer") in a program'
)


def open_sink(target: SinkTarget, spark: SparkSession) -> Sink[Any]:
    """The sink of ``[sink]`` or ``[dead-letters]``; nothing is written and no server is called.

    Raises ``UsageError`` for a format, or a file system, that has no exactly-once commit here, and for a session that
    does not have the format.
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
            from bridge.spark.pipeline.sinks.delta_session import delta_session_problem
            from bridge.spark.pipeline.sinks.delta_sink import DeltaSink

            if (problem := delta_session_problem(spark)) is not None:
                raise UsageError(problem)
            return DeltaSink(spark, target)
        case TopicTarget():
            raise UsageError(NO_TOPIC)
