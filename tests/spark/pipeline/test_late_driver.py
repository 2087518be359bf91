"""A driver that was stopped in a batch continues after its successor, and the two have read different bytes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

pytest.importorskip("pyspark")

from bridge.spark.decode.offset_ranges import OffsetRange, OnCorruptRecord
from bridge.spark.pipeline.batch_writer import (
    AFTER_DEAD_LETTERS,
    AFTER_WRITE,
    BatchParts,
    BatchWriter,
    MoreDeadLettersError,
)
from bridge.spark.pipeline.lineage import LineageConflictError
from bridge.spark.pipeline.pipeline_file import read_pipeline
from bridge.spark.pipeline.pipeline_query import PreparedPipeline, prepare_pipeline, prepare_targets
from bridge.spark.pipeline.sinks.sink_choice import open_sink
from bridge.spark.source.batch_ranges_file import StreamBatchRanges
from tests.postgres_fixtures import DATABASE, USER, PostgresServer
from zkconsumer.testing.sandbox.waiting import HOST
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.real

NOW_MS = 1_416_246_370_000
RECORDS = 6
FILE_OF = {
    "parquet": ('format = "parquet"\npath = "rows"', 'format = "parquet"\npath = "dead"'),
    "postgres": (
        'format = "postgres"\nurl = "postgresql://{host}:{port}/{database}"\nssl-mode = "disable"\nuser = "{user}"\n'
        'password = "file:{password}"\ntable = "rows {name}"',
        'format = "postgres"\nconnection = "sink"\ntable = "dead {name}"',
    ),
}

Reached = Callable[[str, int], None]


@dataclass
class Batch:
    """Batch 0 of one query with six records, for as many drivers as a test needs."""

    spark: SparkSession
    prepared: PreparedPipeline
    attempts: int = 0

    def records(self, corrupt: int | None, broken: int | None) -> DataFrame:
        """As the source gives them.  ``corrupt``: this offset cannot be read; ``broken``: its value is not JSON."""
        schema = self.prepared.frame.schema
        rows: list[tuple[Any, ...]] = []
        for offset in range(RECORDS):
            value = b"{broken" if offset == broken else json.dumps({"id": offset}).encode()
            found = {"value": value, "topic": "t", "partition": 0, "offset": offset, "timestampType": 0}
            if offset == corrupt:
                found = found | {"value": b"?", "corrupt": (offset + 1, "the checksum is wrong")}
            rows.append(tuple(found.get(name) for name in schema.names))
        return self.spark.createDataFrame(rows, schema)

    def run(
        self,
        corrupt: int | None = None,
        broken: int | None = None,
        reached: Reached = lambda *_: None,
        before_commit: Callable[[], None] = lambda: None,
    ) -> None:
        """A driver that reads the batch, with sinks of its own.  ``before_commit``: of the rows."""
        spec, prepared = self.prepared.spec, self.prepared
        assert spec.dead_letters is not None
        self.attempts += 1
        number, made = self.attempts, 0

        def new_attempt() -> str:
            nonlocal made
            made += 1
            return f"a{number}-{made}"

        sink = open_sink(spec.sink, self.spark)
        commit = sink.commit

        def commit_rows(staged: Any, lineage: Any) -> Any:
            before_commit()
            return commit(staged, lineage)

        sink.commit = commit_rows  # type: ignore[method-assign]
        ranges = StreamBatchRanges("g", "0" * 32, 0, "claim", (OffsetRange(TopicPartition("t", 0), 0, RECORDS),))
        parts = BatchParts(
            spec.name, prepared.decoding, prepared.transform, sink,
            open_sink(spec.dead_letters, self.spark), lambda: f"q-{spec.name}", lambda: ranges, lambda: NOW_MS,
            new_attempt, reached, OnCorruptRecord.DEAD_LETTER,
        )  # fmt: skip
        BatchWriter(parts)(self.records(corrupt, broken), 0)

    def counts(self) -> tuple[Counter[tuple[int, int]], int]:
        """(rows, dead letters) in the lineage of the rows, and the rows of the dead letters."""
        assert self.prepared.dead_letters is not None
        rows = [each for each in self.prepared.sink.lineages() if each.pipeline == self.prepared.spec.name]
        dead = [each for each in self.prepared.dead_letters.lineages() if each.pipeline == self.prepared.spec.name]
        assert len(dead) == 1, "the key is there, also without dead letters"
        return Counter((each.counts.rows, each.counts.dead_letters) for each in rows), dead[0].counts.rows


@pytest.fixture
def batch(request: pytest.FixtureRequest, spark: SparkSession, fresh_name: str, tmp_path: Path) -> Iterator[Batch]:
    name = fresh_name[-40:]
    kind = getattr(request, "param", "parquet")
    sink, letters = FILE_OF[kind]
    if kind == "postgres":
        server: PostgresServer = request.getfixturevalue("postgres_server")
        known = {"host": HOST, "port": server.port, "database": DATABASE, "user": USER, "name": name}
        sink, letters = (text.format(**known, password=server.password_file) for text in (sink, letters))
    file = tmp_path / "pipeline.toml"
    file.write_text(
        f"""
        [pipeline]
        name = "{name}"
        [source]
        zookeeper.connect = "127.0.0.1:1"
        group.id = "g"
        subscribe = "t"
        onCorruptRecord = "deadLetter"
        [decode]
        format = "json"
        schema = "id BIGINT"
        [sink]
        {sink}
        [dead-letters]
        {letters}
        [checkpoint]
        path = "checkpoint"
        """
    )
    prepared = prepare_pipeline(spark, read_pipeline(file), {}, lambda path: Path(path).read_bytes())
    prepare_targets(prepared, NOW_MS)
    yield Batch(spark, prepared)
    prepared.close()


def at(wanted: str, action: Callable[[], None]) -> Reached:
    """The driver is stopped at this point, and continues after the action."""
    return lambda point, _: action() if point == wanted else None


@pytest.mark.parametrize("batch", ["parquet", pytest.param("postgres", marks=pytest.mark.nightly)], indirect=True)
def test_dead_letters_of_a_late_driver_are_not_committed_if_its_successor_had_none(batch: Batch) -> None:
    with pytest.raises(LineageConflictError, match=r"this attempt found t/0 \[3, 4\)"):
        batch.run(corrupt=3, reached=at(AFTER_WRITE, batch.run))
    assert batch.counts() == (Counter([(RECORDS, 0)]), 0)


def test_a_successor_does_not_commit_rows_beside_dead_letters_that_a_late_driver_committed_first(batch: Batch) -> None:
    """The late driver is stopped between its two commits, so its successor follows its decision."""
    batch.run(corrupt=3, reached=at(AFTER_DEAD_LETTERS, batch.run))
    assert batch.counts() == (Counter([(RECORDS - 1, 1)]), 1)


def test_a_successor_with_more_dead_letters_than_are_stored_commits_nothing_and_a_repetition_goes_on(
    batch: Batch,
) -> None:
    def crash() -> None:
        raise InterruptedError

    with pytest.raises(InterruptedError):
        batch.run(before_commit=crash)
    with pytest.raises(
        MoreDeadLettersError, match=r"the 0 dead letters .* are committed, and this one has others; .*JSON"
    ):
        batch.run(broken=2)
    assert batch.counts() == (Counter(), 0)
    batch.run()
    assert batch.counts() == (Counter([(RECORDS, 0)]), 0)
