"""What a Spark session needs so that it writes Delta tables, and the line for the operator if something is missing.

Delta 4.4.0 is compiled for Spark 4.2 (its artifact is delta-spark_4.2_2.13).  With Spark 4.3 it appends a batch and
then fails with NoSuchMethodError, so each batch would be committed and reported as failed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_RELEASE = "4.2"
"""The release of Spark for which the package is compiled."""

PACKAGE = "io.delta:delta-spark_4.2_2.13:4.4.0"
"""The Maven coordinates for ``spark.jars.packages``."""

EXTENSIONS, EXTENSION = "spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension"
CATALOG, CATALOG_CLASS = "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"

NO_DELTA = (
    "format delta: Delta 4.4.0 fits pyspark 4.2.0 and not 4.3, where it appends and then fails with NoSuchMethodError; "
    "this release writes Delta tables with pyspark 4.2.0. Install pyspark==4.2.0 in an environment of its own, or use "
    "the format parquet or postgres"
)

_NO_TABLE = "/zkconsumer-no-such-table"
_NO_SOURCE = "DATA_SOURCE_NOT_FOUND"


def delta_settings(given: Mapping[str, str]) -> dict[str, str]:
    """The settings of a new session that writes Delta tables, without the package: the operator chooses where it is
    from.  ``given``: settings of the operator; other extensions are kept, another catalog too."""
    extensions = [name.strip() for name in given.get(EXTENSIONS, "").split(",") if name.strip()]
    if EXTENSION not in extensions:
        extensions.append(EXTENSION)
    return {EXTENSIONS: ",".join(extensions), CATALOG: given.get(CATALOG, CATALOG_CLASS)}


def delta_session_problem(spark: SparkSession) -> str | None:
    """Why this session does not write Delta tables, one line, or None; changes nothing."""
    if not spark.version.startswith(f"{SPARK_RELEASE}."):
        return f"{NO_DELTA}. This is Spark {spark.version}"
    missing = []
    if not _has_package(spark):
        missing.append(f"spark.jars.packages={PACKAGE}")
    if EXTENSION not in [name.strip() for name in (spark.conf.get(EXTENSIONS, "") or "").split(",")]:
        missing.append(f"{EXTENSIONS}={EXTENSION}")
    if spark.conf.get(CATALOG, "") != CATALOG_CLASS:
        missing.append(f"{CATALOG}={CATALOG_CLASS}")
    if not missing:
        return None
    return (
        f"format delta: the Spark session has no {', '.join(missing)}; give each to zkconsumer pipeline or "
        "to spark-submit as --conf KEY=VALUE, or to the builder of the session (the package also by spark.jars)"
    )


def _has_package(spark: SparkSession) -> bool:
    """Whether Spark finds the format.  Nothing else that is public says it: with a catalog whose class is missing, each
    expression fails."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        spark.read.format("delta").load(_NO_TABLE)
    except (PySparkException, Py4JJavaError) as error:
        return _NO_SOURCE not in str(error)
    return True
