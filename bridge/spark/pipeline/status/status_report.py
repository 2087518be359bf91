"""``read_pipeline_status``: the phase of a pipeline, its last batch, its offsets and lag; without Spark.

    status file, process     the phase, the last error, this run's batches
    checkpoint               the query id, the batch that was begun, positions
    sink                     the last batch, all rows and dead letters
    ZooKeeper, brokers       the group's offsets, the ends of the logs

What cannot be read is unknown and named; the rest is shown.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from bridge.spark.pipeline.audit.audit_facts import AuditedCheckpoint, AuditedGroup, LogSpan, PartitionLog
from bridge.spark.pipeline.audit.audit_run import pipeline_session, read_group, read_logs
from bridge.spark.pipeline.audit.checkpoint_positions import PipelineCheckpoint, read_pipeline_checkpoint
from bridge.spark.pipeline.audit.lineage_totals import LastBatch, LineageTotals
from bridge.spark.pipeline.pipeline_spec import PipelineSpec
from bridge.spark.pipeline.secret_reference import ReadFile
from bridge.spark.pipeline.sinks.sink_choice import open_stored
from bridge.spark.pipeline.status.run_phase import PhaseReport, PipelinePhase, ProcessSight, phase_of
from bridge.spark.pipeline.status.run_state import InvalidRunStateError, RunState
from bridge.spark.pipeline.status.run_state_file import read_run_state, run_state_path, sight_of
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.errors import PreconditionFailed, UnavailableError, UsageError
from zkconsumer.types import TopicPartition

SCHEMA = "zkconsumer/pipeline-status/1"

CONNECT_TIMEOUT_MS = 5_000
"""How long ``status`` waits for ZooKeeper."""


@dataclass(frozen=True, slots=True)
class PartitionProgress:
    """Offsets of one partition; None: unknown, or there is none.

    ``reached``: the end of what is in the sink.  ``planned``: the end of the newest finished batch of the checkpoint.
    ``lag``: from the largest of ``reached``, and with ``planned`` and ``group_offset`` that other members read, to the
    end of the log.
    """

    tp: TopicPartition
    reached: int | None
    planned: int | None
    group_offset: int | None
    log_end: int | None

    @property
    def lag(self) -> int | None:
        known = [each for each in (self.reached, self.planned, self.group_offset) if each is not None]
        return None if self.log_end is None or not known else max(0, self.log_end - max(known))


@dataclass(frozen=True, slots=True)
class PipelineStatus:
    """``last``: the newest batch in the sink, with its query.  ``totals`` None: the sink could not be read.

    ``not_known``: what could not be read, and why.
    """

    pipeline: str
    phase: PhaseReport
    state: RunState | None
    checkpoint: AuditedCheckpoint
    totals: LineageTotals | None
    partitions: Sequence[PartitionProgress]
    not_known: tuple[str, ...]

    @property
    def query(self) -> str | None:
        if self.checkpoint.query is not None:
            return self.checkpoint.query
        return None if self.totals is None or self.totals.newest is None else self.totals.newest[0]

    @property
    def last(self) -> tuple[str, LastBatch] | None:
        """The newest batch of the checkpoint's query, else of any."""
        if self.totals is None:
            return None
        query = self.checkpoint.query
        if query is not None and query in self.totals.last:
            return query, self.totals.last[query]
        return self.totals.newest


def read_pipeline_status(
    spec: PipelineSpec,
    environment: Mapping[str, str],
    read_file: ReadFile,
    dependencies: AdminDependencies | None,
    now_ms: int,
) -> PipelineStatus:
    """The status.  ``now_ms``: since 1970.  Raises nothing for a server that does not answer."""
    unknown: list[str] = []
    state, sight = None, ProcessSight.NOT_SEEN
    path = run_state_path(spec.checkpoint.path)
    if path is None:
        unknown.append(
            "the phase and the last error: the checkpoint is not on this machine, so there is no status file"
        )
    else:
        try:
            state = read_run_state(path)
        except InvalidRunStateError as error:
            unknown.append(str(error))
        if state is not None:
            sight = sight_of(state.process)
    checkpoint = read_pipeline_checkpoint(spec.checkpoint.path)
    if checkpoint.state.problem and path is not None:
        unknown.append(f"the checkpoint: {checkpoint.state.problem}")
    totals = _read_totals(spec, unknown)
    partitions = _read_progress(spec, checkpoint, totals, environment, read_file, dependencies, unknown)
    has_begun = checkpoint.state.query is not None or bool(totals is not None and totals.batches)
    phase = phase_of(state, sight, now_ms, has_begun=has_begun or totals is None or bool(checkpoint.state.problem))
    return PipelineStatus(spec.name, phase, state, checkpoint.state, totals, partitions, tuple(dict.fromkeys(unknown)))


