"""Metrics for Prometheus; needs the extra ``[metrics]`` (prometheus-client), which nothing else imports.

    from prometheus_client import REGISTRY, start_http_server
    from zkconsumer.observe.prometheus import ConnectorCollector

    REGISTRY.register(ConnectorCollector(connector))
    start_http_server(8000)

Other collectors in that registry are not affected.  Values are computed only when Prometheus scrapes them.
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
"""Label of an MBean -> label in Prometheus; ``OWN_LABELS`` contain ``clientId`` and ``groupId``."""

MS_PER_S = 1000
SUM_DIGITS = 3
"""Decimal digits of sums.  Sums are computed from means, so more digits would be rounding errors."""


COUNTERS_SHOWN_AS_ZERO = (
    "commits_failed", "drain_timeouts", "hooks_dropped", "hooks_failed", "kafka_commits_failed",
    "kafka_release_timeouts", "listener_calls_skipped", "listener_failures", "listener_timeouts",
    "offsets_ignored", "offsets_rewritten", "offsets_reset", "registrations_ignored",
)  # fmt: skip
"""Counters that are exported as 0 before their first event, because alerts use them: ``increase`` of Prometheus ignores
the first value of a series."""


class MetricsProvider(Protocol):
    """The methods of a ``ZookeeperConsumerConnector`` that the collector calls."""

    def metric_samples(self) -> Sequence[MetricSample]: ...

    def metrics(self) -> Mapping[str, Any]: ...


class ConnectorCollector:
    """Exports the metrics and counters of connectors, until they are removed or no longer exist."""

    def __init__(self, *connectors: MetricsProvider) -> None:
        self._connectors: weakref.WeakSet[MetricsProvider] = weakref.WeakSet(connectors)

    def add(self, connector: MetricsProvider) -> None:
        """Export this connector, too."""
        self._connectors.add(connector)

    def remove(self, connector: MetricsProvider) -> None:
        """Stop exporting this connector: call it after ``close`` if the program keeps the connector object."""
        self._connectors.discard(connector)

    def describe(self) -> Iterable[Metric]:
        """The names of the metrics, without values; a registry calls it to detect two collectors with one name."""
        return [_family(row) for row in ROWS if row.prometheus]

    def collect(self) -> Iterator[Metric]:
        """The present values of all metrics and counters."""
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
            # By convention, times in Prometheus are in seconds.
            scale = MS_PER_S if sample.row.kind is MetricKind.TIMER else 1
            total = round(values["Count"] * values["Mean"] / scale, SUM_DIGITS)
            family.add_metric(labels, count_value=int(values["Count"]), sum_value=total)
            names = dict(zip(family._labelnames, labels, strict=True))
            for name, quantile in PERCENTILES.items():
                family.add_sample(family.name, {**names, "quantile": str(quantile)}, values[name] / scale)
