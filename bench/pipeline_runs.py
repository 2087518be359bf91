"""The Spark part of ``bench/pipeline.py``: one job from a topic with JSON into parquet."""

from __future__ import annotations

import itertools
import json
import os
import shutil
from pathlib import Path
from typing import Any

from shapes import JSON_COLUMNS
from spark_runs import Cluster, measured
from spark_stream import StreamRun, stream_run

TIMEOUT_S = 300
SELECT = ("id", "upper(name) AS name", "amount * 100 AS cents", "timestamp_millis(at) AS at", "note")
WHERE = "state = 'open'"

_numbers = itertools.count()


def run_kafka_job(
    spark: Any, cluster: Cluster, topic: str, rows: int, batch_rows: int, folder: Path
) -> tuple[StreamRun, int]:
    """What a data engineer writes by hand with ``format("kafka")``: the same SQL, and no dead letters.

    Returns the figures, and the number of rows in the table.
    """
    place = folder / f"job-{next(_numbers)}"
    options = {
        "kafka.bootstrap.servers": cluster.bootstrap,
        "subscribe": topic,
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": str(batch_rows),
    }
    frame = (
        spark.readStream.format("kafka")
        .options(**options)
        .load()
        .selectExpr(f"from_json(CAST(value AS STRING), '{JSON_COLUMNS}') AS json")
        .select("json.*")
        .where(WHERE)
        .selectExpr(*SELECT)
    )
    writer = frame.writeStream.format("parquet").trigger(availableNow=True).option("path", str(place / "rows"))
    with measured(spark, rows) as samples:
        query = writer.option("checkpointLocation", str(place / "checkpoint")).start()
        _await(query, "the job with format(kafka)")
    found = spark.read.parquet(str(place / "rows")).count()
    shutil.rmtree(place)
    return stream_run(query, samples[0], rows), found


def run_pipeline(
    spark: Any,
    cluster: Cluster,
    topic: str,
    rows: int,
    batch_rows: int,
    folder: Path,
    *,
    has_dead_letters: bool = True,
) -> tuple[StreamRun, int]:
    """The same as a pipeline file, of a new group, with claims.  Returns the figures, and the number of rows."""
    from bridge.spark.pipeline.pipeline_file import read_pipeline
    from bridge.spark.pipeline.pipeline_query import prepare_pipeline, start_pipeline
    from bridge.spark.pipeline.sinks.parquet_table import read_parquet_table
    from zkconsumer.base.clock import SYSTEM_CLOCK

    number = next(_numbers)
    place = folder / f"pipeline-{number}"
    place.mkdir(parents=True)
    file = place / "bench.toml"
    file.write_text(
        f"""
        [pipeline]
        name = "bench-{number}"
        [source]
        zookeeper.connect = "{cluster.zookeeper}"
        kafka.bootstrap.servers = "{cluster.bootstrap}"
        group.id = "bench-pipeline-{number}"
        subscribe = "{topic}"
        auto.offset.reset = "smallest"
        maxOffsetsPerTrigger = "{batch_rows}"
        consumer.threads = "1"
        [decode]
        format = "json"
        schema = "{JSON_COLUMNS}"
        [transform]
        select = {json.dumps(SELECT)}
        where = "{WHERE}"
        [sink]
        format = "parquet"
        path = "{place / "rows"}"
        partition-by-time = "none"
        [dead-letters]
        format = "{"parquet" if has_dead_letters else "none"}"
        {f'path = "{place / "dead"}"' if has_dead_letters else ""}
        [trigger]
        available-now = true
        [checkpoint]
        path = "{place / "checkpoint"}"
        """
    )
    prepared = prepare_pipeline(spark, read_pipeline(file), os.environ, lambda path: Path(path).read_bytes())
    try:
        with measured(spark, rows) as samples:
            running = start_pipeline(prepared, SYSTEM_CLOCK.wall_ms)
            if not running.wait(TIMEOUT_S * 1000):
                running.query.stop()
                raise SystemExit(f"the pipeline did not end within {TIMEOUT_S} s")
        found = read_parquet_table(spark, str(place / "rows")).count()
        dead = sum(lineage.counts.dead_letters for lineage in prepared.sink.lineages())
    finally:
        prepared.close()
    shutil.rmtree(place)
    return stream_run(running.query, samples[0], rows), found + dead


def _await(query: Any, name: str) -> None:
    if not query.awaitTermination(TIMEOUT_S):
        query.stop()
        raise SystemExit(f"{name} did not end within {TIMEOUT_S} s")
