"""The end of a pipeline that was asked to stop: after the batch that runs, in time, and with its error."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark.errors import StreamingQueryException

from bridge.spark.pipeline.pipeline_query import RANGES_FOLDER, PipelineFailedError, RunningPipeline
from bridge.spark.source.batch_ranges_file import request_stop, sees_stop
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

    def awaitTermination(self, _: float) -> bool:
        if self.failure is not None:
            raise self.failure
        return not self.isActive


def running(folder: Path, on_status: Callable[[], bool]) -> tuple[RunningPipeline, Query]:
    query = Query(on_status)
    prepared: Any = SimpleNamespace(folder=folder, spec=SimpleNamespace(name="clicks"))
    writer: Any = SimpleNamespace(error=None)
    return RunningPipeline(prepared, query, writer), query  # type: ignore[arg-type]


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
    left = [True, True, False, False]
    pipeline, query = running(tmp_path, lambda: left.pop(0))
    assert pipeline.stop(GRACE_MS, ManualClock().now_ms)
    assert (left, query.stops) == ([], 1)


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


def test_the_source_has_seen_a_request_only_if_there_is_one(tmp_path: Path) -> None:
    assert not sees_stop(tmp_path)
    request_stop(tmp_path)
    assert sees_stop(tmp_path)
