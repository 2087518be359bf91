"""Splits many partitions into several requests, each sent while the response to the previous one is parsed.

A broker processes one request of a connection at a time, and reads the next one after it has sent its response.  So a
pipelined request must be small enough to fit into the broker's socket buffer: otherwise both sides would wait for the
other to read.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Iterator
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from zkconsumer.kafka.broker_connection import Connection, PendingRequest
    from zkconsumer.types import TopicPartition
    from zkconsumer.wire.schemas.message_schema import Api

Q = TypeVar("Q")
R = TypeVar("R")

PARTITIONS_BYTES_MAX = 16 * 1024
"""Bytes of the partitions in one request: a sixth of a broker's socket buffer (default
``socket.receive.buffer.bytes``)."""

TOPIC_OVERHEAD_BYTES = 6
PARTITION_OVERHEAD_BYTES = 4
"""Bytes in a request for each, besides the name."""

REQUESTS_IN_FLIGHT_MAX = 2
"""Requests without a response."""


def split_partitions(partitions: Collection[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """Split into requests, in their order; at least one.  Partitions of one topic should be adjacent."""
    some: list[TopicPartition] = []
    size = 0
    topic: str | None = None
    for tp in partitions:
        if size >= PARTITIONS_BYTES_MAX:
            yield some
            some, size, topic = [], 0, None
        size += PARTITION_OVERHEAD_BYTES
        if tp.topic != topic:
            topic = tp.topic
            size += TOPIC_OVERHEAD_BYTES + len(topic)
        some.append(tp)
    yield some


def send_pipelined(
    connection: Connection, api: Api[Q, R], version: int, questions: Iterable[Q], timeout_ms: int
) -> Iterator[R]:
    """Yield the responses, in the order of the requests; ``timeout_ms`` for each.  The caller must take all of them.

    Raises what ``Connection.send`` and ``receive`` raise.
    """
    in_flight: deque[PendingRequest[R]] = deque()
    for question in questions:
        in_flight.append(connection.send(api, version, question, timeout_ms))
        if len(in_flight) == REQUESTS_IN_FLIGHT_MAX:
            yield connection.receive(in_flight.popleft(), timeout_ms)
    for last in in_flight:
        yield connection.receive(last, timeout_ms)
