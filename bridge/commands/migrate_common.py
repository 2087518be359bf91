"""Shared by the ``migrate`` commands: reads a group, formats its partitions, and formats the next commands."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

import click

from bridge.migration.inspect.group_inspection import inspect_group
from bridge.migration.plan.plan_checks import NEXT_COMMAND_MARK, next_command, plan_command
from zkconsumer.admin.describe import COLUMNS, DROPPABLE_COLUMNS, UNKNOWN, GroupDescribeRow
from zkconsumer.admin.zookeeper_group import owner_display, read_control
from zkconsumer.base.progress import progress_task
from zkconsumer.cli.command_hints import complete_commands, given_arguments
from zkconsumer.cli.common import print_table
from zkconsumer.cli.console import print_message
from zkconsumer.cli.groups import exit_no_such_group
from zkconsumer.errors import PreconditionFailed

if TYPE_CHECKING:
    from bridge.migration.inspect.group_snapshot import GroupSnapshot
    from bridge.migration.plan.migration_plan import MigrationPlan, PlannedPartition
    from zkconsumer.admin.admin_session import AdminSession
    from zkconsumer.types import TopicPartition

PLANNED_COLUMNS = (*COLUMNS, "TARGET-OFFSET", "REMARK")

REASONS_SHOWN_MAX = 10
PARTITIONS_NAMED_MAX = 3

NO_ACL_FENCE_WITH_DUAL = (
    "--no-acl-fence is for strategy copy: dual never sets access lists, because they would reject the writes of its "
    "members"
)

_OPTION_EXAMPLES = {
    "--offset-convention": "--offset-convention next",
    "--missing": "--missing earliest",
    "--out-of-range": "--out-of-range earliest",
    "--existing": "--existing keep-source",
    "--offset": "--offset TOPIC:PARTITION=N",
}
"""Option that a refusal names -> the option with the value that skips no record."""

_OPTION = re.compile(r"(?<!\S)\(?(--[a-z-]+)")


def read_group_or_exit(context: click.Context, session: AdminSession, group: str, *, with_acls: bool) -> GroupSnapshot:
    """Read the group.  Ends the command with 1 if it does not exist, with 4 if only its control znode exists."""
    with progress_task("reading the group"):
        seen = inspect_group(session, group, with_acls=with_acls, with_rights=True)
    if seen is not None:
        return seen
    control, _, problem = read_control(session, group)
    words = problem if control is None else f"migration {control.migration_id}, phase {control.phase}"
    if words:
        raise PreconditionFailed(
            f"/consumers/{group} does not exist, but the group has a control znode ({words})"
            f"{with_cluster_address(context, f'{NEXT_COMMAND_MARK}zkconsumer groups describe {group}')}"
        )
    exit_no_such_group(context, session, group, only_in_zookeeper="")


def show_rows(plan: MigrationPlan) -> None:
    """Print the table of partitions."""
    print_table(
        PLANNED_COLUMNS,
        ((*row.cells, planned.target, planned_remark(planned)) for row, planned in partition_rows(plan)),
        ("GROUP", *DROPPABLE_COLUMNS),
    )


def rows_json(plan: MigrationPlan) -> list[dict[str, object]]:
    """The rows of the table for ``-o json``."""
    return [
        row.to_json()
        | {"target_offset": planned.target, "reason": planned.why or None, "refusal": planned.refusal or None}
        for row, planned in partition_rows(plan)
    ]


def planned_remark(planned: PlannedPartition) -> str:
    """The reason for the start offset, or for the refusal."""
    return f"REFUSED: {planned.refusal}" if planned.refusal else planned.why


def partition_rows(plan: MigrationPlan) -> Iterator[tuple[GroupDescribeRow, PlannedPartition]]:
    """Each partition as ``groups describe`` shows it, with its plan."""
    seen = plan.snapshot
    hosts = {one.consumer_id: one.host for one in seen.members}
    authority = UNKNOWN if seen.control_error else "zookeeper" if seen.control is None else seen.control.authority
    for planned in plan.partitions:
        one = seen.partitions[planned.tp]
        in_kafka = None if one.kafka is None else one.kafka.offset
        unknown = {"log_end_offset"} if isinstance(one.log, str) else set()
        unknown |= {"kafka_offset"} if seen.kafka_error else set()
        if one.error:
            unknown |= {"zk_offset", "current_offset"} if authority == "zookeeper" else {"zk_offset"}
        if authority == UNKNOWN or (authority == "kafka" and seen.kafka_error):
            unknown.add("current_offset")
        consumer, kind = (None, None) if one.owner is None else owner_display(one.owner.thread, one.owner.kind)
        yield (
            GroupDescribeRow(
                plan.group,
                one.tp.topic,
                one.tp.partition,
                current_offset=in_kafka if authority == "kafka" else one.stored if authority == "zookeeper" else None,
                log_end_offset=None if isinstance(one.log, str) else one.log.latest,
                consumer_id=consumer,
                host=hosts.get(consumer or ""),
                zk_offset=one.stored,
                kafka_offset=in_kafka,
                authority=authority,
                owner_kind=kind,
                unknown=frozenset(unknown),
            ),
            planned,
        )


def with_cluster_address(context: click.Context, sentence: str) -> str:
    """Complete the command in a sentence, so that it can be pasted: adds the cluster options of this command.

    A command to plan again becomes the command that the operator gave, with the additional options.
    """
    command = next_command(sentence)
    if not command:
        return sentence
    again = plan_command(str(context.params.get("group", "")))
    if command.startswith(again) and context.command.name == "plan":
        more = command.removeprefix(again)
        command = shlex.join(given_arguments(context, without=_OPTION.findall(more))) + more
    else:
        command = complete_commands(command, context)
    return sentence[: sentence.rindex(NEXT_COMMAND_MARK)] + NEXT_COMMAND_MARK + command


def print_sentences(context: click.Context, head: str, sentences: Iterable[str]) -> list[str]:
    """Print each sentence; return the commands with which they end."""
    steps = []
    for sentence in sentences:
        whole = with_cluster_address(context, sentence)
        print_message(f"{head}: {whole}")
        steps.append(next_command(whole))
    return [step for step in dict.fromkeys(steps) if step]


def plan_refusal_lines(plan: MigrationPlan) -> list[str]:
    """The refused partitions, one line for each reason, at most ``REASONS_SHOWN_MAX`` reasons."""
    by_reason: dict[str, list[TopicPartition]] = {}
    for row in plan.partitions:
        if row.refusal:
            by_reason.setdefault(row.refusal, []).append(row.tp)
    lines = [f"{_named(tps)}: {why}" for why, tps in list(by_reason.items())[:REASONS_SHOWN_MAX]]
    more = len(by_reason) - len(lines)
    return [*lines, *([f"and {more} more reasons"] if more else [])]


def _named(tps: list[TopicPartition]) -> str:
    more = len(tps) - PARTITIONS_NAMED_MAX
    return ", ".join(map(str, tps[:PARTITIONS_NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def decision_command(context: click.Context, plan: MigrationPlan) -> str:
    """The command that decides every refusal, with one choice for each.

    Empty when no partition was refused, or when no option can decide it: the group is migrating.
    """
    control = plan.snapshot.control
    is_here = control is None or control.is_over
    refused = [row.refusal for row in plan.partitions if row.refusal]
    if not refused or not is_here:
        return ""
    options = (option for refusal in dict.fromkeys([*plan.refusals, *refused]) for option in _OPTION.findall(refusal))
    named = dict.fromkeys(option for option in options if option in _OPTION_EXAMPLES)
    return " ".join(
        [shlex.join(given_arguments(context, without=tuple(named))), *(_OPTION_EXAMPLES[each] for each in named)]
    )
