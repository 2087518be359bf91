"""How much the next batch of a query may have: what the options say, how long it has waited, how large records are."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from bridge.spark.options import SourceOptions
from bridge.spark.source.batch_limits import BatchLimits, mean_bytes
from zkconsumer.base.clock import Clock
from zkconsumer.types import TopicPartition

SampleBytes = Callable[[TopicPartition, int], float | None]
"""The bytes an offset has in a partition behind an offset, by one look there; None when nobody tells."""


class RateLimiter:
    """Of one query; one thread."""

    def __init__(self, options: SourceOptions, clock: Clock) -> None:
        self._options = options
        self._clock = clock
        self._bytes: dict[str, float] = {}
        self._last_batch_ms: int | None = None

    def batch_started(self) -> None:
        """A batch begins now: the next one may wait for ``minOffsetsPerTrigger`` from here on."""
        self._last_batch_ms = self._clock.now_ms()

    def limits(
        self,
        first: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        sample: SampleBytes,
        *,
        may_wait: bool,
    ) -> BatchLimits:
        """Those of a batch that can have [first, end) of each partition; not ``may_wait``: it takes what there is."""
        options = self._options
        waited = self._last_batch_ms is None or self._clock.now_ms() - self._last_batch_ms >= options.max_delay_ms
        if options.max_bytes is not None:
            self._sample(first, ends, sample)
        min_offsets = options.min_offsets if may_wait and not waited else None
        return BatchLimits(options.max_offsets, min_offsets, options.max_bytes, dict(self._bytes))

    def _sample(
        self, first: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], sample: SampleBytes
    ) -> None:
        """One look at each topic that has something new, where most is to be read."""
        most: dict[str, tuple[int, TopicPartition]] = {}
        for tp, offset in first.items():
            if ends[tp] > offset:
                most[tp.topic] = max(most.get(tp.topic, (0, tp)), (ends[tp] - offset, tp))
        for topic, (_, tp) in most.items():
            sampled = sample(tp, first[tp])
            if sampled is not None:
                self._bytes[topic] = mean_bytes(self._bytes.get(topic), sampled)
