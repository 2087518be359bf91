"""``zkconsumer lag``: the lag of a group, once or repeatedly.

If a broker does not answer, its partitions show ``?`` and an error is printed; ``--watch`` continues, and reports when
all brokers answer again.
"""

from __future__ import annotations

import os
import shlex
import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import click

from zkconsumer.admin.admin_session import AdminSession, AnySession
from zkconsumer.admin.coordinator_group_snapshot import coordinator_group_rows, read_coordinator_group_snapshot
from zkconsumer.admin.describe import COLUMNS, UNKNOWN, GroupDescribeRow
from zkconsumer.admin.lag_time_observer import LagTimeObserver
from zkconsumer.admin.lag_time_text import caught_up_in_text, lag_time_total_json, lag_time_total_text, trend_text
from zkconsumer.admin.text_format import count_text
from zkconsumer.admin.zookeeper_group_snapshot import configured_storage, read_group_snapshot
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.progress import progress_listener, progress_task
from zkconsumer.base.threads import StopSignal
from zkconsumer.cli.common import (
    EXIT_FAILED,
    NO_VALUE,
    how_to_see_all,
    open_admin_session,
    print_json,
    print_not_known,
    table_layout,
    utc_text,
)
from zkconsumer.cli.console import print_message
from zkconsumer.cli.groups import exit_no_such_group, print_topics_not_found, topics_not_found, unreadable_offset_texts
from zkconsumer.cli.options import ClusterOptions, OutputFormat, SecondsRange, group_argument, report_options
from zkconsumer.cli.redrawn_lines import RedrawnLines
from zkconsumer.cli.terminal import is_terminal
from zkconsumer.errors import UnavailableError, UsageError
from zkconsumer.observe.lag_time import LagTimeTotal
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    from zkconsumer.admin.admin_session import AnySession
    from zkconsumer.admin.log_ranges import LogRange
    from zkconsumer.observe.lag_time import PartitionLagTime
    from zkconsumer.types import TopicPartition

INTERVAL_S = 2.0
SCHEMA = "zkconsumer/lag/1"
LAG_COLUMNS = (
    "TOPIC",
    "PARTITION",
    "CURRENT-OFFSET",
    "LOG-END-OFFSET",
    "LAG",
    "LAG-SECONDS",
    "TREND",
    "CAUGHT-UP-IN",
    "CONSUMER-ID",
)
DROPPABLE_LAG_COLUMNS = ("LOG-END-OFFSET", "CONSUMER-ID", "CURRENT-OFFSET", "CAUGHT-UP-IN")


@dataclass(frozen=True, slots=True)
class LagSnapshot:
    """One read of the group: a row for each partition, and what is unknown."""

    group: str
    at_ms: int
    rows: Sequence[GroupDescribeRow]
    not_known: tuple[str, ...]
    next_step: str
    topics_not_found: Sequence[str] = ()
    """Topics that were requested and of which the group has nothing."""


