"""Checks the environment: the release of Spark, the Python that plans queries, the Pythons of the executors.

    register           before it registers: release, and the Python that plans (no Spark job)
    check_environment  a small job that checks the executors, too

Each problem is one sentence that names who must do what.
"""

from __future__ import annotations

import inspect
import json
import logging
import os
import re
import shutil
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

from bridge.spark.source.pickled_by_value import describe_interpreter
from zkconsumer.errors import UsageError

SPARK_MIN = (4, 2)
"""The first release whose Python sources have admission control (SPARK-55304)."""

EXECUTOR_MODULES = ("pyarrow", "google_crc32c", "cramjam", "zkconsumer", "bridge.spark")
"""The modules that reading needs."""

DRIVER_MODULES = (*EXECUTOR_MODULES, "kazoo", "re2", "six", "pyspark_zkconsumer")
"""The modules that planning and the membership of the group also need."""

PROBE_TIMEOUT_S = 60
TASKS_MAX = 64
"""The maximum number of tasks in the job that checks the executors."""

PAGE = "migration_docs/how-to/install-on-a-spark-cluster.md"
SPEED_PAGE = "migration_docs/how-to/tune-a-spark-query.md"

log = logging.getLogger("zkconsumer.spark")


@dataclass(frozen=True, slots=True)
class PythonWorker:
    """One Python that runs Spark's workers, as ``describe_interpreter`` reports it.

    ``missing``: module -> why it cannot be loaded.  ``decoder``: why the compiled decoder is missing; empty where it is
    not.
    """

    host: str
    executable: str
    python: str
    missing: tuple[tuple[str, str], ...]
    decoder: str = ""

    def __str__(self) -> str:
        return f"{self.executable} ({self.python}) on {self.host}"


def check_release(version: str, whose: str) -> None:
    """Raises ``UsageError`` if Spark ``version`` is too old; ``whose``: the start of the sentence."""
    found = re.match(r"(\d+)\.(\d+)", version)
    if found is not None and (int(found[1]), int(found[2])) < SPARK_MIN:
        raise UsageError(
            f'{whose} is {version}, and format("zkconsumer") needs 4.2 or later, because only these releases can limit '
            "a batch of a Python source: pip install 'pyspark>=4.2', on a cluster of that release"
        )


def is_connect(spark: Any) -> bool:
    """Whether the session is a client of Spark Connect, with the driver in another process."""
    return type(spark).__module__.startswith("pyspark.sql.connect.")


def check_session(spark: Any) -> None:
    """Raises ``UsageError`` if this session cannot plan a query of this source; runs no job.

    Spark plans Python data sources with ``PYSPARK_PYTHON`` (else ``python3`` of ``PATH``) *on the driver's machine*,
    in a separate process.  This function does not check the Python of a Connect server: ``check_environment`` does.
    """
    check_release(spark.version, "the Spark of this session")
    if is_connect(spark):
        return
    python = spark.sparkContext.pythonExec
    found = shutil.which(python)
    if found is None:
        raise UsageError(
            f"PYSPARK_PYTHON is {python}, and this program does not exist on the driver, where Spark plans Python data "
            f"sources with it: set it to a path that exists on the driver and on the executors; see {PAGE}"
        )
    if os.path.abspath(found) != os.path.abspath(sys.executable):
        _check_workers([_ask(found, _added_files())], DRIVER_MODULES, "the Python with which Spark plans queries")


def check_environment(spark: Any) -> list[PythonWorker]:
    """Checks whether the driver's and the executors' Pythons can read; returns those of the executors.

    It starts a job with as many tasks as the cluster runs at a time (at most ``TASKS_MAX``).  It does not check
    executors that start later or did not receive a task.  Raises ``UsageError`` that names the Python and what it
    lacks.  For each Python without the compiled decoder, with which reading is slow, it logs a warning.
    """
    check_session(spark)
    workers = _ask_executors(spark)
    _check_workers(workers, EXECUTOR_MODULES, "the Python of Spark's executors")
    for worker in workers:
        if worker.decoder:
            values = str(worker), worker.decoder, SPEED_PAGE
            log.warning(
                "decoder-not-compiled python=%r reason=%r: it decodes in Python, which is slow: see %s", *values
            )
    return workers


