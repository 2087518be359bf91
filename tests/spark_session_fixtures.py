"""One Spark session for all tests that need one, and what a test does with it again and again.

Starting Spark takes ten seconds and a first query of Python's as much again, so the session is shared: a test gives
its tables, queries and folders names of their own (``fresh_name``, ``tmp_path``), stops its queries, and changes no
setting of the session for good.  Java must be there in CI; elsewhere its lack is a clear skip.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from bridge.spark.pipeline.spark_home import installed_spark_home
from tests.requirement_fixtures import report_lack
from tests.spark_class_archive import FAST_START, archived_spark
from zkconsumer.errors import SandboxError
from zkconsumer.testing.sandbox import cache, ensure_spark_jars, missing_spark_requirement
from zkconsumer.testing.sandbox.java import find_jdk

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming import StreamingQuery

ROOT = Path(__file__).resolve().parent.parent

TEST_TIMEOUT_S = 400
"""For a test of Spark that names no other.  The first one of a session waits for Spark, ZooKeeper and a broker: 115 s
with an empty cache, and 226 s on a machine of half the speed.
"""

STOP_TIMEOUT_S = 20
"""How long Spark may take to stop before its process is killed."""

QUERY_TIMEOUT_S = 120

STARTS_MAX = 6
"""How often a query is started until Spark has waited long enough for its source."""

TOO_SLOW = "Python worker failed to connect back"
"""What Spark says when the Python process of a stream's source has not connected within ten seconds.

It happens on a busy machine.  The ten seconds are a constant of ``PythonWorkerFactory.createSimpleWorker`` in Spark
4.3, and no setting changes it: ``spark.python.authenticate.socketTimeout`` is about what comes after it.
"""

POLL_S = 0.05

TRIGGER_MS = 400


def limit_tests(items: list[pytest.Item], folder: Path) -> None:
    """Give the tests of a folder ``TEST_TIMEOUT_S``, unless they name another limit."""
    for item in items:
        if folder in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT_S))


def missing_for_spark() -> str | None:
    """Why Spark cannot be started here, as a sentence, or None."""
    for module in ("pyspark", "pyarrow"):
        if importlib.util.find_spec(module) is None:
            return f"{module} is not installed: pip install '.[spark]'"
    try:
        find_jdk()
    except SandboxError as error:
        return str(error)
    return missing_spark_requirement()


def require_spark() -> None:
    """Skips the test if Spark cannot be started here; in CI it fails instead."""
    reason = missing_for_spark()
    if reason is not None:
        report_lack(reason)


def spark_environment() -> dict[str, str]:
    """What every process of Spark's needs in its environment: this Python, this tree, the loopback interface."""
    path = [str(ROOT), *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))]
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_SUBMIT_OPTS": FAST_START,
        "PYTHONPATH": os.pathsep.join(dict.fromkeys(path)),
    }


def local_spark_environment() -> dict[str, str]:
    """The same for a Spark whose driver and workers are on this machine; it starts in half the time."""
    home = installed_spark_home({}, {}, cache.folder())
    assert home is not None
    spark = archived_spark(home)
    return spark_environment() | {"SPARK_HOME": str(spark.home), "SPARK_SUBMIT_OPTS": spark.options}


def spark_settings(folder: Path) -> dict[str, str]:
    """Settings of a small Spark that writes below ``folder`` only."""
    return {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        # The JVM disables its compiler when its code cache is full, and each query of a test brings classes of its own.
        "spark.driver.extraJavaOptions": f"-Djava.io.tmpdir={folder} -XX:ReservedCodeCacheSize=512m",
        "spark.executor.extraJavaOptions": FAST_START,
        "spark.default.parallelism": "2",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        "spark.python.worker.reuse": "true",
    }


INTERPRETED = {"spark.sql.codegen.wholeStage": "false", "spark.sql.codegen.factoryMode": "NO_CODEGEN"}
"""For many small queries: the Java that Spark generates and compiles for each costs half of the CPU."""


