"""``zkconsumer perf`` and the original's ConsumerPerformance of 1.1.1 print the same columns of the same topic."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from zkconsumer.testing.sandbox import Sandbox

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

PROGRAM = str(Path(sys.executable).parent / "zkconsumer")
PARTITIONS, RECORDS, VALUE_BYTES = 2, 1_000, 200
TIMEOUT_S = 30


def shape(printed: str) -> list[str]:
    """The lines with every digit replaced, so that two runs can be compared; numbers may differ in length."""
    return [re.sub(r"\d+", "9", line) for line in printed.splitlines()]


def test_header_row_and_counts_are_those_of_the_original(shared_cluster: Sandbox, fresh_name: str) -> None:
    shared_cluster.create_topic(fresh_name, PARTITIONS)
    for partition in range(PARTITIONS):
        shared_cluster.produce(fresh_name, partition, RECORDS, size=VALUE_BYTES)
    total = PARTITIONS * RECORDS
    place = ["--zookeeper", shared_cluster.zookeeper_connect, "--topic", fresh_name, "--threads", str(PARTITIONS)]
    # The original counts the messages of each thread.
    theirs = shared_cluster.run_tool(
        "1.1.1",
        "kafka.tools.ConsumerPerformance",
        [*place, "--group", f"{fresh_name}-theirs", "--messages", str(RECORDS)],
    )
    ours = subprocess.run(
        [PROGRAM, "perf", *place, "--group", f"{fresh_name}-ours", "--messages", str(total)],
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert (theirs.code, ours.returncode) == (0, 0), theirs.err + ours.stderr
    assert shape(ours.stdout) == shape(theirs.out)
    assert ours.stderr == ""
    read = [out.splitlines()[1].split(", ") for out in (theirs.out, ours.stdout)]
    assert read[0][2] == read[1][2], "MB"
    assert read[0][4] == read[1][4] == str(total)
    assert shared_cluster.admin.offsets(f"{fresh_name}-ours", fresh_name) == dict.fromkeys(range(PARTITIONS), RECORDS)
    assert shared_cluster.admin.members(f"{fresh_name}-ours") == []
