"""``zkconsumer web``.  The list of commands loads this module, so it imports what it needs only when it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from zkconsumer.cli.options import ClusterOptions, cluster_options

DEFAULT_WEB_PORT = 8650

file_option = click.Path(dir_okay=False, exists=True, path_type=Path)


@click.command()
@click.option("--host", default="127.0.0.1", show_default=True, help="The address of this machine to listen on.")
@click.option(
    "--port",
    default=DEFAULT_WEB_PORT,
    show_default=True,
    type=click.IntRange(0, 65535),
    help="The port to listen on; 0: any free port.",
)
@click.option(
    "--allow-host",
    "names",
    multiple=True,
    metavar="NAME",
    help="A name by which browsers reach this server, if it is not its address. May be given repeatedly.",
)
@click.option(
    "--token-file",
    type=file_option,
    metavar="FILE",
    help="The token, on the first line of this file. Default: a new one for each start. Not needed on 127.0.0.1.",
)
@click.option("--tls-certificate", type=file_option, metavar="FILE", help="PEM; with the key, or use --tls-key.")
@click.option("--tls-key", type=file_option, metavar="FILE", help="PEM; the key, if --tls-certificate lacks it.")
@cluster_options
@click.pass_context
def web(context: click.Context, /, cluster: ClusterOptions, **options: Any) -> None:
    """Show groups, their lag and their migrations on a page in the browser; changes nothing.

    The page has four panels for each group: its members, its lag with graphs, its migration, and the evidence: findings
    of the doctor, verification, changes. It shows commands to copy, and runs none. It prints its address when it
    listens, and stops on Ctrl-C or SIGTERM.

    On 127.0.0.1 it needs no token. On another address every request needs the token that the command prints; a browser
    exchanges it once for a cookie. Without --tls-certificate others on the network can read what is sent.

    Each address also answers programs, with the JSON of the command that shows the same: add format=json, or send
    Accept: application/json.

    Exit codes: 0 stopped by a signal, 1 ZooKeeper does not answer, 2 an option is wrong or the extra [web] is missing,
    4 the port cannot be used.
    """
    from bridge.commands.web_run import run_web

    run_web(context, cluster, options)
