"""The table of metrics: the MBean names of the Scala consumer, and the names in Prometheus.  Pure.

``migration_docs/reference/metrics.md`` is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

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
    type_: str, name: str, labels: str, kind: MetricKind, prometheus: str, sentence: str, domain: str = "consumer"
) -> MetricRow:
    return MetricRow(f"kafka.{domain}", type_, name, tuple(labels.split()), kind, prometheus, sentence)


KAFKA_COMMITS = _row(
    CONNECTOR,
    "KafkaCommitsPerSec",
    "clientId",
    MetricKind.METER,
    "zkconsumer_kafka_commits_total",
    "Partitions in commits to Kafka; each attempt counts.",
)
ZOOKEEPER_COMMITS = _row(
    CONNECTOR,
    "ZooKeeperCommitsPerSec",
    "clientId",
    MetricKind.METER,
    "zkconsumer_zookeeper_commits_total",
    "Offset znodes written in commits and releases.",
)
REBALANCES = _row(
    CONNECTOR,
    "RebalanceRateAndTime",
    "clientId",
    MetricKind.TIMER,
    "zkconsumer_rebalance_seconds",
    "Time from reading the group until the member owns its whole assignment, including all attempts.",
)
OWNED_ALL = _row(
    CONNECTOR,
    "OwnedPartitionsCount",
    "clientId groupId",
    MetricKind.GAUGE,
    "",
    "Partitions that this member owns.",
)
OWNED = _row(
    CONNECTOR,
    "OwnedPartitionsCount",
    "clientId groupId topic",
    MetricKind.GAUGE,
    "zkconsumer_owned_partitions",
    "Partitions of a topic that this member owns; no metric exists for a topic without owned partitions.",
)
QUEUE_SIZE = _row(
    CONNECTOR,
    "FetchQueueSize",
    "clientId topic threadId",
    MetricKind.GAUGE,
    "zkconsumer_fetch_queue_chunks",
    "Chunks in the queue of a stream. If the queue is full, the program is slower than the brokers. A stream of a "
    "topic filter has one queue, with the topic `*`.",
)
METRICS_COUNT = _row(
    CONNECTOR,
    "yammer-metrics-count",
    "",
    MetricKind.GAUGE,
    "",
    "Number of metrics of this connector.",
)
MAX_LAG = _row(
    "ConsumerFetcherManager",
    "MaxLag",
    "clientId",
    MetricKind.GAUGE,
    "zkconsumer_max_lag",
    "The largest `ConsumerLag`; -1 when none is above 0 and one is unknown, or when the member has not owned its whole "
    "assignment for 30 s. So a blocked member does not show 0.",
)
MIN_FETCH_RATE = _row(
    "ConsumerFetcherManager",
    "MinFetchRate",
    "clientId",
    MetricKind.GAUGE,
    "zkconsumer_min_fetch_rate",
    "Requests per second to the slowest broker, over the last minute; 0 when nothing is fetched.",
)
QUEUED_BYTES = _row(
    "ConsumerFetcherManager",
    "QueuedBytes",
    "clientId",
    MetricKind.GAUGE,
    "zkconsumer_queued_bytes",
    "Memory used by fetched and decompressed bytes; `queued.max.bytes` limits it. The Scala consumer has no such "
    "metric.",
)
FETCHES_DEFERRED = _row(
    "ConsumerFetcherManager",
    "FetchesDeferredPerSec",
    "clientId",
    MetricKind.METER,
    "zkconsumer_fetches_deferred_total",
    "How often a fetcher sent no request because `queued.max.bytes` had no room. It grows while the program is slower "
    "than the brokers. The Scala consumer has no such metric.",
)
LAG = _row(
    "FetcherLagMetrics",
    "ConsumerLag",
    "clientId topic partition",
    MetricKind.GAUGE,
    "zkconsumer_lag",
    "High watermark minus the consumed offset; -1 when the known lag is 0 and no broker has answered for this "
    "partition for 30 s.",
    "server",
)
FETCHER_REQUESTS = _row(
    "FetcherStats",
    "RequestsPerSec",
    "clientId brokerHost brokerPort",
    MetricKind.METER,
    "zkconsumer_fetch_requests_total",
    "Fetch requests that a broker answered.",
    "server",
)
FETCHER_BYTES = _row(
    "FetcherStats",
    "BytesPerSec",
    "clientId brokerHost brokerPort",
    MetricKind.METER,
    "zkconsumer_fetched_bytes_total",
    "Bytes of complete messages in the responses of a broker.",
    "server",
)
MESSAGES_ALL = _row(
    "ConsumerTopicMetrics",
    "MessagesPerSec",
    "clientId",
    MetricKind.METER,
    "",
    "Messages that streams delivered; the count is updated after some dozen messages.",
)
MESSAGES = _row(
    "ConsumerTopicMetrics",
    "MessagesPerSec",
    "clientId topic",
    MetricKind.METER,
    "zkconsumer_messages_total",
    "Messages of a topic that streams delivered; the count is updated after some dozen messages and after each batch.",
)
BYTES_ALL = _row(
    "ConsumerTopicMetrics",
    "BytesPerSec",
    "clientId",
    MetricKind.METER,
    "",
    "Bytes of complete messages that were queued.",
)
BYTES = _row(
    "ConsumerTopicMetrics",
    "BytesPerSec",
    "clientId topic",
    MetricKind.METER,
    "zkconsumer_bytes_total",
    "Bytes of complete messages of a topic that were queued.",
)
FETCH_TIME_ALL = _row(
    FETCHES,
    "FetchRequestRateAndTimeMs",
    "clientId",
    MetricKind.TIMER,
    "",
    "Duration of fetch requests, including the time that the broker waits for data.",
)
FETCH_TIME = _row(
    FETCHES,
    "FetchRequestRateAndTimeMs",
    "clientId brokerHost brokerPort",
    MetricKind.TIMER,
    "zkconsumer_fetch_seconds",
    "Duration of fetch requests to a broker, including the time that it waits for data.",
)
FETCH_SIZE_ALL = _row(
    FETCHES,
    "FetchResponseSize",
    "clientId",
    MetricKind.HISTOGRAM,
    "",
    "Bytes of the record sets in a response.",
)
FETCH_SIZE = _row(
    FETCHES,
    "FetchResponseSize",
    "clientId brokerHost brokerPort",
    MetricKind.HISTOGRAM,
    "zkconsumer_fetch_response_bytes",
    "Bytes of the record sets in a response of a broker.",
)
THROTTLE_ALL = _row(
    FETCHES,
    "FetchRequestThrottleRateAndTimeMs",
    "clientId",
    MetricKind.TIMER,
    "",
    "Time for which brokers delayed responses because of a quota (Kafka 0.9 and later).",
)
THROTTLE = _row(
    FETCHES,
    "FetchRequestThrottleRateAndTimeMs",
    "clientId brokerHost brokerPort",
    MetricKind.TIMER,
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
