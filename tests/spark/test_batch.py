"""A batch in Spark: from where a group stands to where the logs end, over TLS and SASL as well."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer

from bridge.spark import register
from tests.sandbox_fixtures import require_releases
from zkconsumer.testing.sandbox import Sandbox, SandboxSecurity, wait_until, zookeeper_release
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.real

RECORDS = 3_000
TIMEOUT_S = 20
TIMEOUT_MS = 60_000


def read(spark: SparkSession, sandbox: Sandbox, topic: str, options: Mapping[str, str], schema: str = "") -> DataFrame:
    register(spark)
    reader = spark.read.format("zkconsumer").option("zookeeper.connect", sandbox.zookeeper_connect)
    reader = reader.option("subscribe", topic).options(**options)
    return (reader.schema(schema) if schema else reader).load()


def test_a_batch_begins_where_the_group_stands(spark: SparkSession, shared_cluster: Sandbox, fresh_name: str) -> None:
    shared_cluster.create_topic(fresh_name, 2)
    for partition in range(2):
        shared_cluster.produce(fresh_name, partition, RECORDS)
    for partition, offset in enumerate([100, RECORDS - 1]):
        path = paths.offset(fresh_name, TopicPartition(fresh_name, partition))
        shared_cluster.admin.put(path, str(offset).encode())
    group = {"group.id": fresh_name}
    whole = read(spark, shared_cluster, fresh_name, group)
    assert whole.columns == ["key", "value", "topic", "partition", "offset", "timestamp", "timestampType"]
    rows = whole.collect()
    assert sorted((row.partition, row.offset) for row in rows) == [
        *((0, offset) for offset in range(100, RECORDS)), (1, RECORDS - 1),
    ]  # fmt: skip
    assert {row.topic for row in rows} == {fresh_name}
    # Left half-way, and again by the same workers; another schema, and more tasks than partitions.
    assert len(read(spark, shared_cluster, fresh_name, group).limit(3).collect()) == 3
    narrow = read(spark, shared_cluster, fresh_name, {**group, "minPartitions": "5"}, "offset long, value binary")
    assert narrow.rdd.getNumPartitions() >= 5
    assert sorted(row.value for row in narrow.collect()) == sorted(row.value for row in rows)
    assert shared_cluster.admin.offsets(fresh_name, fresh_name) == {0: 100, 1: RECORDS - 1}, "nothing was written"
    with pytest.raises(Exception, match="topic no-such-topic does not exist"):
        read(spark, shared_cluster, "no-such-topic", group).collect()


def produce_transactions(bootstrap: str, topic: str, number: int) -> None:
    """Three transactions of so many records; the second is aborted.  Each leaves a marker behind it in the log."""
    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": topic, "compression.type": "zstd"})
    producer.init_transactions(TIMEOUT_S)
    for is_kept in (True, False, True):
        producer.begin_transaction()
        for index in range(number):
            producer.produce(topic, b"%d" % index, partition=0, headers=[("kept", b"%d" % is_kept)])
        producer.flush(TIMEOUT_S)
        if is_kept:
            producer.commit_transaction(TIMEOUT_S)
        else:
            producer.abort_transaction(TIMEOUT_S)


def test_transactions_in_zstd_over_tls_and_scram(spark: SparkSession, fresh_name: str) -> None:
    """Records of aborted transactions are read, as by the Scala consumer, unless the query reads committed ones."""
    release, number = "3.9.1", 20
    require_releases(release, zookeeper_release("3.8"))
    with Sandbox() as sandbox:
        security = SandboxSecurity()
        sandbox.start_zookeeper()
        sandbox.start_broker(release, chroot="/kafka", security=security)
        sandbox.create_topic(fresh_name, 1)
        produce_transactions(sandbox.bootstrap, fresh_name, number)
        secured = security.settings("SASL_SSL", "SCRAM-SHA-512")
        options = {f"kafka.{name}": value for name, value in secured.items()} | {"includeHeaders": "true"}
        options["endingOffsets"] = "latest"  # without a group
        rows = read(spark, sandbox, fresh_name, options).orderBy("offset").collect()
        ends = [number, 2 * number + 1, 3 * number + 2]
        assert [row.offset for row in rows] == [offset for offset in range(ends[-1]) if offset not in ends]
        assert [row.headers[0].value for row in rows] == [b"1"] * number + [b"0"] * number + [b"1"] * number
        committed = options | {"kafka.isolation.level": "read_committed"}
        # The last marker is in the log a moment after the producer has returned.
        wait_until(
            lambda: read(spark, sandbox, fresh_name, committed).count() == 2 * number, "two are committed", TIMEOUT_MS
        )
        kept = read(spark, sandbox, fresh_name, committed).orderBy("offset").collect()
        assert kept == [row for row in rows if row.headers[0].value == b"1"]
        wrong = options | {"kafka.sasl.password": "s3cret-and-wrong"}
        with pytest.raises(Exception, match="does not accept the user or the password") as told:
            read(spark, sandbox, fresh_name, wrong).collect()
        assert "s3cret" not in str(told.value)
