"""Status, health and metrics of ``zkconsumer pipeline run`` in another process: while it runs, and how it ended."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

pytest.importorskip("pyspark")

from click.testing import CliRunner

from bridge.spark.pipeline.spark_home import installed_spark_home
from tests.spark_session_fixtures import local_spark_environment, require_spark
from zkconsumer.cli.main import main
from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import Sandbox, cache, wait_until
from zkconsumer.testing.sandbox.waiting import free_port

pytestmark = pytest.mark.real

WAIT_MS, POLL_MS = 240_000, 200
"""A first batch needs more than 90 s on a slow machine beside four other lanes."""
END_S = 120


class Runs:
    """A pipeline file, and the processes that run it."""

    def __init__(self, cluster: Sandbox, topic: str, folder: Path) -> None:
        self.file = folder / "clicks.toml"
        self.folder = folder
        self.port = free_port()
        self.processes: list[subprocess.Popen[bytes]] = []
        # Spark's workers are started in the current folder, and must not import from it.
        (folder / "zkconsumer").mkdir()
        (folder / "zkconsumer" / "__init__.py").write_text("raise ImportError('this is the current folder')")
        self.file.write_text(
            f"""
            [pipeline]
            name = "clicks"
            [source]
            zookeeper.connect = "{cluster.zookeeper.connect_string("/kafka")}"
            group.id = "{topic}"
            subscribe = "{topic}"
            auto.offset.reset = "smallest"
            [sink]
            format = "parquet"
            path = "rows"
            [trigger]
            interval = "1s"
            [checkpoint]
            path = "checkpoint"
            [metrics]
            listen = "127.0.0.1:{self.port}"
            """
        )

    def start(self, *, finds_spark: bool = False) -> subprocess.Popen[bytes]:
        """``finds_spark``: without SPARK_HOME, and so without the class archive of the tests: it is of another one."""
        settings = ["--master", "local[1]", "--conf", "spark.ui.enabled=false"]
        words = ["pipeline", "run", str(self.file), *settings, "--conf", f"spark.local.dir={self.folder}/local"]
        environment = {**os.environ, **local_spark_environment(), "XDG_CACHE_HOME": str(cache.folder())}
        with open(self.folder / "log", "ab") as log:
            process = subprocess.Popen(
                [sys.executable, "-P", "-c", "from zkconsumer.cli import main; main()", *words],
                cwd=self.folder,
                stdout=log,
                stderr=log,
                env={name: value for name, value in environment.items() if name != "SPARK_HOME" or not finds_spark},
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def status(self) -> dict[str, Any]:
        done = CliRunner().invoke(main, ["pipeline", "status", str(self.file), "--json"])
        assert done.exit_code == 0, done.output
        document: dict[str, Any] = json.loads(done.stdout)
        return document

    def health(self) -> int:
        return CliRunner().invoke(main, ["health", "--pipeline", str(self.file), "-q"]).exit_code

    def wait_for(self, phase: str, batch: int | None = None) -> dict[str, Any]:
        """The status in this phase, after this batch; an error with the log if the newest run ends before that."""

        def found_or_ended() -> dict[str, Any] | None:
            has_ended = self.processes[-1].poll() is not None
            found = self.status()
            last = found["last_batch"]
            if found["phase"] == phase and (batch is None or (last is not None and last["batch"] >= batch)):
                return found
            assert not has_ended, f"the run ended in phase {found['phase']}, {last}: {self.log()}"
            return None

        try:
            found = wait_until(found_or_ended, f"the phase is {phase}", WAIT_MS, POLL_MS)
        except SandboxError as error:
            raise SandboxError(f"{error}; the log: {self.log()}") from error
        assert found is not None
        return found

    def log(self) -> str:
        """What all runs have printed."""
        file = self.folder / "log"
        return file.read_text() if file.exists() else ""


@pytest.fixture
def runs(shared_cluster: Sandbox, fresh_name: str, tmp_path: Path) -> Iterator[Runs]:
    require_spark()
    shared_cluster.create_topic(fresh_name, 1)
    shared_cluster.produce(fresh_name, 0, [b"v"] * 20)
    made = Runs(shared_cluster, fresh_name, tmp_path)
    yield made
    for process in made.processes:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
        process.wait(END_S)


def java_command(session: int) -> str:
    """The command line of Spark's JVM in this session of processes."""
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().split(b"\0")
            if os.getsid(int(folder.name)) == session and words[0].endswith(b"/java"):
                return b" ".join(words).decode()
        except OSError:
            continue  # the process has ended
    return ""


def test_phases_health_and_metrics_of_real_runs(runs: Runs) -> None:
    assert runs.status()["phase"] == "never-started"
    assert runs.health() == 4
    first = runs.start(finds_spark=True)
    found = runs.wait_for("running", batch=0)
    assert (found["rows"], found["pid"], found["lag"]) == (20, first.pid, 0)
    assert runs.health() == 0
    assert str(installed_spark_home({}, {}, cache.folder())) in java_command(first.pid), (
        "pyspark is not read from a zip"
    )
    with urlopen(f"http://127.0.0.1:{runs.port}/metrics", timeout=END_S) as answer:
        text = answer.read().decode()
    assert 'zkconsumer_pipeline_rows_total{pipeline="clicks"} 20\n' in text
    assert 'zkconsumer_pipeline_batches_total{pipeline="clicks"} 1\n' in text
    assert "zkconsumer_pipeline_seconds_since_last_batch" in text

    # A second run of the same file does not take over the status of the first one, and fails at the port.
    assert runs.start().wait(END_S) == 2
    assert runs.status()["pid"] == first.pid
    assert runs.status()["phase"] == "running"

    os.killpg(first.pid, signal.SIGINT)  # Ctrl-C in a terminal reaches all processes
    assert first.wait(END_S) == 0
    assert runs.status()["phase"] == "stopped"
    assert runs.health() == 4

    # A killed run leaves "running" in its file.
    second = runs.start()
    runs.wait_for("running")
    second.kill()
    second.wait(END_S)
    found = runs.status()
    assert found["phase"] == "failed"
    assert "ended without a word" in found["phase_text"]
    assert found["last_batch"]["rows"] == 20

    # SIGTERM to all processes ends the JVM, too.
    starts = runs.log().count("assignment-complete")
    third = runs.start()
    wait_until(lambda: runs.log().count("assignment-complete") > starts, "the query has started", WAIT_MS, POLL_MS)
    os.killpg(third.pid, signal.SIGTERM)
    assert third.wait(END_S) == 1, runs.log()
    assert runs.log().splitlines()[-1].startswith("zkconsumer: Spark's Java process was ended by SIGTERM; send SIGTERM")
    assert "Traceback" not in runs.log()
    found = runs.status()
    assert found["phase"] == "failed"
    assert "KillMode=mixed" in found["last_error"]["text"]

    # The error of a run is kept.
    with socket.create_server(("127.0.0.1", runs.port)):
        assert runs.start().wait(END_S) == 2
    found = runs.status()
    assert found["phase"] == "failed"
    assert "Address already in use" in found["last_error"]["text"]
