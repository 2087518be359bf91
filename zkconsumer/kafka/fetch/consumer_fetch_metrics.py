"""``ConsumerFetchMetrics``: what ``Fetcher`` measures, as ``FetchManagerMetrics`` of Kafka 3.0.  Pure.

A fetch is measured when all of its partitions were read, because records are decoded when they are returned
(``FetchedResponseTotals``).  The metrics of a partition are removed when it is not assigned any more.

Difference from Java: averages are over the whole time, and not over two windows of ``metrics.sample.window.ms``; who
exports them computes rates from the totals.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from math import inf

from zkconsumer.types import TopicPartition


@dataclass(slots=True)
class MeasuredValues:
    """Number, sum, last, lowest and highest of some values; None before the first."""

    count: int = 0
    total: int = 0
    last: int | None = None
    lowest: int | None = None
    highest: int | None = None

    @property
    def average(self) -> float | None:
        """The mean; None before the first value."""
        return self.total / self.count if self.count else None

    def record(self, value: int) -> None:
        """Add a value."""
        self.count += 1
        self.total += value
        self.last = value
        if self.lowest is None or value < self.lowest:
            self.lowest = value
        if self.highest is None or value > self.highest:
            self.highest = value


@dataclass(slots=True)
class FetchedAmounts:
    """Of each fetch with records to read: ``fetch_size`` in bytes (about, decompressed), ``records_per_request``."""

    fetch_size: MeasuredValues = field(default_factory=MeasuredValues)
    records_per_request: MeasuredValues = field(default_factory=MeasuredValues)


@dataclass(slots=True)
class PartitionDistances:
    """``lag``: offsets up to the end of the log.  ``lead``: offsets since the begin of the log."""

    lag: MeasuredValues = field(default_factory=MeasuredValues)
    lead: MeasuredValues = field(default_factory=MeasuredValues)

    def record(self, lag: int | None, lead: int | None) -> None:
        """The distances after the records that were just returned; None: not known."""
        if lag is not None:
            self.lag.record(lag)
        if lead is not None:
            self.lead.record(lead)

    def record_move(self, offsets: int) -> None:
        """The position has moved by so many offsets since the last ``record``, and the log is the same."""
        lag, lead = self.lag, self.lead
        if lag.last is not None:
            lag.record(lag.last - offsets)
        if lead.last is not None:
            lead.record(lead.last + offsets)


@dataclass(slots=True)
class ConsumerFetchMetrics:
    """Java's metrics of the group ``consumer-fetch-manager-metrics``.

    ``fetch_latency_ms``: from the creation of a request to its response.  ``fetch_throttle_ms``: the time by which
    brokers have delayed responses.  ``assignment_id``: the assignment that ``partitions`` was last compared with.
    """

    all_topics: FetchedAmounts = field(default_factory=FetchedAmounts)
    topics: dict[str, FetchedAmounts] = field(default_factory=dict)
    partitions: dict[TopicPartition, PartitionDistances] = field(default_factory=dict)
    fetch_latency_ms: MeasuredValues = field(default_factory=MeasuredValues)
    fetch_throttle_ms: MeasuredValues = field(default_factory=MeasuredValues)
    assignment_id: int = 0
    _removed: tuple[PartitionDistances, ...] = ()
    """Of the partitions that are not assigned any more: one with the highest lag, one with the lowest lead."""

    def maybe_update_assignment(self, assignment_id: int, assigned: set[TopicPartition]) -> None:
        """Remove the metrics of partitions that are not assigned any more."""
        if assignment_id != self.assignment_id:
            self.assignment_id = assignment_id
            removed = [*self._removed, *(found for tp, found in self.partitions.items() if tp not in assigned)]
            if removed:
                self._removed = max(removed, key=_highest_lag), min(removed, key=_lowest_lead)
            self.partitions = {tp: found for tp, found in self.partitions.items() if tp in assigned}

    def distances_of(self, tp: TopicPartition) -> PartitionDistances:
        """The lag and the lead of a partition whose records are returned."""
        found = self.partitions.get(tp)
        if found is None:
            found = self.partitions[tp] = PartitionDistances()
        return found

    @property
    def records_lag_max(self) -> int | None:
        """The highest lag of all partitions so far; None: not known."""
        highest = max((*self._removed, *list(self.partitions.values())), key=_highest_lag, default=None)
        return None if highest is None else highest.lag.highest

    @property
    def records_lead_min(self) -> int | None:
        """The lowest lead of all partitions so far; None: not known."""
        lowest = min((*self._removed, *list(self.partitions.values())), key=_lowest_lead, default=None)
        return None if lowest is None else lowest.lead.lowest

    def record_topic(self, topic: str, size_bytes: int, records: int) -> None:
        """The part of a fetch about one topic."""
        amounts = self.topics.get(topic)
        if amounts is None:
            amounts = self.topics[topic] = FetchedAmounts()
        amounts.fetch_size.record(size_bytes)
        amounts.records_per_request.record(records)


def _highest_lag(distances: PartitionDistances) -> float:
    return -inf if distances.lag.highest is None else distances.lag.highest


def _lowest_lead(distances: PartitionDistances) -> float:
    return inf if distances.lead.lowest is None else distances.lead.lowest


@dataclass(slots=True, eq=False)
class FetchedResponseTotals:
    """What was read of one response; it is measured when no partition is left in ``unread``."""

    metrics: ConsumerFetchMetrics
    unread: set[TopicPartition]
    _size_bytes: int = 0
    _records: int = 0
    _topics: dict[str, tuple[int, int]] = field(default_factory=dict)

    def record(self, tp: TopicPartition, size_bytes: int, records: int) -> None:
        """A partition was read, or skipped with nothing."""
        assert tp in self.unread, "once for each partition"
        self.unread.remove(tp)
        self._size_bytes += size_bytes
        self._records += records
        old_bytes, old_records = self._topics.get(tp.topic, (0, 0))
        self._topics[tp.topic] = old_bytes + size_bytes, old_records + records
        if not self.unread:
            self.metrics.all_topics.fetch_size.record(self._size_bytes)
            self.metrics.all_topics.records_per_request.record(self._records)
            for topic, (topic_bytes, topic_records) in self._topics.items():
                self.metrics.record_topic(topic, topic_bytes, topic_records)
