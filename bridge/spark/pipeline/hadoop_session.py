"""Gives the settings of the section ``hadoop`` to the file systems of a Spark session.

They go to the Hadoop configuration of the session, which Spark sends to the tasks that read and write folders.  They
are no setting of Spark: not in its plans, its configuration, the checkpoint or the lineage, and not on a command line.
The configuration lives as long as the session.  A file system that the session has opened before keeps its settings.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from bridge.spark.pipeline.hadoop_settings import (
    REDACTION,
    SPARK_REDACTION,
    redaction_regex,
    secret_names,
    shown_names,
)
from bridge.spark.pipeline.pipeline_spec import PipelineSpec
from bridge.spark.pipeline.secret_reference import ReadFile, resolve_secrets
from bridge.spark.source.environment_check import is_connect
from zkconsumer.errors import UsageError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def apply_hadoop_settings(
    spark: SparkSession, spec: PipelineSpec, environment: Mapping[str, str], read_file: ReadFile
) -> None:
    """Sets them, if there are some.

    Raises ``UsageError`` for a session of Spark Connect, and for one that would show a secret in its UI;
    ``SecretUnavailableError``.
    """
    if not spec.hadoop:
        return
    if is_connect(spark):
        raise UsageError(
            f"{spec.file}: [hadoop]: with Spark Connect the server has the settings of its file systems; start the "
            "server with them, as spark.hadoop.KEY, and remove the section"
        )
    context: Any = spark.sparkContext
    regex = context.getConf().get(REDACTION, SPARK_REDACTION)
    if shown := shown_names(secret_names(spec.hadoop), regex):
        raise UsageError(
            f"{spec.file}: [hadoop] {shown[0]}: this Spark session can show the value in its UI and its event log; "
            f"start the session with {REDACTION}={redaction_regex(shown)}"
        )
    configuration = context._jsc.hadoopConfiguration()
    for name, text in resolve_secrets(spec.hadoop, environment, read_file).items():
        configuration.set(name, text)
