"""A pipeline whose driver dies, or is stopped and continues, at each point of a batch: each record is somewhere once.

A failing crash prints the command that plays it again.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from tests.postgres_fixtures import PostgresServer
from tests.requirement_fixtures import report_lack
from tests.run_delta import ensure_pyspark
from tests.simulation_seeds import Seeds
from tests.spark.crash.pipeline_cases import (
    DELTA,
    IN_CI,
    NIGHTLY_CRASHES,
    PipelineCrash,
    every_crash,
    random_crash,
    rounds_of,
)
from tests.spark.crash.pipeline_rounds import PipelineOutcome, Servers, play_pipelines
from tests.spark.crash.pipeline_table import pipeline_table
from tests.spark_session_fixtures import require_spark
from zkconsumer.testing.sandbox import Sandbox, missing_delta_requirement

pytestmark = [pytest.mark.real, pytest.mark.timeout(3_000)]
"""A round takes two minutes on an idle machine, and ten beside other tests."""

RESULTS = "ZKC_PIPELINE_CRASH_RESULTS"
"""Names a file that gets a line for each crash, for ``tests/spark/crash/pipeline_table.py``."""

EVERY_ROUND = rounds_of(every_crash())
SEEDS = Seeds("pipeline-crashes").new(NIGHTLY_CRASHES - len(every_crash()))
RANDOM_ROUNDS = rounds_of(map(random_crash, SEEDS))


@pytest.fixture(scope="module")
def outcomes(request: pytest.FixtureRequest) -> Iterator[list[PipelineOutcome]]:
    """Of all crashes of this module; their table is printed at its end."""
    found: list[PipelineOutcome] = []
    yield found
    reporter = request.config.pluginmanager.get_plugin("terminalreporter")
    if found and reporter is not None:
        reporter.write_line("")
        reporter.write_line(pipeline_table([each.as_json() for each in found]))


@pytest.fixture
def servers(shared_cluster: Sandbox, postgres_server: PostgresServer) -> Servers:
    require_spark()
    return Servers(shared_cluster, postgres_server)


def require_delta() -> None:
    """Skips the test if there is no Delta here; in CI it fails instead."""
    reason = missing_delta_requirement()
    if reason is not None:
        report_lack(reason)
    ensure_pyspark()


def play(crashes: Sequence[PipelineCrash], servers: Servers, folder: Path, outcomes: list[PipelineOutcome]) -> None:
    """One round, a line each; fails with what is wrong."""
    if crashes[0].sink == DELTA:
        require_delta()
    found = play_pipelines(crashes, servers, folder)
    outcomes += found
    print(*found, sep="\n")
    if RESULTS in os.environ:
        with open(os.environ[RESULTS], "a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(each.as_json())}\n" for each in found)
    wrong = [each for each in found if not each.verdict.is_valid]
    assert not wrong, "\n".join(map(str, wrong))


def test_a_pipeline_keeps_each_record_once_where_a_mistake_would_be_worst(
    servers: Servers, tmp_path: Path, outcomes: list[PipelineOutcome]
) -> None:
    play(IN_CI, servers, tmp_path, outcomes)


@pytest.mark.nightly
@pytest.mark.parametrize("crashes", EVERY_ROUND, ids=lambda crashes: f"{crashes[0].sink}-{crashes[0].point}")
def test_a_pipeline_keeps_each_record_once_at_each_point(
    servers: Servers, tmp_path: Path, outcomes: list[PipelineOutcome], crashes: tuple[PipelineCrash, ...]
) -> None:
    play(crashes, servers, tmp_path, outcomes)


@pytest.mark.nightly
@pytest.mark.parametrize("crashes", RANDOM_ROUNDS, ids=lambda crashes: f"{crashes[0].sink}-{len(crashes)}")
def test_a_pipeline_keeps_each_record_once_some_time_after_a_point(
    servers: Servers, tmp_path: Path, outcomes: list[PipelineOutcome], crashes: tuple[PipelineCrash, ...]
) -> None:
    play(crashes, servers, tmp_path, outcomes)
