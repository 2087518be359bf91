"""What holds for every test of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark_session_fixtures import limit_tests


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a session waits for Spark and for servers; the limit must hold for it, too."""
    limit_tests(items, Path(__file__).parent)