def _read_totals(spec: PipelineSpec, unknown: list[str]) -> LineageTotals | None:
    totals = LineageTotals()
    try:
        for lineage in open_stored(spec.sink).lineages():
            totals.add(lineage)
    except (UnavailableError, PreconditionFailed, UsageError) as error:
        unknown.append(f"the sink: {error}")
        return None
    return totals


def _read_progress(
    spec: PipelineSpec,
    checkpoint: PipelineCheckpoint,
    totals: LineageTotals | None,
    environment: Mapping[str, str],
    read_file: ReadFile,
    dependencies: AdminDependencies | None,
    unknown: list[str],
) -> list[PartitionProgress]:
    covered = {} if totals is None else {tp: each.covered.end for tp, each in totals.partitions.items() if each.covered}
    positions = checkpoint.state.positions
    group, logs = AuditedGroup(), dict[TopicPartition, PartitionLog]()
    try:
        with pipeline_session(spec, environment, read_file, dependencies, CONNECT_TIMEOUT_MS) as (session, options):
            group = read_group(session, options, None)
            if group.problem:
                unknown.append(f"the group's offsets: {group.problem}")
            logs = read_logs(session, options, {*covered, *positions})
    except UnavailableError as error:
        unknown.append(f"the ends of the logs: {error}")
    made = []
    for tp in sorted({*covered, *positions, *logs}):
        log = logs.get(tp)
        end = log.end if isinstance(log, LogSpan) else None
        if logs and end is None:
            unknown.append(f"the end of the log of {tp}: {getattr(log, 'problem', 'there is no such partition')}")
        made.append(PartitionProgress(tp, covered.get(tp), positions.get(tp), group.offsets.get(tp), end))
    return made


def status_json(status: PipelineStatus, exit_code: int) -> dict[str, Any]:
    """The JSON form; keys are never renamed."""
    totals, last, state = status.totals, status.last, status.state
    error = None if state is None else state.error
    counts = None if totals is None else totals.counts
    return {
        "schema": SCHEMA,
        "pipeline": status.pipeline,
        "exit_code": exit_code,
        "phase": status.phase.phase.value,
        "phase_text": status.phase.text or None,
        "is_running": status.phase.phase is PipelinePhase.RUNNING,
        "query": status.query,
        "pid": None if state is None else state.process.pid,
        "host": None if state is None else state.process.host,
        "started_ms": None if state is None else state.started_ms,
        "last_batch": None
        if last is None
        else {
            "query": last[0],
            "batch": last[1].batch,
            "written_ms": last[1].created_ms,
            "rows": last[1].counts.rows,
            "dead_letters": last[1].counts.dead_letters,
            "filtered": last[1].counts.filtered,
            "skipped_offsets": last[1].counts.skipped_offsets,
        },
        "batch_in_progress": next((each.batch for each in status.checkpoint.pending), None),
        "batches": None if totals is None else totals.batches,
        "rows": None if counts is None else counts.rows,
        "dead_letters": None if counts is None else counts.dead_letters,
        "filtered": None if counts is None else counts.filtered,
        "lag": total_lag(status.partitions),
        "partitions": [
            {
                "topic": each.tp.topic,
                "partition": each.tp.partition,
                "reached": each.reached,
                "planned": each.planned,
                "group_offset": each.group_offset,
                "log_end": each.log_end,
                "lag": each.lag,
            }
            for each in status.partitions
        ],
        "last_error": None if error is None else {"at_ms": error.at_ms, "text": error.text},
        "not_known": list(status.not_known),
    }


def total_lag(partitions: Sequence[PartitionProgress]) -> int | None:
    """The sum; None if the lag of one partition is unknown."""
    lags = [each.lag for each in partitions]
    return sum(each for each in lags if each is not None) if None not in lags else None
