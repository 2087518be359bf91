"""Collects the tests of the folders that are named, and runs none: Python stores the bytecode of their modules.

    python tests/collect_once.py FOLDER…

pytest rewrites the assertions of each module that has no bytecode yet, which takes 25 s of CPU for all tests.  The
workers of pytest-xdist collect the same modules at the same time, so that in a fresh clone each of them did it.
"""

from __future__ import annotations

import sys

import pytest


class RunNone:
    """Takes all tests out of the session once they are collected."""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items.clear()


def main() -> int:
    """The exit code of pytest; 0 where it collected tests and was left with none."""
    arguments = ["-q", "-p", "no:cacheprovider", "-p", "no:hypothesispytest", *sys.argv[1:]]
    code = pytest.main(arguments, plugins=[RunNone()])
    return 0 if code == pytest.ExitCode.NO_TESTS_COLLECTED else code or 1


if __name__ == "__main__":
    sys.exit(main())
