"""The commit of a Delta batch: one of several attempts, wherever a driver is stopped, and where one ends.

Delta is a small imitation of its rules: a ``txn`` that is not above the newest one is skipped, and of two appends of
one query at the same time the later one fails.  The rules themselves are tried in ``tests/delta``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from py4j.protocol import Py4JError

from bridge.spark.pipeline.lineage import BatchAttempt, BatchCounts, BatchLineage, LineageConflictError, to_json
from bridge.spark.pipeline.pipeline_spec import DeltaTarget, ParquetTarget
from bridge.spark.pipeline.sinks.delta_commits import batch_options, commit_path, commit_versions
from bridge.spark.pipeline.sinks.delta_sink import REPLACE_TRIES_MAX, DeltaSink
from bridge.spark.pipeline.sinks.folder_store import FolderStore, LocalFolderStore
from bridge.spark.pipeline.sinks.lineage_archive import LineageArchive
from bridge.spark.pipeline.sinks.replaced_rows import OffsetColumns, ReplacedRows
from bridge.spark.pipeline.sinks.sink import AttemptRemovedError, CommitOutcome, StagedBatch
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition

NOW_MS = 1_790_000_000_000
QUERY = "q"
TP = TopicPartition("clicks", 0)

Staged = StagedBatch[Any]


class ConcurrentTransaction(Py4JError):
    """The error of Delta."""


class Frame:
    """A frame of the column ``a``."""

    schema = "a int"

    def __init__(self, values: list[int]) -> None:
        self.values = values


class Reader:
    """Spark's reader: a path that does not exist is an error."""

    def schema(self, _: Any) -> Reader:
        return self

    def options(self, **_: str) -> Reader:
        return self

    def parquet(self, *uris: str) -> Frame:
        paths = [Path(urlsplit(uri).path) for uri in uris]
        if not all(path.exists() for path in paths):
            raise Py4JError("PATH_NOT_FOUND")
        return Frame(sorted(value for path in paths for value in pq.ParquetFile(path).read()["a"].to_pylist()))


class Session:
    """A session of Spark."""

    read = Reader()

    def createDataFrame(self, rows: list[Any], _: Any) -> Frame:
        return Frame(rows)


def write_files(frame: Frame, uri: str, target: ParquetTarget, attempt: BatchAttempt) -> int:
    """As Spark does: two files."""
    folder = Path(urlsplit(uri).path)
    folder.mkdir(parents=True)
    for number in range(2):
        pq.write_table(pa.table({"a": frame.values[number::2]}), folder / f"part-{number}.parquet")
    return len(frame.values)


class DeltaLog:
    """Appends to a log as Delta does.  ``reached``: before an append, in it, and after it."""

    def __init__(self, path: Path, reached: Callable[[str], None] = lambda _point: None) -> None:
        self.path = path
        self._reached = reached

    def versions(self) -> list[int]:
        return commit_versions(each.name for each in (self.path / "_delta_log").glob("*"))

    def actions(self) -> list[Any]:
        return [json.loads(line) for v in self.versions() for line in (self.path / commit_path(v)).open()]

    def newest(self, query: str) -> int:
        found = [each["txn"]["version"] for each in self.actions() if "txn" in each and each["txn"]["appId"] == query]
        return max(found, default=-1)

    def add(self, *actions: Mapping[str, object]) -> None:
        file = self.path / commit_path(max(self.versions(), default=-1) + 1)
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("".join(f"{json.dumps(each)}\n" for each in actions))

    def __call__(self, frame: Any, target: DeltaTarget, options: Mapping[str, str]) -> None:
        self._reached("before append")
        query, batch = options["txnAppId"], int(options["txnVersion"])
        newest = self.newest(query)
        if batch <= newest:
            return
        (self.path / f"{len(self.versions())}.parquet").write_text("x")
        self._reached("in append")
        if self.newest(query) != newest:
            raise ConcurrentTransaction("conflict")
        self.add(
            {"commitInfo": {"userMetadata": options["userMetadata"]}},
            {"txn": {"appId": query, "version": batch}},
            {"add": {"path": f"{len(self.versions())}.parquet", "values": frame.values}},
        )
        self._reached("after append")


