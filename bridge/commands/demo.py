"""``zkconsumer demo``.  The list of commands loads this module, so it imports its steps only when it runs."""

from __future__ import annotations

import logging

import click

from zkconsumer.cli.console import log_to_console


@click.command()
@click.option("-v", "--verbose", is_flag=True, help="Show the log lines of the members as well.")
def demo(verbose: bool) -> None:
    """Show how two members divide a topic: a join, a crash and a clean leave; no Java, no server."""
    from bridge.commands.demo_run import run_demo

    log_to_console(logging.INFO if verbose else logging.ERROR)
    run_demo()
