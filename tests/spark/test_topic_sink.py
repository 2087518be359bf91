"""What writeStream and write of format("zkconsumer") put into topics of real brokers, read back by librdkafka."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from confluent_kafka import Consumer, Message
from confluent_kafka import TopicPartition as Theirs
from pyspark.errors import StreamingQueryException

from tests.sandbox_fixtures import Clusters, librdkafka_settings, require_releases
from tests.spark_session_fixtures import QUERY_TIMEOUT_S, checkpoint_of, started
from zkconsumer.testing.sandbox import Sandbox, SandboxSecurity, wait_until, zookeeper_release
from zkconsumer.testing.sandbox.sandbox_security import USER_PASSWORD
from zkconsumer.wire.murmur2 import partition_of_key

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.real

PARTITIONS = 3
ROWS = 600
TIMEOUT_S = 60
TIMEOUT_MS = 120_000
WITH_HEADERS = "1.1.1", "3.9.1"


@pytest.fixture(scope="module")
def session(spark: SparkSession) -> SparkSession:
    """The session, with our format."""
    from bridge.spark import register

    register(spark)
    return spark


def read_back(bootstrap: str, release: str, topic: str, partitions: int = PARTITIONS) -> list[Message]:
    """Every record of the topic."""
    settings = {"group.id": "read-back", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    consumer = Consumer(settings | librdkafka_settings(bootstrap, release))
    try:
        places = [Theirs(topic, number, 0) for number in range(partitions)]
        expected = sum(consumer.get_watermark_offsets(place, TIMEOUT_S)[1] for place in places)
        consumer.assign(places)
        found: list[Message] = []
        while len(found) < expected:
            record = consumer.poll(TIMEOUT_S)
            assert record is not None, f"only {len(found)} of {expected} records arrive"
            assert record.error() is None, record.error()
            found.append(record)
        return found
    finally:
        consumer.close()


def headers_of(record: Message) -> dict[str, bytes]:
    return dict(record.headers() or ())


@pytest.mark.parametrize("release", ["0.8.2.2", "1.1.1", "3.9.1"])
def test_a_batch_and_a_stream_are_written_to_brokers_of_each_age(
    session: SparkSession, clusters: Clusters, fresh_name: str, tmp_path: Path, release: str
) -> None:
    sandbox = clusters.get(release)
    sandbox.create_topic(fresh_name, PARTITIONS)
    options = {"kafka.bootstrap.servers": sandbox.bootstrap, "topic": fresh_name}
    rows = session.range(ROWS).selectExpr("concat('key-', id % 50) key", "cast(id as string) value")
    packed = {**options, "kafka.compression.type": "gzip", "kafka.batch.size": "4096"}
    rows.write.format("zkconsumer").options(**packed).mode("append").save()

    written = read_back(sandbox.bootstrap, release, fresh_name)
    assert sorted(int(record.value()) for record in written) == list(range(ROWS))
    assert {record.key(): record.partition() for record in written} == {
        key: partition_of_key(key, PARTITIONS) for key in (b"key-%d" % number for number in range(50))
    }
    assert not any(record.headers() for record in written), "a batch is no part of a query"

    query_id = write_stream(session, tmp_path, options)
    streamed = [each for each in read_back(sandbox.bootstrap, release, fresh_name) if each.key() is None]
    assert sorted(record.value() for record in streamed) == [b"first", b"second"]
    if release in WITH_HEADERS:
        assert [headers_of(record) for record in sorted(streamed, key=Message.value)] == [
            {"zkconsumer.query": query_id.encode(), "zkconsumer.batch": b"%d" % number, "zkconsumer.source": b"lines"}
            for number in range(2)
        ]


def write_stream(session: SparkSession, folder: Path, options: dict[str, str]) -> str:
    """Two batches of one row; returns the id of the query."""
    query_id = ""
    for text in ("first", "second"):
        (folder / "lines").mkdir(exist_ok=True)
        (folder / "lines" / text).write_text(f"{text}\n", "utf-8")
        lines = session.readStream.schema("value string").text(str(folder / "lines"))
        writer = lines.selectExpr("value", "'lines' source").writeStream.format("zkconsumer").options(**options)
        writer = writer.option("checkpointLocation", str(checkpoint_of(folder))).trigger(availableNow=True)
        query = started(writer.start)
        try:
            assert query.awaitTermination(QUERY_TIMEOUT_S), query.lastProgress
        finally:
            query.stop()
        query_id = str(query.id)
    return query_id


def test_a_batch_that_foreach_batch_writes_has_the_ids_of_its_query(
    session: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path
) -> None:
    shared_cluster.create_topic(fresh_name, 1)
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "first").write_text("v\n", "utf-8")
    options = {"kafka.bootstrap.servers": shared_cluster.bootstrap, "topic": fresh_name}

    def write(batch: DataFrame, number: int) -> None:
        batch.write.format("zkconsumer").options(**options).mode("append").save()

    lines = session.readStream.schema("value string").text(str(tmp_path / "lines"))
    writer = lines.writeStream.foreachBatch(write).option("checkpointLocation", str(checkpoint_of(tmp_path)))
    query = started(writer.trigger(availableNow=True).start)
    try:
        assert query.awaitTermination(QUERY_TIMEOUT_S), query.lastProgress
    finally:
        query.stop()
    [record] = read_back(shared_cluster.bootstrap, "1.1.1", fresh_name, 1)
    assert headers_of(record) == {"zkconsumer.query": str(query.id).encode(), "zkconsumer.batch": b"0"}


def test_a_leader_that_is_killed_in_mid_write_loses_no_record(session: SparkSession, fresh_name: str) -> None:
    """At least once: what the killed leader had not acknowledged is written to the next one."""
    require_releases("1.1.1", zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        for _ in range(2):
            sandbox.start_broker("1.1.1", chroot="/kafka")
        sandbox.create_topic(fresh_name, replicas={0: [0, 1], 1: [1, 0]})
        bootstrap = sandbox.bootstrap
        rows = 120_000

        def slowly(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            """Each 10,000 rows take a second.  Inside the test, so that Spark pickles its code and not its name."""
            import time

            for batch in batches:
                time.sleep(1)
                yield batch

        slow = session.range(0, rows, numPartitions=2).mapInArrow(slowly, "id long")
        written_before: list[int] = []

        def kill_leader() -> None:
            wait_until(lambda: end_of(bootstrap, fresh_name) > 0, "some are written", TIMEOUT_MS)
            sandbox.brokers[0].kill()
            written_before.append(end_of(sandbox.brokers[1].address, fresh_name, partition=1))

        killing = threading.Thread(target=kill_leader, name="kill-leader", daemon=True)
        killing.start()
        write_rows(slow, bootstrap, fresh_name)
        killing.join(TIMEOUT_S)
        assert written_before, "the leader was killed"
        assert written_before[0] < rows / 2, "it was killed in mid-write"
        survivor = sandbox.brokers[1].address
        values = Counter(int(record.value()) for record in read_back(survivor, "1.1.1", fresh_name, 2))
        assert sorted(values) == list(range(rows))


def write_rows(rows: DataFrame, bootstrap: str, topic: str) -> None:
    values = rows.selectExpr("cast(id as string) value")
    values.write.format("zkconsumer").options(topic=topic, **{"kafka.bootstrap.servers": bootstrap}).mode(
        "append"
    ).save()


def end_of(bootstrap: str, topic: str, partition: int = 0) -> int:
    """The records in the log of the partition."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "ends"})
    try:
        bounds: Any = consumer.get_watermark_offsets(Theirs(topic, partition), TIMEOUT_S)
        return int(bounds[1])
    finally:
        consumer.close()


