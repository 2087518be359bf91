"""``pipeline_health``: the answer of ``zkconsumer health --pipeline FILE``, in the form of a member's answer.

    healthy    a run is under way, its process lives, and it has written a beat within ``BEAT_AGE_MAX_MS``
    alive      its process lives

A run that has ended is no member that answers (exit code 4), whether it failed or not: ``zkconsumer pipeline status``
has the reason.  A run without records is healthy.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.status.run_phase import BEAT_AGE_MAX_MS, PipelinePhase, ProcessSight, phase_of
from bridge.spark.pipeline.status.run_state import InvalidRunStateError, RunState
from bridge.spark.pipeline.status.run_state_file import read_run_state, run_state_path, sight_of
from zkconsumer.errors import HealthUnavailable
from zkconsumer.observe.member_health import FORMAT_VERSION


def read_pipeline_health(file: Path, now_ms: int) -> dict[str, Any]:
    """The answer.  ``now_ms``: since 1970.  Raises ``HealthUnavailable`` if no run is under way, and
    ``PipelineFileError``."""
    spec = read_pipeline(file)
    path = run_state_path(spec.checkpoint.path)
    if path is None:
        raise HealthUnavailable(f"{file}: the checkpoint is not on this machine, so the run has no status file")
    try:
        state = read_run_state(path)
    except InvalidRunStateError as error:
        raise HealthUnavailable(str(error)) from error
    if state is None:
        raise HealthUnavailable(f"{path} does not exist: start the pipeline by zkconsumer pipeline run {file}")
    return run_health(state, sight_of(state.process), now_ms, spec.source.option_texts())


def run_health(state: RunState, sight: ProcessSight, now_ms: int, options: Mapping[str, str]) -> dict[str, Any]:
    """The answer of a run.  ``options``: of the source, without secrets."""
    found = phase_of(state, sight, now_ms, has_begun=True)
    if found.phase is not PipelinePhase.RUNNING:
        text = found.text or (state.error.text if state.error is not None and state.phase == "failed" else "")
        raise HealthUnavailable(
            f"the pipeline {state.pipeline} is not running: {found.phase.value}{f', {text}' if text else ''}"
        )
    age_ms = max(0, now_ms - state.beat_ms)
    problems = []
    if age_ms > BEAT_AGE_MAX_MS:
        problems.append(f"the run has written no beat for {age_ms // 1000} s: Spark, or the disk, does not answer")
    last = state.last_batch
    member = {
        "member": f"pipeline {state.pipeline}",
        "group": options.get("group.id"),
        "healthy": not problems,
        "alive": sight is not ProcessSight.GONE,
        "phase": found.phase.value,
        "query": state.query,
        "last_batch": None if last is None else last.batch,
        "last_batch_ms_ago": None if last is None else max(0, now_ms - last.written_ms),
        "counters": {"batches": state.batches, "rows": state.counts.rows, "dead_letters": state.counts.dead_letters},
        "problems": problems,
        "notes": [found.text] if sight is ProcessSight.NOT_SEEN else [],
    }
    return {
        "version": FORMAT_VERSION,
        "pid": state.process.pid,
        "healthy": not problems,
        "alive": member["alive"],
        "members": [member],
        "members_omitted": 0,
    }
