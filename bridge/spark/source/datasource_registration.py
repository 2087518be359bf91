"""Registers ``format("zkconsumer")`` with Spark.

Spark looks for installed modules named ``pyspark_*`` and registers their ``DefaultSource``.  A program calls
``register`` for a package that was added by ``addPyFile`` or ``addArtifacts``, or to receive errors of the environment
early.
"""

from __future__ import annotations

from typing import Any

from pyspark.version import __version__ as pyspark_version

from bridge.spark.source.environment_check import check_release, check_session
from zkconsumer.errors import UsageError

try:
    from pyspark.sql.datasource import DataSource
except ImportError:  # Spark before 4.0 has no sources in Python
    check_release(pyspark_version, "pyspark")
    raise

NAME = "zkconsumer"


def register(spark: Any) -> None:
    """Registers ``format("zkconsumer")`` with this session, classic or Connect; a repeated call is harmless.

    Raises ``UsageError`` when this session cannot plan queries of this source: Spark before 4.2, or a
    ``PYSPARK_PYTHON`` that lacks this package, pyarrow or the driver's version of Python.
    """
    check_release(pyspark_version, "pyspark")
    check_session(spark)
    from bridge.spark.source.datasource import ZkConsumerDataSource

    spark.dataSource.register(ZkConsumerDataSource)


class UnavailableDataSource(DataSource):  # type: ignore[misc]
    """Replaces the source where it cannot be loaded, and raises the reason when a query uses it.

    An error while Spark looks for sources would hide all Python sources, and Spark only logs a warning.
    """

    @classmethod
    def name(cls) -> str:
        return NAME

    def __init__(self, options: Any) -> None:
        super().__init__(options)
        check_release(pyspark_version, "pyspark")
        try:
            import bridge.spark.source.datasource  # noqa: F401
        except ImportError as error:
            raise UsageError(
                f'format("zkconsumer") cannot be loaded: {error}. Install zkconsumer with its extra '
                "spark (pip install '.[spark]' in a clone of its repository)"
            ) from error


def default_source() -> type[DataSource]:
    """The class that Spark registers when it finds this package."""
    try:
        from bridge.spark.source.datasource import ZkConsumerDataSource
    except ImportError:
        return UnavailableDataSource
    return ZkConsumerDataSource
