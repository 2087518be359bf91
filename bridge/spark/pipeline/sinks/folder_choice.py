"""Opens the ``FolderStore`` of a path, if its file system has a create-if-absent of complete files.

/data/rows, file:/data/rows     the local file system (a path without a scheme is local, also with fs.defaultFS)
hdfs://name-node/data/rows      HDFS
others                          refused: S3 has it with conditional puts only (depends on the client and its
                                configuration), and a rename there copies; Google Cloud Storage, Azure and others
                                were not tried
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from bridge.spark.pipeline.sinks.folder_store import FolderStore, LocalFolderStore
from bridge.spark.pipeline.toml_values import local_folder
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ATOMIC_SCHEMES = ("hdfs",)
"""Schemes of Hadoop with an atomic rename onto a free name, and an append that needs the file."""


def open_folder(path: str, spark: SparkSession | None, allows_unsafe_commit: bool = False) -> FolderStore:
    """``allows_unsafe_commit``: also file systems where two drivers may both commit a batch; for readers.

    ``spark`` None: only local folders, since Spark has the client of the others.  Raises ``UsageError``.
    """
    place = local_folder(path)
    if place is not None:
        return LocalFolderStore(place)
    scheme = path.partition(":")[0].lower()
    if scheme not in ATOMIC_SCHEMES and not allows_unsafe_commit:
        raise UsageError(
            f"{path}: the file system {scheme} has no atomic create-if-absent that was tried, so two drivers could "
            f"both commit a batch. Use a local folder or {', '.join(ATOMIC_SCHEMES)}, or the format postgres"
        )
    if spark is None:
        raise UsageError(
            f"{path}: this command works without Spark, and reads local folders only; mount or copy the folder"
        )
    context: Any = getattr(spark, "sparkContext", None) if _is_classic(spark) else None
    if context is None:
        raise UsageError(f"{path}: with Spark Connect only local folders of the server are supported; use file:/...")
    from bridge.spark.pipeline.sinks.hadoop_folder_store import HadoopFolderStore

    return HadoopFolderStore(path, context._gateway, context._jsc.hadoopConfiguration())


def _is_classic(spark: SparkSession) -> bool:
    """Whether the session is in this process; a session of Spark Connect is in a server."""
    return not type(spark).__module__.startswith("pyspark.sql.connect")
