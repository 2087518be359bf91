"""A user's program on real clusters: installed packages, packages that are sent, Spark Connect, a lost executor.

The workers' Python of most tests here has everything but zkconsumer: a driver that forgets to send it must be told so,
and what is sent must do.
"""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.spark_cluster_fixtures import History, cluster_settings, connect_server, run_driver, spark_home, standalone
from tests.spark_session_fixtures import spark_settings
from zkconsumer.wire import compiled

pytestmark = [pytest.mark.real, pytest.mark.timeout(240)]


MISSING = (
    "ImportError: zkconsumer cannot be loaded by the Python of this Spark worker ({python}, {version}, on ",
    ": No module named 'bridge'. Install zkconsumer ",
    "or send it with addPyFile or addArtifacts before you call register(spark); see migration_docs/",
)


@pytest.fixture(scope="module")
def bare_cluster(tmp_path_factory: pytest.TempPathFactory, bare_python: str) -> Iterator[str]:
    """A master and a worker without our package."""
    with standalone(tmp_path_factory.mktemp("standalone"), 1, PYSPARK_PYTHON=bare_python, PYTHONPATH="") as url:
        yield url


def check_decoders(found: list[str], name: str = "zkconsumer.zip") -> None:
    """The executors have the package out of the zip, with its compiled decoder."""
    assert found == [f"{name}: {'in use' if compiled.RECORD_DECODER is not None else 'not in use'}"]


def check_missing(answer: Any, python: str) -> None:
    version = ".".join(map(str, sys.version_info[:3]))
    for words in MISSING:
        assert words.format(python=python, version=version) in answer["error"]


@pytest.mark.nightly
def test_a_cluster_without_the_package_is_told_so_and_reads_when_it_is_sent(
    bare_cluster: str, bare_python: str, package: str, history: History, tmp_path: Path
) -> None:
    answer = run_driver(
        history, tmp_path / "work", {"PYSPARK_PYTHON": bare_python},
        master=bare_cluster, settings=cluster_settings(tmp_path), package=package,
        steps=["check:before sending", "batch:before", "package", "check", "batch", "stream", "modules", "decoders"],
    )  # fmt: skip
    assert answer["register"] is None
    told = answer["before sending"]["error"]
    assert told.startswith(f"UsageError: the Python of Spark's executors, {bare_python} (")
    assert "cannot load bridge.spark, zkconsumer. Set PYSPARK_PYTHON" in told
    check_missing(answer["before"], bare_python)
    assert answer["register again"] is None
    assert [worker.partition(" (")[0] for worker in answer["check"]] == [bare_python]
    assert answer["batch"] == history.unread
    assert answer["stream"] == history.unread
    history.check_left()
    check_decoders(answer["decoders"])
    loaded = set(answer["modules"])
    assert "bridge.spark.decode.range_partition" in loaded
    assert not loaded & {
        "kazoo",
        "re2",
        "six",
        "click",
        "scramp",
        "zkconsumer.zk",
        "zkconsumer.member",
        "bridge.spark.membership",
    }


@pytest.mark.parametrize("master", ["local[2]", pytest.param("cluster", marks=pytest.mark.nightly)])
def test_spark_connect_reads_with_what_the_client_sends(
    request: pytest.FixtureRequest, bare_python: str, package: str, history: History, tmp_path: Path, master: str
) -> None:
    place = tmp_path / "server"
    place.mkdir()
    environment = {"PYSPARK_PYTHON": bare_python, "PYSPARK_DRIVER_PYTHON": bare_python, "PYTHONPATH": ""}
    executors = master if master != "cluster" else request.getfixturevalue("bare_cluster")
    with connect_server(place, executors, cluster_settings(place), **environment) as url:
        answer = run_driver(
            history, tmp_path / "work", {}, remote=url, package=package, register=False,
            steps=["batch:before", "package", "batch", "stream", "decoders"],
        )  # fmt: skip
    assert "DATA_SOURCE_NOT_FOUND" in answer["before"]["error"]
    check_decoders(answer["decoders"])
    assert answer["batch"] == history.unread
    assert answer["stream"] == history.unread
    history.check_left()


# --- where the package is installed -----------------------------------------------------------------------------------


@pytest.mark.nightly
def test_local_cluster_reads(history: History, tmp_path: Path) -> None:
    """Its workers write below Spark's own folder (4.3.0), whatever SPARK_WORKER_DIR says: that is removed again."""
    place = spark_home() / "work"
    were_there = set(place.glob("*"))
    try:
        answer = run_driver(
            history, tmp_path / "work", {}, master="local-cluster[2,1,1024]", settings=spark_settings(tmp_path),
            register=False, steps=["batch", "stream"],
        )  # fmt: skip
    finally:
        for folder in set(place.glob("*")) - were_there:
            shutil.rmtree(folder)
        if not were_there and place.exists():
            place.rmdir()
    assert answer == {"batch": history.unread, "stream": history.unread}
    history.check_left()


@pytest.mark.nightly
@pytest.mark.parametrize("step", ["batch with a kill", "stream with a kill"])
def test_an_executor_that_is_killed_costs_no_record_and_doubles_none(
    history: History, tmp_path: Path, step: str
) -> None:
    with standalone(tmp_path) as master:
        answer = run_driver(
            history, tmp_path / "work", {}, master=master, settings=cluster_settings(tmp_path), steps=[step],
        )  # fmt: skip
    assert (tmp_path / "work" / "killed").exists()
    assert answer[step] == history.unread
    if step.startswith("stream"):
        history.check_left()


@pytest.mark.nightly
def test_a_connect_session_in_one_process_reads(history: History, tmp_path: Path) -> None:
    """``SparkSession.builder.remote("local[2]")``: server and client in one; the source is found by itself."""
    answer = run_driver(
        history, tmp_path / "work", {}, remote="local[2]", register=False, steps=["batch", "stream"],
    )  # fmt: skip
    assert answer == {"batch": history.unread, "stream": history.unread}
    history.check_left()
