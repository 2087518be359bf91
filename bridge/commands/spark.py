"""``zkconsumer spark``: commands for Spark queries that read as members of a group.  They do not need pyspark."""

from __future__ import annotations

import click

from zkconsumer.cli.lazy_commands import LazyGroup

SPARK_COMMANDS = {
    "starting-offsets": "bridge.commands.spark_starting_offsets:starting_offsets_command",
    "reconcile": "bridge.commands.spark_reconcile:reconcile",
    "claims": "bridge.commands.spark_claims:claims",
}
"""Command -> where it is defined; a module is imported when its command runs."""


@click.group(cls=LazyGroup, lazy_commands=SPARK_COMMANDS)
def spark() -> None:
    """Starting offsets, claims, and repair after a crash, for Spark."""
