"""A pipeline from a group into parquet: each record is a row, a dead letter or filtered, once, wherever it stops."""

from __future__ import annotations

import contextlib
import json
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge.spark.pipeline.batch_writer import AFTER_COMMIT, AFTER_DEAD_LETTERS, AFTER_WRITE, DeadLettersRejectedError
from bridge.spark.pipeline.pipeline_file import PipelineFileError, read_pipeline
from bridge.spark.pipeline.pipeline_query import (
    PipelineFailedError,
    PreparedPipeline,
    RunningPipeline,
    prepare_pipeline,
    start_pipeline,
)
from bridge.spark.pipeline.pipeline_sample import read_sample
from bridge.spark.pipeline.pipeline_spec import PostgresTarget
from bridge.spark.pipeline.sinks.parquet_table import read_parquet_table
from bridge.spark.pipeline.sinks.postgres_connection import connect_postgres
from tests.postgres_fixtures import DATABASE, USER, PostgresServer
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import UsageError
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.waiting import HOST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

END_MS = 120_000
POINTS = (AFTER_WRITE, AFTER_DEAD_LETTERS, AFTER_COMMIT)

BROKEN, WRONG_TYPE, NO_NUMBER, FILTERED = b"{broken", b'{"id": "x"}', b'{"id": 5, "n": "none"}', b'{"id": -1, "n": "1"}'
NO_TEXT = b'{"id": 6, "unknown": "\xff"}'


def good(first: int, count: int) -> list[bytes]:
    return [json.dumps({"id": n, "n": str(n)}).encode() for n in range(first, first + count)]


class Place:
    """A topic, a pipeline file, and the folders that it names."""

    def __init__(self, spark: SparkSession, cluster: Sandbox, topic: str, folder: Path) -> None:
        self.spark, self.cluster, self.topic, self.folder = spark, cluster, topic, folder
        cluster.create_topic(topic, 2)
        self.file = folder / "clicks.toml"
        self.write()

    def write(
        self,
        dead_letters: str = 'format = "parquet"\npath = "dead"',
        select: str = "id, CAST(n AS INT) AS n",
        trigger: str = "available-now = true",
        sink: str = 'format = "parquet"\npath = "rows"',
        source: str = "",
    ) -> None:
        self.file.write_text(
            f"""
            [pipeline]
            name = "{self.topic}"
            [source]
            zookeeper.connect = "{self.cluster.zookeeper.connect_string("/kafka")}"
            group.id = "{self.topic}"
            subscribe = "{self.topic}"
            auto.offset.reset = "smallest"
            {source}
            [decode]
            format = "json"
            schema = "id BIGINT, n STRING"
            [transform]
            select = {json.dumps(select.split(", "))}
            where = "id >= 0"
            [sink]
            {sink}
            [dead-letters]
            {dead_letters}
            [trigger]
            {trigger}
            [checkpoint]
            path = "checkpoint"
            """
        )

    def prepare(self) -> PreparedPipeline:
        return prepare_pipeline(self.spark, read_pipeline(self.file), {}, lambda path: Path(path).read_bytes())

    def run(self, fails_at: str = "") -> None:
        """One run; ``fails_at``: the driver ends at this point of its first batch."""

        def reached(point: str, _: int) -> None:
            if point == fails_at:
                raise InterruptedError(point)

        prepared = self.prepare()
        try:
            running: RunningPipeline = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms, reached=reached)
            try:
                assert running.wait(END_MS), "the pipeline has not ended"
            finally:
                running.query.stop()
        finally:
            prepared.close()

    def rows(self) -> Counter[int]:
        return Counter(row.id for row in read_parquet_table(self.spark, str(self.folder / "rows")).collect())

    def dead(self) -> Counter[tuple[bytes, str]]:
        found = read_parquet_table(self.spark, str(self.folder / "dead")).collect()
        return Counter((bytes(row.value), row.stage) for row in found)

    def totals(self) -> dict[str, int]:
        # Other tests may write to the same table of PostgreSQL.
        lineages = [each for each in self.prepare().sink.lineages() if each.pipeline == self.topic]
        names = ("rows", "dead_letters", "filtered")
        return {name: sum(getattr(each.counts, name) for each in lineages) for name in names} | {
            "offsets": sum(each.offsets for each in lineages)
        }


@pytest.fixture
def place(spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path) -> Place:
    return Place(spark, shared_cluster, fresh_name, tmp_path)


@pytest.mark.parametrize(
    "fails_at",
    # CI kills whole processes at the others: tests/spark/crash.
    [point if point == AFTER_DEAD_LETTERS else pytest.param(point, marks=pytest.mark.nightly) for point in POINTS],
)
def test_each_record_is_somewhere_once_wherever_the_driver_ends(place: Place, fails_at: str) -> None:
    others = [BROKEN, WRONG_TYPE, NO_NUMBER, FILTERED, NO_TEXT]
    place.cluster.produce(place.topic, 0, [*good(0, 20), *others])
    place.cluster.produce(place.topic, 1, good(100, 20))
    with pytest.raises(PipelineFailedError, match=fails_at):
        place.run(fails_at)
    assert (len(place.rows()) > 0) == (fails_at == AFTER_COMMIT)
    place.run()
    place.run()
    assert place.rows() == Counter([*range(20), *range(100, 120)])
    not_decoded = [(value, "decode") for value in (BROKEN, WRONG_TYPE, NO_TEXT)]
    assert place.dead() == Counter([*not_decoded, (NO_NUMBER, "transform")])
    assert place.totals() == {"rows": 40, "dead_letters": 4, "filtered": 1, "offsets": 45}
    place.cluster.produce(place.topic, 1, good(200, 5))
    place.run()
    assert place.rows() == Counter([*range(20), *range(100, 120), *range(200, 205)])
    assert place.totals()["offsets"] == 50


