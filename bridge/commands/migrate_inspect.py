"""``zkconsumer migrate inspect``: shows a group in both stores, as a migration would find it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from bridge.commands.migrate_common import print_sentences, read_group_or_exit, rows_json, show_rows
from bridge.commands.migrate_hints import MigrateCommand, migrate_command
from bridge.migration.plan.decisions import Decisions
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_checks import next_command
from bridge.migration.plan.start_offsets import make_plan
from zkconsumer.admin.text_format import count_text, duration_text, list_text, registered_text
from zkconsumer.admin.zookeeper_group_snapshot import unknown_log_end_texts
from zkconsumer.cli.common import EXIT_FAILED, open_zookeeper_session, print_json
from zkconsumer.cli.console import print_error, print_message, printable
from zkconsumer.cli.options import ClusterOptions, OutputFormat, group_argument, report_options
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.inspect.group_snapshot import GroupSnapshot

SCHEMA = "zkconsumer/migrate-inspect/1"

INSPECT_MIGRATION_ID = "inspect"
"""In place of a migration id: ``inspect`` makes a plan to show it, and does not store it."""


@click.command(cls=MigrateCommand, short_help="A group as a migration would find it.")
@group_argument()
@report_options
def inspect(context: click.Context, group: str, output: OutputFormat, cluster: ClusterOptions) -> None:
    """Show a group in both stores: its members, the assignment in use, the offset convention and the evidence for it,
    the offsets in Kafka, and what blocks a migration without further options.

    Changes nothing. Exit codes: 0 shown, 1 the group does not exist, or a broker does not answer and a part is unknown
    (? in the table), 4 no permission to read znodes of the group.
    """
    paths.check_group(group)
    session = open_zookeeper_session(context, cluster)
    seen = read_group_or_exit(context, session, group, with_acls=True)
    made = make_plan(
        seen, Decisions(), migration_id=INSPECT_MIGRATION_ID, strategy="copy", made_at_ms=session.clock.wall_ms()
    )
    if output == "table":
        for name, words in _facts(made):
            click.echo(printable(f"{name}: {words}"))
        if made.partitions:
            click.echo()
            show_rows(made)
    print_sentences(context, "Warning", made.warnings)
    print_sentences(context, "Refused", made.refusals)
    plan = migrate_command(context, "plan", group)
    print_message(f"To plan: {plan}")
    not_known = list(_unknown_facts(seen))
    code = EXIT_FAILED if not_known else 0
    if output == "json":
        others = [next_command(sentence) for sentence in (*made.refusals, *made.warnings)]
        told = _json(made, [plan, *dict.fromkeys(step for step in others if step)])
        print_json(told | {"not_known": not_known, "exit_code": code})
    if not_known:
        more = f"; and {len(not_known) - 1} more above" if len(not_known) > 1 else ""
        print_error(f"a part of group {group} is unknown: {not_known[0]}{more}")
    context.exit(code)


def _unknown_facts(seen: GroupSnapshot) -> Iterator[str]:
    """What a server did not answer, and what to do."""
    silent = [f"{one.name} ({one.release})" for one in seen.brokers if one.supports_groups is None]
    if silent:
        yield f"brokers do not answer: {list_text(silent)}"
    if seen.kafka_error:
        yield f"offsets in Kafka are not known: {seen.kafka_error}"
    if seen.coordinator_group is None:
        yield f"whether group {seen.group} has members at the coordinator is not known: {seen.coordinator_group_error}"
    yield from unknown_log_end_texts({tp: one.log for tp, one in seen.partitions.items() if isinstance(one.log, str)})


def _facts(made: MigrationPlan) -> Iterator[tuple[str, str]]:
    seen = made.snapshot
    control = seen.control
    yield "group", made.group
    members = [f"{one.consumer_id} ({one.kind})" for one in seen.members]
    yield "members", f"{registered_text(len(members))}{': ' if members else ''}{list_text(members)}"
    yield "topics", f"{len(seen.topics)}, {count_text(len(seen.partitions), 'partition')}"
    meaning = "not known" if made.convention is None else made.convention.value
    yield "offset convention", f"{meaning} ({made.convention_evidence})"
    yield "assignment in use", seen.assignment_in_use
    yield (
        "coordinator group",
        f"not known: {seen.coordinator_group_error}"
        if seen.coordinator_group is None
        else seen.coordinator_group.state,
    )
    yield "brokers", list_text(f"{one.name} ({one.release})" for one in seen.brokers) or "none"
    yield "offsets are kept for", "not known" if seen.retention_ms is None else duration_text(seen.retention_ms)
    yield (
        "migration",
        "none"
        if control is None
        else (
            f"{control.migration_id}, {control.strategy}, phase {control.phase}, epoch {control.epoch}, "
            f"authority {control.authority}"
        ),
    )


def _json(made: MigrationPlan, steps: list[str]) -> dict[str, object]:
    seen = made.snapshot
    control = seen.control
    return {
        "schema": SCHEMA,
        "group": made.group,
        "members": [
            {
                "consumer_id": one.consumer_id,
                "kind": one.kind,
                "host": one.host,
                "pattern": one.pattern,
                "topics": dict(one.topics),
                "problem": one.error or None,
            }
            for one in seen.members
        ],
        "offset_convention": None if made.convention is None else made.convention.value,
        "offset_convention_evidence": made.convention_evidence,
        "assignment_in_use": seen.assignment_in_use,
        "coordinator_group_state": None if seen.coordinator_group is None else seen.coordinator_group.state,
        "brokers": [
            {"name": one.name, "supports_groups": one.supports_groups, "release": one.release} for one in seen.brokers
        ],
        "retention_ms": seen.retention_ms,
        "missing_topics": list(seen.missing_topics),
        "offsets_without_partition": list(map(str, seen.offsets_without_partition)),
        "control": None
        if control is None
        else {
            "migration_id": control.migration_id,
            "epoch": control.epoch,
            "phase": control.phase,
            "authority": control.authority,
            "strategy": control.strategy,
        },
        "refusals": list(made.refusals),
        "warnings": list(made.warnings),
        "partitions": rows_json(made),
        "next_steps": steps,
    }