class Table:
    """A table that exists."""

    def __init__(self, store: FolderStore) -> None:
        self.store = store
        self.name = "t"
        self.schema = None
        self.counted: list[str] = []
        self.rows = 0

    def count(self, condition: str) -> int:
        self.counted.append(condition)
        return self.rows


def attempt(name: str, batch: int = 0) -> BatchAttempt:
    return BatchAttempt(QUERY, batch, name, NOW_MS)


def lineage(staged: Staged, first: int | None = None) -> BatchLineage:
    it = staged.attempt
    first = 3 * it.batch if first is None else first
    ranges = {TP: ((first, first + 3),)}
    counts = BatchCounts(staged.rows, 1, 0, 0)
    return BatchLineage(it.query, it.batch, "batch", "clicks", "claim", it.attempt, NOW_MS, ranges, counts)


def open_sink(path: Path, store: FolderStore | None = None, log: DeltaLog | None = None) -> DeltaSink:
    """As a driver does at its start."""
    if not (path / "_delta_log").exists():
        DeltaLog(path).add({"commitInfo": {"operation": "CREATE TABLE"}})
    spark: Any = Session()
    table: Any = Table(store or LocalFolderStore(str(path)))
    return DeltaSink(spark, DeltaTarget(str(path), None), log or DeltaLog(path), write_files, table)  # type: ignore[arg-type]


def run(sink: DeltaSink, name: str, batch: int = 0) -> CommitOutcome:
    frame: Any = Frame(list(range(3 * batch, 3 * batch + 3)))
    staged = sink.write(frame, attempt(name, batch))
    return sink.commit(staged, lineage(staged))


def values(path: Path) -> list[int]:
    return sorted(value for each in DeltaLog(path).actions() if "add" in each for value in each["add"]["values"])


def leftovers(path: Path) -> list[Path]:
    return list(path.rglob("attempts/*"))


class Crash(Exception):
    """The end of a driver."""


def end() -> None:
    raise Crash


CHANGES = ("create_empty", "fill", "publish", "move", "sync", "remove", "remove_tree")


