"""The limit on the time of the whole test command: when it applies, and when the time shows nothing about the tests."""

from __future__ import annotations

import pytest

from tests.run_parts import (
    COLLECT_OTHERS,
    COLLECT_UNIT,
    LIMIT_MINUTES,
    OTHERS_SHARE_MAX,
    SUITES,
    UNIT,
    ProcessorTime,
    limit_problem,
    others_share,
    processor_time,
)

LIMIT = LIMIT_MINUTES["all"]


def test_a_suite_beyond_its_limit_fails() -> None:
    text = f"all took {LIMIT + 0.1:.1f} minutes, and the limit is {LIMIT:.0f}"
    assert text in limit_problem("all", LIMIT + 0.1, 0.0, is_cache_filled=True)
    assert not limit_problem("all", LIMIT, 0.0, is_cache_filled=True)


@pytest.mark.parametrize(
    ("suite", "share", "is_cache_filled"),
    [
        ("all", OTHERS_SHARE_MAX + 0.01, True),
        ("all", None, True),
        ("all", 0.0, False),
        ("nightly", 0.0, True),
    ],
    ids=["other processes", "unknown", "an empty cache", "no limit"],
)
def test_the_time_counts_only_where_it_shows_something(suite: str, share: float | None, is_cache_filled: bool) -> None:
    assert not limit_problem(suite, 10 * LIMIT, share, is_cache_filled=is_cache_filled)


def test_the_share_of_other_processes() -> None:
    before, after = ProcessorTime(100, 200, 10), ProcessorTime(140, 280, 42)
    assert others_share(before, after) == pytest.approx(0.1)
    assert others_share(None, after) is None
    assert others_share(after, after) is None


def test_this_system_reports_the_time_of_its_cores() -> None:
    found = processor_time()
    assert found is None or 0 < found.own < found.busy <= found.total


def test_each_suite_with_a_limit_exists() -> None:
    assert set(LIMIT_MINUTES) <= set(SUITES)


def test_each_folder_of_the_unit_part_is_collected_once_before() -> None:
    """Otherwise each worker rewrites the assertions of the folder that is left out."""
    folders = {word for command in UNIT.commands for word in command if word.startswith("tests/")}
    words = [word for part in (COLLECT_UNIT, COLLECT_OTHERS) for word in part.commands[0]]
    collected = [word for word in words if word.startswith("tests/") and not word.endswith(".py")]
    assert folders <= set(collected)
    assert len(set(collected)) == len(collected)
