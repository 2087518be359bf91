"""``zkconsumer spark`` beside real queries: their checkpoints are Spark's own work."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

import bridge.spark
from tests.spark_session_fixtures import checkpoint_of, run_available_now, sunk
from zkconsumer.cli.main import main
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.real

OFFSET_LOG = "spark.sql.streaming.offsetLog.formatVersion"


def run(cluster: Sandbox, *words: object) -> Result:
    return CliRunner().invoke(main, ["spark", *map(str, words), "--zookeeper", cluster.zookeeper_connect])


def stand_at(cluster: Sandbox, group: str, topic: str, *offsets: int) -> None:
    for partition, offset in enumerate(offsets):
        cluster.admin.put(paths.offset(group, TopicPartition(topic, partition)), b"%d" % offset)


@pytest.mark.parametrize("version", ["1", "2"])
def test_a_group_follows_a_query_of_spark_s_own_source(
    version: str, spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path
) -> None:
    """It begins where the group stood, reads to the end beside a source of other things, and the group is told."""
    topic, group = fresh_name, f"{fresh_name}-group"
    shared_cluster.create_topic(topic, 2)
    for partition in range(2):
        shared_cluster.produce(topic, partition, 10)
    stand_at(shared_cluster, group, topic, 4, 7)
    starting = run(shared_cluster, "starting-offsets", "--group", group, "--topic", topic)
    assert json.loads(starting.stdout) == {topic: {"0": 4, "1": 7}}
    spark.range(1).write.parquet(str(tmp_path / "other"))
    other: DataFrame = spark.readStream.schema("id long").parquet(str(tmp_path / "other")).selectExpr("id AS offset")
    kafka = spark.readStream.format("kafka").option("kafka.bootstrap.servers", shared_cluster.bootstrap)
    stream = kafka.option("subscribe", topic).option("startingOffsets", starting.stdout).load().select("offset")
    spark.conf.set(OFFSET_LOG, version)
    try:
        run_available_now(other.union(stream), tmp_path)
    finally:
        spark.conf.unset(OFFSET_LOG)
    assert len(sunk(spark, tmp_path)) == 1 + 6 + 3
    words = ("reconcile", "--group", group, "--checkpoint", checkpoint_of(tmp_path))
    planned = run(shared_cluster, *words)
    assert (planned.exit_code, planned.stdout.count(" forward\n")) == (3, 2)
    assert shared_cluster.admin.offsets(group, topic) == {0: 4, 1: 7}
    assert run(shared_cluster, *words, "--execute").exit_code == 0
    assert shared_cluster.admin.offsets(group, topic) == {0: 10, 1: 10}
    assert run(shared_cluster, *words, "--execute").stderr == "There is nothing to change.\n"


def unfinished(checkpoint: Path) -> None:
    """As a crash between sink and commit log leaves it: the last batch is claimed and not done."""
    last = max(int(file.name) for file in (checkpoint / "commits").iterdir() if file.name.isdecimal())
    for name in (str(last), f".{last}.crc"):
        (checkpoint / "commits" / name).unlink(missing_ok=True)


def test_a_checkpoint_that_is_given_up_gives_back_its_last_batch_and_the_next_one_reads_it(
    spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path
) -> None:
    bridge.spark.register(spark)
    topic, group = fresh_name, f"{fresh_name}-group"
    shared_cluster.create_topic(topic, 2)
    for partition in range(2):
        shared_cluster.produce(topic, partition, 10)
    options = {
        "zookeeper.connect": shared_cluster.zookeeper_connect, "group.id": group, "subscribe": topic,
        "group.offsets.commit": "claim", "maxOffsetsPerTrigger": "12", "auto.offset.reset": "smallest",
    }  # fmt: skip
    stream = spark.readStream.format("zkconsumer").options(**options).load().select("partition", "offset")
    first, second = tmp_path / "first", tmp_path / "second"
    run_available_now(stream, first)
    assert len(sunk(spark, first)) == 20
    assert shared_cluster.admin.offsets(group, topic) == {0: 10, 1: 10}
    claims = json.loads(run(shared_cluster, "claims", "--group", group, "-o", "json").stdout)["claims"]
    assert [(row["end"], row["owner"], row["remark"]) for row in claims] == [(10, None, None)] * 2
    words = ("reconcile", "--group", group, "--checkpoint", checkpoint_of(first))
    assert run(shared_cluster, *words, "--rewind").stderr == "There is nothing to change.\n"
    unfinished(checkpoint_of(first))
    assert run(shared_cluster, *words).stdout.count("claimed, not done: start again") == 2
    assert run(shared_cluster, *words, "--rewind", "--execute").exit_code == 0
    back = {row["partition"]: row["first"] for row in claims}
    assert shared_cluster.admin.offsets(group, topic) == back
    run_available_now(stream, second)
    expected = [(partition, offset) for partition in range(2) for offset in range(back[partition], 10)]
    assert sorted((row.partition, row.offset) for row in sunk(spark, second)) == expected
    gone = run(shared_cluster, "claims", "--group", group, "--delete", claims[0]["query"], "--execute")
    assert gone.exit_code == 0, gone.output
    left = json.loads(run(shared_cluster, "claims", "--group", group, "-o", "json").stdout)["claims"]
    assert {row["query"] for row in left} & {claims[0]["query"]} == set()
    assert len(left) == 2


def test_a_replay_after_a_crash_reads_what_was_claimed(
    spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path
) -> None:
    """The batch is claimed, another member has gone on since: the query reads its claim, and then what is left."""
    bridge.spark.register(spark)
    topic, group = fresh_name, f"{fresh_name}-group"
    shared_cluster.create_topic(topic, 1)
    shared_cluster.produce(topic, 0, 10)
    options = {
        "zookeeper.connect": shared_cluster.zookeeper_connect, "group.id": group, "subscribe": topic,
        "group.offsets.commit": "claim", "auto.offset.reset": "smallest",
    }  # fmt: skip
    stream = spark.readStream.format("zkconsumer").options(**options).load().select("offset")
    run_available_now(stream, tmp_path)
    unfinished(checkpoint_of(tmp_path))
    shutil.rmtree(tmp_path / "sink")
    shared_cluster.produce(topic, 0, 10)
    shared_cluster.admin.put(paths.offset(group, TopicPartition(topic, 0)), b"14")
    run_available_now(stream, tmp_path)
    assert sorted(row.offset for row in sunk(spark, tmp_path)) == [*range(10), *range(14, 20)]
    assert shared_cluster.admin.offsets(group, topic) == {0: 20}
