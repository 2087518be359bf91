"""Backfills and replays beside a live query, on a real cluster: each record is in the table once, wherever one ends."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from bridge.commands.pipeline import pipeline
from bridge.spark.pipeline.backfill.backfill_bounds import parse_bounds
from bridge.spark.pipeline.backfill.backfill_run import (
    AFTER_RESERVATION,
    BackfillReport,
    BackfillRequest,
    abandon,
    backfill,
)
from bridge.spark.pipeline.batch_writer import AFTER_COMMIT, AFTER_DEAD_LETTERS, AFTER_WRITE, WrittenBatch
from bridge.spark.pipeline.lineage import LineageConflictError
from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_query import PreparedPipeline, prepare_pipeline, start_pipeline
from bridge.spark.pipeline.pipeline_spec import PostgresTarget
from bridge.spark.pipeline.replay.letter_choice import LetterState
from bridge.spark.pipeline.replay.replay_run import ReplayReport, ReplayRequest, replay
from bridge.spark.pipeline.sinks.parquet_table import read_parquet_table
from bridge.spark.pipeline.sinks.postgres_connection import connect_postgres
from tests.postgres_fixtures import DATABASE, USER, PostgresServer
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import UsageError
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.waiting import HOST, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

END_MS = 120_000
RESERVED, WRITTEN, LETTERS, COMMITTED = AFTER_RESERVATION, AFTER_WRITE, AFTER_DEAD_LETTERS, AFTER_COMMIT
BROKEN, NO_NUMBER = b"{broken", b'{"id": 5, "n": "none"}'

Reached = Callable[[str, int], None]


def good(first: int, count: int) -> list[bytes]:
    return [json.dumps({"id": n, "n": str(n)}).encode() for n in range(first, first + count)]


def ends_at(point: str) -> Reached:
    """The driver ends at this point of its first batch."""

    def reached(found: str, _: int) -> None:
        if found == point:
            raise InterruptedError(point)

    return reached


class Stage:
    """A topic with two partitions, a pipeline file, and a table of rows and one of dead letters."""

    def __init__(self, spark: SparkSession, cluster: Sandbox, topic: str, folder: Path) -> None:
        self.spark, self.cluster, self.topic, self.folder = spark, cluster, topic, folder
        cluster.create_topic(topic, 2)
        self.file = folder / "clicks.toml"
        self.sink = 'format = "parquet"\npath = "rows"'
        self.letters = 'format = "parquet"\npath = "dead"'
        self.write()

    def use_postgres(self, server: PostgresServer) -> None:
        self.sink = (
            f'format = "postgres"\nurl = "postgresql://{HOST}:{server.port}/{DATABASE}"\nssl-mode = "disable"\n'
            f'user = "{USER}"\npassword = "file:{server.password_file}"\ntable = "{self.topic[-40:]}"\n'
            f'batch-table = "b {self.topic[-40:]}"'
        )
        self.letters = (
            f'format = "postgres"\nconnection = "sink"\ntable = "dead {self.topic[-40:]}"\n'
            f'batch-table = "db {self.topic[-40:]}"'
        )
        self.write()

    def write(self, number: str = "CAST(n AS INT)", where: str = "id >= 0") -> None:
        self.file.write_text(
            f"""
            [pipeline]
            name = "{self.topic}"
            [source]
            zookeeper.connect = "{self.cluster.zookeeper.connect_string("/kafka")}"
            group.id = "{self.topic}"
            subscribe = "{self.topic}"
            auto.offset.reset = "largest"
            [decode]
            format = "json"
            schema = "id BIGINT, n STRING"
            [transform]
            select = ["id", {json.dumps(f"{number} AS n")}, "topic", "partition", "offset"]
            where = "{where}"
            [sink]
            {self.sink}
            [dead-letters]
            {self.letters}
            [trigger]
            available-now = true
            [checkpoint]
            path = "checkpoint"
            """
        )

    def prepare(self) -> PreparedPipeline:
        return prepare_pipeline(self.spark, read_pipeline(self.file), {}, lambda path: Path(path).read_bytes())

    def run(self) -> None:
        """What is there now, by the live query."""
        prepared = self.prepare()
        try:
            running = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms)
            try:
                assert running.wait(END_MS), "the pipeline has not ended"
            finally:
                running.query.stop()
        finally:
            prepared.close()

    def backfill(
        self,
        start: str = "earliest",
        end: str | None = None,
        *,
        is_replacement: bool = False,
        most: int = 1_000,
        reached: Reached = lambda _point, _batch: None,
    ) -> BackfillReport:
        prepared = self.prepare()
        try:
            request = BackfillRequest(parse_bounds(start, end, None, None), is_replacement, most)
            return backfill(prepared, request, SYSTEM_CLOCK.wall_ms, reached=reached)
        finally:
            prepared.close()

    def replay(
        self, stage: str | None = None, most: int = 100, reached: Reached = lambda _point, _batch: None
    ) -> ReplayReport:
        prepared = self.prepare()
        try:
            return replay(prepared, ReplayRequest(stage, None, most), SYSTEM_CLOCK.wall_ms, reached=reached)
        finally:
            prepared.close()

    def rows(self) -> Counter[tuple[int, int | None]]:
        target = read_pipeline(self.file).sink
        if isinstance(target, PostgresTarget):
            with connect_postgres(target) as connection:
                found = connection.execute(f'SELECT id, n FROM "{target.table}"').fetchall()
            return Counter((row[0], row[1]) for row in found)
        table = read_parquet_table(self.spark, str(self.folder / "rows")).collect()
        return Counter((row.id, row.n) for row in table)

    def letters_count(self) -> int:
        dead_letters = self.prepare().dead_letters
        assert dead_letters is not None
        return sum(each.counts.rows for each in dead_letters.lineages())


@pytest.fixture
def stage(spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path) -> Stage:
    return Stage(spark, shared_cluster, fresh_name, tmp_path)


NIGHTLY = {each: pytest.param(each, marks=pytest.mark.nightly) for each in ("parquet", "postgres")}
"""The second target of a test: the rules are the same, and the unit tests have both."""


@pytest.fixture
def any_stage(request: pytest.FixtureRequest, stage: Stage) -> Stage:
    if request.param == "postgres":
        stage.use_postgres(request.getfixturevalue("postgres_server"))
    return stage


def once(*ids: int) -> Counter[tuple[int, int | None]]:
    return Counter((each, each) for each in ids)


@pytest.mark.nightly
@pytest.mark.parametrize("any_stage", ["parquet", "postgres"], indirect=True)
def test_a_backfill_beside_the_live_query_writes_each_record_once_wherever_it_ends(any_stage: Stage) -> None:
    place = any_stage
    place.cluster.produce(place.topic, 0, [*good(0, 10), BROKEN])
    place.cluster.produce(place.topic, 1, good(100, 10))
    place.run()  # it begins at the ends of the logs
    place.cluster.produce(place.topic, 0, good(20, 5))
    place.run()
    assert place.rows() == once(*range(20, 25))
    place.cluster.produce(place.topic, 0, good(30, 5))  # the live query has yet to read these
    for point in (RESERVED, WRITTEN, LETTERS, COMMITTED):
        with pytest.raises(InterruptedError, match=point):
            place.backfill(most=12, reached=ends_at(point))
    report = place.backfill(most=12)
    assert report.has_live_query
    assert report.covered + report.offsets == 26
    assert place.rows() == once(*range(10), *range(20, 25), *range(100, 110))
    assert place.letters_count() == 1
    again = place.backfill(most=12)
    assert (again.batches, again.covered) == (0, 26)
    place.run()
    assert place.rows() == once(*range(10), *range(20, 25), *range(30, 35), *range(100, 110))


def test_a_live_query_runs_on_while_a_backfill_reads_and_the_group_does_not_change(stage: Stage) -> None:
    """The query has an interval; records come while the backfill is between its steps."""
    stage.cluster.produce(stage.topic, 0, good(0, 20))
    stage.cluster.produce(stage.topic, 1, good(100, 20))
    stage.file.write_text(stage.file.read_text().replace("available-now = true", 'interval = "200ms"'))
    prepared = stage.prepare()
    batches: list[WrittenBatch] = []
    running = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms, on_batch=batches.append)

    def wait_for(rows: int) -> None:
        wait_until(
            lambda: not running.wait(100) and sum(each.lineage.counts.rows for each in batches) == rows,
            f"{rows} rows of the live query", END_MS,
        )  # fmt: skip

    try:
        wait_until(lambda: not running.wait(100) and stage.cluster.admin.members(stage.topic), "a member", END_MS)
        wait_until(lambda: not running.wait(100) and running.query.recentProgress, "a trigger", END_MS)
        stage.cluster.produce(stage.topic, 0, good(200, 3))
        wait_for(3)
        members = stage.cluster.admin.members(stage.topic)
        written = 3

        def reached(_point: str, _batch: int) -> None:
            nonlocal written
            stage.cluster.produce(stage.topic, written % 2, good(200 + written, 1))
            written += 1

        report = stage.backfill(most=15, reached=reached)
        assert stage.cluster.admin.members(stage.topic) == members, "the backfill is no member"
        wait_for(written)
        assert running.stop(END_MS, SYSTEM_CLOCK.now_ms)
    finally:
        running.query.stop()
        prepared.close()
    assert report.offsets == 40
    assert stage.rows() == once(*range(20), *range(100, 120), *range(200, 200 + written))
    at_end = {0: 22 + (written - 1) // 2, 1: 19 + written // 2}
    assert stage.cluster.admin.offsets(stage.topic, stage.topic) == at_end


def test_what_the_live_query_has_yet_to_read_is_refused_and_it_reads_it_itself(stage: Stage) -> None:
    stage.run()
    stage.cluster.produce(stage.topic, 0, good(0, 5))
    with pytest.raises(LineageConflictError, match=rf"the live query has yet to read {stage.topic}/0 \[0, 5\)"):
        stage.backfill(end="latest")
    assert list(stage.prepare().sink.reservations()) == []
    stage.run()
    assert stage.rows() == once(*range(5))


def test_without_a_live_query_a_backfill_reads_to_the_ends_and_can_be_abandoned(stage: Stage) -> None:
    stage.cluster.produce(stage.topic, 0, good(0, 5))
    start = json.dumps({stage.topic: {"0": 1}})
    with pytest.raises(InterruptedError):
        stage.backfill(start, reached=ends_at(RESERVED))
    [reserved] = stage.prepare().sink.reservations()
    assert abandon(stage.prepare().sink, reserved.query).offsets == 4
    with pytest.raises(UsageError, match=r"this pipeline does not read other/0: correct --from and --to"):
        stage.backfill('{"other": {"0": 1}}')
    report = stage.backfill(start)
    assert (report.has_live_query, report.offsets) == (False, 4)
    assert stage.rows() == once(1, 2, 3, 4)


def test_a_replacement_deletes_and_writes_in_one_commit_wherever_it_ends(
    stage: Stage, postgres_server: PostgresServer
) -> None:
    stage.use_postgres(postgres_server)
    stage.cluster.produce(stage.topic, 0, [*good(0, 6), NO_NUMBER, *good(6, 4)])
    stage.backfill()
    assert stage.rows() == once(*range(10))
    stage.write("COALESCE(try_cast(n AS INT), -1)")
    bounds = json.dumps({stage.topic: {"0": 2}}), json.dumps({stage.topic: {"0": 9}})
    expected = once(*range(10)) + Counter([(5, -1)])
    for point in (RESERVED, WRITTEN):
        with pytest.raises(InterruptedError, match=point):
            stage.backfill(*bounds, is_replacement=True, most=4, reached=ends_at(point))
        assert stage.rows() == once(*range(10)), "rows are there until their replacement is"
    with pytest.raises(InterruptedError, match=COMMITTED):
        stage.backfill(*bounds, is_replacement=True, most=4, reached=ends_at(COMMITTED))
    report = stage.backfill(*bounds, is_replacement=True, most=4)
    assert (report.batches, report.deleted_rows) == (1, 2)
    assert stage.rows() == expected
    assert stage.replay().others == {LetterState.WRITTEN: 1}, "the old dead letter has a row now"
    assert stage.backfill(*bounds, is_replacement=True).deleted_rows == 7, "a complete one is made anew"
    assert stage.rows() == expected


def test_parquet_refuses_a_replacement(stage: Stage) -> None:
    stage.cluster.produce(stage.topic, 0, good(0, 3))
    with pytest.raises(UsageError, match=r"a replacement needs .*format delta or postgres"):
        stage.backfill(is_replacement=True)
    assert not (stage.folder / "rows").exists()


@pytest.mark.nightly
@pytest.mark.parametrize("any_stage", ["postgres", "parquet"], indirect=True)
def test_a_replay_writes_each_good_record_once_wherever_it_ends(any_stage: Stage) -> None:
    place = any_stage
    place.cluster.produce(place.topic, 0, [BROKEN, NO_NUMBER, *good(0, 3), NO_NUMBER])
    place.cluster.produce(place.topic, 1, [NO_NUMBER, b'{"id": -7, "n": "x"}', b'{"id": 8, "n": "x"}'])
    place.backfill()
    assert place.rows() == once(0, 1, 2)
    assert place.letters_count() == 5
    before = place.replay()
    assert (before.rows, before.still_dead) == (0, 5)
    assert before.shown[0][1].startswith("decode: ")
    place.write("CASE WHEN n = 'none' THEN 0 ELSE CAST(n AS INT) END")
    assert place.replay(stage="decode").rows == 0
    for point in (RESERVED, WRITTEN, COMMITTED):
        with pytest.raises(InterruptedError, match=point):
            place.replay(most=3, reached=ends_at(point))
    place.replay(most=3)
    fixed = Counter({(5, 0): 3})
    assert place.rows() == once(0, 1, 2) + fixed
    again = place.replay()
    assert (again.rows, again.still_dead, again.others[LetterState.REPLAYED]) == (0, 2, 3)
    place.write("COALESCE(try_cast(n AS INT), 1)", "id <> 8")
    last = place.replay()
    assert (last.rows, last.filtered, last.still_dead) == (0, 1, 1)
    assert place.replay().still_dead == 1
    assert place.rows() == once(0, 1, 2) + fixed
    assert place.letters_count() == 5, "dead letters are never changed"
    replayed = [each for each in place.prepare().sink.lineages() if each.kind == "replay"]
    assert sum(each.offsets for each in replayed) == 4
    assert list(place.prepare().sink.reservations()) == []


@pytest.mark.parametrize("any_stage", ["postgres", NIGHTLY["parquet"]], indirect=True)
def test_of_two_replays_at_the_same_time_one_writes_and_the_other_one_is_an_error(any_stage: Stage) -> None:
    """The first one is stopped before its commit, and the second one does all."""
    place = any_stage
    place.cluster.produce(place.topic, 0, [NO_NUMBER, *good(0, 1), NO_NUMBER])
    place.backfill()
    place.write("CASE WHEN n = 'none' THEN 0 ELSE CAST(n AS INT) END")
    second: list[ReplayReport] = []

    def reached(point: str, _batch: int) -> None:
        if point == WRITTEN:
            second.append(place.replay())

    with pytest.raises(LineageConflictError, match="other offsets: stored no offset"):
        place.replay(reached=reached)
    assert [each.rows for each in second] == [2]
    assert place.replay().rows == 0
    assert place.rows() == once(0) + Counter({(5, 0): 2})


@pytest.mark.parametrize("any_stage", ["postgres", NIGHTLY["parquet"]], indirect=True)
def test_a_replayed_record_is_complete(any_stage: Stage) -> None:
    """Key, headers, time and its type come from the dead letter."""
    place = any_stage
    text = place.file.read_text()
    columns = '"id", "CAST(n AS INT) AS n", "CAST(key AS STRING) AS k", "timestampType AS kind", "offset"'
    whole = text[: text.index("select =")] + f"select = [{columns}]\n" + text[text.index("where =") :]
    place.file.write_text(whole)
    place.cluster.produce(place.topic, 0, [NO_NUMBER, *good(1, 1)])
    place.backfill()
    place.file.write_text(whole.replace("CAST(n AS INT)", "try_cast(n AS INT)"))
    assert place.replay().rows == 1
    assert place.rows() == once(1) + Counter([(5, None)])


def test_the_commands_print_json_and_nothing_is_read_for_a_wrong_option(stage: Stage) -> None:
    runner = CliRunner()
    for arguments, why in (
        (["backfill", str(stage.file)], "give --from or --from-time"),
        (["backfill", str(stage.file), "--abandon", "x", "--replace"], "give it alone"),
        (["backfill", str(stage.file), "--from-time", "yesterday"], "--from-time 'yesterday': write YYYY"),
        (["replay", str(stage.file), "--stage", "fetch"], "--stage fetch: these records could not be read"),
    ):
        found = runner.invoke(pipeline, arguments)
        assert isinstance(found.exception, UsageError)
        assert why in str(found.exception)
