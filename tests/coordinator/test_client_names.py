"""Every name of Kafka's tests of the client side stands in a table with the test of ours that holds it."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

HERE = Path(__file__).parent
TABLE = HERE.parent / "data" / "client-coordinator-tests.txt"
FILES = {
    "A": "test_client_abstract_coordinator.py",
    "C": "test_client_consumer_coordinator.py",
    "O": "test_client_commits.py",
    "H": "test_client_heartbeat.py",
    "L": "test_client_life.py",
}
COUNTS = {"AbstractCoordinatorTest": 50, "HeartbeatTest": 7, "ConsumerCoordinatorTest": 155}
"""How many names there are: one that is struck out of the table is missed."""

IN_FULL = ("AbstractCoordinatorTest", "HeartbeatTest")
REASON_CHARS_MIN = 25


class Row(NamedTuple):
    """One line of the table."""

    name: str
    file: str
    test: str

    @property
    def suite(self) -> str:
        return self.name.partition(".")[0]


def rows() -> list[Row]:
    lines = [line for line in TABLE.read_text("utf-8").splitlines() if line.strip() and not line.startswith("#")]
    return [Row(*(part.strip() for part in line.split("|"))) for line in lines]


@cache
def names_in(file: str) -> set[str]:
    tree = ast.parse((HERE / file).read_text("utf-8"))
    return {node.name for node in tree.body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")}


def test_no_name_is_missing_and_none_stands_twice() -> None:
    names = Counter(row.name for row in rows())
    assert [name for name, count in names.items() if count > 1] == []
    assert Counter(row.suite for row in rows()) == COUNTS


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_a_name_has_a_test_or_a_reason(row: Row) -> None:
    if row.file == "-":
        assert row.suite not in IN_FULL
        assert len(row.test) >= REASON_CHARS_MIN
    else:
        assert row.test in names_in(FILES[row.file]), f"{FILES[row.file]} has no {row.test}"
