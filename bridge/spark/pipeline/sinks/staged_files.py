"""Writes the rows of an attempt as parquet files into its staging folder, and counts them twice."""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.spark.pipeline.lineage import BatchAttempt
from bridge.spark.pipeline.pipeline_spec import ParquetTarget
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.parquet_manifest import ManifestFile, staging_folder
from bridge.spark.pipeline.sinks.parquet_writing import WriteFiles
from bridge.spark.pipeline.sinks.sink import SinkUnavailableError, StagedBatch

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

StagedFiles = tuple[ManifestFile, ...]
"""Files below the staging folder, with their paths there; each has rows."""


def write_staged_files(
    store: FolderStore, write_files: WriteFiles, frame: DataFrame, target: ParquetTarget, attempt: BatchAttempt
) -> StagedBatch[StagedFiles]:
    """Raises ``SinkUnavailableError`` if the driver does not find the rows that the executors have written."""
    folder = staging_folder(attempt)
    written = write_files(frame, store.uri(folder), target, attempt)
    files = [
        ManifestFile(path, store.parquet_rows(f"{folder}/{path}"), size) for path, size in store.data_files(folder)
    ]
    rows = sum(each.rows for each in files)
    if rows != written:
        raise SinkUnavailableError(
            f"{store.uri('')}: the executors wrote {written} rows, and the driver finds {rows}. The operator must "
            "choose a folder that the driver and all executors share (a local folder only with local Spark)"
        )
    return StagedBatch(attempt, rows, tuple(each for each in files if each.rows))