class InterruptedFolder:
    """A store that calls ``action`` before call number ``number`` of a method that changes the folder."""

    def __init__(self, path: Path, number: int, action: Callable[[], object]) -> None:
        self._store: FolderStore = LocalFolderStore(str(path))
        self._left = number
        self._action = action
        self.has_acted = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in CHANGES:
            return method

        def call(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self.has_acted = True
                self._action()
            return method(*arguments)

        return call


STEPS = 17
"""Changes of the folder in one attempt: the marker of the first commit, the commit's sync, copy and marker, the end."""


def interrupted(path: Path, point: int | str, action: Callable[[], object]) -> DeltaSink:
    """A driver that calls ``action`` once, before a change of the folder or at a point of Delta's append."""
    if isinstance(point, int):
        return open_sink(path, InterruptedFolder(path, point, action))  # type: ignore[arg-type]
    return open_sink(path, log=DeltaLog(path, lambda reached: action() if reached == point else None))  # type: ignore[func-returns-value]


POINTS = [*range(1, STEPS + 1), "before append", "in append", "after append"]


@pytest.mark.parametrize("batches", [1, 2])
@pytest.mark.parametrize("point", POINTS)
def test_two_drivers_interleaved_at_each_step_write_a_batch_once(tmp_path: Path, point: Any, batches: int) -> None:
    """The first driver is stopped, a second one does the batch, the next one, the removal, and the first continues."""
    second = open_sink(tmp_path)
    outcomes: list[CommitOutcome] = []

    def act() -> None:
        outcomes.append(run(second, "t2"))
        assert batches == 1 or run(second, "t2", 1) is CommitOutcome.COMMITTED
        second.remove_leftovers(NOW_MS)

    outcomes.append(run(interrupted(tmp_path, point, act), "t1"))
    assert set(outcomes) == {CommitOutcome.COMMITTED, CommitOutcome.ALREADY_COMMITTED}
    assert values(tmp_path) == list(range(3 * batches))
    assert [each.batch for each in second.lineages()] == list(range(batches))
    assert [each.batch for each in open_sink(tmp_path).lineages()] == list(range(batches))
    second.remove_leftovers(NOW_MS)
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("point", POINTS)
def test_after_a_crash_at_each_step_a_new_attempt_completes_the_batch(tmp_path: Path, point: Any) -> None:
    with pytest.raises(Crash):
        run(interrupted(tmp_path, point, end), "t1")
    is_there = values(tmp_path) == [0, 1, 2]
    sink = open_sink(tmp_path)
    assert (sink.committed(QUERY, 0) is not None) == is_there
    assert run(sink, "t2") is (CommitOutcome.ALREADY_COMMITTED if is_there else CommitOutcome.COMMITTED)
    assert run(sink, "t2", 1) is CommitOutcome.COMMITTED
    sink.remove_leftovers(NOW_MS)
    assert values(tmp_path) == list(range(6))
    assert leftovers(tmp_path) == []


def test_an_interruption_has_been_tried_at_all_steps(tmp_path: Path) -> None:
    last = InterruptedFolder(tmp_path, STEPS, lambda: None)
    run(open_sink(tmp_path, last), "t1")  # type: ignore[arg-type]
    assert last.has_acted
    beyond = InterruptedFolder(tmp_path / "other", STEPS + 1, end)
    run(open_sink(tmp_path / "other", beyond), "t1")  # type: ignore[arg-type]
    assert not beyond.has_acted


def test_the_same_batch_with_other_ranges_is_an_error_wherever_it_is_found(tmp_path: Path) -> None:
    frame: Any = Frame([1, 2, 3])
    for point in ("before", "in append"):
        path = tmp_path / point
        second = open_sink(path)
        first = interrupted(path, point, lambda sink=second: run(sink, "t2"))  # type: ignore[misc]
        if point == "before":
            run(second, "t2")
        staged = first.write(frame, attempt("t1"))
        with pytest.raises(LineageConflictError, match=r"clicks/0 \[0, 3\).*clicks/0 \[1, 4\)"):
            first.commit(staged, lineage(staged, 1))
        assert values(path) == [0, 1, 2]
        assert leftovers(path) == []


def test_an_append_that_delta_skips_and_that_no_commit_explains_is_an_error(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    DeltaLog(tmp_path).add({"commitInfo": {}}, {"txn": {"appId": QUERY, "version": 5}})
    for batch in (4, 5):
        with pytest.raises(LineageConflictError, match=r"has batch \d of query q already, or a later one"):
            run(sink, "t1", batch)
    assert values(tmp_path) == []
    assert leftovers(tmp_path) == []
    assert run(sink, "t1", 6) is CommitOutcome.COMMITTED


def test_an_append_that_fails_for_another_reason_is_that_error_and_can_be_repeated(tmp_path: Path) -> None:
    def fail() -> None:
        raise Py4JError("the disk is full")

    sink = interrupted(tmp_path, "in append", fail)
    with pytest.raises(Py4JError, match="the disk is full"):
        run(sink, "t1")
    assert values(tmp_path) == []
    assert run(open_sink(tmp_path), "t2") is CommitOutcome.COMMITTED


def test_the_lost_answer_of_an_append_is_found_in_the_log(tmp_path: Path) -> None:
    def fail() -> None:
        raise Py4JError("the connection is lost")

    assert run(interrupted(tmp_path, "after append", fail), "t1") is CommitOutcome.COMMITTED


def test_an_old_attempt_that_was_removed_cannot_be_committed(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    frame: Any = Frame([0, 1, 2])
    staged = sink.write(frame, attempt("t1"))
    assert sink.remove_leftovers(NOW_MS + 5, 5) == 0
    assert open_sink(tmp_path).remove_leftovers(NOW_MS + 10, 5) == 1
    with pytest.raises(AttemptRemovedError, match="start the query again"):
        sink.commit(staged, lineage(staged))
    assert values(tmp_path) == []


# --- the copies of lineages ---------------------------------------------------------------------------------------


class CountingFolder(LocalFolderStore):
    """Counts the commits that are read."""

    reads = listings = 0

    def read(self, path: str) -> bytes:
        self.reads += path.startswith("_delta_log/")
        return super().read(path)

    def names(self, folder: str) -> list[str]:
        self.listings += folder == "_delta_log"
        return super().names(folder)


def test_a_table_with_many_commits_is_read_once_and_then_only_what_is_new(tmp_path: Path) -> None:
    open_sink(tmp_path)
    for _ in range(300):
        DeltaLog(tmp_path).add({"commitInfo": {"operation": "OPTIMIZE"}})
    run(open_sink(tmp_path), "t1")
    store = CountingFolder(str(tmp_path))
    sink = open_sink(tmp_path, store)
    assert sink.committed(QUERY, 0) is not None
    assert store.reads == 1, "only the next commit, which does not exist"
    run(sink, "t1", 1)
    assert (store.reads, store.listings) == (4, 1)
    assert [each.name for each in (tmp_path / "_zkconsumer" / "archived").iterdir()] == [f"{302:020}"]


def test_lineages_are_there_when_the_log_has_lost_their_commits(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    for batch in range(3):
        run(sink, "t1", batch)
    for version in range(3):
        (tmp_path / commit_path(version)).unlink()
    DeltaLog(tmp_path).add({"commitInfo": {}})
    assert [each.batch for each in open_sink(tmp_path).lineages()] == [0, 1, 2]
    for _ in range(2):
        DeltaLog(tmp_path).add({"commitInfo": {}})
    for version in (3, 4, 5):
        (tmp_path / commit_path(version)).unlink()
    later = open_sink(tmp_path)
    assert run(later, "t2", 1) is CommitOutcome.ALREADY_COMMITTED
    assert run(later, "t2", 3) is CommitOutcome.COMMITTED, "commits after a gap in the log are read"


def test_a_batch_whose_driver_ended_before_the_copy_is_found_below_later_commits(tmp_path: Path) -> None:
    with pytest.raises(Crash):
        run(interrupted(tmp_path, "after append", end), "t1")
    DeltaLog(tmp_path).add({"commitInfo": {"operation": "OPTIMIZE"}})
    assert run(open_sink(tmp_path), "t2") is CommitOutcome.ALREADY_COMMITTED
    assert [each.attempt for each in open_sink(tmp_path).lineages()] == ["t1"]


def test_a_copy_is_made_after_the_files_of_the_commit_are_durable(tmp_path: Path) -> None:
    calls: list[str] = []

    class Recording(LocalFolderStore):
        def sync(self, paths: list[str]) -> None:
            calls.extend(paths)

        def publish(self, source: str, target: str) -> None:
            calls.append(target)
            super().publish(source, target)

    run(open_sink(tmp_path, Recording(str(tmp_path))), "t1")
    batch = "_zkconsumer/batches/q/0000000000.json"
    assert calls[calls.index("1.parquet") :] == ["1.parquet", commit_path(1), batch, f"_zkconsumer/archived/{1:020}"]


def test_markers_of_two_processes_may_come_in_any_order(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    frame: Any = Frame([0, 1, 2])
    staged = sink.write(frame, attempt("t1"))
    DeltaLog(tmp_path)(frame, DeltaTarget("t", None), batch_options(lineage(staged)))
    before_marker = InterruptedFolder(tmp_path, 7, lambda: run(sink, "t1", 1))
    LineageArchive(before_marker).update()  # type: ignore[arg-type]
    names = sorted(each.name for each in (tmp_path / "_zkconsumer" / "archived").iterdir())
    assert names == [f"{1:020}", f"{2:020}"]
    run(sink, "t1", 2)
    assert [each.name for each in (tmp_path / "_zkconsumer" / "archived").iterdir()] == [f"{3:020}"]
    assert [each.batch for each in open_sink(tmp_path).lineages()] == [0, 1, 2]


def test_a_backfill_reserves_its_ranges_and_its_commit_ends_the_reservation(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    run(sink, "t1", 1)
    frame: Any = Frame([0, 1, 2])
    staged = sink.write(frame, BatchAttempt("backfill-1", 0, "t1", NOW_MS))
    wanted = replace(lineage(staged), kind="backfill")
    sink.reserve(wanted, {TP: 6})
    assert list(sink.reservations()) == [wanted]
    with pytest.raises(LineageConflictError, match="is reserved for backfill 0 of query backfill-1"):
        sink.reserve(replace(wanted, query="backfill-2"), {TP: 6})
    with pytest.raises(LineageConflictError, match="was written by batch 1"):
        sink.reserve(replace(wanted, query="backfill-2", ranges={TP: ((4, 5),)}), {TP: 6})
    assert sink.commit(staged, wanted) is CommitOutcome.COMMITTED
    assert list(sink.reservations()) == []
    assert [each.kind for each in sink.lineages()] == ["backfill", "batch"]
    sink.reserve(replace(wanted, query="backfill-3", ranges={TP: ((6, 7),)}), {})
    late = sink.write(frame, BatchAttempt("backfill-3", 0, "t9", NOW_MS))
    sink.release("backfill-3", 0)
    assert list(sink.reservations()) == []
    with pytest.raises(LineageConflictError, match="with other offsets"):
        sink.commit(late, replace(lineage(late), kind="backfill", ranges={TP: ((6, 7),)}))


# --- replacements -------------------------------------------------------------------------------------------------


COLUMNS = OffsetColumns("topic", "p`x", "at")


class ConflictingLog(DeltaLog):
    """Delta fails the first ``conflicts`` commits with a condition, since the live query has added rows meanwhile."""

    def __init__(self, path: Path, conflicts: int, text: str = "[DELTA_CONCURRENT_APPEND] Files were added") -> None:
        super().__init__(path)
        self.left = conflicts
        self.text = text
        self.conditions: list[str] = []

    def __call__(self, frame: Any, target: DeltaTarget, options: Mapping[str, str]) -> None:
        self.conditions.append(options.get("replaceWhere", ""))
        if self.left:
            self.left -= 1
            raise ConcurrentTransaction(self.text)
        super().__call__(frame, target, options)


def replace_rows(path: Path, log: DeltaLog, deleted: list[int]) -> CommitOutcome:
    """A replacement of the offsets 0 to 2; the table has four rows of these."""
    open_sink(path)
    spark: Any = Session()
    table: Any = Table(LocalFolderStore(str(path)))
    plain = DeltaSink(spark, DeltaTarget(str(path), None), log, write_files, table)  # type: ignore[arg-type]
    sink = plain.replacing(ReplacedRows(COLUMNS, deleted.append))
    table.rows = 4
    frame: Any = Frame([0, 1, 2])
    staged = sink.write(frame, BatchAttempt("replace-1", 0, "t1", NOW_MS))
    return sink.commit(staged, replace(lineage(staged), kind="replace"))


def test_a_replacement_deletes_the_rows_of_its_offsets_in_its_commit(tmp_path: Path) -> None:
    deleted: list[int] = []
    log = ConflictingLog(tmp_path, 0)
    assert replace_rows(tmp_path, log, deleted) is CommitOutcome.COMMITTED
    assert log.conditions == ["(`topic` = 'clicks' AND `p``x` = 0 AND `at` >= 0 AND `at` < 3)"]
    assert deleted == [4]
    assert [each.kind for each in open_sink(tmp_path).lineages()] == ["replace"]


def test_a_replacement_tries_again_while_batches_of_the_live_query_are_committed(tmp_path: Path) -> None:
    deleted: list[int] = []
    log = ConflictingLog(tmp_path, REPLACE_TRIES_MAX - 1)
    assert replace_rows(tmp_path, log, deleted) is CommitOutcome.COMMITTED
    assert (len(log.conditions), deleted) == (REPLACE_TRIES_MAX, [4])
    late = ConflictingLog(tmp_path / "late", REPLACE_TRIES_MAX)
    with pytest.raises(ConcurrentTransaction, match="DELTA_CONCURRENT_APPEND"):
        replace_rows(tmp_path / "late", late, deleted)
    other = ConflictingLog(tmp_path / "other", 1, "the disk is full")
    with pytest.raises(ConcurrentTransaction, match="the disk is full"):
        replace_rows(tmp_path / "other", other, deleted)
    assert (len(other.conditions), deleted) == (1, [4])


def test_a_batch_that_is_no_replacement_deletes_nothing_and_is_tried_once(tmp_path: Path) -> None:
    open_sink(tmp_path)
    log = ConflictingLog(tmp_path, 1)
    with pytest.raises(ConcurrentTransaction):
        run(open_sink(tmp_path, log=log), "t1")
    assert run(open_sink(tmp_path, log=log), "t2") is CommitOutcome.COMMITTED
    assert log.conditions == ["", ""]


def test_the_dead_letters_of_a_replacement_are_added_and_none_is_deleted(tmp_path: Path) -> None:
    open_sink(tmp_path)
    log = ConflictingLog(tmp_path, 0)
    letters = open_sink(tmp_path, log=log)
    frame: Any = Frame([0, 1, 2])
    staged = letters.write(frame, BatchAttempt("replace-1", 0, "t1", NOW_MS))
    assert letters.commit(staged, replace(lineage(staged), kind="replace")) is CommitOutcome.COMMITTED
    assert log.conditions == [""]


def test_a_table_with_rows_of_unknown_offsets_is_not_replaced(tmp_path: Path) -> None:
    open_sink(tmp_path)
    spark: Any = Session()
    table: Any = Table(LocalFolderStore(str(tmp_path)))
    table.rows = 1
    sink = DeltaSink(spark, DeltaTarget(str(tmp_path), None), table=table)
    with pytest.raises(PreconditionFailed, match=r"the table t has rows without a value in topic, p`x, at"):
        sink.replacing(ReplacedRows(COLUMNS, lambda _: None))
    assert table.counted == ["`topic` IS NULL OR `p``x` IS NULL OR `at` IS NULL"]


def test_a_lineage_in_a_copied_commit_message_is_not_a_batch(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    frame: Any = Frame([0, 1, 2])
    staged = sink.write(frame, attempt("t1"))
    DeltaLog(tmp_path).add({"commitInfo": {"userMetadata": to_json(lineage(staged))}})
    assert sink.committed(QUERY, 0) is None
    assert sink.commit(staged, lineage(staged)) is CommitOutcome.COMMITTED


def test_a_batch_without_rows_takes_its_key_and_a_late_attempt_with_rows_is_not_committed(tmp_path: Path) -> None:
    sink, late = open_sink(tmp_path), open_sink(tmp_path)
    frame: Any = Frame([0, 1, 2])
    staged = late.write(frame, attempt("late"))
    empty = replace(lineage(staged), attempt="t1", counts=BatchCounts())
    assert sink.commit_without_rows(empty) == empty
    assert open_sink(tmp_path).commit_without_rows(replace(empty, attempt="t2")) == empty
    assert late.commit(staged, lineage(staged)) is CommitOutcome.ALREADY_COMMITTED
    assert values(tmp_path) == []


def test_of_two_attempts_without_rows_at_once_one_takes_the_key(tmp_path: Path) -> None:
    first = BatchLineage(QUERY, 0, "batch", "clicks", "claim", "t1", NOW_MS, {TP: ((0, 3),)}, BatchCounts())
    second = replace(first, attempt="t2")
    sink = interrupted(tmp_path, "in append", lambda: open_sink(tmp_path).commit_without_rows(second))
    assert sink.commit_without_rows(first) == second


def test_a_key_that_no_commit_explains_is_an_error_also_without_rows(tmp_path: Path) -> None:
    sink = open_sink(tmp_path)
    DeltaLog(tmp_path).add({"commitInfo": {}}, {"txn": {"appId": QUERY, "version": 5}})
    with pytest.raises(LineageConflictError, match="has batch 4 of query q already, or a later one"):
        sink.commit_without_rows(
            BatchLineage(QUERY, 4, "batch", "clicks", "claim", "t1", NOW_MS, {TP: ((0, 3),)}, BatchCounts())
        )
