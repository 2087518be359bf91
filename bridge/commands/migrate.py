"""``zkconsumer migrate``: moves a group from ZooKeeper to the group coordinator, and back."""

from __future__ import annotations

import click

from zkconsumer.cli.lazy_commands import LazyGroup

MIGRATE_COMMANDS = {
    "abort": "bridge.commands.migrate_status:abort",
    "apply": "bridge.commands.migrate_apply:apply",
    "complete": "bridge.commands.migrate_complete:complete",
    "inspect": "bridge.commands.migrate_inspect:inspect",
    "plan": "bridge.commands.migrate_plan:plan",
    "restore": "bridge.commands.migrate_restore:restore",
    "rollback": "bridge.commands.migrate_rollback:rollback",
    "status": "bridge.commands.migrate_status:status",
    "verify": "bridge.commands.migrate_status:verify",
}
"""Command -> where it is defined; a module is imported when its command runs."""


@click.group(cls=LazyGroup, lazy_commands=MIGRATE_COMMANDS)
@click.pass_context
def migrate(context: click.Context) -> None:
    """Move a group from ZooKeeper to Kafka's group coordinator, and back.

    Use the commands in this order: inspect, plan, apply, complete. Until complete, rollback moves the group back.
    status shows at any time the phase of a group, and which command comes next.
    """
    # Imported here, because the help of ``zkconsumer`` does not need it.
    from zkconsumer.base.gc_tuning import infrequent_gc

    context.with_resource(infrequent_gc())
