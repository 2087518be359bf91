"""``zkconsumer health`` asks a real ``zkconsumer consume``: waiting, working, stopped, killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from zkconsumer.testing.sandbox import Sandbox, wait_until

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

PROGRAM = str(Path(sys.executable).parent / "zkconsumer")
RECORDS = 5
TIMEOUT_S = 30


def health(pid: int, *words: str) -> tuple[int, Any, str]:
    """Exit code, answer, and what is said on standard error."""
    done = subprocess.run(
        [PROGRAM, "health", "--pid", str(pid), *words], capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode, json.loads(done.stdout) if done.stdout else None, done.stderr


@pytest.fixture
def consumer(
    shared_cluster: Sandbox, fresh_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[subprocess.Popen[bytes]]:
    """A process that reads a topic, as a supervisor would start it."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    shared_cluster.create_topic(fresh_name, 2)
    shared_cluster.produce(fresh_name, 0, RECORDS)
    words = ["--topic", fresh_name, "--group", fresh_name, "--from-beginning", "--set", "health.socket=auto"]
    process = subprocess.Popen(
        [PROGRAM, "consume", "--zookeeper", shared_cluster.zookeeper_connect, *words],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    yield process
    process.send_signal(signal.SIGCONT)
    process.kill()
    process.wait(TIMEOUT_S)


def test_a_supervisor_follows_a_member_through_its_life(
    consumer: subprocess.Popen[bytes], fresh_name: str, tmp_path: Path
) -> None:
    code, answer, said = health(consumer.pid, "--wait-ms", "20000")
    assert (code, said) == (0, "")
    wait_until(lambda: health(consumer.pid)[1]["members"][0]["last_record_ms_ago"] is not None, "it reads", 60_000)
    code, answer, _ = health(consumer.pid)
    [member] = answer["members"]
    assert (code, answer["pid"], member["group"], member["partitions_owned"]) == (0, consumer.pid, fresh_name, 2)

    consumer.send_signal(signal.SIGSTOP)
    code, answer, said = health(consumer.pid, "--timeout-ms", "500")
    assert (code, answer) == (4, None)
    assert "no complete answer within 500 ms" in said
    consumer.send_signal(signal.SIGCONT)
    assert health(consumer.pid, "--wait-ms", "20000")[0] == 0

    consumer.kill()
    consumer.wait(TIMEOUT_S)
    assert [path.name for path in tmp_path.glob("zkconsumer/*")] == [f"{consumer.pid}.sock"], "nobody removed it"
    code, _, said = health(consumer.pid)
    assert code == 4
    assert f"process {consumer.pid} does not exist" in said


def test_a_member_that_leaves_takes_its_socket_with_it(consumer: subprocess.Popen[bytes], tmp_path: Path) -> None:
    assert health(consumer.pid, "--wait-ms", "20000")[0] == 0
    consumer.terminate()
    assert consumer.wait(TIMEOUT_S) == 0
    assert list(tmp_path.glob("zkconsumer/*")) == []
    assert os.path.isdir(tmp_path / "zkconsumer")
