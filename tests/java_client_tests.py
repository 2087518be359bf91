"""The tables of ``tests/data/java-client-tests``: each test of a class of Kafka's client, and our test of the same.

A table is ``<JavaTestClass>.txt``.  A head ``# <JavaTestClass> of Kafka 3.0: <N> tests`` begins a part with N rows; a
second head names a later release, for the tests that the class has in addition there.  A row is

    javaTestName | tests/unit/kafka/test_x.py::test_name
    javaTestName | - | the reason why it has no meaning here
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
TABLES = ROOT / "tests" / "data" / "java-client-tests"
HEAD = re.compile(r"# (?P<name>\w+) of Kafka (?P<release>\d+\.\d+): (?P<count>\d+) tests")
REASON_WORDS_MIN = 4


class JavaTest(NamedTuple):
    """A row.  ``test`` "-": there is no such test here, for this ``reason``."""

    name: str
    test: str
    reason: str


class Part(NamedTuple):
    """The tests of one release."""

    java_class: str
    release: str
    count: int
    tests: list[JavaTest]


def parts_of(text: str) -> list[Part]:
    """The parts of a table.  ``ValueError`` names the first line that is not one of a table."""
    parts: list[Part] = []
    for number, line in enumerate(text.splitlines(), 1):
        head = HEAD.fullmatch(line)
        if head is not None:
            parts.append(Part(head["name"], head["release"], int(head["count"]), []))
        elif line.strip():
            cells = [cell.strip() for cell in line.split("|")]
            if not parts or len(cells) not in (2, 3) or not all(cells):
                raise ValueError(f"line {number} is neither a head nor a row below one: {line!r}")
            parts[-1].tests.append(JavaTest(cells[0], cells[1], cells[2] if len(cells) == 3 else ""))
    return parts


@cache
def tests_of(path: Path) -> frozenset[str]:
    """The tests in a file."""
    tree = ast.parse(path.read_text("utf-8"))
    names = (node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return frozenset(name for name in names if name.startswith("test_"))


def problems_of(stem: str, text: str) -> Iterator[str]:
    """What is wrong with the table ``<stem>.txt``."""
    try:
        parts = parts_of(text)
    except ValueError as error:
        yield str(error)
        return
    if not parts:
        yield "there is no head"
    seen: set[str] = set()
    for part in parts:
        if part.java_class != stem:
            yield f"the head names {part.java_class}, the file {stem}"
        if len(part.tests) != part.count:
            yield f"{part.release} has {part.count} tests by its head, and {len(part.tests)} rows"
        for row in part.tests:
            if row.name in seen:
                yield f"{row.name} has two rows"
            seen.add(row.name)
            yield from (f"{row.name}: {problem}" for problem in _row_problems(row))


def _row_problems(row: JavaTest) -> Iterator[str]:
    if row.test == "-":
        if len(row.reason.split()) < REASON_WORDS_MIN:
            yield "the reason is missing"
        return
    if row.reason:
        yield "a row with a test has no reason"
    file, _, name = row.test.partition("::")
    path = ROOT / file
    if not file.startswith("tests/") or not path.is_file():
        yield f"there is no file {file}"
    elif name not in tests_of(path):
        yield f"there is no test {name} in {file}"
