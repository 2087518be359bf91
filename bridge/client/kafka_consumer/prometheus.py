"""Metrics of ``KafkaConsumer`` for Prometheus; needs the extra ``[metrics]``, and nothing else imports this module.

    REGISTRY.register(KafkaConsumerCollector(consumer))

``commit-latency-avg`` of ``consumer-coordinator-metrics`` is ``kafka_consumer_coordinator_commit_latency_avg``; names
that end with ``-total`` are counters, all others gauges.  Tags are labels.  A closed consumer exports nothing.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

if TYPE_CHECKING:
    from bridge.client.kafka_consumer.consumer_metrics import MetricName
    from bridge.client.kafka_consumer.kafka_consumer import KafkaConsumer

_TOTAL = "_total"


class KafkaConsumerCollector:
    """Exports the metrics of consumers until they are closed or no longer exist."""

    def __init__(self, *consumers: KafkaConsumer[Any, Any]) -> None:
        self._consumers: weakref.WeakSet[KafkaConsumer[Any, Any]] = weakref.WeakSet(consumers)

    def add(self, consumer: KafkaConsumer[Any, Any]) -> None:
        """Export this consumer, too."""
        self._consumers.add(consumer)

    def describe(self) -> Iterable[Metric]:
        """No names: they depend on the consumers; a registry then does not compare them with others."""
        return ()

    def collect(self) -> Iterator[Metric]:
        """The present values."""
        families: dict[tuple[str, tuple[str, ...]], Metric] = {}
        for consumer in list(self._consumers):
            for metric, value in consumer.metrics().items():
                name = prometheus_name(metric)
                labels = tuple(tag.replace("-", "_") for tag, _ in metric.tags)
                family = families.get((name, labels))
                if family is None:
                    family = families[name, labels] = _family(name, metric, labels)
                family.add_metric([tag for _, tag in metric.tags], value)  # type: ignore[attr-defined]
        yield from families.values()


def prometheus_name(metric: MetricName) -> str:
    """The name of a metric in Prometheus."""
    group = metric.group.removesuffix("-metrics").removesuffix("-manager").replace("consumer-", "").replace("-", "_")
    part = "" if group == "consumer" else f"{group}_"
    level = f"_by_{metric.tags[-1][0]}" if len(metric.tags) > 1 else ""
    name = metric.name.replace("-", "_")
    if level and name.endswith(_TOTAL):
        return f"kafka_consumer_{part}{name.removesuffix(_TOTAL)}{level}{_TOTAL}"
    return f"kafka_consumer_{part}{name}{level}"


def _family(name: str, metric: MetricName, labels: tuple[str, ...]) -> Metric:
    text = f"{metric.name} of {metric.group}, as in Kafka's consumer"
    if name.endswith(_TOTAL):
        return CounterMetricFamily(name, text, labels=labels)
    return GaugeMetricFamily(name, text, labels=labels)
