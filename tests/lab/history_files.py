"""Converts what the members of a lab wrote to one history for the checker."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

from zkconsumer.testing.checker import HistoryEvent, RecordDelivered, dump_line, in_order, parse_line
from zkconsumer.testing.sandbox import ProducedRange

SCALA_DELIVERED = "handed"


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
