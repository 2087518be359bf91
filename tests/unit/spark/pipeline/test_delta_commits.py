"""Which commit of a Delta log is a batch of a pipeline."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage, InvalidLineageError, to_json
from bridge.spark.pipeline.sinks.delta_commits import batch_options, commit_path, commit_versions, parse_commit
from zkconsumer.types import TopicPartition

LINEAGE = BatchLineage("q", 7, "batch", "p", "claim", "t1", 1, {TopicPartition("a", 0): ((0, 3),)}, BatchCounts(3))
INFO = {"commitInfo": {"timestamp": 1, "operation": "WRITE", "userMetadata": to_json(LINEAGE)}}
TRANSACTION = {"txn": {"appId": "q", "version": 7, "lastUpdated": 1}}


def commit(*actions: object) -> bytes:
    return "".join(f"{json.dumps(each, separators=(',', ':'))}\n" for each in actions).encode()


def add(path: str) -> dict[str, object]:
    return {"add": {"path": path, "partitionValues": {}, "size": 1}}


def test_a_batch_has_its_lineage_and_the_files_in_the_folder_of_the_table() -> None:
    paths = ("part-0.parquet", "day=1%3A2/part%201.parquet", "s3://b/x.parquet", "/x.parquet")
    found = parse_commit(commit(INFO, TRANSACTION, *map(add, paths)), "7.json")
    assert found is not None
    assert found.lineage == LINEAGE
    assert found.files == ("part-0.parquet", "day=1:2/part 1.parquet")


def test_line_separators_of_unicode_in_a_text_end_no_line() -> None:
    other = json.dumps({"commitInfo2": {"text": "a\u2028b\x85c"}}, ensure_ascii=False)
    found = parse_commit(f"{other}\n".encode() + commit(INFO, TRANSACTION), "7.json")
    assert found is not None
    assert found.lineage == LINEAGE


@pytest.mark.parametrize("spaced", [False, True])
def test_the_order_and_the_spaces_of_other_writers_make_no_difference(spaced: bool) -> None:
    text = commit(add("x"), TRANSACTION, {"remove": {"path": "y"}}, INFO)
    data = b"\n" + text.replace(b":{", b": {") if spaced else text
    found = parse_commit(data, "7.json")
    assert found is not None
    assert found.lineage == LINEAGE


@pytest.mark.parametrize(
    "actions",
    [
        (),
        (INFO,),
        (TRANSACTION,),
        (INFO, {"txn": {"appId": "q", "version": 8}}),
        (INFO, {"txn": {"appId": "other", "version": 7}}),
        ({"commitInfo": {"operation": "OPTIMIZE"}}, TRANSACTION),
        ({"commitInfo": {"userMetadata": "a note"}}, TRANSACTION),
        ({"commitInfo": {"userMetadata": "[1]"}}, TRANSACTION),
        ({"commitInfo": {"userMetadata": '{"query": "q", "batch": 7}'}}, TRANSACTION),
        ({"commitInfo": {"userMetadata": 5}}, TRANSACTION),
        ([1], "x", {"txn": None}),
    ],
)
def test_commits_of_other_programs_are_no_batch(actions: tuple[object, ...]) -> None:
    assert parse_commit(commit(*actions), "7.json") is None


def test_a_commit_that_cannot_be_read_is_an_error_that_names_it() -> None:
    with pytest.raises(InvalidLineageError, match=r"7\.json: a line is not JSON"):
        parse_commit(commit(INFO, TRANSACTION)[:-5], "7.json")
    newer = {"commitInfo": {"userMetadata": to_json(LINEAGE).replace('"version":1', '"version":2')}}
    with pytest.raises(InvalidLineageError, match=r"7\.json.*version 2"):
        parse_commit(commit(newer, TRANSACTION), "7.json")


def test_the_options_of_a_batch_are_read_back_from_its_commit() -> None:
    options = batch_options(replace(LINEAGE, batch=8))
    assert options.keys() == {"txnAppId", "txnVersion", "userMetadata", "mergeSchema"}
    transaction = {"txn": {"appId": options["txnAppId"], "version": int(options["txnVersion"])}}
    found = parse_commit(commit({"commitInfo": {"userMetadata": options["userMetadata"]}}, transaction), "8.json")
    assert found is not None
    assert found.lineage.key == ("q", 8)


def test_only_commits_are_taken_from_a_listing_of_the_log() -> None:
    names = [
        "00000000000000000010.json", "00000000000000000002.json", "00000000000000000002.crc", "_last_checkpoint",
        "00000000000000000010.checkpoint.parquet", ".00000000000000000011.json.x.tmp", "_staged_commits",
        "00000000000000000001.00000000000000000009.compacted.json",
    ]  # fmt: skip
    assert commit_versions(names) == [2, 10]
    assert commit_path(10) == f"_delta_log/{names[0]}"
