"""``DeltaTable``: a Delta table through Spark's public interface (SQL and the DataFrame writer)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from bridge.spark.pipeline.decode.decode_plan import first_line
from bridge.spark.pipeline.pipeline_spec import DeltaTarget
from bridge.spark.pipeline.sinks.delta_commits import LOG_FOLDER, REPLACE_WHERE, commit_versions
from bridge.spark.pipeline.sinks.delta_session import delta_session_problem
from bridge.spark.pipeline.sinks.folder_choice import open_folder
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.parquet_manifest import FOLDER, schema_problems, stored_schema
from zkconsumer.errors import PreconditionFailed, UsageError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

AppendRows: TypeAlias = "Callable[[DataFrame, DeltaTarget, Mapping[str, str]], None]"
"""Writes a frame to a table in one commit of Delta, with options of Delta's writer: appends it, or, with
``REPLACE_WHERE``, puts it in the place of the rows of this condition."""

REFUSED_FEATURES = ("catalogManaged", "catalogOwned-preview", "coordinatedCommits-preview")
"""Tables whose commits are not all in the log's folder: a catalog has the newest ones."""

TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"

_DETAIL_COLUMNS = ("format", "location", "properties", "tableFeatures")
_NOT_IN_NAMES = " ,;{}()\n\t="
"""Characters that Delta has in no name of a column, unless the table has a column mapping."""


def append_rows(frame: DataFrame, target: DeltaTarget, options: Mapping[str, str]) -> None:
    """An ``AppendRows``."""
    mode = "overwrite" if REPLACE_WHERE in options else "append"
    writer = frame.write.format("delta").mode(mode).options(**options)
    if target.path is not None:
        writer.save(target.path)
    else:
        assert target.table is not None, "a target has a path or a table"
        writer.saveAsTable(target.table)


def read_delta_table(spark: SparkSession, target: DeltaTarget) -> DataFrame:
    """The rows of a table, which exists."""
    if target.path is not None:
        return spark.read.format("delta").load(target.path)
    return spark.table(str(target.table))


class DeltaTable:
    """The table of a target; it may not exist yet.

    ``_store``: None before the first use of a table that exists: the folder of a table of the catalog is not known
    before.  A table does not change its folder.
    """

    def __init__(self, spark: SparkSession, target: DeltaTarget) -> None:
        self._spark = spark
        self._target = target
        self._store: FolderStore | None = None

    @property
    def name(self) -> str:
        """For errors."""
        return str(self._target.path if self._target.path is not None else self._target.table)

    @property
    def store(self) -> FolderStore:
        """The folder of the table.  Raises ``PreconditionFailed``: there is no table; ``UsageError``: of a file system
        where two drivers could both commit."""
        if self._store is None:
            if not self.exists():
                raise PreconditionFailed(f"{self.name} is not a Delta table; start the pipeline, which creates it")
            location = self._target.path if self._target.path is not None else self._detail()["location"]
            self._store = open_folder(location, self._spark)
        return self._store

    def exists(self) -> bool:
        """Whether there is a table, of Delta or not."""
        if self._target.path is not None:
            return bool(commit_versions(open_folder(self._target.path, self._spark).names(LOG_FOLDER)))
        return bool(self._spark.catalog.tableExists(str(self._target.table)))

    @property
    def schema(self) -> StructType:
        """The columns of the table, which exists."""
        return self._read().schema

    def count(self, condition: str) -> int:
        """The rows for which a condition of Spark SQL is true."""
        return int(self._read().where(condition).count())

    def problems(self, schema: StructType) -> Iterator[str]:
        """Why rows of this schema cannot be written, one line each; changes nothing."""
        from pyspark.errors import AnalysisException

        if (problem := delta_session_problem(self._spark)) is not None:
            yield problem
            return
        try:
            exists = self.exists()
            if exists and (problem := self._detail_problem()) is not None:
                yield problem
                return
            folder = self.store if exists else open_folder(self._place_of_new_table(), self._spark)
        except UsageError as error:
            yield str(error)
            return
        except AnalysisException as error:  # a database that does not exist, a name that is no name
            yield f"{self.name}: {first_line(str(error)).rstrip('. ')}; correct the name, or create what is missing"
            return
        if (problem := folder.access_problem()) is not None:
            yield problem
            return
        if not exists and self._target.path is not None and (others := self._other_files(folder)):
            yield f"{self.name}: this is no Delta table, and it has other files ({others[0]}); choose another folder"
        columns, table = stored_schema(schema.jsonValue()), None
        if exists:
            table = stored_schema(self._read().schema.jsonValue())
        else:
            for name in schema.names:
                if any(each in _NOT_IN_NAMES for each in name):
                    yield f"column {name!r}: a Delta table has no such name; rename it in [transform] select"
        yield from schema_problems(columns, table, "none", "the table, by ALTER TABLE ... ADD COLUMNS")

    def create(self, schema: StructType) -> None:
        """Creates the table with these columns, if it does not exist.  Another driver may do the same."""
        from pyspark.sql.types import StructType

        columns = StructType.fromJson(stored_schema(schema.jsonValue()))
        writer = self._spark.createDataFrame([], columns).write.format("delta").mode("ignore")
        if self._target.path is not None:
            writer.save(self._target.path)
        else:
            writer.saveAsTable(str(self._target.table))

    def _read(self) -> DataFrame:
        return read_delta_table(self._spark, self._target)

    def _detail(self) -> Mapping[str, Any]:
        """What Delta says about the table; the format of a table of another kind."""
        path = self._target.path
        name = str(self._target.table) if path is None else f"delta.{_identifier(path)}"
        row = self._spark.sql(f"DESCRIBE DETAIL {name}").select(*_DETAIL_COLUMNS).first()
        assert row is not None, "a table has details"
        return dict(row.asDict())

    def _detail_problem(self) -> str | None:
        detail = self._detail()
        if detail["format"] != "delta":
            return f"{self.name}: this is a table of the format {detail['format']}; choose another table"
        if managed := [each for each in REFUSED_FEATURES if each in (detail["tableFeatures"] or ())]:
            return (
                f"{self.name}: the table has the feature {managed[0]}, so its newest commits are not in its log; use a "
                "table without it"
            )
        if TRANSACTION_RETENTION in (detail["properties"] or {}):
            return (
                f"{self.name}: the table has {TRANSACTION_RETENTION}, so Delta forgets which batches it has, and could "
                f"write one twice; the operator must unset it (ALTER TABLE ... UNSET TBLPROPERTIES)"
            )
        return None

    def _place_of_new_table(self) -> str:
        """The folder of the table, or that of its database."""
        if self._target.path is not None:
            return self._target.path
        database, dot, _ = str(self._target.table).rpartition(".")
        catalog = self._spark.catalog
        return str(catalog.getDatabase(database if dot else catalog.currentDatabase()).locationUri)

    def _other_files(self, folder: FolderStore) -> list[str]:
        return [name for name in folder.names("") if name not in (FOLDER, LOG_FOLDER)]


def _identifier(text: str) -> str:
    return "`" + text.replace("`", "``") + "`"
