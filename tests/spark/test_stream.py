"""A stream of format("zkconsumer") on real servers: what it reads, where the group stands, what users are told."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from pyspark.errors import AnalysisException, StreamingQueryException

from bridge.spark import lag
from tests.spark_session_fixtures import checkpoint_of, run_available_now, start_query, sunk
from zkconsumer.testing.sandbox import Sandbox, wait_until
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import iter_entries
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.real

PARTITIONS = 3
RECORDS = 40
"""In each partition."""

WAIT_MS = 60_000

AFTER_BATCH_NIGHTLY = pytest.param("afterBatch", marks=pytest.mark.nightly)


@pytest.fixture(scope="session")
def source(spark: SparkSession) -> SparkSession:
    """The session, with our format."""
    from bridge.spark import register

    register(spark)
    return spark


@pytest.fixture
def topic(shared_cluster: Sandbox, fresh_name: str) -> str:
    shared_cluster.create_topic(fresh_name, PARTITIONS)
    for partition in range(PARTITIONS):
        shared_cluster.produce(fresh_name, partition, RECORDS)
    return fresh_name


def stream_of(source: SparkSession, cluster: Sandbox, topic: str, group: str, **more: object) -> DataFrame:
    options = {
        "zookeeper.connect": cluster.zookeeper_connect, "group.id": group, "subscribe": topic,
        "auto.offset.reset": "smallest",
    }  # fmt: skip
    options |= {name.replace("__", "."): str(given) for name, given in more.items()}
    return source.readStream.format("zkconsumer").options(**options).load()


def stands(cluster: Sandbox, group: str, topic: str) -> dict[int, int]:
    """The group's offset of every partition, as an original member reads it."""
    return cluster.admin.offsets(group, topic)


def read_of(spark: SparkSession, folder: Path) -> list[tuple[int, int]]:
    return sorted((row.partition, row.offset) for row in sunk(spark, folder))


def rows_of(query: StreamingQuery) -> int:
    """The rows of all batches of this run that are over."""
    return sum(progress.numInputRows for progress in query.recentProgress)


def told(stream: DataFrame, folder: Path) -> str:
    """What a user reads when the query fails: the text of Spark's exception."""
    with pytest.raises(StreamingQueryException) as caught:
        run_available_now(stream, folder)
    return str(caught.value)


@pytest.mark.parametrize("mode", ["claim", AFTER_BATCH_NIGHTLY, "none"])
def test_available_now_reads_from_the_group_to_the_end_and_the_group_hears_of_it(
    source: SparkSession, shared_cluster: Sandbox, topic: str, tmp_path: Path, mode: str
) -> None:
    stream = stream_of(source, shared_cluster, topic, topic, group__offsets__commit=mode, maxOffsetsPerTrigger=50)
    run_available_now(stream, tmp_path)
    everything = [(partition, offset) for partition in range(PARTITIONS) for offset in range(RECORDS)]
    assert read_of(source, tmp_path) == everything
    assert stands(shared_cluster, topic, topic) == ({} if mode == "none" else dict.fromkeys(range(PARTITIONS), RECORDS))
    shared_cluster.produce(topic, 0, 5)
    run_available_now(stream, tmp_path)
    assert read_of(source, tmp_path) == sorted([*everything, *((0, RECORDS + n) for n in range(5))])
    assert checkpoint_of(tmp_path).exists()


def test_a_topic_that_grows_is_read_on_in_the_running_query(
    source: SparkSession, shared_cluster: Sandbox, topic: str, tmp_path: Path
) -> None:
    query = start_query(stream_of(source, shared_cluster, topic, topic, group__offsets__commit="claim"), tmp_path)
    try:
        wait_until(lambda: rows_of(query) == PARTITIONS * RECORDS, "the first batch is over", WAIT_MS)
        shared_cluster.grow_topic(topic, PARTITIONS + 1)
        shared_cluster.produce(topic, PARTITIONS, 7)
        wait_until(lambda: rows_of(query) == PARTITIONS * RECORDS + 7, "the new partition is read", WAIT_MS)
        assert read_of(source, tmp_path)[-7:] == [(PARTITIONS, offset) for offset in range(7)]
        assert stands(shared_cluster, topic, topic)[PARTITIONS] == 7
        progress = query.lastProgress
        assert progress is not None
        [read] = lag(progress).sources
        assert read.latest[TopicPartition(topic, PARTITIONS)] == 7
        assert read.description == f"zkconsumer[{topic}: {topic}]"
        # Spark's own words for it; see the test below.
        [own] = progress.sources
        assert own.description.startswith("org.apache.spark.sql.execution.datasources.v2.python.PythonMicroBatchStream")
        assert not own.metrics
    finally:
        query.stop()
    # The membership process notices by itself that its query is gone: Spark only kills the process.
    wait_until(lambda: not shared_cluster.admin.members(topic), "nobody is registered any more", WAIT_MS)


