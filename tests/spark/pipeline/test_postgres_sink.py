"""Batches in PostgreSQL, a real server: each once, whatever two drivers do at the same time, and where one ends.

Rows come from Arrow batches where Spark has no part in what is tested.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from bridge.spark.pipeline.dead_letters import DEAD_LETTER_SCHEMA
from bridge.spark.pipeline.lineage import BatchAttempt, BatchCounts, BatchLineage, LineageConflictError
from bridge.spark.pipeline.pipeline_spec import PostgresTarget
from bridge.spark.pipeline.secret_reference import SecretReference
from bridge.spark.pipeline.sinks.postgres_connection import SinkRefusedError, connect_postgres
from bridge.spark.pipeline.sinks.postgres_sink import PostgresSink, staging_table
from bridge.spark.pipeline.sinks.postgres_staging import StagingLoader
from bridge.spark.pipeline.sinks.replaced_rows import OffsetColumns, ReplacedRows
from bridge.spark.pipeline.sinks.sink import AttemptRemovedError, CommitOutcome, SinkUnavailableError, StagedBatch
from tests.postgres_fixtures import DATABASE, PASSWORD, USER, PostgresServer
from zkconsumer.errors import PreconditionFailed
from zkconsumer.testing.sandbox.waiting import HOST, free_port
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

NOW_MS = 1_790_000_000_000
IDLE_LIMIT_MS = 700
TP = TopicPartition("clicks", 0)

Staged = StagedBatch[Any]


@pytest.fixture
def target(postgres_server: PostgresServer, fresh_name: str) -> Iterator[PostgresTarget]:
    """In a schema of its own."""
    schema = f"s {fresh_name.rpartition('-')[2]}"
    made = PostgresTarget(
        ((HOST, postgres_server.port),), DATABASE, USER, SecretReference("file", str(postgres_server.password_file)),
        "disable", None, 10_000, schema, "clicks", "zkconsumer_batches",
    )  # fmt: skip
    run_sql(made, f'CREATE SCHEMA "{schema}"')
    yield made
    run_sql(made, f'DROP SCHEMA "{schema}" CASCADE')


def run_sql(target: PostgresTarget, statement: str) -> list[tuple[Any, ...]]:
    with connect_postgres(target) as connection:
        cursor = connection.execute(f'SET LOCAL search_path = "{target.schema}"')
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description is not None else []


class Schema:
    """The columns a and b of ``StructType``."""

    @staticmethod
    def jsonValue() -> dict[str, object]:
        fields = [
            {"name": name, "type": type_, "nullable": True} for name, type_ in (("a", "integer"), ("b", "string"))
        ]
        return {"type": "struct", "fields": fields}


SCHEMA: Any = Schema()


class Frame:
    """A frame of two tasks with the columns of ``Schema``."""

    schema = Schema()

    def __init__(self, first: int = 0) -> None:
        self.tasks = [[(first, "x"), (first + 1, 'y"\n\\.')], [(first + 2, None)]]

    def selectExpr(self, *expressions: str) -> Frame:
        assert expressions == ("`a` as `a`", "`b` as `b`")
        return self


def load(frame: Any, loader: StagingLoader) -> tuple[tuple[int, int], ...]:
    """As Spark does: the first attempt of the second task was lost after its commit."""
    batches = [pa.RecordBatch.from_pylist([{"a": a, "b": b} for a, b in rows]) for rows in frame.tasks]
    loader.load([batches[1].slice(0, 0), batches[1]], 11)
    return tuple((task, loader.load([batch], task)) for task, batch in enumerate(batches, 20))


def rows(first: int = 0) -> Any:
    return Frame(first)


class Crash(Exception):
    """The end of a driver."""


class InterruptedConnect:
    """``connect_postgres`` of a driver; calls ``action`` before statement or commit number ``number``."""

    def __init__(self, number: int, action: Callable[[], object]) -> None:
        self._left = number
        self._action = action
        self.has_acted = False

    def __call__(self, target: PostgresTarget) -> Any:
        connection = connect_postgres(target)
        for name in ("execute", "commit"):
            self._count(connection, name)
        return connection

    def _count(self, connection: Any, name: str) -> None:
        method = getattr(connection, name)

        def call(*arguments: Any, **keywords: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self.has_acted = True
                try:
                    self._action()
                except Crash:
                    connection.close()  # as the end of a process
                    raise
            return method(*arguments, **keywords)

        setattr(connection, name, call)


def open_sink(target: PostgresTarget, connect: Any = connect_postgres) -> PostgresSink:
    """As a driver does at its start."""
    return PostgresSink(target, connect, load, IDLE_LIMIT_MS)


def attempt(name: str, batch: int = 0) -> BatchAttempt:
    return BatchAttempt("q", batch, name, NOW_MS)


def lineage(staged: Staged, first: int = 0) -> BatchLineage:
    """Of a batch with the offsets from ``first`` on."""
    it = staged.attempt
    counts = BatchCounts(staged.rows, 1, 0, 0)
    ranges = {TP: ((first, first + 3),)}
    return BatchLineage(it.query, it.batch, "batch", "clicks", "claim", it.attempt, NOW_MS, ranges, counts)


def run(sink: PostgresSink, name: str) -> CommitOutcome:
    staged = sink.write(rows(), attempt(name))
    return sink.commit(staged, lineage(staged))


def values(target: PostgresTarget) -> list[Any]:
    return run_sql(target, "SELECT a, b FROM clicks ORDER BY a")


def staging_tables(target: PostgresTarget) -> list[Any]:
    return run_sql(
        target,
        "SELECT tablename FROM pg_tables WHERE schemaname = current_schema AND tablename LIKE 'zkconsumer_staging%'",
    )


BATCH = [(0, "x"), (1, 'y"\n\\.'), (2, None)]


def test_a_batch_that_is_written_twice_is_there_once_with_its_lineage(target: PostgresTarget) -> None:
    sink = open_sink(target)
    assert sink.check(SCHEMA) == []
    sink.prepare(SCHEMA)
    sink.prepare(SCHEMA)
    assert sink.committed("q", 0) is None
    first = sink.write(rows(), attempt("t1"))
    assert (first.rows, values(target)) == (3, [])
    assert sink.commit(first, lineage(first)) is CommitOutcome.COMMITTED
    assert run(sink, "t2") is CommitOutcome.ALREADY_COMMITTED
    assert values(target) == BATCH
    assert sink.committed("q", 0) == lineage(first)
    assert list(sink.lineages()) == [lineage(first)]
    assert staging_tables(target) == []


def test_the_same_batch_with_other_ranges_is_an_error_and_changes_nothing(target: PostgresTarget) -> None:
    sink = open_sink(target)
    sink.prepare(SCHEMA)
    run(sink, "t1")
    other = sink.write(rows(1), attempt("t2"))
    with pytest.raises(LineageConflictError, match=r"clicks/0 \[0, 3\).*clicks/0 \[1, 4\)"):
        sink.commit(other, lineage(other, 1))
    assert values(target) == BATCH
    assert sink.remove_leftovers(NOW_MS) == 1
    assert staging_tables(target) == []


STATEMENTS_OF_AN_ATTEMPT = 16
"""write: limit, CREATE, COMMENT, commit; 3 tasks: zone, commit; commit: limit, durability, key, rows, DROP, commit."""
KEY = 13


@pytest.mark.parametrize("number", range(1, STATEMENTS_OF_AN_ATTEMPT + 1))
def test_two_drivers_interleaved_at_each_step_write_a_batch_once(target: PostgresTarget, number: int) -> None:
    """The first driver is stopped before a statement, a second one does the batch, and the first one continues."""
    second = open_sink(target)
    second.prepare(SCHEMA)
    theirs: list[CommitOutcome] = []
    connect = InterruptedConnect(number, lambda: theirs.append(run(second, "t2")))
    ours: object
    try:
        ours = run(open_sink(target, connect), "t1")
    except SinkUnavailableError:
        ours = "the server ended the transaction"
    assert connect.has_acted
    assert theirs == [CommitOutcome.COMMITTED]
    assert ours is not CommitOutcome.COMMITTED
    assert (ours == "the server ended the transaction") or number <= KEY
    assert values(target) == BATCH
    stored = second.committed("q", 0)
    assert stored is not None
    assert stored.attempt == "t2"
    second.remove_leftovers(NOW_MS)
    assert staging_tables(target) == []


@pytest.mark.parametrize("number", range(1, STATEMENTS_OF_AN_ATTEMPT + 1))
def test_after_a_crash_at_each_step_a_new_attempt_completes_the_batch(target: PostgresTarget, number: int) -> None:
    def end() -> None:
        raise Crash

    sink = open_sink(target)
    sink.prepare(SCHEMA)
    with pytest.raises(Crash):
        run(open_sink(target, InterruptedConnect(number, end)), "t1")
    assert values(target) == []
    assert sink.remove_leftovers(NOW_MS) == 0, "the attempt may be live"
    assert run(sink, "t2") is CommitOutcome.COMMITTED
    assert sink.remove_leftovers(NOW_MS) == (number > 4)
    assert values(target) == BATCH
    assert staging_tables(target) == []


def test_a_crash_has_been_tried_at_all_steps(target: PostgresTarget) -> None:
    open_sink(target).prepare(SCHEMA)
    connect = InterruptedConnect(STATEMENTS_OF_AN_ATTEMPT + 1, lambda: None)
    run(open_sink(target, connect), "t1")
    assert not connect.has_acted


def test_a_commit_whose_answer_is_lost_is_found_by_the_next_attempt(target: PostgresTarget) -> None:
    sink = open_sink(target)
    sink.prepare(SCHEMA)
    staged = sink.write(rows(), attempt("t1"))
    sink.commit(staged, lineage(staged))
    assert sink.commit(staged, lineage(staged)) is CommitOutcome.COMMITTED
    assert run(sink, "t2") is CommitOutcome.ALREADY_COMMITTED
    assert values(target) == BATCH


def test_an_old_attempt_that_was_removed_cannot_be_committed(target: PostgresTarget) -> None:
    sink = open_sink(target)
    sink.prepare(SCHEMA)
    staged = sink.write(rows(), attempt("t1"))
    assert sink.remove_leftovers(NOW_MS + 5, 5) == 0
    assert sink.remove_leftovers(NOW_MS + 10, 5) == 1
    with pytest.raises(AttemptRemovedError, match="start the query again"):
        sink.commit(staged, lineage(staged))
    assert sink.committed("q", 0) is None
    assert run(sink, "t2") is CommitOutcome.COMMITTED
    assert values(target) == BATCH


def test_a_staging_table_that_a_task_writes_and_one_of_another_pipeline_are_not_removed(
    target: PostgresTarget,
) -> None:
    sink, other = open_sink(target), open_sink(replace(target, batch_table="others"))
    sink.prepare(SCHEMA)
    other.prepare(SCHEMA)
    other.write(rows(), attempt("t0"))
    staged = sink.write(rows(), attempt("t1"))
    table = staging_table(staged.attempt)
    with connect_postgres(target) as connection:
        connection.execute(f'LOCK TABLE "{target.schema}".{table} IN ROW EXCLUSIVE MODE')
        assert sink.remove_leftovers(NOW_MS + 10, 5) == 0
    assert len(staging_tables(target)) == 2
    assert sink.remove_leftovers(NOW_MS + 10, 5) == 1


def test_tables_that_share_a_table_of_batches_have_their_own_lineages(target: PostgresTarget) -> None:
    sink, other = open_sink(target), open_sink(replace(target, table="others"))
    sink.prepare(SCHEMA)
    other.prepare(SCHEMA)
    run(sink, "t1")
    staged = other.write(rows(), replace(attempt("t2"), query="backfill-1"))
    wanted = replace(lineage(staged), query="backfill-1", kind="backfill")
    other.reserve(wanted, {})  # the same offsets, which only the other table has
    assert [each.query for each in sink.lineages()] == ["q"]
    assert (list(sink.reservations()), list(other.lineages())) == ([], [])
    assert list(other.reservations()) == [wanted]
    assert other.commit(staged, wanted) is CommitOutcome.COMMITTED
    assert [each.query for each in other.lineages()] == ["backfill-1"]


def test_a_batch_without_rows_takes_its_key_and_a_late_attempt_with_rows_is_not_committed(
    target: PostgresTarget,
) -> None:
    sink, late = open_sink(target), open_sink(target)
    sink.prepare(SCHEMA)
    staged = late.write(rows(), attempt("late"))
    empty = replace(lineage(staged), attempt="t1", counts=BatchCounts())
    assert sink.commit_without_rows(empty) == empty
    assert sink.commit_without_rows(replace(empty, attempt="t2")) == empty
    assert late.commit(staged, lineage(staged)) is CommitOutcome.ALREADY_COMMITTED
    assert values(target) == []


def test_a_staging_table_that_a_server_crash_emptied_is_not_committed(target: PostgresTarget) -> None:
    sink = open_sink(target)
    sink.prepare(SCHEMA)
    staged = sink.write(rows(), attempt("t1"))
    run_sql(target, f"TRUNCATE {staging_table(staged.attempt)}")
    with pytest.raises(SinkUnavailableError, match="has 0 rows of 3"):
        sink.commit(staged, lineage(staged))
    assert sink.committed("q", 0) is None


def test_a_backfill_reserves_its_ranges_and_its_commit_ends_the_reservation(target: PostgresTarget) -> None:
    sink = open_sink(target)
    sink.prepare(SCHEMA)
    staged = sink.write(rows(), attempt("t1"))
    sink.commit(staged, lineage(staged, 10))
    fill = sink.write(rows(3), BatchAttempt("backfill-1", 0, "t1", NOW_MS))
    wanted = replace(lineage(fill), kind="backfill")
    sink.reserve(wanted, {TP: 13})
    sink.reserve(wanted, {TP: 13})
    assert list(sink.reservations()) == [wanted]
    assert sink.committed("backfill-1", 0) is None
    with pytest.raises(LineageConflictError, match="is reserved for backfill 0 of query backfill-1"):
        sink.reserve(replace(wanted, query="backfill-2"), {TP: 13})
    with pytest.raises(LineageConflictError, match="other offsets"):
        sink.commit(fill, replace(wanted, ranges={TP: ((4, 5),)}))
    fill = sink.write(rows(3), BatchAttempt("backfill-1", 0, "t2", NOW_MS))
    assert sink.commit(fill, replace(wanted, attempt="t2")) is CommitOutcome.COMMITTED
    assert list(sink.reservations()) == []
    assert [each.kind for each in sink.lineages()] == ["backfill", "batch"]
    late = sink.write(rows(5), BatchAttempt("backfill-3", 0, "t3", NOW_MS))
    sink.reserve(replace(lineage(late), kind="backfill", ranges={TP: ((5, 6),)}), {})
    sink.release("backfill-3", 0)
    sink.release("backfill-1", 0)
    assert list(sink.reservations()) == []
    assert sink.committed("backfill-1", 0) == replace(wanted, attempt="t2"), "what is committed is not released"
    with pytest.raises(LineageConflictError, match="stored no offset, committed by attempt abandoned"):
        sink.commit(late, replace(lineage(late), kind="backfill", ranges={TP: ((5, 6),)}))
    sink.reserve(replace(wanted, query="backfill-4", ranges={TP: ((5, 6),)}), {})


PLACES = OffsetColumns("topic", "partition", "a")
OLD, OTHERS = [(0, "old"), (1, "old"), (2, "old")], [(10, "x"), (11, 'y"\n\\.'), (12, None)]


def open_replacing(target: PostgresTarget, deleted: list[int], connect: Any = connect_postgres) -> PostgresSink:
    return open_sink(target, connect).replacing(ReplacedRows(PLACES, deleted.append))


def replace_rows(sink: PostgresSink, name: str) -> CommitOutcome:
    """The offsets 0 to 2."""
    staged = sink.write(rows(), BatchAttempt("replace-1", 0, name, NOW_MS))
    return sink.commit(staged, replace(lineage(staged), kind="replace"))


@pytest.fixture
def places(target: PostgresTarget) -> PostgresTarget:
    """A table whose rows have offsets in column a: 0 to 2, and 10 to 12 of another batch."""
    sink = open_sink(target)
    sink.prepare(SCHEMA)
    run_sql(target, "ALTER TABLE clicks ADD topic text DEFAULT 'clicks', ADD partition integer DEFAULT 0")
    run(sink, "t1")
    other = sink.write(rows(10), attempt("t2", 1))
    sink.commit(other, lineage(other, 10))
    run_sql(target, "UPDATE clicks SET b = 'old' WHERE a < 3")
    run_sql(target, "INSERT INTO clicks VALUES (1, 'of another topic', 'views', 0), (2, 'of partition 1', 'clicks', 1)")
    return target


STRANGERS = [(1, "of another topic"), (2, "of partition 1")]
STATEMENTS_OF_A_REPLACEMENT = STATEMENTS_OF_AN_ATTEMPT + 1
"""One more: the rows of its range are deleted."""
STATEMENTS_OF_REPLACING = 3
"""limit, the look for rows without an offset, commit."""


@pytest.mark.parametrize("number", range(1, STATEMENTS_OF_A_REPLACEMENT + 1))
def test_a_replacement_that_ends_at_a_step_changes_nothing_and_its_repetition_does(
    places: PostgresTarget, number: int
) -> None:
    def end() -> None:
        raise Crash

    deleted: list[int] = []
    with pytest.raises(Crash):
        replace_rows(open_replacing(places, deleted, InterruptedConnect(STATEMENTS_OF_REPLACING + number, end)), "t1")
    assert sorted(values(places), key=str) == sorted([*OLD, *OTHERS, *STRANGERS], key=str)
    assert deleted == []
    sink = open_replacing(places, deleted)
    assert replace_rows(sink, "t2") is CommitOutcome.COMMITTED
    assert replace_rows(sink, "t3") is CommitOutcome.ALREADY_COMMITTED
    assert sorted(values(places), key=str) == sorted([*BATCH, *OTHERS, *STRANGERS], key=str)
    assert deleted == [3]


def test_all_steps_of_a_replacement_were_tried(places: PostgresTarget) -> None:
    connect = InterruptedConnect(STATEMENTS_OF_REPLACING + STATEMENTS_OF_A_REPLACEMENT + 1, lambda: None)
    replace_rows(open_replacing(places, [], connect), "t1")
    assert not connect.has_acted


def test_the_dead_letters_of_a_replacement_are_added_to_those_of_older_batches(target: PostgresTarget) -> None:
    """Their sink deletes nothing: the letters of the two have other keys."""
    letters = open_sink(target)
    letters.prepare(SCHEMA)
    run(letters, "t1")
    assert replace_rows(letters, "t2") is CommitOutcome.COMMITTED
    assert replace_rows(letters, "t3") is CommitOutcome.ALREADY_COMMITTED
    assert values(target) == sorted(BATCH * 2, key=str)
    assert [each.kind for each in letters.lineages()] == ["batch", "replace"]


def test_a_table_with_a_row_whose_offset_is_not_known_is_not_replaced(places: PostgresTarget) -> None:
    run_sql(places, "UPDATE clicks SET partition = NULL WHERE a = 11")
    with pytest.raises(PreconditionFailed, match=r"rows without a value in topic, partition, a.*nothing was written"):
        open_replacing(places, [])


def test_of_two_reservations_at_once_that_overlap_one_is_refused(target: PostgresTarget) -> None:
    """The first driver is stopped before the row of its reservation, until the second one is done."""
    second = open_sink(target)
    second.prepare(SCHEMA)
    wanted = BatchLineage("f1", 0, "backfill", "p", "snapshot", "t", 1, {TP: ((0, 9),)}, BatchCounts())
    other = replace(wanted, query="f2", ranges={TP: ((5, 12),)})
    connect = InterruptedConnect(6, lambda: second.reserve(other, {}))
    with pytest.raises(SinkUnavailableError, match="idle-in-transaction"):
        open_sink(target, connect).reserve(wanted, {})
    assert list(second.reservations()) == [other]
    with pytest.raises(LineageConflictError, match=r"clicks/0 \[5, 9\) is reserved for backfill 0 of query f2"):
        open_sink(target).reserve(wanted, {})


def test_a_table_that_does_not_fit_is_a_line_for_each_column_and_nothing_is_written(target: PostgresTarget) -> None:
    sink = open_sink(target)
    run_sql(target, "CREATE TABLE clicks (a integer, id integer NOT NULL, own serial)")
    assert sink.check(SCHEMA) == [
        "column b: the table does not have it; the operator must add it, or leave it out",
        "column id: the table needs a value (NOT NULL without a default), and the rows have none",
    ]
    with pytest.raises(PreconditionFailed, match="column b"):
        sink.prepare(SCHEMA)
    run_sql(target, "DROP TABLE clicks; CREATE TABLE clicks (a date, b varchar(20))")
    assert sink.check(SCHEMA) == [
        'column a: column "a" is of type date but expression is of type integer; cast it in [transform] select'
    ]
    assert run_sql(target, "SELECT tablename FROM pg_tables WHERE schemaname = current_schema") == [("clicks",)]
    lost = replace(target, schema="none")
    assert open_sink(lost).check(SCHEMA) == ["the database has no schema none; the operator must create it"]


def test_a_server_that_does_not_answer_or_a_wrong_password_is_one_line(
    target: PostgresTarget, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = replace(target, servers=((HOST, free_port()),))
    [line] = open_sink(gone).check(SCHEMA)
    assert line.startswith(f"PostgreSQL {HOST}:")
    assert "Connection refused" in line
    monkeypatch.setenv("OTHER_PASSWORD", "wrong-text")
    wrong = replace(target, password=SecretReference("env", "OTHER_PASSWORD"))
    [line] = open_sink(wrong).check(SCHEMA)
    assert "password authentication failed" in line
    assert "wrong-text" not in line
    [line] = open_sink(replace(target, password=SecretReference("env", "NO_SUCH"))).check(SCHEMA)
    assert "env:NO_SUCH: the environment has no variable" in line


def test_an_error_about_a_value_does_not_contain_it(target: PostgresTarget) -> None:
    sink = open_sink(target)
    run_sql(target, "CREATE TABLE clicks (a integer CHECK (a < 2), b text)")
    sink.prepare(SCHEMA)
    with pytest.raises(SinkRefusedError) as caught:
        run(sink, "t1")
    assert "CheckViolation (SQLSTATE 23514, table clicks, constraint clicks_a_check)" in str(caught.value)
    assert caught.value.__cause__ is None
    assert values(target) == []
    assert sink.committed("q", 0) is None


def test_rows_of_spark_arrive_with_their_types_and_no_task_has_the_password(
    spark: SparkSession, target: PostgresTarget
) -> None:
    frame = spark.sql(
        "select 1y as b, 2s as s, 3 as i, 4L as l, 1.5f as f, double('nan') as d, 12.340BD as n, 'ü\"\\n' as t, "
        "x'00ff' as x, true as z, date'2026-11-27' as day, timestamp'2026-11-27 10:00:00.123456' as at, "
        "timestamp_ntz'2026-11-27 10:00:00' as local, array(1, null) as list, "
        "named_struct('k', null, 'v', 'w') as `in \"quotes\"`, map('a', 1) as m"
    )
    sink = PostgresSink(target)
    assert sink.check(frame.schema) == []
    sink.prepare(frame.schema)
    staged = sink.write(frame, attempt("t1"))
    assert sink.commit(staged, lineage(staged)) is CommitOutcome.COMMITTED
    [row] = run_sql(target, "SELECT * FROM clicks")
    assert row[:5] == (1, 2, 3, 4, 1.5)
    assert row[5] != row[5]
    assert row[6:11] == (Decimal("12.340"), 'ü"\n', b"\0\xff", True, date(2026, 11, 27))
    assert row[11] == datetime(2026, 11, 27, 10, 0, 0, 123456, UTC)
    assert row[12] == datetime(2026, 11, 27, 10, 0, 0)
    assert row[13:] == ([1, None], {"k": None, "v": "w"}, {"a": 1})
    assert PASSWORD.encode() not in pickle.dumps(StagingLoader(target, "t", ())), "what a task gets has the place only"


def test_values_that_postgresql_cannot_store_are_found_before_and_all_others_are_stored(
    spark: SparkSession, target: PostgresTarget
) -> None:
    good = [
        ("", "a\\u0000", "2026-01-01"), ("x", "", None), (None, None, "9999-12-31"), ("\x01\ufffd", "\\", "0001-01-01"),
    ]  # fmt: skip
    bad = [
        ("a\0b", "", None), ("", "a\0", None), ("", "a\\\0", None), ("", "", "+10000-01-01"), ("", "", "-0001-12-31"),
    ]  # fmt: skip
    both = [(*each, True) for each in good] + [(*each, False) for each in bad]
    raw = spark.createDataFrame(both, "t string, inner string, day string, good boolean")
    frame = raw.selectExpr(
        "t", "array(inner) as deep", "cast(day as date) as day", "cast(cast(day as date) as timestamp) as at",
        "cast(cast(day as date) as timestamp_ntz) as local", "good",
    )  # fmt: skip
    sink = PostgresSink(target)
    sink.prepare(frame.schema)
    rejections = sink.rejections(frame.schema)
    reject = " or ".join(f"coalesce({each.condition}, false)" for each in rejections)
    assert frame.where(f"({reject}) = good").count() == 0
    assert {each.reason.split(" of ")[1].split(" ")[0] for each in rejections} == {"t", "deep", "day", "at", "local"}
    staged = sink.write(frame.where("good"), attempt("t1"))
    sink.commit(staged, lineage(staged))
    assert sorted(run_sql(target, "SELECT t, deep->>0 FROM clicks WHERE t IS NOT NULL")) == [
        ("", "a\\u0000"), ("\x01\ufffd", "\\"), ("x", ""),
    ]  # fmt: skip
    assert run_sql(target, "SELECT count(*) FROM clicks WHERE t IS NULL AND deep->>0 IS NULL") == [(1,)]
    with pytest.raises(Exception, match=r"SQLSTATE 22021") as caught:
        sink.write(frame.where("t like 'a%'"), attempt("t2"))
    assert "a\0b" not in str(caught.value)


def test_dead_letters_have_a_table_of_the_same_kind(spark: SparkSession, target: PostgresTarget) -> None:
    letter = ("clicks", 0, 7, None, 0, b"k", b"{", [("h", b"v")], "decode", "no JSON", None, "q", 3)
    frame = spark.createDataFrame([letter], DEAD_LETTER_SCHEMA)
    sink = PostgresSink(replace(target, table="dead", batch_table="zkconsumer_dead_letter_batches"))
    sink.prepare(frame.schema)
    staged = sink.write(frame, attempt("t1"))
    sink.commit(staged, lineage(staged))
    assert run_sql(target, 'SELECT "offset", value, headers, stage FROM dead') == [
        (7, b"{", [{"key": "h", "value": "dg=="}], "decode")
    ]
