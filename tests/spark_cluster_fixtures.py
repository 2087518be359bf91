"""Spark clusters of real processes on the loopback interface: master and workers, and a Connect server.

All of it comes out of the pip package of pyspark, as a user would start it.  Every process is started by a guard that
reads a pipe which we hold: when we end, however that is, it kills the whole process group, executors too.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.package_zip import OURS, make_zip
from tests.spark_class_archive import FAST_START
from tests.spark_session_fixtures import require_spark, spark_environment, spark_settings
from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.testing.sandbox.waiting import wait_until

START_TIMEOUT_MS = 60_000
KILL_TIMEOUT_S = 10
LOG_CHARS_QUOTED = 3_000

DRIVER = Path(__file__).parent / "spark" / "cluster_driver.py"
DRIVER_TIMEOUT_S = 200
LEAVE_TIMEOUT_MS = 10_000
PARTITIONS, RECORDS, READ_BEFORE = 4, 25, 10
GUARD = """
import os, signal, subprocess, sys, threading
child = subprocess.Popen(sys.argv[1:], stdin=subprocess.DEVNULL)
def follow():
    os._exit(child.wait() & 0x7F)
threading.Thread(target=follow, daemon=True).start()
sys.stdin.read()
os.killpg(0, signal.SIGKILL)
"""


def spark_home() -> Path:
    """Where the pip package keeps its scripts."""
    import pyspark

    return Path(pyspark.__file__).parent


class SparkProcess:
    """One process of a cluster, and all that it starts."""

    def __init__(self, name: str, command: Sequence[str], folder: Path, environment: Mapping[str, str]) -> None:
        self.name = name
        self.log = folder / f"{name}.log"
        # Else they write into the folder of the pip package.
        places = {name: str(folder) for name in ("SPARK_LOG_DIR", "SPARK_PID_DIR", "SPARK_WORKER_DIR")}
        with self.log.open("ab") as log:
            self._guard = subprocess.Popen(
                [sys.executable, "-c", GUARD, *command],
                stdin=subprocess.PIPE, stdout=log, stderr=log, cwd=folder, start_new_session=True,
                env={**os.environ, **spark_environment(), **places, **environment},
            )  # fmt: skip

    def wait_for(self, pattern: str) -> re.Match[str]:
        """Until the log has the pattern; SandboxError quotes the log if the process ends, or says nothing of it."""

        def look() -> re.Match[str] | None:
            if self._guard.poll() is not None:
                raise SandboxError(f"{self.name} ended; the end of its log:\n{self.log_end()}")
            return re.search(pattern, self.log.read_text(errors="replace"))

        try:
            found = wait_until(look, f"'{pattern}' in {self.log}", START_TIMEOUT_MS, poll_ms=100)
        except SandboxError as error:
            raise SandboxError(f"{error}\n{self.log_end()}") from error
        assert found is not None
        return found

    def log_end(self) -> str:
        return self.log.read_text(errors="replace")[-LOG_CHARS_QUOTED:]

    def kill(self) -> None:
        """The guard kills its process group, itself included."""
        assert self._guard.stdin is not None
        self._guard.stdin.close()
        self._guard.wait(KILL_TIMEOUT_S)


@contextmanager
def standalone(folder: Path, workers: int = 2, **environment: str) -> Iterator[str]:
    """A master and workers of one core each; gives the master's address (spark://…)."""
    script = str(spark_home() / "bin" / "spark-class")
    settings = {"SPARK_DAEMON_JAVA_OPTS": FAST_START, "SPARK_DAEMON_MEMORY": "256m", **environment}
    processes = []
    try:
        master = SparkProcess(
            "master",
            [
                script,
                "org.apache.spark.deploy.master.Master",
                "--host",
                "127.0.0.1",
                "--port",
                "0",
                "--webui-port",
                "0",
            ],
            folder,
            settings,
        )
        processes.append(master)
        url = master.wait_for(r"Starting Spark master at (spark://\S+)")[1]
        for number in range(workers):
            place = folder / f"worker-{number}"
            place.mkdir()
            options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "1g", "--webui-port", "0"]
            command = [script, "org.apache.spark.deploy.worker.Worker", *options, "--work-dir", str(place), url]
            processes.append(SparkProcess(f"worker-{number}", command, folder, settings))
        for worker in processes[1:]:
            worker.wait_for("Successfully registered with master")
        yield url
    finally:
        for process in reversed(processes):
            process.kill()


