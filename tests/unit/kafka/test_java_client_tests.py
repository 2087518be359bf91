"""Each test of Kafka's client classes has a test of ours, or a reason why not; and the checker finds what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.java_client_tests import TABLES, problems_of

HERE = "tests/unit/kafka/test_java_client_tests.py"
THIS = "test_a_right_table_has_no_problems"
RIGHT = f"# FooTest of Kafka 3.0: 2 tests\n\ntestA | {HERE}::{THIS}\ntestB | - | there are no producers here\n"


@pytest.mark.parametrize("path", sorted(TABLES.glob("*")), ids=lambda path: path.stem)
def test_a_table_is_complete_and_cites_tests_that_exist(path: Path) -> None:
    assert path.suffix == ".txt"
    assert list(problems_of(path.stem, path.read_text("utf-8"))) == []


def test_there_are_tables() -> None:
    assert {"MetadataTest", "SubscriptionStateTest"} <= {path.stem for path in TABLES.glob("*.txt")}


def test_a_right_table_has_no_problems() -> None:
    later = f"\n# FooTest of Kafka 3.1: 1 tests\n\ntestC | {HERE}::{THIS}\n"
    assert list(problems_of("FooTest", RIGHT)) == []
    assert list(problems_of("FooTest", RIGHT + later)) == []


@pytest.mark.parametrize(
    ("old", "new", "problem"),
    [
        ("2 tests", "3 tests", "3.0 has 3 tests by its head, and 2 rows"),
        ("# FooTest of", "# BarTest of", "the head names BarTest, the file FooTest"),
        ("# FooTest of Kafka 3.0: 2 tests\n", "", "line 2 is neither a head"),
        (RIGHT, "", "there is no head"),
        ("testB", "testA", "testA has two rows"),
        (THIS, "test_that_is_gone", f"testA: there is no test test_that_is_gone in {HERE}"),
        (HERE, "tests/unit/kafka/gone.py", "testA: there is no file tests/unit/kafka/gone.py"),
        (HERE, "zkconsumer/errors.py", "testA: there is no file zkconsumer/errors.py"),
        (" | there are no producers here", "", "testB: the reason is missing"),
        ("there are no producers here", "no", "testB: the reason is missing"),
        ("there are no producers here", "", "line 4 is neither a head"),
        ("testB | -", f"testB | {HERE}::{THIS}", "testB: a row with a test has no reason"),
    ],
)
def test_what_is_wrong_in_a_table_is_found(old: str, new: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems_of("FooTest", RIGHT.replace(old, new)))
