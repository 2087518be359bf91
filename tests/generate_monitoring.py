"""Write the alert rules for Prometheus and the dashboard for Grafana from the tables of metrics.

``python tests/generate_monitoring.py`` compares the files in ``monitoring/`` with the tables; ``--write`` writes them.
Every metric name goes through ``known``, so a rule cannot use a metric that does not exist.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from bridge.spark.pipeline.status.pipeline_metrics import PIPELINE_METRICS  # noqa: E402
from tests.generate_docs import counted_names, sources_that_log  # noqa: E402
from zkconsumer.observe.metric_names import ROWS, MetricKind, MetricRow  # noqa: E402
from zkconsumer.observe.prometheus import COUNTERS_SHOWN_AS_ZERO, LABELS, OWN_LABELS  # noqa: E402

MONITORING = ROOT / "monitoring"
ALERTS_FILE = "zkconsumer-alerts.yml"
DASHBOARD_FILE = "zkconsumer-dashboard.json"
SUMMARIES = (MetricKind.TIMER, MetricKind.HISTOGRAM)


def row_labels(row: MetricRow) -> list[str]:
    """The labels of a metric in Prometheus."""
    return [*OWN_LABELS, *(LABELS[label] for label in row.labels if label in LABELS)]


def series_labels() -> dict[str, set[str]]:
    """Name of a series in Prometheus -> the names of its labels, of members and pipelines."""
    found: dict[str, set[str]] = {}
    for row in ROWS:
        if row.prometheus:
            labels = set(row_labels(row))
            is_summary = row.kind in SUMMARIES
            found[row.prometheus] = labels | ({"quantile"} if is_summary else set())
            if is_summary:
                found |= {f"{row.prometheus}_{part}": labels for part in ("count", "sum")}
    for name in {*counted_names(sources_that_log()), *COUNTERS_SHOWN_AS_ZERO}:
        found[f"zkconsumer_count_{name}_total"] = set(OWN_LABELS)
    for metric in PIPELINE_METRICS:
        found[metric.name] = {"pipeline", *(("topic", "partition") if metric.is_by_partition else ())}
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


def _member_query(row: MetricRow) -> tuple[str, str]:
    """Query and legend of a row: rates of counters, the 99th percentile of summaries, the largest gauge."""
    more = row_labels(row)[len(OWN_LABELS) :]
    by = ", ".join(["group", "member", *more])
    legend = " ".join(f"{{{{{label}}}}}" for label in ["group", "member", *more])
    if row.kind is MetricKind.METER:
        return f"sum by ({by}) (rate({row.prometheus}{MEMBER_FILTER}[$__rate_interval]))", legend
    if row.kind in SUMMARIES:
        return f'max by ({by}) ({row.prometheus}{{group=~"$group",quantile="0.99"}})', legend
    return f"max by ({by}) ({row.prometheus}{MEMBER_FILTER})", legend


def _unit(row: MetricRow) -> str:
    if row.kind is MetricKind.TIMER or row.prometheus.endswith("_seconds"):
        return "s"
    if "bytes" in row.prometheus:
        return "Bps" if row.kind is MetricKind.METER else "bytes"
    return "short"


def render_dashboard() -> str:
    """One panel for each metric with a name in Prometheus, in the order of the tables."""
    panels: list[dict[str, Any]] = []

    def add(title: str, description: str, query: str, legend: str, unit: str) -> None:
        number = len(panels)
        panels.append({
            "id": number + 1, "type": "timeseries", "title": title, "description": description,
            "datasource": {"type": "prometheus", "uid": "$datasource"},
            "gridPos": {"x": 12 * (number % 2), "y": 8 * (number // 2), "w": 12, "h": 8},
            "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
            "targets": [{"refId": "A", "expr": query, "legendFormat": legend}],
        })  # fmt: skip

    for row in ROWS:
        if row.prometheus:
            query, legend = _member_query(row)
            add(row.prometheus, row.sentence, query, legend, _unit(row))
    for metric in PIPELINE_METRICS:
        more = ["topic", "partition"] if metric.is_by_partition else []
        selector = f"{metric.name}{PIPELINE_FILTER}"
        query = f"rate({selector}[$__rate_interval])" if metric.kind == "counter" else selector
        legend = " ".join(f"{{{{{label}}}}}" for label in ["pipeline", *more])
        add(metric.name, metric.sentence, query, legend, "s" if "_seconds_" in metric.name else "short")
    variables = [
        {"name": "datasource", "type": "datasource", "query": "prometheus"},
        _variable("group", f"label_values({MAX_LAG}, group)"),
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
