"""Batches that a broker has damaged on its disk are passed over, with exact offsets, by streams and batches."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import StreamingQueryException

from bridge.spark import register
from tests.damaged_logs import DamagedLog
from tests.spark_session_fixtures import run_available_now, sunk
from zkconsumer.testing.sandbox import Sandbox

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, DataFrameReader, SparkSession

pytestmark = pytest.mark.real

BATCH, BATCHES = 10, 6


@pytest.fixture
def log(spark: SparkSession, shared_cluster: Sandbox, fresh_name: str) -> DamagedLog:
    """Batches of ten records; 10 to 19 has a wrong checksum, 30 to 39 an unknown codec."""
    register(spark)
    shared_cluster.create_topic(fresh_name, 1)
    for _ in range(BATCHES):
        shared_cluster.produce(fresh_name, 0, BATCH)
    log = DamagedLog(shared_cluster, fresh_name)
    assert log.change_checksum(10) == range(10, 20)
    assert log.set_unknown_codec(30) == range(30, 40)
    return log


def stream_of(spark: SparkSession, cluster: Sandbox, topic: str, **more: str) -> DataFrame:
    options = {
        "zookeeper.connect": cluster.zookeeper_connect, "group.id": topic, "subscribe": topic,
        "auto.offset.reset": "smallest", "group.offsets.commit": "claim", **more,
    }  # fmt: skip
    return spark.readStream.format("zkconsumer").options(**options).load()


def batch_of(spark: SparkSession, cluster: Sandbox, topic: str) -> DataFrameReader:
    options = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "endingOffsets": "latest"}
    return spark.read.format("zkconsumer").options(**options)


SOUND = [offset for offset in range(BATCH * BATCHES) if offset // BATCH not in (1, 3)]


@pytest.mark.usefixtures("log")
def test_a_stream_that_claims_passes_over_corrupt_batches_and_the_group_follows(
    spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path
) -> None:
    topic = fresh_name
    with pytest.raises(StreamingQueryException) as caught:
        run_available_now(stream_of(spark, shared_cluster, topic), tmp_path)
    text = str(caught.value)
    command = f"zkconsumer spark reconcile --group {topic} --checkpoint DIR --rewind --store zookeeper --zookeeper"
    assert f"{command} {shared_cluster.zookeeper_connect} --execute" in text
    assert "skipOffsets" in text
    run_available_now(stream_of(spark, shared_cluster, topic, onCorruptRecord="skip"), tmp_path)
    assert sorted(row.offset for row in sunk(spark, tmp_path)) == SOUND
    assert shared_cluster.admin.offsets(topic, topic) == {0: BATCH * BATCHES}


@pytest.mark.usefixtures("log")
def test_a_stream_returns_a_row_for_each_corrupt_range(
    spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path
) -> None:
    stream = stream_of(spark, shared_cluster, fresh_name, onCorruptRecord="deadLetter", minPartitions="4")
    run_available_now(stream, tmp_path)
    rows = sunk(spark, tmp_path)
    assert sorted(row.offset for row in rows if row.corrupt is None) == SOUND
    passed_over = sorted((row.offset, row.corrupt.end) for row in rows if row.corrupt is not None)
    assert passed_over == [(10, 15), (15, 20), (30, 40)], "tasks have 15 offsets, and each reports its own"
    assert {row.topic for row in rows} == {fresh_name}


@pytest.mark.usefixtures("log")
def test_a_batch_reads_past_corrupt_batches(spark: SparkSession, shared_cluster: Sandbox, fresh_name: str) -> None:
    reader = batch_of(spark, shared_cluster, fresh_name)
    rows = reader.option("onCorruptRecord", "skip").load().select("offset").collect()
    assert sorted(row.offset for row in rows) == SOUND
    rows = reader.option("onCorruptRecord", "deadLetter").load().collect()
    bad = {row.offset: row for row in rows if row.corrupt is not None}
    assert sorted(bad) == [10, 30]
    assert "checksum" in bad[10].corrupt.error
    assert "codec" in bad[30].corrupt.error
    assert bad[10].value is not None


def test_a_damaged_size_ends_where_the_broker_sends_records_again(
    spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, log: DamagedLog
) -> None:
    """A broker looks for an offset from its index on, so it does not find the batches soon after the damaged one."""
    for _ in range(20):
        shared_cluster.produce(fresh_name, 0, BATCH)
    log.set_size(20, 0)
    rows = batch_of(spark, shared_cluster, fresh_name).option("onCorruptRecord", "deadLetter").load().collect()
    sound = sorted(row.offset for row in rows if row.corrupt is None)
    ranges = sorted((row.offset, row.corrupt.end) for row in rows if row.corrupt is not None)
    assert ranges[0] == (10, 20)
    assert ranges[1][0] == 20
    assert 30 <= ranges[1][1] < 130
    assert "CORRUPT_MESSAGE" in next(row.corrupt.error for row in rows if row.corrupt is not None and row.offset == 20)
    lost = [offset for first, end in ranges for offset in range(first, end)]
    assert sorted([*sound, *lost]) == list(range(26 * BATCH))
