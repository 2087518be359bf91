"""One pipeline in a driver of the crash lab: its commands one after the other, held at a point of a batch.

    {"do": "pipeline", "query": NAME, "steps": [{"command": "run", "file": …}, …],
     "hold": {"point": …, "batch": …}|null}

Commands are those of ``zkconsumer pipeline``, called as functions; the last one is held.  A held pipeline creates the
file NAME in the folder of faults and waits until there is a file NAME.go; the faults of the source
(``fault_injection``) use the same file.

``after-fetch`` and ``after-decode`` are in the tasks: a step between the parts of Spark's plan takes all records of its
task, and waits.  Their records show the batch: it has ten offsets of each partition.
"""

from __future__ import annotations

import os
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bridge.spark.pipeline import batch_writer
from bridge.spark.pipeline.backfill.backfill_bounds import parse_bounds
from bridge.spark.pipeline.backfill.backfill_run import AFTER_RESERVATION, BackfillRequest, backfill
from bridge.spark.pipeline.decode.reserved_columns import source_column
from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_query import PreparedPipeline, RunningPipeline, prepare_pipeline, start_pipeline
from bridge.spark.pipeline.replay.replay_run import ReplayRequest, replay
from bridge.spark.pipeline.sinks.topic_sink import TopicSink
from tests.spark.crash.pipeline_cases import (
    BACKFILL,
    COMMITTED,
    DECODED,
    FETCHED,
    LETTERS,
    REPLACE,
    REPLAY,
    RESERVED,
    RUN,
    SENT,
    WRITTEN,
)
from tests.spark.crash.pipeline_input import PARTITIONS, PER_BATCH
from tests.spark_session_fixtures import STARTS_MAX, TOO_SLOW, started
from zkconsumer.base.clock import SYSTEM_CLOCK

HOLD_S = 900
POLL_S = 0.05
WAIT_MS = 500
LETTERS_OF_A_BATCH = 8
RELEASED = ".go"

POINT_OF = {
    AFTER_RESERVATION: RESERVED,
    batch_writer.AFTER_WRITE: WRITTEN,
    batch_writer.AFTER_DEAD_LETTERS: LETTERS,
    batch_writer.AFTER_COMMIT: COMMITTED,
}
"""The points of the product as the matrix has them."""

_decode = batch_writer.decode
_held_plans: dict[int, Hold] = {}
"""The id of a decode plan -> where the tasks of its pipeline wait."""


@dataclass(frozen=True, slots=True)
class Hold:
    """Waits at a point of a batch, once."""

    point: str
    batch: int
    file: Path

    def reached(self, point: str, batch: int) -> None:
        """Waits if this is the point."""
        if (point, batch) == (self.point, self.batch):
            self.wait()

    def wait(self) -> None:
        """Until the file with the ending ``RELEASED`` is there."""
        released = self.file.with_name(self.file.name + RELEASED)
        until = time.monotonic() + HOLD_S
        while not released.exists() and time.monotonic() < until:
            self.file.touch()
            time.sleep(POLL_S)


def hold_records(hold: Hold, column: str, batches: Iterator[Any]) -> Iterator[Any]:
    """A function for ``mapInArrow``: all records of the task are there, and none is passed on."""
    found = list(batches)
    offsets = [offset for batch in found for offset in batch.column(column).to_pylist()]
    if offsets and max(offsets) >= hold.batch * PER_BATCH:
        hold.wait()
    yield from found


def decode_and_hold(frame: DataFrame, plan: Any, **options: Any) -> DataFrame:
    """``decode`` of the product, with the step of a held pipeline before or after it."""
    hold = _held_plans.get(id(plan))
    if hold is None:
        return _decode(frame, plan, **options)
    if hold.point == FETCHED:
        return _decode(frame.mapInArrow(partial(hold_records, hold, "offset"), frame.schema), plan, **options)
    decoded = _decode(frame, plan, **options)
    return decoded.mapInArrow(partial(hold_records, hold, source_column("offset")), decoded.schema)


def hold_tasks() -> None:
    """From now on the tasks of held pipelines wait."""
    batch_writer.decode = decode_and_hold


