"""A pipeline whose checkpoint is in a file system that needs settings of Hadoop, with a secret among them.

``viewfs`` is a file system of Hadoop that maps folders by settings, so it is found only where the settings are.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_query import prepare_pipeline
from bridge.spark.pipeline.sinks.parquet_table import read_parquet_table
from tests.pipeline_run_fixtures import run_to_end
from zkconsumer.testing.sandbox import Sandbox, wait_until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.real

WAIT_MS = 60_000
S = "hunter2secret"
SECRET_KEY = "fs.s3a.secret.key"


def environment_of(spark: SparkSession) -> str:
    """What Spark shows of Hadoop's settings in its UI and writes to the event log now: it removes secrets then."""
    context: Any = spark.sparkContext._jsc.sc()
    found = context.statusStore().environmentInfo().hadoopProperties()
    jvm: Any = spark.sparkContext._jvm
    return str(jvm.org.apache.spark.util.Utils.redact(context.conf(), found).mkString("\n"))


@pytest.mark.nightly
def test_settings_of_hadoop_reach_the_checkpoint_and_a_secret_is_in_nothing_that_is_shown_or_stored(
    spark: SparkSession, shared_cluster: Sandbox, fresh_name: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    host = "mounts"
    (tmp_path / "mounted").mkdir()
    file = tmp_path / "clicks.toml"
    file.write_text(
        f"""
        [source]
        zookeeper.connect = "{shared_cluster.zookeeper.connect_string("/kafka")}"
        group.id = "{fresh_name}"
        subscribe = "{fresh_name}"
        auto.offset.reset = "smallest"
        [decode]
        format = "json"
        schema = "id BIGINT"
        [sink]
        format = "parquet"
        path = "rows"
        [trigger]
        available-now = true
        [checkpoint]
        path = "viewfs://{host}/data/checkpoint"
        [hadoop]
        "fs.viewfs.mounttable.{host}.link./data" = "file://{tmp_path}/mounted"
        "{SECRET_KEY}" = "env:S3_SECRET"
        """
    )
    shared_cluster.create_topic(fresh_name, 1)
    shown = ""
    for run in range(2):
        shared_cluster.produce(fresh_name, 0, [json.dumps({"id": n}).encode() for n in range(5 * run, 5 * run + 5)])
        prepared = prepare_pipeline(spark, read_pipeline(file), {"S3_SECRET": S}, lambda path: Path(path).read_bytes())
        try:
            query = run_to_end(prepared).query
            shown += str(query._jsq.explainInternal(True))  # type: ignore[attr-defined]
            shown += json.dumps([each.json for each in query.recentProgress])
        finally:
            prepared.close()
    assert sorted(row.id for row in read_parquet_table(spark, str(tmp_path / "rows")).collect()) == list(range(10))
    assert (tmp_path / "mounted" / "checkpoint" / "metadata").exists(), "the checkpoint is where the settings say"

    spark.sparkContext.addFile(str(file))  # then Spark publishes its environment again
    wait_until(lambda: f"({SECRET_KEY}," in environment_of(spark), "Spark has published it", WAIT_MS)
    environment = environment_of(spark)
    assert f"({SECRET_KEY},*********(redacted))" in environment
    stored = b"".join(each.read_bytes() for each in tmp_path.rglob("*") if each.is_file())
    shown += repr(prepared) + str(spark.sparkContext.getConf().getAll()) + "".join(capfd.readouterr())
    assert S not in environment + shown
    assert S.encode() not in stored
