"""``zkconsumer demo``.  The list of commands loads this module, so it imports its steps only when it runs."""

from __future__ import annotations

import logging

import click

from zkconsumer.cli.console import log_to_console
from zkconsumer.errors import UsageError


@click.command()
@click.option("--web", "on_page", is_flag=True, help="Show it on the page of zkconsumer web, until Ctrl-C.")
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    metavar="N",
    help="With --web: the port of the page; 0: any free port.  [default: 8650]",
)
@click.option("-v", "--verbose", is_flag=True, help="Show the log lines of the members as well.")
def demo(on_page: bool, port: int | None, verbose: bool) -> None:
    """Show how two members divide a topic: a join, a crash and a clean leave; no Java, no server.

    With --web: the same on a page in the browser, without end: members come and leave, the lag grows and falls, and a
    group moves to Kafka and back. It needs the extra [web].
    """
    if port is not None and not on_page:
        raise UsageError("--port needs --web")
    log_to_console(logging.INFO if verbose else logging.ERROR)
    if on_page:
        from bridge.commands.demo_page import run_demo_page

        run_demo_page(port)
        return
    from bridge.commands.demo_run import run_demo

    run_demo()