class PipelineLife:
    """The commands of one pipeline, on a thread of their own; ``tell`` gets ``ended`` with the error, or None."""

    def __init__(self, session: SparkSession, said: dict[str, Any], tell: Callable[..., None], starting: Any) -> None:
        self._session = session
        self._said = said
        self._tell = tell
        self._starting = starting
        self._thread = threading.Thread(target=self._run, name=said["query"], daemon=True)
        self._thread.start()

    def _run(self) -> None:
        name, error = self._said["query"], None
        try:
            *before, last = self._said["steps"]
            for step in before:
                self._repeat(step, None)
            hold = self._said["hold"]
            file = Path(os.environ["ZKC_SPARK_FAULT_FILE"], name)
            self._repeat(last, None if hold is None else Hold(hold["point"], hold["batch"], file))
        except Exception as failure:  # noqa: BLE001
            traceback.print_exc()
            error = f"{type(failure).__name__}: {failure}"[:4000]
        self._tell("ended", query=name, error=error)

    def _repeat(self, step: dict[str, Any], hold: Hold | None) -> None:
        """The command, again where Spark gave up on a Python process that was slow to start."""
        for left in reversed(range(STARTS_MAX)):
            prepared = self._prepared(step, hold)
            try:
                self._do(step["command"], prepared, hold)
                return
            except Exception as error:
                if not left or TOO_SLOW not in f"{error} {error.__cause__}":
                    raise
            finally:
                prepared.close()

    def _prepared(self, step: dict[str, Any], hold: Hold | None) -> PreparedPipeline:
        spec = read_pipeline(Path(step["file"]))
        with self._starting:
            prepared = prepare_pipeline(self._session, spec, os.environ, lambda path: Path(path).read_bytes())
        if hold is None:
            return prepared
        if hold.point in (FETCHED, DECODED):
            # A plan of its own: plans of equal files could be one object.
            prepared = replace(prepared, decoding=replace(prepared.decoding))
            _held_plans[id(prepared.decoding)] = hold
        if hold.point == SENT:
            assert isinstance(prepared.sink, TopicSink)
            hold_after_send(prepared.sink, hold)
        return prepared

    def _do(self, command: str, prepared: PreparedPipeline, hold: Hold | None) -> None:
        def reached(point: str, batch: int) -> None:
            if hold is not None:
                hold.reached(POINT_OF[point], batch)

        def report(batch: Any) -> None:
            self._tell("batch", query=self._said["query"], batch=batch.lineage.batch, repeated=batch.is_repeated)

        match command:
            case _ if command == RUN:
                self._run_query(prepared, reached, report)
            case _ if command == REPLAY:
                request = ReplayRequest(None, None, LETTERS_OF_A_BATCH)
                replay(prepared, request, SYSTEM_CLOCK.wall_ms, on_batch=report, reached=reached)
            case _:
                assert command in (BACKFILL, REPLACE), command
                most = (PER_BATCH if command == REPLACE else PER_BATCH // 2) * len(PARTITIONS)
                bounds = parse_bounds("earliest", None, None, None)
                wanted = BackfillRequest(bounds, is_replacement=command == REPLACE, batch_offsets_max=most)
                backfill(prepared, wanted, SYSTEM_CLOCK.wall_ms, on_batch=report, reached=reached)

    def _run_query(self, prepared: PreparedPipeline, reached: Callable[[str, int], None], report: Any) -> None:
        running: list[RunningPipeline] = []

        def start() -> Any:
            running.append(start_pipeline(prepared, SYSTEM_CLOCK.wall_ms, on_batch=report, reached=reached))
            return running[-1].query

        with self._starting:
            started(start)
        while not running[-1].wait(WAIT_MS):
            pass


def hold_after_send(sink: TopicSink, hold: Hold) -> None:
    """The sink waits when the brokers have all records of the batch, before it stores the lineage."""
    send = sink._send

    def send_and_hold(frame: DataFrame, task: Any) -> int:
        sent = send(frame, task)
        hold.reached(SENT, int(task.batch))
        return sent

    sink._send = send_and_hold
