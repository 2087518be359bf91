"""The table of metrics: the original's MBean names, and what each is called here and in Prometheus.  Pure.

``migration_docs/reference/metrics.md`` is generated from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

CONNECTOR = "ZookeeperConsumerConnector"
FETCHES = "FetchRequestAndResponseMetrics"


class MetricKind(Enum):
    """What a metric can do; the words of Yammer's library."""

    METER = "meter"
    TIMER = "timer"
    HISTOGRAM = "histogram"
    GAUGE = "gauge"


@dataclass(frozen=True, slots=True)
class MetricRow:
    """One MBean pattern.  ``prometheus`` is empty where another row holds the same in parts: nobody must add twice."""

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
    "Partitions in commits to Kafka, one a partition and attempt.",
)
ZOOKEEPER_COMMITS = _row(
    CONNECTOR,
    "ZooKeeperCommitsPerSec",
    "clientId",
    MetricKind.METER,
    "zkconsumer_zookeeper_commits_total",
    "Offset nodes that were written, in commits and in releases.",
)
REBALANCES = _row(
    CONNECTOR,
    "RebalanceRateAndTime",
    "clientId",
    MetricKind.TIMER,
    "zkconsumer_rebalance_seconds",
    "From the reading of the group to the whole share, all attempts in between included.",
)
OWNED_ALL = _row(
    CONNECTOR,
    "OwnedPartitionsCount",
    "clientId groupId",
    MetricKind.GAUGE,
    "",
    "Partitions that this member holds.",
)
OWNED = _row(
    CONNECTOR,
    "OwnedPartitionsCount",
    "clientId groupId topic",
    MetricKind.GAUGE,
    "zkconsumer_owned_partitions",
    "Partitions of a topic that this member holds; there is none when it holds none.",
)
QUEUE_SIZE = _row(
    CONNECTOR,
    "FetchQueueSize",
    "clientId topic threadId",
    MetricKind.GAUGE,
    "zkconsumer_fetch_queue_chunks",
    "Chunks that wait for a stream. Full means that the program is slower than the brokers. The one queue of a "
    "filter's thread has the topic `*`.",
)
METRICS_COUNT = _row(
    CONNECTOR,
    "yammer-metrics-count",
    "",
    MetricKind.GAUGE,
    "",
    "How many metrics this connector has.",
)
MAX_LAG = _row(
    "ConsumerFetcherManager",
    "MaxLag",
    "clientId",
    MetricKind.GAUGE,
    "zkconsumer_max_lag",
    "The largest `ConsumerLag`; -1 when none is above 0 and one is not known, or when the share has not been whole for "
    "30 s. So a member that stands still does not show 0.",
)
MIN_FETCH_RATE = _row(
    "ConsumerFetcherManager",
    "MinFetchRate",
    "clientId",
    MetricKind.GAUGE,
    "zkconsumer_min_fetch_rate",
    "Requests a second of the slowest broker, over the last minute; 0 when nothing is fetched.",
)
QUEUED_BYTES = _row(
    "ConsumerFetcherManager",
    "QueuedBytes",
    "clientId",
    MetricKind.GAUGE,
    "zkconsumer_queued_bytes",
    "Memory that fetched and decompressed bytes take now; `queued.max.bytes` bounds it. The original has none such.",
)
FETCHES_DEFERRED = _row(
    "ConsumerFetcherManager",
    "FetchesDeferredPerSec",
    "clientId",
    MetricKind.METER,
    "zkconsumer_fetches_deferred_total",
    "How often a fetcher found no room in `queued.max.bytes`, and asked for nothing. It grows while the program is "
    "slower than the brokers. The original has none such.",
)
LAG = _row(
    "FetcherLagMetrics",
    "ConsumerLag",
    "clientId topic partition",
    MetricKind.GAUGE,
    "zkconsumer_lag",
    "High watermark less the offset that the program has consumed; -1 when nothing is known to be left, and no broker "
    "has answered for this partition for 30 s.",
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
    "Bytes of complete messages in its answers.",
    "server",
)
MESSAGES_ALL = _row(
    "ConsumerTopicMetrics",
    "MessagesPerSec",
    "clientId",
    MetricKind.METER,
    "",
    "Messages that streams have handed out, counted by the dozen.",
)
MESSAGES = _row(
    "ConsumerTopicMetrics",
    "MessagesPerSec",
    "clientId topic",
    MetricKind.METER,
    "zkconsumer_messages_total",
    "Messages of a topic that streams have handed out, counted by the dozen and at the end of each batch.",
)
BYTES_ALL = _row(
    "ConsumerTopicMetrics",
    "BytesPerSec",
    "clientId",
    MetricKind.METER,
    "",
    "Bytes of complete messages that were put in queues.",
)
BYTES = _row(
    "ConsumerTopicMetrics",
    "BytesPerSec",
    "clientId topic",
    MetricKind.METER,
    "zkconsumer_bytes_total",
    "Bytes of a topic's complete messages that were put in queues.",
)
FETCH_TIME_ALL = _row(
    FETCHES,
    "FetchRequestRateAndTimeMs",
    "clientId",
    MetricKind.TIMER,
    "",
    "How long fetch requests took, the waiting of the broker for data included.",
)
FETCH_TIME = _row(
    FETCHES,
    "FetchRequestRateAndTimeMs",
    "clientId brokerHost brokerPort",
    MetricKind.TIMER,
    "zkconsumer_fetch_seconds",
    "How long fetch requests to a broker took, its waiting for data included.",
)
FETCH_SIZE_ALL = _row(
    FETCHES,
    "FetchResponseSize",
    "clientId",
    MetricKind.HISTOGRAM,
    "",
    "Bytes of the record sets in an answer.",
)
FETCH_SIZE = _row(
    FETCHES,
    "FetchResponseSize",
    "clientId brokerHost brokerPort",
    MetricKind.HISTOGRAM,
    "zkconsumer_fetch_response_bytes",
    "Bytes of the record sets in a broker's answer.",
)
THROTTLE_ALL = _row(
    FETCHES,
    "FetchRequestThrottleRateAndTimeMs",
    "clientId",
    MetricKind.TIMER,
    "",
    "How long brokers held answers back because of a quota (Kafka 0.9 and later).",
)
THROTTLE = _row(
    FETCHES,
    "FetchRequestThrottleRateAndTimeMs",
    "clientId brokerHost brokerPort",
    MetricKind.TIMER,
    "zkconsumer_fetch_throttle_seconds",
    "How long a broker held answers back because of a quota (Kafka 0.9 and later).",
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
