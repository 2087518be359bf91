"""The Spark session of a pipeline that runs as a command."""

from __future__ import annotations

import os
import socket
import sys
import warnings
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from bridge.spark.pipeline.hadoop_settings import REDACTION, redaction_regex, secret_names
from bridge.spark.pipeline.secret_reference import MaybeSecret
from bridge.spark.pipeline.sinks.delta_session import delta_settings
from bridge.spark.pipeline.spark_home import installed_spark_home
from zkconsumer.errors import UnavailableError, UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from bridge.spark.pipeline.pipeline_spec import PipelineSpec

LOG_SETTINGS = Path(__file__).with_name("log4j2.properties")
"""Of a Spark in this process; the setting ``spark.driver.extraJavaOptions`` replaces them."""

WORKER_SAFE_PATH = "spark.executorEnv.PYTHONSAFEPATH"
"""Spark starts its Python workers in the current folder, and Python would import from there first: in a clone of this
project the sources without their compiled modules."""


def require_spark() -> None:
    """``UsageError``: Spark is not installed."""
    if find_spec("pyspark") is None:
        raise UsageError(
            "a pipeline needs Spark, which is not installed; install zkconsumer with its extra spark "
            "(pip install '.[spark]' in a clone of its repository) and a JDK 17"
        )


CONNECT_SCHEME = "sc://"

CONNECT_MODULES = ("grpc", "grpc_status", "google.rpc", "zstandard", "pandas")
"""What ``pyspark[connect]`` installs."""


def require_connect_client() -> None:
    """``UsageError``: a client of Spark Connect lacks a package."""
    for name in CONNECT_MODULES:
        try:
            import_module(name)
        except ImportError as error:
            raise UsageError(
                f"--master {CONNECT_SCHEME}… needs the client of Spark Connect, and {name} is not installed: "
                "pip install 'pyspark[connect]'"
            ) from error


CONNECT_PORT = 15_002
CONNECT_TIMEOUT_S = 10


def require_connect_server(master: str) -> None:
    """``UnavailableError``: no program accepts connections there.  Spark's own client would try for ten minutes.

    No error has the parameters of the address: one of them may be a token.
    """
    shown, semicolon, _ = master.partition(";")
    try:
        found = urlsplit(shown)
        place = (found.hostname or "", found.port or CONNECT_PORT)
    except ValueError as error:
        raise UsageError(f"--master {shown}: {error}; write it as sc://HOST:PORT") from error
    if not place[0]:
        raise UsageError(f"--master {shown}: there is no host; write it as sc://HOST:PORT")
    if semicolon and not found.path:
        raise UsageError(
            f"--master {shown}: there is no / before the parameters; write it as sc://HOST:PORT/;NAME=VALUE"
        )
    try:
        socket.create_connection(place, CONNECT_TIMEOUT_S).close()
    except OSError as error:
        why = error.strerror or str(error) or type(error).__name__
        raise UnavailableError(
            f"the Spark Connect server {place[0]}:{place[1]} cannot be reached: {why}; the operator must start it, or "
            "correct --master"
        ) from error


OPEN_FOLDERS_MAX = 8
"""A task that writes to so many time folders need not sort its rows; it keeps a file of each open."""


@contextmanager
def spark_session(
    name: str,
    master: str | None,
    settings: Mapping[str, str],
    *,
    writes_delta: bool = False,
    hadoop: Mapping[str, MaybeSecret] | None = None,
) -> Iterator[SparkSession]:
    """A session that is stopped at the end.

    ``master``: None: ``local[*]``, or the master of ``spark-submit`` if that has started this program; ``sc://…``: a
    server of Spark Connect.  A Spark in this process runs its workers with this Python.

    ``writes_delta``: adds Delta's extension and catalog; the package is a setting of the operator
    (``spark.jars.packages``).  A Connect server has all three at its start; this program cannot change them.
    ``hadoop``: of the pipeline file; the session does not show the secrets among them.
    """
    from pyspark.sql import SparkSession

    from bridge.spark.pipeline.java_process import java_process

    warnings.filterwarnings("ignore", "PySpark does not yet fully support pandas", FutureWarning)
    builder = SparkSession.builder.appName(f"zkconsumer pipeline {name}")
    chosen = {"spark.sql.maxConcurrentOutputFileWriters": str(OPEN_FOLDERS_MAX)}
    is_remote = master is not None and master.startswith(CONNECT_SCHEME)
    if master is not None and is_remote:
        require_connect_client()
        require_connect_server(master)
        builder = builder.remote(master)
    else:
        builder = _classic_builder(builder, master, settings, chosen)
    if hidden := secret_names(hadoop or {}):
        chosen[REDACTION] = redaction_regex(hidden)
    chosen |= settings
    if writes_delta and not is_remote:
        chosen |= delta_settings(settings)
    for key, value in chosen.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    with session if is_remote else java_process(session):
        yield session


def pipeline_spark_session(
    spec: PipelineSpec, master: str | None, settings: Mapping[str, str]
) -> AbstractContextManager[SparkSession]:
    """The session of a pipeline file; see ``spark_session``."""
    return spark_session(spec.name, master, settings, writes_delta=spec.writes_delta, hadoop=spec.hadoop)


def _classic_builder(builder: Any, master: str | None, settings: Mapping[str, str], chosen: dict[str, str]) -> Any:
    """The builder of a session in this process; ``chosen`` gets further settings."""
    chosen["spark.ui.showConsoleProgress"] = "false"
    is_submitted = "SPARK_ENV_LOADED" in os.environ
    if master is not None or not is_submitted:
        builder = builder.master(master or "local[*]")
    if not is_submitted and (master is None or master.startswith("local")):
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        home = installed_spark_home(os.environ, settings)
        if home is not None:
            os.environ["SPARK_HOME"] = str(home)
        chosen[WORKER_SAFE_PATH] = "1"
        chosen["spark.driver.extraJavaOptions"] = f"-Dlog4j2.configurationFile={LOG_SETTINGS.as_uri()}"
    return builder
