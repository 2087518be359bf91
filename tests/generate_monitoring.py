"""Write the alert rules for Prometheus and the dashboard for Grafana from the tables of metrics.

``python tests/generate_monitoring.py`` compares the files in ``monitoring/`` with the tables; ``--write`` writes them.
Every metric name goes through ``known``, so a rule cannot use a metric that does not exist.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bridge.client.kafka_consumer.consumer_metrics import MetricName  # noqa: E402
from bridge.client.kafka_consumer.prometheus import prometheus_name  # noqa: E402
from bridge.spark.membership.metrics import GAUGES as MEMBERSHIP_GAUGES  # noqa: E402
from bridge.spark.monitoring.lag_collector import LagCollector  # noqa: E402
from bridge.spark.pipeline.status.pipeline_metrics import PIPELINE_METRICS  # noqa: E402
from tests.generate_docs import counted_names, sources_that_log  # noqa: E402
from tests.reference_pages.consumer_metrics_table import MEANINGS, all_metrics  # noqa: E402
from zkconsumer.observe.metric_names import ROWS, MetricKind, MetricRow  # noqa: E402
from zkconsumer.observe.prometheus import COUNTERS_SHOWN_AS_ZERO, LABELS, OWN_LABELS  # noqa: E402

MONITORING = ROOT / "monitoring"
ALERTS_FILE = "zkconsumer-alerts.yml"
DASHBOARD_FILE = "zkconsumer-dashboard.json"
SUMMARIES = (MetricKind.TIMER, MetricKind.HISTOGRAM)
MEMBERSHIP_LABELS = ("group", "member")
MEMBERSHIP_PREFIX = "zkconsumer_spark_"
TOTAL = "_total"

CONSUMER_PANELS = (
    "last-poll-seconds-ago", "time-between-poll-max", "poll-idle-ratio-avg", "assigned-partitions",
    "last-heartbeat-seconds-ago", "rebalance-total", "failed-rebalance-total", "commit-total", "commit-latency-avg",
    "fetch-total", "fetch-latency-avg", "fetch-throttle-time-avg", "records-lag", "records-consumed-total",
    "bytes-consumed-total",
)  # fmt: skip
"""The metrics of ``KafkaConsumer`` on the dashboard, by Java's names.  The others are averages, maxima and rates since
the consumer was created, or the time of one kind of request."""


def row_labels(row: MetricRow) -> list[str]:
    """The labels of a metric in Prometheus."""
    return [*OWN_LABELS, *(LABELS[label] for label in row.labels if label in LABELS)]


def series_labels() -> dict[str, set[str]]:
    """Name of a series in Prometheus -> the names of its labels: of members, consumers, Spark queries and pipelines."""
    found: dict[str, set[str]] = {}
    for row in ROWS:
        if row.prometheus:
            labels = set(row_labels(row))
            is_summary = row.kind in SUMMARIES
            found[row.prometheus] = labels | ({"quantile"} if is_summary else set())
            if is_summary:
                found |= {f"{row.prometheus}_{part}": labels for part in ("count", "sum")}
    for metric in all_metrics():
        found[prometheus_name(metric)] = {tag.replace("-", "_") for tag, _ in metric.tags}
    for family in LagCollector().describe():
        name = f"{family.name}{TOTAL}" if family.type == "counter" else family.name
        found[name] = set(family._labelnames)  # type: ignore[attr-defined]
    for name in MEMBERSHIP_GAUGES:  # two of them have the names of metrics of the listener, and other labels
        found.setdefault(f"{MEMBERSHIP_PREFIX}{name}", set()).update(MEMBERSHIP_LABELS)
    for name in {*counted_names(sources_that_log()), *COUNTERS_SHOWN_AS_ZERO}:
        found[f"zkconsumer_count_{name}_total"] = set(OWN_LABELS)
    for pipeline_row in PIPELINE_METRICS:
        found[pipeline_row.name] = {"pipeline", *(("topic", "partition") if pipeline_row.is_by_partition else ())}
    return found


SERIES = series_labels()


def known(name: str) -> str:
    """The name, if it is in the tables; else an error."""
    assert name in SERIES, f"{name} is not in the tables of metrics"
    return name


def first_events(counter: str) -> str:
    """The increase of a counter; the counter must be exported as 0, or the first event would be missed."""
    assert counter in COUNTERS_SHOWN_AS_ZERO, f"{counter} is not exported as 0"
    return f"increase({known(f'zkconsumer_count_{counter}_total')}[10m]) > 0"


@dataclass(frozen=True)
class Alert:
    """One alert rule.  ``wait``: how long the condition must be true.  ``runbook``: a how-to page."""

    name: str
    expr: str
    wait: str
    severity: str
    summary: str
    runbook: str


MAX_LAG = known("zkconsumer_max_lag")
QUEUE = known("zkconsumer_fetch_queue_chunks")
MESSAGES = known("zkconsumer_messages_total")
NO_PROGRESS = "find-out-why-a-group-makes-no-progress.md"
METRICS_PAGE = "monitor-a-member-with-prometheus.md"
CONSUMER_PAGE = "read-with-kafka-consumer.md"
SPARK_PAGE = "monitor-the-lag-of-a-spark-query.md"
CONSUMER_LAG = known("kafka_consumer_fetch_records_lag_by_partition")
CONSUMER_POLLED = known("kafka_consumer_last_poll_seconds_ago")
CONSUMER_HEARD = known("kafka_consumer_coordinator_last_heartbeat_seconds_ago")
QUERY_BATCH = known("zkconsumer_spark_batch")
QUERY_LAG = known("zkconsumer_spark_group_lag")
QUERY_COMPLETE = known("zkconsumer_spark_assignment_complete")
QUERY_WAITS = known("zkconsumer_spark_waiting_for_migration")

ALERTS = (
    Alert(
        "MemberFallsBehind", f"{MAX_LAG} > 100000", "10m", "warning",
        "A member of group {{ $labels.group }} is {{ $value }} records behind.", METRICS_PAGE,
    ),
    Alert(
        "RecordsWaitTooLong", f"max by (group, topic, partition) ({known('zkconsumer_lag_seconds')}) > 300", "5m",
        "warning", "Group {{ $labels.group }} is {{ $value }} s behind in {{ $labels.topic }}-{{ $labels.partition }}.",
        METRICS_PAGE,
    ),
    Alert(
        "MemberWithoutLag", f"{MAX_LAG} < 0", "2m", "critical",
        "The lag of member {{ $labels.member }} of group {{ $labels.group }} is unknown.",
        "when-a-member-has-no-assignment.md",
    ),
    Alert(
        "ProgramDoesNotRead",
        f"max by (group, member) ({QUEUE}) > 0 "
        f"and on (group, member) sum by (group, member) (rate({MESSAGES}[5m])) == 0",
        "5m", "critical", "The program of member {{ $labels.member }} of group {{ $labels.group }} reads no records.",
        NO_PROGRESS,
    ),
    Alert(
        "CommitsAreRefused", first_events("commits_failed"), "0m", "warning",
        "Commits of member {{ $labels.member }} of group {{ $labels.group }} fail.", METRICS_PAGE,
    ),
    Alert(
        "RecordsWereSkippedOrRepeated", first_events("offsets_reset"), "0m", "critical",
        "Member {{ $labels.member }} of group {{ $labels.group }} reset an offset that was out of range.", METRICS_PAGE,
    ),
    Alert(
        "GroupRebalancesTooOften", f"rate({known('zkconsumer_rebalance_seconds_count')}[10m]) > 0.1", "10m", "warning",
        "Member {{ $labels.member }} of group {{ $labels.group }} rebalances {{ $value }} times a second.",
        "react-to-a-rebalance.md",
    ),
    Alert(
        "GroupHasNoMember",
        f"group by (group) (last_over_time({MAX_LAG}[1h])) unless on (group) group by (group) ({MAX_LAG})", "2m",
        "critical", "Group {{ $labels.group }} has no member that exports metrics.", NO_PROGRESS,
    ),
    Alert(
        "PipelineWritesNoBatch", f"{known('zkconsumer_pipeline_seconds_since_last_batch')} > 600", "5m", "critical",
        "Pipeline {{ $labels.pipeline }} has written no batch for {{ $value }} s.", "where-a-pipeline-runs.md",
    ),
    Alert(
        "KafkaConsumerFallsBehind", f"max by (client_id, topic) ({CONSUMER_LAG}) > 100000", "10m", "warning",
        "KafkaConsumer {{ $labels.client_id }} is {{ $value }} records behind in a partition of {{ $labels.topic }}.",
        CONSUMER_PAGE,
    ),
    Alert(
        "KafkaConsumerDoesNotPoll", f"{CONSUMER_POLLED} > 240", "0m", "critical",
        "KafkaConsumer {{ $labels.client_id }} has not called poll for {{ $value }} s; after max.poll.interval.ms it "
        "leaves its group.", CONSUMER_PAGE,
    ),
    Alert(
        "KafkaConsumerWithoutCoordinator", f"{CONSUMER_HEARD} > 30", "1m", "critical",
        "The coordinator has not answered a heartbeat of KafkaConsumer {{ $labels.client_id }} for {{ $value }} s.",
        CONSUMER_PAGE,
    ),
    Alert(
        "KafkaConsumerRebalancesTooOften",
        f"rate({known('kafka_consumer_coordinator_rebalance_total')}[10m]) > 0.1", "10m", "warning",
        "KafkaConsumer {{ $labels.client_id }} rebalances {{ $value }} times a second.", CONSUMER_PAGE,
    ),
    Alert(
        "KafkaConsumerCannotJoin",
        f"increase({known('kafka_consumer_coordinator_failed_rebalance_total')}[10m]) > 3", "0m", "warning",
        "KafkaConsumer {{ $labels.client_id }} failed {{ $value }} times to join its group.", CONSUMER_PAGE,
    ),
    Alert(
        "SparkQueryFallsBehind", f"{known('zkconsumer_spark_max_offsets_behind_latest')} > 100000", "10m", "warning",
        "Query {{ $labels.query }} is {{ $value }} records behind in a partition.", SPARK_PAGE,
    ),
    Alert(
        "SparkRecordsWaitTooLong",
        f"max by (query, topic, partition) ({known('zkconsumer_spark_seconds_behind_latest')}) > 300", "5m", "warning",
        "Query {{ $labels.query }} is {{ $value }} s behind in {{ $labels.topic }}-{{ $labels.partition }}.",
        SPARK_PAGE,
    ),
    Alert(
        "SparkQueryEndsNoBatch", f"changes({QUERY_BATCH}[15m]) == 0 and on (query) {QUERY_LAG} > 0", "5m", "critical",
        "Query {{ $labels.query }} has records to read and has ended no batch for 15 minutes.",
        SPARK_PAGE,
    ),
    Alert(
        "SparkQueryLostRecords", f"increase({known('zkconsumer_spark_lost_offsets_total')}[10m]) > 0", "0m", "critical",
        "Records were deleted before query {{ $labels.query }} had read them.", SPARK_PAGE,
    ),
    Alert(
        "SparkMemberWithoutAssignment",
        f"{QUERY_COMPLETE} == 0 unless on (group, member) {QUERY_WAITS} == 1", "5m", "critical",
        "The query that is member {{ $labels.member }} of group {{ $labels.group }} does not own its whole assignment.",
        "when-a-member-has-no-assignment.md",
    ),
)  # fmt: skip


def render_alerts() -> str:
    """The rule file; JSON strings are valid YAML."""
    lines = [
        "# Generated: python tests/generate_monitoring.py --write",
        "groups:",
        "  - name: zkconsumer",
        "    rules:",
    ]
    for alert in ALERTS:
        lines += [
            f"      - alert: {alert.name}",
            f"        expr: {json.dumps(alert.expr)}",
            f"        for: {alert.wait}",
            "        labels:",
            f"          severity: {alert.severity}",
            "        annotations:",
            f"          summary: {json.dumps(alert.summary)}",
            f"          runbook: migration_docs/how-to/{alert.runbook}",
        ]
    return "\n".join(lines) + "\n"


MEMBER_FILTER = '{group=~"$group"}'
PIPELINE_FILTER = '{pipeline=~"$pipeline"}'
CONSUMER_FILTER = '{client_id=~"$client"}'
QUERY_FILTER = '{query=~"$query",query!=""}'
MEMBERSHIP_FILTER = '{group=~"$group",member!=""}'
"""``!=""``: the filter for all values also fits series without the label, and both kinds have metrics of one name."""


def _member_query(row: MetricRow) -> tuple[str, tuple[str, ...]]:
    """Query and labels of a row: rates of counters, the 99th percentile of summaries, the largest gauge."""
    more = row_labels(row)[len(OWN_LABELS) :]
    labels = ("group", "member", *more)
    by = ", ".join(labels)
    if row.kind is MetricKind.METER:
        return f"sum by ({by}) (rate({row.prometheus}{MEMBER_FILTER}[$__rate_interval]))", labels
    if row.kind in SUMMARIES:
        return f'max by ({by}) ({row.prometheus}{{group=~"$group",quantile="0.99"}})', labels
    return f"max by ({by}) ({row.prometheus}{MEMBER_FILTER})", labels


def _unit(row: MetricRow) -> str:
    if row.kind is MetricKind.TIMER or row.prometheus.endswith("_seconds"):
        return "s"
    if "bytes" in row.prometheus:
        return "Bps" if row.kind is MetricKind.METER else "bytes"
    return "short"


@dataclass(frozen=True)
class BoardPanel:
    """One panel: its query, the labels in its legend, and its unit in Grafana."""

    title: str
    sentence: str
    query: str
    labels: tuple[str, ...]
    unit: str = "short"

    @property
    def legend(self) -> str:
        return " ".join(f"{{{{{label}}}}}" for label in self.labels)


def _panel(name: str, sentence: str, selector: str, labels: Iterable[str]) -> BoardPanel:
    """The rate of a counter, and the value of a gauge."""
    series = f"{known(name)}{selector}"
    query = f"rate({series}[$__rate_interval])" if name.endswith(TOTAL) else series
    return BoardPanel(name, sentence, query, tuple(labels), "s" if "_seconds_" in name else "short")


def member_panels() -> Iterator[BoardPanel]:
    """One for each metric of a connector that has a name in Prometheus."""
    for row in ROWS:
        if row.prometheus:
            query, labels = _member_query(row)
            yield BoardPanel(row.prometheus, row.sentence, query, labels, _unit(row))


def consumer_panels() -> Iterator[BoardPanel]:
    """``CONSUMER_PANELS``, each as detailed as it is exported: by partition or topic where there is such a series."""
    metrics: dict[str, MetricName] = {}
    for metric in all_metrics():
        if metric.name not in metrics or len(metric.tags) > len(metrics[metric.name].tags):
            metrics[metric.name] = metric
    for name in CONSUMER_PANELS:
        labels = [tag.replace("-", "_") for tag, _ in metrics[name].tags]
        sentence = f"{MEANINGS[name][0].upper()}{MEANINGS[name][1:]}."
        panel = _panel(prometheus_name(metrics[name]), sentence, CONSUMER_FILTER, labels)
        is_time = name.endswith(("-latency-avg", "-time-avg", "-poll-max"))
        yield replace(panel, unit="ms" if is_time else panel.unit)


def query_panels() -> Iterator[BoardPanel]:
    """Of the listener on the driver, by query, and of the membership process, by member."""
    for family in LagCollector().describe():
        name = f"{family.name}{TOTAL}" if family.type == "counter" else family.name
        yield _panel(name, family.documentation, QUERY_FILTER, family._labelnames)  # type: ignore[attr-defined]
    for name, sentence in MEMBERSHIP_GAUGES.items():
        panel = _panel(f"{MEMBERSHIP_PREFIX}{name}", sentence, MEMBERSHIP_FILTER, MEMBERSHIP_LABELS)
        yield replace(panel, title=f"{panel.title} (membership process)")


def pipeline_panels() -> Iterator[BoardPanel]:
    """All metrics of pipelines."""
    for metric in PIPELINE_METRICS:
        more = ("topic", "partition") if metric.is_by_partition else ()
        yield _panel(metric.name, metric.sentence, PIPELINE_FILTER, ("pipeline", *more))


def render_dashboard() -> str:
    """A row of panels for each kind of program."""
    panels: list[dict[str, Any]] = []
    y = 0
    for title, found in (
        ("Members: connectors of ZooKeeper groups and coordinator groups", member_panels()),
        ("KafkaConsumer", consumer_panels()),
        ("Spark queries", query_panels()),
        ("Pipelines", pipeline_panels()),
    ):
        panels.append({
            "id": len(panels) + 1, "type": "row", "title": title, "collapsed": False, "panels": [],
            "gridPos": {"x": 0, "y": y, "w": 24, "h": 1},
        })  # fmt: skip
        y += 1
        for number, panel in enumerate(found):
            panels.append({
                "id": len(panels) + 1, "type": "timeseries", "title": panel.title, "description": panel.sentence,
                "datasource": {"type": "prometheus", "uid": "$datasource"},
                "gridPos": {"x": 12 * (number % 2), "y": y + 8 * (number // 2), "w": 12, "h": 8},
                "fieldConfig": {"defaults": {"unit": panel.unit}, "overrides": []},
                "targets": [{"refId": "A", "expr": panel.query, "legendFormat": panel.legend}],
            })  # fmt: skip
        y = panels[-1]["gridPos"]["y"] + 8
    groups = f'{{__name__=~"{MAX_LAG}|{QUERY_COMPLETE}"}}'
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        _variable("group", f"label_values({groups}, group)"),
        _variable("client", f"label_values({CONSUMER_POLLED}, client_id)"),
        _variable("query", f"label_values({QUERY_BATCH}, query)"),
        _variable("pipeline", f"label_values({known('zkconsumer_pipeline_batches_total')}, pipeline)"),
    ]
    dashboard = {
        "title": "zkconsumer", "uid": "zkconsumer", "schemaVersion": 39, "version": 1, "editable": True,
        "refresh": "30s", "time": {"from": "now-1h", "to": "now"}, "templating": {"list": variables}, "panels": panels,
    }  # fmt: skip
    return json.dumps(dashboard, indent=1) + "\n"


def _variable(name: str, query: str) -> dict[str, Any]:
    return {
        "name": name, "type": "query", "query": query, "refresh": 2, "multi": True, "includeAll": True,
        "allValue": ".*", "datasource": {"type": "prometheus", "uid": "$datasource"},
    }  # fmt: skip


FILES: Mapping[str, Callable[[], str]] = {ALERTS_FILE: render_alerts, DASHBOARD_FILE: render_dashboard}


def main() -> int:
    is_write = "--write" in sys.argv[1:]
    stale = 0
    for name, render in FILES.items():
        file, wanted = MONITORING / name, render()
        if file.exists() and file.read_text("utf-8") == wanted:
            continue
        stale = 1
        if is_write:
            file.write_text(wanted, "utf-8")
            print(f"wrote monitoring/{name}")
        else:
            print(f"monitoring/{name} is not up to date: python tests/generate_monitoring.py --write", file=sys.stderr)
    return 0 if is_write else stale


if __name__ == "__main__":
    sys.exit(main())
