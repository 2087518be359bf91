"""The audit of a pipeline on real brokers: each reason is seen once, and a lost row or batch is never explained."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as Theirs
from confluent_kafka.admin import AdminClient

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.batch_writer import AFTER_WRITE
from bridge.spark.pipeline.lineage import BatchAttempt, BatchCounts, BatchLineage, partition_ranges
from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_query import PipelineFailedError, prepare_pipeline, start_pipeline
from bridge.spark.pipeline.sinks.sink_choice import open_sink
from tests.sandbox_fixtures import librdkafka_settings, require_releases
from tests.spark.test_decoding import CLEANS, is_clean
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.main import main
from zkconsumer.testing.sandbox import Sandbox, wait_until
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

END_MS = 120_000
WAIT_MS = 60_000
TIMEOUT_S = 30

BROKEN, FILTERED = b"{broken", b'{"id": -1}'
COMPACTED = {"cleanup.policy": "compact", "segment.bytes": "4000", "min.cleanable.dirty.ratio": "0.01"}

Shown = list[tuple[str, int | None, int | None, int]]


def good(count: int) -> list[bytes]:
    return [json.dumps({"id": n}).encode() for n in range(count)]


class AuditedCluster:
    """A broker, and a pipeline of all topics that begin with ``name``."""

    def __init__(self, spark: SparkSession, sandbox: Sandbox, release: str, name: str, folder: Path) -> None:
        self.spark, self.sandbox, self.release = spark, sandbox, release
        self.name, self.folder = name, folder
        self.plain, self.late, self.compact = (f"{name}-{kind}" for kind in ("plain", "late", "compact"))
        self.transactions, self.deleted = f"{name}-tx", f"{name}-del"
        self.file = folder / "clicks.toml"
        self.file.write_text(
            f"""
            [pipeline]
            name = "clicks"
            [source]
            zookeeper.connect = "{sandbox.zookeeper.connect_string("/kafka")}"
            group.id = "{name}"
            subscribePattern = "{name}-.*"
            auto.offset.reset = "smallest"
            kafka.isolation.level = "read_committed"
            skipOffsets = '{json.dumps({self.plain: {"0": [[2, 4]]}})}'
            [decode]
            format = "json"
            schema = "id BIGINT"
            [transform]
            select = ["id"]
            where = "id >= 0"
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

    @property
    def has_new_format(self) -> bool:
        """Whether the broker has transactions and DeleteRecords (0.11 and later)."""
        return self.release != "0.8.2.2"

    def run(self, reached: Callable[[str, int], None] = lambda _point, _batch: None) -> None:
        prepared = prepare_pipeline(self.spark, read_pipeline(self.file), {}, lambda path: Path(path).read_bytes())
        try:
            running = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms, reached=reached)
            try:
                assert running.wait(END_MS), "the pipeline has not ended"
            finally:
                running.query.stop()
        finally:
            prepared.close()

    def audit(self, *more: str) -> tuple[int, dict[str, Any]]:
        done = CliRunner().invoke(main, ["pipeline", "audit", str(self.file), "--json", *more])
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        document: dict[str, Any] = json.loads(done.stdout)
        assert document["schema"] == "zkconsumer/pipeline-audit/1", document
        return done.exit_code, document

    def findings(self, topic: str | None = None, code: int = 0) -> Shown:
        """Of a topic, or those of the whole pipeline."""
        found, document = self.audit("--by", "none")
        assert found == code, document["findings"]
        return [
            (each["reason"], each["first"], each["end"], each["offsets"])
            for each in document["findings"]
            if each["topic"] == topic
        ]

    # --- what is in the topics

    def fill(self) -> None:
        for topic in (self.plain, self.late):
            self.sandbox.create_topic(topic, 1)
        self.sandbox.produce(self.plain, 0, [*good(20), BROKEN, FILTERED])
        self.sandbox.produce(self.late, 0, good(10))
        self.sandbox.admin.put(f"/consumers/{self.name}/offsets/{self.late}/0", b"5")
        self.sandbox.create_topic(self.compact, 1, config=COMPACTED)
        self.produce_compacted()
        if self.has_new_format:
            self.sandbox.create_topic(self.transactions, 1)
            self.sandbox.create_topic(self.deleted, 1)
            self.sandbox.produce(self.deleted, 0, good(10))
            self.produce_transactions()

    def produce_compacted(self) -> None:
        settings = {"bootstrap.servers": self.sandbox.bootstrap, "batch.num.messages": 20}
        producer = Producer(settings | librdkafka_settings(self.sandbox.bootstrap, self.release))
        for number in range(400):
            producer.produce(self.compact, json.dumps({"id": number}).encode(), b"key-%d" % (number % 7), 0)
        assert not producer.flush(TIMEOUT_S)
        folder = self.sandbox.run.root / self.sandbox.brokers[0].name / "data" / f"{self.compact}-0"
        wait_until(lambda: is_clean(folder), "the cleaner is through", WAIT_MS)

    def produce_transactions(self) -> None:
        producer = Producer({"bootstrap.servers": self.sandbox.bootstrap, "transactional.id": self.name})
        producer.init_transactions(TIMEOUT_S)
        for is_kept in (True, False, True):
            producer.begin_transaction()
            for value in good(5):
                producer.produce(self.transactions, value, partition=0)
            producer.flush(TIMEOUT_S)
            if is_kept:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)

    def read_by_another_member(self, count: int) -> None:
        """A member of ours without Spark reads so many records of ``plain``."""
        config = ConsumerConfig(
            group_id=self.name,
            zookeeper_connect=self.sandbox.zookeeper.connect_string("/kafka"),
            auto_offset_reset="smallest",
            consumer_timeout_ms=WAIT_MS,
        )
        connector = ZookeeperConsumerConnector(config)
        try:
            [stream] = connector.create_message_streams({self.plain: 1})[self.plain]
            for _, _ in zip(range(count), stream, strict=False):
                pass
            connector.commit_offsets()
        finally:
            connector.close()


