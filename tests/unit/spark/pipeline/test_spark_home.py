"""The folder in which Spark's Python processes import the installed pyspark."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from bridge.spark.pipeline import pipeline_session, spark_home
from bridge.spark.pipeline.pipeline_session import spark_session
from bridge.spark.pipeline.spark_home import installed_spark_home

pyspark = pytest.importorskip("pyspark")
INSTALLED = Path(pyspark.__file__).parent


def test_it_has_what_the_start_of_the_jvm_needs_and_no_zip_of_pyspark(tmp_path: Path) -> None:
    home = installed_spark_home({}, {}, tmp_path)
    assert home is not None
    assert (home / "jars").samefile(INSTALLED / "jars")
    assert os.access(home / "bin" / "spark-submit", os.X_OK)
    assert (home / "conf").is_symlink(), "settings that an operator adds later are read, too"
    assert not (home / "python").exists()
    assert installed_spark_home({}, {}, tmp_path) == home, "it is made once"
    assert os.listdir(home.parent) == [home.name]


def test_the_cache_of_the_user_is_its_place(tmp_path: Path) -> None:
    home = installed_spark_home({"XDG_CACHE_HOME": str(tmp_path)}, {})
    assert home is not None
    assert home.parent == tmp_path / "zkconsumer" / "spark-home"


@pytest.mark.parametrize(
    ("environment", "settings"),
    [
        ({"SPARK_HOME": "/opt/spark"}, {}),
        ({"PYSPARK_PYTHON": "/usr/bin/python-of-the-workers"}, {}),
        ({}, {"spark.pyspark.python": "/usr/bin/python-of-the-workers"}),
        ({}, {"spark.pyspark.driver.python": "/usr/bin/python-of-the-workers"}),
    ],
)
def test_what_an_operator_has_chosen_is_not_changed(
    environment: Mapping[str, str], settings: Mapping[str, str], tmp_path: Path
) -> None:
    assert installed_spark_home(environment, settings, tmp_path) is None
    assert not list(tmp_path.iterdir())


def test_this_python_may_be_named(tmp_path: Path) -> None:
    names = {"PYSPARK_PYTHON": sys.executable}
    assert installed_spark_home(names, {"spark.pyspark.python": sys.executable}, tmp_path) is not None


def test_a_cache_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    assert installed_spark_home({}, {}, file) is None


def test_of_two_that_make_it_at_the_same_time_both_have_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first = installed_spark_home({}, {}, tmp_path)
    assert first is not None
    exists = iter([False, True])
    monkeypatch.setattr(Path, "is_dir", lambda path: next(exists) if path == first else os.path.isdir(path))
    assert installed_spark_home({}, {}, tmp_path) == first
    assert os.listdir(first.parent) == [first.name], "nothing is left of the second one"


def test_a_pyspark_without_jars_is_a_client_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "pyspark"
    package.mkdir()
    (package / "__init__.py").write_text("")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "pyspark")
    assert installed_spark_home({}, {}, tmp_path) is None
    monkeypatch.setattr(spark_home, "find_spec", lambda name: None)
    assert installed_spark_home({}, {}, tmp_path) is None


@pytest.mark.parametrize(("master", "is_used"), [(None, True), ("local[2]", True), ("spark://m:7077", False)])
def test_a_pipeline_command_starts_its_local_spark_there(
    master: str | None, is_used: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    asked = []

    class Stopped(Exception):
        pass

    def stop(builder: object) -> None:
        raise Stopped

    from pyspark.sql import SparkSession

    monkeypatch.delenv("SPARK_ENV_LOADED", raising=False)
    monkeypatch.setattr(os, "environ", {**os.environ})
    monkeypatch.setattr(pipeline_session, "installed_spark_home", lambda *given: asked.append(given) or tmp_path)
    monkeypatch.setattr(SparkSession.Builder, "getOrCreate", stop)
    with pytest.raises(Stopped), spark_session("p", master, {}):
        pass
    assert len(asked) == is_used
    assert (os.environ.get("SPARK_HOME") == str(tmp_path)) is is_used
