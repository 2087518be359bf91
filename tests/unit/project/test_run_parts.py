"""The limit on the time of the whole test command: when it applies, and when the time shows nothing about the tests."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

import pytest

from tests.run_parts import (
    LIMIT_MINUTES,
    OTHERS_SHARE_MAX,
    PYTEST,
    ROOT,
    SUITES,
    UNIT_PARTS,
    ProcessorTime,
    limit_problem,
    others_share,
    processor_time,
)

LIMIT = LIMIT_MINUTES["all"]
WITH_SERVERS = {"delta", "real", "spark", "web", "whole_consumer"}
"""Folders whose tests are all marked ``real``."""


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


@pytest.mark.parametrize("suite", ["all", "unit"])
def test_every_part_without_servers_runs(suite: str) -> None:
    parts = [part for stage in SUITES[suite] for part in stage.parts]
    assert set(UNIT_PARTS) <= set(parts)
    assert len(parts) == len(set(parts))


def test_every_file_of_tests_is_in_one_part_without_servers() -> None:
    files = {
        path for path in (ROOT / "tests").rglob("test_*.py") if path.relative_to(ROOT).parts[1] not in WITH_SERVERS
    }
    assert len(files) > 400
    parts = [parts_of(path) for path in files]
    assert [path for path, names in zip(files, parts, strict=True) if len(names) != 1] == []
    assert {name for names in parts for name in names} == {part.name for part in UNIT_PARTS}


def parts_of(path: Path) -> list[str]:
    """The parts whose command runs the tests of the file."""
    found = []
    for part in UNIT_PARTS:
        words = [word for word in part.commands[0][len(PYTEST) :] if word.startswith(("tests/", "--ignore"))]
        folders = [ROOT / word for word in words if word.startswith("tests/")]
        ignored = [ROOT / word.partition("=")[2] for word in words if word.startswith("--ignore=")]
        globs = [str(ROOT / word.partition("=")[2]) for word in words if word.startswith("--ignore-glob=")]
        is_left_out = any(each in path.parents for each in ignored) or any(fnmatch(str(path), glob) for glob in globs)
        if any(each in path.parents for each in folders) and not is_left_out:
            found.append(part.name)
    return found
