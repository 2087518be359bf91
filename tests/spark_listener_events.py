"""Events as Spark gives them to listeners, without Spark."""

from __future__ import annotations

import uuid
from typing import Any

from pyspark.sql.streaming.listener import QueryProgressEvent, QueryTerminatedEvent, StreamingQueryProgress

QUERY, RUN = uuid.UUID(int=1), uuid.UUID(int=2)


def source_of(end: Any, latest: Any = None, description: str = "KafkaV2[Subscribe[t]]") -> dict[str, Any]:
    return {
        "description": description,
        "startOffset": None,
        "endOffset": end,
        "latestOffset": latest,
        "numInputRows": 1,
        "inputRowsPerSecond": 1.0,
        "processedRowsPerSecond": 1.0,
    }


def progressed(
    *sources: dict[str, Any],
    name: str | None = "etl",
    batch: int = 0,
    query: uuid.UUID = QUERY,
    run: uuid.UUID = RUN,
    timestamp: str = "2026-01-01T00:00:00.000Z",
) -> QueryProgressEvent:
    read = {
        "id": str(query),
        "runId": str(run),
        "name": name,
        "timestamp": timestamp,
        "batchId": batch,
        "batchDuration": 1,
        "stateOperators": [],
        "sources": list(sources),
        "sink": {"description": "noop", "numOutputRows": 1},
    }
    return QueryProgressEvent(StreamingQueryProgress.fromJson(read))


def ended(run: uuid.UUID = RUN) -> QueryTerminatedEvent:
    return QueryTerminatedEvent(QUERY, run, None, None)
