"""The topics of a pipeline change between two of its starts: each record is a row once, and no start loses one."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from bridge.spark.pipeline.batch_writer import AFTER_COMMIT, AFTER_WRITE
from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_query import PipelineFailedError, RunningPipeline, prepare_pipeline, start_pipeline
from bridge.spark.pipeline.sinks.parquet_table import read_parquet_table
from tests.spark_session_fixtures import STARTS_MAX, TOO_SLOW
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import UnavailableError, UsageError
from zkconsumer.testing.sandbox import Sandbox

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.real, pytest.mark.timeout(600)]

END_MS = 120_000
RECORDS = 10


class ChangingTopics:
    """Topics ``<name>-a``, ``-b`` and ``-c`` with a partition each, and one pipeline."""

    def __init__(self, spark: SparkSession, cluster: Sandbox, name: str, folder: Path) -> None:
        self.spark, self.cluster, self.name, self.folder = spark, cluster, name, folder
        self.produced = Counter[str]()

    def topics(self, letters: str) -> str:
        return ",".join(f"{self.name}-{letter}" for letter in letters)

    def produce(self, letters: str) -> None:
        for letter in letters:
            first = sum(value.startswith(letter) for value in self.produced)
            values = [f"{letter}{number}" for number in range(first, first + RECORDS)]
            self.cluster.produce(self.topics(letter), 0, [value.encode() for value in values])
            self.produced.update(values)

    def run(self, source: str, fails_at: str = "") -> None:
        """``source``: the lines about topics; ``fails_at``: the driver ends at this point of its first batch."""
        for left in reversed(range(STARTS_MAX)):
            try:
                self._run(source, fails_at)
                return
            except PipelineFailedError as error:  # on a busy machine
                if TOO_SLOW not in str(error) or not left:
                    raise

    def _run(self, source: str, fails_at: str = "") -> None:
        file = self.folder / "pipeline.toml"
        file.write_text(
            f"""
            [pipeline]
            name = "{self.name}"
            [source]
            zookeeper.connect = "{self.cluster.zookeeper.connect_string("/kafka")}"
            group.id = "{self.name}"
            auto.offset.reset = "smallest"
            {source}
            [decode]
            format = "text"
            [sink]
            format = "parquet"
            path = "rows"
            [trigger]
            available-now = true
            [checkpoint]
            path = "checkpoint"
            """
        )

        def reached(point: str, _: int) -> None:
            if point == fails_at:
                raise InterruptedError(point)

        prepared = prepare_pipeline(self.spark, read_pipeline(file), {}, lambda path: Path(path).read_bytes())
        try:
            running: RunningPipeline = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms, reached=reached)
            try:
                assert running.wait(END_MS), "the pipeline has not ended"
            finally:
                running.query.stop()
        finally:
            prepared.close()

    def subscribe(self, letters: str, fails_at: str = "") -> None:
        self.run(f'subscribe = "{self.topics(letters)}"', fails_at)

    def rows(self) -> Counter[str]:
        return Counter(row.value for row in read_parquet_table(self.spark, str(self.folder / "rows")).collect())


@pytest.fixture
def changing(spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path) -> ChangingTopics:
    made = ChangingTopics(spark, shared_cluster, fresh_name[-40:].lstrip("_"), tmp_path)
    for letter in "abc":
        shared_cluster.create_topic(made.topics(letter), 1)
    return made


@pytest.mark.nightly
def test_topics_are_added_and_removed_between_the_starts_of_a_pipeline(changing: ChangingTopics) -> None:
    changing.produce("ab")
    changing.subscribe("a")
    assert set(changing.rows()) == {f"a{number}" for number in range(RECORDS)}

    # Added; and a batch with records of both is planned, and its driver ends: before the rows are visible, and after.
    changing.produce("a")
    for point in (AFTER_WRITE, AFTER_COMMIT):
        with pytest.raises(PipelineFailedError, match=point):
            changing.subscribe("ab", point)
    assert changing.rows() == changing.produced

    # Removed while Spark has yet to repeat that batch, and new records of both wait.
    changing.produce("ab")
    gone = rf"this query has read the topic {changing.topics('b')}, which the options no longer name: name it again"
    for _ in range(2):
        with pytest.raises(UnavailableError, match=rf"^{gone}, or set failOnDataLoss=false"):
            changing.subscribe("a")
    with pytest.raises(UsageError, match=r"topic '.*-missing' does not exist in ZooKeeper .*: correct"):
        changing.run(f'subscribe = "{changing.topics("ab")},{changing.name}-missing"')
    changing.subscribe("ab")
    assert changing.rows() == changing.produced

    # A pattern that matches one more.
    changing.produce("bc")
    changing.run(f'subscribePattern = "{changing.name}-.*"')
    assert changing.rows() == changing.produced
