"""The metrics of a running pipeline: their table, and their text for Prometheus.  Pure.

Counters count since the start of the process.  ``[metrics] listen`` serves them, and needs no extra.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from bridge.spark.pipeline.status.run_state import RunState
from zkconsumer.types import TopicPartition

PREFIX = "zkconsumer_pipeline"


@dataclass(frozen=True, slots=True)
class PipelineMetric:
    """A row of the table.  ``kind``: ``counter`` or ``gauge``.  ``is_by_partition``: has labels topic and partition."""

    name: str
    kind: str
    sentence: str
    is_by_partition: bool = False


PIPELINE_METRICS = (
    PipelineMetric(f"{PREFIX}_batches_total", "counter", "Batches that this run has written to the sink."),
    PipelineMetric(f"{PREFIX}_rows_total", "counter", "Rows that this run has written to the sink."),
    PipelineMetric(f"{PREFIX}_dead_letters_total", "counter", "Dead letters of this run."),
    PipelineMetric(f"{PREFIX}_filtered_total", "counter", "Records for which [transform] where was not true."),
    PipelineMetric(f"{PREFIX}_skipped_offsets_total", "counter", "Offsets that were passed over by a policy."),
    PipelineMetric(f"{PREFIX}_last_batch", "gauge", "Spark's id of the last batch of this run."),
    PipelineMetric(
        f"{PREFIX}_seconds_since_last_batch",
        "gauge",
        "Seconds since the last batch of this run was written; before the first one, since the start of the run.",
    ),
    PipelineMetric(
        f"{PREFIX}_lag",
        "gauge",
        "Offsets between the end of the newest planned batch and the end of the log, when that batch was planned.",
        is_by_partition=True,
    ),
)


def render_pipeline_metrics(state: RunState, lag: Mapping[TopicPartition, int], now_ms: int) -> str:
    """Text in the format of Prometheus 0.0.4.  ``now_ms``: since 1970."""
    counts, last = state.counts, state.last_batch
    since_ms = state.started_ms if last is None else last.written_ms
    values: dict[str, float] = {
        "batches_total": state.batches,
        "rows_total": counts.rows,
        "dead_letters_total": counts.dead_letters,
        "filtered_total": counts.filtered,
        "skipped_offsets_total": counts.skipped_offsets,
        "seconds_since_last_batch": max(0, now_ms - since_ms) / 1000,
    }
    if last is not None:
        values["last_batch"] = last.batch
    lines: list[str] = []
    for row in PIPELINE_METRICS:
        samples = list(_samples(row, state.pipeline, values, lag))
        if samples:
            lines += [f"# HELP {row.name} {row.sentence}", f"# TYPE {row.name} {row.kind}", *samples]
    return "\n".join(lines) + "\n"


def _samples(
    row: PipelineMetric, pipeline: str, values: Mapping[str, float], lag: Mapping[TopicPartition, int]
) -> Iterator[str]:
    label = f'pipeline="{_escaped(pipeline)}"'
    if row.is_by_partition:
        for tp, behind in sorted(lag.items()):
            yield f'{row.name}{{{label},topic="{tp.topic}",partition="{tp.partition}"}} {behind}'
    elif (value := values.get(row.name.removeprefix(f"{PREFIX}_"))) is not None:
        yield f"{row.name}{{{label}}} {value:g}" if isinstance(value, float) else f"{row.name}{{{label}}} {value}"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