@click.command()
@group_argument()
@click.option("--topic", "topics", multiple=True, metavar="T", help="Only this topic; may be repeated.")
@click.option("--watch", is_flag=True, help="Repeat until Ctrl-C.")
@click.option(
    "--interval",
    type=SecondsRange(0.1),
    default=INTERVAL_S,
    show_default=True,
    metavar="S",
    help="Seconds between two reads.",
)
@click.option(
    "--observe",
    "observe_s",
    type=SecondsRange(0),
    default=0,
    metavar="S",
    help="Read for S seconds before the result is printed, so that trends are known.",
)
@report_options
def lag(
    context: click.Context,
    group: str,
    topics: Sequence[str],
    watch: bool,
    interval: float,
    observe_s: float,
    output: OutputFormat,
    cluster: ClusterOptions,
) -> None:
    """Show how many records a group still has to read, for each partition and in all, and for how long they wait.

    LAG-SECONDS is now minus the timestamp of the first unread record (CreateTime or LogAppendTime; JSON names it): 0
    only if everything was read, ? if it is unknown, such as for messages of Kafka 0.8 and 0.9, which have no
    timestamps. With --watch or --observe the time of those is known if they were appended meanwhile; of older ones it
    is "> S". TREND and CAUGHT-UP-IN also need --watch or --observe, for at least three commits of the group.

    If the lag of some partitions is unknown (?), because a broker does not answer or an offset in ZooKeeper is not a
    number, the total is printed as "at least". With --watch and -o json every read is one line. With --bootstrap-server
    alone, and if ZooKeeper has no such group, the command shows the group that brokers coordinate. For a group that was
    migrated to Kafka, CONSUMER-ID is the member of the coordinator's group. Exit codes: 0 shown, 1 no such group, the
    group has nothing of a --topic, or a part is unknown (not with --watch, which continues).
    """
    if watch and observe_s:
        raise UsageError("--watch observes as long as it runs: give it without --observe")
    session = open_admin_session(context, cluster)
    look, home, first = first_lag_snapshot(session, group, topics)
    if first is None:
        exit_no_such_group(context, session, group)
    if observe_s:
        first = _observed(look, first, round(observe_s * 1000), round(interval * 1000))
    if not watch:
        code = EXIT_FAILED if first.not_known or first.topics_not_found else 0
        if output == "json":
            print_json(lag_document(first) | {"exit_code": code})
        else:
            click.echo("\n".join(_lines(first.rows)))
        print_not_known(first.not_known)
        print_topics_not_found(group, first.topics_not_found)
        context.exit(code)
    print_topics_not_found(group, first.topics_not_found)
    looks = _snapshots(look, first, f"the group {group} does not exist any more in {home}", round(interval * 1000))
    if output == "json":
        for each in looks:
            print_json(lag_document(each), is_line=True)
            sys.stdout.flush()
    else:
        with progress_listener(None):  # the table is redrawn in place
            _watch(looks)


def first_lag_snapshot(
    session: AnySession, group: str, topics: Sequence[str] = ()
) -> tuple[Callable[[], LagSnapshot | None], str, LagSnapshot | None]:
    """Read the group in the store that has it, ZooKeeper first; return the reader for the next reads, the store's name,
    and the snapshot, which is None if neither has it.  Raises ``UnavailableError``.
    """
    observer = LagTimeObserver.of_session(session)
    if isinstance(session, AdminSession) and paths.is_group(group):
        old = _zookeeper_group_reader(session, observer, group, topics)
        first = old()
        if first is not None:
            return old, "ZooKeeper", first
    look = _coordinator_group_reader(session, observer, group, topics)
    return look, "its coordinator", look()


def _zookeeper_group_reader(
    session: AdminSession, observer: LagTimeObserver, group: str, topics: Sequence[str]
) -> Callable[[], LagSnapshot | None]:
    """Return a function that reads a group in ZooKeeper."""
    storage = configured_storage(session)
    doctor = f"zkconsumer groups doctor {shlex.quote(group)}"

    def look() -> LagSnapshot | None:
        found = read_group_snapshot(session, group, topics or None)
        if found is None:
            return None
        rows, words = found.rows(storage, topics), [*found.not_known, *unreadable_offset_texts(found)]
        ranges = dict(found.log_ranges)
        if found.state.authority == "kafka":
            rows, more = _with_coordinator_members(session, group, rows, topics, ranges)
            words += more
        rows = observer.with_lag_times(rows, ranges)
        absent, not_known = topics_not_found(topics, rows, found), tuple(dict.fromkeys(words))
        return LagSnapshot(group, found.state.read_at_ms, _partitions(rows), not_known, doctor, absent)

    return look


