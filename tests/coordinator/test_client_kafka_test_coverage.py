"""Every name of Kafka's tests of the client side stands in a table with the test of ours that holds it."""

from __future__ import annotations

import ast
import re
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
    "L": "test_client_lifecycle.py",
}
COUNTS = {"AbstractCoordinatorTest": 50, "HeartbeatTest": 7, "ConsumerCoordinatorTest": 155}
"""How many names there are: one that is struck out of the table is missed."""

REASON_WORDS_MIN = 3


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


def gives_a_reason(text: str, table: dict[str, Row]) -> bool:
    """Whether this says in words why there is no test; ``as OTHER`` says that it is the reason of the other name."""
    other = re.fullmatch(r"as (\S+)", text)
    if other is not None:
        found = [row for name, row in table.items() if other[1] in (name, name.partition(".")[2]) and row.file == "-"]
        return any(row.test != text for row in found)
    files = re.findall(r"\btest_\w+\.py\b", text)
    return len(re.findall(r"[A-Za-z]{2,}", text)) >= REASON_WORDS_MIN and all((HERE / file).exists() for file in files)


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("the machine has one thread", True),
        ("as X.testA", True),
        ("as testA", True),
        ("as X.testB", False),
        ("as X.testC", False),
        ("-", False),
        ("not here", False),
        ("a connector counts them, which test_no_such_file.py holds", False),
    ],
)
def test_a_reason_has_words_and_names_what_there_is(text: str, is_one: bool) -> None:
    table = {"X.testA": Row("X.testA", "-", "the machine has one thread"), "X.testB": Row("X.testB", "A", "test_b")}
    assert gives_a_reason(text, table) == is_one


@pytest.mark.parametrize("row", rows(), ids=lambda row: row.name)
def test_a_name_has_a_test_or_a_reason(row: Row) -> None:
    if row.file == "-":
        assert gives_a_reason(row.test, {each.name: each for each in rows()}), f"{row.test}: why is there no test?"
    else:
        assert row.test in names_in(FILES[row.file]), f"{FILES[row.file]} has no {row.test}"
