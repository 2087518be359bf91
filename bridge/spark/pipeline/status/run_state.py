"""``RunState``: what a run of a pipeline writes about itself, for programs that look at it.  Pure.

The file is beside the checkpoint (``run_state_file``).  Nothing depends on it: Spark and the sink decide what a run
does, and a run without the file, or with a damaged one, reads and writes the same.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Literal, TypeAlias, get_args

from bridge.migration.plan.json_object_reader import InvalidJsonError, JsonObjectReader
from bridge.spark.pipeline.lineage import BatchCounts
from zkconsumer.errors import PreconditionFailed

VERSION = 1
TEXT_CHARS_MAX = 2_000
"""The longest error that is kept."""

RunEnd: TypeAlias = Literal["running", "stopped", "finished", "failed"]
"""``stopped``: by a signal, between two batches.  ``finished``: everything that was there at its start is read."""


@dataclass(frozen=True, slots=True)
class RunProcess:
    """A process that another program can look for: on the host ``host`` since its boot ``boot`` (ids of Linux).

    ``namespace``: of its process ids: in another container the number means another process.  ``started_ticks``: its
    start since the boot, so that a later process with the same id is another one.  Empty and 0 where the system has
    none of this.
    """

    host: str
    boot: str
    namespace: str
    pid: int
    started_ticks: int


@dataclass(frozen=True, slots=True)
class RunBatch:
    """A batch that this run has written.  ``written_ms``: since 1970."""

    batch: int
    written_ms: int
    counts: BatchCounts


@dataclass(frozen=True, slots=True)
class RunError:
    """The error with which a run ended.  ``at_ms``: since 1970."""

    at_ms: int
    text: str


@dataclass(frozen=True, slots=True)
class RunState:
    """A run.  Times are ms since 1970.

    ``query``: the id of Spark's query; None before the first batch.  ``beat_ms``: when the run wrote this.
    ``batches``, ``counts``: of this run.  ``error``: the last one, also of an earlier run.
    """

    pipeline: str
    phase: RunEnd
    process: RunProcess
    started_ms: int
    beat_ms: int
    query: str | None = None
    batches: int = 0
    counts: BatchCounts = field(default_factory=BatchCounts)
    last_batch: RunBatch | None = None
    error: RunError | None = None


class InvalidRunStateError(PreconditionFailed):
    """The status file of a pipeline is damaged, or a newer release wrote it; remove it, a run writes it again."""


def run_state_json(state: RunState) -> str:
    """One line."""
    process, last, error = state.process, state.last_batch, state.error
    members = {
        "version": VERSION,
        "pipeline": state.pipeline,
        "phase": state.phase,
        "host": process.host,
        "boot": process.boot,
        "namespace": process.namespace,
        "pid": process.pid,
        "started_ticks": process.started_ticks,
        "started_ms": state.started_ms,
        "beat_ms": state.beat_ms,
        "query": state.query or "",
        "batches": state.batches,
        "counts": _counts_json(state.counts),
        "last_batch": []
        if last is None
        else [{"batch": last.batch, "written_ms": last.written_ms, "counts": _counts_json(last.counts)}],
        "last_error": [] if error is None else [{"at_ms": error.at_ms, "text": error.text[:TEXT_CHARS_MAX]}],
    }
    return json.dumps(members) + "\n"


def parse_run_state(text: str, where: str) -> RunState:
    """The state of a text.  Raises ``InvalidRunStateError``; ``where``: its place, for the error."""
    try:
        return _read(JsonObjectReader.parse(text, where), where)
    except InvalidJsonError as error:
        raise InvalidRunStateError(f"the status file cannot be read: {error}. Remove it; a run writes it again") from (
            error
        )


def _read(members: JsonObjectReader, where: str) -> RunState:
    if (version := members.number("version")) != VERSION:
        raise members.error(f"version {version}; this release reads version {VERSION}")
    phase = members.text("phase")
    if phase not in get_args(RunEnd):
        raise members.error(f"'phase' is {phase[:50]!r}")
    process = RunProcess(
        host=members.text("host", TEXT_CHARS_MAX),
        boot=members.text("boot", TEXT_CHARS_MAX),
        namespace=members.text("namespace", TEXT_CHARS_MAX),
        pid=members.number("pid"),
        started_ticks=members.number("started_ticks"),
    )
    state = RunState(
        pipeline=members.text("pipeline", TEXT_CHARS_MAX),
        phase=phase,  # type: ignore[arg-type]  # one of them
        process=process,
        started_ms=members.number("started_ms"),
        beat_ms=members.number("beat_ms"),
        query=members.text("query") or None,
        batches=members.number("batches"),
        counts=_read_counts(members.take_object("counts")),
        last_batch=next((_read_batch(JsonObjectReader(each, where)) for each in members.items("last_batch")), None),
        error=next((_read_error(JsonObjectReader(each, where)) for each in members.items("last_error")), None),
    )
    members.reject_unknown_keys()
    return state


def _read_batch(members: JsonObjectReader) -> RunBatch:
    found = RunBatch(members.number("batch"), members.number("written_ms"), _read_counts(members.take_object("counts")))
    members.reject_unknown_keys()
    return found


def _read_error(members: JsonObjectReader) -> RunError:
    found = RunError(members.number("at_ms"), members.text("text", TEXT_CHARS_MAX))
    members.reject_unknown_keys()
    return found


def _counts_json(counts: BatchCounts) -> dict[str, int]:
    return {
        "rows": counts.rows,
        "dead_letters": counts.dead_letters,
        "filtered": counts.filtered,
        "skipped_offsets": counts.skipped_offsets,
    }


def _read_counts(members: JsonObjectReader) -> BatchCounts:
    found = BatchCounts(*(members.number(name) for name in ("rows", "dead_letters", "filtered", "skipped_offsets")))
    members.reject_unknown_keys()
    return found
