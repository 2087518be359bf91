"""``parity-clients.md`` has every class and public method of Kafka's clients; cited tests use the names of their rows.

A test may be a function, a module, or a page whose marked blocks are run (``test_docs.py``).  A name in front of the
first colon of the third column must occur in a cited test, or in the helpers that it uses; what follows is explanation.
Tests reach the state machine of a group only by its events, and the assignors by their common methods: there a test
that has the whole is enough.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.doc_citations import Citation, Row, used_in
from tests.generate_docs import REFERENCE, ROOT
from tests.unit.project.test_docs import FILE, blocks, code_in, table_rows

PAGE = REFERENCE / "parity-clients.md"
NAMES = ROOT / "tests" / "data" / "java-client-names.txt"
OF_THE_STATE_MACHINE = (
    "zkconsumer/kafka/group/abstract_coordinator.py",
    "zkconsumer/kafka/group/consumer_rebalance.py",
    "zkconsumer/kafka/group/coordinator_discovery.py",
    "zkconsumer/kafka/group/error_policy.py",
    "zkconsumer/kafka/group/events.py",
    "zkconsumer/kafka/group/generation.py",
    "zkconsumer/kafka/group/group_member.py",
)
OF_A_WHOLE = {
    "bridge/client/assignors/": {"ASSIGNORS", "CooperativeStickyAssignor", "RangeAssignor", "StickyAssignor"},
    **{file: {"ConsumerCoordinator"} for file in OF_THE_STATE_MACHINE},
}
"""Folder or file -> the names of the whole that it is a part of: a test that uses one of them runs the part."""
REASON_WORDS_MIN = 5


class ParityRow(NamedTuple):
    """A row of the page.  ``names``: Java's; ``Class.*`` is every method of a class."""

    names: tuple[str, ...]
    verdict: str
    here: str
    test: str

    @property
    def claim(self) -> str:
        """The names and files, without the explanation."""
        return self.here.partition(": ")[0]

    def problems(self) -> Iterator[str]:
        """What is wrong with it."""
        if self.verdict == "none":
            if len(self.here.split()) < REASON_WORDS_MIN:
                yield "why is there nothing?"
            if self.test:
                yield "what does the test show?"
            return
        row = Row("", self.claim, self.test, frozenset())
        if not row.files:
            yield "where?"
        if not row.citations:
            yield "which test shows it?"
        yield from (f"{each.text} is not there" for each in row.citations if not names_used_by(each.text))
        for name in row.names():
            if not any(self._uses(row, citation, name) for citation in row.citations):
                yield f"no cited test uses {name}"
        for citation in row.citations:
            if not any(self._uses(row, citation, name) for name in row.names()):
                yield f"{citation.text} uses none of {', '.join(row.names())}"

    @staticmethod
    def _uses(row: Row, citation: Citation, name: str) -> bool:
        used = names_used_by(citation.text)
        if name in used:
            return True
        wholes = [whole for file in row.files for part, whole in OF_A_WHOLE.items() if file.startswith(part)]
        return any(used & whole for whole in wholes)


@cache
def names_used_by(citation: str) -> frozenset[str]:
    """The identifiers of a test with its helpers, or of the blocks of a page that are run; none if it is not there."""
    if citation.endswith(".md"):
        texts = [text for language, text, runs in blocks(ROOT / citation) if runs and language == "python"]
        return frozenset().union(*(used_in(ast.parse(text)).names | methods_in(text) for text in texts))
    found = Citation(citation)
    return found.uses(beyond=True).names | methods_in(found.path.read_text("utf-8")) if found.exists else frozenset()


def methods_in(text: str) -> frozenset[str]:
    """The methods that classes in a test define: those of the Protocols that they implement."""
    classes = [node for node in ast.parse(text).body if isinstance(node, ast.ClassDef)]
    return frozenset(node.name for each in classes for node in each.body if isinstance(node, ast.FunctionDef))


def rows_of(page: Path) -> list[ParityRow]:
    return [
        ParityRow(tuple(code_in(names)), verdict, here, test)
        for names, verdict, here, test in table_rows(page, 4)
        if "`" in names
    ]


def java_names() -> list[str]:
    lines = NAMES.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def covered_names(row: ParityRow, names: list[str]) -> list[str]:
    """The names that the row is about."""
    covered = [name for name in row.names if not name.endswith(".*")]
    for each in row.names:
        if each.endswith(".*"):
            covered += [name for name in names if name.startswith(each.removesuffix("*"))]
    return covered


def test_every_class_and_public_method_of_the_clients_has_one_row() -> None:
    names = java_names()
    counts = Counter(name for row in rows_of(PAGE) for name in covered_names(row, names))
    assert [name for name, count in counts.items() if count > 1] == [], "these have two rows"
    assert set(names) - counts.keys() == set(), "these have no row"
    assert counts.keys() - set(names) == set(), "there are no such names"


def test_the_page_has_the_packages_of_the_list() -> None:
    packages = re.findall(r"(?m)^## (org\.\S+)$", NAMES.read_text("utf-8"))
    assert re.findall(r"(?m)^## (org\.\S+)$", PAGE.read_text("utf-8")) == packages


@pytest.mark.parametrize("row", rows_of(PAGE), ids=lambda row: row.names[0])
def test_a_row_names_what_there_is_and_a_test_that_uses_it(row: ParityRow) -> None:
    assert row.verdict in ("kept", "changed", "none")
    assert list(row.problems()) == []
    for code in code_in(row.claim):
        files = [ROOT / path for path in FILE.findall(row.claim)]
        if re.fullmatch(r"[A-Za-z_]\w*", code) and files:
            assert any(re.search(rf"\b{code}\b", file.read_text("utf-8")) for file in files), f"{code} is not in them"


FETCHER = "tests/unit/kafka/test_fetcher_of_poll.py"
HOW_TO = "migration_docs/how-to/read-with-kafka-consumer.md"


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        (ParityRow(("A",), "none", "no", ""), "why is there nothing?"),
        (ParityRow(("A",), "kept", "it is there", f"`{FETCHER}`"), "where?"),
        (ParityRow(("A",), "kept", "`Fetcher` in `zkconsumer/kafka/fetch/fetcher.py`", ""), "which test shows it?"),
        (
            ParityRow(("A",), "kept", "`Fetcher` in `zkconsumer/kafka/fetch/fetcher.py`", f"`{FETCHER}::test_none`"),
            f"{FETCHER}::test_none is not there",
        ),
        (
            ParityRow(("A",), "kept", "`is_paused` in `zkconsumer/kafka/fetch/partition_positions.py`", f"`{HOW_TO}`"),
            "no cited test uses is_paused",
        ),
    ],
)
def test_a_row_that_shows_nothing_is_found(row: ParityRow, problem: str) -> None:
    assert problem in list(row.problems())
