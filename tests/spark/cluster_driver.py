"""A program of a user's, for clusters: reads a group's topic as a batch and as a stream, and prints what it saw.

    python cluster_driver.py '{"master": "spark://…", "zookeeper": "…", "group": "g", "topic": "t", "folder": "/…", …}'

It runs in a process of its own, because a process has one Spark.  The answer is the last line of its output, as JSON.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

QUERY_TIMEOUT_S = 120


def session(wanted: dict[str, Any]) -> Any:
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.config(map=wanted.get("settings", {}))
    if "remote" in wanted:
        return builder.remote(wanted["remote"]).getOrCreate()
    return builder.master(wanted["master"]).getOrCreate()


def add_package(spark: Any, package: str) -> None:
    """What was not installed comes along."""
    if hasattr(spark, "sparkContext") and not type(spark).__module__.startswith("pyspark.sql.connect."):
        spark.sparkContext.addPyFile(package)
    else:
        spark.addArtifacts(package, pyfile=True)


def options(wanted: dict[str, Any]) -> dict[str, str]:
    made = {"zookeeper.connect": wanted["zookeeper"], "group.id": wanted["group"], "subscribe": wanted["topic"]}
    return {**made, **wanted.get("options", {})}


def read_batch(spark: Any, wanted: dict[str, Any], kill: bool = False) -> list[str]:
    frame = spark.read.format("zkconsumer").options(**options(wanted)).load().select("value")
    if kill:
        frame = frame.mapInArrow(killing_once(wanted), "value binary")
    return sorted(row.value.decode() for row in frame.collect())


def read_stream(spark: Any, wanted: dict[str, Any], kill: bool = False) -> list[str]:
    folder = Path(wanted["folder"])
    claim = {"group.offsets.commit": "claim"}
    frame = spark.readStream.format("zkconsumer").options(**claim, **options(wanted)).load().select("value")
    if kill:
        frame = frame.mapInArrow(killing_once(wanted), "value binary")
    query = (
        frame.writeStream.format("parquet")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start(str(folder / "sink"))
    )
    try:
        if not query.awaitTermination(QUERY_TIMEOUT_S):
            raise TimeoutError(f"the query is not over: {query.lastProgress}")
    finally:
        query.stop()
    return sorted(row.value.decode() for row in spark.read.parquet(str(folder / "sink")).collect())


def killing_once(wanted: dict[str, Any]) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Lets batches through, but the first task that has one kills its executor instead, once in all."""
    flag = Path(wanted["folder"]) / "killed"

    def through(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            try:
                flag.touch(exist_ok=False)
            except FileExistsError:
                yield batch
            else:
                os.kill(_java_above(), signal.SIGKILL)

    return through


def _java_above() -> int:
    """The executor: the first process above this worker that is Java."""
    pid = os.getpid()
    while Path(f"/proc/{pid}/comm").read_text().strip() != "java":
        pid = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
    return pid


def modules_loaded(spark: Any, wanted: dict[str, Any]) -> list[str]:
    """What the Pythons of the executors have loaded until now."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import sys

        import pyarrow as pa

        for _ in batches:
            yield pa.RecordBatch.from_pydict({"module": sorted(sys.modules)})

    return sorted(
        {row.module for row in spark.range(0, 2, numPartitions=2).mapInArrow(look, "module string").collect()}
    )


def decoders(spark: Any, _: dict[str, Any]) -> list[str]:
    """Out of which file the executors have the package, and whether its compiled decoder is in use."""

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import pyarrow as pa

        from bridge.spark.decode.arrow_decoder import python_decoder_reason
        from zkconsumer import extensions

        status = "in use" if python_decoder_reason() is None else "not in use"
        for _ in batches:
            yield pa.RecordBatch.from_pydict({"found": [f"{extensions.PACKAGE_ROOT.name}: {status}"]})

    rows = spark.range(0, 4, numPartitions=4).mapInArrow(look, "found string").collect()
    return sorted({row.found for row in rows})


def check(spark: Any, _: dict[str, Any]) -> list[str]:
    import bridge.spark

    return [str(worker) for worker in bridge.spark.check_environment(spark)]


def attempt(do: Any, *arguments: Any) -> Any:
    """The result, or the text of the error as a user sees it."""
    try:
        return do(*arguments)
    except Exception as error:  # noqa: BLE001  (whatever a user would see)
        return {"error": f"{type(error).__name__}: {error}"}


STEPS = {
    "batch": read_batch,
    "check": check,
    "decoders": decoders,
    "stream": read_stream,
    "batch with a kill": partial(read_batch, kill=True),
    "stream with a kill": partial(read_stream, kill=True),
    "modules": modules_loaded,
}


def main() -> None:
    import bridge.spark

    wanted = json.loads(sys.argv[1])
    spark = session(wanted)
    answer: dict[str, Any] = {}
    try:
        if wanted.get("register", True):
            answer["register"] = attempt(bridge.spark.register, spark)
        for step in wanted["steps"]:
            if step == "package":
                add_package(spark, wanted["package"])
                answer["register again"] = attempt(bridge.spark.register, spark)
            else:
                name, _, label = step.partition(":")
                answer[label or name] = attempt(STEPS[name], spark, wanted)
    finally:
        spark.stop()
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
