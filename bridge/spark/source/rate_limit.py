"""Computes the limits of a query's next batch from the options, the time it has waited and the size of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge.spark.options import SourceOptions
from bridge.spark.source.batch_limits import BatchLimits, mean_bytes
from zkconsumer.base.clock import Clock
from zkconsumer.types import TopicPartition

SampleBytes = Callable[[TopicPartition, int], float | None]
"""The bytes of one offset of a partition after an offset, from one sample; None when unknown."""


class RateLimiter:
    """The limits of one query; one thread."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._bytes: dict[str, float] = {}
        self._last_batch_ms: int | None = None

    def batch_started(self) -> None:
        """A batch begins now: the wait of the next one for ``minOffsetsPerTrigger`` starts here."""
        self._last_batch_ms = self._clock.now_ms()

    def limits(
        self,
        first: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        sample: SampleBytes,
        *,
        may_wait: bool,
    ) -> BatchLimits:
        """The limits of a batch that can read [first, end) of each partition; without ``may_wait`` it does not wait for
        ``minOffsetsPerTrigger``."""
        options = self._options
        waited = self._last_batch_ms is None or self._clock.now_ms() - self._last_batch_ms >= options.max_delay_ms
        if options.max_bytes is not None:
            self._sample(first, ends, sample)
        min_offsets = options.min_offsets if may_wait and not waited else None
        return BatchLimits(options.max_offsets, min_offsets, options.max_bytes, dict(self._bytes))

    def _sample(
        self, first: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], sample: SampleBytes
    ) -> None:
        """Take one sample of each topic with new records, from the partition with the most of them."""
        most: dict[str, tuple[int, TopicPartition]] = {}
        for tp, offset in first.items():
            if ends[tp] > offset:
                most[tp.topic] = max(most.get(tp.topic, (0, tp)), (ends[tp] - offset, tp))
        for topic, (_, tp) in most.items():
            sampled = sample(tp, first[tp])
            if sampled is not None:
                self._bytes[topic] = mean_bytes(self._bytes.get(topic), sampled)
