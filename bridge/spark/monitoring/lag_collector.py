"""The lag of Spark queries for Prometheus; needs the extra ``[metrics]`` (prometheus-client).

    listener = ZkConsumerListener()
    spark.streams.addListener(listener)
    REGISTRY.register(LagCollector(listener))
    start_http_server(8000)

The values are those of each query's latest batch; they are computed when they are scraped.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from bridge.spark.monitoring.query_lag import Lag

PREFIX = "zkconsumer_spark"

QUERY_LABELS = ("query",)
PARTITION_LABELS = ("query", "source", "topic", "partition")

GAUGES = {
    "minOffsetsBehindLatest": ("min_offsets_behind_latest", "Records between the query and the end, the minimum."),
    "avgOffsetsBehindLatest": ("avg_offsets_behind_latest", "Records between the query and the end, the mean."),
    "maxOffsetsBehindLatest": ("max_offsets_behind_latest", "Records between the query and the end, the maximum."),
    "maxSecondsBehindLatest": (
        "max_seconds_behind_latest",
        "Seconds that the first unread record has been waiting, the maximum; missing while one is unknown.",
    ),
    "secondsNotKnownPartitions": (
        "seconds_not_known_partitions",
        "Partitions that the query owns and whose lag in seconds is unknown.",
    ),
    "caughtUpInSeconds": (
        "caught_up_in_seconds",
        "Seconds until the query has read everything if it goes on like this; missing unless it catches up.",
    ),
    "groupLag": ("group_lag", "Records between the query and the end of the logs of all partitions that it owns."),
    "ownedPartitions": ("owned_partitions", "Partitions that the query owns."),
    "waitingForMigration": (
        "waiting_for_migration",
        "1 while the query owns no partition because its group is being migrated.",
    ),
    "pythonDecoder": ("python_decoder", "1 where the compiled decoder is missing, so that records are decoded slowly."),
}
COUNTERS = {
    "rebalances": ("rebalances", "How often the query's assignment in its group changed."),
    "lostOffsets": ("lost_offsets", "Records that were deleted before they were read (failOnDataLoss=false)."),
    "skippedOffsets": ("skipped_offsets", "Offsets that were not read because of skipOffsets."),
}
"""Key of ``Lag.metrics`` -> name after the prefix, and its description."""


class LagSource(Protocol):
    """The part of ``ZkConsumerListener`` that is used."""

    @property
    def latest(self) -> Mapping[str, Lag]: ...


class LagCollector:
    """Exports the values of the listeners, with a label ``query`` for each query's name, or id."""

    def __init__(self, *listeners: LagSource) -> None:
        self._listeners = listeners

    def describe(self) -> Iterable[Metric]:
        """The names of the metrics, also before there is a value."""
        return [*self._whole().values(), _partitions(), _seconds(), _batch()]

    def collect(self) -> Iterator[Metric]:
        """All current values."""
        whole, partitions, seconds, batch = self._whole(), _partitions(), _seconds(), _batch()
        for listener in self._listeners:
            for name, lag in listener.latest.items():
                batch.add_metric([name], lag.batch)
                for key, value in lag.metrics.items():
                    whole[key].add_metric([name], value)
                for source, tp, behind in lag.offsets_behind_latest:
                    partitions.add_metric([name, str(source.number), tp.topic, str(tp.partition)], behind)
                for (number, tp), behind_s in lag.seconds_behind_latest.items():
                    seconds.add_metric([name, str(number), tp.topic, str(tp.partition)], behind_s)
        yield from (*whole.values(), partitions, seconds, batch)

    def _whole(self) -> dict[str, GaugeMetricFamily | CounterMetricFamily]:
        made: dict[str, GaugeMetricFamily | CounterMetricFamily] = {}
        for key, (name, sentence) in GAUGES.items():
            made[key] = GaugeMetricFamily(f"{PREFIX}_{name}", sentence, labels=QUERY_LABELS)
        for key, (name, sentence) in COUNTERS.items():
            made[key] = CounterMetricFamily(f"{PREFIX}_{name}", sentence, labels=QUERY_LABELS)
        return made


def _partitions() -> GaugeMetricFamily:
    sentence = "Records between the query and the end of one partition's log."
    return GaugeMetricFamily(f"{PREFIX}_offsets_behind_latest", sentence, labels=PARTITION_LABELS)


def _seconds() -> GaugeMetricFamily:
    sentence = "Seconds that the first unread record of one partition has been waiting; missing while it is unknown."
    return GaugeMetricFamily(f"{PREFIX}_seconds_behind_latest", sentence, labels=PARTITION_LABELS)


def _batch() -> GaugeMetricFamily:
    return GaugeMetricFamily(f"{PREFIX}_batch", "The number of the query's latest batch.", labels=QUERY_LABELS)
