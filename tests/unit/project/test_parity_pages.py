"""Two pages have every class and public method of Kafka's clients, and of its group coordinator; cited tests use the
names of their rows.

A test may be a function, a module, or a page whose marked blocks are run (``test_docs.py``).  A name in front of the
first colon of the third column must occur in a cited test, or in the helpers that it uses; what follows is explanation.
Tests reach the state machine of a group only by its events, and the assignors by their common methods: there a test
that has the whole is enough.  Tests of the group coordinator, too, reach most of its methods only by requests and
time-outs: they are run, and must call the functions that the row names.
"""

from __future__ import annotations

import ast
import importlib
import itertools
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.call_counter import functions_called
from tests.doc_citations import Citation, Row, used_in
from tests.generate_docs import REFERENCE, ROOT
from tests.unit.project.test_docs import FILE, blocks, code_in, table_rows

DATA = ROOT / "tests" / "data"
PAGES = {
    REFERENCE / "parity-clients.md": DATA / "java-client-names.txt",
    REFERENCE / "parity-coordinator.md": DATA / "coordinator-names.txt",
}
"""Page -> the names that it must have."""
OF_THE_COORDINATOR = "tests/coordinator/test_server_"
"""Tests that are run; their own module must use what is no function: attributes, fields, constants."""
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
    """A row of a page.  ``names``: Kafka's; ``Class.*`` is every method of a class."""

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
        if citation.text.startswith(OF_THE_COORDINATOR):
            return uses_of_the_coordinator(citation.text, row.files, name)
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


def uses_of_the_coordinator(citation: str, files: list[str], name: str) -> bool:
    """Whether the test calls this function, or a method of this class; another name must be in its own module."""
    is_function = False
    for file in files:
        defined = definitions_in(file).get(name)
        if defined is not None and (file, name) in names_called_by(citation):
            return True
        is_function |= isinstance(defined, ast.FunctionDef)
    return not is_function and Citation(citation).exists and name in Citation(citation).uses().names


@cache
def definitions_in(file: str) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    """The functions, methods and classes of a file by their names."""
    found = ast.walk(ast.parse((ROOT / file).read_text("utf-8")))
    return {node.name: node for node in found if isinstance(node, ast.FunctionDef | ast.ClassDef)}


@cache
def names_called_by(citation: str) -> frozenset[tuple[str, str]]:
    """File and name of the functions that a test calls, with all its parameters, and of their classes."""
    path, _, test = citation.partition("::")
    if not test or not Citation(citation).exists:
        return frozenset()
    function = getattr(importlib.import_module(path.removesuffix(".py").replace("/", ".")), test)
    called: set[tuple[str, str]] = set()
    for arguments in arguments_of(function):
        called |= functions_called(partial(function, **arguments))
    inside = [(Path(file), name) for file, name in called if Path(file).is_relative_to(ROOT)]
    return frozenset((file.relative_to(ROOT).as_posix(), part) for file, name in inside for part in name.split("."))


def arguments_of(test: Any) -> Iterator[dict[str, Any]]:
    """The arguments of each run of a test, from its marks."""
    columns = []
    for mark in getattr(test, "pytestmark", []):
        if mark.name == "parametrize":
            names, values = mark.args
            rows = [(names, [value]) if isinstance(names, str) else (names, value) for value in values]
            columns.append(
                [dict(zip([each] if isinstance(each, str) else each, row, strict=True)) for each, row in rows]
            )
    for chosen in itertools.product(*columns):
        yield {name: value for part in chosen for name, value in part.items()}


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


def names_in(file: Path) -> list[str]:
    lines = file.read_text("utf-8").splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def covered_names(row: ParityRow, names: list[str]) -> list[str]:
    """The names that the row is about."""
    covered = [name for name in row.names if not name.endswith(".*")]
    for each in row.names:
        if each.endswith(".*"):
            covered += [name for name in names if name.startswith(each.removesuffix("*"))]
    return covered


every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


@every_page
def test_every_class_and_public_method_of_kafka_has_one_row(page: Path) -> None:
    names = names_in(PAGES[page])
    counts = Counter(name for row in rows_of(page) for name in covered_names(row, names))
    assert [name for name, count in counts.items() if count > 1] == [], "these have two rows"
    assert set(names) - counts.keys() == set(), "these have no row"
    assert counts.keys() - set(names) == set(), "there are no such names"


@every_page
def test_a_page_has_the_packages_of_its_list(page: Path) -> None:
    package = re.compile(r"(?m)^## ((?:org|kafka)\.\S+)$")
    packages = package.findall(PAGES[page].read_text("utf-8"))
    assert packages
    assert package.findall(page.read_text("utf-8")) == packages


@pytest.mark.parametrize("row", [row for page in PAGES for row in rows_of(page)], ids=lambda row: row.names[0])
def test_a_row_names_what_there_is_and_a_test_that_uses_it(row: ParityRow) -> None:
    assert row.verdict in ("kept", "changed", "none")
    assert list(row.problems()) == []
    for code in code_in(row.claim):
        files = [ROOT / path for path in FILE.findall(row.claim)]
        if re.fullmatch(r"[A-Za-z_]\w*", code) and files:
            assert any(re.search(rf"\b{code}\b", file.read_text("utf-8")) for file in files), f"{code} is not in them"


FETCHER = "tests/unit/kafka/test_fetcher_of_poll.py"
HOW_TO = "migration_docs/how-to/read-with-kafka-consumer.md"
LEAVE = "`handle_leave_group` in `bridge/coordinator/heartbeat_and_leave_requests.py`"
EXPIRE = "`on_expire_pending_sync` in `bridge/coordinator/group_rebalance.py`"
IS_NEW = "`is_new` in `bridge/coordinator/member_metadata.py`"


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
        (
            ParityRow(("A",), "kept", LEAVE, f"`{OF_THE_COORDINATOR}heartbeats.py::test_heartbeats_keep_a_session`"),
            "no cited test uses handle_leave_group",
        ),
        (
            ParityRow(
                ("A",), "kept", EXPIRE, f"`{OF_THE_COORDINATOR}syncing.py::test_when_all_have_synced_nobody_is_dropped`"
            ),
            "no cited test uses on_expire_pending_sync",
        ),
        (
            ParityRow(
                ("A",), "kept", IS_NEW, f"`{OF_THE_COORDINATOR}group_metadata.py::test_parked_joins_are_counted`"
            ),
            "no cited test uses is_new",
        ),
        (
            ParityRow(("A",), "kept", LEAVE, f"`{OF_THE_COORDINATOR}heartbeats.py`"),
            "no cited test uses handle_leave_group",
        ),
        (
            ParityRow(("A",), "kept", LEAVE, f"`{OF_THE_COORDINATOR}heartbeats.py::test_none`"),
            f"{OF_THE_COORDINATOR}heartbeats.py::test_none is not there",
        ),
    ],
)
def test_a_row_that_shows_nothing_is_found(row: ParityRow, problem: str) -> None:
    assert problem in list(row.problems())
