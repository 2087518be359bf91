"""``zkconsumer lag``: how far a group is behind, once or again and again.

A broker that is away costs its partitions a ``-`` and a word on standard error, never the watch: it goes on, and says
when everybody answers again.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import click

from zkconsumer.admin.describe import Row, Storage, describe
from zkconsumer.admin.look import Look, look_at, storage_of
from zkconsumer.base.threads import StopSignal
from zkconsumer.cli.common import NOTHING, cluster_options, open_session, output_option, table_lines, tell, when
from zkconsumer.cli.groups import no_such_group, say_what_is_not_there
from zkconsumer.errors import WorldError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from zkconsumer.admin.session import AdminSession

INTERVAL_S = 2.0
SCHEMA = "zkconsumer/lag/1"
HEADS = ("TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID")


@click.command()
@click.argument("group")
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
    zookeeper: str | None,
    config_file: Path | None,
) -> None:
    """Show how many records a group still has to read, for each partition and in all.

    The total counts the partitions whose lag is known, and says how many are not. With --watch and -o json every look
    is one line.
    """
    session = open_session(context, zookeeper, config_file)
    look = look_at(session, group, topics or None)
    if look is None:
        no_such_group(context, session, group)
    say_what_is_not_there(look, topics)
    storage = storage_of(session)
    if not watch:
        _say(look.words)
        rows = _rows(look, storage, topics)
        if output == "json":
            click.echo(json.dumps(_json(look, rows), indent=2))
        else:
            click.echo("\n".join(_lines(rows)))
        return
    looks = _looks(session, group, topics, look, round(interval * 1000))
    if output == "json":
        for each in looks:
            click.echo(json.dumps(_json(each, _rows(each, storage, topics))))
            sys.stdout.flush()
    else:
        _watch(looks, storage, topics)


def _looks(
    session: AdminSession, group: str, topics: Sequence[str], first: Look, interval_ms: int
) -> Iterator[Look]:
    """The first look and the following ones; says on standard error what is not known when that changes."""
    said: tuple[str, ...] = ()
    look: Look | None = first
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
            look = look_at(session, group, topics or None)
            words = () if look is not None else (f"the group {group} is gone from ZooKeeper",)
        except WorldError as error:
            look, words = None, (str(error),)


def _watch(looks: Iterator[Look], storage: Storage, topics: Sequence[str]) -> None:
    """On a terminal with rich (the extra ``watch``) the table stays in place; otherwise tables follow each other."""
    live = _live()
    if live is None:
        for look in looks:
            click.echo("\n".join([when(look.state.read_at_ms) or "", *_lines(_rows(look, storage, topics)), ""]))
            sys.stdout.flush()
        return
    make_text, display = live
    with display:
        for look in looks:
            lines = [when(look.state.read_at_ms) or "", *_lines(_rows(look, storage, topics)), *look.words]
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


def _rows(look: Look, storage: Storage, topics: Sequence[str]) -> list[Row]:
    rows = describe(look.state, look.ends, look.kafka.offsets, storage, topics)
    return [row for row in rows if row.partition is not None]


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


def _json(look: Look, rows: Sequence[Row]) -> dict[str, object]:
    records, unknown = total(rows)
    return {
        "schema": SCHEMA,
        "group": look.state.group,
        "at_ms": look.state.read_at_ms,
        "total": records,
        "partitions_not_known": unknown,
        "partitions": [row.to_json() for row in rows],
        "not_known": list(look.words),
        "next_steps": [f"zkconsumer groups doctor {look.state.group}"] if records or unknown else [],
    }
