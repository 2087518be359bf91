"""``zkconsumer migrate complete``: the end of a migration, and the archive that it leaves."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import click

from bridge.commands.migrate_running import (
    confirm_group,
    execute,
    execute_option,
    explain,
    held_now,
    open_session,
    running_options,
)
from bridge.commands.migrate_words import MigrateCommand, command_words
from bridge.migration.complete import check_can_be_completed, complete_steps
from bridge.migration.moving import kept_plan, open_moving, whoami
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.phases import Phase

SCHEMA = "zkconsumer/migrate-complete/1"


@click.command(cls=MigrateCommand, short_help="End a migration that was switched.")
@click.argument("group")
@execute_option
@click.option("--keep-fence", is_flag=True, help="Old members stay locked out.")
@click.option("--archive", type=click.Path(dir_okay=False, path_type=Path), metavar="FILE",
              help="Where the znodes of the group are kept [GROUP-MIGRATION.znodes].")
@click.option("--confirm", metavar="GROUP", help="The group's name once more, where nobody can be asked.")
@running_options
@click.pass_context
def complete(
    context: click.Context,
    group: str,
    do_it: bool,
    keep_fence: bool,
    archive: Path | None,
    confirm: str | None,
    timeout_s: float,
    zookeeper_auth: str | None,
    output: Literal["table", "json"],
    bootstrap_servers: str | None,
    zookeeper: str | None,
    config_file: Path | None,
) -> None:
    """Keep every znode of the old group in a file, lift the fences, and say that the migration is over.

    From then on there is no rollback. Without --execute it says what each step would do. Exit codes: 0 done or nothing
    to do, 3 would change something, 4 it cannot be completed now, 6 part of it is done and the same command goes on.
    """
    paths.check_group(group)
    session = open_session(context, zookeeper, config_file, bootstrap_servers, zookeeper_auth=zookeeper_auth)
    held = held_now(session, group)
    check_can_be_completed(group, held.control.migration_id, held.phase)  # before that the plan may not be kept yet
    moving = open_moving(session, kept_plan(session, group), whoami())
    file = archive or Path(f"{group}-{held.control.migration_id}.znodes")
    steps = partial(complete_steps, moving, file, keep_fence=keep_fence)
    words = ["--keep-fence"] if keep_fence else []
    words += [f"--archive={archive}"] if archive else []
    again = command_words(context, "complete", group, "--execute", *words)
    if not do_it:
        explain(context, moving, steps, again, SCHEMA, output)
        return
    confirm_group(group, confirm)

    def next_steps(phase: Phase | None) -> list[str]:
        return [command_words(context, "status", group)]

    execute(context, moving, steps, again, timeout_s, SCHEMA, output, next_steps)
