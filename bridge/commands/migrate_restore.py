"""``zkconsumer migrate restore``: creates the znodes of an archive in ZooKeeper again."""

from __future__ import annotations

from pathlib import Path

import click

from bridge.commands.migrate_execution import execute_option, open_run_session, zookeeper_auth_option
from bridge.commands.migrate_hints import MigrateCommand, migrate_command
from bridge.migration.steps.znode_archive import missing_znodes, read_archive, restore_znodes
from zkconsumer.admin.zookeeper_group import read_control
from zkconsumer.admin.zookeeper_offset_writes import members_registered_text, registered_members
from zkconsumer.cli.common import EXIT_DIFFERS, print_json
from zkconsumer.cli.console import print_message
from zkconsumer.cli.options import ClusterOptions, OutputFormat, report_options
from zkconsumer.errors import PreconditionFailed

SCHEMA = "zkconsumer/migrate-restore/1"


@click.command(cls=MigrateCommand, short_help="Restore the znodes of an archive.")
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@execute_option
@zookeeper_auth_option
@report_options
def restore(
    context: click.Context,
    file: Path,
    do_it: bool,
    zookeeper_auth: str | None,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> None:
    """Create the znodes of FILE, an archive of `migrate complete`, that are missing in ZooKeeper.

    The command restores data and access lists. It changes no existing znode, does not restore ephemeral znodes and
    the fences of the migration, and does not move the authority. Exit codes: 0 done or nothing to do, 3 would change
    something, 4 it cannot be done now, 6 part of it is done and the same command continues.
    """
    archive = read_archive(file)
    session = open_run_session(context, cluster, zookeeper_auth, acl_fence=False)
    members = registered_members(session, archive.group)
    if members:
        raise PreconditionFailed(
            f"{members_registered_text(members)}, and would use the restored znodes: stop it first"
        )
    control, version, problem = read_control(session, archive.group)
    if version is not None and (control is None or not control.is_over):
        why = problem if control is None else f"phase {control.phase}"
        raise PreconditionFailed(
            f"group {archive.group} is migrating ({why}), and only the migration may change its znodes. See: "
            f"{migrate_command(context, 'status', archive.group)}"
        )
    wanted = restore_znodes(session, archive) if do_it else missing_znodes(session, archive)
    again = migrate_command(context, "restore", str(file), "--execute")
    if output == "json":
        steps = [again] if wanted and not do_it else []
        print_json(
            {"schema": SCHEMA, "group": archive.group, "executed": do_it, "created": wanted, "next_steps": steps}
        )
    else:
        for path in wanted:
            click.echo(path)
    if do_it or not wanted:
        print_message(
            f"{len(wanted)} znodes of group {archive.group} were created; {len(archive.nodes)} are in the archive."
        )
        return
    print_message(f"{len(wanted)} znodes would be created. Nothing was changed. To do it: {again}")
    context.exit(EXIT_DIFFERS)
