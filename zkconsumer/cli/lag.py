"""``zkconsumer lag``: how far a group is behind, once or again and again.

A broker that does not answer costs its partitions a ``?`` and an error, never the watch: it goes on, and says when all
brokers answer again.
"""

from __future__ import annotations

import json
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from zkconsumer.admin.describe import COLUMNS, UNKNOWN, Row
from zkconsumer.admin.look import look_at, storage_of
from zkconsumer.admin.modern import look_at_modern, modern_rows
from zkconsumer.admin.session import AdminSession
from zkconsumer.admin.words import count_of
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal
from zkconsumer.cli.common import EXIT_FAILED, NOTHING, open_any, print_json, table_lines, tell_unknown, when
from zkconsumer.cli.console import tell
from zkconsumer.cli.groups import no_such_group, say_what_is_not_there
from zkconsumer.cli.hints import all_completed
from zkconsumer.cli.options import cluster_options, group_argument, output_option
from zkconsumer.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

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

    Where the lag of some partitions is not known (?), because a broker does not answer, the total says "at least".
    With --watch and -o json every look is one line. Where ZooKeeper has no such group, and with --bootstrap-server
    alone: of a group that brokers coordinate. Exit codes: 0 shown, 1 no such group, or not all of it is known (not
    with --watch, which goes on).
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
        code = EXIT_FAILED if first.words else 0
        if output == "json":
            print_json(_json(first) | {"exit_code": code})
        else:
            click.echo("\n".join(_lines(first.rows)))
        tell_unknown(first.words)
        context.exit(code)
    looks = _looks(look, first, f"the group {group} is gone from {home}", round(interval * 1000))
    if output == "json":
        for each in looks:
            click.echo(json.dumps(all_completed(_json(each))))
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
        rows = found.rows(storage, topics)
        return _seen(group, found.state.read_at_ms, rows, found.words, f"zkconsumer groups doctor {shlex.quote(group)}")

    return look


def _modern_group(brokers: Brokers, group: str, topics: Sequence[str]) -> Callable[[], Seen | None]:
    """Looks at a group that brokers coordinate."""

    def look() -> Seen | None:
        found, trouble = look_at_modern(brokers, group)
        if found is None:
            if trouble:
                raise WorldError(f"whether there is a group {group} is not known: {'; '.join(trouble)}")
            return None
        describe_it = f"zkconsumer groups describe {shlex.quote(group)}"
        return _seen(group, SYSTEM_CLOCK.wall_ms(), modern_rows(found, topics), found.words, describe_it)

    return look


def _seen(group: str, at_ms: int, rows: Sequence[Row], words: Sequence[str], next_step: str) -> Seen:
    partitions = tuple(row for row in rows if row.partition is not None)
    return Seen(group, at_ms, partitions, tuple(words), next_step)


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


@dataclass(frozen=True, slots=True)
class Total:
    """The lag of all partitions together.

    ``known``: of those whose lag is known.  ``unknown``: partitions of which a server did not tell it.  ``without``:
    partitions that have no offset or no log, and so no lag.
    """

    partitions: int
    known: int
    unknown: int
    without: int

    @classmethod
    def of(cls, rows: Iterable[Row]) -> Total:
        """A log that was cut behind the offset counts as nothing, not as less than nothing."""
        all_rows = list(rows)
        known = [row.lag for row in all_rows if row.lag is not None]
        unknown = sum(row.is_lag_unknown for row in all_rows)
        return cls(len(all_rows), sum(max(0, each) for each in known), unknown, len(all_rows) - len(known) - unknown)

    def __str__(self) -> str:
        has_known = self.partitions > self.unknown + self.without
        records = str(self.known) if has_known else UNKNOWN if self.unknown else NOTHING
        at_least = "at least " if self.unknown and has_known else ""
        of_all = f"of {count_of(self.partitions, 'partition')}"
        beside = [f"{self.unknown} {of_all} not known"] if self.unknown else []
        beside += [f"{self.without} {of_all} without an offset"] if self.without else []
        return f"{at_least}{records}" + (f"  ({', '.join(beside)})" if beside else "")


def _lines(rows: Sequence[Row]) -> list[str]:
    shown = ("topic", "partition", "current_offset", "log_end_offset", "lag", "consumer_id")
    places = [[name.lower().replace("-", "_") for name in COLUMNS].index(name) for name in shown]
    cells = [[row.cells[place] for place in places] for row in rows]
    return [*table_lines(HEADS, cells), f"TOTAL {Total.of(rows)}"]


def _json(look: Seen) -> dict[str, object]:
    total = Total.of(look.rows)
    return {
        "schema": SCHEMA,
        "group": look.group,
        "at_ms": look.at_ms,
        "total": None if total.unknown else total.known,
        "total_known": total.known,
        "partitions_not_known": total.unknown,
        "partitions_without_offset": total.without,
        "partitions": [row.to_json() for row in look.rows],
        "not_known": list(look.words),
        "next_steps": [look.next_step] if total.known or total.unknown else [],
    }
