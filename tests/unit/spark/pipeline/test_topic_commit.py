"""A topic has no commit: what a sink of topics sends and stores, wherever it ends and whoever else writes the batch."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="the pipeline needs the extra [spark]")

from pyspark.sql.types import StringType, StructField, StructType

from bridge.spark.pipeline.lineage import BatchAttempt, BatchCounts, BatchLineage, LineageConflictError
from bridge.spark.pipeline.pipeline_spec import TopicTarget
from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
from bridge.spark.pipeline.sinks.lineage_folder import LineageFolder
from bridge.spark.pipeline.sinks.sink import CommitOutcome, SinkUnavailableError, StagedBatch
from bridge.spark.pipeline.sinks.topic_records import TopicFacts
from bridge.spark.pipeline.sinks.topic_sink import TopicSink
from bridge.spark.sink.topic_writer import SinkTask
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition

TP = TopicPartition("clicks", 0)
NOW_MS = 1_790_000_000_000
ROWS = 3
SCHEMA = StructType([StructField("value", StringType())])


class Crash(Exception):
    """The end of a driver."""


class FakeFrame:
    """The frame of a batch: counts how it is kept."""

    columns = ("value", "_zkconsumer_message_place")

    def __init__(self, rows: int = ROWS) -> None:
        self.rows = rows
        self.kept = 0
        self.renamed: list[tuple[str, str]] = []

    def withColumnRenamed(self, old: str, new: str) -> FakeFrame:
        self.renamed.append((old, new))
        return self

    def persist(self, _: object) -> FakeFrame:
        self.kept += 1
        return self

    def unpersist(self) -> None:
        self.kept -= 1

    def count(self) -> int:
        if self.rows < 0:
            raise Crash
        return self.rows


class Topic:
    """The brokers: what was sent.  ``action``: called after a send."""

    def __init__(self, action: Callable[[], object] = lambda: None, lost: int = 0) -> None:
        self.tasks: list[SinkTask] = []
        self.sent = 0
        self._action = action
        self._lost = lost

    def send(self, frame: Any, task: SinkTask) -> int:
        self.tasks.append(task)
        self.sent += frame.rows
        self._action()
        return int(frame.rows) - self._lost


def sink_of(folder: Path, topic: Topic, facts: list[TopicFacts] | None = None, **target: Any) -> TopicSink:
    """As a driver opens it at its start."""
    values = {"topic": "rows", "connection": {"kafka.bootstrap.servers": "k:9092"}, "compression": "none"}
    values |= {"acks": "all", "lineage_path": str(folder), "holds_dead_letters": False}
    answers = facts if facts is not None else [TopicFacts(2, 1_000_000)]
    return TopicSink(
        LineageFolder(LocalFolderStore(str(folder))), TopicTarget(**{**values, **target}), topic.send,
        lambda _address, _topic: answers.pop(0),
    )  # fmt: skip


def stage(sink: TopicSink, frame: Any, name: str = "a1") -> StagedBatch[Any]:
    return sink.write(frame, BatchAttempt("q", 0, name, NOW_MS))


def lineage(staged: StagedBatch[Any], first: int = 0) -> BatchLineage:
    it = staged.attempt
    ranges = {TP: ((first, first + ROWS),)}
    return BatchLineage(
        it.query, it.batch, "batch", "p", "claim", it.attempt, NOW_MS, ranges, BatchCounts(rows=staged.rows)
    )


def run(sink: TopicSink, name: str = "a1", first: int = 0) -> CommitOutcome:
    staged = stage(sink, FakeFrame(), name)
    return sink.commit(staged, lineage(staged, first))


def test_nothing_is_sent_before_the_commit_and_the_records_are_not_kept_after_it(tmp_path: Path) -> None:
    topic, frame = Topic(), FakeFrame()
    sink = sink_of(tmp_path, topic)
    staged = stage(sink, frame)
    assert (topic.sent, frame.kept) == (0, 1)
    assert frame.renamed == [("_zkconsumer_message_place", "source")]
    assert sink.commit(staged, lineage(staged)) is CommitOutcome.COMMITTED
    assert (topic.sent, frame.kept) == (ROWS, 0)
    assert [(task.query, task.batch) for task in topic.tasks] == [("q", "0")]
    assert sink.committed("q", 0) == lineage(staged)


def test_an_error_while_records_are_computed_sends_nothing_and_keeps_nothing(tmp_path: Path) -> None:
    topic, frame = Topic(), FakeFrame(-1)
    with pytest.raises(Crash):
        stage(sink_of(tmp_path, topic), frame)
    assert (topic.sent, frame.kept) == (0, 0)


def test_a_batch_whose_lineage_is_stored_is_not_sent_again(tmp_path: Path) -> None:
    topic = Topic()
    run(sink_of(tmp_path, topic))
    assert run(sink_of(tmp_path, topic), "a2") is CommitOutcome.ALREADY_COMMITTED
    assert topic.sent == ROWS


def test_a_crash_after_the_send_and_before_the_lineage_sends_the_batch_again(tmp_path: Path) -> None:
    def end() -> None:
        raise Crash

    first, second = Topic(end), Topic()
    with pytest.raises(Crash):
        run(sink_of(tmp_path, first))
    sink = sink_of(tmp_path, second)
    assert sink.committed("q", 0) is None
    assert run(sink, "a2") is CommitOutcome.COMMITTED
    assert first.sent + second.sent == 2 * ROWS


def test_a_driver_that_was_stopped_while_it_sent_changes_no_lineage_of_its_successor(tmp_path: Path) -> None:
    successor = Topic()
    stopped = Topic(lambda: run(sink_of(tmp_path, successor), "a2"))
    sink = sink_of(tmp_path, stopped)
    assert run(sink, "a1") is CommitOutcome.ALREADY_COMMITTED
    stored = sink.committed("q", 0)
    assert stored is not None
    assert stored.attempt == "a2"
    assert stopped.sent == successor.sent == ROWS


def test_other_ranges_of_a_stored_batch_are_an_error_and_nothing_is_sent(tmp_path: Path) -> None:
    topic = Topic()
    run(sink_of(tmp_path, topic))
    with pytest.raises(LineageConflictError, match="has batch 0 of query q already with other offsets"):
        run(sink_of(tmp_path, topic), "a2", first=5)
    assert topic.sent == ROWS


def test_fewer_records_than_were_computed_store_no_lineage(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, Topic(lost=1))
    with pytest.raises(SinkUnavailableError, match="had 3 records, and 2 when an executor was lost"):
        run(sink)
    assert sink.committed("q", 0) is None


def test_a_batch_without_rows_has_a_lineage_and_needs_no_broker(tmp_path: Path) -> None:
    topic = Topic()
    sink = sink_of(tmp_path, topic)
    staged = stage(sink, FakeFrame(0))
    assert sink.commit(staged, lineage(staged)) is CommitOutcome.COMMITTED
    assert topic.tasks == []
    assert [each.key for each in sink.lineages()] == [("q", 0)]


def test_both_readings_of_a_batch_reject_the_same_rows_if_the_topic_changes(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, Topic(), [TopicFacts(2, 1_000), TopicFacts(9, 9_000)])
    sink.prepare(SCHEMA)
    first = sink.rejections(SCHEMA)
    assert sink.check(SCHEMA) == []
    assert sink.rejections(SCHEMA) == first
    assert sink.rejections(SCHEMA)[0].condition.endswith("> 1000")


def test_dead_letters_are_never_rejected_and_need_no_value_column(tmp_path: Path) -> None:
    letters = sink_of(tmp_path, Topic(), holds_dead_letters=True)
    schema = StructType([StructField("stage", StringType())])
    assert letters.check(schema) == []
    assert letters.rejections(schema) == ()
    assert not letters.needs_message_place
    assert sink_of(tmp_path, Topic()).needs_message_place


def test_all_problems_of_a_target_are_reported_at_once_and_nothing_is_created(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    sink = sink_of(tmp_path / "file" / "sink", Topic(), [TopicFacts(1), TopicFacts(1)])
    schema = StructType([StructField("id", StringType())])
    [column, folder] = sink.check(schema)
    assert column.startswith("column value is missing")
    assert folder.startswith("the lineage of a topic is beside the checkpoint: ")
    with pytest.raises(PreconditionFailed, match="column value is missing"):
        sink.prepare(schema)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["file"]


def test_a_reservation_of_a_backfill_ends_with_its_commit(tmp_path: Path) -> None:
    sink = sink_of(tmp_path, Topic())
    staged = stage(sink, FakeFrame())
    wanted = replace(lineage(staged), kind="backfill")
    sink.reserve(wanted, {})
    assert list(sink.reservations()) == [wanted]
    sink.commit(staged, wanted)
    assert list(sink.reservations()) == []
    assert sink.remove_leftovers(NOW_MS) == 0


def test_a_batch_without_rows_takes_its_key_and_a_late_attempt_sends_nothing(tmp_path: Path) -> None:
    topic = Topic()
    sink, late = sink_of(tmp_path, topic), sink_of(tmp_path, topic)
    staged = stage(late, FakeFrame(), "late")
    empty = replace(lineage(staged), attempt="a1", counts=BatchCounts())
    assert sink.commit_without_rows(empty) == empty
    assert sink.commit_without_rows(replace(empty, attempt="a2")) == empty
    assert late.commit(staged, lineage(staged)) is CommitOutcome.ALREADY_COMMITTED
    assert topic.sent == 0
