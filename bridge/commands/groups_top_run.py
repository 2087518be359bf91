"""What ``zkconsumer groups top`` does: reads as the page does (``ClusterWatcher``), and draws a screen of text."""

from __future__ import annotations

import os
import sys
from contextlib import closing, suppress
from typing import TYPE_CHECKING, Any

import click

from bridge.commands.web_run import cluster_text, session_opener
from bridge.web.cluster_watcher import GROUPS_MAX, LIST, ClusterWatcher, TooManyGroups
from bridge.web.document_readers import read_group_report, read_list_document
from bridge.web.group_feed import GROUP
from bridge.web.group_totals import read_group_phases
from bridge.web.page_documents import group_page, list_rows
from bridge.web.top_rows import (
    DROPPABLE_TOP_COLUMNS,
    HELP_LINE,
    SHORT_HELP_LINE,
    TOP_COLUMNS,
    TopRow,
    TopView,
    one_line_a_group,
    parse_keys,
    top_row,
)
from zkconsumer.admin.text_format import duration_text
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.progress import progress_listener, progress_task
from zkconsumer.cli.common import EXIT_FAILED, open_admin_session, print_not_known, print_table, table_layout, utc_text
from zkconsumer.cli.console import log_to_console, printable
from zkconsumer.cli.options import ClusterOptions
from zkconsumer.cli.table_layout import shorten, text_width
from zkconsumer.cli.terminal import ATTENTION, BAD, coloured, is_terminal, terminal_width
from zkconsumer.errors import UnavailableError

if TYPE_CHECKING:
    from bridge.web.read_state import ReadState
    from zkconsumer.admin.admin_session import AnySession

LIST_INTERVAL_MS_MIN = 10_000
"""The list has the offsets of every group, so it is read less often than the groups on the screen."""

REDRAW_INTERVAL_MS = 1_000
"""The screen is redrawn so often without any event: it shows ages."""

OTHER_LINES = 5
"""Of the screen: two lines above the table, its head, and two lines below it."""

ERRORS_SHOWN_MAX = 3


def run_top(context: click.Context, cluster: ClusterOptions, *, interval_ms: int, is_once: bool) -> None:
    """Show the groups until a key or a signal ends it; one table if standard output is no terminal."""
    if is_once or not is_terminal(sys.stdout) or os.environ.get("TERM") == "dumb":
        _print_once(context, open_admin_session(context, cluster))
        return
    open_session = session_opener(context, cluster)
    log_to_console()
    # Log lines would be written over the screen; the screen itself shows why a read failed.
    import logging

    logging.disable(logging.CRITICAL)
    try:
        with progress_listener(None):
            _run_live(open_session, cluster_text(cluster), interval_ms)
    finally:
        logging.disable(logging.NOTSET)


def _print_once(context: click.Context, session: AnySession) -> None:
    document, _ = read_list_document(session)
    listed = one_line_a_group(list_rows(document, {}, read_group_phases(session, document))["groups"])
    not_known = list(document["not_known"])
    rows: list[TopRow] = []
    now_ms = SYSTEM_CLOCK.wall_ms()
    with progress_task("reading", len(listed), "groups") as task:
        for one in listed:
            page, error = None, ""
            try:
                report = read_group_report(session, one["group"])
            except UnavailableError as failure:
                error = str(failure)
                not_known.append(f"group {one['group']}: {error}")
            else:
                if report is None:  # it was deleted meanwhile
                    continue
                page = group_page(report)
                not_known += [f"group {one['group']}: {words}" for words in report.not_known]
            rows.append(top_row(one, page, (), now_ms, error))
            task.advance()
    if rows or not not_known:  # otherwise an empty table would mean that there are no groups
        print_table(TOP_COLUMNS, (row.cells for row in TopView().matching(rows)), DROPPABLE_TOP_COLUMNS)
    print_not_known(not_known)
    context.exit(EXIT_FAILED if not_known else 0)


def _run_live(open_session: Any, where: str, interval_ms: int) -> None:
    from zkconsumer.cli.live_screen import LiveScreen

    view = TopView()
    started_ms = SYSTEM_CLOCK.wall_ms()
    screen = LiveScreen()
    intervals = {LIST: max(LIST_INTERVAL_MS_MIN, interval_ms), GROUP: interval_ms}
    with screen, closing(ClusterWatcher(open_session, screen.wake, intervals_ms=intervals)) as watcher:
        while not view.is_ended:
            watcher.want_list()
            columns, lines = screen.size()
            rows, errors = _rows(watcher)
            page_rows = max(1, min(GROUPS_MAX, lines - OTHER_LINES - len(errors)))
            shown, count = view.shown(rows, page_rows)
            for row in shown:
                with suppress(TooManyGroups):  # those that were on the screen before are read for some seconds more
                    watcher.want_group(row.group, GROUP)
            head = f"{utc_text(SYSTEM_CLOCK.wall_ms())}  groups of {where}  since {utc_text(started_ms)}"
            found = _top_lines(watcher.list_state(), view, (shown, count, len(rows)), errors)
            screen.draw(
                [
                    coloured(_fitting(text, columns), colour, sys.stdout)
                    for text, colour in [(head, None), *found][:lines]
                ]
            )
            for key in parse_keys(screen.wait(REDRAW_INTERVAL_MS)):
                view.on_key(key, page_rows)


def _fitting(line: str, columns: int) -> str:
    """The line, not wider than the screen; a line that must be shortened loses the colours of its cells."""
    plain = click.unstyle(line)
    return line if text_width(plain) <= columns else shorten(plain, columns)


def _rows(watcher: ClusterWatcher) -> tuple[list[TopRow], list[str]]:
    """Every group, with what was read of it, and why some cannot be read."""
    page = watcher.list_page()
    now_ms = SYSTEM_CLOCK.wall_ms()
    rows: list[TopRow] = []
    for one in one_line_a_group(page["groups"] if page is not None else ()):
        feed = watcher.feed_of(one["group"])
        if feed is None:
            rows.append(top_row(one, None, (), now_ms))
            continue
        state = feed.state(GROUP)
        rows.append(top_row(one, feed.page(GROUP), feed.owner_change_times_ms(), now_ms, state.error))
    errors = [f"{row.group}: {row.error}" for row in rows if row.error]
    more = len(errors) - ERRORS_SHOWN_MAX
    return rows, [*errors[:ERRORS_SHOWN_MAX], *([f"and {more} more groups cannot be read"] if more > 0 else [])]


def _top_lines(
    state: ReadState, view: TopView, found: tuple[list[TopRow], int, int], errors: list[str]
) -> list[tuple[str, str | None]]:
    """The lines below the first one, with their colours; the table has the colours of its cells."""
    shown, count, total = found
    lines: list[tuple[str, str | None]] = [(view.status_line(count, total), None)]
    if state.error:
        age_ms = SYSTEM_CLOCK.wall_ms() - (state.failed_since_ms or 0)
        words = f"the list cannot be read for {duration_text(age_ms)}: {state.error}"
        lines = [(printable(words), BAD)]
    layout = table_layout(TOP_COLUMNS, (row.cells for row in shown), DROPPABLE_TOP_COLUMNS)
    lines += [(line, None) for line in layout.lines]
    if not total:
        lines.append(("There is no group." if state.is_known and not state.error else "reading …", None))
    lines += [(printable(words), ATTENTION) for words in errors]
    note = layout.note("widen to see all")
    help_line = HELP_LINE if (terminal_width() or 0) >= len(HELP_LINE) else SHORT_HELP_LINE
    return [*lines, *([] if note is None else [(note, None)]), (help_line, None)]
