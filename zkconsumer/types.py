"""The few values that everything else speaks of.  Pure.

What may live here: small immutable values without behaviour, and the Protocols that let a lower layer call an
upper one (hooks).  What may not: anything with a life of its own.
"""

from __future__ import annotations

from typing import NamedTuple


class TopicPartition(NamedTuple):
    """One partition of one topic; prints as ``topic/partition``."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}"


class BrokerAddress(NamedTuple):
    """Where a broker listens: its id (-1: not known yet), and host and port of one of its listeners."""

    broker_id: int
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port} (id {self.broker_id})"


EARLIEST_TIME = -2
LATEST_TIME = -1
"""The two times that ListOffsets understands besides milliseconds (Kafka 0.8)."""
