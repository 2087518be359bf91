"""``zkconsumer migrate``: a group moves from ZooKeeper to the group coordinator, and back."""

from __future__ import annotations

import click

from zkconsumer.cli.lazy import LazyGroup

LATER = {
    "inspect": "bridge.commands.migrate_inspect:inspect",
    "plan": "bridge.commands.migrate_plan:plan",
}
"""Loaded when they are called."""


@click.group(cls=LazyGroup, later=LATER)
def migrate() -> None:
    """Move a group from ZooKeeper to Kafka's group coordinator, and back."""
