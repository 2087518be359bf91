"""A pipeline whose log is damaged: each offset is a row, a dead letter or skipped, alike in each attempt of a batch."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bridge.spark.pipeline.batch_writer import AFTER_DEAD_LETTERS, AFTER_WRITE
from bridge.spark.pipeline.lineage import BatchLineage
from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_query import (
    PipelineFailedError,
    PreparedPipeline,
    RunningPipeline,
    prepare_pipeline,
    start_pipeline,
)
from bridge.spark.pipeline.pipeline_sample import read_sample
from bridge.spark.pipeline.sinks.parquet_table import read_parquet_table
from tests.damaged_logs import DamagedLog
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import ZkConsumerError
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import Row, SparkSession

pytestmark = pytest.mark.real

END_MS = 120_000
BATCH = 10


class DamagedPlace:
    """A topic of four batches with ten records, a pipeline file, and the folders that it names."""

    def __init__(self, spark: SparkSession, cluster: Sandbox, topic: str, folder: Path) -> None:
        self.spark, self.topic, self.folder = spark, topic, folder
        cluster.create_topic(topic, 1)
        for first in range(0, 4 * BATCH, BATCH):
            values = [json.dumps({"id": n}).encode() for n in range(first, first + BATCH)]
            cluster.produce(topic, 0, [*values[:-1], b"{broken"] if first == 3 * BATCH else values)
        self.log = DamagedLog(cluster, topic)
        self.connect = cluster.zookeeper.connect_string("/kafka")

    def prepare(self, policy: str) -> PreparedPipeline:
        file = self.folder / "damaged.toml"
        file.write_text(
            f"""
            [pipeline]
            name = "{self.topic}"
            [source]
            zookeeper.connect = "{self.connect}"
            group.id = "{self.topic}"
            subscribe = "{self.topic}"
            auto.offset.reset = "smallest"
            onCorruptRecord = "{policy}"
            [decode]
            format = "json"
            schema = "id BIGINT"
            [sink]
            format = "parquet"
            path = "rows"
            [dead-letters]
            format = "parquet"
            path = "dead"
            [trigger]
            available-now = true
            [checkpoint]
            path = "checkpoint"
            """
        )
        return prepare_pipeline(self.spark, read_pipeline(file), {}, lambda path: Path(path).read_bytes())

    def run(self, policy: str, reached: Callable[[str, int], None] = lambda _point, _batch: None) -> None:
        prepared = self.prepare(policy)
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

    def dead(self) -> list[Row]:
        found = read_parquet_table(self.spark, str(self.folder / "dead")).collect()
        return sorted(found, key=lambda row: int(row.offset))

    def lineage(self, policy: str) -> BatchLineage:
        """Of the batch with records; one without records may follow it, to count what was skipped."""
        prepared = self.prepare(policy)
        [lineage] = [each for each in prepared.sink.lineages() if each.ranges]
        prepared.close()
        return lineage


@pytest.fixture
def damaged_place(spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path) -> DamagedPlace:
    return DamagedPlace(spark, shared_cluster, fresh_name[-40:], tmp_path)


def test_by_default_a_corrupt_batch_ends_the_pipeline_in_one_line_and_a_repaired_log_is_read_completely(
    damaged_place: DamagedPlace,
) -> None:
    place = damaged_place
    for damage, why in ((place.log.change_checksum, "checksum"), (place.log.set_unknown_codec, "codec 7")):
        with place.log.kept():
            damage(BATCH)
            with pytest.raises(ZkConsumerError, match=f"offset 10 .*{why}") as raised:
                place.run("fail")
        line = str(raised.value)
        assert "\n" not in line
        assert "skipOffsets" in line
        assert f"zkconsumer spark reconcile --group {place.topic} --checkpoint DIR --rewind" in line
        assert (place.rows(), place.dead()) == (Counter(), [])
    place.run("fail")
    assert place.rows() == Counter(range(39))
    assert [(row.stage, row.offset) for row in place.dead()] == [("decode", 39)]
    counts = place.lineage("fail").counts
    assert (counts.rows, counts.dead_letters, counts.skipped_offsets) == (39, 1, 0)


def test_a_run_after_a_crash_follows_the_decision_although_the_log_was_repaired(damaged_place: DamagedPlace) -> None:
    place = damaged_place

    def crash(point: str, _: int) -> None:
        if point == AFTER_DEAD_LETTERS:
            raise InterruptedError(point)

    with place.log.kept():
        assert place.log.set_unknown_codec(BATCH) == range(10, 20)
        with pytest.raises(PipelineFailedError, match=AFTER_DEAD_LETTERS):
            place.run("deadLetter", crash)
    assert place.rows() == Counter()
    place.run("deadLetter")
    assert place.rows() == Counter([*range(10), *range(20, 39)]), "the records are sound now, and are dead letters"
    corrupt, broken = place.dead()
    assert (corrupt.stage, corrupt.offset, broken.stage, broken.offset) == ("fetch", 10, "decode", 39)
    assert corrupt.error.startswith("offsets 10 to 19 cannot be read: ")
    assert "codec 7" in corrupt.error
    assert len(corrupt.value) > 61
    lineage = place.lineage("deadLetter")
    assert lineage.corrupt == {TopicPartition(place.topic, 0): ((10, 20),)}
    assert (lineage.counts.rows, lineage.counts.dead_letters, lineage.counts.skipped_offsets) == (29, 2, 0)


def test_both_passes_of_an_attempt_decide_alike_although_the_log_was_repaired_between_them(
    damaged_place: DamagedPlace,
) -> None:
    place = damaged_place
    sound = place.log.segment.read_bytes()

    def repair(point: str, _: int) -> None:
        if point == AFTER_WRITE:
            place.log.write(0, sound)

    place.log.change_checksum(BATCH)
    place.run("deadLetter", repair)
    assert place.rows() == Counter([*range(10), *range(20, 39)])
    assert [(row.stage, row.offset, row.value is None) for row in place.dead()] == [
        ("fetch", 10, True), ("decode", 39, False),
    ]  # fmt: skip


def test_skipped_offsets_are_counted_and_are_no_dead_letters(damaged_place: DamagedPlace) -> None:
    place = damaged_place
    place.log.change_checksum(BATCH)
    prepared = place.prepare("skip")
    sample = read_sample(prepared, 15)
    prepared.close()
    assert (sample.records, len(sample.rows), sample.dead[0][1].startswith("fetch: offsets 10 to 19")) == (15, 14, True)
    place.run("skip")
    assert place.rows() == Counter([*range(10), *range(20, 39)])
    assert [row.stage for row in place.dead()] == ["decode"]
    counts = place.lineage("skip").counts
    assert (counts.rows, counts.dead_letters, counts.skipped_offsets) == (29, 1, 10)
    assert place.lineage("skip").corrupt == {TopicPartition(place.topic, 0): ((10, 20),)}