def _with_coordinator_members(
    session: AnySession,
    group: str,
    rows: Sequence[GroupDescribeRow],
    topics: Sequence[str],
    ranges: dict[TopicPartition, LogRange],
) -> tuple[list[GroupDescribeRow], Sequence[str]]:
    """Return the rows of a migrated group with the members that read now, and why those are unknown.

    Partitions that exist only in the coordinator's group are added, and the ranges of their logs to ``ranges``.
    """
    coordinator_group, trouble = read_coordinator_group_snapshot(session.brokers, group, session.isolation_level)
    if coordinator_group is None:
        unknown = {"consumer_id"} if trouble else set()
        return [replace(row, unknown=row.unknown | unknown) for row in rows], trouble
    now = {
        (row.topic, row.partition): row
        for row in coordinator_group_rows(coordinator_group, topics)
        if row.partition is not None
    }
    ranges |= {tp: log for tp, log in coordinator_group.log_ranges.items() if tp not in ranges}
    known = {(row.topic, row.partition) for row in rows}
    owned = [
        replace(row, consumer_id=now[at].consumer_id) if (at := (row.topic, row.partition)) in now else row
        for row in rows
    ]
    return [*owned, *(row for at, row in now.items() if at not in known)], coordinator_group.not_known


def _coordinator_group_reader(
    session: AnySession, observer: LagTimeObserver, group: str, topics: Sequence[str]
) -> Callable[[], LagSnapshot | None]:
    """Return a function that reads a group that brokers coordinate."""

    def look() -> LagSnapshot | None:
        found, trouble = read_coordinator_group_snapshot(session.brokers, group, session.isolation_level)
        if found is None:
            if trouble:
                raise UnavailableError(f"whether there is a group {group} is not known: {'; '.join(trouble)}")
            return None
        describe_it = f"zkconsumer groups describe {shlex.quote(group)}"
        rows = observer.with_lag_times(coordinator_group_rows(found, topics), found.log_ranges)
        absent, not_known = topics_not_found(topics, rows, None), tuple(dict.fromkeys(found.not_known))
        return LagSnapshot(group, SYSTEM_CLOCK.wall_ms(), _partitions(rows), not_known, describe_it, absent)

    return look


def _partitions(rows: Sequence[GroupDescribeRow]) -> list[GroupDescribeRow]:
    return [row for row in rows if row.partition is not None]