@pytest.mark.nightly  # CI kills whole processes: tests/spark/crash
def test_postgresql_has_each_record_once_wherever_a_driver_ends(place: Place, postgres_server: PostgresServer) -> None:
    sink = (
        f'format = "postgres"\nurl = "postgresql://{HOST}:{postgres_server.port}/{DATABASE}"\nssl-mode = "disable"\n'
        f'user = "{USER}"\npassword = "file:{postgres_server.password_file}"\ntable = "{place.topic[-40:]}"'
    )
    letters = f'format = "postgres"\nconnection = "sink"\ntable = "dead {place.topic[-40:]}"'
    place.write(sink=sink, dead_letters=letters)
    target = read_pipeline(place.file).sink
    assert isinstance(target, PostgresTarget)
    place.cluster.produce(place.topic, 0, [*good(0, 20), BROKEN, FILTERED, b'{"id": 7, "n": "7", "text": "\\u0000"}'])
    for point in POINTS:
        with contextlib.suppress(PipelineFailedError):
            place.run(point)
    place.run()
    with connect_postgres(target) as connection:
        ids = [row[0] for row in connection.execute(f'SELECT id FROM "{target.table}"').fetchall()]
        dead = connection.execute(f'SELECT stage FROM "dead {target.table}"').fetchall()
    assert Counter(ids) == Counter([*range(20), 7])
    assert dead == [("decode",)]
    assert place.totals() == {"rows": 21, "dead_letters": 1, "filtered": 1, "offsets": 23}


def test_without_a_place_for_dead_letters_the_error_names_the_record(place: Place) -> None:
    place.write(dead_letters='format = "none"')
    place.cluster.produce(place.topic, 1, [*good(0, 2), BROKEN])
    with pytest.raises(DeadLettersRejectedError, match=rf"1 records .*{place.topic}/1 offset 2, stage decode"):
        place.run()
    assert place.rows() == Counter()
    place.write()
    place.run()
    assert place.rows() == Counter([0, 1])
    assert place.dead() == Counter([(BROKEN, "decode")])


def test_a_sample_shows_rows_and_changes_nothing(place: Place) -> None:
    place.cluster.produce(place.topic, 0, [*good(0, 3), BROKEN, FILTERED])
    prepared = place.prepare()
    sample = read_sample(prepared, 10)
    prepared.close()
    assert sample.rows == ((0, 0), (1, 1), (2, 2))
    assert (sample.records, sample.filtered) == (5, 1)
    assert [where for where, _ in sample.dead] == [f"{place.topic}/0 offset 3"]
    assert not prepared.folder.exists()
    assert sorted(each.name for each in place.folder.iterdir()) == ["clicks.toml"]


def test_sql_that_does_not_fit_is_one_line_that_names_the_key(place: Place) -> None:
    place.write(select="id, missing")
    with pytest.raises(
        PipelineFileError, match=r"clicks\.toml: \[transform\] select: missing: .*correct the expression"
    ):
        place.prepare()


def test_delta_is_refused_on_this_release_of_spark_before_anything_is_read(place: Place) -> None:
    place.write(sink='format = "delta"\npath = "rows"', select="id, missing")
    with pytest.raises(UsageError, match=r"Delta 4\.4\.0 fits pyspark 4\.2\.0 and not 4\.3.*This is Spark 4\.3"):
        place.prepare()
    assert sorted(each.name for each in place.folder.iterdir()) == ["clicks.toml"]


def test_a_pipeline_with_an_interval_ends_after_its_batch(place: Place) -> None:
    place.write(trigger='interval = "1s"')
    place.cluster.produce(place.topic, 0, good(0, 5))
    prepared = place.prepare()
    batches: list[Any] = []
    running = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms, on_batch=batches.append)
    deadline = time.monotonic() + END_MS / 1000
    while not batches and time.monotonic() < deadline:
        assert not running.wait(200)
    assert running.stop(END_MS, SYSTEM_CLOCK.now_ms)
    prepared.close()
    assert place.rows() == Counter(range(5))


def test_a_pipeline_that_owns_no_partition_at_first_waits_and_reads_those_of_a_member_that_leaves(place: Place) -> None:
    member = place.cluster.start_member("1.1.1", place.topic, {place.topic: 2}, name=place.topic, consumer_id="a")
    place.write(trigger='interval = "1s"', source='consumer.id = "zz"\nconsumer.threads = 2')
    prepared = place.prepare()
    batches: list[Any] = []
    running = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms, on_batch=batches.append)
    deadline = time.monotonic() + END_MS / 1000
    # Spark has run its first batch, for which the source has planned nothing.
    while running.query.lastProgress is None and time.monotonic() < deadline:
        assert not running.wait(200)
    assert batches == []
    assert member.stop()
    for partition in range(2):
        place.cluster.produce(place.topic, partition, good(10 * partition, 3))
    while sum(batch.lineage.counts.rows for batch in batches) < 6 and time.monotonic() < deadline:
        assert not running.wait(200)
    assert running.stop(END_MS, SYSTEM_CLOCK.now_ms)
    prepared.close()
    assert place.rows() == Counter([*range(3), *range(10, 13)])
    assert place.totals()["offsets"] == 6
