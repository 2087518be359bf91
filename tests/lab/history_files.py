"""Converts what the members of a lab wrote to one history for the checker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from zkconsumer.testing.checker import (
    Finding,
    HistoryEvent,
    RecordDelivered,
    Verdict,
    dump_line,
    in_order,
    parse_line,
    read_history,
    render_text,
)
from zkconsumer.testing.sandbox import ProducedRange

SCALA_DELIVERED = "handed"

SHOWN_BEFORE_MS, SHOWN_AFTER_MS, SHOWN_LINES_MAX = 5_000, 1_000, 120


def read_scala_output(path: Path, member: str) -> Iterator[HistoryEvent]:
    """The records that a Scala member received; the rest of its lines is for tests."""
    for line in _whole_lines(path):
        found = json.loads(line)
        if found["event"] == SCALA_DELIVERED:
            yield RecordDelivered(found["t"], member, found["topic"], found["partition"], found["offset"])


def read_python_output(path: Path) -> Iterator[HistoryEvent]:
    """The history that a member of ours, the observer or the lab itself wrote."""
    for number, line in enumerate(_whole_lines(path), 1):
        yield parse_line(line, number)


def merge(events: Iterable[HistoryEvent], target: Path) -> None:
    """Write one history, in the order of time."""
    with target.open("w", encoding="utf-8") as file:
        file.writelines(f"{dump_line(event)}\n" for event in in_order(events))


def failure_text(verdict: Verdict, history: Path) -> str:
    """The verdict, and what the members did around its first finding: CI keeps this text only."""
    lines = [*render_text(verdict), f"history: {history}"]
    if verdict.findings:
        lines += ["around the first finding, without delivered records:", *_around(verdict.findings[0], history)]
    return "\n".join(lines)


def _around(finding: Finding, history: Path) -> list[str]:
    first, last = finding.evidence.t_first - SHOWN_BEFORE_MS, finding.evidence.t_last + SHOWN_AFTER_MS
    found = [
        f"{number}: {dump_line(event)}"
        for number, event in enumerate(read_history(history), 1)
        if first <= event.t <= last and not isinstance(event, RecordDelivered)
    ]
    return found[-SHOWN_LINES_MAX:]


def log_end_offsets(
    acked: dict[tuple[str, int], list[ProducedRange]], topics: Iterable[str]
) -> dict[tuple[str, int], int]:
    """(topic, partition) -> the offset after the last acknowledged record."""
    wanted = set(topics)
    return {
        place: max(produced.last for produced in ranges) + 1
        for place, ranges in acked.items()
        if place[0] in wanted and ranges
    }


def _whole_lines(path: Path) -> Iterator[bytes]:
    """The last line of a program that was killed may be torn."""
    if path.exists():
        with path.open("rb") as file:
            yield from (line for line in file if line.endswith(b"\n"))
