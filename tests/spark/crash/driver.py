"""A Spark driver of the crash lab: one JVM on ``local[2]`` with many queries, told what to do line by line.

    python -m tests.spark.crash.driver FOLDER [MASTER SETTINGS]
                                                   commands on standard input, events on standard output, as JSON lines

    {"do": "start", "query": NAME, "options": {…}, "folder": …, "sink": "foreachBatch"|"parquet",
     "trigger": "availableNow"|MILLISECONDS, "hold_after_sink": BATCH|null}
    {"do": "stop", "query": NAME}                  query.stop()
    {"do": "collect", "query": NAME, …}            what its Parquet sink holds goes into a file
    {"do": "pipeline", "query": NAME, …}           commands of a pipeline: see ``pipeline_life``

The ``foreachBatch`` sink writes one file a batch, under the batch's id, in one rename: a batch that is written again
replaces what it wrote before.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from bridge.spark.source.datasource import ZkConsumerDataSource
from tests.spark.crash.pipeline_life import PipelineLife, hold_tasks
from tests.spark_session_fixtures import INTERPRETED, spark_settings, started

HOLD_S = 120
MASTER = "local[2,4]"
"""Two tasks at a time, each run four times at most, as on a cluster; ``local[2]`` gives up at the first failure."""

COLUMNS = ("topic", "partition", "offset", "CAST(value AS STRING) AS value")
SETTINGS = {
    "spark.driver.memory": "900m",
    "spark.sql.streaming.numRecentProgressUpdates": "3",
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.sql.shuffle.partitions": "1",
    **INTERPRETED,
}

STARTING_MAX = 1
"""How many queries begin at a time.  Spark gives the Python process of a source ten seconds to start, and on a busy
machine that is not much."""

_events = os.fdopen(os.dup(1), "w", encoding="utf-8")
"""The standard output that the lab reads.  The JVM inherits descriptor 1 and may write warnings there."""

_telling = threading.Lock()
_starting = threading.Semaphore(STARTING_MAX)


def tell(event: str, **fields: Any) -> None:
    """One line for the lab."""
    with _telling:
        _events.write(json.dumps({"event": event, "t": int(time.time() * 1000), **fields}) + "\n")
        _events.flush()


class Query:
    """One query, from its start to its end, on a thread of its own."""

    def __init__(self, spark: SparkSession, said: dict[str, Any]) -> None:
        # A registration of its own: Spark 4.3 sends tasks with a map of the registration that it changes whenever a
        # Python process starts, so that queries which begin together can fail with OptionalDataException.
        self._spark = spark.newSession()
        self._spark.dataSource.register(ZkConsumerDataSource)
        self._said = said
        self._name = said["query"]
        self._folder = Path(said["folder"])
        self._query: Any = None
        self._thread = threading.Thread(target=self._run, name=self._name, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._query.stop()

    def _run(self) -> None:
        try:
            stream = self._spark.readStream.format("zkconsumer").options(**self._said["options"]).load()
            rows = stream.selectExpr(*COLUMNS)
            writer = rows.writeStream.option("checkpointLocation", str(self._folder / "checkpoint"))
            trigger = self._said["trigger"]
            writer = (
                writer.trigger(availableNow=True)
                if trigger == "availableNow"
                else writer.trigger(processingTime=f"{trigger} milliseconds")
            )
            if self._said["sink"] == "parquet":
                writer = writer.format("parquet").option("path", str(self._folder / "parquet"))
            else:
                writer = writer.foreachBatch(self._write)
            self._start(writer)
            tell("started", query=self._name)
            self._query.awaitTermination()
            tell("ended", query=self._name, error=None)
        except Exception as error:  # noqa: BLE001
            traceback.print_exc()
            tell("ended", query=self._name, error=str(error)[:4000])

    def _start(self, writer: Any) -> None:
        with _starting:
            self._query = started(writer.start)

    def _write(self, rows: DataFrame, batch: int) -> None:
        found = [list(row.values()) for row in rows.toArrow().to_pylist()]
        target = self._folder / "sink" / f"{batch}.json"
        target.parent.mkdir(exist_ok=True)
        building = target.with_suffix(".new")
        building.write_text(json.dumps(found))
        building.rename(target)
        tell("written", query=self._name, batch=batch, rows=len(found))
        if batch == self._said.get("hold_after_sink"):
            Path(os.environ["ZKC_SPARK_FAULT_FILE"], self._said["options"]["group.id"]).touch()
            time.sleep(HOLD_S)


def collect(spark: SparkSession, said: dict[str, Any]) -> None:
    """The rows of a Parquet sink, as Spark reads them, without their batches."""
    rows = spark.read.parquet(said["folder"] + "/parquet").collect()
    found = [[row.topic, row.partition, row.offset, row.value] for row in rows]
    Path(said["folder"], "collected.json").write_text(json.dumps(found))
    tell("collected", query=said["query"])


def main() -> None:
    os.dup2(2, 1)
    folder = Path(sys.argv[1])
    master, more = sys.argv[2:] or ("", "{}")
    settings = {**spark_settings(folder), **SETTINGS, **json.loads(more)}
    spark = SparkSession.builder.master(master or MASTER).appName("crash-lab").config(map=settings).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    hold_tasks()
    tell("ready", pid=os.getpid())
    queries: dict[str, Query] = {}
    for line in sys.stdin:
        said = json.loads(line)
        if said["do"] == "start":
            queries[said["query"]] = Query(spark, said)
        elif said["do"] == "stop":
            threading.Thread(target=queries[said["query"]].stop, daemon=True).start()
        elif said["do"] == "pipeline":
            # As in Query: a registration of its own.
            PipelineLife(spark.newSession(), said, tell, _starting)
        elif said["do"] == "collect":
            collect(spark, said)
        else:
            raise ValueError(line)


if __name__ == "__main__":
    main()
