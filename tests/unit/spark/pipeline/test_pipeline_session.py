"""The settings of the Spark session of a pipeline command."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from bridge.spark.pipeline.pipeline_session import WORKER_SAFE_PATH, spark_session
from bridge.spark.pipeline.sinks.delta_session import CATALOG, CATALOG_CLASS, EXTENSION, EXTENSIONS


class Builder:
    """Records what a session is made of."""

    def __init__(self) -> None:
        self.settings: dict[str, str] = {}
        self.chosen_master: str | None = None
        self.stopped = 0
        java_context = SimpleNamespace(sc=lambda: SimpleNamespace(isStopped=lambda: False))
        self.sparkContext = SimpleNamespace(_gateway=None, _jsc=java_context)

    def appName(self, name: str) -> Builder:
        self.settings["spark.app.name"] = name
        return self

    def master(self, url: str) -> Builder:
        self.chosen_master = url
        return self

    def config(self, key: str, value: str) -> Builder:
        self.settings[key] = value
        return self

    def getOrCreate(self) -> Any:
        return self

    def stop(self) -> None:
        self.stopped += 1


@pytest.fixture
def builder(monkeypatch: pytest.MonkeyPatch) -> Builder:
    from pyspark.sql import SparkSession

    made = Builder()
    monkeypatch.setattr(SparkSession, "builder", made)
    monkeypatch.delenv("SPARK_ENV_LOADED", raising=False)
    monkeypatch.setenv("SPARK_HOME", "/opt/spark")
    return made


def test_a_pipeline_without_delta_has_no_setting_of_delta(builder: Builder) -> None:
    with spark_session("p", None, {"spark.driver.memory": "4g"}):
        assert builder.chosen_master == "local[*]"
        assert builder.settings["spark.driver.memory"] == "4g"
        assert builder.settings[WORKER_SAFE_PATH] == "1"
        assert not {EXTENSIONS, CATALOG} & builder.settings.keys()
    assert builder.stopped == 1


def test_a_pipeline_with_delta_adds_the_extension_and_the_catalog_and_no_package(builder: Builder) -> None:
    given = {EXTENSIONS: "a.B", "spark.jars.packages": "x:y:1"}
    with spark_session("p", "spark://m:7077", given, writes_delta=True):
        assert builder.chosen_master == "spark://m:7077"
        assert WORKER_SAFE_PATH not in builder.settings, "executors may find the code in their folder"
        assert builder.settings[EXTENSIONS] == f"a.B,{EXTENSION}"
        assert builder.settings[CATALOG] == CATALOG_CLASS
        assert builder.settings["spark.jars.packages"] == "x:y:1"
    with spark_session("p", None, {}, writes_delta=True):
        assert builder.settings[EXTENSIONS] == EXTENSION
