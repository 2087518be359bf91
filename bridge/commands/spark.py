"""``zkconsumer spark``: what one needs beside a Spark query that reads for a group.  No command needs pyspark."""

from __future__ import annotations

import click

from zkconsumer.cli.lazy_commands import LazyGroup

SPARK_COMMANDS = {
    "starting-offsets": "bridge.commands.spark_starting_offsets:starting_offsets_command",
    "reconcile": "bridge.commands.spark_reconcile:reconcile",
    "claims": "bridge.commands.spark_claims:claims",
}
"""Loaded when they are called."""


@click.group(cls=LazyGroup, lazy_commands=SPARK_COMMANDS)
def spark() -> None:
    """Where Spark starts, what it claimed, and order after a crash."""
