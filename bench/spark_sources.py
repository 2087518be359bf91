"""A Python data source for the comparison in ``bench/spark.py``: confluent-kafka's messages as Arrow batches.

Spark's workers import this file, so it imports no other module of this directory, and measures nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

SCHEMA = "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
ARROW_SCHEMA = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", "UTC")),
        ("timestampType", pa.int32()),
    ]
)
BATCH_ROWS = 16_384
POLL_S = 10.0
FETCH_BYTES = 8 * 1024 * 1024


class Range(InputPartition):
    """One partition, from its beginning to its end at planning."""

    def __init__(self, partition: int, first: int, end: int) -> None:
        super().__init__(partition)
        self.partition, self.first, self.end = partition, first, end


class ConfluentSource(DataSource):
    """``format("bench-confluent")``: options ``bootstrap``, ``topic``, ``partitions``."""

    @classmethod
    def name(cls) -> str:
        return "bench-confluent"

    def schema(self) -> str:
        return SCHEMA

    def reader(self, schema: Any) -> DataSourceReader:
        return ConfluentReader(self.options["bootstrap"], self.options["topic"], int(self.options["partitions"]))


class ConfluentReader(DataSourceReader):
    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.bootstrap, self.topic, self.count = bootstrap, topic, partitions

    def _consumer(self) -> Any:
        from confluent_kafka import Consumer

        return Consumer(
            {
                "bootstrap.servers": self.bootstrap,
                "group.id": "bench-never-committed",
                "enable.auto.commit": False,
                "check.crcs": True,  # as the other two sources
                "fetch.message.max.bytes": FETCH_BYTES,
                "queued.min.messages": 500_000,
            }
        )

    def partitions(self) -> list[InputPartition]:
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        ranges = []
        for number in range(self.count):
            first, end = consumer.get_watermark_offsets(TopicPartition(self.topic, number), timeout=POLL_S)
            ranges.append(Range(number, first, end))
        consumer.close()
        return ranges

    def read(self, partition: Any) -> Iterator[pa.RecordBatch]:
        from confluent_kafka import TopicPartition

        consumer = self._consumer()
        consumer.assign([TopicPartition(self.topic, partition.partition, partition.first)])
        position = partition.first
        while position < partition.end:
            messages = consumer.consume(min(BATCH_ROWS, partition.end - position), POLL_S)
            if not messages:
                raise TimeoutError(f"no record from offset {position} on within {POLL_S} s")
            for message in messages:
                if message.error():
                    raise RuntimeError(str(message.error()))
            position = messages[-1].offset() + 1
            yield self._batch(messages, partition.partition)
        consumer.close()

    def _batch(self, messages: list[Any], partition: int) -> pa.RecordBatch:
        times = [message.timestamp() for message in messages]
        columns = [
            pa.array([message.key() for message in messages], pa.binary()),
            pa.array([message.value() for message in messages], pa.binary()),
            pa.repeat(pa.scalar(self.topic, pa.string()), len(messages)),
            pa.repeat(pa.scalar(partition, pa.int32()), len(messages)),
            pa.array([message.offset() for message in messages], pa.int64()),
            pa.array([time * 1000 for _, time in times], pa.int64()).view(pa.timestamp("us", "UTC")),
            pa.array([kind - 1 for kind, _ in times], pa.int32()),
        ]
        return pa.RecordBatch.from_arrays(columns, schema=ARROW_SCHEMA)
