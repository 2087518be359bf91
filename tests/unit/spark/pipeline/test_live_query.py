"""What the live query has yet to read, by its checkpoint and the group's offsets."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

from bridge.spark.group_membership import CommitMode
from bridge.spark.handoff.checkpoint_files import BadCheckpoint
from bridge.spark.pipeline.backfill.live_query import LiveQueryBatches, live_positions, read_live_query
from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
from bridge.spark.source.stream_offset import BatchOffsets, encode
from zkconsumer.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)
QUERY = "0" * 32


def batch(
    number: int,
    first: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    mode: CommitMode = CommitMode.CLAIM,
) -> BatchOffsets:
    """A batch that owns the partitions of ``first``."""
    return BatchOffsets("g", QUERY, number, first, end, dict.fromkeys(first, 5), mode=mode, topics={"a": 2})


def position(
    done: BatchOffsets | None, *begun: BatchOffsets, group: int | None = None, begins_at_group: bool = True
) -> int:
    """That of partition 0."""
    group_offsets = {} if group is None else {A0: group}
    live = LiveQueryBatches(done, begun)
    return live_positions(live, group_offsets, [A0], begins_at_group=begins_at_group)[A0]


def test_an_owned_partition_continues_at_the_end_of_the_last_batch() -> None:
    assert position(batch(3, {A0: 10}, {A0: 20}), group=20) == 20
    assert position(batch(3, {A0: 10}, {A0: 20})) == 20


def test_a_batch_that_was_begun_and_is_not_done_is_yet_to_be_read_although_its_offsets_are_claimed() -> None:
    assert position(batch(3, {A0: 10}, {A0: 20}), batch(4, {A0: 20}, {A0: 30}), group=30) == 20
    assert position(None, batch(0, {A0: 5}, {A0: 30}), group=30) == 5


def test_after_a_refused_claim_the_group_offset_and_not_the_planned_end_counts() -> None:
    assert position(batch(3, {A0: 10}, {A0: 20}), group=12) == 12


def test_a_partition_of_other_members_continues_at_the_group_offset() -> None:
    assert position(batch(3, {A1: 0}, {A1: 1, A0: 7}), group=90) == 90
    assert position(batch(3, {A1: 0}, {A1: 1}), group=90) == 90
    assert position(batch(3, {A1: 0}, {A1: 1})) == 0, "without an offset its log is yet to be read"


def test_a_query_that_commits_later_or_never_continues_at_the_end_in_its_checkpoint() -> None:
    after = CommitMode.AFTER_BATCH
    assert position(batch(3, {A0: 10}, {A0: 20}, after), group=10) == 20
    assert position(batch(3, {A1: 0}, {A1: 1, A0: 7}, after), group=5) == 7
    assert position(batch(3, {A1: 0}, {A1: 1, A0: 7}, after), group=9) == 9
    assert position(batch(3, {A1: 0}, {A1: 1}, after), group=5) == 5
    never = CommitMode.NONE
    assert position(batch(3, {A1: 0}, {A1: 1, A0: 7}, never), group=90) == 7
    assert position(batch(3, {A1: 0}, {A1: 1}, never), group=90) == 90


def test_a_query_without_a_batch_begins_at_the_group_offset_or_reads_all() -> None:
    assert position(None, group=8) == 8
    assert position(None) == 0
    assert position(None, group=8, begins_at_group=False) == 0


# --- the checkpoint -----------------------------------------------------------------------------------------------


def write(folder: Path, offsets: list[BatchOffsets], commits: int) -> LocalFolderStore:
    for name in ("offsets", "commits"):
        (folder / name).mkdir(exist_ok=True)
    (folder / "metadata").write_text('{"id": "q"}')
    for each in offsets:
        (folder / "offsets" / str(each.batch)).write_text(f"v1\n{{}}\n{json.dumps(encode(each))}")
    for number in range(commits):
        (folder / "commits" / str(number)).write_text("v1\n{}")
    (folder / "offsets" / ".0.crc").write_text("x")
    return LocalFolderStore(str(folder))


def test_the_newest_batch_that_is_done_and_those_after_it_are_read(tmp_path: Path) -> None:
    batches = [batch(n, {A0: n}, {A0: n + 1}) for n in range(3)]
    assert read_live_query(write(tmp_path, batches, 2)) == LiveQueryBatches(batches[1], (batches[2],))
    assert read_live_query(write(tmp_path, batches, 3)) == LiveQueryBatches(batches[2], ())


def test_without_a_checkpoint_there_is_no_live_query(tmp_path: Path) -> None:
    assert read_live_query(LocalFolderStore(str(tmp_path / "no"))) is None
    assert read_live_query(write(tmp_path, [], 0)) == LiveQueryBatches(None, ())


def test_a_checkpoint_that_is_not_complete_or_of_another_source_is_an_error(tmp_path: Path) -> None:
    store = write(tmp_path, [batch(0, {A0: 0}, {A0: 1})], 2)
    with pytest.raises(BadCheckpoint, match="batch 1 is done, and its file in offsets is missing"):
        read_live_query(store)
    (tmp_path / "commits" / "1").unlink()
    (tmp_path / "offsets" / "0").write_text('v1\n{}\n{"a": {"0": 5}}')
    with pytest.raises(BadCheckpoint, match="offsets of another source"):
        read_live_query(store)
