"""What holds for every test of this folder."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.spark_session_fixtures import TEST_TIMEOUT_S

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a session waits for Spark and for servers; the limit must hold for it, too."""
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))
