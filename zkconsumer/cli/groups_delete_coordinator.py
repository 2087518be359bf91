"""``zkconsumer groups delete`` with brokers only: deletes coordinator groups without members."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from typing import NoReturn

import click

from zkconsumer.admin.admin_session import BrokerAdminSession
from zkconsumer.admin.broker_client import BROKER_REQUEST_ERRORS
from zkconsumer.admin.coordinator_group_snapshot import COORDINATOR_KIND
from zkconsumer.admin.delete_coordinator_group import (
    CoordinatorGroupDeletion,
    execute_coordinator_group_deletion,
    plan_coordinator_group_deletion,
)
from zkconsumer.admin.text_format import unseen_members_warning
from zkconsumer.cli.command_hints import command_text, rerun_with_execute
from zkconsumer.cli.common import EXIT_DIFFERS, EXIT_PARTIAL, print_json, print_table
from zkconsumer.cli.console import print_error, print_message
from zkconsumer.cli.groups import exit_no_such_group
from zkconsumer.cli.main import EXIT_PRECONDITION
from zkconsumer.zk import paths

EXPORTED_MAX = 10
"""Groups that are named one by one in a command that exports their offsets."""


def delete_coordinator_groups(
    context: click.Context, session: BrokerAdminSession, groups: Sequence[str], *, do_it: bool, output: str, schema: str
) -> NoReturn:
    """Show what would be deleted, or delete it, and end with the exit code."""
    targets = plan_coordinator_group_deletion(session, groups)
    for target in targets:
        if target.status == "missing":
            exit_no_such_group(context, session, target.group)
    for target in targets:
        if target.status == "would delete" and not target.had_members:
            print_message(unseen_members_warning(target.group))
    if do_it:
        targets = [_executed(session, target) for target in targets]
    steps = _next_steps(context, targets)
    if output == "json":
        print_json(
            {"schema": schema, "executed": do_it, "groups": [_json(each) for each in targets], "next_steps": steps}
        )
    elif do_it:
        for target in targets:
            if target.status == "deleted":
                click.echo(f"Deletion of requested consumer groups ('{target.group}') was successful.")
    else:
        print_table(
            ("GROUP", "WHAT", "STATE", "OFFSETS"),
            ((each.group, each.status, each.state, each.offsets or None) for each in targets),
            ("OFFSETS", "STATE"),
        )
        going = [each.group for each in targets if each.status == "would delete"]
        if going:
            print_not_executed(context, going)
    for target in targets:
        if target.status == "active":
            print_error(
                f"Delete for group {target.group} failed because its consumers are still active: {target.reason}."
            )
            print_message(f"Stop them first. Their hosts: zkconsumer groups describe {shlex.quote(target.group)}")
        elif target.status == "rejected":
            print_error(f"Delete for group {target.group} rejected: {target.reason}")
    context.exit(_exit_code(targets, do_it=do_it))


def print_not_executed(context: click.Context, groups: Sequence[str]) -> None:
    """Print how to save the offsets of these groups, and how to delete the groups."""
    names = groups if len(groups) <= EXPORTED_MAX else ["--all"]
    file = f"{groups[0]}.offsets" if len(groups) == 1 else "groups.offsets"
    how = [] if all(map(paths.is_group, groups)) else ["--format", "json"]
    export = command_text(context, "offsets", "export", *names, *how, "--file", file)
    print_message(f"Nothing was changed. To save the offsets first: {export}. Then: {rerun_with_execute(context)}")


def _executed(session: BrokerAdminSession, target: CoordinatorGroupDeletion) -> CoordinatorGroupDeletion:
    if target.status != "would delete":
        return target
    try:
        return execute_coordinator_group_deletion(session, target)
    except BROKER_REQUEST_ERRORS as error:
        return replace(
            target,
            status="rejected",
            reason=f"{error}; whether the group was deleted is not known: run the command again",
        )


def _exit_code(targets: Sequence[CoordinatorGroupDeletion], *, do_it: bool) -> int:
    statuses = [each.status for each in targets]
    if not do_it and "would delete" in statuses:
        return EXIT_DIFFERS
    if all(status == "deleted" for status in statuses):
        return 0
    return EXIT_PARTIAL if "deleted" in statuses else EXIT_PRECONDITION


def _json(target: CoordinatorGroupDeletion) -> dict[str, object]:
    return {
        "group": target.group,
        "kind": COORDINATOR_KIND,
        "status": target.status,
        "reason": target.reason or None,
        "state": target.state,
        "offsets": target.offsets,
    }


def _next_steps(context: click.Context, targets: Sequence[CoordinatorGroupDeletion]) -> list[str]:
    stuck = [each.group for each in targets if each.status in ("active", "rejected")]
    steps = [command_text(context, "groups", "describe", group) for group in stuck]
    if any(each.status == "would delete" for each in targets):
        steps.append(rerun_with_execute(context))
    return steps
