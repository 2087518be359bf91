"""What a Spark session needs for Delta, and the line for the operator."""

from __future__ import annotations

from typing import Any

import pytest
from pyspark.errors import PySparkException

from bridge.spark.pipeline.sinks.delta_session import (
    CATALOG,
    CATALOG_CLASS,
    EXTENSION,
    EXTENSIONS,
    PACKAGE,
    delta_session_problem,
    delta_settings,
)


class Session:
    """A session with these settings, and with or without the package."""

    def __init__(self, version: str, settings: dict[str, str], has_package: bool) -> None:
        self.version = version
        self.conf = settings
        self._has_package = has_package

    @property
    def read(self) -> Any:
        return self

    def format(self, name: str) -> Any:
        assert name == "delta"
        return self

    def load(self, _: str) -> Any:
        raise PySparkException("[PATH_NOT_FOUND]" if self._has_package else "[DATA_SOURCE_NOT_FOUND]")


SETTINGS = {EXTENSIONS: f"a.B, {EXTENSION}", CATALOG: CATALOG_CLASS}


def problem_of(version: str = "4.2.0", settings: dict[str, str] | None = None, has_package: bool = True) -> str:
    session: Any = Session(version, SETTINGS if settings is None else settings, has_package)
    return delta_session_problem(session) or ""


def test_a_session_with_the_package_and_both_settings_writes_delta() -> None:
    assert problem_of() == ""
    assert problem_of("4.2.1") == ""


@pytest.mark.parametrize("version", ["4.3.0", "4.1.1", "4.20.0"])
def test_another_release_of_spark_is_refused_with_the_reason(version: str) -> None:
    line = problem_of(version)
    assert "Delta 4.4.0 fits pyspark 4.2.0 and not 4.3" in line
    assert line.endswith(f"This is Spark {version}")


def test_everything_that_is_missing_is_in_one_line() -> None:
    line = problem_of(settings={}, has_package=False)
    for missing in (f"spark.jars.packages={PACKAGE}", f"{EXTENSIONS}={EXTENSION}", f"{CATALOG}={CATALOG_CLASS}"):
        assert missing in line
    assert "\n" not in line
    assert "spark.jars.packages" not in problem_of(settings={}).partition(";")[0]
    assert EXTENSIONS not in problem_of(has_package=False).partition(";")[0]


def test_a_new_session_keeps_the_extensions_of_the_operator_and_another_catalog() -> None:
    assert delta_settings({}) == {EXTENSIONS: EXTENSION, CATALOG: CATALOG_CLASS}
    assert delta_settings({EXTENSIONS: "a.B", CATALOG: "c.D"}) == {EXTENSIONS: f"a.B,{EXTENSION}", CATALOG: "c.D"}
    assert delta_settings(SETTINGS)[EXTENSIONS] == f"a.B,{EXTENSION}"
