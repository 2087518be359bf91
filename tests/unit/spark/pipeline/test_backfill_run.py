"""A backfill beside a live query, in a table of parquet files: each offset is written once, wherever a process ends.

Rows are the offsets of a batch; Spark has no part in it.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from bridge.spark.pipeline.backfill.backfill_plan import BackfillCommand, plan_backfill
from bridge.spark.pipeline.backfill.backfill_run import AFTER_RESERVATION, abandon, write_plan
from bridge.spark.pipeline.lineage import BatchAttempt, BatchCounts, BatchLineage, LineageConflictError
from bridge.spark.pipeline.sinks.parquet_sink import ParquetSink
from bridge.spark.pipeline.sinks.sink import CommitOutcome
from tests.parquet_sink_fixtures import NOW_MS, Crash, InterruptedStore, open_sink, values
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition

TP = TopicPartition("clicks", 0)
POSITION = 20
"""Where the live query goes on; it has read the offsets from 10 on."""
STEPS_OF_A_BACKFILL = 39


def commit(sink: ParquetSink, key: tuple[str, int], kind: str, first: int, end: int, name: str = "t") -> CommitOutcome:
    """The rows of these offsets."""
    attempt = BatchAttempt(*key, name, NOW_MS)
    staged = sink.write(list(range(first, end)), attempt)  # type: ignore[arg-type]
    counts = BatchCounts(staged.rows)
    ranges = {TP: ((first, end),)}
    return sink.commit(staged, BatchLineage(*key, kind, "p", "claim", name, NOW_MS, ranges, counts))


def run(
    sink: ParquetSink,
    end: int = POSITION,
    name: str = "t",
    at: Callable[[str, int], None] = lambda _point, _batch: None,
) -> None:
    """One run of a backfill of the offsets from 0 to ``end``."""
    command = BackfillCommand("backfill-1", "backfill", "p", {TP: ((0, end),)}, 4, NOW_MS)
    plan = plan_backfill(command, list(sink.lineages()), list(sink.reservations()))

    def write(reserved: BatchLineage) -> None:
        [(first, last)] = reserved.ranges[TP]
        if sink.committed(*reserved.key) is None:
            commit(sink, reserved.key, reserved.kind, first, last, name)

    write_plan(sink, plan, {TP: POSITION}, write, at)


def live(path: Path) -> ParquetSink:
    """A table in which the live query has written the offsets 10 to 19."""
    sink = open_sink(path)
    commit(sink, ("q", 0), "batch", 10, POSITION)
    return sink


def test_a_backfill_writes_what_the_live_query_has_not(tmp_path: Path) -> None:
    sink = live(tmp_path)
    run(sink)
    assert values(tmp_path) == list(range(20))
    assert list(sink.reservations()) == []
    assert [each.ranges[TP] for each in sink.lineages() if each.kind == "backfill"] == [
        ((0, 4),), ((4, 8),), ((8, 10),),
    ]  # fmt: skip
    run(sink)
    assert values(tmp_path) == list(range(20))


@pytest.mark.parametrize("number", range(1, STEPS_OF_A_BACKFILL + 1))
def test_a_backfill_that_ends_at_any_step_and_is_repeated_writes_each_offset_once(tmp_path: Path, number: int) -> None:
    live(tmp_path)

    def end() -> None:
        raise Crash

    store = InterruptedStore(tmp_path, number, end)
    with pytest.raises(Crash):
        run(open_sink(tmp_path, store), name="t1")
    assert store.has_acted
    sink = open_sink(tmp_path)
    run(sink, name="t2")
    sink.remove_leftovers(NOW_MS)
    assert values(tmp_path) == list(range(20))
    assert list(sink.reservations()) == []


@pytest.mark.parametrize("number", range(1, STEPS_OF_A_BACKFILL + 1))
def test_the_live_query_writes_its_batches_at_any_step_of_a_backfill(tmp_path: Path, number: int) -> None:
    theirs = live(tmp_path)
    outcomes: list[CommitOutcome] = []
    store = InterruptedStore(
        tmp_path, number, lambda: outcomes.append(commit(theirs, ("q", 1), "batch", 20, 23, "live"))
    )
    run(open_sink(tmp_path, store))
    assert outcomes == [CommitOutcome.COMMITTED]
    assert values(tmp_path) == list(range(23))


@pytest.mark.parametrize("number", range(1, STEPS_OF_A_BACKFILL + 1))
def test_two_runs_of_the_same_command_at_once_write_each_offset_once(tmp_path: Path, number: int) -> None:
    """The first one is stopped before a step, the second one does all, and the first one continues."""
    theirs = live(tmp_path)
    store = InterruptedStore(tmp_path, number, lambda: run(theirs, name="t2"))
    sink = open_sink(tmp_path, store)
    try:
        run(sink, name="t1")
    except LineageConflictError:
        assert not list(theirs.reservations()), "it had planned what the other one has written"
    assert store.has_acted
    assert values(tmp_path) == list(range(20))
    run(open_sink(tmp_path), name="t3")
    assert values(tmp_path) == list(range(20))


def test_all_steps_of_a_backfill_were_tried(tmp_path: Path) -> None:
    live(tmp_path)
    store = InterruptedStore(tmp_path, STEPS_OF_A_BACKFILL + 1, lambda: None)
    run(open_sink(tmp_path, store))
    assert not store.has_acted


def test_all_batches_are_reserved_before_the_first_one_is_read(tmp_path: Path) -> None:
    sink = live(tmp_path)
    points: list[tuple[str, int, int]] = []
    run(sink, at=lambda point, batch: points.append((point, batch, len(list(sink.reservations())))))
    assert points == [(AFTER_RESERVATION, number, number + 1) for number in range(3)]


def test_what_the_live_query_has_yet_to_read_is_refused_and_nothing_stays_reserved(tmp_path: Path) -> None:
    sink = live(tmp_path)
    with pytest.raises(LineageConflictError, match=r"the live query has yet to read clicks/0 \[20, 24\)"):
        run(sink, end=30)
    assert values(tmp_path) == list(range(10, 20))
    assert list(sink.reservations()) == []
    run(sink)
    assert values(tmp_path) == list(range(20))


def test_the_error_about_an_abandoned_reservation_names_it_and_it_can_be_released(tmp_path: Path) -> None:
    sink = live(tmp_path)
    left = BatchLineage("backfill-9", 0, "backfill", "p", "snapshot", "t", 1, {TP: ((6, 9),)}, BatchCounts())
    sink.reserve(left, {})
    with pytest.raises(
        LineageConflictError, match=r"\[6, 8\) is reserved for backfill 0 of query backfill-9; .*--abandon backfill-9"
    ):
        run(sink)
    assert list(sink.reservations()) == [left]
    with pytest.raises(PreconditionFailed, match=r"backfill-8 has no reservation.*Reserved are: backfill-9"):
        abandon(sink, "backfill-8")
    report = abandon(sink, "backfill-9")
    assert (report.batches, report.offsets) == (1, 3)
    run(sink)
    assert values(tmp_path) == list(range(20))
    with pytest.raises(PreconditionFailed, match="there is no reservation"):
        abandon(sink, "backfill-9")


def test_a_process_that_continues_after_its_reservation_was_released_writes_nothing(tmp_path: Path) -> None:
    other = live(tmp_path)

    def act() -> None:
        abandon(other, "backfill-1")
        command = BackfillCommand("backfill-2", "backfill", "p", {TP: ((0, 10),)}, 100, NOW_MS)
        for each in plan_backfill(command, list(other.lineages()), []).new:
            other.reserve(each, {})
            commit(other, each.key, "backfill", 0, 10, "t2")

    late: Any = open_sink(tmp_path)

    def at(point: str, batch: int) -> None:
        if batch == 2:
            act()

    with pytest.raises(LineageConflictError, match="stored no offset, committed by attempt abandoned"):
        run_late(late, at)
    assert values(tmp_path) == list(range(20))


def run_late(sink: ParquetSink, at: Callable[[str, int], None]) -> None:
    """As ``run``, but without a look at the table before a batch is written."""
    command = BackfillCommand("backfill-1", "backfill", "p", {TP: ((0, 20),)}, 4, NOW_MS)
    plan = plan_backfill(command, list(sink.lineages()), [])

    def write(reserved: BatchLineage) -> None:
        [(first, last)] = reserved.ranges[TP]
        commit(sink, reserved.key, reserved.kind, first, last, "t1")

    write_plan(sink, plan, {}, write, at)
