"""``zkconsumer pipeline backfill``: reads offsets into the table of a pipeline, beside its live query."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.commands.pipeline_options import parse_time, pipeline_file, read_secret_file, session_options
from bridge.spark.pipeline.backfill.backfill_bounds import parse_bounds
from bridge.spark.pipeline.pipeline_session import pipeline_spark_session, require_spark
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.cli.common import print_json
from zkconsumer.cli.console import print_message
from zkconsumer.cli.options import OutputFormat, output_option
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from bridge.spark.pipeline.backfill.backfill_run import BackfillReport, BackfillRequest
    from bridge.spark.pipeline.batch_writer import WrittenBatch
    from bridge.spark.pipeline.pipeline_spec import PipelineSpec

SCHEMA = "zkconsumer/pipeline-backfill/1"
BATCH_OFFSETS = 1_000_000


@click.command(short_help="Read offsets again, beside the live query.")
@pipeline_file
@click.option("--from", "from_offsets", metavar="OFFSETS", help='earliest, or JSON: {"topic": {"0": 5}}.')
@click.option("--from-time", metavar="TIME", help="The first records at or after this time.")
@click.option(
    "--to", "to_offsets", metavar="OFFSETS",
    help="latest, or JSON with the offsets after the last ones.  [default: what the live query has yet to read]",
)  # fmt: skip
@click.option("--to-time", metavar="TIME", help="Up to the first records at or after this time.")
@click.option(
    "--replace", "is_replacement", is_flag=True,
    help="Delete the rows of these offsets, and write them again in the same commit (Delta, PostgreSQL).",
)  # fmt: skip
@click.option(
    "--batch-offsets", default=BATCH_OFFSETS, show_default=True, type=click.IntRange(1), metavar="N",
    help="Offsets of one commit.",
)  # fmt: skip
@click.option("--abandon", metavar="ID", help="Release what a backfill or replay that is not repeated has reserved.")
@session_options
@output_option
def backfill(
    file: Path,
    from_offsets: str | None,
    from_time: str | None,
    to_offsets: str | None,
    to_time: str | None,
    is_replacement: bool,
    batch_offsets: int,
    abandon: str | None,
    master: str | None,
    settings: dict[str, str],
    output: OutputFormat,
) -> None:
    """Read offsets into the table of a pipeline, beside its live query.

    The command reserves the offsets that no batch has read, and reads them in batches. It joins no group and moves no
    offset. What the live query has yet to read is refused. After a crash repeat the same command: it continues.
    TIME is YYYY-MM-DDTHH:mm:SS, in UTC or with a zone, or ms since 1970.
    """
    bounds = (from_offsets, to_offsets, parse_time("--from-time", from_time), parse_time("--to-time", to_time))
    if abandon is not None and (is_replacement or bounds != (None,) * 4):
        raise UsageError("--abandon releases a reservation and reads nothing; give it alone")
    found = None if abandon is not None else parse_bounds(*bounds)
    require_spark()
    from bridge.spark.pipeline.backfill.backfill_run import BackfillRequest
    from bridge.spark.pipeline.pipeline_file import read_pipeline

    spec = read_pipeline(file)
    for warning in spec.warnings:
        print_message(warning)
    if found is None:
        assert abandon is not None, "there are bounds, or an id"
        _abandon(spec, abandon, master, settings, output)
        return
    request = BackfillRequest(found, is_replacement, batch_offsets)
    _print_report(_backfill(spec, request, master, settings), spec, output)


def _backfill(
    spec: PipelineSpec, request: BackfillRequest, master: str | None, settings: dict[str, str]
) -> BackfillReport:
    from bridge.spark.pipeline.backfill.backfill_run import backfill as run_backfill
    from bridge.spark.pipeline.pipeline_query import prepare_pipeline

    with pipeline_spark_session(spec, master, settings) as spark:
        prepared = prepare_pipeline(spark, spec, os.environ, read_secret_file)
        try:
            return run_backfill(prepared, request, SYSTEM_CLOCK.wall_ms, on_batch=_print_batch)
        finally:
            prepared.close()


def _abandon(
    spec: PipelineSpec, query: str, master: str | None, settings: dict[str, str], output: OutputFormat
) -> None:
    from bridge.spark.pipeline.backfill.backfill_run import abandon
    from bridge.spark.pipeline.hadoop_session import apply_hadoop_settings
    from bridge.spark.pipeline.sinks.sink_choice import open_sink

    with pipeline_spark_session(spec, master, settings) as spark:
        apply_hadoop_settings(spark, spec, os.environ, read_secret_file)
        report = abandon(open_sink(spec.sink, spark), query)
    if output == "json":
        print_json({"schema": SCHEMA, "id": query, "released": {"batches": report.batches, "offsets": report.offsets}})
    print_message(f"{query}: {report.batches} batches with {report.offsets} offsets are released")


def _print_batch(batch: WrittenBatch) -> None:
    lineage, counts = batch.lineage, batch.lineage.counts
    if batch.is_repeated:
        print_message(f"batch {lineage.batch}: is in the target already; nothing was written")
        return
    print_message(
        f"batch {lineage.batch}: {lineage.offsets} offsets, {counts.rows} rows, {counts.dead_letters} dead letters, "
        f"{counts.filtered} filtered"
    )


def _print_report(report: BackfillReport, spec: PipelineSpec, output: OutputFormat) -> None:
    counts = report.counts
    if output == "json":
        print_json(
            {
                "schema": SCHEMA,
                "id": report.query,
                "has_live_query": report.has_live_query,
                "covered_offsets": report.covered,
                "batches": report.batches,
                "repeated_batches": report.repeated,
                "offsets": report.offsets,
                "deleted_rows": report.deleted_rows,
                "rows": counts.rows,
                "dead_letters": counts.dead_letters,
                "filtered": counts.filtered,
                "skipped_offsets": counts.skipped_offsets,
            }
        )
    deleted = f", {report.deleted_rows} rows were deleted" if report.deleted_rows else ""
    print_message(
        f"{spec.name}: {report.query}: {report.batches} batches, {report.offsets} offsets, {counts.rows} rows, "
        f"{counts.dead_letters} dead letters, {counts.filtered} filtered{deleted}; {report.covered} offsets were "
        "there before"
    )
    if not report.has_live_query:
        print_message(
            "there is no query with this checkpoint yet: one that begins later does not leave out what the backfill "
            "has written; let it begin at the group's offset (startingOffsets), which is after these offsets"
        )
