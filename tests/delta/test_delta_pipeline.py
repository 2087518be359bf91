"""A pipeline from a group into Delta tables, with the source of this project on pyspark 4.2."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bridge.spark.pipeline.batch_writer import AFTER_COMMIT, AFTER_DEAD_LETTERS, AFTER_WRITE
from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_query import PipelineFailedError, prepare_pipeline, start_pipeline
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.testing.sandbox import Sandbox

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

END_MS = 240_000


def run_pipeline(spark: SparkSession, file: Path, fails_at: str = "") -> list[int]:
    """One run; ``fails_at``: the driver ends at this point of its first batch.  The offsets of each lineage."""

    def reached(point: str, _: int) -> None:
        if point == fails_at:
            raise InterruptedError(point)

    prepared = prepare_pipeline(spark, read_pipeline(file), {}, lambda path: Path(path).read_bytes())
    try:
        running = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms, reached=reached)
        try:
            assert running.wait(END_MS), "the pipeline has not ended"
        finally:
            running.query.stop()
    finally:
        prepared.close()
    return [each.offsets for each in prepared.sink.lineages()]


def test_each_record_is_somewhere_once_wherever_the_driver_ends(
    spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path
) -> None:
    shared_cluster.create_topic(fresh_name, 1)
    file = tmp_path / "clicks.toml"
    file.write_text(
        f"""
        [pipeline]
        name = "{fresh_name}"
        [source]
        zookeeper.connect = "{shared_cluster.zookeeper.connect_string("/kafka")}"
        group.id = "{fresh_name}"
        subscribe = "{fresh_name}"
        auto.offset.reset = "smallest"
        [decode]
        format = "json"
        schema = "id BIGINT"
        [transform]
        select = ["id", "offset"]
        where = "id >= 0"
        [sink]
        format = "delta"
        path = "rows"
        [dead-letters]
        format = "delta"
        table = "dead_letters"
        [trigger]
        available-now = true
        [checkpoint]
        path = "checkpoint"
        """
    )
    records = [*(json.dumps({"id": n}).encode() for n in range(20)), b"{broken", b'{"id": -1}']
    shared_cluster.produce(fresh_name, 0, records)
    for point in (AFTER_WRITE, AFTER_DEAD_LETTERS, AFTER_COMMIT):
        with pytest.raises(PipelineFailedError, match=point):
            run_pipeline(spark, file, point)
    shared_cluster.produce(fresh_name, 0, records[:5])
    assert run_pipeline(spark, file) == [22, 5]
    rows = spark.read.format("delta").load(str(tmp_path / "rows")).collect()
    expected = [*((n, n) for n in range(20)), *((n, 22 + n) for n in range(5))]
    assert sorted((row.id, row.offset) for row in rows) == sorted(expected)
    dead = spark.table("dead_letters").collect()
    assert [(bytes(row.value), row.stage, row.offset) for row in dead] == [(b"{broken", "decode", 20)]
