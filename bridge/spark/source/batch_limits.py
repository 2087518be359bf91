"""How much of what there is goes into one batch of a stream.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkconsumer.types import TopicPartition

INITIAL_BYTES_PER_OFFSET = 1024
"""What an offset is taken to have before a record of its topic was seen."""

NEW_SAMPLE_WEIGHT = 0.5
"""How much the latest sample of a topic counts in its running mean."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """What one batch may have; None: as much as there is.  ``min_offsets`` None as well once it has waited enough."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_bytes: int | None = None
    bytes_per_offset: Mapping[str, float] = field(default_factory=dict)


def apply_limits(available: Mapping[TopicPartition, int], limits: BatchLimits) -> dict[TopicPartition, int]:
    """How much of what each partition has goes into the batch.

    As ``KafkaMicroBatchStream.rateLimit`` of Spark (2.4 to 4.1): in proportion, rounded down, but at least one, so that
    small partitions are not starved.
    """
    taken = dict(available)
    if limits.max_offsets is not None:
        taken = _in_proportion(taken, limits.max_offsets, sum(taken.values()))
    if limits.max_bytes is not None:
        sizes = limits.bytes_per_offset
        weight = sum(count * sizes.get(tp.topic, INITIAL_BYTES_PER_OFFSET) for tp, count in taken.items())
        taken = _in_proportion(taken, limits.max_bytes, weight)
    return taken


def _in_proportion(available: Mapping[TopicPartition, int], limit: int, total: float) -> dict[TopicPartition, int]:
    """``limit`` / ``total`` of each, exactly where both are whole numbers."""
    if total <= limit:
        return dict(available)
    if isinstance(total, int):
        shares = {tp: count * limit // total for tp, count in available.items()}
    else:
        shares = {tp: int(count * (limit / total)) for tp, count in available.items()}
    return {tp: min(count, max(1, shares[tp])) if count else 0 for tp, count in available.items()}


def mean_bytes(before: float | None, sampled: float) -> float:
    """The running mean of a topic's bytes an offset."""
    return sampled if before is None else before + (sampled - before) * NEW_SAMPLE_WEIGHT
