"""Reads dead letters back: their places, one after the other, and the records of some of them as a frame.

    places()              the place of each letter, sorted by topic, partition and offset
    records(letters)      the columns of format("zkconsumer") of these letters, each once

A table of parquet files is read by its manifests, a Delta table by Delta, one of PostgreSQL by psycopg: the places on
the driver in pages, the records in the executors, which read the password where they connect (``SecretReference``).
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from bridge.spark.pipeline.pipeline_spec import DeltaTarget, ParquetTarget, PipelineSpec, PostgresTarget, TopicTarget
from bridge.spark.pipeline.replay.letter_choice import LetterPlace
from bridge.spark.pipeline.sinks.delta_table import read_delta_table
from bridge.spark.pipeline.sinks.parquet_table import read_parquet_table
from bridge.spark.pipeline.sinks.postgres_connection import Connect, connect_postgres, postgres_errors
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RECORD_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType", "headers")
"""The columns of a dead letter that are those of the source."""

KEY_COLUMNS = ("topic", "partition", "offset", "query", "batch")
"""No two dead letters have the same values of these."""

KEY_SCHEMA = "topic string, partition int, offset bigint, query string, batch bigint"
RECORD_SCHEMA = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int, "
    "headers array<struct<key:string,value:binary>>"
)

PAGE_LETTERS = 50_000
"""How many places are read from PostgreSQL at once."""

FETCHED_ROWS = 200
"""How many whole records an executor reads from PostgreSQL at once."""

LETTERS_OF_A_TASK = 1_000


class DeadLetterReader(Protocol):
    """The dead letters of a pipeline."""

    def places(self) -> Iterator[LetterPlace]:
        """Every dead letter, sorted by topic, partition and offset."""

    def records(self, letters: Sequence[LetterPlace]) -> DataFrame:
        """The records of these letters, with ``RECORD_COLUMNS``."""


def open_dead_letters(spec: PipelineSpec, spark: SparkSession) -> DeadLetterReader:
    """The reader of ``[dead-letters]``.  Raises ``UsageError`` if there is no table of dead letters."""
    match spec.dead_letters:
        case ParquetTarget(path=path):
            return StoredDeadLetters(spark, read_parquet_table(spark, path))
        case DeltaTarget() as target:
            return StoredDeadLetters(spark, read_delta_table(spark, target))
        case PostgresTarget() as target:
            return PostgresDeadLetters(spark, target)
        case None:
            words = "the pipeline has no place for dead letters, so there is none to replay"
        case _:
            words = (
                "dead letters are replayed from a table, and a topic is none; read the topic by a pipeline of its own"
            )
    raise UsageError(f"{spec.file}: [dead-letters] format: {words}")


def letter_places(spec: PipelineSpec, spark: SparkSession, query: str, batch: int) -> list[LetterPlace] | None:
    """The dead letters of one batch; None: they are in a topic.  Reads the places of the whole table."""
    if isinstance(spec.dead_letters, TopicTarget):
        return None
    return [each for each in open_dead_letters(spec, spark).places() if each.key == (query, batch)]


class StoredDeadLetters:
    """Of a table that Spark reads.  ``table``: a frame of it."""

    def __init__(self, spark: SparkSession, table: DataFrame) -> None:
        self._spark = spark
        self._table = table

    def places(self) -> Iterator[LetterPlace]:
        """See ``DeadLetterReader``."""
        places = self._table.selectExpr(*KEY_COLUMNS, "stage", "unix_millis(time) as time_ms")
        for row in places.orderBy("topic", "partition", "offset").toLocalIterator():
            yield LetterPlace(
                TopicPartition(row.topic, row.partition), row.offset, row.query, row.batch, row.stage, row.time_ms
            )

    def records(self, letters: Sequence[LetterPlace]) -> DataFrame:
        """See ``DeadLetterReader``."""
        from pyspark.sql.functions import broadcast

        keys = self._spark.createDataFrame(_keys(letters), KEY_SCHEMA)
        found = self._table.join(broadcast(keys), list(KEY_COLUMNS), "left_semi")
        return found.select(*RECORD_COLUMNS)


class PostgresDeadLetters:
    """Of a table of ``PostgresSink``."""

    def __init__(self, spark: SparkSession, target: PostgresTarget, connect: Connect = connect_postgres) -> None:
        self._spark = spark
        self._target = target
        self._connect = connect

    def places(self) -> Iterator[LetterPlace]:
        """See ``DeadLetterReader``."""
        after: tuple[Any, ...] = ("", -1, -1, "", -1)
        while True:
            page = self._page(after)
            for topic, partition, offset, query, batch, stage, time in page:
                yield LetterPlace(
                    TopicPartition(topic, partition), offset, query, batch, stage, round(time.timestamp() * 1_000)
                )
            if len(page) < PAGE_LETTERS:
                return
            after = page[-1][:5]

    def records(self, letters: Sequence[LetterPlace]) -> DataFrame:
        """See ``DeadLetterReader``."""
        keys = self._spark.createDataFrame(_keys(letters), KEY_SCHEMA)
        tasks = -(-len(letters) // LETTERS_OF_A_TASK)
        return keys.repartition(tasks).mapInArrow(PostgresLetterLoader(self._target, self._connect), RECORD_SCHEMA)

    def _page(self, after: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        from psycopg import sql

        statement = sql.SQL(
            'SELECT topic, partition, "offset", query, batch, stage, time FROM {table} '
            'WHERE (topic COLLATE "C", partition, "offset", query COLLATE "C", batch) > (%s, %s, %s, %s, %s) '
            'ORDER BY topic COLLATE "C", partition, "offset", query COLLATE "C", batch LIMIT %s'
        ).format(table=sql.Identifier(self._target.schema, self._target.table))
        with postgres_errors(self._target), self._connect(self._target) as connection:
            page: list[tuple[Any, ...]] = connection.execute(statement, [*after, PAGE_LETTERS]).fetchall()
        return page


@dataclass(frozen=True, slots=True)
class PostgresLetterLoader:
    """A function for ``mapInArrow``: keys of letters to their records."""

    target: PostgresTarget
    connect: Connect = connect_postgres

    def __call__(self, batches: Iterable[Any]) -> Iterator[Any]:
        from psycopg import sql

        names = sql.SQL(", ").join(sql.Identifier("letters", name) for name in RECORD_COLUMNS)
        statement = sql.SQL(
            "SELECT {names} FROM unnest(%s::text[], %s::integer[], %s::bigint[], %s::text[], %s::bigint[]) "
            'AS wanted (topic, partition, "offset", query, batch) '
            'JOIN {table} AS letters USING (topic, partition, "offset", query, batch)'
        ).format(names=names, table=sql.Identifier(self.target.schema, self.target.table))
        for batch in batches:
            if not batch.num_rows:
                continue
            wanted = [batch.column(name).to_pylist() for name in KEY_COLUMNS]
            with (
                postgres_errors(self.target),
                self.connect(self.target) as connection,
                connection.cursor("zkconsumer_letters") as cursor,
            ):
                cursor.execute(statement, wanted)
                while rows := cursor.fetchmany(FETCHED_ROWS):
                    yield _record_batch(rows)


def _keys(letters: Iterable[LetterPlace]) -> list[tuple[Any, ...]]:
    return [(each.tp.topic, each.tp.partition, each.offset, each.query, each.batch) for each in letters]


def _record_batch(rows: Sequence[tuple[Any, ...]]) -> Any:
    """Rows with ``RECORD_COLUMNS`` as Arrow; the table has headers as JSON, with values in base64."""
    import pyarrow as pa

    header = pa.struct([("key", pa.string()), ("value", pa.binary())])
    types = (
        pa.binary(), pa.binary(), pa.string(), pa.int32(), pa.int64(), pa.timestamp("us", "UTC"), pa.int32(),
        pa.list_(header),
    )  # fmt: skip
    columns = list(zip(*rows, strict=True))
    columns[-1] = tuple(_headers(each) for each in columns[-1])
    return pa.RecordBatch.from_arrays(
        [pa.array(values, type_) for values, type_ in zip(columns, types, strict=True)], names=list(RECORD_COLUMNS)
    )


def _headers(stored: list[dict[str, str | None]] | None) -> list[dict[str, Any]] | None:
    if stored is None:
        return None
    return [
        {"key": each["key"], "value": None if (text := each["value"]) is None else base64.b64decode(text)}
        for each in stored
    ]
