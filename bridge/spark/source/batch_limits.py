"""Limits the size of one batch of a stream.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from zkconsumer.types import TopicPartition

INITIAL_BYTES_PER_OFFSET = 1024
"""The assumed bytes of one offset of a topic before a record of it was sampled."""

NEW_SAMPLE_WEIGHT = 0.5
"""The weight of the latest sample of a topic in its running mean."""


@dataclass(frozen=True, slots=True)
class BatchLimits:
    """The limits of one batch; None: no limit.  ``min_offsets`` is None as well once the batch has waited long
    enough."""

    max_offsets: int | None = None
    min_offsets: int | None = None
    max_bytes: int | None = None
    bytes_per_offset: Mapping[str, float] = field(default_factory=dict)


def apply_limits(available: Mapping[TopicPartition, int], limits: BatchLimits) -> dict[TopicPartition, int]:
    """How many of the available offsets of each partition the batch contains.

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
    """``limit`` / ``total`` of each partition's offsets; the computation is exact where both are whole numbers."""
    if total <= limit:
        return dict(available)
    if isinstance(total, int):
        shares = {tp: count * limit // total for tp, count in available.items()}
    else:
        shares = {tp: int(count * (limit / total)) for tp, count in available.items()}
    return {tp: min(count, max(1, shares[tp])) if count else 0 for tp, count in available.items()}


def mean_bytes(before: float | None, sampled: float) -> float:
    """The running mean of the bytes that one offset of a topic takes."""
    return sampled if before is None else before + (sampled - before) * NEW_SAMPLE_WEIGHT
