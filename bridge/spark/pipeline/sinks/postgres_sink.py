"""``PostgresSink``: a table of PostgreSQL; rows, ranges and counts of a batch are one transaction.

    <table>                      the rows
    <batch table>                one row for each batch: (query, batch) is the primary key; state reserved or committed;
                                 target is the table of its rows, since pipelines of a schema may share this one
    zkconsumer_staging_<digest>  the rows of one attempt, an unlogged table; its comment has the attempt

One attempt of a batch:

    write    1  create the staging table with its comment                               one transaction
             2  each task copies its rows                                               one transaction for each task
    commit   3  insert the row of the batch, if the key is free or reserved             one transaction, 3 to 6:
             4  insert the rows of the successful tasks from the staging table          all of it, or nothing
             5  drop the staging table
             6  commit

Of two drivers that commit the same batch the second waits in step 3 for the end of the first transaction, and then
finds the key.  What a driver does that was stopped (SIGSTOP) or cut off and continues later, while a second driver (B)
went on:

    before 1, 2 or 3      fills a table that no program reads; step 3 finds the row of B, and the table is dropped
    before 4, 5 or 6      the server has ended the transaction after ``idle_limit_ms`` (otherwise B would wait for it
                          in step 3); this driver gets an error, and nothing of it is in the tables
    in 6                  the server has the commit or not; B finds the row or the free key
    after 6               this driver's batch is the committed one
    and next batches      their ranges come from the checkpoint, which the two share; other ranges are an error

Leftovers (``remove_leftovers``): a staging table is dropped if its batch is committed, or if it is old; then step 4 of
its driver fails (``AttemptRemovedError``), and the transaction changes nothing.  A table that a task still writes is
locked: it is dropped the next time.

A server that crashed empties unlogged tables: then step 4 moves fewer rows than were staged, and the transaction ends
without an effect.  If the answer of step 6 is lost, the next attempt finds the batch.

A sink of ``replacing`` deletes the rows of the offsets of a replacement between 3 and 4: in the same transaction.

A commit is durable when it returns, also if the server has ``synchronous_commit = off``: Spark's checkpoint continues
after it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from bridge.spark.pipeline.lineage import (
    BatchAttempt,
    BatchLineage,
    LineageConflictError,
    abandoned,
    check_reservation,
    from_json,
    require_same_ranges,
    to_json,
)
from bridge.spark.pipeline.pipeline_spec import PostgresTarget
from bridge.spark.pipeline.sinks.postgres_connection import Connect, connect_postgres, postgres_errors
from bridge.spark.pipeline.sinks.postgres_staging import LoadRows, StagingLoader, TaskRows, load_frame
from bridge.spark.pipeline.sinks.postgres_types import (
    TASK_COLUMN,
    PostgresColumn,
    column_problems,
    postgres_columns,
    rejections_of,
)
from bridge.spark.pipeline.sinks.replaced_rows import OffsetColumns, ReplacedRows, unknown_rows_text
from bridge.spark.pipeline.sinks.row_rejection import RowRejection
from bridge.spark.pipeline.sinks.sink import (
    LEFTOVER_AGE_MS,
    AttemptRemovedError,
    CommitOutcome,
    SinkUnavailableError,
    StagedBatch,
    check_staged,
)
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from psycopg import Connection
    from psycopg.sql import Composed
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

STAGING_PREFIX = "zkconsumer_staging_"

IDLE_LIMIT_MS = 60_000
"""How long a transaction of a stopped driver may block another one."""

LOCK_LIMIT_MS = 2_000
"""How long the removal of a leftover waits for a task that writes it."""

PAGE_ROWS = 1_000
"""How many lineages are read at once."""

CREATE_TRIES_MAX = 3
"""CREATE TABLE IF NOT EXISTS fails if another transaction creates the table at the same moment."""


class PostgresSink:
    """A ``Sink`` of a table of PostgreSQL."""

    def __init__(
        self,
        target: PostgresTarget,
        connect: Connect = connect_postgres,
        load: LoadRows = load_frame,
        idle_limit_ms: int = IDLE_LIMIT_MS,
        replaced: ReplacedRows | None = None,
    ) -> None:
        self._replaced = replaced
        self._target = target
        self._connect = connect
        self._load = load
        self._idle_limit_ms = idle_limit_ms

    def replacing(self, replaced: ReplacedRows) -> PostgresSink:
        """The same sink; the commit of a replacement deletes the rows of its offsets.

        Raises ``PreconditionFailed`` if the table has a row whose offset is not known.
        """
        columns = replaced.columns
        with self._transaction() as connection:
            statement = "SELECT 1 FROM {table} WHERE {topic} IS NULL OR {partition} IS NULL OR {offset} IS NULL LIMIT 1"
            if connection.execute(self._row_statement(statement, columns)).fetchone() is not None:
                raise PreconditionFailed(unknown_rows_text(self._target.table, columns))
        return PostgresSink(self._target, self._connect, self._load, self._idle_limit_ms, replaced)

    @property
    def needs_message_time(self) -> bool:
        return False

    @property
    def needs_message_place(self) -> bool:
        return False

    def check(self, schema: StructType) -> list[str]:
        json_schema = schema.jsonValue()
        if problems := list(column_problems(json_schema)):
            return problems
        columns = postgres_columns(json_schema)
        try:
            with self._transaction() as connection:
                problems = list(self._table_problems(connection, columns))
                connection.rollback()
        except (UsageError, SinkUnavailableError) as error:
            return [str(error)]
        return problems

    def prepare(self, schema: StructType) -> None:
        if problems := self.check(schema):
            raise PreconditionFailed("\n".join(problems))
        columns = postgres_columns(schema.jsonValue())
        statements = (
            self._statement("CREATE TABLE IF NOT EXISTS {table} ({columns})", columns),
            self._statement(
                "CREATE TABLE IF NOT EXISTS {batches} (query text NOT NULL, batch bigint NOT NULL, "
                "target text NOT NULL, state text NOT NULL CHECK (state IN ('reserved', 'committed')), "
                "lineage jsonb NOT NULL, changed timestamptz NOT NULL DEFAULT now(), PRIMARY KEY (query, batch))"
            ),
        )
        for left in reversed(range(CREATE_TRIES_MAX)):
            try:
                with self._transaction() as connection:
                    for statement in statements:
                        connection.execute(statement)
                break
            except PreconditionFailed:
                if not left:
                    raise
        # Another driver may have created the table with other columns.
        if problems := self.check(schema):
            raise PreconditionFailed("\n".join(problems))

    def rejections(self, schema: StructType) -> tuple[RowRejection, ...]:
        return rejections_of(postgres_columns(schema.jsonValue()))

    def committed(self, query: str, batch: int) -> BatchLineage | None:
        with self._transaction() as connection:
            return self._stored(connection, query, batch, "committed")

    def write(self, frame: DataFrame, attempt: BatchAttempt) -> StagedBatch[StagedRows]:
        columns = postgres_columns(frame.schema.jsonValue())
        staging = staging_table(attempt)
        comment = json.dumps([self._target.batch_table, attempt.query, attempt.batch, attempt.started_ms])
        with self._transaction() as connection:
            statement = "CREATE UNLOGGED TABLE {staging} ({task} bigint NOT NULL, {columns})"
            connection.execute(self._statement(statement, columns, staging))
            connection.execute(self._statement("COMMENT ON TABLE {staging} IS {text}", columns, staging, comment))
        loader = StagingLoader(self._target, staging, tuple(each.name for each in columns), self._connect)
        tasks = self._load(frame.selectExpr(*(each.expression for each in columns)), loader)
        return StagedBatch(attempt, sum(rows for _, rows in tasks), StagedRows(tuple(columns), tasks))

    def commit(self, staged: StagedBatch[StagedRows], lineage: BatchLineage) -> CommitOutcome:
        check_staged(staged, lineage)
        columns, staging = staged.content.columns, staging_table(staged.attempt)
        with self._transaction() as connection:
            connection.execute(
                "SELECT set_config('synchronous_commit', 'on', true) "
                "WHERE current_setting('synchronous_commit') = 'off'"
            )
            inserted = connection.execute(
                self._statement(
                    "INSERT INTO {batches} AS stored (query, batch, target, state, lineage) "
                    "VALUES (%s, %s, %s, 'committed', %s) "
                    "ON CONFLICT (query, batch) DO UPDATE SET state = 'committed', lineage = excluded.lineage, "
                    "changed = now() WHERE stored.state = 'reserved' "
                    "AND stored.lineage->'ranges' = excluded.lineage->'ranges' "
                    "AND stored.lineage->'kind' = excluded.lineage->'kind'"
                ),
                [*lineage.key, self._target.table, to_json(lineage)],
            )
            if not inserted.rowcount:
                stored = self._stored(connection, *lineage.key)
                assert stored is not None, "the key is there"
                # Also of a reservation: with the same ranges it would have become the batch.
                require_same_ranges(stored, lineage)
                if stored.attempt == lineage.attempt:
                    return CommitOutcome.COMMITTED  # the answer to its commit was lost
                connection.execute(self._statement("DROP TABLE IF EXISTS {staging}", staging=staging))
                return CommitOutcome.ALREADY_COMMITTED
            deleted = self._delete_replaced(connection, lineage)
            self._move_rows(connection, columns, staging, staged, lineage)
        if self._replaced is not None:
            self._replaced.on_deleted(deleted)
        return CommitOutcome.COMMITTED

    def commit_without_rows(self, lineage: BatchLineage) -> BatchLineage:
        statement = (
            "INSERT INTO {batches} (query, batch, target, state, lineage) VALUES (%s, %s, %s, 'committed', %s) "
            "ON CONFLICT (query, batch) DO NOTHING"
        )
        with self._transaction() as connection:
            connection.execute(self._statement(statement), [*lineage.key, self._target.table, to_json(lineage)])
            stored = self._stored(connection, *lineage.key)
        assert stored is not None, "the key is there"
        return stored

    def lineages(self) -> Iterator[BatchLineage]:
        return self._all("committed")

    def reservations(self) -> Iterator[BatchLineage]:
        return self._all("reserved")

    def reserve(self, wanted: BatchLineage, positions: Mapping[TopicPartition, int]) -> None:
        with self._transaction() as connection:
            # Commits and other reservations wait, so nothing changes between the check and the row.
            connection.execute(self._statement("LOCK TABLE {batches} IN SHARE ROW EXCLUSIVE MODE"))
            if (found := self._row(connection, *wanted.key)) is not None:
                _, table, stored = found
                if table != self._target.table:
                    raise LineageConflictError(self._of_another_table(stored, table))
                require_same_ranges(stored, wanted)
                return
            committed, reserved = (list(self._read_all(connection, each)) for each in ("committed", "reserved"))
            check_reservation(wanted, committed, reserved, positions)
            statement = (
                "INSERT INTO {batches} (query, batch, target, state, lineage) VALUES (%s, %s, %s, 'reserved', %s)"
            )
            connection.execute(self._statement(statement), [*wanted.key, self._target.table, to_json(wanted)])

    def release(self, query: str, batch: int) -> None:
        statement = (
            "UPDATE {batches} SET state = 'committed', lineage = %s, changed = now() "
            "WHERE query = %s AND batch = %s AND state = 'reserved'"
        )
        with self._transaction() as connection:
            stored = self._stored(connection, query, batch, "reserved")
            if stored is not None:
                connection.execute(self._statement(statement), [to_json(abandoned(stored)), query, batch])

    def remove_leftovers(self, now_ms: int, age_ms: int = LEFTOVER_AGE_MS) -> int:
        with self._transaction() as connection:
            found = connection.execute(
                "SELECT c.relname, obj_description(c.oid, 'pg_class') FROM pg_class c "
                "JOIN pg_namespace n ON n.oid = c.relnamespace "
                "WHERE n.nspname = %s AND starts_with(c.relname, %s) AND c.relkind = 'r' ORDER BY 1",
                [self._target.schema, STAGING_PREFIX],
            ).fetchall()
        return sum(self._drop_if_dead(table, comment, now_ms - age_ms) for table, comment in found)

    def count_rows(self, time_limit_ms: int) -> int | None:
        """The rows of the table, also those of other programs; None: there is no table, or the server needs longer."""
        from psycopg import errors

        with self._transaction() as connection:
            connection.execute(f"SET LOCAL statement_timeout = {time_limit_ms}")
            try:
                [count] = connection.execute(self._statement("SELECT count(*) FROM {table}")).fetchone() or [0]
            except (errors.UndefinedTable, errors.QueryCanceled):
                connection.rollback()
                return None
        return int(count)

    def _drop_if_dead(self, staging: str, comment: str | None, oldest_ms: int) -> bool:
        batch_table, query, batch, started_ms = json.loads(comment or '["", "", 0, 0]')
        if batch_table != self._target.batch_table:
            return False  # of another pipeline in the same schema
        if started_ms >= oldest_ms and self.committed(query, batch) is None:
            return False
        from psycopg import errors

        with self._transaction() as connection:
            connection.execute(f"SET LOCAL lock_timeout = {LOCK_LIMIT_MS}")
            try:
                connection.execute(self._statement("DROP TABLE IF EXISTS {staging}", staging=staging))
            except errors.LockNotAvailable:
                connection.rollback()
                return False
        return True

    # --- statements -------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[Connection[Any]]:
        """One transaction on a connection of its own; an error ends it without an effect."""
        with postgres_errors(self._target), self._connect(self._target) as connection:
            connection.execute(f"SET LOCAL idle_in_transaction_session_timeout = {self._idle_limit_ms}")
            yield connection

    def _statement(
        self, text: str, columns: Sequence[PostgresColumn] = (), staging: str = "", literal: str = ""
    ) -> Composed:
        """The statement with quoted names.  ``columns``: names with types, ``names``: only the names."""
        from psycopg import sql

        target = self._target
        typed = [sql.SQL("{} {}").format(sql.Identifier(each.name), sql.SQL(each.sql)) for each in columns]
        return sql.SQL(text).format(
            table=sql.Identifier(target.schema, target.table),
            batches=sql.Identifier(target.schema, target.batch_table),
            staging=sql.Identifier(target.schema, staging) if staging else sql.SQL(""),
            task=sql.Identifier(TASK_COLUMN),
            columns=sql.SQL(", ").join(typed),
            names=sql.SQL(", ").join(sql.Identifier(each.name) for each in columns),
            text=sql.Literal(literal),
        )

    def _row_statement(self, text: str, columns: OffsetColumns) -> Composed:
        """A statement about the table with the names of its columns of offsets."""
        from psycopg import sql

        return sql.SQL(text).format(
            table=sql.Identifier(self._target.schema, self._target.table),
            topic=sql.Identifier(columns.topic),
            partition=sql.Identifier(columns.partition),
            offset=sql.Identifier(columns.offset),
        )

    def _delete_replaced(self, connection: Connection[Any], lineage: BatchLineage) -> int:
        """Deletes the rows of the offsets of a replacement; returns their number.

        The dead letters of a replacement are added to those of older batches, whose keys are others.
        """
        if lineage.kind != "replace" or self._replaced is None:
            return 0
        statement = self._row_statement(
            "DELETE FROM {table} WHERE {topic} = %s AND {partition} = %s AND {offset} >= %s AND {offset} < %s",
            self._replaced.columns,
        )
        return sum(
            connection.execute(statement, [tp.topic, tp.partition, first, end]).rowcount
            for tp, pairs in lineage.ranges.items()
            for first, end in pairs
        )

    def _move_rows(
        self,
        connection: Connection[Any],
        columns: Sequence[PostgresColumn],
        staging: str,
        staged: StagedBatch[StagedRows],
        lineage: BatchLineage,
    ) -> None:
        from psycopg import errors

        statement = "INSERT INTO {table} ({names}) SELECT {names} FROM {staging} WHERE {task} = ANY(%s)"
        tasks = [task for task, _ in staged.content.tasks]
        try:
            moved = connection.execute(self._statement(statement, columns, staging), [tasks]).rowcount
        except errors.UndefinedTable as error:
            raise AttemptRemovedError(
                f"attempt {lineage.attempt} of {lineage.name} was removed as a leftover before its commit (or the "
                "table was dropped); start the query again, the batch gets a new attempt"
            ) from error
        if moved != staged.rows:
            raise SinkUnavailableError(
                f"the staging table {staging} has {moved} rows of {staged.rows} that were written: the server crashed "
                "after that, or a trigger of the table removes rows; nothing was written. Start the query again"
            )
        connection.execute(self._statement("DROP TABLE {staging}", staging=staging))

    def _stored(
        self, connection: Connection[Any], query: str, batch: int, state: str | None = None
    ) -> BatchLineage | None:
        found = self._row(connection, query, batch)
        return None if found is None or state not in (None, found[0]) else found[2]

    def _row(self, connection: Connection[Any], query: str, batch: int) -> tuple[str, str, BatchLineage] | None:
        """The state of a key, the table of its rows, and its lineage."""
        statement = "SELECT state, target, lineage::text FROM {batches} WHERE query = %s AND batch = %s"
        row = connection.execute(self._statement(statement), [query, batch]).fetchone()
        if row is None:
            return None
        return row[0], row[1], from_json(row[2], f"{self._target.batch_table}, batch {batch} of query {query}")

    def _of_another_table(self, stored: BatchLineage, table: str) -> str:
        """The error for the key of a command that is taken: the ids of commands are made from the pipeline's name."""
        return (
            f"the table of batches {self._target.batch_table} has {stored.name} already, with rows of the table "
            f"{table}: another pipeline has the same name, {stored.pipeline}, or this one had that table before. "
            "Nothing was written. The operator must give this pipeline another name ([pipeline] name)"
        )

    def _all(self, state: str) -> Iterator[BatchLineage]:
        """Page by page, each in a transaction of its own: neither memory nor a transaction grows with the table."""
        after: tuple[str, int] | None = "", -1
        while after is not None:
            with self._transaction() as connection:
                found = connection.execute(
                    "SELECT to_regclass(format('%%I.%%I', %s::text, %s::text))",
                    [self._target.schema, self._target.batch_table],
                ).fetchone()
                if found is None or found[0] is None:
                    return  # no pipeline has begun
                page = list(self._read_all(connection, state, after, PAGE_ROWS))
            yield from page
            after = page[-1].key if len(page) == PAGE_ROWS else None

    def _read_all(
        self, connection: Connection[Any], state: str, after: tuple[str, int] = ("", -1), rows_max: int | None = None
    ) -> Iterator[BatchLineage]:
        """The lineages of the target after this key, at most so many."""
        statement = (
            "SELECT query, batch, lineage::text FROM {batches} WHERE target = %s AND state = %s "
            "AND (query, batch) > (%s, %s) ORDER BY query, batch LIMIT %s"
        )
        values = [self._target.table, state, *after, rows_max]
        for query, batch, text in connection.execute(self._statement(statement), values):
            yield from_json(text, f"{self._target.batch_table}, batch {batch} of query {query}")

    def _table_problems(self, connection: Connection[Any], columns: Sequence[PostgresColumn]) -> Iterator[str]:
        """Why the rows do not fit the table, if it exists; PostgreSQL plans an INSERT of each column, and runs none."""
        from psycopg import Error

        target = self._target
        if connection.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", [target.schema]).fetchone() is None:
            yield f"the database has no schema {target.schema}; the operator must create it"
            return
        stored = connection.execute(
            "SELECT a.attname, a.attnotnull AND NOT a.atthasdef AND a.attidentity = '' FROM pg_attribute a "
            "JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace "
            "WHERE n.nspname = %s AND c.relname = %s AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum",
            [target.schema, target.table],
        ).fetchall()
        names = {name for name, _ in stored}
        for column in columns if stored else ():
            if column.name not in names:
                yield f"column {column.name}: the table does not have it; the operator must add it, or leave it out"
                continue
            try:
                with connection.transaction():
                    statement = "EXPLAIN INSERT INTO {table} ({names}) SELECT NULL::" + column.sql
                    connection.execute(self._statement(statement, [column]))
            except Error as error:
                why = " ".join((error.diag.message_primary or str(error)).split())
                yield f"column {column.name}: {why}; cast it in [transform] select"
        ours = {each.name for each in columns}
        for name, is_needed in stored:
            if is_needed and name not in ours:
                yield f"column {name}: the table needs a value (NOT NULL without a default), and the rows have none"


@dataclass(frozen=True, slots=True)
class StagedRows:
    """What a staging table has: ``tasks`` are those whose rows count."""

    columns: tuple[PostgresColumn, ...]
    tasks: TaskRows


def staging_table(attempt: BatchAttempt) -> str:
    """The name of the staging table of an attempt; names of PostgreSQL are short, and ids need not be."""
    text = f"{attempt.query}~{attempt.batch}~{attempt.attempt}"
    return STAGING_PREFIX + sha256(text.encode()).hexdigest()[:32]