def _ask(python: str, path: list[str]) -> PythonWorker:
    """Runs another interpreter as a process; that interpreter does not need this package."""
    source = "\n".join(
        (
            "from __future__ import annotations",
            "import json",
            "from typing import Any",
            inspect.getsource(describe_interpreter),
            f"print(json.dumps(describe_interpreter({list(DRIVER_MODULES)!r})))",
        )
    )
    path = [*path, *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(path)}
    try:
        done = subprocess.run(
            [python, "-c", source],
            env=environment,
            capture_output=True,
            text=True,
            stdin=subprocess.DEVNULL,
            timeout=PROBE_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UsageError(f"PYSPARK_PYTHON is {python}, which cannot be run: {error}") from error
    if done.returncode != 0:
        last = done.stderr.strip().splitlines()[-1:] or ["it printed no error"]
        raise UsageError(
            f"PYSPARK_PYTHON is {python}, which ended with exit code {done.returncode}: {last[0]}. Set it to a Python "
            f"{sys.version_info[0]}.{sys.version_info[1]}, the version of the driver"
        )
    try:
        return _worker(json.loads(done.stdout.splitlines()[-1]))
    except (IndexError, ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"PYSPARK_PYTHON is {python}, which does not answer as a Python does: set it to a Python interpreter"
        ) from error


def _added_files() -> list[str]:
    """The folders with the files of ``addPyFile``: Spark adds them to the path of its own Pythons."""
    from pyspark import SparkFiles

    root = SparkFiles.getRootDirectory()
    return [entry for entry in sys.path if entry.startswith(root)]


def _ask_executors(spark: Any) -> list[PythonWorker]:
    from pyspark.sql import functions

    wanted = list(EXECUTOR_MODULES)

    def answer(_: int) -> str:
        return json.dumps(describe_interpreter(wanted))

    # Plain pickle: a worker without pyarrow must be able to report that pyarrow is missing.
    asked = functions.udf(answer, "string", useArrow=False)
    tasks = 2 if is_connect(spark) else min(max(spark.sparkContext.defaultParallelism, 1), TASKS_MAX)
    try:
        rows = spark.range(0, tasks, numPartitions=tasks).select(asked("id").alias("found")).collect()
    except Exception as error:
        text = str(error)
        mismatch = re.search(r"Python in worker has different version: (\S+) than that in driver: (\S+?),", text)
        if mismatch is None:
            raise
        raise UsageError(
            f"the executors run Python {mismatch[1]} and the driver {mismatch[2]}; their minor versions must be equal: "
            f"set PYSPARK_PYTHON to a Python {mismatch[2]} that every executor has; see {PAGE}"
        ) from error
    return [_worker(json.loads(found)) for found in sorted({row.found for row in rows})]


def _worker(found: dict[str, Any]) -> PythonWorker:
    missing = tuple(sorted(found["missing"].items()))
    return PythonWorker(found["host"], found["executable"], found["python"], missing, found.get("decoder", ""))


def _check_workers(workers: list[PythonWorker], wanted: tuple[str, ...], whose: str) -> None:
    """Raises ``UsageError`` for the first that lacks a module, or has another minor version than the driver."""
    for worker in workers:
        lacking = [_lack(module, why) for module, why in worker.missing if module in wanted]
        if lacking:
            raise UsageError(
                f"{whose}, {worker}, cannot load {', '.join(lacking)}. Set PYSPARK_PYTHON to a Python that has "
                f"zkconsumer with its extra spark (here: {sys.executable}) before the session starts, or install it "
                f"there; see {PAGE}"
            )
        if worker.python.split(".")[:2] != [str(number) for number in sys.version_info[:2]]:
            raise UsageError(
                f"{whose}, {worker}, has another minor version than the driver, "
                f"{sys.version_info[0]}.{sys.version_info[1]}: set PYSPARK_PYTHON to a Python of that "
                f"version; see {PAGE}"
            )


def _lack(module: str, why: str) -> str:
    """The name of a module that is not installed; the name and the error of a module that cannot be imported."""
    is_absent = why.startswith(f"ModuleNotFoundError: No module named '{module.partition('.')[0]}")
    return module if is_absent else f"{module} ({why})"
