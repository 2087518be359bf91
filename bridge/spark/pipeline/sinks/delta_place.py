"""The folder of a Delta table, for commands without Spark.

    [sink] path = "..."     it is in the pipeline file
    [sink] table = "..."    only Spark's catalog has it, so a pipeline that starts stores it beside its checkpoint:

        <checkpoint>-lineage/<section>/delta-table      the URI of the folder, one line

The file is written again if the table has another folder: it was dropped and created again.  It is not written where
the checkpoint is in a file system without a create-if-absent.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bridge.spark.pipeline.pipeline_spec import DeltaTarget
from bridge.spark.pipeline.sinks.folder_choice import open_folder
from bridge.spark.pipeline.sinks.folder_files import create_file
from bridge.spark.pipeline.sinks.stored_delta_table import StoredDeltaTable
from zkconsumer.errors import PreconditionFailed, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PLACE_FILE = "delta-table"


def store_place(target: DeltaTarget, uri: str, spark: SparkSession) -> None:
    """Stores the folder of a table of a catalog.  ``uri``: of the folder."""
    if target.place_folder is None:
        return
    try:
        folder = open_folder(target.place_folder, spark)
    except UsageError:
        return
    data = f"{uri}\n".encode()
    try:
        if folder.read(PLACE_FILE) == data:
            return
        folder.remove(PLACE_FILE)
    except FileNotFoundError:
        pass
    create_file(folder, PLACE_FILE, data)


def open_stored_table(target: DeltaTarget) -> StoredDeltaTable:
    """The table, which need not exist.  Raises ``UsageError`` for a folder that is not local, and
    ``PreconditionFailed`` if the folder of a table of a catalog was not stored."""
    place = target.path
    if place is None:
        assert target.place_folder is not None, "a table of a catalog has a place"
        folder = open_folder(target.place_folder, None)
        try:
            place = folder.read(PLACE_FILE).decode("utf-8").strip()
        except FileNotFoundError:
            raise PreconditionFailed(
                f"the folder of the Delta table {target.table} is not known without Spark: {folder.uri(PLACE_FILE)} "
                "does not exist. Start the pipeline, which writes it; or set path to the folder, instead of table"
            ) from None
    return StoredDeltaTable(open_folder(place, None))
