"""The tables of ``tests/data/kafka-log-statements``: each log statement of Kafka on the group path, and our event.

``consumer.txt`` has those of the member, ``coordinator.txt`` those of the broker.  The head is
``# <classes> of Kafka 3.0: <N> statements``; a row is

    LEVEL | Class.method | Kafka's text, {} for a value | our event
    LEVEL | Class.method | Kafka's text, {} for a value | - | the reason why there is none

A method with the number of a release has its statement since that release.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

TABLES = Path(__file__).resolve().parent / "data" / "kafka-log-statements"
HEAD = re.compile(r"# [\w, ]+ of Kafka 3\.0: (?P<count>\d+) statements")
LEVELS = {"TRACE": "TRACE", "DEBUG": "DEBUG", "INFO": "INFO", "WARN": "WARNING", "ERROR": "ERROR"}
"""Kafka's levels and those of Python."""


class Statement(NamedTuple):
    """A row.  ``event`` "-": we do not log the text, for this ``reason``."""

    level: str
    method: str
    text: str
    event: str
    reason: str

    @property
    def is_logged(self) -> bool:
        """Whether a line of ours has the text."""
        return self.event != "-"

    def matches(self, level: str, line: str) -> bool:
        """Whether a line of our log is this statement: event, Kafka's sentence, then fields."""
        pattern = ".*".join(map(re.escape, self.text.split("{}")))
        is_line = re.fullmatch(rf"{re.escape(self.event)}: {pattern} *(?: [a-z_]+=.*)?", line) is not None
        return is_line and level == LEVELS[self.level]


def read_table(name: str) -> list[Statement]:
    """The rows of ``name`` ("consumer" or "coordinator"); ``ValueError`` names the first line that is wrong."""
    head, *rows = (TABLES / f"{name}.txt").read_text("utf-8").splitlines()
    found = HEAD.fullmatch(head)
    if found is None:
        raise ValueError(f"{name}: the head is {head!r}")
    statements = []
    for row in rows:
        cells = [cell.strip() for cell in row.split(" | ")]
        has_reason = len(cells) == 5 and cells[3] == "-" and len(cells[4].split()) > 2
        if cells[0] not in LEVELS or not (has_reason or (len(cells) == 4 and cells[3] != "-")):
            raise ValueError(f"{name}: {row!r} is no row")
        statements.append(Statement(*cells[:4], cells[4] if has_reason else ""))
    if len(statements) != int(found["count"]):
        raise ValueError(f"{name}: {len(statements)} rows, {found['count']} by the head")
    return statements
