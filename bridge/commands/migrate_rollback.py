"""``zkconsumer migrate rollback``: undoes a migration, before and after the switch."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from bridge.commands.migrate_execution import (
    RunOptions,
    dry_run,
    execute_option,
    execute_steps,
    open_run_session,
    read_control_znode,
    run_options,
)
from bridge.commands.migrate_hints import MigrateCommand, migrate_command
from bridge.migration.control.control_acls import check_control_acls
from bridge.migration.fences.rebalance_trigger import OFFSET_PROGRESS_TIMEOUT_MS
from bridge.migration.inspect.group_snapshot import GroupSnapshot
from bridge.migration.plan.decisions import Decisions
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_file import read_plan_file
from bridge.migration.steps.migration_context import caller_description, open_migration, read_effective_plan
from bridge.migration.steps.rollback import RollbackOptions, rollback_steps
from zkconsumer.cli.console import print_message
from zkconsumer.cli.options import group_argument
from zkconsumer.errors import PreconditionFailed
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import VersionedControl
    from bridge.migration.control.phases import Phase
    from zkconsumer.admin.admin_session import AdminSession

SCHEMA = "zkconsumer/migrate-rollback/1"


@click.command(cls=MigrateCommand, short_help="Move a group back to ZooKeeper.")
@group_argument()
@execute_option
@click.option(
    "--plan",
    "file",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="The file of the plan, if the plan beside the control znode is damaged.",
)
@run_options
def rollback(context: click.Context, group: str, file: Path | None, run: RunOptions) -> None:
    """Undo a migration. Before the switch: lift the fences. After it: wait until the coordinator group has no members,
    write its offsets to ZooKeeper, compare them, move the authority back in one write, and lift the fences.

    Without --execute it shows what each step would do. Exit codes: 0 done or nothing to do, 3 would change something,
    4 it cannot be undone, 5 a value differs from what was written, 6 part of it is done and the same command continues,
    7 waited too long before anything was changed.
    """
    paths.check_group(group)
    session = open_run_session(context, run.cluster, run.zookeeper_auth)
    check_control_acls(session, group)
    held = read_control_znode(session, group)
    plan = _plan(session, held, group, file)
    moving = open_migration(session, plan or _empty_plan(held, group), caller_description())
    patience_ms = min(OFFSET_PROGRESS_TIMEOUT_MS, round(run.timeout_s * 500))
    steps = partial(rollback_steps, moving, RollbackOptions(print_message, patience_ms, plan is not None))
    again = migrate_command(context, "rollback", group, "--execute", *(["--plan", str(file)] if file else []))
    if not run.do_it:
        dry_run(context, moving, steps, run, again=again, schema=SCHEMA)

    def next_steps(phase: Phase | None) -> list[str]:
        return [migrate_command(context, "plan", group, "-f", f"{group}.plan")]

    execute_steps(context, moving, steps, run, again=again, schema=SCHEMA, next_steps=next_steps)


def _plan(session: AdminSession, held: VersionedControl, group: str, file: Path | None) -> MigrationPlan | None:
    if file is not None:
        plan = read_plan_file(file)
        if (plan.group, plan.migration_id) != (group, held.control.migration_id):
            raise PreconditionFailed(
                f"{file} is the plan of migration {plan.migration_id} of group {plan.group}; give the plan of "
                f"migration {held.control.migration_id} of group {group}"
            )
        return plan
    try:
        return read_effective_plan(session, group)
    except PreconditionFailed as error:
        print_message(f"Warning: {error}")
        return None


def _empty_plan(held: VersionedControl, group: str) -> MigrationPlan:
    """In place of a plan that was not stored completely; in that phase nothing was fenced."""
    nothing = GroupSnapshot(group, 0, (), {})
    return MigrationPlan(held.control.migration_id, group, held.strategy, 0, nothing, Decisions(), None, "", ())
