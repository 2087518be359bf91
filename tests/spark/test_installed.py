"""What pip installs is whole, and runs: wheel, archive of the sources, the oldest packages that setup.py allows.

Nightly, because pip fetches Spark twice.
"""

from __future__ import annotations

import ast
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.package_zip import OURS
from tests.spark_cluster_fixtures import History, run_driver, spark_home, standalone
from tests.spark_session_fixtures import ROOT, require_spark, spark_settings
from zkconsumer import extensions

pytestmark = [pytest.mark.nightly, pytest.mark.real, pytest.mark.timeout(900)]

PIP_TIMEOUT_S = 600
"""Spark alone is some hundred megabytes."""


def run(*command: str | Path, cwd: Path) -> str:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=PIP_TIMEOUT_S, check=False
    )
    assert done.returncode == 0, f"{command}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}"
    return done.stdout


@pytest.fixture(scope="module")
def sources(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, so that no earlier build's files get into the wheel, and none of this one's stay."""
    folder = tmp_path_factory.mktemp("sources")
    for name in OURS:
        shutil.copytree(ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
    for name in ("setup.py", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


@pytest.fixture(scope="module")
def wheel(sources: Path) -> Path:
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "made", ".", cwd=sources)
    [made] = (sources / "made").glob("*.whl")
    return made


def files_of(folder: Path) -> Iterator[str]:
    for name in OURS:
        for path in (folder / name).rglob("*"):
            if path.is_file():
                yield path.relative_to(folder).as_posix()


def required(name: str) -> list[str]:
    """A list of requirements in setup.py, by its name there."""
    for node in ast.walk(ast.parse((ROOT / "setup.py").read_text("utf-8"))):
        is_variable = isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Name)
        if (is_variable and node.targets[0].id == name) or (isinstance(node, ast.keyword) and node.arg == name):
            found = ast.literal_eval(node.value)
            assert isinstance(found, list)
            return found
    raise AssertionError(f"setup.py has no {name}")


def test_the_wheel_holds_every_file_of_the_packages(sources: Path, wheel: Path) -> None:
    inside = {name for name in zipfile.ZipFile(wheel).namelist() if ".dist-info/" not in name}
    compiled = {name for name in inside if name.endswith(".so")}
    assert inside - compiled == {name for name in files_of(sources) if not name.endswith((".c", ".h", ".so"))}
    # Without a compiler the same wheel is for every system.
    modules = {f"{name.replace('.', '/')}.abi3.so" for name in extensions.EXTENSION_MODULES}
    assert compiled == (set() if "none-any" in wheel.name else modules)


def test_the_archive_of_the_sources_makes_the_same_wheel(sources: Path, wheel: Path, tmp_path: Path) -> None:
    run(sys.executable, "setup.py", "-q", "sdist", "-d", tmp_path, cwd=sources)
    [archive] = tmp_path.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path, filter="data")
    [unpacked] = [path for path in tmp_path.iterdir() if path.is_dir()]
    run(sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", "made", ".", cwd=unpacked)
    [again] = (unpacked / "made").glob("*.whl")
    assert set(zipfile.ZipFile(again).namelist()) == set(zipfile.ZipFile(wheel).namelist())


@pytest.mark.parametrize("which", ["newest", "oldest"])
def test_a_fresh_environment_reads_a_group(which: str, wheel: Path, history: History, tmp_path: Path) -> None:
    """The wheel with its extra ``spark``, with the newest packages and with the oldest that are allowed."""
    require_spark()
    run(sys.executable, "-m", "venv", tmp_path / "env", cwd=tmp_path)
    python = tmp_path / "env" / "bin" / "python"
    oldest = [text.replace(">=", "==") for text in (*required("install_requires"), *required("SPARK"))]
    more = oldest if which == "oldest" else []
    run(python, "-m", "pip", "install", "--quiet", f"{wheel}[spark]", *more, cwd=tmp_path)
    if which == "oldest":
        frozen = run(python, "-m", "pip", "freeze", cwd=tmp_path)
        assert re.search(r"(?m)^pyspark==4\.2\.0$", frozen)
    answer = run_driver(
        history, tmp_path / "work",
        {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "PYTHONPATH": ""},
        command=[str(python)], master="local[2]", settings=spark_settings(tmp_path), register=False,
        steps=["batch", "stream"],
    )  # fmt: skip
    assert answer == {"batch": history.unread, "stream": history.unread}
    history.check_left()


def test_a_packed_environment_is_sent_with_the_program(wheel: Path, history: History, tmp_path: Path) -> None:
    """As migration_docs/how-to/install-on-a-spark-cluster.md does it: Spark itself is not in the archive."""
    require_spark()
    run(sys.executable, "-m", "venv", "env", cwd=tmp_path)
    run("env/bin/pip", "install", "--quiet", wheel, "pyarrow", "venv-pack", cwd=tmp_path)
    run("env/bin/venv-pack", "-q", "-p", "env", "-o", "env.tar.gz", cwd=tmp_path)
    (tmp_path / "environment").mkdir()
    run("tar", "-xzf", "env.tar.gz", "-C", "environment", cwd=tmp_path)
    python, home = "./environment/bin/python", str(spark_home())
    place = tmp_path / "cluster"
    place.mkdir()
    with standalone(place, PYTHONPATH="") as master:
        settings = {**spark_settings(tmp_path), "spark.driver.memory": "512m", "spark.executor.memory": "512m"}
        answer = run_driver(
            history, tmp_path / "work",
            {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": python, "PYTHONPATH": "", "SPARK_HOME": home},
            command=[f"{home}/bin/spark-submit", "--archives", "env.tar.gz#environment"],
            master=master, settings=settings, steps=["check", "batch", "stream"],
        )  # fmt: skip
    assert answer["register"] is None
    assert all("/environment/bin/python (" in worker for worker in answer["check"])
    assert answer["batch"] == history.unread
    assert answer["stream"] == history.unread
    history.check_left()
