"""The Spark session of a pipeline that runs as a command."""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from bridge.spark.pipeline.sinks.delta_session import delta_settings
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
"""Of a Spark in this process; the setting ``spark.driver.extraJavaOptions`` replaces them."""


def require_spark() -> None:
    """``UsageError``: Spark is not installed."""
    if find_spec("pyspark") is None:
        raise UsageError(
            "a pipeline needs Spark, which is not installed; install zkconsumer with its extra spark "
            "(pip install '.[spark]' in a clone of its repository) and a JDK 17"
        )


OPEN_FOLDERS_MAX = 8
"""A task that writes to so many time folders need not sort its rows; it keeps a file of each open."""


@contextmanager
def spark_session(
    name: str, master: str | None, settings: Mapping[str, str], *, writes_delta: bool = False
) -> Iterator[SparkSession]:
    """A session that is stopped at the end.

    ``master``: None: ``local[*]``, or the master of ``spark-submit`` if that has started this program.  A Spark in this
    process runs its workers with this Python.  ``writes_delta``: adds Delta's extension and catalog; the package is a
    setting of the operator (``spark.jars.packages``).
    """
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName(f"zkconsumer pipeline {name}")
    chosen = {
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.maxConcurrentOutputFileWriters": str(OPEN_FOLDERS_MAX),
    }
    is_submitted = "SPARK_ENV_LOADED" in os.environ
    if master is not None or not is_submitted:
        builder = builder.master(master or "local[*]")
    if not is_submitted and (master is None or master.startswith("local")):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        chosen["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    chosen |= settings
    if writes_delta:
        chosen |= delta_settings(settings)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    try:
        yield session
    finally:
        session.stop()
