"""Registers the metrics of one member, and reads their values from its queues, partitions and lease."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from zkconsumer.kafka.chunks import INVALID_OFFSET, PartitionTopicInfo
from zkconsumer.observe import metric_names as names
from zkconsumer.observe.lag_time import CaughtUp, KnownLagTime, LagTimeAtLeast, UnknownLagTime
from zkconsumer.runtime.member_lag_times import MemberLagTimes
from zkconsumer.types import RecordCounter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from zkconsumer.base.clock import Clock
    from zkconsumer.base.delivery_lease import Lease
    from zkconsumer.kafka.chunks import ChunkQueue
    from zkconsumer.observe.metrics import Labels, Registry

LAG_VALID_MS = 30_000
"""How long a broker's answer is valid for the lag of a partition, and how long an assignment may be incomplete, before
the lag of the member is reported as unknown."""

LAG_UNKNOWN = -1
EVERY_TOPIC = "*"
AT_LEAST = "at-least"
NO_TIMESTAMP_KIND = "none"
"""Values of the label ``timestampType`` that are no ``TimestampKind``."""


class MemberMetrics:
    """Registers the metrics of a member; values that are not gauges are updated here, on the control thread."""

    def __init__(
        self,
        registry: Registry,
        clock: Clock,
        lease: Lease,
        *,
        infos: Callable[[], Iterable[PartitionTopicInfo]],
        queues: Callable[[], Mapping[tuple[str | None, str], ChunkQueue]],
        min_fetch_rate: Callable[[], float],
        queued_bytes: Callable[[], int],
    ) -> None:
        self.registry = registry
        self._clock = clock
        self._lease = lease
        self._infos = infos
        self._queues = queues
        self._tallies: dict[tuple[str, str], RecordCounter] = {}
        self._rebalance_since_ms: int | None = None
        self._rebalances = registry.timer(names.REBALANCES)
        self.zookeeper_commits = registry.meter(names.ZOOKEEPER_COMMITS)
        self.kafka_commits = registry.meter(names.KAFKA_COMMITS)
        self._messages = registry.meter(names.MESSAGES_ALL)
        registry.meter(names.BYTES_ALL)
        registry.gauge(names.OWNED_ALL, lambda: {(): len(list(self._infos()))})
        registry.gauge(names.OWNED, self._owned)
        registry.gauge(names.QUEUE_SIZE, self._queue_sizes)
        registry.gauge(names.METRICS_COUNT, lambda: {(): len(registry)})
        registry.gauge(names.MAX_LAG, lambda: {(): self._max_lag()})
        registry.gauge(names.MIN_FETCH_RATE, lambda: {(): min_fetch_rate()})
        registry.gauge(names.QUEUED_BYTES, lambda: {(): queued_bytes()})
        registry.gauge(names.LAG, self._lags)
        self.lag_times = MemberLagTimes(infos, clock, LAG_VALID_MS)
        registry.gauge(names.LAG_SECONDS, self._lag_seconds)

    # --- updates ------------------------------------------------------------------------------------------------

    def tally_of(self, topic: str, thread: str) -> RecordCounter:
        """The counter of messages that this stream increments; the same one for every ownership."""
        if (topic, thread) not in self._tallies:
            tally = self._tallies[topic, thread] = RecordCounter()
            for meter in (self._messages, self.registry.meter(names.MESSAGES, topic)):
                meter.add_counter(tally)
        return self._tallies[topic, thread]

    def rebalance_started(self) -> None:
        """The group is being read: from now on the assignment may be incomplete."""
        if self._rebalance_since_ms is None:
            self._rebalance_since_ms = self._clock.now_ms()

    def rebalance_completed(self) -> None:
        """The rebalance has ended."""
        if self._rebalance_since_ms is not None:
            self._rebalances.update(self._clock.now_ms() - self._rebalance_since_ms)
        self._rebalance_since_ms = None

    # --- gauges -------------------------------------------------------------------------------------------------

    def _owned(self) -> dict[Labels, float]:
        return {(topic,): count for topic, count in Counter(info.tp.topic for info in self._infos()).items()}

    def _queue_sizes(self) -> dict[Labels, float]:
        queues = dict(self._queues()).items()
        return {(topic or EVERY_TOPIC, thread.rpartition("-")[2]): len(queue) for (topic, thread), queue in queues}

    def _lags(self) -> dict[Labels, float]:
        now_ms = self._clock.now_ms()
        return {(info.tp.topic, str(info.tp.partition)): _lag(info, now_ms) for info in self._infos()}

    def _lag_seconds(self) -> dict[Labels, float]:
        found: dict[Labels, float] = {}
        for tp, (time, kind) in self.lag_times.read().items():
            seconds: float = LAG_UNKNOWN
            label = NO_TIMESTAMP_KIND if kind is None else kind.value
            match time.lag:
                case CaughtUp():
                    seconds = 0
                case KnownLagTime(lag_ms):
                    seconds = lag_ms / 1000
                case LagTimeAtLeast(lag_ms):
                    seconds, label = lag_ms / 1000, AT_LEAST
                case UnknownLagTime():
                    pass
            found[tp.topic, str(tp.partition), label] = seconds
        return found

    def _max_lag(self) -> float:
        """The largest lag; 0 only if this member is known to have read all of its assignment, -1 if unknown."""
        now_ms = self._clock.now_ms()
        lags = [_lag(info, now_ms) for info in self._infos()]
        largest = max(lags, default=0)
        if largest > 0:
            return largest
        since_ms = self._rebalance_since_ms
        is_rebalance_overdue = since_ms is not None and now_ms - since_ms > LAG_VALID_MS
        # Without a lease no records are delivered, even if the session still exists.
        is_joined = bool(self._queues())
        has_no_lease = is_joined and now_ms - self._lease.until_ms > LAG_VALID_MS
        return LAG_UNKNOWN if is_rebalance_overdue or has_no_lease or LAG_UNKNOWN in lags else 0


def _lag(info: PartitionTopicInfo, now_ms: int) -> int:
    """The known lag; -1 when it is unknown, or when it is 0 and the last broker answer is too old."""
    consumed = info.consumed_offset
    lag = info.high_watermark - consumed
    if info.high_watermark == INVALID_OFFSET or consumed < 0:
        return LAG_UNKNOWN
    if lag <= 0 and now_ms - info.last_response_ms > LAG_VALID_MS:
        return LAG_UNKNOWN
    return max(0, lag)
