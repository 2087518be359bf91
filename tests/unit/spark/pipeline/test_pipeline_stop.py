"""The end of a pipeline that was asked to stop: after the batch that runs, in time, and with its error."""

from __future__ import annotations

import signal
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result
from pyspark.errors import StreamingQueryException, UnknownException

from bridge.commands import pipeline_run
from bridge.spark.pipeline import pipeline_query
from bridge.spark.pipeline.pipeline_query import RANGES_FOLDER, PipelineFailedError, RunningPipeline
from bridge.spark.pipeline.status.pipeline_health import read_pipeline_health
from bridge.spark.pipeline.status.run_phase import BEAT_AGE_MAX_MS
from bridge.spark.source.batch_ranges_file import request_stop, sees_stop
from bridge.testing.fake_environment import FakeEnvironment
from tests.pipeline_audit_fixtures import PipelineInMemory
from zkconsumer.cli.main import main
from zkconsumer.testing.manual_clock import ManualClock

GRACE_MS = 10_000


class Query:
    """A query of Spark; ``on_status``: what happens before its status is returned."""

    def __init__(self, on_status: Callable[[], bool]) -> None:
        self.isActive = True
        self.on_status = on_status
        self.failure: Exception | None = None
        self.stops = 0

    @property
    def status(self) -> dict[str, bool]:
        return {"isTriggerActive": self.on_status()}

    def stop(self) -> None:
        self.stops += 1
        self.isActive = False

    def awaitTermination(self, timeout_s: float) -> bool:
        if self.failure is not None:
            raise self.failure
        return not self.isActive


def running(folder: Path, on_status: Callable[[], bool]) -> tuple[RunningPipeline, Query]:
    query = Query(on_status)
    prepared: Any = SimpleNamespace(folder=folder, spec=SimpleNamespace(name="clicks"))
    writer: Any = SimpleNamespace(error=None)
    return RunningPipeline(prepared, query, writer), query  # type: ignore[arg-type]


def run_command(file: Path, patch: pytest.MonkeyPatch, start: Callable[..., RunningPipeline]) -> Result:
    """``zkconsumer pipeline run`` without Spark; ``start`` replaces ``start_pipeline``."""
    prepared: Any = SimpleNamespace(folder=file.parent, close=lambda: None)
    patch.setattr(pipeline_run, "pipeline_spark_session", lambda *_: nullcontext())
    patch.setattr(pipeline_query, "prepare_pipeline", lambda *_: prepared)
    patch.setattr(pipeline_query, "start_pipeline", start)
    before = [(number, signal.getsignal(number)) for number in (signal.SIGINT, signal.SIGTERM)]
    try:
        return CliRunner().invoke(main, ["pipeline", "run", str(file)])
    finally:
        for number, handler in before:
            signal.signal(number, handler)


def test_it_ends_when_the_source_plans_no_further_batch_although_each_trigger_follows_another(tmp_path: Path) -> None:
    states: list[int] = []

    def always_active() -> bool:
        states.append(len(states))
        if len(states) == 3:
            assert sees_stop(tmp_path / RANGES_FOLDER), "the source plans after the batch"
        return True

    pipeline, query = running(tmp_path, always_active)
    assert pipeline.stop(GRACE_MS, ManualClock().now_ms)
    assert (len(states), query.stops) == (3, 1)


def test_it_ends_between_two_triggers(tmp_path: Path) -> None:
    """A trigger that starts after the answer sees the request, so it is no batch that was cut off."""
    states = [True, True, False, True]
    pipeline, query = running(tmp_path, lambda: states.pop(0))
    assert pipeline.stop(GRACE_MS, ManualClock().now_ms)
    assert (states, query.stops) == ([True], 1)


def test_a_batch_that_takes_longer_than_the_grace_is_not_awaited(tmp_path: Path) -> None:
    clock = ManualClock()

    def works() -> bool:
        clock.move(GRACE_MS // 2)
        return True

    pipeline, query = running(tmp_path, works)
    assert not pipeline.stop(GRACE_MS, clock.now_ms)
    assert query.stops == 1


def test_a_query_that_failed_meanwhile_raises_its_error(tmp_path: Path) -> None:
    def fails() -> bool:
        query.isActive = False
        query.failure = StreamingQueryException("the batch failed")
        return True

    pipeline, query = running(tmp_path, fails)
    with pytest.raises(PipelineFailedError, match="the batch failed"):
        pipeline.stop(GRACE_MS, ManualClock().now_ms)


def test_a_run_is_healthy_while_its_last_batch_takes_longer_than_a_beat_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    answers: list[dict[str, Any]] = []

    def takes_minutes() -> bool:
        answers.append(read_pipeline_health(file, clock.wall_ms()))
        clock.move(BEAT_AGE_MAX_MS)
        return len(answers) <= 4

    class SignalledQuery(Query):
        def awaitTermination(self, timeout_s: float) -> bool:
            signal.raise_signal(signal.SIGTERM)
            return super().awaitTermination(timeout_s)

    with FakeEnvironment() as world:
        file = PipelineInMemory(world, tmp_path).file
    query: Any = SignalledQuery(takes_minutes)
    query.lastProgress = None
    writer: Any = SimpleNamespace(error=None)
    monkeypatch.setattr(pipeline_run, "SYSTEM_CLOCK", clock)
    done = run_command(file, monkeypatch, lambda prepared, *_, **__: RunningPipeline(prepared, query, writer))
    assert done.exit_code == 0, done.output
    assert len(answers) > 4
    assert [each["members"][0]["problems"] for each in answers] == [[]] * len(answers)


def test_a_query_that_spark_cannot_start_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(*_: Any, **__: Any) -> RunningPipeline:
        raise UnknownException('No FileSystem for scheme "s3a"\n\tat org.apache.hadoop.fs.FileSystem.get')

    with FakeEnvironment() as world:
        file = PipelineInMemory(world, tmp_path).file
    done = run_command(file, monkeypatch, refused)
    assert isinstance(done.exception, SystemExit)
    [line] = done.stderr.splitlines()
    assert line.endswith(
        'clicks: No FileSystem for scheme "s3a"; when the cause is removed, start the pipeline again, it continues '
        "from its checkpoint"
    )


def test_the_source_has_seen_a_request_only_if_there_is_one(tmp_path: Path) -> None:
    assert not sees_stop(tmp_path)
    request_stop(tmp_path)
    assert sees_stop(tmp_path)