def test_spark_takes_neither_metrics_nor_a_description_of_a_stream_from_python(source: SparkSession) -> None:
    """Its progress has ``toString()`` and ``ReportsSourceMetrics`` of the stream, and no class for Python has them.

    Where this fails, Spark has learnt it: ``bridge.spark.monitoring.query_lag`` need not make them any more.
    """
    jvm = source._jvm
    assert jvm is not None
    loader = jvm.java.lang.Thread.currentThread().getContextClassLoader()
    package = "org.apache.spark.sql.execution.datasources.v2.python"
    reports = jvm.java.lang.Class.forName(
        "org.apache.spark.sql.connector.read.streaming.ReportsSourceMetrics", False, loader
    )
    nothing = source.sparkContext._gateway.new_array(jvm.java.lang.Class, 0)
    for kind in ("", "WithAdmissionControl", "WithTriggerAvailableNow"):
        stream = jvm.java.lang.Class.forName(f"{package}.PythonMicroBatchStream{kind}", False, loader)
        assert not reports.isAssignableFrom(stream)
        assert stream.getMethod("toString", nothing).getDeclaringClass().getName() == "java.lang.Object"


def test_an_offset_that_the_log_does_not_have_fails_the_query_or_is_passed_over(
    source: SparkSession, shared_cluster: Sandbox, topic: str, tmp_path: Path
) -> None:
    behind = f"{topic}-behind"
    shared_cluster.admin.put(paths.offset(behind, TopicPartition(topic, 0)), b"1000")
    text = told(stream_of(source, shared_cluster, topic, behind), tmp_path / "fails")
    assert f"{topic}/0: the query is at offset 1000, but the log ends at {RECORDS}." in text
    run_available_now(stream_of(source, shared_cluster, topic, behind, failOnDataLoss="false"), tmp_path / "goes-on")
    assert len(read_of(source, tmp_path / "goes-on")) == (PARTITIONS - 1) * RECORDS
    shared_cluster.produce(topic, 0, 3)
    run_available_now(stream_of(source, shared_cluster, topic, behind, failOnDataLoss="false"), tmp_path / "goes-on")
    assert read_of(source, tmp_path / "goes-on")[:3] == [(0, RECORDS + n) for n in range(3)]


def damage(cluster: Sandbox, topic: str, offset: int) -> range:
    """Turn a bit of the batch with this offset in the log of the broker; gives the offsets of the batch."""
    folder = cluster.run.root / cluster.brokers[0].name / "data" / f"{topic}-0"
    [segment] = folder.glob("*.log")
    data = segment.read_bytes()
    entry = next(entry for entry in iter_entries(data) if entry.last_offset >= offset)
    with segment.open("r+b") as file:
        file.seek(entry.end - 1)
        file.write(bytes([data[entry.end - 1] ^ 1]))
    return range(entry.offset, entry.last_offset + 1)


