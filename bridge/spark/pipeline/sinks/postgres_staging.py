"""Loads the rows of a frame into the staging table of an attempt: each task by one COPY, which it commits.

Spark may run a task again, or twice at once, so the staging table may have the rows of several attempts of a task.
Each row has the id of the attempt; the driver gets the ids of the attempts that Spark has counted as successful, and
only their rows are moved to the target table.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from bridge.spark.pipeline.pipeline_spec import PostgresTarget
from bridge.spark.pipeline.sinks.postgres_connection import Connect, connect_postgres, postgres_errors
from bridge.spark.pipeline.sinks.postgres_types import TASK_COLUMN

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame

TaskRows: TypeAlias = tuple[tuple[int, int], ...]
"""The id of each attempt of a task that counts, and its number of rows."""

LoadRows: TypeAlias = "Callable[[DataFrame, StagingLoader], TaskRows]"


@dataclass(frozen=True, slots=True)
class StagingLoader:
    """What a task does.  ``table``: the staging table in the schema of the target; ``columns``: of the batches."""

    target: PostgresTarget
    table: str
    columns: tuple[str, ...]
    connect: Connect = connect_postgres

    def load(self, batches: Iterable[Any], task: int) -> int:
        """Copies Arrow batches in one transaction; returns the number of rows.  Without rows it does not connect."""
        from psycopg import sql

        from bridge.spark.pipeline.sinks.postgres_copy import csv_of

        filled = (batch for batch in batches if batch.num_rows)
        first = next(filled, None)
        if first is None:
            return 0
        names = sql.SQL(", ").join(map(sql.Identifier, (TASK_COLUMN, *self.columns)))
        table = sql.Identifier(self.target.schema, self.table)
        statement = sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(table, names)
        rows = int(first.num_rows)
        with postgres_errors(self.target), self.connect(self.target) as connection:
            connection.execute("SET LOCAL TimeZone = 'UTC'")
            with connection.cursor().copy(statement) as copy:
                copy.write(csv_of(first, task))
                for batch in filled:
                    copy.write(csv_of(batch, task))
                    rows += int(batch.num_rows)
        return rows


def load_frame(frame: DataFrame, loader: StagingLoader) -> TaskRows:
    """Runs the loader in the executors.  ``frame`` has the columns of the loader."""

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        from pyspark import TaskContext

        from bridge.spark.arrow_scalars import row_of_integers

        context = TaskContext.get()
        assert context is not None, "a task runs in an executor"
        task = context.taskAttemptId()
        yield row_of_integers(task=task, rows=loader.load(batches, task))

    loaded = frame.mapInArrow(run, "task bigint, rows bigint").collect()
    return tuple((row.task, row.rows) for row in loaded if row.rows)
