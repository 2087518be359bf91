"""The reservations of a replay, in a table of parquet files: no record is written beside another process."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bridge.spark.pipeline.lineage import BatchAttempt, BatchCounts, BatchLineage, LineageConflictError
from bridge.spark.pipeline.replay.replay_run import release_reservations, replay_id, reserve_replay
from bridge.spark.pipeline.sinks.parquet_sink import ParquetSink
from tests.parquet_sink_fixtures import NOW_MS, open_sink, values
from zkconsumer.types import TopicPartition

TP = TopicPartition("clicks", 0)
QUERY = replay_id("clicks")


def commit(sink: ParquetSink, query: str, kind: str, first: int, end: int, at_ms: int = NOW_MS) -> BatchLineage:
    """The rows of these offsets."""
    staged = sink.write(list(range(first, end)), BatchAttempt(query, 0, "t", NOW_MS))  # type: ignore[arg-type]
    ranges = {TP: ((first, end),)}
    lineage = BatchLineage(query, 0, kind, "p", "claim", "t", at_ms, ranges, BatchCounts(staged.rows))
    sink.commit(staged, lineage)
    return lineage


def reservation(first: int, end: int, batch: int = 0) -> BatchLineage:
    ranges = {TP: ((first, end),)}
    return BatchLineage(QUERY, batch, "replay", "p", "snapshot", "reserved", NOW_MS, ranges, BatchCounts())


def test_a_replacement_that_was_committed_after_the_letters_were_chosen_ends_the_replay(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    seen = [commit(sink, "q", "batch", 0, 10)]
    commit(sink, "replace-1", "replace", 4, 6, NOW_MS + 1)
    with pytest.raises(LineageConflictError, match=r"replace 0 of query replace-1 has written some of these records"):
        reserve_replay(sink, reservation(5, 6), seen)
    assert list(sink.reservations()) == []
    reserve_replay(sink, reservation(6, 8, batch=1), seen)
    assert [each.batch for each in sink.reservations()] == [1]


def test_a_replacement_that_was_known_does_not_end_the_replay(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    seen = [commit(sink, "q", "batch", 0, 10), commit(sink, "replace-1", "replace", 4, 6, NOW_MS + 1)]
    reserve_replay(sink, reservation(5, 6), seen)
    assert len(list(sink.reservations())) == 1


def test_what_a_replay_that_ended_has_reserved_is_free_and_its_late_commit_is_an_error(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    commit(sink, "q", "batch", 0, 2)
    sink.reserve(reservation(0, 2), {})
    other = replace(reservation(5, 6), query="backfill-1", kind="backfill")
    sink.reserve(other, {})
    staged = sink.write([7], BatchAttempt(QUERY, 0, "late", NOW_MS))  # type: ignore[arg-type]
    release_reservations(sink, QUERY)
    assert list(sink.reservations()) == [other], "those of others stay"
    with pytest.raises(LineageConflictError, match="committed by attempt abandoned"):
        sink.commit(staged, replace(reservation(0, 2), attempt="late", counts=BatchCounts(1)))
    sink.reserve(reservation(0, 2, batch=1), {})
    assert values(tmp_path) == [0, 1]
