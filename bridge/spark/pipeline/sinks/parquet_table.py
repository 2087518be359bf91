"""Reads a table of ``ParquetSink`` by its manifests: exactly the rows of committed batches.

    from bridge.spark.pipeline.sinks.parquet_table import read_parquet_table
    read_parquet_table(spark, "data/rows").groupBy("country").count().show()

A program without Spark reads the files that ``committed_files`` returns.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.spark.pipeline.sinks.folder_choice import open_folder
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.parquet_manifest import SCHEMA_FILE
from bridge.spark.pipeline.sinks.parquet_sink import read_manifests, read_stored_schema
from bridge.spark.pipeline.sinks.parquet_writing import literal_path
from zkconsumer.errors import PreconditionFailed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def read_parquet_table(spark: SparkSession, path: str) -> DataFrame:
    """The rows of all batches that are committed now; later batches need another call.

    The columns are those of the table's schema; without a batch there are no rows.  Raises ``PreconditionFailed`` if
    the folder is not a table of a pipeline.
    """
    from pyspark.sql.types import StructType

    store = open_folder(path, spark, allows_unsafe_commit=True)
    stored = read_stored_schema(store)
    if stored is None:
        raise PreconditionFailed(
            f"{path} is not a table of a pipeline: it has no {SCHEMA_FILE}. Correct the path, or run the pipeline first"
        )
    schema = StructType.fromJson(stored)
    files = committed_files(store)
    if not files:
        return spark.createDataFrame([], schema)
    return spark.read.schema(schema).parquet(*map(literal_path, files))


def committed_files(store: FolderStore) -> list[str]:
    """The URIs of the files of all committed batches."""
    return [store.uri(file.path) for manifest in read_manifests(store) for file in manifest.files]
