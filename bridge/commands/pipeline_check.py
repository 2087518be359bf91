"""``zkconsumer pipeline check``: resolves a pipeline file, reads ten records, and changes nothing."""

from __future__ import annotations

import os
from pathlib import Path

import click

from bridge.commands.pipeline_options import pipeline_file, read_secret_file, session_options
from bridge.spark.pipeline.pipeline_session import pipeline_spark_session, require_spark
from zkconsumer.cli.common import print_table
from zkconsumer.cli.console import print_message

RECORDS = 10
CELL_CHARS_MAX = 40


@click.command(short_help="Check a pipeline file, and show rows.")
@pipeline_file
@session_options
def check(file: Path, master: str | None, settings: dict[str, str]) -> None:
    """Check a pipeline file and show the rows that would be written of ten records. Nothing is changed.

    The command reads schemas and secrets, checks the SQL, the target and the servers, and reads up to ten records at
    the start of the topics, without a membership in the group.
    """
    require_spark()
    from bridge.spark.pipeline.delivery_notes import delivery_notes
    from bridge.spark.pipeline.pipeline_file import read_pipeline
    from bridge.spark.pipeline.pipeline_query import prepare_pipeline
    from bridge.spark.pipeline.pipeline_sample import read_sample

    spec = read_pipeline(file)
    for warning in spec.warnings:
        print_message(warning)
    with pipeline_spark_session(spec, master, settings) as spark:
        prepared = prepare_pipeline(spark, spec, os.environ, read_secret_file)
        try:
            sample = read_sample(prepared, RECORDS)
        finally:
            prepared.close()
    if sample.rows:
        print_table(prepared.schema.names, [[_cell(value) for value in row] for row in sample.rows])
    print_message(
        f"{spec.file}: {sample.records} records were read: {len(sample.rows)} rows, {sample.filtered} filtered, "
        f"{len(sample.dead)} dead letters. Nothing was changed. Next: zkconsumer pipeline run {spec.file}"
    )
    for note in delivery_notes(spec):
        print_message(note)
    for place, error in sample.dead:
        print_message(f"dead letter: {place}: {error}")


def _cell(value: object) -> str:
    text = "null" if value is None else str(value)
    return text if len(text) <= CELL_CHARS_MAX else f"{text[: CELL_CHARS_MAX - 1]}…"
