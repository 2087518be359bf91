"""What Spark is, and with which Pythons it works, is judged before a query meets it."""

from __future__ import annotations

import builtins
import dis
import importlib
import inspect
import json
import os
import pickle
import pkgutil
import re
import subprocess
import sys
import zipfile
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import py4j
import pyspark
import pytest
from pyspark import cloudpickle

import pyspark_zkconsumer
from bridge.spark.source import datasource_registration, environment_check, pickled_by_value
from bridge.spark.source.datasource import ZkConsumerDataSource
from bridge.spark.source.datasource_registration import UnavailableDataSource, default_source, register
from bridge.spark.source.environment_check import DRIVER_MODULES, check_release, check_session
from bridge.spark.source.pickled_by_value import load_in_worker
from bridge.spark.source.pickling import LoaderPickledMeta
from zkconsumer.errors import UsageError
from zkconsumer.version import __version__

RUN_TIMEOUT_S = 60


@dataclass
class Context:
    pythonExec: str  # noqa: N815


@dataclass
class Session:
    """What is asked of a session before any job."""

    sparkContext: Context  # noqa: N815
    version: str = "4.3.0"


@pytest.fixture(autouse=True)
def _no_files_were_added(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_check, "_added_files", list)


def program(tmp_path: Path, text: str) -> str:
    path = tmp_path / "python-of-the-workers"
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def said(**changed: object) -> str:
    version = f"{sys.version_info[0]}.{sys.version_info[1]}.0"
    whole = {"host": "node1", "executable": "/opt/python", "python": version, "missing": {}} | changed
    return f"cat <<'END'\n{json.dumps(whole)}\nEND"


def check(python: str) -> str:
    with pytest.raises(UsageError) as caught:
        check_session(Session(Context(python)))
    return str(caught.value)


# --- the release ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", ["3.5.1", "4.0.0", "4.1.0", "4.1.0-preview1"])
def test_a_spark_before_4_2_is_refused_in_one_sentence(version: str) -> None:
    with pytest.raises(UsageError, match=rf"pyspark is {version}, and format\(.zkconsumer.\) needs 4.2 or later"):
        check_release(version, "pyspark")


@pytest.mark.parametrize("version", ["4.2.0", "4.3.0", "4.10.1", "5.0.0-SNAPSHOT", "of our own making"])
def test_a_later_spark_is_not_refused(version: str) -> None:
    check_release(version, "pyspark")


# --- the Python that plans --------------------------------------------------------------------------------------


def test_the_drivers_own_python_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_check, "_ask", lambda *_: pytest.fail("a process costs half a second"))
    check_session(Session(Context(sys.executable)))


def test_a_python_that_has_everything_passes(tmp_path: Path) -> None:
    check_session(Session(Context(program(tmp_path, said()))))


def test_a_python_without_anything_is_named_with_all_that_it_lacks(tmp_path: Path) -> None:
    text = check(program(tmp_path, f'exec {sys.executable} -I -S "$@"'))
    assert "the Python with which Spark plans queries" in text
    assert f", cannot load {', '.join(sorted(DRIVER_MODULES))}. " in text
    assert f"Set PYSPARK_PYTHON to a Python that has zkconsumer with its extra spark (here: {sys.executable})" in text


def test_a_python_without_pyarrow_is_told_so(tmp_path: Path) -> None:
    text = check(program(tmp_path, said(missing={"pyarrow": "ModuleNotFoundError: No module named 'pyarrow'"})))
    assert "/opt/python" in text
    assert "on node1, cannot load pyarrow. Set PYSPARK_PYTHON" in text


def test_a_package_that_is_there_and_broken_is_quoted(tmp_path: Path) -> None:
    text = check(program(tmp_path, said(missing={"cramjam": "ImportError: /opt/cramjam.so: wrong ELF class"})))
    assert "cannot load cramjam (ImportError: /opt/cramjam.so: wrong ELF class). Set" in text


def test_a_python_of_another_minor_version_is_refused(tmp_path: Path) -> None:
    text = check(program(tmp_path, said(python="3.9.2")))
    ours = f"{sys.version_info[0]}.{sys.version_info[1]}"
    assert f"has another minor version than the driver, {ours}: set PYSPARK_PYTHON" in text


def test_a_python_that_is_not_there_is_named(tmp_path: Path) -> None:
    text = check("./environment/bin/python")
    assert text.startswith("PYSPARK_PYTHON is ./environment/bin/python, and this program does not exist on the driver")


def test_a_program_that_is_no_python_of_ours_is_quoted(tmp_path: Path) -> None:
    text = check(program(tmp_path, "echo 'SyntaxError: annotations' >&2; exit 3"))
    assert "ended with exit code 3: SyntaxError: annotations." in text


@pytest.mark.parametrize("answer", ["true", "echo hello", "echo '[1, 2]'", "echo '{}'"])
def test_a_program_that_is_no_python_is_refused(tmp_path: Path, answer: str) -> None:
    assert check(program(tmp_path, answer)).endswith(
        "which does not answer as a Python does: set it to a Python interpreter"
    )


def test_a_python_that_does_not_answer_is_given_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(environment_check, "PROBE_TIMEOUT_S", 0.2)
    assert "which cannot be run" in check(program(tmp_path, "exec sleep 30"))


# --- what is sent to workers ------------------------------------------------------------------------------------


class Sent(metaclass=LoaderPickledMeta):
    """As a reader is."""

    def __init__(self, offset: int) -> None:
        self.offset = offset