@pytest.mark.parametrize(
    ("columns", "option", "words"),
    [
        (["id value"], "topic", "value: is bigint, and must be binary or string; cast it in the query"),
        (["'v' value", "1 offset"], "topic", "offset: is not written"),
        (["'v' value"], "kafka.topic", "kafka.topic is not known: did you mean topic?"),
    ],
)
def test_wrong_columns_and_options_are_one_line_and_nothing_is_written(
    session: SparkSession, columns: list[str], option: str, words: str
) -> None:
    rows = session.range(1).selectExpr(*columns)
    writer = rows.write.format("zkconsumer").option("kafka.bootstrap.servers", "127.0.0.1:1").option(option, "t")
    with pytest.raises(Exception, match="zkconsumer") as raised:
        writer.mode("append").save()
    assert words in str(raised.value)


def test_a_stream_with_a_wrong_column_fails_with_the_line_and_writes_nothing(
    session: SparkSession, tmp_path: Path
) -> None:  # fmt: skip
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "first").write_text("v\n", "utf-8")
    lines = session.readStream.schema("value string").text(str(tmp_path / "lines")).selectExpr("value valeu")
    writer = lines.writeStream.format("zkconsumer").option("checkpointLocation", str(checkpoint_of(tmp_path)))
    writer = writer.options(topic="t", **{"kafka.bootstrap.servers": "127.0.0.1:1"}).trigger(availableNow=True)
    with pytest.raises(StreamingQueryException) as raised:
        started(writer.start).awaitTermination(QUERY_TIMEOUT_S)
    assert "valeu: is not written (did you mean value?); drop it" in str(raised.value)


@pytest.mark.nightly
def test_rows_are_written_over_tls_with_a_login(session: SparkSession, fresh_name: str) -> None:
    require_releases("3.9.1", zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        security = SandboxSecurity()
        sandbox.start_zookeeper()
        sandbox.start_broker("3.9.1", chroot="/kafka", security=security)
        sandbox.create_topic(fresh_name, PARTITIONS)
        login = security.settings("SASL_SSL", "SCRAM-SHA-512")
        options = {f"kafka.{key}": value for key, value in login.items()}
        options["kafka.bootstrap.servers"] = security.address("SASL_SSL")
        rows = session.range(ROWS).selectExpr("cast(id as string) value")
        rows.write.format("zkconsumer").options(topic=fresh_name, **options).mode("append").save()
        written = read_back(sandbox.bootstrap, "3.9.1", fresh_name)  # the broker has a port without TLS, too
        assert sorted(int(record.value()) for record in written) == list(range(ROWS))
        wrong = options | {"kafka.sasl.password": "wrong"}
        with pytest.raises(Exception, match="the broker does not accept the user or the password") as raised:
            rows.write.format("zkconsumer").options(topic=fresh_name, **wrong).mode("append").save()
        assert USER_PASSWORD not in str(raised.value)
