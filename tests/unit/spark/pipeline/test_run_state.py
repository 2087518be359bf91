"""The state of a run: its file, its phase, its process, its metrics."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.spark.pipeline.batch_writer import WrittenBatch
from bridge.spark.pipeline.lineage import BatchCounts
from bridge.spark.pipeline.status import run_state_file
from bridge.spark.pipeline.status.pipeline_metrics import PIPELINE_METRICS, render_pipeline_metrics
from bridge.spark.pipeline.status.run_phase import BEAT_AGE_MAX_MS, BEAT_MS, PipelinePhase, ProcessSight, phase_of
from bridge.spark.pipeline.status.run_recorder import RunRecorder
from bridge.spark.pipeline.status.run_state import (
    InvalidRunStateError,
    RunBatch,
    RunError,
    RunProcess,
    RunState,
    parse_run_state,
    run_state_json,
)
from bridge.spark.pipeline.status.run_state_file import (
    read_run_state,
    run_state_path,
    sight_of,
    this_process,
    write_run_state,
)
from tests.unit.spark.pipeline.test_lineage_totals import T0, T1, lineage
from zkconsumer.testing.manual_clock import ManualClock

PROCESS = RunProcess("host", "boot", "pid:[1]", 42, 7)
STATE = RunState(
    "clicks",
    "running",
    PROCESS,
    1_000,
    2_000,
    "q",
    3,
    BatchCounts(10, 2, 1, 4),
    RunBatch(2, 1_500, BatchCounts(5, 1)),
    RunError(900, "why"),
)


def test_a_state_is_read_as_it_was_written() -> None:
    for each in (STATE, RunState("p", "finished", PROCESS, 1, 2)):
        assert parse_run_state(run_state_json(each), "f") == each


@pytest.mark.parametrize(
    "change",
    [{"version": 2}, {"phase": "resting"}, {"pid": "x"}, {"batches": -1}, {"other": 1}, {"last_batch": [{}]}],
)
def test_a_damaged_state_is_refused(change: dict[str, object]) -> None:
    members = json.loads(run_state_json(STATE)) | change
    with pytest.raises(InvalidRunStateError, match="Remove it"):
        parse_run_state(json.dumps(members), "f")


def test_a_long_error_is_cut() -> None:
    read = parse_run_state(run_state_json(replace(STATE, error=RunError(1, "x" * 10_000))), "f")
    assert read.error is not None
    assert len(read.error.text) == 2_000


# --- the phase ----------------------------------------------------------------------------------------------------

NOW_MS = STATE.beat_ms + BEAT_MS


def phase(state: RunState | None, sight: ProcessSight = ProcessSight.LIVES, now_ms: int = NOW_MS) -> str:
    return phase_of(state, sight, now_ms, has_begun=True).phase.value


def test_the_phase_of_a_run() -> None:
    assert phase_of(None, ProcessSight.NOT_SEEN, 0, has_begun=False).phase is PipelinePhase.NEVER_STARTED
    assert phase(None) == "unknown"
    assert phase(STATE) == "running"
    assert phase(STATE, ProcessSight.GONE) == "failed"
    assert phase(STATE, ProcessSight.NOT_SEEN) == "running"
    assert phase(STATE, ProcessSight.NOT_SEEN, STATE.beat_ms + BEAT_AGE_MAX_MS) == "running"
    assert phase(STATE, ProcessSight.NOT_SEEN, STATE.beat_ms + BEAT_AGE_MAX_MS + 1) == "unknown"
    for ended in ("stopped", "finished", "failed"):
        assert phase(replace(STATE, phase=ended), ProcessSight.GONE) == ended  # type: ignore[arg-type]


def test_a_run_that_lives_and_makes_no_progress_is_named() -> None:
    late = phase_of(STATE, ProcessSight.LIVES, STATE.beat_ms + BEAT_AGE_MAX_MS + 1, has_begun=True)
    assert late.phase is PipelinePhase.RUNNING
    assert "no beat for 60 s" in late.text


# --- the process --------------------------------------------------------------------------------------------------


def test_this_process_lives_and_an_ended_one_is_gone() -> None:
    own = this_process()
    if not own.boot:
        pytest.skip("this system has no /proc")
    assert sight_of(own) is ProcessSight.LIVES
    assert sight_of(replace(own, started_ticks=own.started_ticks - 1)) is ProcessSight.GONE, "the id was used again"
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    assert sight_of(replace(own, pid=ended.pid)) is ProcessSight.GONE
    assert sight_of(replace(own, boot="another")) is ProcessSight.GONE, "the machine was started again"
    assert sight_of(replace(own, boot="another", host="another")) is ProcessSight.NOT_SEEN
    assert sight_of(replace(own, namespace="pid:[0]")) is ProcessSight.NOT_SEEN


def test_a_killed_process_that_no_parent_has_waited_for_is_gone() -> None:
    own = this_process()
    if not own.boot:
        pytest.skip("this system has no /proc")
    child = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    ticks = run_state_file._started_ticks(child.pid)
    assert ticks is not None
    seen = replace(own, pid=child.pid, started_ticks=ticks)
    assert sight_of(seen) is ProcessSight.LIVES
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # a zombie from here on
    assert sight_of(seen) is ProcessSight.GONE
    child.wait()


def test_a_system_without_proc_sees_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_state_file, "PROC", tmp_path)
    assert sight_of(this_process()) is ProcessSight.NOT_SEEN


# --- the file -----------------------------------------------------------------------------------------------------


def test_the_file_is_beside_the_checkpoint(tmp_path: Path) -> None:
    assert run_state_path(str(tmp_path / "data/checkpoint")) == tmp_path / "data/checkpoint.status"
    assert run_state_path(f"file:{tmp_path}/checkpoint/") == tmp_path / "checkpoint.status"
    assert run_state_path("hdfs://name-node/checkpoint") is None


def test_there_may_be_no_file(tmp_path: Path) -> None:
    assert read_run_state(tmp_path / "none/c.status") is None
    write_run_state(tmp_path / "new/c.status", STATE)
    assert read_run_state(tmp_path / "new/c.status") == STATE
    (tmp_path / "folder.status").mkdir()
    with pytest.raises(InvalidRunStateError):
        read_run_state(tmp_path / "folder.status")


def recorder(path: Path | None, clock: ManualClock, said: list[str]) -> RunRecorder:
    return RunRecorder(path, "clicks", PROCESS, clock, said.append)


def test_a_recorder_writes_batches_beats_and_the_end(tmp_path: Path) -> None:
    clock, said, path = ManualClock(), list[str](), tmp_path / "c.status"
    made = recorder(path, clock, said)
    assert read_run_state(path) == made.state
    first, again = lineage(0, {T0: (0, 10)}, dead=2), lineage(1, {T0: (10, 15)}, filtered=1)
    clock.move(5_000)
    made.on_batch(WrittenBatch(first, is_repeated=False))
    made.on_batch(WrittenBatch(again, is_repeated=True))
    stored = read_run_state(path)
    assert stored is not None
    assert stored.last_batch is not None
    assert (stored.batches, stored.counts, stored.query) == (1, BatchCounts(8, 2), "q")
    assert (stored.last_batch.batch, stored.last_batch.written_ms) == (0, clock.wall_ms())
    made.beat(lambda: {T0: 7})
    assert made.lag == {T0: 7}
    made.beat(lambda: {T0: 8})
    assert made.lag == {T0: 7}, "the next beat is not due"
    clock.move(BEAT_MS)
    made.beat(lambda: {T0: 8})
    assert made.lag == {T0: 8}
    made.end("failed", "why")
    stored = read_run_state(path)
    assert stored is not None
    assert stored.error == RunError(clock.wall_ms(), "why")
    assert stored.phase == "failed"
    assert said == []


def test_the_last_error_is_kept_by_later_runs(tmp_path: Path) -> None:
    clock, path = ManualClock(), tmp_path / "c.status"
    recorder(path, clock, []).end("failed", "why")
    clock.move(1_000)
    later = recorder(path, clock, [])
    later.end("finished")
    stored = read_run_state(path)
    assert stored is not None
    assert stored.error is not None
    assert (stored.phase, stored.error.text) == ("finished", "why")


def test_a_file_that_cannot_be_written_is_reported_once_and_ends_nothing(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    said: list[str] = []
    made = recorder(tmp_path / "file/c.status", ManualClock(), said)
    made.on_batch(WrittenBatch(lineage(0, {T0: (0, 1)}), is_repeated=False))
    made.end("finished")
    assert len(said) == 1
    assert "the pipeline goes on" in said[0]


def test_a_damaged_file_of_an_earlier_run_is_replaced(tmp_path: Path) -> None:
    path = tmp_path / "c.status"
    path.write_text("{")
    assert recorder(path, ManualClock(), []).state == read_run_state(path)


# --- metrics ------------------------------------------------------------------------------------------------------


def test_every_metric_of_the_table_has_its_value() -> None:
    text = render_pipeline_metrics(STATE, {T0: 5, T1: 0}, 4_000)
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    assert samples == [
        'zkconsumer_pipeline_batches_total{pipeline="clicks"} 3',
        'zkconsumer_pipeline_rows_total{pipeline="clicks"} 10',
        'zkconsumer_pipeline_dead_letters_total{pipeline="clicks"} 2',
        'zkconsumer_pipeline_filtered_total{pipeline="clicks"} 1',
        'zkconsumer_pipeline_skipped_offsets_total{pipeline="clicks"} 4',
        'zkconsumer_pipeline_last_batch{pipeline="clicks"} 2',
        'zkconsumer_pipeline_seconds_since_last_batch{pipeline="clicks"} 2.5',
        'zkconsumer_pipeline_lag{pipeline="clicks",topic="t",partition="0"} 5',
        'zkconsumer_pipeline_lag{pipeline="clicks",topic="t",partition="1"} 0',
    ]
    for row in PIPELINE_METRICS:
        assert f"# HELP {row.name} {row.sentence}\n# TYPE {row.name} {row.kind}\n" in text


def test_before_the_first_batch_the_seconds_count_from_the_start() -> None:
    text = render_pipeline_metrics(RunState('a"b', "running", PROCESS, 1_000, 1_000), {}, 9_000)
    assert 'zkconsumer_pipeline_seconds_since_last_batch{pipeline="a\\"b"} 8\n' in text
    assert "last_batch{" not in text.replace("since_last_batch{", "")
    assert "_lag" not in text