@pytest.mark.parametrize("mode", ["claim", AFTER_BATCH_NIGHTLY])
def test_the_option_that_the_error_of_a_corrupt_batch_names_leads_on_from_the_same_checkpoint(
    source: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path, mode: str
) -> None:
    topic = fresh_name
    shared_cluster.create_topic(topic, 1)
    shared_cluster.produce(topic, 0, 20)
    options: dict[str, object] = {"group__offsets__commit": mode, "failOnDataLoss": "false"}
    run_available_now(stream_of(source, shared_cluster, topic, topic, **options), tmp_path)
    for _ in range(3):
        shared_cluster.produce(topic, 0, 10)
    bad = damage(shared_cluster, topic, 35)
    text = told(stream_of(source, shared_cluster, topic, topic, **options), tmp_path)
    assert "the checksum does not match" in text
    assert len(read_of(source, tmp_path)) == 20
    [option] = set(re.findall(r"""\.option\("skipOffsets", '(\{\S+\})'\)""", text))
    assert json.loads(option) == {topic: {"0": [[bad.start, bad.stop]]}}
    progress = run_available_now(
        stream_of(source, shared_cluster, topic, topic, skipOffsets=option, **options), tmp_path
    ).lastProgress
    assert read_of(source, tmp_path) == [(0, offset) for offset in range(50) if offset not in bad]
    assert stands(shared_cluster, topic, topic) == {0: 50}
    assert progress is not None
    assert lag(progress).metrics["skippedOffsets"] == len(bad)


def test_what_a_user_reads_when_something_is_wrong(
    source: SparkSession, shared_cluster: Sandbox, topic: str, tmp_path: Path
) -> None:
    with pytest.raises(AnalysisException, match="maxoffsetspertriger is not known: did you mean maxOffsetsPerTrigger"):
        stream_of(source, shared_cluster, topic, topic, maxOffsetsPerTriger=1)
    at, group = ("zookeeper.connect", shared_cluster.zookeeper_connect), ("group.id", topic)
    brokers, beginning = ("kafka.bootstrap.servers", "b:1"), ("startingOffsets", "earliest")
    for options, words in (
        ([at, beginning, ("subscribe", topic)], "in a stream: group.id is missing"),
        ([group, beginning, ("subscribe", topic), brokers], "in a stream: zookeeper.connect is missing"),
        ([at, group, ("assign", f'{{"{topic}": [0]}}')], "in a stream: assign cannot be set"),
        ([at, group, ("assign", f"{topic}:0")], f"in a batch: assign={topic}:0: it is not JSON"),
    ):
        with pytest.raises(AnalysisException, match=re.escape(words)):
            source.readStream.format("zkconsumer").options(**dict(options)).load()
    text = told(stream_of(source, shared_cluster, "no-such-topic", topic), tmp_path / "a")
    assert "topic 'no-such-topic' does not exist in ZooKeeper" in text.partition("Traceback")[0]
    text = told(stream_of(source, shared_cluster, topic, topic, endingOffsets="latest"), tmp_path / "e")
    assert "endingOffsets cannot be set" in text.partition("Traceback")[0]
    assert "UnboundLocalError" not in text
    run_available_now(stream_of(source, shared_cluster, topic, topic), tmp_path / "b")
    text = told(stream_of(source, shared_cluster, topic, f"{topic}-other"), tmp_path / "b")
    assert f"the checkpoint of this query belongs to the group '{topic}', but group.id is '{topic}-other'" in text
    nowhere = {"zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": "500"}
    text = told(stream_of(source, shared_cluster, topic, topic, **nowhere), tmp_path / "c")
    assert "127.0.0.1:1" in text
    assert "ZooKeeper" in text
    wrong = stream_of(source, shared_cluster, topic, topic, startingOffsets='{"x": {"0": 1}}')
    assert "startingOffsets must name every partition that is read and no other" in told(wrong, tmp_path / "d")


def test_a_narrower_schema_is_read_and_a_wrong_one_is_explained(
    source: SparkSession, shared_cluster: Sandbox, topic: str, tmp_path: Path
) -> None:
    options = {"zookeeper.connect": shared_cluster.zookeeper_connect, "group.id": topic, "subscribe": topic,
               "startingOffsets": "earliest", "group.offsets.commit": "claim"}  # fmt: skip
    reader = source.readStream.format("zkconsumer").options(**options)
    run_available_now(reader.schema("offset long, value binary").load(), tmp_path / "a")
    rows = sunk(source, tmp_path / "a")
    assert len(rows) == PARTITIONS * RECORDS
    assert rows[0].__fields__ == ["offset", "value"]
    assert "value: is binary, not string" in told(reader.schema("value string").load(), tmp_path / "b")
