"""The operator's choices, which a plan never guesses; the default of each is to refuse.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zkconsumer.types import TopicPartition


class OffsetConvention(Enum):
    """What a stored offset means."""

    NEXT = "next"
    """The next record to read: Kafka itself, the Scala consumer, this library."""
    LAST = "last"
    """The record read last: go_kafka_client, Spark's ReliableKafkaReceiver."""


class OffsetFallback(Enum):
    """Where a partition starts whose offset is missing, unreadable, or out of range."""

    REFUSE = "refuse"
    EARLIEST = "earliest"
    LATEST = "latest"


class ExistingOffsetPolicy(Enum):
    """Which offset is used where Kafka has another one that this migration did not write."""

    REFUSE = "refuse"
    KEEP_SOURCE = "keep-source"
    KEEP_TARGET = "keep-target"
    HIGHER = "higher"


@dataclass(frozen=True, slots=True)
class Decisions:
    """The choices for a whole group, and *next* offsets for single partitions, which take precedence.

    ``convention`` None: use what the evidence shows; the plan is refused when the evidence shows neither.
    """

    convention: OffsetConvention | None = None
    missing: OffsetFallback = OffsetFallback.REFUSE
    out_of_range: OffsetFallback = OffsetFallback.REFUSE
    existing: ExistingOffsetPolicy = ExistingOffsetPolicy.REFUSE
    use_older: bool = False
    """True: an offset that was stored before its topic was created counts; else it is missing."""
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    acl_fence: bool = True
    """False: ``--no-acl-fence``, owner fences alone."""
    offsets_retention_ms: int | None = None
    """``--offsets-retention``: how long brokers before 2.1 keep a copied offset; None: not decided."""