def quick_settings(config: pytest.Config) -> dict[str, str]:
    """``INTERPRETED``, but none in the nightly run; the examples have the defaults of Spark in each run."""
    marks = str(config.getoption("markexpr"))
    is_nightly = "nightly" in marks and "not nightly" not in marks
    return {} if is_nightly else INTERPRETED


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[SparkSession]:
    """The session on ``local[2]``, with Spark's own Kafka source; do not stop it.  Its workers run this tree's code."""
    require_spark()
    environment, settings = local_spark_environment(), quick_settings(pytestconfig)
    yield from started_session(tmp_path_factory.mktemp("spark"), ensure_spark_jars(), settings, environment)


def started_session(
    folder: Path, jars: list[Path], settings: Mapping[str, str], environment: Mapping[str, str]
) -> Iterator[SparkSession]:
    """A session on ``local[2]`` with these packages that writes below ``folder``, stopped at the end."""
    from pyspark.sql import SparkSession

    with pytest.MonkeyPatch.context() as patch:
        for name, value in environment.items():
            patch.setenv(name, value)
        builder = SparkSession.builder.master("local[2]").appName("zkconsumer-tests")
        files = {"spark.jars": ",".join(map(str, jars))}
        session = builder.config(map={**spark_settings(folder), **files, **settings}).getOrCreate()
        patch.delenv("SPARK_HOME", raising=False)  # clusters that tests start have the ordinary one
        process = session.sparkContext._gateway.proc  # type: ignore[union-attr]
        try:
            yield session
        finally:
            _stop(session, process)


def _stop(session: SparkSession, process: subprocess.Popen[bytes]) -> None:
    """Stop the session, then the JVM, which ends when its standard input does; kill it if it does not."""
    from pyspark import SparkContext

    stopping = threading.Thread(target=session.stop, name="stop-spark", daemon=True)
    stopping.start()
    stopping.join(STOP_TIMEOUT_S)
    if not stopping.is_alive():
        gateway: Any = SparkContext._gateway
        gateway.shutdown()
        SparkContext._gateway = SparkContext._jvm = None
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(STOP_TIMEOUT_S)


# --- queries ----------------------------------------------------------------------------------------------------


def checkpoint_of(folder: Path) -> Path:
    """Where ``run_available_now`` and ``start_query`` keep the checkpoint of the query in ``folder``."""
    return folder / "checkpoint"


def started(start: Callable[[], StreamingQuery]) -> StreamingQuery:
    """The query that ``start`` starts; again where Spark gave up on its source's process, before it did anything."""
    for number in range(1, STARTS_MAX + 1):
        query = start()
        while query.isActive and query.status["message"].startswith("Initializing"):
            time.sleep(POLL_S)
        if number == STARTS_MAX or TOO_SLOW not in str(query.exception()):
            break
    return query


def start_query(stream: DataFrame, folder: Path, *, available_now: bool = False, **writer: Any) -> StreamingQuery:
    """Writes the stream below ``folder`` as Parquet, exactly once; ``writer``: options of the writer.

    A query that runs on has a batch every ``TRIGGER_MS``: by default one follows the other while there is data, and
    most tests wait for a member or a command meanwhile.
    """
    made = stream.writeStream.format("parquet").option("checkpointLocation", str(checkpoint_of(folder)))
    made = made.options(**writer)
    if available_now:
        made = made.trigger(availableNow=True)
    else:
        made = made.trigger(processingTime=f"{TRIGGER_MS} milliseconds")
    return started(lambda: made.start(str(folder / "sink")))


def run_available_now(
    stream: DataFrame, folder: Path, timeout_s: float = QUERY_TIMEOUT_S, **writer: Any
) -> StreamingQuery:
    """Reads what there is now, as a query whose checkpoint and sink are in ``folder``; again goes on from there.

    Raises what the query raised; fails the test, and stops the query, when it is not over in time.
    """
    query = start_query(stream, folder, available_now=True, **writer)
    try:
        if not query.awaitTermination(timeout_s):
            pytest.fail(f"the query is not over after {timeout_s} s; its last progress: {query.lastProgress}")
    finally:
        query.stop()
    return query


def sunk(spark: SparkSession, folder: Path) -> list[Row]:
    """The rows that queries in ``folder`` have written."""
    sink = folder / "sink"
    return spark.read.parquet(str(sink)).collect() if (sink / "_spark_metadata").exists() else []
