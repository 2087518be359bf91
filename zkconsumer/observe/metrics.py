"""Metrics: meters, timers, histograms, gauges, and the registry of one connector.

    streams, fetchers, control thread --mark, update--> Registry --snapshot--> JSON (``mbeans``), Prometheus

Attributes have the names of Yammer's metrics in JMX, so old dashboards need no new names.  No method is called for each
record: messages are counted per batch (``RecordCounter``), everything else per request or chunk.
"""

from __future__ import annotations

import math
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.observe.metric_names import ROWS, MetricKind, MetricRow
from zkconsumer.types import RecordCounter

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock

SAMPLES_MAX = 1_024
"""Percentiles are computed from this many last values.  (Yammer also includes older values, with less weight.)"""

TICK_MS = 5_000
"""The interval at which rates are updated, as in Yammer."""

MINUTES = {"OneMinuteRate": 1, "FiveMinuteRate": 5, "FifteenMinuteRate": 15}
PERCENTILES = {
    "50thPercentile": 0.5,
    "75thPercentile": 0.75,
    "95thPercentile": 0.95,
    "98thPercentile": 0.98,
    "99thPercentile": 0.99,
    "999thPercentile": 0.999,
}

Values: TypeAlias = "dict[str, float]"
"""Attribute, with Yammer's name -> value."""

Labels: TypeAlias = "tuple[str, ...]"
"""The values of a row's own labels, in its order."""


class Rates:
    """Events per second: the mean since the start, and exponentially weighted means over the last minutes."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._born_ms = self._ticked_ms = clock.now_ms()
        self._counted = 0
        self._rates: dict[str, float] = {}

    def tick(self, count: int) -> None:
        """Add the events since the last tick; the weight depends on the elapsed time, so ticks may be irregular."""
        now_ms = self._clock.now_ms()
        elapsed_ms = now_ms - self._ticked_ms
        if elapsed_ms <= 0:
            return
        rate = (count - self._counted) * 1000 / elapsed_ms
        for name, minutes in MINUTES.items():
            weight = 1 - math.exp(-elapsed_ms / (minutes * 60_000))
            before = self._rates.get(name, rate)
            self._rates[name] = before + weight * (rate - before)
        self._counted, self._ticked_ms = count, now_ms

    def values(self, count: int) -> Values:
        """The rates at the last tick; 0 before the first one, as in Yammer."""
        age_s = (self._clock.now_ms() - self._born_ms) / 1000
        recent = {name: self._rates.get(name, 0.0) for name in MINUTES}
        return {"Count": count, "MeanRate": count / age_s if age_s > 0 else 0.0, **recent}


class Meter:
    """A count of events and its rates."""

    def __init__(self, clock: Clock) -> None:
        self._lock = threading.Lock()
        self._count = 0
        self._counters: list[RecordCounter] = []
        self._rates = Rates(clock)

    def mark(self, by: int = 1) -> None:
        """Add ``by`` events; any thread may call it."""
        with self._lock:
            self._count += by

    def add_counter(self, tally: RecordCounter) -> None:
        """Add this counter to the sum; only one thread increases it, without a lock."""
        with self._lock:
            self._counters.append(tally)

    @property
    def count(self) -> int:
        """The sum of all events."""
        with self._lock:
            return self._count + sum(tally.count for tally in self._counters)

    def tick(self) -> None:
        self._rates.tick(self.count)

    def values(self) -> Values:
        return self._rates.values(self.count)


class Histogram:
    """Minimum, maximum, mean and deviation of all values, and percentiles of the last ``SAMPLES_MAX``."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._samples: deque[float] = deque(maxlen=SAMPLES_MAX)
        self._count = 0
        self._min = math.inf
        self._max = -math.inf
        self._mean = self._squares = 0.0

    def update(self, value: float) -> None:
        """Add a value; any thread may call it."""
        with self._lock:
            self._count += 1
            self._samples.append(value)
            self._min, self._max = min(self._min, value), max(self._max, value)
            before = self._mean
            self._mean += (value - before) / self._count
            self._squares += (value - before) * (value - self._mean)

    @property
    def count(self) -> int:
        with self._lock:
            return self._count

    def tick(self) -> None:
        """Do nothing: a histogram has no rates."""

    def values(self) -> Values:
        with self._lock:
            samples, count = sorted(self._samples), self._count
            if not count:
                return dict.fromkeys(("Count", "Min", "Max", "Mean", "StdDev", *PERCENTILES), 0.0)
            deviation = math.sqrt(self._squares / (count - 1)) if count > 1 else 0.0
            whole = {"Count": count, "Min": self._min, "Max": self._max, "Mean": self._mean, "StdDev": deviation}
        return whole | {name: samples[min(len(samples) - 1, int(q * len(samples)))] for name, q in PERCENTILES.items()}


