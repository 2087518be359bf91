"""Each of Kafka's own tests of its group coordinator has one of ours, or a reason why not."""

from __future__ import annotations

import ast
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

HERE = Path(__file__).parent
COUNTS = {"GroupCoordinatorTest": 161, "GroupMetadataTest": 58, "GroupMetadataManagerTest": 71, "MemberMetadataTest": 6}
"""How many tests each class of Kafka 3.6.0 has; one of the first has a parameter, and counts twice."""

NOT_APPLICABLE_MAX = 25


def table() -> list[tuple[str, str, str]]:
    """(class, name of Kafka's test, what is beside it)."""
    rows = []
    section = ""
    for line in (HERE / "server_conformance.txt").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[]")
        elif line and not line.startswith("#"):
            name, ours = line.split(maxsplit=1)
            rows.append((section, name, ours))
    return rows


@cache
def names_of(file: str) -> frozenset[str]:
    """The names of the tests in one of our files; empty if there is none."""
    path = HERE / f"test_server_{file}.py"
    if not path.exists():
        return frozenset()
    body = ast.parse(path.read_text()).body
    return frozenset(node.name for node in body if isinstance(node, ast.FunctionDef) and node.name.startswith("test_"))


def test_the_table_has_every_name_once() -> None:
    rows = table()
    assert Counter(section for section, _, _ in rows) == COUNTS
    assert [name for name, times in Counter((section, name) for section, name, _ in rows).items() if times > 1] == []


@pytest.mark.parametrize(("section", "name", "ours"), table(), ids=[f"{row[0]}.{row[1]}" for row in table()])
def test_a_test_of_kafka_has_one_of_ours(section: str, name: str, ours: str) -> None:
    reason = ours.removeprefix("- ")
    if reason != ours:
        assert len(reason.split()) > 3, f"{section}.{name} is left out without a reason"
        ours = reason.rpartition(": ")[2] if ":test_" in reason else ""
    if ours:
        file, _, test = ours.partition(":")
        assert test in names_of(file), f"{section}.{name}: there is no test_server_{file}.py::{test}"


def test_little_is_left_out() -> None:
    assert sum(ours.startswith("- ") for _, _, ours in table()) <= NOT_APPLICABLE_MAX
