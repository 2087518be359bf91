"""The lineage of a batch is stored once, wherever a driver ends and whoever comes second."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage, InvalidLineageError, LineageConflictError
from bridge.spark.pipeline.sinks.folder_store import LocalFolderStore
from bridge.spark.pipeline.sinks.lineage_folder import LineageFolder
from zkconsumer.types import TopicPartition

TP = TopicPartition("clicks", 0)
FIRST = BatchLineage("q", 0, "batch", "p", "claim", "a1", 1_790_000_000_000, {TP: ((0, 5),)}, BatchCounts(rows=5))


@pytest.fixture
def folder(tmp_path: Path) -> LineageFolder:
    return LineageFolder(LocalFolderStore(str(tmp_path / "checkpoint-lineage" / "sink")))


def test_a_lineage_that_was_added_is_read_again_and_others_are_not_there(folder: LineageFolder) -> None:
    assert folder.committed("q", 0) is None
    assert list(folder.lineages()) == []
    assert folder.add(FIRST) == FIRST
    assert folder.committed("q", 0) == FIRST
    assert folder.committed("q", 1) is folder.committed("other", 0) is None


def test_of_two_attempts_the_first_one_counts(folder: LineageFolder, tmp_path: Path) -> None:
    folder.add(FIRST)
    assert folder.add(replace(FIRST, attempt="a2")) == FIRST
    [file] = [each for each in tmp_path.rglob("*") if each.is_file()]
    assert file == tmp_path / "checkpoint-lineage/sink/_zkconsumer/batches/q/0000000000.json"


def test_lineages_are_sorted_by_query_and_number(folder: LineageFolder) -> None:
    for query, batch in (("q", 10), ("q", 9), ("a", 11)):
        folder.add(replace(FIRST, query=query, batch=batch))
    assert [each.key for each in folder.lineages()] == [("a", 11), ("q", 9), ("q", 10)]


def test_a_damaged_lineage_is_an_error_and_not_a_batch_that_is_sent_again(
    folder: LineageFolder, tmp_path: Path
) -> None:
    folder.add(FIRST)
    next(tmp_path.rglob("batches/q/*.json")).write_text("{")
    with pytest.raises(InvalidLineageError, match="must restore it from a backup"):
        folder.committed("q", 0)


def test_a_reservation_ends_with_the_lineage_of_its_key(folder: LineageFolder) -> None:
    wanted = replace(FIRST, query="b1", kind="backfill")
    folder.reserve(wanted, {})
    assert list(folder.reservations()) == [wanted]
    with pytest.raises(LineageConflictError, match="is reserved for backfill 0 of query b1"):
        folder.reserve(replace(wanted, query="b2"), {})
    folder.add(wanted)
    assert list(folder.reservations()) == []
    folder.reserve(replace(wanted, query="b3", ranges={TP: ((5, 9),)}), {})
    folder.release("b3", 0)
    assert list(folder.reservations()) == []
