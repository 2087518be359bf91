"""Topics for ``bench/spark.py``: filled with our own wire code, batches of a known size and shape, in seconds.

Some hundreds of batches are built once and sent again and again; the broker gives them their offsets.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import cycle

from columns import Shape

from zkconsumer.kafka.connection import BlockingConnection
from zkconsumer.kafka.versions import negotiate
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.wire.build import build_record_set
from zkconsumer.wire.entries import Record
from zkconsumer.wire.schemas import PRODUCE
from zkconsumer.wire.schemas.produce import ProducePartition, ProduceRequest, ProduceTopic

PARTITIONS = 4
BATCHES_MADE = 256
IN_FLIGHT = 8
TIMEOUT_MS = 30_000


def fill(sandbox: Sandbox, topic: str, shape: Shape, rows: int) -> int:
    """Create the topic with ``PARTITIONS`` partitions and about so many rows in all; gives how many there are."""
    sandbox.create_topic(topic, PARTITIONS)
    host, port = sandbox.bootstrap.split(":")
    connection = BlockingConnection(host, int(port), client_id="bench", receive_buffer_bytes=-1)
    version = negotiate(connection, TIMEOUT_MS).pick(PRODUCE)
    pending: deque[object] = deque()
    written = 0
    try:
        for count, batch in _batches(shape):
            if written >= rows:
                break
            asked = [ProducePartition(index=number, records=batch) for number in range(PARTITIONS)]
            body = ProduceRequest(
                acks=1, timeout_ms=TIMEOUT_MS, topic_data=[ProduceTopic(name=topic, partition_data=asked)]
            )
            pending.append(connection.send(PRODUCE, version, body, TIMEOUT_MS))
            written += count * PARTITIONS
            if len(pending) >= IN_FLIGHT:
                _check(connection.receive(pending.popleft(), TIMEOUT_MS))  # type: ignore[arg-type]
        while pending:
            _check(connection.receive(pending.popleft(), TIMEOUT_MS))  # type: ignore[arg-type]
    finally:
        connection.close()
    return written


def _check(answer: object) -> None:
    errors = {row.error_code for topic in answer.responses for row in topic.partition_responses}  # type: ignore[attr-defined]
    if errors != {0}:
        raise SystemExit(f"the broker refused a batch: error codes {sorted(errors)}")


def _batches(shape: Shape) -> Iterator[tuple[int, bytes]]:
    """Batches without end, each with how many records it has, numbered from 0 as a producer numbers them."""
    in_a_batch = shape.records_in_a_batch
    values = iter(shape.values(in_a_batch * BATCHES_MADE))
    made = []
    for batch in range(BATCHES_MADE):
        records = [
            Record(n, 1_700_000_000_000 + n // 50, 0, (batch * in_a_batch + n).to_bytes(8, "big"), next(values))
            for n in range(in_a_batch)
        ]
        made.append((len(records), build_record_set(records, shape.magic, shape.codec)))
    return cycle(made)