NIGHTLY = pytest.mark.nightly


@pytest.mark.parametrize(
    "release", [pytest.param("0.8.2.2", marks=NIGHTLY), "1.1.1", pytest.param("3.9.1", marks=NIGHTLY)]
)
def test_each_reason_on_a_real_broker(spark: SparkSession, release: str, tmp_path: Path) -> None:
    require_releases(release)
    name = f"audit-{release.replace('.', '-')}"
    with Sandbox() as sandbox:
        sandbox.start_zookeeper("3.4.6" if release.startswith("0.8") else "3.8")
        sandbox.start_broker(release, chroot="/kafka", settings=CLEANS)
        place = AuditedCluster(spark, sandbox, release, name, tmp_path)
        place.fill()
        assert place.findings(place.plain) == [("not-yet-read", 0, 22, 22)]
        place.run()

        # Markers, aborted records and compaction are counted in the log; the rest closes without it.
        assert place.findings(place.plain) == [("passed-over", 2, 4, 2)]
        assert place.findings(place.late) == [("before-start", 0, 5, 5)]
        assert place.findings() == [("filtered", None, None, 1), ("dead-letters", None, None, 1)]
        [compaction] = place.findings(place.compact)
        assert compaction[0] == "compaction"
        assert compaction[3] > 100
        if place.has_new_format:
            assert [(each[0], each[3]) for each in place.findings(place.transactions)] == [
                ("transaction-markers", 3), ("aborted-transactions", 5),
            ]  # fmt: skip

        # Another member, a backfill and a replay beside the pipeline.
        sandbox.produce(place.plain, 0, good(10))
        place.read_by_another_member(10)
        assert place.findings(place.plain)[0] == ("other-members", 22, 32, 10)
        sandbox.produce(place.plain, 0, good(5))
        with pytest.raises(PipelineFailedError):
            place.run(end_at(AFTER_WRITE))
        assert place.findings(place.plain)[:2] == [("other-members", 22, 32, 10), ("in-progress", 32, 37, 5)]
        place.run()
        assert place.findings(place.plain)[0] == ("other-members", 22, 32, 10)
        reserve_and_replay(place)
        assert place.findings(place.plain)[:2] == [("reserved", 22, 25, 3), ("other-members", 25, 32, 7)]
        assert place.findings() == [("filtered", None, None, 1), ("replayed", None, None, 1)]

        # What is removed from the log before and after it was read, and a topic that is gone.
        if place.has_new_format:
            sandbox.produce(place.deleted, 0, good(10))
            admin = AdminClient({"bootstrap.servers": sandbox.bootstrap})
            [removed] = admin.delete_records([Theirs(place.deleted, 0, 15)]).values()
            assert removed.result(TIMEOUT_S).low_watermark == 15
            assert place.findings(place.deleted) == [("retention", 10, 15, 5), ("not-yet-read", 15, 20, 5)]
            [deletion] = admin.delete_topics([place.late]).values()
            deletion.result(TIMEOUT_S)
            wait_until(lambda: place.findings(place.late)[0][0] == "topic-deleted", "the topic is gone", WAIT_MS)
            code, document = place.audit("--by", "day")
            assert code == 0
            assert sum(each["offsets"] for each in document["buckets"]) > 400

        # A lost file and a lost batch are never explained.
        manifests = sorted((tmp_path / "rows").glob("_zkconsumer/batches/*/*.json"))
        lost = min((tmp_path / "rows").glob("message_day=*/*.parquet"))
        kept = lost.read_bytes()
        lost.unlink()
        assert place.findings(code=3)[-1][0] == "rows-missing"
        lost.write_bytes(kept)
        of_query = [each for each in manifests if "replay" not in each.parent.name]
        assert len(of_query) > 1
        of_query[0].unlink()
        assert "unexplained" in [each[0] for each in place.findings(code=3)]


def end_at(wanted: str) -> Callable[[str, int], None]:
    """The driver ends at this point of a batch."""

    def reached(point: str, _: int) -> None:
        if point == wanted:
            raise InterruptedError(point)

    return reached


def reserve_and_replay(place: AuditedCluster) -> None:
    """A backfill that has reserved three offsets, and a replay of the dead letter."""
    sink = open_sink(read_pipeline(place.file).sink, place.spark)
    tp = TopicPartition(place.plain, 0)
    reserved = partition_ranges([OffsetRange(tp, 22, 25)])
    now_ms = SYSTEM_CLOCK.wall_ms()
    sink.reserve(BatchLineage("fill", 0, "backfill", "clicks", "snapshot", "a", now_ms, reserved, BatchCounts()), {})
    frame = place.spark.sql("SELECT CAST(1 AS BIGINT) AS id, current_timestamp() AS _zkconsumer_message_time")
    staged = sink.write(frame, BatchAttempt("replay", 0, "a1", now_ms))
    replayed = partition_ranges([OffsetRange(tp, 20, 21)])
    sink.commit(
        staged,
        BatchLineage("replay", 0, "replay", "clicks", "snapshot", "a1", now_ms, replayed, BatchCounts(rows=1)),
    )
