"""Fills topics for the benchmarks with batches of a known size and shape, in seconds.

Some hundred batches are built once and sent repeatedly; the broker assigns their offsets.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path

from shapes import Batch, JsonShape, Shape

from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.wire import compression
from zkconsumer.wire.schemas import PRODUCE
from zkconsumer.wire.schemas.produce import ProducePartition, ProduceRequest, ProduceTopic

IN_FLIGHT = 8
REQUEST_BYTES = 500_000
"""About the maximum size of a request: it contains small batches for many partitions, or large ones for few."""
TIMEOUT_MS = 60_000
PRODUCE_OF_FORMAT = {0: 1, 1: 2}
"""The last version of Produce that may contain record formats 0 and 1."""
LOOKED_AT_BYTES = 1 << 20
_HEAD = struct.Struct(">qi")
_FORMAT_2 = struct.Struct(">hi")


@dataclass(frozen=True, slots=True)
class Filled:
    """The content of a topic, equal in all partitions.  ``offsets``: the sum of the offsets of all records."""

    topic: str
    partitions: int
    rows: int
    offsets: int
    value_bytes: int


@dataclass(frozen=True, slots=True)
class OnDisk:
    """The content of the first megabyte of a log segment.  ``records_a_batch``: None if unknown, as in format 1."""

    magic: int
    codec: str
    batch_bytes: float
    records_a_batch: float | None


def fill(
    sandbox: Sandbox,
    topic: str,
    shape: Shape | JsonShape,
    rows: int,
    partitions: int,
    config: Mapping[str, str] | None = None,
) -> Filled:
    """Create the topic and write at least this number of records in total.

    Raises ``SystemExit`` if the broker rejects a batch.
    """
    sandbox.create_topic(topic, partitions, config=config)
    host, port = sandbox.bootstrap.split(",")[0].split(":")
    connection = BlockingConnection(host, int(port), client_id="bench", receive_buffer_bytes=-1)
    version = negotiate(connection, TIMEOUT_MS).pick(PRODUCE, PRODUCE_OF_FORMAT.get(shape.magic))
    pending: deque[object] = deque()
    written = value_bytes = 0
    try:
        for batch in cycle(shape.batches()):
            if written * partitions >= rows:
                break
            at_once = max(1, min(partitions, REQUEST_BYTES // len(batch.data)))
            for first in range(0, partitions, at_once):
                numbers = range(first, min(first + at_once, partitions))
                pending.append(connection.send(PRODUCE, version, _request(topic, batch, numbers), TIMEOUT_MS))
                if len(pending) >= IN_FLIGHT:
                    _check(connection.receive(pending.popleft(), TIMEOUT_MS))  # type: ignore[arg-type]
            written += batch.records
            value_bytes += batch.value_bytes
        while pending:
            _check(connection.receive(pending.popleft(), TIMEOUT_MS))  # type: ignore[arg-type]
    finally:
        connection.close()
    offsets = written * (written - 1) // 2
    return Filled(topic, partitions, written * partitions, offsets * partitions, value_bytes * partitions)


def delete(sandbox: Sandbox, topic: str) -> None:
    """Request the deletion of the topic from the controller; the broker deletes its files a little later."""
    sandbox.admin.put(f"/admin/delete_topics/{topic}", b"")


def on_disk(folder: Path) -> OnDisk:
    """The records that the broker wrote to the first segment of a partition; ``folder``: the partition's folder.

    Raises ``SystemExit`` for a segment without a complete batch.
    """
    segment = min(folder.glob("*.log"), default=None)
    data = segment.open("rb").read(LOOKED_AT_BYTES) if segment is not None else b""
    sizes, records, at = [], [], 0
    magic = attributes = -1
    while at + _HEAD.size <= len(data):
        size = _HEAD.size + _HEAD.unpack_from(data, at)[1]
        if size == _HEAD.size or at + size > len(data):
            break
        magic = data[at + 16]
        if magic == 2:
            attributes, last = _FORMAT_2.unpack_from(data, at + 21)
            records.append(last + 1)
        else:
            attributes = data[at + 17]
        sizes.append(size)
        at += size
    if not sizes:
        raise SystemExit(f"{folder} has no complete batch in its first segment")
    mean = sum(records) / len(records) if records else None
    return OnDisk(magic, compression.CODEC_NAMES[attributes & 7], sum(sizes) / len(sizes), mean)


def _request(topic: str, batch: Batch, numbers: range) -> ProduceRequest:
    asked = [ProducePartition(index=number, records=batch.data) for number in numbers]
    return ProduceRequest(acks=1, timeout_ms=TIMEOUT_MS, topic_data=[ProduceTopic(name=topic, partition_data=asked)])


def _check(answer: object) -> None:
    errors = {row.error_code for topic in answer.responses for row in topic.partition_responses}  # type: ignore[attr-defined]
    if errors != {0}:
        raise SystemExit(f"the broker rejected a batch: error codes {sorted(errors)}")
