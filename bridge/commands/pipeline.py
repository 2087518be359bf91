"""``zkconsumer pipeline``: a consumer group into tables, by one file."""

from __future__ import annotations

import click

from zkconsumer.cli.lazy_commands import LazyGroup

PIPELINE_COMMANDS = {
    "init": "bridge.commands.pipeline_init:init",
    "check": "bridge.commands.pipeline_check:check",
    "run": "bridge.commands.pipeline_run:run",
    "status": "bridge.commands.pipeline_status:status",
    "audit": "bridge.commands.pipeline_audit:audit",
    "backfill": "bridge.commands.pipeline_backfill:backfill",
    "replay": "bridge.commands.pipeline_replay:replay",
}
"""Command -> where it is defined; a module is imported when its command runs."""


@click.group(cls=LazyGroup, lazy_commands=PIPELINE_COMMANDS)
def pipeline() -> None:
    """Read a consumer group with Spark, exactly once into a table, at least once into a topic."""
