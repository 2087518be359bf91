"""The phase of a pipeline.  Pure.

    no checkpoint and no batch            never started
    no status file, but a checkpoint      unknown      a program ran it, and not ``zkconsumer pipeline run``
    the run wrote its end                 stopped, finished, failed
    the run wrote "running":
        its process lives                 running
        its process is gone               failed       it was killed, or the machine was started again
        its process cannot be seen        running for ``BEAT_AGE_MAX_MS`` after its last beat, then unknown

A process can be seen from the same boot of the same machine and the same namespace of process ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from bridge.spark.pipeline.status.run_state import RunState

BEAT_MS = 10_000
"""How often a run writes its state."""

BEAT_AGE_MAX_MS = 6 * BEAT_MS
"""A run with an older beat makes no progress, or its process cannot be seen and it may have ended."""


class PipelinePhase(Enum):
    """The values are the keys of the JSON form."""

    NEVER_STARTED = "never-started"
    RUNNING = "running"
    STOPPED = "stopped"
    FINISHED = "finished"
    FAILED = "failed"
    UNKNOWN = "unknown"


class ProcessSight(Enum):
    """What is known of a process."""

    LIVES = "it lives"
    GONE = "it is gone"
    NOT_SEEN = "it cannot be seen from here"


@dataclass(frozen=True, slots=True)
class PhaseReport:
    """``text``: what an operator must know beside the phase; may be empty."""

    phase: PipelinePhase
    text: str = ""


def phase_of(state: RunState | None, sight: ProcessSight, now_ms: int, *, has_begun: bool) -> PhaseReport:
    """The phase.  ``has_begun``: there is a checkpoint, or a batch in the sink.  ``now_ms``: since 1970."""
    if state is None:
        if not has_begun:
            return PhaseReport(PipelinePhase.NEVER_STARTED)
        return PhaseReport(PipelinePhase.UNKNOWN, "no run by zkconsumer pipeline run has left its state here")
    if state.phase != "running":
        return PhaseReport(PipelinePhase(state.phase))
    age_ms = max(0, now_ms - state.beat_ms)
    where = f"process {state.process.pid} on {state.process.host}"
    match sight:
        case ProcessSight.LIVES:
            late = f"it has written no beat for {age_ms // 1000} s" if age_ms > BEAT_AGE_MAX_MS else ""
            return PhaseReport(PipelinePhase.RUNNING, "; ".join(filter(None, (where, late))))
        case ProcessSight.GONE:
            text = f"{where} ended without a word: it was killed, or the machine was started again"
            return PhaseReport(PipelinePhase.FAILED, text)
        case ProcessSight.NOT_SEEN:
            if age_ms <= BEAT_AGE_MAX_MS:
                return PhaseReport(PipelinePhase.RUNNING, f"{where}, by its beat {age_ms // 1000} s ago")
            text = f"{where} cannot be seen from here, and its last beat was {age_ms // 1000} s ago"
            return PhaseReport(PipelinePhase.UNKNOWN, text)
