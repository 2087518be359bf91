"""``zkconsumer pipeline audit``: compares the logs with the lineage and the sink of a pipeline."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import click

from bridge.commands.pipeline_options import json_option, pipeline_file, read_secret_file
from bridge.spark.pipeline.pipeline_session import require_spark
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.cli.common import EXIT_DIFFERS, EXIT_FAILED, print_json, print_table
from zkconsumer.cli.console import log_to_console, print_message
from zkconsumer.cli.options import OutputFormat

LOG_MEBIBYTES = 256
TIME_LIMIT_S = 120


@click.command(short_help="Explain each gap between the logs and the rows.")
@pipeline_file
@click.option(
    "--by",
    type=click.Choice(["day", "hour", "none"]),
    default="day",
    show_default=True,
    help="Also show the offsets by hours or days of the messages' times, in UTC.",
)
@click.option(
    "--log-mebibytes",
    type=click.IntRange(min=0),
    default=LOG_MEBIBYTES,
    show_default=True,
    metavar="N",
    help="Fetch at most so much of the logs, where numbers of offsets alone do not close.",
)
@click.option(
    "--time-limit",
    "time_limit_s",
    type=click.IntRange(min=1),
    default=TIME_LIMIT_S,
    show_default=True,
    metavar="SECONDS",
    help="For counting the rows of the target, and again for reading the logs.",
)
@json_option
def audit(
    file: Path,
    by: Literal["day", "hour", "none"],
    log_mebibytes: int,
    time_limit_s: int,
    output: OutputFormat,
) -> None:
    """Compare the logs of the topics with the offset ranges, the counts and the rows in the target of a pipeline.

    Each offset that became no row has a reason: dead-letters, filtered, passed-over (skipOffsets), replayed,
    compaction, transaction-markers, aborted-transactions, retention, other-members (of the group), before-start,
    in-progress, not-yet-read, reserved, topic-deleted; or it is read-twice, rows-missing or unexplained. Nothing is
    changed; the pipeline may be running.

    Exit codes: 0 every gap is explained, 1 a part could not be checked, 3 something is missing, double or unexplained,
    4 the lineage is damaged.
    """
    require_spark()
    from bridge.spark.pipeline.audit.audit_report import (
        BUCKET_COLUMNS,
        FINDING_COLUMNS,
        PARTITION_COLUMNS,
        AuditReport,
        bucket_cells,
        finding_cells,
        partition_cells,
        report_json,
        summary_lines,
    )
    from bridge.spark.pipeline.audit.audit_run import AuditLimits, audit_pipeline, pipeline_session
    from bridge.spark.pipeline.pipeline_file import read_pipeline

    context = click.get_current_context()
    log_to_console()
    spec = read_pipeline(file)
    limits = AuditLimits(log_mebibytes << 20, time_limit_s * 1000)
    dependencies = context.find_object(AdminDependencies)
    with pipeline_session(spec, os.environ, read_secret_file, dependencies) as (session, options):
        report: AuditReport = audit_pipeline(spec, session, options, None if by == "none" else by, limits)
    code = EXIT_DIFFERS if report.missing else EXIT_FAILED if report.not_checked else 0
    if output == "json":
        print_json(report_json(report, code))
    else:
        print_table(PARTITION_COLUMNS, partition_cells(report), ("LOG-START", "LOG-END"))
        if report.buckets:
            click.echo()
            print_table(BUCKET_COLUMNS, bucket_cells(report))
        if report.findings:
            click.echo()
            print_table(FINDING_COLUMNS, finding_cells(report), ("END",))
        for line in summary_lines(report):
            print_message(line)
    context.exit(code)
