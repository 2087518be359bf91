"""``RunRecorder``: what a run of a pipeline calls, and the values that it writes and serves.

    started --batch written, beat--> running --end--> stopped, finished or failed

``on_batch`` is called in the thread of Spark's ``foreachBatch``, ``beat`` and ``end`` in that of the command; one lock
covers the state.  A state that cannot be written never ends a run: the error is reported once.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.spark.pipeline.status.run_phase import BEAT_MS
from bridge.spark.pipeline.status.run_state import (
    InvalidRunStateError,
    RunBatch,
    RunEnd,
    RunError,
    RunProcess,
    RunState,
)
from bridge.spark.pipeline.status.run_state_file import read_run_state, write_run_state
from zkconsumer.base.clock import Clock
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from bridge.spark.pipeline.batch_writer import WrittenBatch


class RunRecorder:
    """The state of one run.  ``path`` None: the checkpoint is not on this machine, and nothing is written.

    ``report``: called with a sentence if the state cannot be written.
    """

    def __init__(
        self,
        path: Path | None,
        pipeline: str,
        process: RunProcess,
        clock: Clock,
        report: Callable[[str], None],
    ) -> None:
        self._path = path
        self._clock = clock
        self._report = report
        self._has_reported = False
        self._lock = threading.Lock()
        self._lag: Mapping[TopicPartition, int] = {}
        self._beat_due_ms = clock.now_ms()
        now_ms = clock.wall_ms()
        self._state = RunState(pipeline, "running", process, now_ms, now_ms, error=self._last_error())
        self._write()

    @property
    def state(self) -> RunState:
        """The present state."""
        with self._lock:
            return self._state

    @property
    def lag(self) -> Mapping[TopicPartition, int]:
        """Offsets between the end of the newest planned batch and the end of each log, as last reported."""
        with self._lock:
            return self._lag

    def on_batch(self, written: WrittenBatch) -> None:
        """A batch is in the sink; one that was there before does not count."""
        lineage = written.lineage
        counts = lineage.counts
        with self._lock:
            state = replace(self._state, query=lineage.query, beat_ms=self._clock.wall_ms())
            if not written.is_repeated:
                state = replace(
                    state,
                    batches=state.batches + 1,
                    counts=state.counts + counts,
                    last_batch=RunBatch(lineage.batch, self._clock.wall_ms(), counts),
                )
            self._state = state
        self._write()

    def beat(self, lag: Callable[[], Mapping[TopicPartition, int]]) -> None:
        """The run works; does nothing if the last beat is younger than ``BEAT_MS``.  ``lag``: asked for then."""
        if self._clock.now_ms() < self._beat_due_ms:
            return
        self._beat_due_ms = self._clock.now_ms() + BEAT_MS
        found = lag()
        with self._lock:
            self._lag = found
            self._state = replace(self._state, beat_ms=self._clock.wall_ms())
        self._write()

    def end(self, phase: RunEnd, error: str = "") -> None:
        """The run has ended.  ``error``: with ``failed``."""
        now_ms = self._clock.wall_ms()
        with self._lock:
            self._state = replace(self._state, phase=phase, beat_ms=now_ms)
            if error:
                self._state = replace(self._state, error=RunError(now_ms, error))
        self._write()

    def _last_error(self) -> RunError | None:
        """Of the run before, which an operator may not have seen yet."""
        if self._path is None:
            return None
        try:
            state = read_run_state(self._path)
        except InvalidRunStateError:
            return None
        return None if state is None else state.error

    def _write(self) -> None:
        if self._path is None:
            return
        try:
            with self._lock:
                write_run_state(self._path, self._state)
        except OSError as error:
            if not self._has_reported:
                self._has_reported = True
                self._report(f"{self._path}: the status cannot be written ({error.strerror}); the pipeline goes on")
