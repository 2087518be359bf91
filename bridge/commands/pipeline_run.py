"""``zkconsumer pipeline run``: reads a group into the target of a pipeline file."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.commands.pipeline_options import pipeline_file, read_secret_file, session_options
from bridge.spark.membership.metrics import MetricsServer
from bridge.spark.pipeline.pipeline_session import pipeline_spark_session, require_spark
from bridge.spark.pipeline.status.pipeline_metrics import render_pipeline_metrics
from bridge.spark.pipeline.status.run_phase import ProcessSight
from bridge.spark.pipeline.status.run_recorder import RunRecorder
from bridge.spark.pipeline.status.run_state import InvalidRunStateError
from bridge.spark.pipeline.status.run_state_file import read_run_state, run_state_path, sight_of, this_process
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.console import print_message
from zkconsumer.errors import ZkConsumerError

if TYPE_CHECKING:
    from bridge.spark.pipeline.batch_writer import WrittenBatch
    from bridge.spark.pipeline.pipeline_spec import PipelineSpec

WAIT_MS = 500
DEFAULT_GRACE_S = 300


class _Totals:
    """What the run has written, and whether a signal came."""

    def __init__(self, recorder: RunRecorder) -> None:
        self._recorder = recorder
        self.rows = self.dead_letters = self.filtered = self.batches = 0
        self.signal: signal.Signals | None = None

    def on_batch(self, batch: WrittenBatch) -> None:
        self._recorder.on_batch(batch)
        counts = batch.lineage.counts
        if batch.is_repeated:
            print_message(f"batch {batch.lineage.batch}: is in the target already; nothing was written")
            return
        self.batches += 1
        self.rows += counts.rows
        self.dead_letters += counts.dead_letters
        self.filtered += counts.filtered
        print_message(f"batch {batch.lineage.batch}: {_counts_text(counts.rows, counts.dead_letters, counts.filtered)}")

    def handle_signals(self) -> None:
        """Note SIGTERM and Ctrl-C."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._on_signal)

    def _on_signal(self, number: int, _: Any) -> None:
        self.signal = signal.Signals(number)


@click.command(short_help="Run a pipeline.")
@pipeline_file
@session_options
@click.option(
    "--grace",
    "grace_s",
    default=DEFAULT_GRACE_S,
    show_default=True,
    type=click.IntRange(0),
    metavar="SECONDS",
    help="After SIGTERM or Ctrl-C: how long the batch that runs may take to its end.",
)
def run(file: Path, master: str | None, settings: dict[str, str], grace_s: int) -> None:
    """Read a group into the target of a pipeline file: exactly once, and into a topic at least once.

    With available-now in [trigger] the command ends when it has read what was there; with an interval it runs until
    SIGTERM or Ctrl-C, finishes its batch and ends. The next run continues from the checkpoint. A status file beside a
    local checkpoint is for zkconsumer pipeline status and zkconsumer health --pipeline; listen in [metrics] serves
    batches, rows, dead letters and lag to Prometheus.
    """
    require_spark()
    from bridge.spark.pipeline.pipeline_file import read_pipeline
    from bridge.spark.pipeline.pipeline_query import prepare_pipeline, spark_failures, start_pipeline

    spec = read_pipeline(file)
    recorder = _recorder(spec)
    for warning in spec.warnings:
        print_message(warning)
    totals = _Totals(recorder)
    totals.handle_signals()
    session = pipeline_spark_session(spec, master, settings)
    failures = spark_failures(spec.name, "start the pipeline again, it continues from its checkpoint")
    with _recorded(recorder), _metrics_server(spec, recorder), failures, session as spark:
        totals.handle_signals()  # a session of Spark has replaced the handler of Ctrl-C
        prepared = prepare_pipeline(spark, spec, os.environ, read_secret_file)
        try:
            running = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms, on_batch=totals.on_batch)
            beat = partial(recorder.beat, running.lag)
            while totals.signal is None and not running.wait(WAIT_MS):
                beat()
            if totals.signal is not None:
                print_message(f"{totals.signal.name}: the pipeline ends after its batch, at the latest in {grace_s} s")
                late = ""
                if not running.stop(grace_s * 1000, SYSTEM_CLOCK.now_ms, on_wait=beat):
                    late = "the batch was not finished in time; the next run repeats it"
                    print_message(late)
                recorder.end("stopped", late)
        finally:
            prepared.close()
    print_message(
        f"{spec.name}: {totals.batches} batches, {_counts_text(totals.rows, totals.dead_letters, totals.filtered)}"
    )


def _recorder(spec: PipelineSpec) -> RunRecorder:
    """The status of this run; that of another run that lives is left alone."""
    path = run_state_path(spec.checkpoint.path)
    if path is not None:
        try:
            other = read_run_state(path)
        except InvalidRunStateError as error:
            print_message(str(error))
            other = None
        if other is not None and other.phase == "running" and sight_of(other.process) is ProcessSight.LIVES:
            print_message(f"process {other.process.pid} runs this pipeline, too; its status is not overwritten")
            path = None
    return RunRecorder(path, spec.name, this_process(), SYSTEM_CLOCK, print_message)


@contextmanager
def _recorded(recorder: RunRecorder) -> Iterator[None]:
    """Records how the run ends."""
    try:
        yield
    except ZkConsumerError as error:
        recorder.end("failed", str(error))
        raise
    except BaseException as error:
        recorder.end("failed", f"{type(error).__name__}: {error}")
        raise
    if recorder.state.phase == "running":
        recorder.end("finished")


@contextmanager
def _metrics_server(spec: PipelineSpec, recorder: RunRecorder) -> Iterator[None]:
    """Serves the metrics of this run at ``[metrics] listen``, if it is given."""
    if spec.metrics.listen is None:
        yield
        return

    def text() -> str:
        return render_pipeline_metrics(recorder.state, recorder.lag, SYSTEM_CLOCK.wall_ms())

    def report(name: str, error: BaseException) -> None:
        print_message(f"{name}: {error!r}; the metrics are not served any more, and the pipeline goes on")

    server = MetricsServer(spec.metrics.listen, text, report)
    try:
        yield
    finally:
        server.close()


def _counts_text(rows: int, dead_letters: int, filtered: int) -> str:
    return f"{rows} rows, {dead_letters} dead letters, {filtered} filtered"
