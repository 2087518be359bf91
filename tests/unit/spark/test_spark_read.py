"""What an executor does with a task: exactly the columns asked for, and nothing secret in what it is made of."""

from __future__ import annotations

import logging
import pickle

import pytest

from bridge.testing.fake_cluster import FakeCluster
from zkconsumer.kafka.broker_security import BrokerSecurity
from zkconsumer.kafka.sasl_mechanisms import SaslSettings
from zkconsumer.kafka.tls import TlsSettings
from zkconsumer.types import TopicPartition

pytest.importorskip("pyspark", reason="the data source needs the extra [spark]")

from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from bridge.spark.decode.arrow_schema import BATCH_ROWS, SCHEMA
from bridge.spark.decode.cluster_connections import ClusterAddress, ClusterConnectionPool, ClusterConnections
from bridge.spark.decode.offset_ranges import OffsetRange, ReadSettings
from bridge.spark.decode.range_partition import RangePartition, read_partition, schema_of
from zkconsumer.base.clock import SYSTEM_CLOCK

TP = TopicPartition("clicks", 0)
HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))
SPARK_SCHEMA = StructType(
    [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
        StructField("headers", HEADERS),
    ]
)
"""Of ``format("kafka")`` with ``includeHeaders``."""


@pytest.fixture
def fake() -> FakeCluster:
    made = FakeCluster(1)
    made.create_topic("clicks")
    made.append("clicks", 0, [b"v"] * BATCH_ROWS + [None], timestamp_ms=7, headers=(("a", b"1"), ("b", None)))
    return made


def clusters(fake: FakeCluster) -> ClusterConnectionPool:
    def open_(address: ClusterAddress) -> ClusterConnections:
        return ClusterConnections(lambda: address.brokers, fake.connect, address.client_id, SYSTEM_CLOCK)

    return ClusterConnectionPool(open_)


@pytest.mark.parametrize("names", [SCHEMA.names, ["offset", "value"], ["headers", "timestampType"], ["topic"]], ids=str)
def test_batches_have_exactly_the_schema_that_spark_expects(fake: FakeCluster, names: list[str]) -> None:
    wanted = to_arrow_schema(StructType([SPARK_SCHEMA[name] for name in names]), timezone="UTC")
    partition = RangePartition(OffsetRange(TP, 1, BATCH_ROWS + 1), tuple(fake.addresses), tuple(names))
    batches = list(read_partition(pickle.loads(pickle.dumps(partition)), clusters(fake)))
    assert [batch.num_rows for batch in batches] == [BATCH_ROWS]
    assert all(batch.schema.equals(wanted) for batch in batches)
    assert batches[0].schema.names == names
    batches[0].validate(full=True)


def test_the_last_row_is_as_it_was_written(fake: FakeCluster) -> None:
    partition = RangePartition(OffsetRange(TP, BATCH_ROWS, BATCH_ROWS + 1), tuple(fake.addresses))
    [batch] = read_partition(partition, clusters(fake))
    [row] = batch.set_column(5, "timestamp", batch.column("timestamp").view("int64")).to_pylist()
    assert row == {
        "key": None, "value": None, "topic": "clicks", "partition": 0, "offset": BATCH_ROWS, "timestamp": 7000,
        "timestampType": 0, "headers": [{"key": "a", "value": b"1"}, {"key": "b", "value": None}],
    }  # fmt: skip


def test_a_range_without_records_has_no_batch(fake: FakeCluster) -> None:
    partition = RangePartition(OffsetRange(TP, 5, 5), tuple(fake.addresses))
    assert list(read_partition(partition, clusters(fake))) == []


def test_a_column_that_there_is_not_is_refused() -> None:
    with pytest.raises(KeyError):
        schema_of(["values"])


def test_what_is_lost_is_warned_of_and_counted(fake: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    fake.delete_before("clicks", 0, BATCH_ROWS)
    settings = ReadSettings(fail_on_data_loss=False)
    partition = RangePartition(OffsetRange(TP, 4, BATCH_ROWS + 1), tuple(fake.addresses), ("offset",), settings)
    with caplog.at_level(logging.WARNING):
        assert [len(batch) for batch in read_partition(partition, clusters(fake))] == [1]
    end = BATCH_ROWS
    lost = [message for message in caplog.messages if message.startswith("data-lost")]
    assert lost == [f"data-lost partition=clicks/0 first=4 end={end} lost_offsets={end - 4}"]


def test_a_task_shows_no_secret() -> None:
    security = BrokerSecurity("SASL_SSL", TlsSettings(key_password="s3cret"), SaslSettings("PLAIN", "u", "s3cret"))
    partition = RangePartition(OffsetRange(TP, 0, 1), (), security=security)
    assert "s3cret" not in repr(partition)
    assert pickle.loads(pickle.dumps(partition)) == partition
