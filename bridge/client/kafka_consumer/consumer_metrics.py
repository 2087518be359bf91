"""The metrics of a ``KafkaConsumer``, with the names of Kafka 3.0's consumer.  Pure.

Averages, maxima and rates are those since the consumer was created: Java's are those of the last minute.  A monitoring
system that wants other windows reads the totals (``kafka_consumer/prometheus.py``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from zkconsumer.kafka.fetch.consumer_fetch_metrics import ConsumerFetchMetrics, FetchedAmounts, MeasuredValues
from zkconsumer.kafka.group.commands import Callback, LogMemberEvent
from zkconsumer.kafka.net.client_request import ClientResponse
from zkconsumer.wire.schemas import HEARTBEAT, JOIN_GROUP, OFFSET_COMMIT, SYNC_GROUP

CONSUMER_GROUP = "consumer-metrics"
COORDINATOR_GROUP = "consumer-coordinator-metrics"
FETCH_GROUP = "consumer-fetch-manager-metrics"


class MetricName(NamedTuple):
    """As ``org.apache.kafka.common.MetricName``; ``tags``: pairs of name and value, ``client-id`` first."""

    name: str
    group: str
    tags: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True)
class PollMetrics:
    """The calls of ``poll``; times in ms."""

    last_start_ms: int | None = None
    between: MeasuredValues = field(default_factory=MeasuredValues)
    """From the start of one call to the start of the next."""
    inside_total_ms: int = 0
    """The time inside of the calls that have waited."""

    def record_start(self, now_ms: int) -> None:
        """A call begins."""
        if self.last_start_ms is not None:
            self.between.record(now_ms - self.last_start_ms)
        self.last_start_ms = now_ms

    def record_end(self, now_ms: int) -> None:
        """It has ended; not needed for a call that did not wait."""
        assert self.last_start_ms is not None, "it began"
        self.inside_total_ms += now_ms - self.last_start_ms


_LATENCIES = {OFFSET_COMMIT.key: "commit", JOIN_GROUP.key: "join", SYNC_GROUP.key: "sync", HEARTBEAT.key: "heartbeat"}
_REBALANCE_ENDED, _REBALANCE_BEGAN = "assigned", "joining"
_REBALANCE_FAILED = frozenset({"join-failed", "join-rejected"})


@dataclass(slots=True)
class ConsumerCoordinatorMetrics:
    """Of the group; times in ms.  ``latencies``: from sending a request to its response, by name."""

    latencies: dict[str, MeasuredValues] = field(
        default_factory=lambda: {name: MeasuredValues() for name in _LATENCIES.values()}
    )
    callbacks: dict[Callback, MeasuredValues] = field(
        default_factory=lambda: {callback: MeasuredValues() for callback in Callback}
    )
    rebalances: MeasuredValues = field(default_factory=MeasuredValues)
    """From the first JoinGroup to the assignment."""
    failed_rebalances: int = 0
    last_rebalance_ms: int | None = None
    last_heartbeat_ms: int | None = None
    _rebalance_began_ms: int | None = None

    def record_response(self, api_key: int, response: ClientResponse) -> None:
        """A response of the coordinator has arrived."""
        name = _LATENCIES.get(api_key)
        if name is None:
            return
        self.latencies[name].record(response.latency_ms)
        if api_key == HEARTBEAT.key:
            self.last_heartbeat_ms = response.received_ms

    def record_callback(self, callback: Callback, duration_ms: int) -> None:
        """A method of the rebalance listener has returned."""
        self.callbacks[callback].record(duration_ms)

    def count_event(self, event: LogMemberEvent, now_ms: int) -> None:
        """An event of the group's machine."""
        if event.name == _REBALANCE_BEGAN and self._rebalance_began_ms is None:
            self._rebalance_began_ms = now_ms
        elif event.name in _REBALANCE_FAILED:
            self.failed_rebalances += 1
        elif event.name == _REBALANCE_ENDED:
            if self._rebalance_began_ms is not None:
                self.rebalances.record(now_ms - self._rebalance_began_ms)
            self._rebalance_began_ms = None
            self.last_rebalance_ms = now_ms


