"""``zkconsumer pipeline replay``: reads dead letters again, through a corrected pipeline file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.commands.pipeline_options import parse_time, pipeline_file, read_secret_file, session_options
from bridge.spark.pipeline.dead_letters import STAGES
from bridge.spark.pipeline.pipeline_session import pipeline_spark_session, require_spark
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.common import print_json
from zkconsumer.cli.console import print_message
from zkconsumer.cli.options import OutputFormat, output_option
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from bridge.spark.pipeline.batch_writer import WrittenBatch
    from bridge.spark.pipeline.replay.replay_run import ReplayReport

SCHEMA = "zkconsumer/pipeline-replay/1"
BATCH_LETTERS = 10_000
FETCH = STAGES[0]


@click.command(short_help="Read dead letters again.")
@pipeline_file
@click.option("--stage", type=click.Choice(STAGES), help="Only letters of this stage.  [default: all but fetch]")
@click.option("--since", metavar="TIME", help="Only letters that were written at or after this time.")
@click.option(
    "--batch-letters", default=BATCH_LETTERS, show_default=True, type=click.IntRange(1), metavar="N",
    help="Dead letters of one commit.",
)  # fmt: skip
@session_options
@output_option
def replay(
    file: Path,
    stage: str | None,
    since: str | None,
    batch_letters: int,
    master: str | None,
    settings: dict[str, str],
    output: OutputFormat,
) -> None:
    """Read the dead letters of a pipeline again, after its file or a schema was corrected.

    Records that are good now are written once; the commit of their rows has their offsets, so another replay leaves
    them out. The others stay dead letters, unchanged. The topics are not read. After a crash repeat the command.
    TIME is YYYY-MM-DDTHH:mm:SS, in UTC or with a zone, or ms since 1970.
    """
    if stage == FETCH:
        raise UsageError(
            "--stage fetch: these records could not be read, so there is nothing to decode again; when the brokers can "
            "read them, use: zkconsumer pipeline backfill FILE --replace --from OFFSETS --to OFFSETS"
        )
    since_ms = parse_time("--since", since)
    require_spark()
    from bridge.spark.pipeline.pipeline_file import read_pipeline
    from bridge.spark.pipeline.pipeline_query import prepare_pipeline
    from bridge.spark.pipeline.replay.replay_run import ReplayRequest
    from bridge.spark.pipeline.replay.replay_run import replay as run_replay

    spec = read_pipeline(file)
    for warning in spec.warnings:
        print_message(warning)
    request = ReplayRequest(stage, since_ms, batch_letters)
    with pipeline_spark_session(spec, master, settings) as spark:
        prepared = prepare_pipeline(spark, spec, os.environ, read_secret_file)
        try:
            report = run_replay(prepared, request, SYSTEM_CLOCK.wall_ms, on_batch=_print_batch)
        finally:
            prepared.close()
    _print_report(report, spec.name, output)


def _print_batch(batch: WrittenBatch) -> None:
    counts = batch.lineage.counts
    print_message(f"batch {batch.lineage.batch}: {counts.rows} rows, {counts.filtered} filtered")


def _print_report(report: ReplayReport, name: str, output: OutputFormat) -> None:
    if output == "json":
        print_json(
            {
                "schema": SCHEMA,
                "id": report.query,
                "batches": report.batches,
                "rows": report.rows,
                "filtered": report.filtered,
                "still_dead": report.still_dead,
                "errors": [{"place": place, "error": error} for place, error in report.shown],
                "left_out": {state.name.lower(): count for state, count in report.sorted_others()},
            }
        )
    for place, error in report.shown:
        print_message(f"dead letter: {place}: {error}")
    for state, count in report.sorted_others():
        print_message(f"{count} records left out: {state.value}")
    print_message(
        f"{name}: {report.query}: {report.batches} batches, {report.rows} rows, {report.filtered} filtered, "
        f"{report.still_dead} still dead letters"
    )
