"""``zkconsumer groups delete``: deletes groups without members, and the remains of console consumers."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import click

from zkconsumer.admin.admin_session import BrokerAdminSession
from zkconsumer.admin.delete_zookeeper_group import (
    GroupDeletion,
    execute_deletion,
    plan_group_deletion,
    plan_topic_deletion,
)
from zkconsumer.admin.text_format import duration_text, registered_text
from zkconsumer.admin.zookeeper_group_list import GroupListing, group_names, is_console_group, list_groups
from zkconsumer.cli.command_hints import command_text, rerun_with_execute
from zkconsumer.cli.common import (
    EXIT_DIFFERS,
    EXIT_FAILED,
    EXIT_PARTIAL,
    open_admin_session,
    print_json,
    print_table,
    require_admin_session,
    utc_text,
)
from zkconsumer.cli.console import print_error, print_message
from zkconsumer.cli.groups import exit_no_such_group
from zkconsumer.cli.groups_delete_coordinator import delete_coordinator_groups, print_not_executed
from zkconsumer.cli.main import EXIT_PRECONDITION
from zkconsumer.cli.options import ClusterOptions, OutputFormat, group_arguments, is_on_command_line, report_options
from zkconsumer.errors import PreconditionFailed, UnavailableError, UsageError

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AdminSession

SCHEMA = "zkconsumer/groups-delete/1"
OLDER_THAN = "7d"

_AGE_PATTERN = re.compile(r"([0-9]{1,6})(d|h|min|s)", re.ASCII)
_UNIT_MS = {"d": 86_400_000, "h": 3_600_000, "min": 60_000, "s": 1_000}


def parse_age_ms(text: str) -> int:
    """``7d``, ``12h``, ``30min``, ``90s`` in milliseconds.  Raises ``UsageError``."""
    found = _AGE_PATTERN.fullmatch(text)
    if found is None:
        raise UsageError(f"--older-than {text}: write 7d, 12h, 30min or 90s")
    return int(found[1]) * _UNIT_MS[found[2]]


class DeleteCommand(click.Command):
    """``delete`` asks no broker if a ZooKeeper is given, and rejects ``--bootstrap-server`` then."""

    def complete_hint(self, context: click.Context, words: list[str], carried: set[str]) -> list[str]:
        """See ``command_hints.HintCompleter``."""
        if context.params.get("zookeeper") is not None:
            carried.discard("bootstrap_servers")
        return []


@click.command(name="delete", cls=DeleteCommand)
@group_arguments
@click.option(
    "--topic", metavar="T", help="Only owners and offsets of this topic; without GROUP in every inactive group."
)
@click.option("--stale", is_flag=True, help="Every console-consumer-<number> without a member.")
@click.option("--older-than", metavar="SPAN", help=f"With --stale: groups without a write in this time [{OLDER_THAN}].")
@click.option("--execute", "do_it", is_flag=True, help="Delete; without this option nothing is changed.")
@report_options
def delete(
    context: click.Context,
    groups: Sequence[str],
    topic: str | None,
    stale: bool,
    older_than: str | None,
    do_it: bool,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> None:
    """Delete groups without registered members, or one topic of them.

    \b
    delete GROUP...             all of these groups
    delete GROUP... --topic T   owners and offsets of one topic; a group without another topic is deleted
    delete --topic T            the same in every group without members; active groups are skipped
    delete --stale              the remains of console consumers that were killed

    A group with a registered member is never changed: ZooKeeper checks this in the transaction that deletes. With
    --bootstrap-server alone a GROUP is one that brokers coordinate, and its coordinator checks (from 1.1 on). Without
    --execute the command shows what it would delete, and exits with 3. Exit codes: 0 done, 3 would change something, 4
    rejected and nothing changed, 6 only some of the groups were deleted.
    """
    _check_call(groups, topic, stale, older_than)
    known = open_admin_session(context, cluster)
    if isinstance(known, BrokerAdminSession):
        if topic is not None:
            instead = [command_text(context, "offsets", "delete", group, "--topic", topic) for group in groups]
            more = f". Offsets that brokers have: {'; '.join(instead)}" if instead else ""
            raise UsageError(f"--topic deletes in ZooKeeper: give --zookeeper HOST:PORT[/CHROOT]{more}")
        if stale:
            require_admin_session(known, "--stale deletes the remains of console consumers in ZooKeeper")
        delete_coordinator_groups(context, known, groups, do_it=do_it, output=output, schema=SCHEMA)
    if is_on_command_line(context, "bootstrap_servers"):
        raise UsageError(
            "with --zookeeper the command deletes a group in ZooKeeper and asks no broker: remove --bootstrap-server; "
            "or give only --bootstrap-server to delete the group of the coordinator"
        )
    session = known
    for group in groups:
        if plan_group_deletion(session, group).status == "missing":
            exit_no_such_group(
                context, session, group,
                only_in_zookeeper="; with --bootstrap-server HOST:PORT instead of --zookeeper it deletes a group "
                "that brokers coordinate",
            )  # fmt: skip
    targets = _targets(session, groups, topic, stale, parse_age_ms(older_than or OLDER_THAN))
    if do_it:
        targets = _execute_all(context, session, targets, is_named=bool(groups))
    if output == "json":
        print_json({"schema": SCHEMA, "executed": do_it, "groups": [_json(each) for each in targets],
                    "next_steps": _next_steps(context, targets, do_it)})  # fmt: skip
    elif do_it:
        _print_done(targets, groups, topic)
    else:
        _print_plan(context, session, targets)
    _print_rejected(targets, is_named=bool(groups))
    context.exit(_exit_code(targets, is_named=bool(groups), do_it=do_it))


def _check_call(groups: Sequence[str], topic: str | None, stale: bool, older_than: str | None) -> None:
    if stale and (groups or topic):
        raise UsageError("--stale finds its groups itself: remove GROUP and --topic")
    if older_than is not None and not stale:
        raise UsageError("--older-than needs --stale")
    if not (groups or topic or stale):
        raise UsageError("nothing to delete is named: give a GROUP, --topic T, or --stale")
    if len(set(groups)) < len(groups):
        raise UsageError("a GROUP is named twice")


def _targets(
    session: AdminSession, groups: Sequence[str], topic: str | None, stale: bool, older_than_ms: int
) -> list[GroupDeletion]:
    if stale:
        return _stale_console_groups(session, older_than_ms)
    if groups:
        return [plan_group_deletion(session, group, topic) for group in groups]
    assert topic is not None, "the call was checked"
    return plan_topic_deletion(session, group_names(session), topic)


def _stale_console_groups(session: AdminSession, older_than_ms: int) -> list[GroupDeletion]:
    now_ms = session.clock.wall_ms()

    def target(line: GroupListing) -> GroupDeletion:
        if line.is_active:
            return GroupDeletion(line.group, None, "active", reason=registered_text(line.members))
        written_ms = now_ms - line.last_write_ms
        if written_ms < older_than_ms:
            return GroupDeletion(
                line.group, None, "too young", reason=f"it was written to {duration_text(written_ms)} ago"
            )
        return plan_group_deletion(session, line.group)

    names = [name for name in group_names(session) if is_console_group(name)]
    return [target(line) for line in list_groups(session, names)]


def _execute_all(
    context: click.Context, session: AdminSession, targets: Sequence[GroupDeletion], *, is_named: bool
) -> list[GroupDeletion]:
    """Execute the targets in their order.  If ZooKeeper stops that, print what was deleted, and end."""
    done: list[GroupDeletion] = []
    for target in targets:
        try:
            done.append(_execute(session, target))
        except UnavailableError as error:
            deleted = [each.group for each in done if each.status == "deleted"]
            if not deleted:
                raise
            how = "; leave it out then" if is_named else ""
            print_error(f"{error}. Before that was deleted: {', '.join(deleted)}{how}")
            context.exit(EXIT_PARTIAL)
    return done


def _execute(session: AdminSession, target: GroupDeletion) -> GroupDeletion:
    if target.status != "would delete":
        return target
    try:
        return execute_deletion(session, target)
    except PreconditionFailed as error:
        return replace(target, status="rejected", reason=str(error))


# --- what is printed --------------------------------------------------------------------------------------------


def _print_plan(context: click.Context, session: AdminSession, targets: Sequence[GroupDeletion]) -> None:
    now_ms = session.clock.wall_ms()
    rows = (
        (each.group, each.topic or "(all)", each.status, len(each.nodes) or None, utc_text(each.last_write_ms or None),
         duration_text(now_ms - each.last_write_ms) if each.last_write_ms else None)
        for each in targets
    )  # fmt: skip
    print_table(("GROUP", "TOPIC", "WHAT", "ZNODES", "LAST-WRITE", "AGE"), rows, ("LAST-WRITE", "ZNODES"))
    going = [each.group for each in targets if each.status == "would delete"]
    if going:
        print_not_executed(context, going)
    elif not targets:
        print_message("There is nothing to delete.")


def _print_done(targets: Sequence[GroupDeletion], groups: Sequence[str], topic: str | None) -> None:
    """Print the texts of Kafka's tool (0.9 to 1.1)."""
    for each in targets:
        if each.status != "deleted":
            continue
        if each.topic is None:
            click.echo(f"Deleted all consumer group information for group {each.group} in zookeeper.")
        else:
            click.echo(f"Deleted consumer group information for group {each.group} topic {each.topic} in zookeeper.")
    if topic is not None and not groups:
        spared = "all inactive consumer groups"
        click.echo(f"Deleted consumer group information for {spared} for topic {topic} in zookeeper.")