class ConsumerMetrics:
    """All metrics of one consumer.  ``coordinator`` None: it has no group."""

    def __init__(
        self,
        client_id: str,
        fetch: ConsumerFetchMetrics,
        coordinator: ConsumerCoordinatorMetrics | None,
        now_ms: int,
    ) -> None:
        self.poll = PollMetrics()
        self._client = (("client-id", client_id),)
        self._fetch = fetch
        self._coordinator = coordinator
        self._created_ms = now_ms

    def values(self, now_ms: int, assigned_partitions: int) -> dict[MetricName, float]:
        """The present values; a metric without a value yet (an average of nothing) is missing."""
        seconds = max(1, now_ms - self._created_ms) / 1000
        found: dict[MetricName, float] = {}
        for group, part in (
            (CONSUMER_GROUP, self._of_poll(now_ms)),
            (COORDINATOR_GROUP, self._of_coordinator(now_ms, seconds, assigned_partitions)),
            (FETCH_GROUP, self._of_fetches(seconds)),
        ):
            for name, value, *tags in part:
                if value is not None:
                    found[MetricName(name, group, (*self._client, *tags))] = value
        return found

    def _of_poll(self, now_ms: int) -> Iterator[_Row]:
        poll = self.poll
        if poll.last_start_ms is not None:
            yield "last-poll-seconds-ago", (now_ms - poll.last_start_ms) // 1000
        yield from _average_and_maximum("time-between-poll", poll.between)
        if poll.between.total:
            yield "poll-idle-ratio-avg", min(1.0, poll.inside_total_ms / poll.between.total)

    def _of_coordinator(self, now_ms: int, seconds: float, assigned: int) -> Iterator[_Row]:
        group = self._coordinator
        if group is None:
            return
        yield "assigned-partitions", assigned
        for name, measured in group.latencies.items():
            if name == "heartbeat":
                yield "heartbeat-response-time-max", measured.highest
            else:
                yield from _average_and_maximum(f"{name}-latency" if name == "commit" else f"{name}-time", measured)
            yield f"{name}-rate", measured.count / seconds
            yield f"{name}-total", measured.count
        for callback, measured in group.callbacks.items():
            yield from _average_and_maximum(_CALLBACK_METRICS[callback], measured)
        yield from _average_and_maximum("rebalance-latency", group.rebalances)
        yield "rebalance-latency-total", group.rebalances.total
        yield "rebalance-total", group.rebalances.count
        yield "rebalance-rate-per-hour", group.rebalances.count / seconds * 3600
        yield "failed-rebalance-total", group.failed_rebalances
        yield "failed-rebalance-rate-per-hour", group.failed_rebalances / seconds * 3600
        for name, at_ms in (
            ("last-rebalance-seconds-ago", group.last_rebalance_ms),
            ("last-heartbeat-seconds-ago", group.last_heartbeat_ms),
        ):
            yield name, -1 if at_ms is None else (now_ms - at_ms) // 1000  # -1: never, as in Java

    def _of_fetches(self, seconds: float) -> Iterator[_Row]:
        fetch = self._fetch
        yield from _of_amounts(fetch.all_topics, seconds)
        yield from _average_and_maximum("fetch-latency", fetch.fetch_latency_ms)
        yield "fetch-rate", fetch.fetch_latency_ms.count / seconds
        yield "fetch-total", fetch.fetch_latency_ms.count
        yield from _average_and_maximum("fetch-throttle-time", fetch.fetch_throttle_ms)
        yield "records-lag-max", fetch.records_lag_max
        yield "records-lead-min", fetch.records_lead_min
        # Copies: the program's thread may add topics and partitions meanwhile.
        for topic, amounts in list(fetch.topics.items()):
            for name, value in _of_amounts(amounts, seconds):
                yield name, value, ("topic", topic)
        for tp, distances in list(fetch.partitions.items()):
            tags = ("topic", tp.topic), ("partition", str(tp.partition))
            yield "records-lag", distances.lag.last, *tags
            yield "records-lag-avg", distances.lag.average, *tags
            yield "records-lag-max", distances.lag.highest, *tags
            yield "records-lead", distances.lead.last, *tags
            yield "records-lead-avg", distances.lead.average, *tags
            yield "records-lead-min", distances.lead.lowest, *tags


_Row = tuple[str, float | None] | tuple[str, float | None, *tuple[tuple[str, str], ...]]

_CALLBACK_METRICS: Mapping[Callback, str] = {
    Callback.REVOKED: "partition-revoked-latency",
    Callback.ASSIGNED: "partition-assigned-latency",
    Callback.LOST: "partition-lost-latency",
}


def _average_and_maximum(name: str, measured: MeasuredValues) -> Iterator[tuple[str, float | None]]:
    yield f"{name}-avg", measured.average
    yield f"{name}-max", measured.highest


def _of_amounts(amounts: FetchedAmounts, seconds: float) -> Iterator[tuple[str, float | None]]:
    size, records = amounts.fetch_size, amounts.records_per_request
    yield from _average_and_maximum("fetch-size", size)
    yield "bytes-consumed-rate", size.total / seconds
    yield "bytes-consumed-total", size.total
    yield "records-per-request-avg", records.average
    yield "records-consumed-rate", records.total / seconds
    yield "records-consumed-total", records.total