@contextmanager
def connect_server(folder: Path, master: str, settings: Mapping[str, str], **environment: str) -> Iterator[str]:
    """A Spark Connect server whose driver runs on ``master``; gives its address (sc://…)."""
    options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
    command = [str(spark_home() / "sbin" / "start-connect-server.sh"), "--wait", "--master", master, *options]
    command += ["--conf", "spark.connect.grpc.binding.address=127.0.0.1", "--conf", "spark.connect.grpc.binding.port=0"]
    process = SparkProcess("connect", command, folder, {"SPARK_HOME": str(spark_home()), **environment})
    try:
        port = process.wait_for(r"Spark Connect server started at: \S*:(\d+)")[1]
        yield f"sc://127.0.0.1:{port}"
    finally:
        process.kill()


# --- what a cluster has ---------------------------------------------------------------------------------------------


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A Python with every package of this one, but not ours."""
    require_spark()
    folder = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True, timeout=60)
    [target] = folder.glob("lib/python*/site-packages")
    for place in {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}:
        for entry in Path(place).iterdir():
            if not entry.name.startswith((*OURS, "__editable__")) and not (target / entry.name).exists():
                (target / entry.name).symlink_to(entry)
    return str(folder / "bin" / "python")


@pytest.fixture(scope="session")
def package(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Our packages as a zip with their compiled modules; a wheel is one, too (see test_installed.py)."""
    return str(make_zip(tmp_path_factory.mktemp("package") / "zkconsumer.zip"))


def cluster_settings(folder: Path) -> dict[str, str]:
    return {**spark_settings(folder), "spark.driver.memory": "512m", "spark.executor.memory": "512m"}


# --- a program on a cluster ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class History:
    """A topic, and a group that has read the beginning of it."""

    cluster: Sandbox
    group: str
    topic: str

    @property
    def unread(self) -> list[str]:
        """The values behind the group's offsets."""
        return sorted(f"{p}-{n}" for p in range(PARTITIONS) for n in range(READ_BEFORE, RECORDS))

    def check_left(self) -> None:
        """A query has read to the end, said so in ZooKeeper, and is a member no more."""
        admin = self.cluster.admin
        assert admin.offsets(self.group, self.topic) == dict.fromkeys(range(PARTITIONS), RECORDS)
        wait_until(lambda: not admin.members(self.group), "the query's member has left", LEAVE_TIMEOUT_MS)


@pytest.fixture
def history(shared_cluster: Sandbox, fresh_name: str) -> History:
    topic = fresh_name.replace("[", "").replace("]", "")
    shared_cluster.create_topic(topic, PARTITIONS)
    for partition in range(PARTITIONS):
        shared_cluster.produce(topic, partition, [f"{partition}-{n}".encode() for n in range(RECORDS)])
        path = f"/consumers/{topic}/offsets/{topic}/{partition}"
        shared_cluster.admin.put(path, str(READ_BEFORE).encode())
    return History(shared_cluster, topic, topic)


def run_driver(
    history: History,
    folder: Path,
    environment: dict[str, str],
    *,
    command: Sequence[str] = (sys.executable,),
    **wanted: Any,
) -> dict[str, Any]:
    """``cluster_driver.py``, run by ``command`` beside ``folder``; fails with what it printed if it does not answer."""
    folder.mkdir(exist_ok=True)
    whole = {
        "zookeeper": history.cluster.zookeeper_connect,
        "group": history.group,
        "topic": history.topic,
        "folder": str(folder),
        **wanted,
    }
    done = subprocess.run(
        [*command, str(DRIVER), json.dumps(whole)],
        cwd=folder.parent,
        env={**os.environ, **spark_environment(), **environment},
        capture_output=True, text=True, timeout=DRIVER_TIMEOUT_S, check=False,
    )  # fmt: skip
    lines = done.stdout.splitlines()
    assert done.returncode == 0, f"exit code {done.returncode}:\n{done.stderr[-4000:]}"
    answer = json.loads(lines[-1])
    assert isinstance(answer, dict)
    return answer
