"""The part of ``migration_docs/reference/metrics.md`` about ``KafkaConsumer``, from the code of the metrics."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.client.kafka_consumer.consumer_metrics import ConsumerCoordinatorMetrics, ConsumerMetrics, MetricName
from bridge.client.kafka_consumer.prometheus import prometheus_name
from zkconsumer.kafka.fetch.consumer_fetch_metrics import ConsumerFetchMetrics
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.types import TopicPartition

_PART = """\
## Metrics of KafkaConsumer

`consumer.metrics()` of a [`bridge.KafkaConsumer`](kafka-consumer.md) returns a dictionary: `MetricName(name, group,
tags)` with the names of Kafka 3.0, and the present value. `KafkaConsumerCollector(consumer)` of
`bridge.client.kafka_consumer.prometheus` exports them to Prometheus
([set-up](../how-to/read-with-kafka-consumer.md#metrics)). Tags are labels: `client_id`, and `topic` and `partition`
where the name ends with `_by_topic` or `_by_partition` (before `_total`).

- Times are in ms, except where the name has `seconds`. Averages, maxima, minima and rates are those since the
  consumer was created, where Java has the last 30 to 60 seconds. For other windows use `rate()` on the totals, and for
  an alert on the lag `records-lag`, the last value.
- A metric without a value is missing: an average of nothing, or a metric of a group without `group.id`. After `close`
  there is none.
- A metric of a partition exists while the partition is assigned.

| group in Java | name in Java | in Prometheus | meaning |
|---|---|---|---|
{rows}

Not available: `preferred-read-replica`; the metrics of connections (`connection-count`, `request-rate` …) of
`consumer-metrics` and `consumer-node-metrics`; `app-info`; and the number of metrics (`kafka-metrics-count`).
"""

_LEVELS = {"topic": "of one topic", "partition": "of one partition"}
_OF_PARTITIONS_ALONE = frozenset({"records-lag", "records-lag-avg", "records-lead", "records-lead-avg"})

MEANINGS = {
    "assigned-partitions": "number of assigned partitions",
    "bytes-consumed-rate": "bytes of fetched records, a second",
    "bytes-consumed-total": "bytes of fetched records, about, decompressed",
    "commit-latency-avg": "time of a commit request",
    "commit-latency-max": "the longest time of a commit request",
    "commit-rate": "commit requests with a response, a second",
    "commit-total": "commit requests with a response",
    "failed-rebalance-rate-per-hour": "failed joins, an hour",
    "failed-rebalance-total": "failed joins",
    "fetch-latency-avg": "time of a fetch request",
    "fetch-latency-max": "the longest time of a fetch request",
    "fetch-rate": "fetch requests with a response, a second",
    "fetch-size-avg": "bytes of the records of a response",
    "fetch-size-max": "the largest number of bytes of a response",
    "fetch-throttle-time-avg": "time by which brokers delayed a response (quotas)",
    "fetch-throttle-time-max": "the longest such time",
    "fetch-total": "fetch requests with a response",
    "heartbeat-rate": "heartbeats with a response, a second",
    "heartbeat-response-time-max": "the longest time of a heartbeat request",
    "heartbeat-total": "heartbeats with a response",
    "join-rate": "JoinGroup requests with a response, a second",
    "join-time-avg": "time of a JoinGroup request",
    "join-time-max": "the longest time of a JoinGroup request",
    "join-total": "JoinGroup requests with a response",
    "last-heartbeat-seconds-ago": "seconds since the last response to a heartbeat; -1: none",
    "last-poll-seconds-ago": "seconds since the last call of `poll`",
    "last-rebalance-seconds-ago": "seconds since the last completed rebalance; -1: none",
    "partition-assigned-latency-avg": "time of `on_partitions_assigned`",
    "partition-assigned-latency-max": "the longest time of `on_partitions_assigned`",
    "partition-lost-latency-avg": "time of `on_partitions_lost`",
    "partition-lost-latency-max": "the longest time of `on_partitions_lost`",
    "partition-revoked-latency-avg": "time of `on_partitions_revoked`",
    "partition-revoked-latency-max": "the longest time of `on_partitions_revoked`",
    "poll-idle-ratio-avg": "part of the time that the program spends in `poll`, from 0 to 1",
    "rebalance-latency-avg": "time from JoinGroup to the assignment",
    "rebalance-latency-max": "the longest time from JoinGroup to the assignment",
    "rebalance-latency-total": "the sum of these times",
    "rebalance-rate-per-hour": "completed rebalances, an hour",
    "rebalance-total": "completed rebalances",
    "records-consumed-rate": "records of responses that `poll` has read to their end, a second",
    "records-consumed-total": "records of responses that `poll` has read to their end",
    "records-lag": "offsets from the position to the end of the log, after the last records",
    "records-lag-avg": "the mean of this lag",
    "records-lag-max": "the largest lag",
    "records-lead": "offsets from the start of the log to the position, after the last records",
    "records-lead-avg": "the mean of this lead",
    "records-lead-min": "the smallest lead",
    "records-per-request-avg": "records of a response",
    "sync-rate": "SyncGroup requests with a response, a second",
    "sync-time-avg": "time of a SyncGroup request",
    "sync-time-max": "the longest time of a SyncGroup request",
    "sync-total": "SyncGroup requests with a response",
    "time-between-poll-avg": "time from one call of `poll` to the next",
    "time-between-poll-max": "the longest such time; compare it with `max.poll.interval.ms`",
}
"""Java's name of a metric -> what it measures."""


def all_metrics() -> list[MetricName]:
    """Every metric of a consumer with one partition, each once, in the order of ``metrics()``."""
    fetch, group = ConsumerFetchMetrics(), ConsumerCoordinatorMetrics()
    at = TopicPartition("topic", 0)
    for amounts in (fetch.all_topics, fetch.topics.setdefault(at.topic, type(fetch.all_topics)())):
        amounts.fetch_size.record(1)
        amounts.records_per_request.record(1)
    fetch.distances_of(at).record(1, 1)
    for measured in (fetch.fetch_latency_ms, fetch.fetch_throttle_ms, group.rebalances, *group.latencies.values()):
        measured.record(1)
    for callback in Callback:
        group.record_callback(callback, 1)
    metrics = ConsumerMetrics("client", fetch, group, 0)
    for now_ms in (0, 1):
        metrics.poll.record_start(now_ms)
        metrics.poll.record_end(now_ms)
    return list(metrics.values(1, 1))


def _rows() -> Iterator[str]:
    for metric in all_metrics():
        level = _LEVELS.get(metric.tags[-1][0], "")
        is_repeated = level and metric.name not in _OF_PARTITIONS_ALONE
        meaning = "the same" if is_repeated else MEANINGS[metric.name]
        meaning = f"{meaning}, {level}" if level else meaning
        yield f"| `{metric.group}` | `{metric.name}` | `{prometheus_name(metric)}` | {meaning} |"


def render() -> str:
    """The part of the page."""
    return _PART.format(rows="\n".join(_rows()))
