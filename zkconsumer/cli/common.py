"""What the commands have in common: exit codes, the session, tables and JSON.

Data is written to standard output, messages to standard error.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import UTC, datetime

import click

from zkconsumer.admin.admin_session import (
    CONNECTION_TIMEOUT_MS,
    AdminDependencies,
    AdminSession,
    AnySession,
    BrokerAdminSession,
)
from zkconsumer.base.threads import StopSignal, spawn
from zkconsumer.cli.command_hints import complete_commands_in_json
from zkconsumer.cli.console import log_to_console, print_error, print_message, printable
from zkconsumer.cli.json_errors import mark_json_printed
from zkconsumer.cli.options import (
    BOOTSTRAP_VARIABLE,
    WIDE,
    ZOOKEEPER_VARIABLE,
    ClusterOptions,
    is_wide_wanted,
    read_settings_file,
)
from zkconsumer.cli.table_layout import TableLayout, lay_out_table
from zkconsumer.cli.terminal import before_output, cell_colour, has_colours, terminal_width
from zkconsumer.errors import UsageError

EXIT_FAILED = 1
EXIT_DIFFERS = 3
"""There is a difference or a finding, or ``--execute`` would change something."""
EXIT_PARTIAL = 6
"""A part was done; the same command does the rest."""

CONNECT_NOTICE_AFTER_MS = 2_000
"""After this time without a connection to ZooKeeper, the command prints a notice."""

NO_VALUE = "-"
"""Shown in a table if there is no value."""


def require_admin_session(session: AnySession, what: str) -> AdminSession:
    """Return the session if it has a ZooKeeper.  Raises ``UsageError``; ``what`` names the operation that needs it."""
    if isinstance(session, AdminSession):
        return session
    raise UsageError(f"{what}: give --zookeeper HOST:PORT[/CHROOT], or zookeeper.connect in --config FILE")


def missing_address_error() -> UsageError:
    """No command has a default address: it would most likely be the wrong cluster."""
    return UsageError(
        f"give the address of ZooKeeper: --zookeeper HOST:PORT[/CHROOT], {ZOOKEEPER_VARIABLE} in the environment, "
        "zookeeper.connect in a --config FILE, or --context NAME"
    )


def open_zookeeper_session(context: click.Context, cluster: ClusterOptions) -> AdminSession:
    """A connected session that ends with the command.  Tests put their own ``AdminDependencies`` into the context."""

    def print_notice(stop: StopSignal) -> None:
        if not stop.wait(CONNECT_NOTICE_AFTER_MS):
            print_message(f"Waiting for ZooKeeper, at most {CONNECTION_TIMEOUT_MS // 1000} s.")

    log_to_console()
    if cluster.zookeeper is None and cluster.config_file is None:
        raise missing_address_error()
    word = spawn("zkconsumer-word", print_notice, lambda _name, _error: None)
    doors = context.find_object(AdminDependencies)
    try:
        session = AdminSession.open(cluster.zookeeper, cluster.config_file, doors, cluster.bootstrap_servers)
    finally:
        word.stop(CONNECT_NOTICE_AFTER_MS)
    context.call_on_close(session.close)
    return session


def open_admin_session(context: click.Context, cluster: ClusterOptions) -> AnySession:
    """``open_session``; a session with brokers only, if no ZooKeeper is configured."""
    if cluster == ClusterOptions():
        raise UsageError(
            "give the address of the cluster: --zookeeper HOST:PORT[/CHROOT] or --bootstrap-server HOST:PORT, "
            f"{ZOOKEEPER_VARIABLE} or {BOOTSTRAP_VARIABLE} in the environment, a --config FILE that has it, or "
            "--context NAME"
        )
    in_file = read_settings_file(cluster.config_file)
    servers = cluster.bootstrap_servers or in_file.get("bootstrap.servers")
    if servers is None or cluster.zookeeper is not None or "zookeeper.connect" in in_file:
        return open_zookeeper_session(context, replace(cluster, bootstrap_servers=servers))
    log_to_console()
    session = BrokerAdminSession.open(servers, cluster.config_file, context.find_object(AdminDependencies))
    context.call_on_close(session.close)
    return session


def print_not_known(words: Iterable[str]) -> None:
    """Print what is unknown (so neither zero nor absent): which servers did not answer, and what to do."""
    for each in words:
        print_error(each)


def print_json(value: object, *, is_line: bool = False) -> None:
    """Print one JSON document with completed commands.  ``is_line``: on one line, one of many."""
    mark_json_printed()
    before_output()
    click.echo(json.dumps(complete_commands_in_json(value), indent=None if is_line else 2))


def print_table(heads: Sequence[str], rows: Iterable[Sequence[object]], droppable: Sequence[str] = ()) -> None:
    """Print ``table_layout``, and below it what does not fit into the terminal."""
    layout = table_layout(heads, rows, droppable)
    before_output()
    for line in layout.lines:
        click.echo(line)
    note = layout.note(how_to_see_all())
    if note is not None:
        print_message(note)


def table_layout(
    heads: Sequence[str], rows: Iterable[Sequence[object]], droppable: Sequence[str] = (), *, is_wide: bool = False
) -> TableLayout:
    """Lay out a table for standard output; None and "" are shown as ``-``.

    On a terminal it is as narrow as the terminal: columns of ``droppable`` are left out, the first one first, and long
    texts are shortened.  In a pipe, with ``is_wide`` and with ``-o wide`` it is complete.
    """
    width = None if is_wide or is_wide_wanted() else terminal_width()
    texts = [[_cell(value) for value in row] for row in rows]
    paint = cell_colour if has_colours(sys.stdout) else None
    return lay_out_table(heads, texts, width, droppable=droppable, empty=NO_VALUE, paint=paint)


def how_to_see_all() -> str:
    """How the user gets the complete table: with ``-o wide``, if this command has the option."""
    context = click.get_current_context(silent=True)
    options = () if context is None else context.command.params
    if any(WIDE in option.type.choices for option in options if isinstance(option.type, click.Choice)):
        return f"-o {WIDE} shows all"
    return "append | cat to see all"


def utc_text(ms: int | None) -> str | None:
    """Milliseconds since 1970 as UTC to the second; None stays None."""
    if ms is None:
        return None
    return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _cell(value: object) -> str:
    text = NO_VALUE if value is None or value == "" else str(value)
    return printable(text)