class TimerMetric:
    """A histogram of durations in ms, and the rates of these events."""

    def __init__(self, clock: Clock) -> None:
        self._durations = Histogram()
        self._rates = Rates(clock)

    def update(self, elapsed_ms: float) -> None:
        """Add a duration in ms; any thread may call it."""
        self._durations.update(elapsed_ms)

    @property
    def count(self) -> int:
        return self._durations.count

    def tick(self) -> None:
        self._rates.tick(self._durations.count)

    def values(self) -> Values:
        durations = self._durations.values()
        return durations | self._rates.values(int(durations["Count"]))


AnyMetric: TypeAlias = Meter | Histogram | TimerMetric
Gauges: TypeAlias = "Callable[[], Mapping[Labels, float]]"
"""The present values of a gauge: one for each combination of its labels."""


@dataclass(frozen=True, slots=True)
class MetricSample:
    """The present values of one metric."""

    row: MetricRow
    labels: Mapping[str, str]
    values: Mapping[str, float]

    @property
    def mbean(self) -> str:
        """The MBean name of the metric in JMX."""
        own = "".join(f",{label}={self.labels[label]}" for label in self.row.labels)
        return f"{self.row.domain}:type={self.row.type},name={self.row.name}{own}"


class Registry:
    """The metrics of one connector.

    ``given``: the values of the labels that all metrics of a connector have (``clientId``, ``groupId``).
    """

    def __init__(self, clock: Clock, given: Mapping[str, str]) -> None:
        self._clock = clock
        self._given = dict(given)
        self._lock = threading.Lock()
        self._measures: dict[tuple[MetricRow, Labels], AnyMetric] = {}
        self._gauges: dict[MetricRow, Gauges] = {}

    def meter(self, row: MetricRow, *labels: str) -> Meter:
        """The meter of this row with these values of the row's own labels; created at the first call."""
        assert row.kind is MetricKind.METER, row.name
        made = self._measure(row, labels, lambda: Meter(self._clock))
        assert isinstance(made, Meter), "a row has one kind"
        return made

    def timer(self, row: MetricRow, *labels: str) -> TimerMetric:
        """As ``meter``."""
        assert row.kind is MetricKind.TIMER, row.name
        made = self._measure(row, labels, lambda: TimerMetric(self._clock))
        assert isinstance(made, TimerMetric), "a row has one kind"
        return made

    def histogram(self, row: MetricRow, *labels: str) -> Histogram:
        """As ``meter``."""
        assert row.kind is MetricKind.HISTOGRAM, row.name
        made = self._measure(row, labels, Histogram)
        assert isinstance(made, Histogram), "a row has one kind"
        return made

    def _measure(self, row: MetricRow, labels: Labels, make: Callable[[], AnyMetric]) -> AnyMetric:
        with self._lock:
            found = self._measures.get((row, labels))
            if found is None:
                found = self._measures[row, labels] = make()
            return found

    def remove(self, row: MetricRow, *labels: str) -> None:
        """Remove the metric of this row with these label values; updates of the removed object have no effect.

        ``meter`` and the other methods then create a new one that starts at 0.
        """
        with self._lock:
            self._measures.pop((row, labels), None)

    def gauge(self, row: MetricRow, read: Gauges) -> None:
        """Register a gauge; ``read`` is called for every sample, on the thread that takes it."""
        assert row.kind is MetricKind.GAUGE, row.name
        self._gauges[row] = read

    def tick(self) -> None:
        """Update the rates; called every ``TICK_MS``."""
        for measure in self._all_measures().values():
            measure.tick()

    def samples(self) -> Iterable[MetricSample]:
        """The present values of all metrics, in the order of the table."""
        measures = self._all_measures()
        for row in ROWS:
            for (of, labels), measure in sorted(measures.items(), key=lambda item: item[0][1]):
                if of is row:
                    yield MetricSample(row, self._labelled(row, labels), measure.values())
            if row in self._gauges:
                for labels, value in sorted(self._gauges[row]().items()):
                    yield MetricSample(row, self._labelled(row, labels), {"Value": value})

    def __len__(self) -> int:
        return len(self._measures) + len(self._gauges)

    def mbeans(self) -> dict[str, Values]:
        """MBean name -> attribute -> value."""
        return {sample.mbean: dict(sample.values) for sample in self.samples()}

    def _all_measures(self) -> dict[tuple[MetricRow, Labels], AnyMetric]:
        with self._lock:
            return dict(self._measures)

    def _labelled(self, row: MetricRow, labels: Labels) -> dict[str, str]:
        own = iter(labels)
        return {label: self._given[label] if label in self._given else next(own) for label in row.labels}
