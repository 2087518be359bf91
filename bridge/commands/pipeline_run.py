"""``zkconsumer pipeline run``: reads a group into the target of a pipeline file."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from bridge.commands.pipeline_options import pipeline_file, read_secret_file, session_options
from bridge.spark.pipeline.pipeline_session import require_spark, spark_session
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.console import print_message

if TYPE_CHECKING:
    from bridge.spark.pipeline.batch_writer import WrittenBatch

WAIT_MS = 500
DEFAULT_GRACE_S = 300


class _Totals:
    """What the run has written, and whether a signal came."""

    def __init__(self) -> None:
        self.rows = self.dead_letters = self.filtered = self.batches = 0
        self.signal: signal.Signals | None = None

    def on_batch(self, batch: WrittenBatch) -> None:
        counts = batch.lineage.counts
        if batch.is_repeated:
            print_message(f"batch {batch.lineage.batch}: is in the target already; nothing was written")
            return
        self.batches += 1
        self.rows += counts.rows
        self.dead_letters += counts.dead_letters
        self.filtered += counts.filtered
        print_message(f"batch {batch.lineage.batch}: {_counts_text(counts.rows, counts.dead_letters, counts.filtered)}")

    def on_signal(self, number: int, _: Any) -> None:
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
    """Read a group into the target of a pipeline file, exactly once.

    With available-now in [trigger] the command ends when it has read what was there; with an interval it runs until
    SIGTERM or Ctrl-C, finishes its batch and ends. The next run continues from the checkpoint.
    """
    require_spark()
    from bridge.spark.pipeline.pipeline_file import read_pipeline
    from bridge.spark.pipeline.pipeline_query import prepare_pipeline, start_pipeline

    spec = read_pipeline(file)
    for warning in spec.warnings:
        print_message(warning)
    totals = _Totals()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, totals.on_signal)
    with spark_session(spec.name, master, settings, writes_delta=spec.writes_delta) as spark:
        prepared = prepare_pipeline(spark, spec, os.environ, read_secret_file)
        try:
            running = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms, on_batch=totals.on_batch)
            while totals.signal is None and not running.wait(WAIT_MS):
                pass
            if totals.signal is not None:
                print_message(f"{totals.signal.name}: the pipeline ends after its batch, at the latest in {grace_s} s")
                if not running.stop(grace_s * 1000, SYSTEM_CLOCK.now_ms):
                    print_message("the batch was not finished in time; the next run repeats it")
        finally:
            prepared.close()
    print_message(
        f"{spec.name}: {totals.batches} batches, {_counts_text(totals.rows, totals.dead_letters, totals.filtered)}"
    )


def _counts_text(rows: int, dead_letters: int, filtered: int) -> str:
    return f"{rows} rows, {dead_letters} dead letters, {filtered} filtered"