def _print_rejected(targets: Sequence[GroupDeletion], *, is_named: bool) -> None:
    for each in targets:
        if each.status == "active":
            print_error(f"Delete for group {each.group} failed because its consumers are still active.")
            if is_named:
                print_message(f"Stop them first. Their hosts: zkconsumer groups describe {shlex.quote(each.group)}")
        elif each.status == "too young":
            print_message(f"{each.group} is skipped: {each.reason}.")
        elif each.status in ("migrating", "rejected", "missing"):
            print_error(f"Delete for group {each.group} rejected: {each.reason}")


def _exit_code(targets: Sequence[GroupDeletion], *, is_named: bool, do_it: bool) -> int:
    statuses = [each.status for each in targets]
    if not do_it and "would delete" in statuses:
        return EXIT_DIFFERS
    kept = [status for status in statuses if status not in ("deleted", "would delete")]
    # Groups that the command found itself are skipped; groups that were named are rejected.
    if not is_named or not kept:
        return 0
    if "deleted" in statuses:
        return EXIT_PARTIAL
    return EXIT_FAILED if set(kept) == {"missing"} else EXIT_PRECONDITION


def _json(target: GroupDeletion) -> dict[str, object]:
    return {
        "group": target.group,
        "topic": target.topic,
        "status": target.status,
        "reason": target.reason or None,
        "znodes": len(target.nodes),
        "last_write_ms": target.last_write_ms or None,
    }


def _next_steps(context: click.Context, targets: Sequence[GroupDeletion], do_it: bool) -> list[str]:
    stuck = [each.group for each in targets if each.status in ("active", "rejected")]
    steps = [command_text(context, "groups", "describe", group) for group in stuck]
    if not do_it and any(each.status == "would delete" for each in targets):
        steps.append(rerun_with_execute(context))
    return steps
