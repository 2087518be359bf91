"""Spark dies with all its processes at every point that matters, and original members take over: nothing is lost.

The promises are in ``migration_docs/explanation/spark-guarantees.md``; the judge is ``bridge.testing``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.sandbox_fixtures import require_releases
from tests.spark.crash.crash_cases import COVERING, cell_of
from tests.spark.crash.crash_rounds import Clusters, play_round
from tests.spark_session_fixtures import require_spark

pytestmark = [pytest.mark.real, pytest.mark.timeout(1_800)]
"""A round takes three minutes on an idle machine, and ten beside another part of the nightly run."""

RESULTS = "ZKC_CRASH_RESULTS"
"""Names a file that gets a line for each cell, for ``tests/spark/crash/results_table.py``."""

ROUND = 10
NIGHTLY_SEEDS = 200
ROUNDS = [range(first, first + ROUND) for first in range(0, NIGHTLY_SEEDS, ROUND)]


def play(seeds: Sequence[int], clusters: Clusters, folder: Path) -> None:
    """The cells of these seeds, a line each; fails with what is wrong."""
    require_spark()
    cells = [cell_of(seed) for seed in seeds]
    require_releases(*{cell.broker for cell in cells}, *{cell.scala for cell in cells})
    outcomes = play_round(seeds, clusters, folder, f"r{seeds[0]}")
    for outcome in outcomes:
        print(outcome)
    if RESULTS in os.environ:
        with open(os.environ[RESULTS], "a", encoding="utf-8") as file:
            file.writelines(f"{json.dumps(outcome.as_json())}\n" for outcome in outcomes)
    wrong = [outcome for outcome in outcomes if not outcome.judgement.is_valid]
    assert not wrong, "\n".join(map(str, wrong))


def test_a_crash_loses_nothing_in_either_mode(crash_clusters: Clusters, tmp_path: Path) -> None:
    play(range(2), crash_clusters, tmp_path)


@pytest.mark.nightly
@pytest.mark.parametrize("seeds", ROUNDS, ids=lambda seeds: f"{seeds[0]}-{seeds[-1]}")
def test_a_crash_loses_nothing(seeds: range, crash_clusters: Clusters, tmp_path: Path) -> None:
    """The first two rounds have every pair of parameters: see ``COVERING``."""
    assert COVERING == 2 * ROUND
    play(seeds, crash_clusters, tmp_path)
