"""What a batch of a pipeline tells the source; Spark and both targets are replaced."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

from bridge.spark.decode.offset_ranges import OffsetRange, OnCorruptRecord
from bridge.spark.pipeline import batch_writer
from bridge.spark.pipeline.batch_writer import BatchParts, BatchWriter, WrittenBatch
from bridge.spark.pipeline.corrupt_rows import DecidedRange
from bridge.spark.pipeline.lineage import BatchAttempt, BatchLineage
from bridge.spark.pipeline.sinks.sink import CommitOutcome, StagedBatch
from bridge.spark.source.batch_ranges_file import (
    StreamBatchRanges,
    add_skipped_offsets,
    read_batch_ranges,
    write_batch_ranges,
)
from zkconsumer.types import TopicPartition

TP = TopicPartition("clicks", 0)
PLANNED = StreamBatchRanges("g", "0" * 32, 0, "claim", (OffsetRange(TP, 0, 30),), skipped_offsets=2)


class Target:
    """A sink whose job reads the batch: the source plans it, and writes its ranges, at each reading."""

    needs_message_time = False

    def __init__(self, ranges: Path, rows: int) -> None:
        self.ranges, self.rows = ranges, rows

    def committed(self, *_: Any) -> None:
        return None

    def write(self, _: Any, attempt: BatchAttempt) -> StagedBatch[None]:
        write_batch_ranges(self.ranges, PLANNED)
        return StagedBatch(attempt, self.rows, None)

    def commit(self, *_: Any) -> CommitOutcome:
        return CommitOutcome.COMMITTED

    def commit_without_rows(self, lineage: BatchLineage) -> BatchLineage:
        return lineage


@pytest.mark.parametrize("dead", [0, 1])
def test_the_source_counts_the_corrupt_offsets_that_a_batch_skips_also_if_it_is_read_again_for_dead_letters(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead: int
) -> None:
    frame: Any = SimpleNamespace(observe=lambda *_: frame, withColumn=lambda *_: frame)
    corrupt = SimpleNamespace(records=frame, found=lambda: (DecidedRange(OffsetRange(TP, 10, 20)),))
    monkeypatch.setattr(batch_writer, "Observation", lambda: SimpleNamespace(get={"dead": dead, "filtered": 0}))
    monkeypatch.setattr(batch_writer, "CorruptRows", lambda *_: corrupt)
    monkeypatch.setattr(batch_writer, "decode", lambda *_, **__: frame)
    monkeypatch.setattr(batch_writer, "classify", lambda *_, **__: frame)
    monkeypatch.setattr(batch_writer, "outcome_counts", list)
    monkeypatch.setattr(BatchWriter, "_rows_to_write", lambda *_: (frame, None))
    monkeypatch.setattr(BatchWriter, "_dead_letters", lambda *_, **__: frame)
    parts: dict[str, Any] = {"decoding": None, "transform": None}
    written: list[WrittenBatch] = []
    writer = BatchWriter(
        BatchParts(
            pipeline="clicks", sink=Target(tmp_path, 18 - dead), dead_letters=Target(tmp_path, dead),  # type: ignore[arg-type]
            query_id=lambda: "q", ranges=lambda: read_batch_ranges(tmp_path), wall_ms=lambda: 1,
            new_attempt=iter("abc").__next__, on_corrupt=OnCorruptRecord.SKIP,
            add_skipped=partial(add_skipped_offsets, tmp_path), **parts,
        ),
        written.append,
    )  # fmt: skip
    writer(frame, 0)
    [batch] = written
    assert (batch.lineage.counts.dead_letters, batch.lineage.counts.skipped_offsets) == (dead, 12)
    found = read_batch_ranges(tmp_path)
    assert found is not None
    assert found.skipped_offsets == 12
