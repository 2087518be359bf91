"""Streams of format("zkconsumer") on clusters that are not as simple as one broker: leaders that move, logins, records
that go away under a query, offsets in Kafka, no ZooKeeper below Kafka.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

pytest.importorskip("pyspark")

from confluent_kafka import TopicPartition as Theirs
from confluent_kafka.admin import AdminClient
from pyspark.errors import StreamingQueryException

from tests.sandbox_fixtures import require_releases
from tests.spark_session_fixtures import checkpoint_of, run_available_now, start_query, started, sunk
from tests.whole_consumer.kafka_store import KafkaStore
from zkconsumer.testing.sandbox import Sandbox, SandboxSecurity, wait_until, zookeeper_release
from zkconsumer.testing.sandbox.sandbox_security import USER_PASSWORD

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = [pytest.mark.real, pytest.mark.nightly]

PARTITIONS = 2
RECORDS = 40
"""In each partition."""

WAIT_MS = 60_000
TIMEOUT_S = 60

COMMITS = ["claim", "afterBatch"]


@pytest.fixture(scope="module")
def source(spark: SparkSession) -> SparkSession:
    """The session, with our format."""
    from bridge.spark import register

    register(spark)
    return spark


def stream_of(source: SparkSession, zookeeper_connect: str, topic: str, commit: str, **more: str) -> DataFrame:
    options = {
        "zookeeper.connect": zookeeper_connect, "group.id": topic, "subscribe": topic,
        "auto.offset.reset": "smallest", "group.offsets.commit": commit,
    }  # fmt: skip
    return source.readStream.format("zkconsumer").options(**options, **more).load()


def rows_of(query: StreamingQuery) -> int:
    """The rows of all batches of this run that are over; raises what the query raised."""
    if (error := query.exception()) is not None:
        raise error
    return sum(progress.numInputRows for progress in query.recentProgress)


def read_of(spark: SparkSession, folder: Path) -> Counter[tuple[int, int]]:
    return Counter((row.partition, row.offset) for row in sunk(spark, folder))


def all_below(ends: dict[int, int]) -> Counter[tuple[int, int]]:
    """Each record once."""
    return Counter((partition, offset) for partition, end in ends.items() for offset in range(end))


@pytest.mark.parametrize("commit", COMMITS)
def test_leaders_that_move_while_the_query_runs(
    source: SparkSession, fresh_name: str, tmp_path: Path, commit: str
) -> None:
    require_releases("1.1.1", zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        sandbox.start_zookeeper()
        for _ in range(2):
            sandbox.start_broker("1.1.1", chroot="/kafka")
        sandbox.create_topic(fresh_name, replicas={0: [0, 1], 1: [1, 0]})
        query = start_query(stream_of(source, sandbox.zookeeper_connect, fresh_name, commit), tmp_path)
        try:
            number = 0
            for leaves in (None, 0, 1):
                # The first one is back, and in the set of replicas, before the second leaves.
                if leaves is not None:
                    sandbox.brokers[leaves].stop()
                    one = {1 - leaves}
                    wait_until(lambda one=one: leaders(sandbox, fresh_name) == one, "the leaders have moved", WAIT_MS)
                for partition in range(PARTITIONS):
                    sandbox.produce(fresh_name, partition, RECORDS)
                number += PARTITIONS * RECORDS
                wait_until(lambda all_=number: rows_of(query) == all_, "all is read", WAIT_MS)
                if leaves is not None:
                    sandbox.brokers[leaves].start()
                    wait_until(lambda: in_sync(sandbox, fresh_name) == {2}, "both replicas are there", WAIT_MS)
            assert read_of(source, tmp_path) == all_below(dict.fromkeys(range(PARTITIONS), 3 * RECORDS))
            ends = dict.fromkeys(range(PARTITIONS), 3 * RECORDS)
            wait_until(lambda: sandbox.admin.offsets(fresh_name, fresh_name) == ends, "the group hears of it", WAIT_MS)
        finally:
            query.stop()


def metadata(sandbox: Sandbox, topic: str) -> list[tuple[int, int]]:
    """Leader and number of replicas in sync of each partition, as the brokers that run tell."""
    alive = ",".join(broker.address for broker in sandbox.brokers if broker.is_running())
    found = AdminClient({"bootstrap.servers": alive}).list_topics(topic, TIMEOUT_S).topics[topic].partitions
    return [(each.leader, len(each.isrs)) for each in found.values()]


def leaders(sandbox: Sandbox, topic: str) -> set[int]:
    return {leader for leader, _ in metadata(sandbox, topic)}


def in_sync(sandbox: Sandbox, topic: str) -> set[int]:
    return {replicas for _, replicas in metadata(sandbox, topic)}


def test_a_stream_over_sasl_ssl_whose_password_stands_nowhere(
    source: SparkSession, fresh_name: str, tmp_path: Path
) -> None:
    """All processes of the query log in; neither the checkpoint nor the arguments of a process show the password."""
    require_releases("3.9.1", zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        security = SandboxSecurity()
        sandbox.start_zookeeper()
        sandbox.start_broker("3.9.1", chroot="/kafka", security=security)
        sandbox.create_topic(fresh_name, PARTITIONS)
        for partition in range(PARTITIONS):
            sandbox.produce(fresh_name, partition, RECORDS)
        login = security.settings("SASL_SSL", "SCRAM-SHA-512")
        options = {f"kafka.{key}": value for key, value in login.items()}
        stream = stream_of(source, sandbox.zookeeper_connect, fresh_name, "claim", **options)
        query = start_query(stream, tmp_path)
        try:
            wait_until(lambda: rows_of(query) == PARTITIONS * RECORDS, "all is read", WAIT_MS)
            words = [word for each in psutil.process_iter(["cmdline"]) for word in each.info["cmdline"] or ()]
            assert any("bridge.spark.membership" in word for word in words)
            assert not [word for word in words if USER_PASSWORD in word]
        finally:
            query.stop()
        assert read_of(source, tmp_path) == all_below(dict.fromkeys(range(PARTITIONS), RECORDS))
        for file in checkpoint_of(tmp_path).rglob("*"):
            assert not file.is_file() or USER_PASSWORD.encode() not in file.read_bytes(), file
        wrong = options | {"kafka.sasl.password": "wrong"}
        for options, words_told in [
            (wrong, "the broker does not accept the user or the password"),
            ({"kafka.bootstrap.servers": security.address("SSL")}, "this port speaks SSL"),
        ]:
            again = stream_of(source, sandbox.zookeeper_connect, fresh_name, "claim", **options)
            with pytest.raises(StreamingQueryException) as told:
                run_available_now(again, tmp_path)
            assert words_told in str(told.value)
            assert USER_PASSWORD not in str(told.value)


@pytest.mark.parametrize("commit", COMMITS)
@pytest.mark.parametrize("when", ["before the plan", "after the plan"])
@pytest.mark.parametrize("fails", [True, False])
def test_records_that_are_deleted_under_a_query(
    source: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path, commit: str, when: str, fails: bool
) -> None:
    """Between two batches, or between the plan of a batch and its tasks, offsets 10 to 24 go away."""
    shared_cluster.create_topic(fresh_name, 1)
    shared_cluster.produce(fresh_name, 0, RECORDS)
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    read: list[int] = []

    def delete() -> None:
        [deleted] = admin.delete_records([Theirs(fresh_name, 0, 25)]).values()
        assert deleted.result(TIMEOUT_S).low_watermark == 25

    def handle(batch: DataFrame, number: int) -> None:
        """The batch is planned and, if need be, claimed when this is called, and read by ``collect``."""
        if number == 1 and when == "after the plan":
            delete()
        read.extend(row.offset for row in batch.select("offset").collect())
        if number == 0 and when == "before the plan":
            delete()

    more = {"failOnDataLoss": str(fails).lower(), "maxOffsetsPerTrigger": "10"}
    stream = stream_of(source, shared_cluster.zookeeper_connect, fresh_name, commit, **more)
    run = for_each(stream, tmp_path, handle)
    if fails:
        with pytest.raises(StreamingQueryException) as told:
            run()
        assert f"{fresh_name}/0: " in str(told.value)
        assert "failOnDataLoss=false" in str(told.value)
        assert read == list(range(10))
    else:
        run()
        assert read == [*range(10), *range(25, RECORDS)]
        assert shared_cluster.admin.offsets(fresh_name, fresh_name) == {0: RECORDS}


def for_each(stream: DataFrame, folder: Path, handle: Callable[[DataFrame, int], None]) -> Callable[[], None]:
    """Runs the query to the end of what there is; raises what it raised."""

    def run() -> None:
        made = stream.writeStream.foreachBatch(handle).option("checkpointLocation", str(checkpoint_of(folder)))
        query = started(made.trigger(availableNow=True).start)
        try:
            assert query.awaitTermination(TIMEOUT_S), "it is over in time"
        finally:
            query.stop()

    return run


@pytest.mark.parametrize("commit", COMMITS)
def test_offsets_in_kafka_and_zookeeper_beside_an_original_member(
    source: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path, commit: str
) -> None:
    """The original reads, both read side by side, the original reads on: each record once, both stores agree."""
    sandbox, group, topic = shared_cluster, fresh_name, fresh_name
    dual = {"offsets.storage": "kafka", "dual.commit.enabled": "true"}
    sandbox.create_topic(topic, PARTITIONS)
    in_kafka = KafkaStore(sandbox, group, topic, PARTITIONS)
    ends = dict.fromkeys(range(PARTITIONS), 0)
    handed: Counter[tuple[int, int]] = Counter()

    def grow() -> None:
        for partition in range(PARTITIONS):
            sandbox.produce(topic, partition, RECORDS)
            ends[partition] += RECORDS

    def original(*, name: str) -> object:
        return sandbox.start_member("1.1.1", group, {topic: 1}, name=f"{topic}-{name}", settings=dual, consumer_id=name)

    grow()
    first = original(name="first")
    first.wait_delivered(PARTITIONS * RECORDS)
    first.stop()
    handed.update((each.partition, each.offset) for each in first.delivered)
    assert (sandbox.admin.offsets(group, topic), in_kafka.offsets()) == (ends, ends)
    grow()
    query = start_query(stream_of(source, sandbox.zookeeper_connect, topic, commit, **dual), tmp_path)
    try:
        wait_until(lambda: rows_of(query) == PARTITIONS * RECORDS, "the query goes on from the group", WAIT_MS)
        beside = original(name="beside")
        wait_until(lambda: len(set(sandbox.admin.owners(group, topic).values())) == PARTITIONS, "they share", WAIT_MS)
        grow()
        wait_until(
            lambda: rows_of(query) - PARTITIONS * RECORDS + len(beside.delivered) >= PARTITIONS * RECORDS,
            "all",
            WAIT_MS,
        )
        beside.stop()
        handed.update((each.partition, each.offset) for each in beside.delivered)
        wait_until(lambda: len(sandbox.admin.owners(group, topic)) == PARTITIONS, "the query has all again", WAIT_MS)
        grow()
        wait_until(lambda: sandbox.admin.offsets(group, topic) == ends, "ZooKeeper hears of all", WAIT_MS)
        wait_until(lambda: in_kafka.offsets() == ends, "Kafka hears of all", WAIT_MS)
        # A claim is written before the batch is read.
        wait_until(lambda: rows_of(query) + handed.total() == sum(ends.values()), "the last batch is over", WAIT_MS)
    finally:
        query.stop()
    assert read_of(source, tmp_path) + handed == all_below(ends)
    wait_until(lambda: not sandbox.admin.members(group), "the query has left", WAIT_MS)
    grow()
    last = original(name="last")
    last.wait_delivered(PARTITIONS * RECORDS)
    last.stop()
    handed.update((each.partition, each.offset) for each in last.delivered)
    assert read_of(source, tmp_path) + handed == all_below(ends)


@pytest.mark.parametrize("commit", COMMITS)
def test_a_group_in_zookeeper_on_a_broker_without(
    source: SparkSession, fresh_name: str, tmp_path: Path, commit: str
) -> None:
    require_releases("4.1.1", zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        zookeeper = sandbox.start_zookeeper()
        sandbox.start_kraft_broker("4.1.1")
        sandbox.create_topic(fresh_name, PARTITIONS)
        ends = dict.fromkeys(range(PARTITIONS), RECORDS)
        for partition in range(PARTITIONS):
            sandbox.produce(fresh_name, partition, RECORDS)
        options = {"kafka.bootstrap.servers": sandbox.bootstrap, "kafka.metadata.max.age.ms": "1000"}
        query = start_query(stream_of(source, sandbox.zookeeper_connect, fresh_name, commit, **options), tmp_path)
        admin = zookeeper.admin()
        try:
            wait_until(lambda: admin.offsets(fresh_name, fresh_name) == ends, "the group hears of all", WAIT_MS)
            sandbox.grow_topic(fresh_name, PARTITIONS + 1)
            sandbox.produce(fresh_name, PARTITIONS, RECORDS)
            ends[PARTITIONS] = RECORDS
            wait_until(lambda: admin.offsets(fresh_name, fresh_name) == ends, "the new one is read, too", WAIT_MS)
            # A claim is written before the batch is read.
            wait_until(lambda: rows_of(query) == sum(ends.values()), "the last batch is over", WAIT_MS)
        finally:
            query.stop()
        assert read_of(source, tmp_path) == all_below(ends)
