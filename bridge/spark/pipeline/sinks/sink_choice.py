"""The sink of a section of the pipeline file."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, Protocol

from bridge.spark.pipeline.lineage import BatchLineage
from bridge.spark.pipeline.pipeline_spec import DeltaTarget, ParquetTarget, PostgresTarget, SinkTarget, TopicTarget
from bridge.spark.pipeline.sinks.replaced_rows import ReplacedRows
from bridge.spark.pipeline.sinks.sink import Sink
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bridge.spark.pipeline.sinks.folder_store import FolderStore


NO_REPLACE = (
    "a replacement needs a table whose rows can be deleted in the commit of others: [sink] format delta or postgres; "
    "files of parquet are never changed. Nothing was changed. Read only what no batch has read, or load a new folder "
    "with a new checkpoint"
)


def replacing(sink: Sink[Any]) -> Callable[[ReplacedRows], Sink[Any]]:
    """How to open the sink for replacements.  Raises ``UsageError`` for a sink that cannot delete rows."""
    from bridge.spark.pipeline.sinks.delta_sink import DeltaSink
    from bridge.spark.pipeline.sinks.postgres_sink import PostgresSink

    if not isinstance(sink, DeltaSink | PostgresSink):
        raise UsageError(NO_REPLACE)
    return sink.replacing


class StoredBatches(Protocol):
    """What a command without Spark reads of a target."""

    def lineages(self) -> Iterator[BatchLineage]:
        """As ``Sink.lineages``."""

    def reservations(self) -> Iterator[BatchLineage]:
        """As ``Sink.reservations``."""


def open_stored(target: SinkTarget) -> StoredBatches:
    """The batches of ``[sink]`` or ``[dead-letters]``, without Spark; nothing is written.

    Raises ``UsageError`` for a folder that is not local; for a Delta table of a catalog also ``PreconditionFailed``,
    if no pipeline has stored its folder.
    """
    if isinstance(target, DeltaTarget):
        from bridge.spark.pipeline.sinks.delta_place import open_stored_table

        return open_stored_table(target)
    return open_sink(target, None)


def open_sink(target: SinkTarget, spark: SparkSession | None) -> Sink[Any]:
    """The sink of ``[sink]`` or ``[dead-letters]``; nothing is written and no server is called.

    ``spark`` None: for ``open_stored``.

    Raises ``UsageError`` for a file system without a create-if-absent, and for a session that does not have the format.
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

            assert spark is not None, "open_stored reads a Delta table without Spark"
            if (problem := delta_session_problem(spark)) is not None:
                raise UsageError(problem)
            return DeltaSink(spark, target)
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
