"""The commit of parquet files: one of several attempts, whatever two drivers do at the same time, and where one ends.

The files are written by pyarrow, not by Spark (``tests/spark/pipeline/test_parquet_sink.py``).
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from bridge.spark.pipeline.lineage import BatchAttempt, BatchCounts, BatchLineage, LineageConflictError, to_json
from bridge.spark.pipeline.pipeline_spec import ParquetTarget
from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
from bridge.spark.pipeline.sinks.parquet_sink import ParquetSink
from bridge.spark.pipeline.sinks.sink import AttemptRemovedError, CommitOutcome, SinkUnavailableError, StagedBatch
from tests.parquet_sink_fixtures import NOW_MS, Crash, InterruptedStore, open_sink, values, write_files
from zkconsumer.types import TopicPartition

QUERY = "q"
TP = TopicPartition("clicks", 0)

Staged = StagedBatch[Any]


def attempt(name: str, batch: int = 0) -> BatchAttempt:
    return BatchAttempt(QUERY, batch, name, NOW_MS)


def lineage(staged: Staged, first: int = 0) -> BatchLineage:
    """Of a batch with the offsets from ``first`` on."""
    it = staged.attempt
    counts = BatchCounts(staged.rows, 1, 0, 0)
    ranges = {TP: ((first, first + 3),)}
    return BatchLineage(it.query, it.batch, "batch", "clicks", "claim", it.attempt, NOW_MS, ranges, counts)


def rows(first: int = 0) -> Any:
    """The frame of ``write_files``."""
    return list(range(first, first + 3))


def run(sink: ParquetSink, name: str) -> CommitOutcome:
    """One attempt of batch 0."""
    staged = sink.write(rows(), attempt(name))
    return sink.commit(staged, lineage(staged))


def attempts_with_files(path: Path) -> set[str]:
    return {each.name.split("-")[-2] for each in path.rglob("*.parquet")}


def leftovers(path: Path) -> list[Path]:
    return list(path.rglob("attempts/*"))


def end() -> None:
    raise Crash


STEPS_OF_AN_ATTEMPT = 9
"""create_empty, fill, two moves, sync, publish, and of the end: remove_tree, remove the file, the reservation."""


def test_a_batch_that_is_written_twice_is_there_once(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    assert run(sink, "t1") is CommitOutcome.COMMITTED
    assert run(sink, "t2") is CommitOutcome.ALREADY_COMMITTED
    assert values(tmp_path) == [0, 1, 2]
    assert attempts_with_files(tmp_path) == {"t1"}
    assert leftovers(tmp_path) == []


def test_the_same_batch_with_other_ranges_is_an_error_and_changes_nothing(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    run(sink, "t1")
    other = sink.write(rows(1), attempt("t2"))
    with pytest.raises(LineageConflictError, match=r"clicks/0 \[0, 3\).*clicks/0 \[1, 4\)"):
        sink.commit(other, lineage(other, 1))
    assert values(tmp_path) == [0, 1, 2]
    assert attempts_with_files(tmp_path) == {"t1"}
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("is_cleaned", [False, True])
@pytest.mark.parametrize("number", range(1, STEPS_OF_AN_ATTEMPT + 1))
def test_two_drivers_interleaved_at_each_step_write_a_batch_once(tmp_path: Path, number: int, is_cleaned: bool) -> None:
    """The first driver is stopped before a change, a second one does the batch, and the first one continues."""
    second = open_sink(tmp_path)
    theirs: list[CommitOutcome] = []

    def act() -> None:
        theirs.append(run(second, "t2"))
        if is_cleaned:
            second.remove_leftovers(NOW_MS)

    store = InterruptedStore(tmp_path, number, act)
    ours = run(open_sink(tmp_path, store), "t1")
    assert store.has_acted
    assert {ours, *theirs} == {CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED}
    assert (ours is CommitOutcome.COMMITTED) == (number > 6), "publish decides"
    assert values(tmp_path) == [0, 1, 2]
    second.remove_leftovers(NOW_MS)
    assert values(tmp_path) == [0, 1, 2]
    assert len(attempts_with_files(tmp_path)) == 1
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("number", range(1, STEPS_OF_AN_ATTEMPT + 1))
def test_after_a_crash_at_each_step_a_new_attempt_completes_the_batch(tmp_path: Path, number: int) -> None:
    with pytest.raises(Crash):
        run(open_sink(tmp_path, InterruptedStore(tmp_path, number, end)), "t1")
    sink = open_sink(tmp_path)
    assert values(tmp_path) == ([0, 1, 2] if number > 6 else [])
    if number <= 6:
        assert sink.remove_leftovers(NOW_MS) == 0, "the attempt may be live"
        assert run(sink, "t2") is CommitOutcome.COMMITTED
    sink.remove_leftovers(NOW_MS)
    assert values(tmp_path) == [0, 1, 2]
    assert attempts_with_files(tmp_path) == {"t1" if number > 6 else "t2"}
    assert leftovers(tmp_path) == []


def test_a_crash_has_been_tried_at_all_steps(tmp_path: Path) -> None:
    store = InterruptedStore(tmp_path, STEPS_OF_AN_ATTEMPT + 1, end)
    run(open_sink(tmp_path, store), "t1")
    assert not store.has_acted


@pytest.mark.parametrize("number", range(1, 6))
def test_a_removal_that_crashes_at_each_step_is_continued(tmp_path: Path, number: int) -> None:
    """The files of the dead attempt are at their final places already."""
    with pytest.raises(Crash):
        run(open_sink(tmp_path, InterruptedStore(tmp_path, 6, end)), "t1")
    assert attempts_with_files(tmp_path) == {"t1"}
    with pytest.raises(Crash):
        open_sink(tmp_path, InterruptedStore(tmp_path, number, end)).remove_leftovers(NOW_MS + 10, 5)
    assert open_sink(tmp_path).remove_leftovers(NOW_MS + 10, 5) == 1
    assert leftovers(tmp_path) == []
    assert attempts_with_files(tmp_path) == set()


@pytest.mark.parametrize("number", range(2, 7))
def test_an_old_attempt_that_was_removed_cannot_be_committed(tmp_path: Path, number: int) -> None:
    """The driver was stopped at each step of its commit for longer than the age; the batch is not committed."""
    sink = open_sink(tmp_path)
    store = InterruptedStore(tmp_path, number, lambda: sink.remove_leftovers(NOW_MS + 10, 5))
    with pytest.raises(AttemptRemovedError, match="start the query again"):
        run(open_sink(tmp_path, store), "t1")
    assert sink.committed(QUERY, 0) is None
    sink.remove_leftovers(NOW_MS + 10, 5)
    assert attempts_with_files(tmp_path) == set()
    assert leftovers(tmp_path) == []
    assert run(sink, "t2") is CommitOutcome.COMMITTED
    assert values(tmp_path) == [0, 1, 2]


@pytest.mark.parametrize("number", range(1, 6))
def test_a_removal_that_is_interleaved_with_the_commit_never_takes_committed_files(tmp_path: Path, number: int) -> None:
    """The driver continues before each step of the removal of its old attempt."""
    sink = open_sink(tmp_path)
    staged = sink.write(rows(), attempt("t1"))
    outcomes: list[object] = []

    def commit() -> None:
        try:
            outcomes.append(sink.commit(staged, lineage(staged)))
        except AttemptRemovedError:
            outcomes.append("removed")

    store = InterruptedStore(tmp_path, number, commit)
    open_sink(tmp_path, store).remove_leftovers(NOW_MS + 10, 5)
    assert outcomes == ([CommitOutcome.COMMITTED] if number == 1 else ["removed"] if store.has_acted else [])
    sink.remove_leftovers(NOW_MS + 10, 5)
    assert values(tmp_path) == ([0, 1, 2] if number == 1 else [])
    assert attempts_with_files(tmp_path) == ({"t1"} if number == 1 else set())
    assert leftovers(tmp_path) == []


def test_a_commit_whose_answer_is_lost_is_a_commit(tmp_path: Path) -> None:
    """The server of a shared folder publishes twice: the second request finds the first."""

    class Repeated(LocalFolderStore):
        def publish(self, source: str, target: str) -> None:
            super().publish(source, target)
            super().publish(source, target)

    assert run(open_sink(tmp_path, Repeated(str(tmp_path))), "t1") is CommitOutcome.COMMITTED
    assert values(tmp_path) == [0, 1, 2]


def test_a_live_attempt_is_not_removed_before_its_age(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    staged = sink.write(rows(), attempt("t1"))
    assert sink.remove_leftovers(NOW_MS + 5, 5) == 0
    assert sink.commit(staged, lineage(staged)) is CommitOutcome.COMMITTED


def test_files_of_other_programs_are_not_removed(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    run(sink, "t1")
    other = tmp_path / "_zkconsumer" / "attempts" / "other.txt"
    other.write_text("x")
    assert sink.remove_leftovers(NOW_MS + 10, 5) == 0
    assert other.exists()


def test_a_backfill_reserves_its_ranges_and_its_commit_ends_the_reservation(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    staged = sink.write(rows(), attempt("t1"))
    sink.commit(staged, lineage(staged, 10))
    fill = sink.write(rows(3), BatchAttempt("backfill-1", 0, "t1", NOW_MS))
    wanted = replace(lineage(fill), kind="backfill")
    sink.reserve(wanted, {TP: 13})
    sink.reserve(wanted, {TP: 13})
    assert list(sink.reservations()) == [wanted]
    with pytest.raises(LineageConflictError, match="is reserved for backfill 0 of query backfill-1"):
        sink.reserve(replace(wanted, query="backfill-2"), {TP: 13})
    with pytest.raises(LineageConflictError, match="was written by batch 0"):
        sink.reserve(replace(wanted, query="backfill-2", ranges={TP: ((11, 12),)}), {TP: 13})
    with pytest.raises(LineageConflictError, match="other offsets"):
        sink.reserve(replace(wanted, ranges={TP: ((4, 5),)}), {TP: 13})
    assert sink.commit(fill, wanted) is CommitOutcome.COMMITTED
    assert list(sink.reservations()) == []
    sink.reserve(wanted, {TP: 13})
    assert list(sink.reservations()) == [], "what is committed is not reserved again"
    assert [each.kind for each in sink.lineages()] == ["backfill", "batch"]
    assert values(tmp_path) == [0, 1, 2, 3, 4, 5]
    sink.release("backfill-1", 0)
    assert sink.committed("backfill-1", 0) == wanted, "what is committed is not released"


def test_what_was_released_cannot_be_committed_later_and_can_be_reserved_by_another_one(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    late = sink.write(rows(), BatchAttempt("backfill-3", 0, "t1", NOW_MS))
    wanted = replace(lineage(late), kind="backfill")
    sink.reserve(wanted, {})
    sink.release("backfill-3", 0)
    sink.release("backfill-3", 0)
    assert list(sink.reservations()) == []
    sink.reserve(replace(wanted, query="backfill-4"), {})
    with pytest.raises(LineageConflictError, match="stored no offset, committed by attempt abandoned"):
        sink.commit(late, wanted)
    assert values(tmp_path) == []
    assert [(each.name, each.offsets) for each in sink.lineages()] == [("backfill 0 of query backfill-3", 0)]


def test_a_reservation_of_a_process_that_ended_before_its_check_is_checked_again(tmp_path: Path) -> None:
    """The first process ends after its file was created, when another one has passed its check."""
    wanted = BatchLineage("f1", 0, "backfill", "p", "snapshot", "t", 1, {TP: ((0, 9),)}, BatchCounts())
    other = replace(wanted, query="f2", ranges={TP: ((5, 12),)})
    second = open_sink(tmp_path)
    second.reserve(other, {})
    file = next(tmp_path.rglob("reservations/f2/*.json"))
    left = file.parents[1] / "f1" / file.name
    left.parent.mkdir()
    left.write_text(to_json(wanted))
    with pytest.raises(LineageConflictError, match=r"clicks/0 \[5, 9\) is reserved for backfill 0 of query f2"):
        open_sink(tmp_path).reserve(wanted, {})
    assert list(second.reservations()) == [wanted, other], "a process may write it; the operator releases it"


def test_of_two_reservations_at_once_that_overlap_one_is_withdrawn(tmp_path: Path) -> None:
    wanted = BatchLineage("f1", 0, "backfill", "p", "snapshot", "t", 1, {TP: ((0, 9),)}, BatchCounts())
    other = replace(wanted, query="f2", ranges={TP: ((5, 12),)})
    second = open_sink(tmp_path)
    first = open_sink(tmp_path, InterruptedStore(tmp_path, 1, lambda: second.reserve(other, {})))
    with pytest.raises(LineageConflictError, match=r"clicks/0 \[5, 9\) is reserved for backfill 0 of query f2"):
        first.reserve(wanted, {})
    assert list(second.reservations()) == [other]


def test_a_reservation_that_another_run_of_the_command_has_committed_before_it_was_read_is_done(tmp_path: Path) -> None:
    second = open_sink(tmp_path)
    staged = second.write(rows(), BatchAttempt("f1", 0, "t2", NOW_MS))
    wanted = replace(lineage(staged), kind="backfill")

    class Late(LocalFolderStore):
        """The second run reserves before the file of this one, and commits before this one reads."""

        def publish(self, source: str, target: str) -> None:
            second.reserve(wanted, {})
            try:
                super().publish(source, target)
            except FileExistsError:
                second.commit(staged, wanted)
                raise

    open_sink(tmp_path, Late(str(tmp_path))).reserve(wanted, {})
    assert list(second.reservations()) == []
    assert values(tmp_path) == [0, 1, 2]


def test_files_that_the_driver_does_not_see_are_an_error(tmp_path: Path) -> None:
    def elsewhere(frame: Any, uri: str, target: ParquetTarget, attempt: BatchAttempt) -> int:
        return write_files(frame, uri, target, attempt) + 1

    sink = ParquetSink(LocalFolderStore(str(tmp_path)), ParquetTarget(str(tmp_path), "day", "snappy"), elsewhere)
    with pytest.raises(SinkUnavailableError, match=r"wrote 4 rows, and the driver finds 3.*all executors share"):
        sink.write(rows(), attempt("t1"))


def test_a_batch_without_rows_takes_its_key_and_a_late_attempt_with_rows_is_not_committed(tmp_path: Path) -> None:
    sink, late = open_sink(tmp_path), open_sink(tmp_path)
    staged = late.write(rows(), attempt("late"))
    empty = replace(lineage(staged), attempt="t1", counts=BatchCounts())
    assert sink.commit_without_rows(empty) == empty
    assert sink.commit_without_rows(replace(empty, attempt="t2")) == empty
    assert late.commit(staged, lineage(staged)) is CommitOutcome.ALREADY_COMMITTED
    assert values(tmp_path) == []
    assert leftovers(tmp_path) == []


def test_a_batch_with_rows_keeps_them_when_an_attempt_without_rows_comes(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    run(sink, "t1")
    found = sink.commit_without_rows(replace(lineage(sink.write(rows(), attempt("t2"))), counts=BatchCounts()))
    assert (found.attempt, found.counts.rows) == ("t1", 3)
    assert values(tmp_path) == [0, 1, 2]
