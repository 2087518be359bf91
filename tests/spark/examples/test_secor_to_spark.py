"""``examples/secor_to_spark``: a pipeline takes over the group of old Scala members; run as a reader runs it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
from bridge.spark.pipeline.sinks.parquet_sink import read_manifests
from tests.sandbox_fixtures import require_releases
from tests.spark_session_fixtures import ROOT, local_spark_environment, require_spark
from zkconsumer.testing.sandbox import zookeeper_release

RUN_TIMEOUT_S = 600
END_TIMEOUT_S = 60

pytestmark = [pytest.mark.real, pytest.mark.timeout(RUN_TIMEOUT_S + END_TIMEOUT_S + 30)]

PROGRAM = ROOT / "examples" / "secor_to_spark" / "run.py"
MEMBERS = ("secor-1", "secor-2", "secor-3")


def run_example(folder: Path, *words: str) -> tuple[str, dict[str, Any]]:
    """What it prints, and its result for programs; fails the test for another exit code than 0."""
    command = [sys.executable, str(PROGRAM), *words, "--folder", str(folder / "data"), "--json", str(folder / "result")]
    environment = {**os.environ, **local_spark_environment()}
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        start_new_session=True,
    )  # fmt: skip
    try:
        said, _ = process.communicate(timeout=RUN_TIMEOUT_S)
    finally:
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)  # it ends its servers
            process.communicate(timeout=END_TIMEOUT_S)
    assert process.returncode == 0, said
    return said, json.loads((folder / "result").read_text("utf-8"))


def rows_on_disk(folder: Path) -> dict[str, int]:
    """The records of both outputs, counted without the code of the example."""
    old = sum(file.read_bytes().count(b"\n") for file in (folder / "secor").glob("*/*/*.tsv"))
    manifests = read_manifests(LocalFolderStore(str(folder / "spark" / "rows")))
    return {"old": old, "spark": sum(file.rows for manifest in manifests for file in manifest.files)}


@pytest.mark.parametrize(
    ("mode", "kafka"),
    [
        ("live", "0.8.2.2"),
        pytest.param("stop-first", "0.8.2.2", marks=pytest.mark.nightly),
        pytest.param("stop-first", "1.1.1", marks=pytest.mark.nightly),
        pytest.param("live", "1.1.1", marks=pytest.mark.nightly),
    ],
)
def test_no_record_is_lost_and_only_records_in_an_upload_are_in_both_outputs(
    mode: str, kafka: str, tmp_path: Path
) -> None:
    require_spark()
    require_releases(kafka, zookeeper_release("3.8"), zookeeper_release("3.4.6"))
    said, result = run_example(tmp_path, f"--{mode}", "--kafka", kafka)
    print(said)
    assert (result["mode"], result["kafka"], result["right"]) == (mode, kafka, True)
    assert [result[name] for name in ("lost", "unexplained", "repeated", "unknown")] == [0, 0, 0, 0]
    assert min(result["produced"], result["old"], result["spark"]) > 0
    assert result["old"] + result["spark"] - result["double"] == result["produced"]
    assert rows_on_disk(tmp_path / "data") == {name: result[name] for name in ("old", "spark")}
    assert result["double"] == sum(each["last"] - each["first"] + 1 for each in result["doubles"])
    if mode == "stop-first":
        assert result["double"] == 0
    for each in result["doubles"]:
        first, last = each["upload"]
        assert first <= each["first"] <= each["last"] <= last
        assert each["member"] in MEMBERS
        assert each["writes_by_spark"] > 0
        assert f"{each['topic']}/{each['partition']} offsets {each['first']} to {each['last']}" in said
    lines = said.splitlines()
    assert lines[-1].startswith("RIGHT: ")
    # Each line of a member shows that the pipeline got the partitions of the stopped ones, and in the end all.
    assert [line for line in lines if "zz-spark has" in line][-1].endswith("zz-spark has 0, 1, 2, 3, 4, 5")
