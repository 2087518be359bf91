"""Which files of a Delta log make a version, and which data files are live in it."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.spark.pipeline.sinks.delta_snapshot import (
    READER_FEATURES,
    DeltaLogError,
    LiveFile,
    LogSegment,
    TableSnapshot,
    log_segment,
)

ID = "b7db7b97-eed7-4fad-8b20-f805cf2d22c3"


def commit(version: int) -> str:
    return f"{version:020}.json"


def checkpoint(version: int, more: str = "", kind: str = "parquet") -> str:
    return f"{version:020}.checkpoint{more}.{kind}"


def part(number: int, parts: int) -> str:
    return f".{number:010}.{parts:010}"


def snapshot(*actions: tuple[str, dict[str, Any]]) -> TableSnapshot:
    made = TableSnapshot(0, "log")
    for name, action in actions:
        made.apply(name, action)
    return made


# --- the files of the log -----------------------------------------------------------------------------------------


def test_a_log_without_a_commit_is_no_table() -> None:
    assert log_segment([], "log") is None
    assert log_segment(["_last_checkpoint", "00000000000000000000.crc"], "log") is None


def test_without_a_checkpoint_all_commits_count() -> None:
    assert log_segment(map(commit, (2, 0, 1)), "log") == LogSegment(2, (), (0, 1, 2))


def test_the_newest_complete_checkpoint_and_the_commits_after_it_count() -> None:
    names = [checkpoint(3), checkpoint(6, part(1, 2)), checkpoint(6, part(2, 2)), checkpoint(8, part(1, 2))]
    names += map(commit, range(4, 10))
    assert log_segment(names, "log") == LogSegment(9, (checkpoint(6, part(1, 2)), checkpoint(6, part(2, 2))), (7, 8, 9))


@pytest.mark.parametrize("kind", ["json", "parquet"])
def test_a_checkpoint_of_version_2_has_an_id(kind: str) -> None:
    names = [
        checkpoint(3, f".{ID}", kind),
        *map(commit, (3, 4)),
        "00000000000000000001.00000000000000000004.compacted.json",
    ]
    assert log_segment(names, "log") == LogSegment(4, (checkpoint(3, f".{ID}", kind),), (4,))


def test_of_two_checkpoints_of_a_version_one_counts() -> None:
    names = [checkpoint(3), checkpoint(3, f".{ID}"), commit(3)]
    found = log_segment(names, "log")
    assert found is not None
    assert len(found.checkpoint) == 1
    assert (found.version, found.commits) == (3, ())


@pytest.mark.parametrize("names", [[commit(1)], [commit(0), commit(2)], [checkpoint(3), commit(5)]])
def test_a_missing_commit_is_an_error(names: list[str]) -> None:
    with pytest.raises(
        DeltaLogError, match=r"commit \d is missing, and \d is there; the operator must restore the log"
    ):
        log_segment(names, "log")


# --- data files ---------------------------------------------------------------------------------------------------


def test_a_removed_file_is_not_live_and_one_that_is_added_again_is() -> None:
    add = {"path": "a%20b", "stats": '{"numRecords": 5}'}
    assert snapshot(("add", add)).files == [LiveFile("a b", 5, 0)]
    assert snapshot(("add", add), ("remove", {"path": "a%20b"})).files == []
    assert len(snapshot(("remove", {"path": "a%20b"}), ("add", add)).files) == 1


def test_a_file_has_a_name_of_its_own_with_each_deletion_vector() -> None:
    """A commit that deletes rows removes the file without the vector and adds it with the vector, in any order."""
    plain = {"path": "a", "stats": '{"numRecords": 5}'}
    vector = {"storageType": "u", "pathOrInlineDv": "x", "offset": 1, "cardinality": 2}
    added, removed = ("add", plain | {"deletionVector": vector}), ("remove", {"path": "a", "deletionVector": None})
    for actions in ((added, removed), (removed, added)):
        assert snapshot(("add", plain), *actions).files == [LiveFile("a", 5, 2)]
    later = vector | {"offset": 7, "cardinality": 3}
    again = snapshot(
        ("add", plain), removed, added, ("add", plain | {"deletionVector": later}),
        ("remove", {"path": "a", "deletionVector": vector}),
    )  # fmt: skip
    assert again.files == [LiveFile("a", 5, 3)]


@pytest.mark.parametrize(
    ("more", "rows"),
    [({"stats": '{"numRecords": 7}'}, 7), ({"stats": None, "stats_parsed": {"numRecords": 7}}, 7), ({}, None),
     ({"stats": "{}"}, None), ({"stats": "{broken"}, None), ({"stats_parsed": {"numRecords": None}}, None)],
)  # fmt: skip
def test_the_number_of_rows_is_known_from_either_form_of_the_statistics(more: dict[str, Any], rows: int | None) -> None:
    assert snapshot(("add", {"path": "a"} | more)).files == [LiveFile("a", rows, 0)]


def test_features_that_do_not_change_the_number_of_rows_are_read_and_others_are_one_line() -> None:
    known = {"minReaderVersion": 3, "readerFeatures": sorted(READER_FEATURES)}
    assert snapshot(("protocol", known), ("protocol", {"minReaderVersion": 2, "readerFeatures": None})).files == []
    with pytest.raises(DeltaLogError, match="log: the table has the feature catalogManaged, with which"):
        snapshot(("protocol", {"minReaderVersion": 3, "readerFeatures": ["catalogManaged", "deletionVectors"]}))
    with pytest.raises(DeltaLogError, match="the reader version 4"):
        snapshot(("protocol", {"minReaderVersion": 4}))


def test_other_actions_change_nothing() -> None:
    assert snapshot(("txn", {"appId": "q"}), ("metaData", {"id": "t"}), ("cdc", {"path": "a"})).files == []
