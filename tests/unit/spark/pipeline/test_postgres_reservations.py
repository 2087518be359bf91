"""Reservations of two tables that share a table of batches, on a table of batches in memory."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage, LineageConflictError
from bridge.spark.pipeline.pipeline_spec import PostgresTarget
from bridge.spark.pipeline.sinks.postgres_sink import PostgresSink
from zkconsumer.types import TopicPartition

TARGET = PostgresTarget(
    (("db", 5432),), "shop", None, None, "prefer", None, 1_000, "public", "clicks", "zkconsumer_batches"
)
RESERVED = BatchLineage(
    "backfill-1", 0, "backfill", "clicks", "snapshot", "reserved", 1, {TopicPartition("clicks", 0): ((0, 5),)},
    BatchCounts(),
)  # fmt: skip


class BatchTable:
    """A table of batches, and the connections to it."""

    def __init__(self) -> None:
        self.rows: list[dict[str, Any]] = []
        self._found: list[tuple[Any, ...]] = []

    def __call__(self, _target: PostgresTarget) -> BatchTable:
        return self

    def __enter__(self) -> BatchTable:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def execute(self, statement: Any, values: Sequence[Any] = ()) -> BatchTable:
        text = statement if isinstance(statement, str) else statement.as_string()
        if text.startswith("INSERT"):
            names = ("query", "batch", "target", "lineage")
            self.rows.append(dict(zip(names, values, strict=True)) | {"state": "reserved"})
        elif (
            found := re.match(r"SELECT (.+) FROM .* WHERE (query|target) = %s AND (batch|state) = %s", text)
        ) is not None:
            columns = found[1].replace("::text", "").split(", ")
            wanted = {found[2]: values[0], found[3]: values[1]}
            self._found = [tuple(row[name] for name in columns) for row in self.rows if wanted.items() <= row.items()]
        return self

    def fetchone(self) -> tuple[Any, ...] | None:
        return self._found[0] if self._found else None

    def __iter__(self) -> Any:
        return iter(self._found)


def test_a_command_of_another_pipeline_with_the_same_name_does_not_count_as_done() -> None:
    batches = BatchTable()
    sink, other = (PostgresSink(replace(TARGET, table=name), batches) for name in ("clicks", "clicks_v2"))
    sink.reserve(RESERVED, {})
    sink.reserve(RESERVED, {})
    for state in ("reserved", "committed"):
        batches.rows[0]["state"] = state
        with pytest.raises(
            LineageConflictError, match=r"of the table clicks: .*the same name, clicks.*\[pipeline\] name"
        ):
            other.reserve(RESERVED, {})
    other.reserve(replace(RESERVED, query="backfill-2"), {})
    assert [row["target"] for row in batches.rows] == ["clicks", "clicks_v2"]
