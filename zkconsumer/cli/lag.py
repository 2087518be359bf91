"""``zkconsumer lag``: how far a group is behind, once or again and again.

A broker that is away costs its partitions a ``-`` and a word on standard error, never the watch: it goes on, and says
when everybody answers again.
"""

from __future__ import annotations

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from zkconsumer.admin.describe import Row, describe
from zkconsumer.admin.look import look_at, storage_of
from zkconsumer.admin.modern import look_at_modern, modern_rows
from zkconsumer.admin.session import AdminSession
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal
from zkconsumer.cli.common import NOTHING, open_any, table_lines, when
from zkconsumer.cli.console import tell
from zkconsumer.cli.groups import no_such_group, say_what_is_not_there
from zkconsumer.cli.options import cluster_options, group_argument, output_option
from zkconsumer.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from zkconsumer.admin.brokers import Brokers

INTERVAL_S = 2.0
SCHEMA = "zkconsumer/lag/1"
HEADS = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at the group: a row for each partition, and what is not known."""

    group: str
    at_ms: int
    rows: tuple[Row, ...]
    words: tuple[str, ...]
    next_step: str


@click.command()
@group_argument()
@click.option("--topic", "topics", multiple=True, metavar="T", help="Only this topic; may be repeated.")
@click.option("--watch", is_flag=True, help="Look again and again, until Ctrl-C.")
@click.option("--interval", type=click.FloatRange(min=0.1), default=INTERVAL_S, show_default=True, metavar="S",
              help="Seconds between two looks.")
@output_option
@cluster_options
@click.pass_context
def lag(
    context: click.Context,
    group: str,
    topics: Sequence[str],
    watch: bool,
    interval: float,
    output: Literal["table", "json"],
    bootstrap_servers: str | None,
    zookeeper: str | None,
    config_file: Path | None,
) -> None:
    """Show how many records a group still has to read, for each partition and in all.

    The total counts the partitions whose lag is known, and says how many are not. With --watch and -o json every look
    is one line. Where ZooKeeper has no such group, and with --bootstrap-server alone: of a group that brokers
    coordinate.
    """
    session = open_any(context, zookeeper, config_file, bootstrap_servers)
    look, home = _modern_group(session.brokers, group, topics), "its coordinator"
    first: Seen | None = None
    if isinstance(session, AdminSession):
        old = _old_group(session, group, topics)
        first = old()
        if first is not None:
            look, home = old, "ZooKeeper"
    if first is None:
        first = look()
    if first is None:
        no_such_group(context, session, group)
    if not watch:
        _say(first.words)
        click.echo(json.dumps(_json(first), indent=2) if output == "json" else "\n".join(_lines(first.rows)))
        return
    looks = _looks(look, first, f"the group {group} is gone from {home}", round(interval * 1000))
    if output == "json":
        for each in looks:
            click.echo(json.dumps(_json(each)))
            sys.stdout.flush()
    else:
        _watch(looks)


def _old_group(session: AdminSession, group: str, topics: Sequence[str]) -> Callable[[], Seen | None]:
    """Looks at a group in ZooKeeper; says at the first look which topics it does not know."""
    storage = storage_of(session)
    is_first = True

    def look() -> Seen | None:
        nonlocal is_first
        found = look_at(session, group, topics or None)
        if found is None:
            return None
        if is_first:
            say_what_is_not_there(found, topics)
            is_first = False
        rows = describe(found.state, found.ends, found.kafka.offsets, storage, topics)
        return _seen(group, found.state.read_at_ms, rows, found.words, "doctor")

    return look


def _modern_group(brokers: Brokers, group: str, topics: Sequence[str]) -> Callable[[], Seen | None]:
    """Looks at a group that brokers coordinate."""

    def look() -> Seen | None:
        found, trouble = look_at_modern(brokers, group)
        if found is None:
            if trouble:
                raise WorldError(f"whether there is a group {group} is not known: {'; '.join(trouble)}")
            return None
        return _seen(group, SYSTEM_CLOCK.wall_ms(), modern_rows(found, topics), found.words, "describe")

    return look


def _seen(group: str, at_ms: int, rows: Sequence[Row], words: Sequence[str], next_command: str) -> Seen:
    partitions = tuple(row for row in rows if row.partition is not None)
    return Seen(group, at_ms, partitions, tuple(words), f"zkconsumer groups {next_command} {group}")


def _looks(again: Callable[[], Seen | None], first: Seen, gone: str, interval_ms: int) -> Iterator[Seen]:
    """The first look and the following ones; says on standard error what is not known when that changes."""
    said: tuple[str, ...] = ()
    look: Seen | None = first
    pause = StopSignal()
    while True:
        words: tuple[str, ...]
        if look is not None:
            words = look.words
        if words != said:
            _say(words or ("everything is known again",))
            said = words
        if look is not None:
            yield look
        pause.wait(interval_ms)
        try:
            look = again()
            words = () if look is not None else (gone,)
        except WorldError as error:
            look, words = None, (str(error),)


def _watch(looks: Iterator[Seen]) -> None:
    """On a terminal with rich (the extra ``watch``) the table stays in place; otherwise tables follow each other."""
    live = _live()
    if live is None:
        for look in looks:
            click.echo("\n".join([when(look.at_ms) or "", *_lines(look.rows), ""]))
            sys.stdout.flush()
        return
    make_text, display = live
    with display:
        for look in looks:
            lines = [when(look.at_ms) or "", *_lines(look.rows), *look.words]
            display.update(make_text("\n".join(lines)), refresh=True)


def _is_terminal() -> bool:
    return sys.stdout.isatty()


def _live() -> tuple[Any, Any] | None:
    if not _is_terminal():
        return None
    try:
        from rich.live import Live
        from rich.text import Text
    except ImportError:
        return None
    return Text, Live(auto_refresh=False, vertical_overflow="visible")


def _say(words: Sequence[str]) -> None:
    for each in words:
        tell(each)


def total(rows: Sequence[Row]) -> tuple[int, int]:
    """The lag of all partitions whose lag is known, and how many that is not of.

    A log that was cut behind the offset counts as nothing, not as less than nothing.
    """
    known = [row.lag for row in rows if row.lag is not None]
    return sum(max(0, each) for each in known), len(rows) - len(known)


def _lines(rows: Sequence[Row]) -> list[str]:
    cells = [
        (row.topic, row.partition, row.current_offset, row.log_end_offset, row.lag, row.consumer_id) for row in rows
    ]
    records, unknown = total(rows)
    beside = f"  ({unknown} of {len(rows)} partitions not known)" if unknown else ""
    return [*table_lines(HEADS, cells), f"TOTAL {records if len(rows) > unknown else NOTHING}{beside}"]


def _json(look: Seen) -> dict[str, object]:
    records, unknown = total(look.rows)
    return {
        "schema": SCHEMA,
        "group": look.group,
        "at_ms": look.at_ms,
        "total": records,
        "partitions_not_known": unknown,
        "partitions": [row.to_json() for row in look.rows],
        "not_known": list(look.words),
        "next_steps": [look.next_step] if records or unknown else [],
    }
