"""What a user gets wrong about the machine, on a real Spark, as he sees it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import bridge.spark
from bridge.spark.decode.arrow_decoder import python_decoder_reason
from tests.spark_session_fixtures import spark_environment
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

RUN_TIMEOUT_S = 60


def test_a_good_environment_is_described(spark: SparkSession) -> None:
    [worker] = bridge.spark.check_environment(spark)
    assert (worker.executable, worker.python) == (sys.executable, ".".join(map(str, sys.version_info[:3])))
    assert worker.missing == ()
    assert worker.decoder == (python_decoder_reason() or "")


def test_a_python_without_the_package_is_refused_before_a_query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``PYSPARK_PYTHON`` of another virtual environment; Spark reads it when the session starts."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(tmp_path)], check=True, timeout=RUN_TIMEOUT_S)
    python = str(tmp_path / "bin" / "python")
    monkeypatch.setattr(spark.sparkContext, "pythonExec", python)
    monkeypatch.setenv("PYTHONPATH", "")
    monkeypatch.chdir(tmp_path)
    for attempt in (bridge.spark.register, bridge.spark.check_environment):
        with pytest.raises(UsageError) as caught:
            attempt(spark)
        assert f"the Python with which Spark plans queries, {python} (" in str(caught.value)
        assert "cannot load bridge.spark, cramjam, google_crc32c, kazoo, pyarrow, " in str(caught.value)


def test_what_is_sent_with_add_py_file_counts_as_present(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The planner's Python is asked with the files that Spark will give it."""
    from pyspark import SparkFiles

    from bridge.spark.source.environment_check import _added_files

    sent = tmp_path / "sent_by_a_test.py"
    sent.write_text("")
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(spark.sparkContext, "_python_includes", [])
    spark.sparkContext.addPyFile(str(sent))
    root = SparkFiles.getRootDirectory()
    assert root in " ".join(_added_files())


def test_without_java_spark_says_so(tmp_path: Path) -> None:
    """The first line of the table of mistakes in the how-to."""
    program = "from pyspark.sql import SparkSession; SparkSession.builder.master('local[1]').getOrCreate()"
    (tmp_path / "bin").mkdir()
    for tool in ("bash", "dirname", "env", "sed", "uname", "readlink"):
        found = next(place for place in ("/bin", "/usr/bin") if Path(place, tool).exists())
        (tmp_path / "bin" / tool).symlink_to(Path(found, tool))
    environment = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    done = subprocess.run(
        [sys.executable, "-c", program],
        env={**environment, **spark_environment(), "PATH": str(tmp_path / "bin")},
        capture_output=True, text=True, timeout=RUN_TIMEOUT_S, check=False,
    )  # fmt: skip
    assert "JAVA_HOME is not set" in done.stderr
    assert "JAVA_GATEWAY_EXITED" in done.stderr
