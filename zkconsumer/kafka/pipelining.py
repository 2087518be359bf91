"""Many partitions asked for in several questions, each sent while the answer to the one before is taken apart.

A broker works on one question of a connection at a time, and reads the next when it has sent its answer.  So a question
that is asked ahead must be small enough to lie in the broker's socket meanwhile: else it would wait for us to read, and
we for it.
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
"""Of the partitions in one question: a sixth of a broker's socket (``socket.receive.buffer.bytes`` as shipped)."""

TOPIC_OVERHEAD_BYTES = 6
PARTITION_OVERHEAD_BYTES = 4
"""What stands in a question for each, besides the name."""

REQUESTS_IN_FLIGHT_MAX = 2
"""Questions that have no answer yet."""


def split_partitions(partitions: Collection[TopicPartition]) -> Iterator[list[TopicPartition]]:
    """Cut into questions, in their order; at least one.  Those of one topic should stand together."""
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
    """The answers, in the order of the questions; ``timeout_ms`` for each.  All of them must be taken.

    Raises what ``Connection.send`` and ``receive`` raise.
    """
    in_flight: deque[PendingRequest[R]] = deque()
    for question in questions:
        in_flight.append(connection.send(api, version, question, timeout_ms))
        if len(in_flight) == REQUESTS_IN_FLIGHT_MAX:
            yield connection.receive(in_flight.popleft(), timeout_ms)
    for last in in_flight:
        yield connection.receive(last, timeout_ms)
