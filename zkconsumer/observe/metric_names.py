"""The table of metrics: the MBean names of the Scala consumer, and the names in Prometheus.  Pure.

``migration_docs/reference/metrics.md`` is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from functools import partial

CONNECTOR = "ZookeeperConsumerConnector"
FETCHES = "FetchRequestAndResponseMetrics"


class MetricKind(Enum):
    """The kinds of metrics of Yammer's library."""

    METER = "meter"
    TIMER = "timer"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One MBean pattern.

    ``prometheus`` is empty if another row exports the parts of this sum, so that a query does not add values twice.
    """

    domain: str
    type: str
    name: str
    labels: tuple[str, ...]
    kind: MetricKind
    prometheus: str
    sentence: str

    @property
    def pattern(self) -> str:
        """The MBean name with the names of its labels."""
        return f"{self.domain}:type={self.type},name={self.name}" + "".join(f",{label}" for label in self.labels)


def _row(
    kind: MetricKind, type_: str, name: str, labels: str, prometheus: str, sentence: str, domain: str = "consumer"
) -> MetricRow:
    return MetricRow(f"kafka.{domain}", type_, name, tuple(labels.split()), kind, prometheus, sentence)


_meter = partial(_row, MetricKind.METER)
_timer = partial(_row, MetricKind.TIMER)
_histogram = partial(_row, MetricKind.HISTOGRAM)
_gauge = partial(_row, MetricKind.GAUGE)


KAFKA_COMMITS = _meter(
    CONNECTOR,
    "KafkaCommitsPerSec",
    "clientId",
    "zkconsumer_kafka_commits_total",
    "Partitions in commits to Kafka; each attempt counts.",
)
ZOOKEEPER_COMMITS = _meter(
    CONNECTOR,
    "ZooKeeperCommitsPerSec",
    "clientId",
    "zkconsumer_zookeeper_commits_total",
    "Offset znodes written in commits and releases.",
)
REBALANCES = _timer(
    CONNECTOR,
    "RebalanceRateAndTime",
    "clientId",
    "zkconsumer_rebalance_seconds",
    "Time from reading the group until the member owns its whole assignment, including all attempts.",
)
OWNED_ALL = _gauge(
    CONNECTOR,
    "OwnedPartitionsCount",
    "clientId groupId",
    "",
    "Partitions that this member owns.",
)
OWNED = _gauge(
    CONNECTOR,
    "OwnedPartitionsCount",
    "clientId groupId topic",
    "zkconsumer_owned_partitions",
    "Partitions of a topic that this member owns; no metric exists for a topic without owned partitions.",
)
QUEUE_SIZE = _gauge(
    CONNECTOR,
    "FetchQueueSize",
    "clientId topic threadId",
    "zkconsumer_fetch_queue_chunks",
    "Chunks in the queue of a stream. If the queue is full, the program is slower than the brokers. A stream of a "
    "topic filter has one queue, with the topic `*`.",
)
METRICS_COUNT = _gauge(
    CONNECTOR,
    "yammer-metrics-count",
    "",
    "",
    "Number of metrics of this connector.",
)
MAX_LAG = _gauge(
    "ConsumerFetcherManager",
    "MaxLag",
    "clientId",
    "zkconsumer_max_lag",
    "The largest `ConsumerLag`; -1 when none is above 0 and one is unknown, or when the member has not owned its whole "
    "assignment for 30 s. So a blocked member does not show 0.",
)
MIN_FETCH_RATE = _gauge(
    "ConsumerFetcherManager",
    "MinFetchRate",
    "clientId",
    "zkconsumer_min_fetch_rate",
    "Requests per second to the slowest broker, over the last minute; 0 when nothing is fetched.",
)
QUEUED_BYTES = _gauge(
    "ConsumerFetcherManager",
    "QueuedBytes",
    "clientId",
    "zkconsumer_queued_bytes",
    "Memory used by fetched and decompressed bytes; `queued.max.bytes` limits it. The Scala consumer has no such "
    "metric.",
)
FETCHES_DEFERRED = _meter(
    "ConsumerFetcherManager",
    "FetchesDeferredPerSec",
    "clientId",
    "zkconsumer_fetches_deferred_total",
    "How often a fetcher sent no request because `queued.max.bytes` had no room. It grows while the program is slower "
    "than the brokers. The Scala consumer has no such metric.",
)
LAG = _gauge(
    "FetcherLagMetrics",
    "ConsumerLag",
    "clientId topic partition",
    "zkconsumer_lag",
    "High watermark minus the consumed offset; -1 when the known lag is 0 and no broker has answered for this "
    "partition for 30 s.",
    "server",
)
LAG_SECONDS = _gauge(
    "FetcherLagMetrics",
    "ConsumerLagSeconds",
    "clientId topic partition timestampType",
    "zkconsumer_lag_seconds",
    "How long the first record that the program has not acknowledged has been waiting: now minus its timestamp. 0 only "
    "when everything was read, -1 when the time is unknown. `timestampType` is `CreateTime`, `LogAppendTime`, "
    "`observed` (interpolated between two reads of this metric, for messages without timestamps), `at-least` (the true "
    "lag is larger), or `none` until a time was known. The Scala consumer has no such metric.",
    "server",
)
FETCHER_REQUESTS = _meter(
    "FetcherStats",
    "RequestsPerSec",
    "clientId brokerHost brokerPort",
    "zkconsumer_fetch_requests_total",
    "Fetch requests that a broker answered.",
    "server",
)
FETCHER_BYTES = _meter(
    "FetcherStats",
    "BytesPerSec",
    "clientId brokerHost brokerPort",
    "zkconsumer_fetched_bytes_total",
    "Bytes of complete messages in the responses of a broker.",
    "server",
)
MESSAGES_ALL = _meter(
    "ConsumerTopicMetrics",
    "MessagesPerSec",
    "clientId",
    "",
    "Messages that streams delivered; the count is updated after some dozen messages.",
)
MESSAGES = _meter(
    "ConsumerTopicMetrics",
    "MessagesPerSec",
    "clientId topic",
    "zkconsumer_messages_total",
    "Messages of a topic that streams delivered; the count is updated after some dozen messages and after each batch.",
)
BYTES_ALL = _meter(
    "ConsumerTopicMetrics",
    "BytesPerSec",
    "clientId",
    "",
    "Bytes of complete messages that were queued.",
)
BYTES = _meter(
    "ConsumerTopicMetrics",
    "BytesPerSec",
    "clientId topic",
    "zkconsumer_bytes_total",
    "Bytes of complete messages of a topic that were queued.",
)
FETCH_TIME_ALL = _timer(
    FETCHES,
    "FetchRequestRateAndTimeMs",
    "clientId",
    "",
    "Duration of fetch requests, including the time that the broker waits for data.",
)
FETCH_TIME = _timer(
    FETCHES,
    "FetchRequestRateAndTimeMs",
    "clientId brokerHost brokerPort",
    "zkconsumer_fetch_seconds",
    "Duration of fetch requests to a broker, including the time that it waits for data.",
)
FETCH_SIZE_ALL = _histogram(
    FETCHES,
    "FetchResponseSize",
    "clientId",
    "",
    "Bytes of the record sets in a response.",
)
FETCH_SIZE = _histogram(
    FETCHES,
    "FetchResponseSize",
    "clientId brokerHost brokerPort",
    "zkconsumer_fetch_response_bytes",
    "Bytes of the record sets in a response of a broker.",
)
THROTTLE_ALL = _timer(
    FETCHES,
    "FetchRequestThrottleRateAndTimeMs",
    "clientId",
    "",
    "Time for which brokers delayed responses because of a quota (Kafka 0.9 and later).",
)
THROTTLE = _timer(
    FETCHES,
    "FetchRequestThrottleRateAndTimeMs",
    "clientId brokerHost brokerPort",
    "zkconsumer_fetch_throttle_seconds",
    "Time for which a broker delayed responses because of a quota (Kafka 0.9 and later).",
)

ROWS: tuple[MetricRow, ...] = (
    KAFKA_COMMITS,
    ZOOKEEPER_COMMITS,
    REBALANCES,
    OWNED_ALL,
    OWNED,
    QUEUE_SIZE,
    METRICS_COUNT,
    MAX_LAG,
    MIN_FETCH_RATE,
    QUEUED_BYTES,
    FETCHES_DEFERRED,
    LAG,
    LAG_SECONDS,
    FETCHER_REQUESTS,
    FETCHER_BYTES,
    MESSAGES_ALL,
    MESSAGES,
    BYTES_ALL,
    BYTES,
    FETCH_TIME_ALL,
    FETCH_TIME,
    FETCH_SIZE_ALL,
    FETCH_SIZE,
    THROTTLE_ALL,
    THROTTLE,
)
