"""Two pipelines on one group: the second one is refused while the first one lives, and a restart never is.

What holds until a session has expired is in ``tests/spark/test_membership_process.py``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_query import PipelineFailedError, RunningPipeline, prepare_pipeline, start_pipeline
from bridge.spark.pipeline.sinks.parquet_table import read_parquet_table
from tests.spark_session_fixtures import STARTS_MAX, TOO_SLOW, local_spark_environment
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import PipelineAlreadyRunning
from zkconsumer.testing.sandbox import Sandbox, wait_until
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

END_MS, START_MS, END_S = 120_000, 180_000, 60
SESSION_MS = 6_000


class TwoPipelines:
    """Pipelines with folders of their own on one group."""

    def __init__(self, spark: SparkSession, cluster: Sandbox, topic: str, folder: Path) -> None:
        self.spark, self.cluster, self.topic, self.folder = spark, cluster, topic, folder
        self.process: subprocess.Popen[bytes] | None = None
        cluster.create_topic(topic, 2)

    def file(self, name: str, trigger: str = "available-now = true") -> Path:
        folder = self.folder / name
        folder.mkdir(exist_ok=True)
        file = folder / "pipeline.toml"
        file.write_text(
            f"""
            [pipeline]
            name = "{name}"
            [source]
            zookeeper.connect = "{self.cluster.zookeeper.connect_string("/kafka")}"
            zookeeper.session.timeout.ms = {SESSION_MS}
            group.id = "{self.topic}"
            subscribe = "{self.topic}"
            auto.offset.reset = "smallest"
            [decode]
            format = "text"
            [sink]
            format = "parquet"
            path = "rows"
            [trigger]
            {trigger}
            [checkpoint]
            path = "checkpoint"
            """
        )
        return file

    def start(self, name: str) -> None:
        """In a process of its own, until it is a member of the group."""
        words = ["pipeline", "run", str(self.file(name, 'interval = "1s"')), "--master", "local[1]"]
        words += ["--conf", "spark.ui.enabled=false", "--conf", f"spark.local.dir={self.folder}/local"]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-c", "from zkconsumer.cli import main; main()", *words],
                stdout=log, stderr=log, env=os.environ | local_spark_environment(), start_new_session=True,
            )  # fmt: skip
        wait_until(self.registered, f"{name} is registered: {self.folder}/log", START_MS)

    def kill(self) -> None:
        """All processes of the pipeline at once, as when its machine fails: nothing leaves the group."""
        if self.process is None:
            return
        for pid in [*_descendants(self.process.pid), self.process.pid]:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
        self.process.wait(END_S)
        self.process = None

    def run(self, name: str) -> None:
        """In this process, to the end of the topic."""
        for left in reversed(range(STARTS_MAX)):
            try:
                self._run(name)
                return
            except PipelineFailedError as error:  # on a busy machine
                if TOO_SLOW not in str(error) or not left:
                    raise

    def _run(self, name: str) -> None:
        spec = read_pipeline(self.file(name))
        prepared = prepare_pipeline(self.spark, spec, {}, lambda path: Path(path).read_bytes())
        try:
            running: RunningPipeline = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms)
            try:
                assert running.wait(END_MS), "the pipeline has not ended"
            finally:
                running.query.stop()
        finally:
            prepared.close()

    def rows(self, name: str) -> Counter[str]:
        return Counter(row.value for row in read_parquet_table(self.spark, f"{self.folder}/{name}/rows").collect())

    def registered(self) -> dict[str, object] | None:
        data = self.cluster.admin.get(paths.running_pipeline(self.topic))
        return None if data is None else dict(json.loads(data))


def _descendants(pid: int) -> list[int]:
    """Of a process, on Linux; each before its children."""
    children = Path(f"/proc/{pid}/task").glob("*/children")
    found = [int(each) for file in children for each in file.read_text().split()]
    return [*found, *(each for child in found for each in _descendants(child))]


@pytest.fixture
def two(spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path) -> Iterator[TwoPipelines]:
    made = TwoPipelines(spark, shared_cluster, fresh_name[-40:], tmp_path)
    yield made
    made.kill()


@pytest.mark.nightly
@pytest.mark.timeout(600)
def test_a_second_pipeline_is_refused_and_a_restart_of_the_first_one_goes_on(two: TwoPipelines) -> None:
    two.cluster.produce(two.topic, 0, [b"a-%d" % n for n in range(10)])
    two.start("clicks")
    assert two.process is not None
    pid = two.process.pid
    found = two.registered()
    assert found is not None
    assert (found["pipeline"], found["process"], found["checkpoint"]) == (
        "clicks", pid, f"{two.folder}/clicks/checkpoint",
    )  # fmt: skip
    place = f"{two.topic}: clicks with the checkpoint {two.folder}/clicks/checkpoint"
    refused = (
        rf"^another pipeline reads group {place} \(query {found['query']}\), process {pid} on .*, since 20.*"
        r"Each of the two would get a part of the records, so this one does not start\. End the other one first; .*"
        "group of its own$"
    )
    with pytest.raises(PipelineAlreadyRunning, match=refused) as caught:
        two.run("orders")
    assert "\n" not in str(caught.value)

    two.cluster.produce(two.topic, 1, [b"b-%d" % n for n in range(10)])
    two.kill()
    two.run("clicks")  # its former session may not have expired yet
    assert two.rows("clicks") == Counter([f"a-{n}" for n in range(10)] + [f"b-{n}" for n in range(10)])
    assert two.registered() is None

    two.cluster.produce(two.topic, 0, [b"c-%d" % n for n in range(10)])
    two.run("orders")
    assert two.rows("orders") == Counter(f"c-{n}" for n in range(10))