def test_what_is_sent_arrives() -> None:
    assert cloudpickle.loads(cloudpickle.dumps(Sent)) is Sent
    assert cloudpickle.loads(cloudpickle.dumps(Sent(7))).offset == 7
    assert pickle.loads(pickle.dumps(Sent(7))).offset == 7


def run_bare(tmp_path: Path, pickled: bytes) -> subprocess.CompletedProcess[str]:
    """Unpickles in an interpreter that has what Spark brings, and nothing else."""
    for package in (pyspark, py4j):
        (tmp_path / package.__name__).symlink_to(Path(package.__file__).parent)
    (tmp_path / "sent").write_bytes(pickled)
    return subprocess.run(
        [sys.executable, "-S", "-c", "import pickle; print(pickle.load(open('sent', 'rb')))"],
        cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip


def test_a_worker_without_the_package_names_it_and_itself(tmp_path: Path) -> None:
    last = run_bare(tmp_path, cloudpickle.dumps(Sent(7))).stderr.strip().splitlines()[-1]
    where = f"the Python of this Spark worker ({sys.executable}, "
    assert last.startswith(f"ImportError: zkconsumer cannot be loaded by {where}")
    assert f"Install zkconsumer {__version__} with its extra spark for it, or point PYSPARK_PYTHON" in last


class Call:
    """Pickled, it is a call."""

    def __init__(self, *arguments: str) -> None:
        self._arguments = arguments

    def __reduce__(self) -> tuple[object, tuple[str, ...]]:
        return load_in_worker, self._arguments


@pytest.mark.parametrize(("archive", "found"), [("sent.zip", "<class 'bridge.reads.Reader'>"), ("gone.zip", "")])
def test_a_package_that_was_sent_is_found_where_spark_does_not_look(tmp_path: Path, archive: str, found: str) -> None:
    with zipfile.ZipFile(tmp_path / "sent.zip", "w") as made:
        made.writestr("bridge/reads.py", "class Reader: pass")
        made.writestr("zkconsumer/version.py", "__version__ = '7.1'")
        for folder in ("bridge", "zkconsumer", "zkconsumer/kafka"):
            made.writestr(f"{folder}/__init__.py", "")
    call = Call("bridge.reads", "Reader", "7.1", str(tmp_path / archive))
    done = run_bare(tmp_path, cloudpickle.dumps(call))
    assert done.stdout.strip() == found
    assert ("No module named 'bridge'" in done.stderr) is (found == "")


def test_another_version_on_a_worker_is_refused() -> None:
    with pytest.raises(ImportError, match=rf"has zkconsumer {__version__}, and the driver has 9\.9"):
        load_in_worker("bridge.spark.source.pickling", "LoaderPickledMeta", "9.9")
    with pytest.raises(ImportError, match=r"has zkconsumer another version, and the driver has 9\.9"):
        load_in_worker("bridge.spark.source.pickling", "OfLaterReleases", "9.9")


def test_the_functions_that_are_sent_use_nothing_of_their_file() -> None:
    for function in (pickled_by_value.load_in_worker, pickled_by_value.describe_interpreter):
        used = {step.argval for step in dis.get_instructions(function) if step.opname == "LOAD_GLOBAL"}
        assert used - set(dir(builtins)) == set()


# --- registering ------------------------------------------------------------------------------------------------


def test_register_gives_the_session_the_source() -> None:
    given: list[type] = []
    session = SimpleNamespace(
        version="4.3.0",
        sparkContext=Context(sys.executable),
        dataSource=SimpleNamespace(register=given.append),
    )
    register(session)
    register(session)
    assert given == [ZkConsumerDataSource, ZkConsumerDataSource]


def test_register_refuses_an_old_pyspark_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasource_registration, "pyspark_version", "4.1.2")
    with pytest.raises(UsageError, match=r"^pyspark is 4\.1\.2, and"):
        register(SimpleNamespace())


def test_a_spark_without_sources_in_python_is_refused_in_the_same_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql.datasource", None)
    monkeypatch.setattr("pyspark.version.__version__", "3.5.6")
    monkeypatch.delitem(sys.modules, "bridge.spark.source.datasource_registration")
    with pytest.raises(UsageError, match=r"^pyspark is 3\.5\.6, and"):
        importlib.import_module("bridge.spark.source.datasource_registration")


def test_spark_finds_the_source_by_itself() -> None:
    """As ``pyspark.sql.worker.lookup_data_sources`` looks for it."""
    assert pyspark_zkconsumer.DefaultSource is ZkConsumerDataSource
    assert "pyspark_zkconsumer" in {info.name for info in pkgutil.iter_modules()}


def test_a_source_that_cannot_be_loaded_says_so_when_it_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "bridge.spark.source.datasource", None)
    source = default_source()
    assert source is UnavailableDataSource
    assert source.name() == ZkConsumerDataSource.name()
    with pytest.raises(UsageError, match=re.escape("pip install '.[spark]' in a clone")):
        source({})
    monkeypatch.setattr(datasource_registration, "pyspark_version", "4.0.1")
    with pytest.raises(UsageError, match=r"pyspark is 4\.0\.1, and"):
        source({})


def test_the_page_that_errors_name_has_the_heading_that_they_name() -> None:
    page = Path(__file__).parents[3] / environment_check.PAGE
    assert "\n## What must be where\n" in page.read_text("utf-8")
    assert f"{environment_check.PAGE}, 'What must be where'" in inspect.getsource(pickled_by_value)
