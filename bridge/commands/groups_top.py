"""``zkconsumer groups top``.  The list of commands loads this module, so it imports what it needs only when it runs."""

from __future__ import annotations

import click

from zkconsumer.cli.options import ClusterOptions, SecondsRange, cluster_options

INTERVAL_S = 2.0


@click.command()
@click.option(
    "--interval",
    "interval_s",
    type=SecondsRange(0.5, 3_600),
    default=INTERVAL_S,
    show_default=True,
    metavar="S",
    help="Seconds between two reads of a group that is on the screen.",
)
@click.option("--once", is_flag=True, help="Print one table of all groups and end, as in a pipe.")
@cluster_options
@click.pass_context
def top(context: click.Context, interval_s: float, once: bool, cluster: ClusterOptions) -> None:
    """Show all groups of both stores live: state, members, lag, trend, changes of owners, phase of a migration.

    The groups on the screen are read every --interval seconds, and the list of all groups every 10 seconds or more.
    ? is what was not read yet or cannot be known; LAG-SECONDS and TREND are those of zkconsumer lag. OWNER-CHANGES
    counts the reads in the last five minutes that found partitions with another owner. If a server does not answer,
    the last values stay, a line says why, and reading continues.

    Keys: q or Ctrl-C quit; up, down, PgUp, PgDn scroll; / filters by name; r reverses the order; g, m, l, s, t, c and p
    sort by group, members, lag, seconds, trend, changes and phase. In a pipe, and with TERM=dumb, it prints one table
    of all groups and ends; there a trend is not known, since one read shows none.

    Exit codes: 0 shown, 1 a part is unknown (--once and in a pipe), or ZooKeeper does not answer at the start.
    """
    from bridge.commands.groups_top_run import run_top

    run_top(context, cluster, interval_ms=round(interval_s * 1000), is_once=once)
