"""Reading a topic twice: by our reader, and by librdkafka, which knows nothing of us."""

from __future__ import annotations

from typing import TypeAlias

from confluent_kafka import Consumer, KafkaError, Producer
from confluent_kafka import TopicPartition as Theirs

from bridge.spark.decode.cluster_connections import ClusterConnectionPool
from bridge.spark.decode.offset_ranges import OffsetRange, ReadSettings
from bridge.spark.decode.range_partition import RangePartition, read_partition
from zkconsumer.types import BrokerAddress, TopicPartition

Row: TypeAlias = tuple[int, int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]
"""Offset, kind of time, ms, key, value, headers."""

TIMEOUT_S = 20

QUICK = ReadSettings(request_timeout_ms=10_000, give_up_ms=20_000)


def addresses(bootstrap: str) -> tuple[BrokerAddress, ...]:
    """Where to ask first."""
    parts = [server.rpartition(":") for server in bootstrap.split(",")]
    return tuple(BrokerAddress(-1, host, int(port)) for host, _, port in parts)


def task(
    bootstrap: str, topic: str, partition: int, first: int, end: int, settings: ReadSettings = QUICK
) -> RangePartition:
    """What a plan would make of this range."""
    wanted = OffsetRange(TopicPartition(topic, partition), first, end)
    return RangePartition(wanted, addresses(bootstrap), settings=settings)


def ours(task: RangePartition, clusters: ClusterConnectionPool) -> list[Row]:
    """The rows of a task, out of Arrow."""
    rows: list[Row] = []
    for batch in read_partition(task, clusters):
        batch.validate(full=True)
        times = batch.column("timestamp").view("int64").to_pylist()
        for row, time_us in zip(batch.drop_columns(["timestamp"]).to_pylist(), times, strict=True):
            headers = tuple((each["key"], each["value"]) for each in row["headers"] or ())
            rows.append((row["offset"], row["timestampType"], time_us // 1000, row["key"], row["value"], headers))
    return rows


def theirs(bootstrap: str, topic: str, partition: int, number: int, **settings: object) -> list[Row]:
    """The first ``number`` records of a partition.

    librdkafka calls a missing time type 0 and gives 0; Java, and so Spark's own source, has -1 and -1.
    """
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "reads-beside-us",
            "enable.auto.commit": False,
            "isolation.level": "read_uncommitted",
            "check.crcs": True,
            **settings,
        }
    )
    rows: list[Row] = []
    try:
        consumer.assign([Theirs(topic, partition, 0)])
        while len(rows) < number:
            messages = consumer.consume(number - len(rows), TIMEOUT_S)
            assert messages, f"librdkafka gave {len(rows)} of {number}"
            for message in messages:
                assert message.error() is None, message.error()
                kind, time_ms = message.timestamp()
                headers = tuple(message.headers() or ())
                times = (-1, -1) if kind == 0 else (kind - 1, time_ms)
                rows.append((message.offset(), *times, message.key(), message.value(), headers))
    finally:
        consumer.close()
    return rows


def produce(bootstrap: str, topic: str, partition: int, codec: str, number: int, **settings: object) -> None:
    """So many records by librdkafka, in batches of about 40: keys, values and headers of every kind."""
    with_headers = settings.pop("with_headers", True)
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "compression.type": codec,
            "linger.ms": 20,
            "batch.num.messages": 40,
            **settings,
        }
    )
    problems: list[KafkaError] = []
    keys = [b"key", None, b"", b"k" * 70]
    for index in range(number):
        headers = [("a", b"1"), ("b", None), ("", b"")] if index % 5 == 0 and with_headers else None
        producer.produce(
            topic, [b"value", None, b"", b"v" * 200][index // 4 % 4], keys[index % 4], partition,
            on_delivery=lambda error, _: problems.append(error) if error else None,
            timestamp=1_700_000_000_000 + index * 7919 % 50, headers=headers,
        )  # fmt: skip
    left = producer.flush(TIMEOUT_S)
    assert not left
    assert not problems, problems[0]
