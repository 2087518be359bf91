"""Metrics for Prometheus; needs the extra ``[metrics]`` (prometheus-client), which nothing else imports.

    from prometheus_client import REGISTRY, start_http_server
    from zkconsumer.observe.prometheus import ConnectorCollector

    REGISTRY.register(ConnectorCollector(connector))
    start_http_server(8000)

Whatever a program has beside it in that registry goes its own way.  Nothing is computed before somebody scrapes.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from zkconsumer.observe.metric_names import ROWS, MetricKind, MetricRow
from zkconsumer.observe.metrics import PERCENTILES

if TYPE_CHECKING:
    from zkconsumer.observe.metrics import MetricSample

OWN_LABELS = ("member", "group", "client_id")
"""The labels that distinguish connectors; the member id is unique, a client id may not be."""

LABELS = {"topic": "topic", "partition": "partition", "threadId": "thread", "brokerHost": "host", "brokerPort": "port"}
"""Label of an MBean -> label here; ``clientId`` and ``groupId`` are among ``OWN_LABELS``."""

MS_PER_S = 1000
SUM_DIGITS = 3
"""Digits of sums; they are computed from means, so further digits are rounding errors."""


COUNTERS_SHOWN_AS_ZERO = (
    "commits_failed", "drain_timeouts", "hooks_dropped", "hooks_failed", "kafka_commits_failed",
    "kafka_release_timeouts", "listener_calls_skipped", "listener_failures", "listener_timeouts",
    "offsets_ignored", "offsets_rewritten", "offsets_reset", "registrations_ignored",
)  # fmt: skip
"""Counters that are shown as 0 until they count, since alerts watch them: ``increase`` of Prometheus finds nothing in a
series that begins with its first event."""


class MetricsProvider(Protocol):
    """The methods that are used of a ``ZookeeperConsumerConnector``."""

    def metric_samples(self) -> Sequence[MetricSample]: ...

    def metrics(self) -> Mapping[str, Any]: ...


class ConnectorCollector:
    """Exports the metrics and counters of connectors, until they are removed or no longer exist."""

    def __init__(self, *connectors: MetricsProvider) -> None:
        self._connectors: weakref.WeakSet[MetricsProvider] = weakref.WeakSet(connectors)

    def add(self, connector: MetricsProvider) -> None:
        """Show this one, too."""
        self._connectors.add(connector)

    def remove(self, connector: MetricsProvider) -> None:
        """Show this one no more: call it after ``close``, unless the connector is forgotten anyway."""
        self._connectors.discard(connector)

    def describe(self) -> Iterable[Metric]:
        """Which names there are, before there is any value; a registry asks so that no two collectors clash."""
        return [_family(row) for row in ROWS if row.prometheus]

    def collect(self) -> Iterator[Metric]:
        """Everything as it is now."""
        families = {row: _family(row) for row in ROWS if row.prometheus}
        counted: dict[str, CounterMetricFamily] = {}
        for connector in list(self._connectors):
            whole = connector.metrics()
            own = [str(whole[label]) for label in OWN_LABELS]
            for sample in connector.metric_samples():
                if sample.row in families:
                    _add(families[sample.row], sample, own)
            for name, count in {**dict.fromkeys(COUNTERS_SHOWN_AS_ZERO, 0), **whole["counters"]}.items():
                if name not in counted:
                    counted[name] = CounterMetricFamily(
                        f"zkconsumer_count_{name}", "See the page counters.", labels=OWN_LABELS
                    )
                counted[name].add_metric(own, count)
        yield from families.values()
        yield from (counted[name] for name in sorted(counted))


def _family(row: MetricRow) -> Metric:
    labels = [*OWN_LABELS, *(LABELS[label] for label in row.labels if label in LABELS)]
    match row.kind:
        case MetricKind.METER:
            return CounterMetricFamily(row.prometheus, row.sentence, labels=labels)
        case MetricKind.GAUGE:
            return GaugeMetricFamily(row.prometheus, row.sentence, labels=labels)
        case MetricKind.TIMER | MetricKind.HISTOGRAM:
            return SummaryMetricFamily(row.prometheus, row.sentence, labels=labels)


def _add(family: Metric, sample: MetricSample, own: list[str]) -> None:
    values = sample.values
    labels = [*own, *(value for label, value in sample.labels.items() if label in LABELS)]
    match family:
        case CounterMetricFamily():
            family.add_metric(labels, values["Count"])
        case GaugeMetricFamily():
            family.add_metric(labels, values["Value"])
        case SummaryMetricFamily():
            # Times are in seconds there, as is the custom.
            scale = MS_PER_S if sample.row.kind is MetricKind.TIMER else 1
            total = round(values["Count"] * values["Mean"] / scale, SUM_DIGITS)
            family.add_metric(labels, count_value=int(values["Count"]), sum_value=total)
            names = dict(zip(family._labelnames, labels, strict=True))
            for name, quantile in PERCENTILES.items():
                family.add_sample(family.name, {**names, "quantile": str(quantile)}, values[name] / scale)