def _observed(
    look: Callable[[], LagSnapshot | None], first: LagSnapshot, observe_ms: int, interval_ms: int
) -> LagSnapshot:
    """Read until the time is over; return the last snapshot, or the one before if the group was deleted."""
    pause = StopSignal()
    end_ms = SYSTEM_CLOCK.now_ms() + observe_ms
    latest = first
    with progress_task("observing", observe_ms // 1000, "s") as task:
        while (left_ms := end_ms - SYSTEM_CLOCK.now_ms()) > 0:
            task.advance((observe_ms - left_ms) // 1000 - task.done)
            pause.wait(min(interval_ms, left_ms))
            latest = look() or latest
    return latest


def _snapshots(
    again: Callable[[], LagSnapshot | None], first: LagSnapshot, gone: str, interval_ms: int
) -> Iterator[LagSnapshot]:
    """Yield the first snapshot and the next ones; print to standard error what is unknown whenever that changes."""
    shown_words: tuple[str, ...] = ()
    look: LagSnapshot | None = first
    pause = StopSignal()
    while True:
        words: tuple[str, ...]
        if look is not None:
            words = look.not_known
        if words != shown_words:
            for each in words or ("nothing is unknown any more",):
                print_message(each)
            shown_words = words
        if look is not None:
            yield look
        pause.wait(interval_ms)
        try:
            look = again()
            words = () if look is not None else (gone,)
        except UnavailableError as error:
            look, words = None, (str(error),)


def _watch(looks: Iterator[LagSnapshot]) -> None:
    """On a terminal, replace the table; otherwise print one table after another."""
    if not is_terminal(sys.stdout) or os.environ.get("TERM") == "dumb":
        for look in looks:
            click.echo("\n".join([utc_text(look.at_ms) or "", *_lines(look.rows), ""]))
            sys.stdout.flush()
        return
    with RedrawnLines(sys.stdout) as place:
        for look in looks:
            table = _lines(look.rows)
            last = len(table) - 1 - len(look.rows)  # the totals, and what is left out
            place.draw([utc_text(look.at_ms) or "", *table, *look.not_known], last + len(look.not_known))


@dataclass(frozen=True, slots=True)
class LagTotal:
    """The lag of all partitions together.

    ``known``: the lag of the partitions whose lag is known.  ``unknown``: partitions whose lag is unknown.
    ``without_offset`` and ``without_log``: partitions without an offset, or that do not exist, so they have no lag.
    """

    partitions: int
    known: int
    unknown: int
    without_offset: int
    without_log: int

    @classmethod
    def of(cls, rows: Iterable[GroupDescribeRow]) -> LagTotal:
        """If the log was truncated below the offset, the lag counts as 0, not as a negative number."""
        all_rows = list(rows)
        known = [row.lag for row in all_rows if row.lag is not None]
        unknown = sum(row.is_lag_unknown for row in all_rows)
        without_log = sum(
            row.lag is None and not row.is_lag_unknown and row.current_offset is not None for row in all_rows
        )
        without_offset = len(all_rows) - len(known) - unknown - without_log
        return cls(len(all_rows), sum(max(0, each) for each in known), unknown, without_offset, without_log)

    @property
    def has_known(self) -> bool:
        """Whether the lag of any partition is known; if not, ``known`` means nothing."""
        return self.partitions > self.unknown + self.without_offset + self.without_log

    def __str__(self) -> str:
        records = str(self.known) if self.has_known else UNKNOWN if self.unknown else NO_VALUE
        at_least = "at least " if self.unknown and self.has_known else ""
        of_all = f"of {count_text(self.partitions, 'partition')}"
        counts = (
            (self.unknown, "not known"), (self.without_offset, "without an offset"), (self.without_log, "without a log")
        )  # fmt: skip
        beside = [f"{count} {of_all} {words}" for count, words in counts if count]
        return f"{at_least}{records}" + (f"  ({', '.join(beside)})" if beside else "")


def _lines(rows: Sequence[GroupDescribeRow]) -> list[str]:
    shown = ("topic", "partition", "current_offset", "log_end_offset", "lag")
    places = [[name.lower().replace("-", "_") for name in COLUMNS].index(name) for name in shown]
    owner = COLUMNS.index("CONSUMER-ID")
    cells = [[*(row.cells[place] for place in places), *_time_cells(row), row.cells[owner]] for row in rows]
    layout = table_layout(LAG_COLUMNS, cells, DROPPABLE_LAG_COLUMNS)
    lines = list(layout.lines)
    times = _lag_times(rows)
    if times:
        lines.append(f"LARGEST LAG-SECONDS {lag_time_total_text(LagTimeTotal.of(each.lag for each in times))}")
    note = layout.note(how_to_see_all())
    return [*lines, f"TOTAL {LagTotal.of(rows)}", *([] if note is None else [note])]


def _time_cells(row: GroupDescribeRow) -> tuple[str | None, str | None, str | None]:
    if row.lag_time is None or row.lag_seconds_cell is None:
        return None, None, None
    return row.lag_seconds_cell, trend_text(row.lag_time.catch_up), caught_up_in_text(row.lag_time.catch_up)


def _lag_times(rows: Sequence[GroupDescribeRow]) -> list[PartitionLagTime]:
    return [row.lag_time for row in rows if row.lag_time is not None]


def lag_document(look: LagSnapshot) -> dict[str, object]:
    """The document of ``lag -o json``, without the exit code."""
    total = LagTotal.of(look.rows)
    return {
        "schema": SCHEMA,
        "group": look.group,
        "at_ms": look.at_ms,
        "total": None if total.unknown or not total.has_known else total.known,
        "total_known": total.known,
        "partitions_not_known": total.unknown,
        "partitions_without_offset": total.without_offset,
        "partitions_without_log": total.without_log,
        **lag_time_total_json(_lag_times(look.rows)),
        "partitions": [row.to_json() for row in look.rows],
        "topics_not_found": list(look.topics_not_found),
        "not_known": list(look.not_known),
        "next_steps": [look.next_step] if total.known or total.unknown else [],
    }
