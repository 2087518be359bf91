"""``zkconsumer spark claims``: shows the claims of a group's Spark queries, and deletes those of a deleted query."""

from __future__ import annotations

import click

from bridge.spark.handoff.claim_administration import ListedClaimRecord, delete_claim_records, list_claims, plan_forget
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.text_format import count_text, duration_text
from zkconsumer.cli.command_hints import rerun_with_execute
from zkconsumer.cli.common import EXIT_DIFFERS, EXIT_FAILED, open_zookeeper_session, print_json, print_table, utc_text
from zkconsumer.cli.console import print_error, print_message
from zkconsumer.cli.main import EXIT_PRECONDITION
from zkconsumer.cli.offsets_common import execute_option
from zkconsumer.cli.options import ClusterOptions, OutputFormat, group_argument, report_options
from zkconsumer.errors import UsageError

SCHEMA = "zkconsumer/spark-claims/1"
CLAIM_COLUMNS = "QUERY", "TOPIC", "PARTITION", "BATCH", "FIRST", "END", "GROUP-OFFSET", "OWNER", "AGE", "REMARK"


@click.command(short_help="Show or delete the claims of queries.")
@group_argument()
@click.option("--query", metavar="Q", help="Only this query, by the id in its checkpoint (q).")
@click.option("--delete", "forget_query", metavar="Q", help="Delete the records of a query that never runs again.")
@execute_option
@report_options
def claims(
    context: click.Context,
    group: str,
    query: str | None,
    forget_query: str | None,
    do_it: bool,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> None:
    """Show the latest claim of each partition by the group's Spark queries, beside the committed offset of the group.

    --delete deletes the records of a query. They define what its last batch may read, so delete them only if the query
    never starts again. The records of a running query are not deleted. Without --execute nothing is deleted.
    Exit codes: 0 shown or deleted, 1 a record cannot be read, 3 would delete something, 4 refused and nothing deleted.
    """
    if forget_query is None and do_it:
        raise UsageError("--execute needs --delete")
    if forget_query is not None and query is not None:
        raise UsageError("--delete contains the query; omit --query")
    session = open_zookeeper_session(context, cluster)
    if forget_query is not None:
        context.exit(_forget(context, session, group, forget_query, output, do_it=do_it))
    found = list_claims(session, group, query)
    _print_claims(session, group, found, output)
    if not found:
        of_query = f" of query {query}" if query else ""
        print_message(f"No batch{of_query} has claimed anything of group {group} (group.offsets.commit=claim does).")
    context.exit(EXIT_FAILED if any(claim.problem for claim in found) else 0)


def _forget(context: click.Context, session: AdminSession, group: str, query: str, output: str, *, do_it: bool) -> int:
    planned = plan_forget(session, group, query)
    _print_claims(session, group, planned.claims, output)
    count = count_text(len(planned.claims), "record")
    if planned.blocked_by:
        print_error(f"{planned.blocked_by}. Nothing was deleted.")
        return EXIT_PRECONDITION
    if not do_it:
        print_message(
            f"Nothing was deleted; {count} of query {query} would be. To do it: {rerun_with_execute(context)}"
        )
        return EXIT_DIFFERS
    delete_claim_records(session, group, planned)
    print_message(f"{count} of query {query} deleted.")
    return 0


def _print_claims(session: AdminSession, group: str, found: list[ListedClaimRecord], output: str) -> None:
    now_ms = session.clock.wall_ms()
    if output == "json":
        print_json({"schema": SCHEMA, "group": group, "claims": [_json(claim) for claim in found]})
    elif found:
        print_table(CLAIM_COLUMNS, (_cells(claim, now_ms) for claim in found), ("OWNER", "GROUP-OFFSET"))
    for claim in found:
        if claim.problem:
            print_message(claim.problem)


def _cells(claim: ListedClaimRecord, now_ms: int) -> tuple[object, ...]:
    latest = claim.latest
    batch, first, end, since = (None,) * 4 if latest is None else (
        latest.batch, latest.first, latest.end, duration_text(now_ms - latest.wall_ms)
    )  # fmt: skip
    at = claim.tp.topic, claim.tp.partition
    return claim.query, *at, batch, first, end, claim.group_offset, claim.owner, since, claim_remark(claim)


def claim_remark(claim: ListedClaimRecord) -> str:
    """The remark for an operator about a row."""
    if claim.problem:
        return "unreadable"
    if claim.latest is None:
        return "nothing claimed yet"
    if claim.group_offset is None or claim.group_offset < claim.latest.end:
        return "the group's offset was reset backwards"
    if claim.group_offset > claim.latest.end:
        return "other members read further"
    return ""


def _json(claim: ListedClaimRecord) -> dict[str, object]:
    latest = claim.latest
    return {
        "query": claim.query,
        "topic": claim.tp.topic,
        "partition": claim.tp.partition,
        "batch": None if latest is None else latest.batch,
        "first": None if latest is None else latest.first,
        "end": None if latest is None else latest.end,
        "epoch": None if latest is None else latest.epoch,
        "claimed_at": None if latest is None else utc_text(latest.wall_ms),
        "rejected_batch": claim.refused,
        "group_offset": claim.group_offset,
        "owner": claim.owner,
        "owner_is_claimant": claim.owner_made_claim,
        "remark": claim_remark(claim) or None,
        "problem": claim.problem or None,
    }
