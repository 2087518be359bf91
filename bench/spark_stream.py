"""The stream of ``bench/spark.py``: AvailableNow over one topic, and the figures of Spark's progress for each batch."""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from spark_runs import Cluster, Sample, Source, measured

TIMEOUT_S = 300
_groups = itertools.count()


@dataclass(frozen=True, slots=True)
class StreamRun:
    """One query over the whole topic.  Milliseconds are from Spark's progress, one value for each batch."""

    whole: Sample
    batch_rows: list[int]
    add_batch_ms: list[int]
    trigger_ms: list[int]

    @property
    def add_batch_rate(self) -> float:
        """Rows per second in ``addBatch``."""
        return self.whole.rows / (sum(self.add_batch_ms) / 1000)

    @property
    def overhead_ms(self) -> float:
        """The time of a trigger outside of ``addBatch``."""
        return statistics.median(whole - add for whole, add in zip(self.trigger_ms, self.add_batch_ms, strict=True))


def read_stream(
    spark: Any, source: Source, cluster: Cluster, topic: str, rows: int, batch_rows: int, folder: Path
) -> StreamRun:
    """Read the topic in batches of ``batch_rows``; zkconsumer as the only member of a new group, with claims."""
    number = next(_groups)
    options = {
        **source.options(cluster, topic),
        "maxOffsetsPerTrigger": str(batch_rows),
        "failOnDataLoss": "true",
    }
    if source.format == "zkconsumer":
        options |= {"group.id": f"bench-stream-{number}", "group.offsets.commit": "claim", "consumer.threads": "1"}
    frame = spark.readStream.format(source.format).options(**options).load()
    writer = frame.writeStream.format("noop").trigger(availableNow=True)
    with measured(spark, rows) as samples:
        query = writer.option("checkpointLocation", str(folder / f"checkpoint-{number}")).start()
        if not query.awaitTermination(TIMEOUT_S):
            query.stop()
            raise SystemExit(f"{source.name}: the stream did not end within {TIMEOUT_S} s")
    return stream_run(query, samples[0], rows)


def stream_run(query: Any, whole: Sample, rows: int) -> StreamRun:
    """The figures of a query that has ended, when its progress covers all rows: it arrives a little after the end.

    A batch that reads its rows twice (a pipeline with dead letters) counts them twice in ``numInputRows``: ``rows`` is
    what the query read at least.
    """
    give_up = time.monotonic() + 10
    while True:
        batches = [dict(batch) for batch in query.recentProgress if batch["numInputRows"]]
        found = sum(batch["numInputRows"] for batch in batches)
        if found >= rows:
            break
        if time.monotonic() > give_up:
            raise SystemExit(f"the stream read {found} rows of {rows}")
        time.sleep(0.05)
    return StreamRun(
        whole,
        [batch["numInputRows"] for batch in batches],
        [batch["durationMs"]["addBatch"] for batch in batches],
        [batch["durationMs"]["triggerExecution"] for batch in batches],
    )
