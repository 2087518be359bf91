"""The sink of a section of the pipeline file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.spark.pipeline.pipeline_spec import DeltaTarget, ParquetTarget, PostgresTarget, SinkTarget, TopicTarget
from bridge.spark.pipeline.sinks.sink import Sink
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bridge.spark.pipeline.sinks.folder_store import FolderStore

NO_DELTA = (
    "format delta: Delta 4.4.0 fits pyspark 4.2.0 and not 4.3, where it appends and then fails with NoSuchMethodError; "
    "this release does not write Delta tables. Use the format parquet or postgres"
)


def open_sink(target: SinkTarget, spark: SparkSession | None) -> Sink[Any]:
    """The sink of ``[sink]`` or ``[dead-letters]``; nothing is written and no server is called.

    ``spark`` None: a sink that only reads what is stored; folders must be local.

    Raises ``UsageError`` for a format that is not written here, and for a file system without a create-if-absent.
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
            from bridge.spark.pipeline.sinks.lineage_folder import LineageFolder
            from bridge.spark.pipeline.sinks.topic_sink import TopicSink

            return TopicSink(LineageFolder(_lineage_store(target.lineage_path, spark)), target)


def _lineage_store(path: str, spark: SparkSession | None) -> FolderStore:
    from bridge.spark.pipeline.sinks.folder_choice import open_folder

    try:
        return open_folder(path, spark)
    except UsageError as error:
        raise UsageError(f"format topic has its lineage beside the checkpoint, which must be there: {error}") from None
