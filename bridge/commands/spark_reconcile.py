"""``zkconsumer spark reconcile``: sets the group's offsets by a query's checkpoint after a crash."""

from __future__ import annotations

import click

from bridge.spark.handoff.reconcile import ReconcileReport, execute_reconcile, plan_reconcile
from bridge.spark.handoff.reconcile_plan import ReconcileRow
from bridge.spark.source.offset_selection import StoredOffsetConvention
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.offset_lines import OffsetStoreName
from zkconsumer.admin.offset_plan import REJECTIONS_SHOWN_MAX, partitions_text
from zkconsumer.cli.command_hints import rerun_with_execute
from zkconsumer.cli.common import EXIT_DIFFERS, EXIT_PARTIAL, open_zookeeper_session, print_json, print_table
from zkconsumer.cli.console import print_error, print_message
from zkconsumer.cli.main import EXIT_PRECONDITION
from zkconsumer.cli.offsets_common import execute_option, offset_count_text, selected_stores, store_option
from zkconsumer.cli.options import ClusterOptions, OutputFormat, choice_option, group_argument, report_options
from zkconsumer.types import TopicPartition

SCHEMA = "zkconsumer/spark-reconcile/1"
RECONCILE_COLUMNS = "TOPIC", "PARTITION", "STORE", "GROUP-NOW", "COMMITTED", "CLAIMED", "NEW-OFFSET", "DECISION"


@click.command(short_help="Set a group's offsets by a checkpoint.")
@group_argument()
@click.option(
    "--checkpoint",
    required=True,
    metavar="DIR",
    help="The query's checkpointLocation: a folder of this machine, or a file: URI.",
)
@click.option(
    "--rewind",
    is_flag=True,
    help="For an abandoned checkpoint: reset the group to the start of claimed batches that are not done.",
)
@click.option("--source", metavar="N", help="Only this source of the query, by its number or name in the checkpoint.")
@store_option("The store for the offsets; both: for groups with dual commit.")
@choice_option(
    "--offset-convention",
    ["next", "last-consumed"],
    "next",
    "What the group's stored offsets mean; the command writes next offsets.",
    parameter="convention",
)
@click.option("--allow-members", is_flag=True, help="Allow registered members; change only unowned partitions.")
@execute_option
@report_options
def reconcile(
    context: click.Context,
    group: str,
    checkpoint: str,
    rewind: bool,
    source: str | None,
    store: str,
    convention: StoredOffsetConvention,
    allow_members: bool,
    do_it: bool,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> None:
    """Set the offsets of a group by the checkpoint of a Spark query, after a crash.

    The command moves the group's offsets forward to the end of the last completed batch, for format("zkconsumer") and
    for format("kafka"); never back. With --rewind it resets them to the start of a claimed batch that is not complete,
    if no other member has read further: another checkpoint, or another member, then reads that batch. Without --execute
    nothing is written.

    The command refuses a group with registered members. Exit codes: 0 done or nothing to do, 3 would change something,
    4 refused and nothing changed, 6 written in part.
    """
    session = open_zookeeper_session(context, cluster)
    report = plan_reconcile(
        session, group, checkpoint, rewind=rewind, stores=selected_stores(session, store), convention=convention,
        source=source, allow_members=allow_members,
    )  # fmt: skip
    if output == "table" and report.rows:
        print_table(RECONCILE_COLUMNS, map(_cells, report.rows), ("STORE", "CLAIMED"))
    code = _exit_code_without_write(context, report, do_it=do_it)
    if code is None:
        code = _write_offsets(context, session, report, allow_members=allow_members)
    if output == "json":
        print_json(_json(report, code, executed=do_it))
    context.exit(code)


def _exit_code_without_write(context: click.Context, report: ReconcileReport, *, do_it: bool) -> int | None:
    """The exit code when there is nothing to write; None: write."""
    if report.refused:
        for line in reconcile_refusal_lines(report):
            print_error(line)
        print_message("Nothing was changed.")
        return EXIT_PRECONDITION
    if not report.changes:
        print_message("There is nothing to change.")
        return 0
    if report.blocked_by:
        print_error(report.blocked_by)
        print_message(f"Nothing was changed. Then: {rerun_with_execute(context)}")
        return EXIT_PRECONDITION
    if not do_it:
        print_message(
            f"Nothing was changed; {offset_count_text(len(report.changes))} would be. To do it: "
            f"{rerun_with_execute(context)}"
        )
        return EXIT_DIFFERS
    return None


def reconcile_refusal_lines(report: ReconcileReport) -> list[str]:
    """One line for each reason."""
    by_reason: dict[str, list[TopicPartition]] = {}
    for row in report.refused:
        by_reason.setdefault(row.refusal, []).append(row.tp)
    return [f"{partitions_text(tps)} cannot be set: {why}" for why, tps in by_reason.items()][:REJECTIONS_SHOWN_MAX]


def _write_offsets(
    context: click.Context, session: AdminSession, report: ReconcileReport, *, allow_members: bool
) -> int:
    execute_reconcile(session, report, allow_members=allow_members)
    done = report.write_reports
    if not done.stopped_by:
        print_message(f"Group {report.group}: {offset_count_text(done.written)} written.")
        return 0
    print_message(
        f"Group {report.group}: {done.written} of {offset_count_text(len(report.changes))} written, because "
        f"{done.stopped_by}."
    )
    for tp in done.unknown:
        print_message(f"  {tp}: unknown, no answer was received")
    print_message(f"The same command writes the rest: {rerun_with_execute(context)}")
    return EXIT_PARTIAL if done.written or done.unknown else EXIT_PRECONDITION


def _cells(row: ReconcileRow) -> tuple[object, ...]:
    claimed = None if row.claim is None else f"{row.claim.first}-{row.claim.end}"
    decision = f"REFUSED: {row.refusal}" if row.refusal else row.decision
    return row.tp.topic, row.tp.partition, row.store, row.group_offset, row.committed, claimed, row.new_offset, decision


def _json(report: ReconcileReport, code: int, *, executed: bool) -> dict[str, object]:
    written: set[tuple[OffsetStoreName, TopicPartition]] = {
        ("zookeeper", tp) for tp in report.write_reports.zookeeper.written
    }
    written |= {("kafka", tp) for tp in report.write_reports.kafka.written}
    return {
        "schema": SCHEMA,
        "group": report.group,
        "checkpoint": str(report.checkpoint),
        "query": report.checkpoint_state.query,
        "batch": report.checkpoint_state.batch,
        "executed": executed,
        "exit_code": code,
        "blocked_by": report.blocked_by or None,
        "stopped_by": report.write_reports.stopped_by or None,
        "rows": [
            {
                "topic": row.tp.topic,
                "partition": row.tp.partition,
                "store": row.store,
                "group_offset": row.group_offset,
                "committed": row.committed,
                "claimed": None if row.claim is None else [row.claim.first, row.claim.end],
                "new_offset": row.new_offset,
                "decision": row.decision,
                "refusal": row.refusal or None,
                "written": (row.store, row.tp) in written,
            }
            for row in report.rows
        ],
    }
