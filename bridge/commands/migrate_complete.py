"""``zkconsumer migrate complete``: writes the archive, ends a migration, and with ``--remove-fences`` lifts fences."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.commands.migrate_execution import (
    RunOptions,
    confirm_group,
    dry_run,
    execute_option,
    execute_steps,
    open_run_session,
    read_control_znode,
    run_options,
)
from bridge.commands.migrate_hints import MigrateCommand, migrate_command
from bridge.migration.control.control_acls import check_control_acls
from bridge.migration.control.journal import read_journal
from bridge.migration.control.phases import Phase
from bridge.migration.inspect.copied_offsets import read_copied_offsets_status
from bridge.migration.inspect.migration_status import STATUS_RETRY_POLICY
from bridge.migration.steps.complete import check_can_be_completed, complete_steps
from bridge.migration.steps.migration_context import caller_description, open_migration, read_effective_plan
from zkconsumer.cli.command_hints import command_text, complete_commands
from zkconsumer.cli.console import print_message
from zkconsumer.cli.options import group_argument
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AdminSession

SCHEMA = "zkconsumer/migrate-complete/1"


NO_ROLLBACK_TEXT = "After that, no rollback is possible."
OLD_MEMBERS_TEXT = "Old members that start after that read again from the offsets of the cut-over."


@click.command(cls=MigrateCommand, short_help="End a migration after the switch.")
@group_argument()
@execute_option
@click.option(
    "--remove-fences",
    is_flag=True,
    help="Also remove the fences and restore the access lists; possible later too, in phase completed.",
)
@click.option(
    "--archive",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file for the znodes of the group [GROUP-MIGRATION.znodes].",
)
@click.option(
    "--confirm", metavar="GROUP", help="The group's name, for scripts; without it the command prompts for it."
)
@run_options
def complete(
    context: click.Context,
    group: str,
    remove_fences: bool,
    archive: Path | None,
    confirm: str | None,
    run: RunOptions,
) -> None:
    """Write every znode of the ZooKeeper group to a file, and end the migration. After that, no rollback is possible.

    The fences remain, so that an old member that is started by mistake reads nothing. --remove-fences removes them and
    restores the access lists from before the migration, in the same run or at any time later. Without --execute it
    shows what each step would do. Exit codes: 0 done or nothing to do, 3 would change something, 4 it cannot be
    completed now, 6 part of it is done and the same command continues.
    """
    paths.check_group(group)
    session = open_run_session(context, run.cluster, run.zookeeper_auth)
    check_control_acls(session, group)
    held = read_control_znode(session, group)
    # First, because in an earlier phase the plan may not be stored.
    check_can_be_completed(group, held.control.migration_id, held.phase)
    moving = open_migration(session, read_effective_plan(session, group), caller_description())
    file = archive or Path(f"{group}-{held.control.migration_id}.znodes")
    steps = partial(complete_steps, moving, file, remove_fences=remove_fences)
    words = ["--remove-fences"] if remove_fences else []
    words += [f"--archive={archive}"] if archive else []
    again = migrate_command(context, "complete", group, "--execute", *words)
    is_over = held.phase is Phase.COMPLETED
    if not is_over:
        _warn_of_lost_offsets(context, session, group)
    if not run.do_it:
        dry_run(context, moving, steps, run, again=again, schema=SCHEMA)
    if remove_fences or not is_over:
        why = ([] if is_over else [NO_ROLLBACK_TEXT]) + ([OLD_MEMBERS_TEXT] if remove_fences else [])
        confirm_group(group, confirm, " ".join(why))
    lift = migrate_command(context, "complete", group, "--remove-fences", "--execute")

    def next_steps(phase: Phase | None) -> list[str]:
        if remove_fences and session.get(paths.group_root(group)) is not None:
            return [command_text(context, "groups", "delete", group)]
        return [migrate_command(context, "status", group), *([] if remove_fences else [lift])]

    execute_steps(context, moving, steps, run, again=again, schema=SCHEMA, next_steps=next_steps)
    if not is_over:
        restore = migrate_command(context, "restore", str(file))
        print_message(f"The znodes of the group are in {file}. To restore them: {restore}")
    if not remove_fences and not is_over:
        print_message(f"The fences remain, and no old member can acquire a partition. To remove them: {lift}")


def _warn_of_lost_offsets(context: click.Context, session: AdminSession, group: str) -> None:
    """Warn where Kafka has lost copied offsets; the last check before the end of the migration."""
    copied = read_copied_offsets_status(session, group, read_journal(session, group), STATUS_RETRY_POLICY)
    if copied.error:
        print_message(f"Warning: cannot check whether Kafka still has the copied offsets: {copied.error}")
    for line in copied.lines:
        print_message(f"Warning: {line}")
    if copied.lost:
        print_message(f"Warning: {complete_commands(copied.recovery_text(group, Phase.SWITCHED), context)}")
