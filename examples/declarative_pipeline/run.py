"""A group as a streaming table of Spark Declarative Pipelines; a full refresh, and the batch that mends it.

    python examples/declarative_pipeline/run.py

Starts ZooKeeper, a broker and a Spark Connect server; ``spark-pipelines run`` reads the clicks into a table; a second
run, with ``--full-refresh clicks``, empties it; ``backfill.py`` reads the old clicks again.
Exit code: 0 each step has the rows that it must have, 1 not so, 2 wrong arguments, 3 Java, Maven or Spark is missing.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import (
    Sandbox,
    missing_requirement,
    missing_spark_requirement,
    wait_until,
    zookeeper_release,
)

HERE = Path(__file__).resolve().parent
KAFKA, ZOOKEEPER = "1.1.1", "3.8"
TOPIC = GROUP = "clicks"
PARTITIONS = 2
ADDRESS = "127.0.0.1:2181/kafka"
RUN_TIMEOUT_S = 300
START_MS = 120_000
MODULES = ("yaml", "grpc", "google.rpc", "zstandard", "pandas")
"""What the extra ``pyspark[pipelines]`` installs."""

CODE_RIGHT, CODE_WRONG, CODE_MISSING = 0, 1, 3


def missing() -> str | None:
    """What this machine lacks, as a sentence, or None."""
    for name in MODULES:
        if importlib.util.find_spec(name.partition(".")[0]) is None:
            return f"{name} is not installed: pip install 'pyspark[pipelines]'"
    return missing_requirement(KAFKA, zookeeper_release(ZOOKEEPER)) or missing_spark_requirement()


@contextmanager
def connect_server(folder: Path) -> Iterator[str]:
    """A Spark Connect server until the end of the block; its address.  It has the catalog of the tables.

    ``SandboxError``: it does not start.
    """
    import pyspark

    home = Path(os.environ.get("SPARK_HOME") or Path(pyspark.__file__).parent)
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": f"{folder}/warehouse",
    }
    conf = [word for key, value in settings.items() for word in ("--conf", f"{key}={value}")]
    command = [str(home / "sbin" / "start-connect-server.sh"), "--wait", "--master", "local[2]", *conf]
    file = folder / "server.log"
    with file.open("w") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(SPARK_HOME=str(home), SPARK_LOG_DIR=str(folder)), stdout=log,
            stderr=log, start_new_session=True,
        )  # fmt: skip
    try:

        def port() -> str | None:
            if process.poll() is not None:
                raise SandboxError(f"the Spark Connect server has ended:\n{file.read_text()}")
            found = re.search(r"Spark Connect server started at: \S*:(\d+)", file.read_text())
            return None if found is None else found[1]

        yield f"sc://127.0.0.1:{wait_until(port, 'the Spark Connect server starts', START_MS)}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def environment(**more: str) -> dict[str, str]:
    """Of a process of Spark."""
    return {
        "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable, "PYSPARK_DRIVER_PYTHON": sys.executable,
        **os.environ, **more,
    }  # fmt: skip


class Project:
    """The files of the pipeline in a folder, with the addresses of this machine."""

    def __init__(self, folder: Path, zookeeper: str, remote: str) -> None:
        self._folder = folder
        self._zookeeper = zookeeper
        self._remote = remote
        shutil.copytree(HERE / "transformations", folder / "transformations", ignore=shutil.ignore_patterns("*.pyc"))
        flow = folder / "transformations" / "clicks.py"
        flow.write_text(flow.read_text("utf-8").replace(ADDRESS, zookeeper), "utf-8")
        spec = (HERE / "spark-pipeline.yml").read_text("utf-8")
        (folder / "spark-pipeline.yml").write_text(spec.replace("/tmp/clicks-storage", f"{folder}/storage"), "utf-8")

    def run(self, *arguments: str) -> None:
        """``spark-pipelines run``.  ``SandboxError``: it failed."""
        import pyspark

        program = str(Path(pyspark.__file__).parent / "bin" / "spark-pipelines")
        self._call([program, "--remote", self._remote, "run", "--spec", "spark-pipeline.yml", *arguments])

    def backfill(self, offsets: dict[int, int]) -> tuple[int, int, int]:
        """``backfill.py``; the rows of the streaming table, of the view of both tables, and how many of these have
        different places.  ``SandboxError``: it failed."""
        ending = json.dumps({TOPIC: {str(partition): offset for partition, offset in offsets.items()}})
        out = self._call([sys.executable, str(HERE / "backfill.py"), self._remote, self._zookeeper, ending])
        table, view, places = map(int, out.splitlines()[-1].split()[1:])
        return table, view, places

    def _call(self, command: list[str]) -> str:
        done = subprocess.run(
            command, cwd=self._folder, env=environment(), capture_output=True, text=True, timeout=RUN_TIMEOUT_S,
            check=False,
        )  # fmt: skip
        if done.returncode != 0:
            raise SandboxError(f"{command[0]} ended with code {done.returncode}:\n{done.stdout}\n{done.stderr}")
        return done.stdout


def produce(sandbox: Sandbox, count: int) -> None:
    """``count`` clicks in each partition."""
    for partition in range(PARTITIONS):
        clicks = [json.dumps({"user": n % 17, "page": f"/page-{n % 3}"}).encode() for n in range(count)]
        sandbox.produce(TOPIC, partition, clicks)


def run(sandbox: Sandbox, folder: Path, remote: str, count: int) -> dict[str, Any]:
    """All steps; the result."""
    sandbox.start_zookeeper(ZOOKEEPER)
    sandbox.start_broker(KAFKA, chroot="/kafka")
    sandbox.create_topic(TOPIC, PARTITIONS)
    produce(sandbox, count)
    produced = count * PARTITIONS
    project = Project(folder, sandbox.zookeeper_connect, remote)
    project.run()
    offsets = sandbox.admin.offsets(GROUP, TOPIC)
    print(f"1. spark-pipelines run: {produced} clicks were there; the offsets of the group are {offsets}", flush=True)
    produce(sandbox, count)
    project.run("--full-refresh", "clicks")
    ends = sandbox.admin.offsets(GROUP, TOPIC)
    print(
        f"2. {produced} more clicks, and spark-pipelines run --full-refresh clicks: the offsets are {ends}", flush=True
    )
    table, view, places = project.backfill(offsets)
    print(f"   the table has {table} rows: it was emptied, and the group has read the first {produced} clicks before")
    print(f"3. backfill.py reads these again, up to the offsets of step 1, into a second table; a view has {view} rows")
    return {
        "produced": 2 * produced,
        "after_full_refresh": table,
        "after_backfill": view,
        "is_right": (table, view, places) == (produced, 2 * produced, 2 * produced)
        and set(ends.values()) == {2 * count},
    }


def main() -> int:
    parser = argparse.ArgumentParser(description="A group as a streaming table of Spark Declarative Pipelines.")
    parser.add_argument("--clicks", type=int, default=100, help="clicks for each partition and step (default: 100)")
    parser.add_argument("--json", type=Path, help="a file for the result")
    given = parser.parse_args()
    lack = missing()
    if lack is not None:
        print(lack, file=sys.stderr)
        return CODE_MISSING
    with tempfile.TemporaryDirectory(prefix="declarative-") as name, Sandbox() as sandbox:
        folder = Path(name)
        try:
            with connect_server(folder) as remote:
                found = run(sandbox, folder, remote, given.clicks)
        except SandboxError as error:
            print(error, file=sys.stderr)
            return CODE_WRONG
    lines = {
        "rows after the full refresh": found["after_full_refresh"],
        "rows after the backfill": found["after_backfill"],
        "produced": found["produced"],
    }
    print()
    for words, number in lines.items():
        print(f"{words:<27}  {number:>6}")
    if given.json is not None:
        given.json.write_text(json.dumps(found))
    return CODE_RIGHT if found["is_right"] else CODE_WRONG


if __name__ == "__main__":
    sys.exit(main())
