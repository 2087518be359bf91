"""The Spark session of the Delta tests: pyspark 4.2 with Delta's package (``tests/run_delta.py`` has both)."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bridge.spark.pipeline.sinks.delta_session import SPARK_RELEASE, delta_settings
from tests.requirement_fixtures import report_lack
from tests.spark_session_fixtures import limit_tests, quick_settings, spark_environment, started_session
from zkconsumer.testing.sandbox import ensure_delta_jars, missing_delta_requirement

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEW_TASKS = {
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}
"""The log is read by 50 tasks and VACUUM lists folders by 10,000 by default, for tables with millions of files."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test of a session waits for Spark; the limit must hold for it, too."""
    limit_tests(items, Path(__file__).parent)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """As ``tests.spark_session_fixtures.spark``, of pyspark 4.2 and with Delta."""
    reason = missing_delta_requirement()
    if not version("pyspark").startswith(f"{SPARK_RELEASE}."):
        reason = f"this is pyspark {version('pyspark')}: python tests/run_delta.py"
    if reason is not None:
        report_lack(reason)
    settings = {**delta_settings({}), **FEW_TASKS, **quick_settings(pytestconfig)}
    # Without a class archive: one session starts here, and an archive of this release takes the CPU of four starts.
    folder = tmp_path_factory.mktemp("delta")
    yield from started_session(folder, ensure_delta_jars(), settings, spark_environment())
