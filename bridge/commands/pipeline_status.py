"""``zkconsumer pipeline status``: the phase, the last batch, the offsets and the lag of a pipeline."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import click

from bridge.commands.pipeline_options import json_option, pipeline_file, read_secret_file
from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.status.status_report import PipelineStatus, read_pipeline_status, status_json, total_lag
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.admin.text_format import duration_text
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.common import EXIT_FAILED, print_json, print_not_known, print_table, utc_text
from zkconsumer.cli.console import log_to_console
from zkconsumer.cli.options import OutputFormat

STATUS_COLUMNS = ("TOPIC", "PARTITION", "IN-SINK", "PLANNED", "GROUP-OFFSET", "LOG-END", "LAG")


@click.command(short_help="Show phase, last batch and lag.")
@pipeline_file
@json_option
def status(file: Path, output: OutputFormat) -> None:
    """Show the phase of a pipeline, its last batch, its offsets and lag, its dead letters and its last error.

    The command needs no Spark session, and works while the pipeline runs in another process and after it ended. The
    phase is never-started, running, stopped (by a signal), finished (available-now), failed or unknown. Only a
    checkpoint on this machine has a status file; without it the phase is unknown.

    Exit codes: 0 shown, 1 a part is unknown, 2 the file is wrong.
    """
    context = click.get_current_context()
    log_to_console()
    spec = read_pipeline(file)
    dependencies = context.find_object(AdminDependencies)
    now_ms = SYSTEM_CLOCK.wall_ms()
    found = read_pipeline_status(spec, os.environ, read_secret_file, dependencies, now_ms)
    code = EXIT_FAILED if found.not_known else 0
    if output == "json":
        print_json(status_json(found, code))
    else:
        for line in _lines(found, now_ms):
            click.echo(line)
        if found.partitions:
            click.echo()
            print_table(
                STATUS_COLUMNS,
                (
                    (
                        *(each.tp.topic, each.tp.partition, each.reached, each.planned, each.group_offset),
                        *("?" if value is None else value for value in (each.log_end, each.lag)),
                    )
                    for each in found.partitions
                ),
                ("PLANNED", "LOG-END"),
            )
    print_not_known(found.not_known)
    context.exit(code)


def _lines(found: PipelineStatus, now_ms: int) -> Iterator[str]:
    text = f" ({found.phase.text})" if found.phase.text else ""
    yield f"{found.pipeline}: {found.phase.phase.value}{text}"
    if found.query is not None:
        yield f"query         {found.query}"
    if found.state is not None:
        yield f"last start    {utc_text(found.state.started_ms)}"
    last = found.last
    if last is not None:
        batch = last[1]
        counts = batch.counts
        ago = duration_text(max(0, now_ms - batch.created_ms))
        yield (
            f"last batch    {batch.batch}, {ago} ago: {counts.rows} rows, {counts.dead_letters} dead letters, "
            f"{counts.filtered} filtered"
        )
    for pending in found.checkpoint.pending:
        yield f"begun         batch {pending.batch}, not finished yet"
    if found.totals is not None:
        counts = found.totals.counts
        yield (
            f"in the sink   {found.totals.batches} batches: {counts.rows} rows, {counts.dead_letters} dead letters, "
            f"{counts.filtered} filtered"
        )
    lag = total_lag(found.partitions)
    if found.partitions:
        yield f"lag           {'?' if lag is None else lag}"
    if found.state is not None and found.state.error is not None:
        yield f"last error    {utc_text(found.state.error.at_ms)}: {found.state.error.text}"
