"""The examples of pipelines, each as it stands: exit code 0, and every record where it must be."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.postgres_fixtures import require_postgres
from tests.requirement_fixtures import report_lack
from tests.spark_session_fixtures import ROOT, local_spark_environment, require_spark

EXAMPLE_TIMEOUT_S = 400
CODE_MISSING = 3
"""The exit code of an example without a program or package that it needs."""

pytestmark = [pytest.mark.real, pytest.mark.timeout(EXAMPLE_TIMEOUT_S + 40)]


def run_example(name: str, folder: Path, *arguments: str) -> dict[str, Any]:
    """``run.py`` of an example; its result.  Fails with what it printed if its exit code is not 0.

    Without something that it needs the test is skipped, in CI it fails.
    """
    require_spark()
    result = folder / "result.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "examples" / name / "run.py"), "--json", str(result), *arguments],
        env={**os.environ, **local_spark_environment()}, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        text=True, timeout=EXAMPLE_TIMEOUT_S, check=False,
    )  # fmt: skip
    if done.returncode == CODE_MISSING:
        report_lack(done.stdout)
    assert done.returncode == 0, f"exit code {done.returncode}:\n{done.stdout[-6_000:]}"
    found = json.loads(result.read_text())
    assert isinstance(found, dict)
    return found


def test_each_click_is_read_by_one_member_and_is_a_row_a_dead_letter_or_filtered(tmp_path: Path) -> None:
    found = run_example("clicks_to_parquet", tmp_path, "--clicks", "200")
    assert (found["produced"], found["lost"], found["double"]) == (600, 0, 0)
    assert found["scala"] == 300
    assert found["rows"] + found["dead_letters"] + found["filtered"] == 300
    assert found["dead_letters"] > 0
    assert found["filtered"] > 0
    assert len(found["hours"]) == 3


def test_a_second_run_continues_and_each_order_is_in_a_table_or_filtered(tmp_path: Path) -> None:
    require_postgres()
    found = run_example("orders_to_postgres", tmp_path, "--orders", "150")
    assert (found["produced"], found["lost"], found["double"]) == (300, 0, 0)
    assert (found["rows"], found["dead_decode"], found["dead_sink"], found["filtered"]) == (273, 6, 6, 15)
    assert found["batches"] == 2


def test_a_full_refresh_reads_nothing_old_and_a_batch_mends_it(tmp_path: Path) -> None:
    found = run_example("declarative_pipeline", tmp_path, "--clicks", "50")
    assert (found["produced"], found["after_full_refresh"], found["after_backfill"]) == (200, 100, 200)
