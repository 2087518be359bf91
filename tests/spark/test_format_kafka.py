"""Spark's own kafka source on a group that original members had, and have again: from the group and back to it."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner

from bridge.spark import GroupOffsetProjector, ZkConsumerListener, lag, run_available_now
from bridge.spark import starting_offsets as offsets_of_group
from tests.spark_session_fixtures import checkpoint_of, sunk
from zkconsumer.cli import main
from zkconsumer.errors import PreconditionFailed
from zkconsumer.testing.sandbox import Sandbox, ScalaMember

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import DataStreamWriter

pytestmark = pytest.mark.real

TOOLS = "0.11.0.3"
"""The last release that has ConsumerOffsetChecker."""

PARTITIONS = 2
RECORDS = 200

_numbers = itertools.count()


class Case:
    """A topic and a group of this test alone, and what it asks again and again."""

    def __init__(self, sandbox: Sandbox, spark: SparkSession, folder: Path) -> None:
        number = next(_numbers)
        self.sandbox, self.spark, self.folder = sandbox, spark, folder
        self.group, self.topic = f"design-a-{number}", f"feed-{number}"
        sandbox.create_topic(self.topic, PARTITIONS)

    def produce(self, count: int) -> None:
        for partition in range(PARTITIONS):
            self.sandbox.produce(self.topic, partition, count)

    def member(self) -> ScalaMember:
        return self.sandbox.start_member("1.1.1", self.group, {self.topic: 1})

    def offsets(self) -> dict[int, int]:
        return self.sandbox.admin.offsets(self.group, self.topic)

    def projector(self) -> GroupOffsetProjector:
        return GroupOffsetProjector(self.sandbox.zookeeper_connect, self.group, self.topic)

    def starting_offsets(self) -> str:
        return offsets_of_group(self.sandbox.zookeeper_connect, self.group, self.topic)

    def stream(self, starting_offsets: str, **options: Any) -> DataFrame:
        reader = self.spark.readStream.format("kafka").option("kafka.bootstrap.servers", self.sandbox.bootstrap)
        reader = reader.option("subscribe", self.topic).option("startingOffsets", starting_offsets)
        return reader.options(**options).load().selectExpr("partition", "offset")

    def writer(self, stream: DataFrame) -> DataStreamWriter:
        made = stream.writeStream.format("parquet").option("checkpointLocation", str(checkpoint_of(self.folder)))
        return made.option("path", str(self.folder / "sink"))

    def sunk(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
        for row in sunk(self.spark, self.folder):
            found[row.partition].append(row.offset)
        return {partition: sorted(offsets) for partition, offsets in found.items()}

    def original(self, main: str, *arguments: str) -> list[list[str]]:
        """The words of the lines in which a tool of the original names the topic."""
        where = ("--zookeeper", self.sandbox.zookeeper_connect)
        done = self.sandbox.run_tool(TOOLS, main, [*where, *arguments, "--group", self.group])
        assert done.code == 0, done
        return sorted(line.split() for line in done.out.splitlines() if self.topic in line.split())


@pytest.fixture
def case(shared_cluster: Sandbox, spark: SparkSession, tmp_path: Path) -> Iterator[Case]:
    made = Case(shared_cluster, spark, tmp_path)
    yield made
    for member in shared_cluster.members:
        if member.group == made.group:
            member.close()


def every(first: int, end: int) -> dict[int, list[int]]:
    return {number: list(range(first, end)) for number in range(PARTITIONS)}


def test_a_group_goes_to_spark_and_back_without_a_gap_or_a_repetition(case: Case) -> None:
    case.produce(RECORDS)
    member = case.member()
    member.wait_delivered(PARTITIONS * RECORDS)

    registered = f"1 member is registered in group {case.group} .*{member.consumer_id}"
    with pytest.raises(PreconditionFailed, match=registered):
        case.starting_offsets()
    assert case.sandbox.admin.members(case.group) == [member.consumer_id], "nobody was disturbed"
    member.stop()

    # A run over what there is: begins where the member stopped, ends where the log does.
    case.produce(100)
    listener = ZkConsumerListener()
    offsets = case.starting_offsets()
    assert json.loads(offsets) == {case.topic: {"0": RECORDS, "1": RECORDS}}
    stream = case.stream(offsets, maxOffsetsPerTrigger=60)
    with case.projector() as projector:
        query = run_available_now(case.writer(stream).queryName(case.group), projector, listener)
        assert case.offsets() == {0: 300, 1: 300}
    assert case.sunk() == every(RECORDS, 300)
    for progress in query.recentProgress:
        theirs = {name: float(number) for name, number in progress["sources"][0]["metrics"].items()}
        ours = lag(progress).metrics
        assert theirs == {name: float(ours[name]) for name in theirs}, "the JVM computes the same"
    assert listener.latest[case.group].metrics["groupLag"] == 0

    # The old tools see what the member would have left.
    rows = [[case.topic, str(number), "300", "300", "0"] for number in range(PARTITIONS)]
    checked = case.original("kafka.tools.ConsumerOffsetChecker")
    assert [row[1:6] for row in checked] == rows
    described = case.original("kafka.admin.ConsumerGroupCommand", "--describe")
    assert [row[:5] for row in described] == rows
    shown = CliRunner().invoke(main, ["lag", case.group, "--zookeeper", case.sandbox.zookeeper_connect])
    assert shown.stdout.splitlines()[-1] == "TOTAL 0", shown.output

    # The same checkpoint goes on.
    case.produce(50)
    with case.projector() as projector:
        run_available_now(case.writer(case.stream("earliest")), projector)
    assert case.offsets() == {0: 350, 1: 350}
    assert case.sunk() == every(RECORDS, 350)

    # And an original member goes on exactly there.
    case.produce(10)
    member = case.member()
    member.wait_delivered(PARTITIONS * 10)
    assert member.offsets() == {(case.topic, number): list(range(350, 360)) for number in range(PARTITIONS)}
