"""The offset in Spark's checkpoint: what is written is read again, and what is foreign says what to do."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bridge.spark.group_membership import CommitMode
from bridge.spark.source.stream_offset import (
    INITIAL_OFFSET,
    BatchOffsets,
    ForeignCheckpoint,
    Stats,
    check_mode,
    decode,
    encode,
)
from zkconsumer.types import TopicPartition

A, B = TopicPartition("t", 0), TopicPartition("u.v-w", 10)
BATCH = BatchOffsets("g", "ab" * 16, 3, {A: 5}, {A: 9, B: 7}, {A: 1 << 40}, Stats(2, 11), CommitMode.CLAIM, {"t": 1})
WRITTEN: dict[str, Any] = {
    "v": 1, "g": "g", "q": "ab" * 16, "n": 3, "from": {"t": {"0": 5}}, "to": {"t": {"0": 9}, "u.v-w": {"10": 7}},
    "claims": {"t": {"0": 1 << 40}}, "s": {"rebalances": 2, "lostOffsets": 11}, "m": "claim",
    "topics": {"t": 1},
}  # fmt: skip


def refusal(found: Any, group: str = "g") -> str:
    with pytest.raises(ForeignCheckpoint) as caught:
        decode(found, group)
    return str(caught.value)


def test_what_is_written_is_read_again() -> None:
    assert encode(BATCH) == WRITTEN
    assert decode(json.loads(json.dumps(encode(BATCH))), "g") == BATCH
    assert decode(json.loads(json.dumps(INITIAL_OFFSET)), "g") is None


def test_what_was_skipped_is_written_only_when_something_was() -> None:
    stats = Stats(2, 11, skipped_offsets=5)
    written = {**WRITTEN, "s": {"rebalances": 2, "lostOffsets": 11, "skippedOffsets": 5}}
    assert encode(replace(BATCH, stats=stats)) == written
    assert decode(json.loads(json.dumps(written)), "g") == replace(BATCH, stats=stats)


def test_a_missing_compiled_decoder_is_written_only_where_it_is_missing() -> None:
    stats = Stats(2, 11, python_decoder=True)
    written = {**WRITTEN, "s": {"rebalances": 2, "lostOffsets": 11, "pythonDecoder": True}}
    assert encode(replace(BATCH, stats=stats)) == written
    assert decode(json.loads(json.dumps(written)), "g") == replace(BATCH, stats=stats)


def test_the_checkpoint_of_another_group_names_both_and_what_to_do() -> None:
    told = refusal(WRITTEN, "h")
    assert told.startswith("the checkpoint of this query belongs to the group 'g', but group.id is 'h'")
    assert "set group.id=g, or give the query a checkpointLocation of its own" in told


@pytest.mark.parametrize("found", [{"t": {"0": 5}}, {}, [1], "x", None, 7])
def test_the_checkpoint_of_another_source_is_not_taken_over(found: Any) -> None:
    told = refusal(found)
    assert "was not written by zkconsumer" in told
    assert "a checkpointLocation of its own" in told


def test_an_offset_of_a_later_release_says_which_one_to_install() -> None:
    assert "written by a later release of zkconsumer (version 2" in refusal({**WRITTEN, "v": 2, "more": 1})


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"q": "../x"}, "g or q is not a valid name"),
        ({"g": 3}, "g or q is not a valid name"),
        ({"n": -2}, "n is not a count"),
        ({"n": True}, "n is not a count"),
        ({"s": {}}, "s does not have the counts"),
        ({"s": {"rebalances": 0, "lostOffsets": -1}}, "lostOffsets is not a count"),
        ({"s": {"rebalances": 0, "lostOffsets": 0, "skippedOffsets": "5"}}, "skippedOffsets is not a count"),
        ({"s": {"rebalances": 0, "lostOffsets": 0, "pythonDecoder": 1}}, "s does not have the counts"),
        ({"from": {"t": {"0": 10}}}, "t/0 starts at 10 and ends at 9"),
        ({"from": {"t": {"0": -1}}}, "t/0 starts at -1"),
        ({"from": {"x": {"0": 1}}}, "from and claims name different partitions"),
        ({"to": {"t": {"zero": 9}}}, "not a partition number"),
        ({"to": {"t": {"0": "9"}}}, "is not an offset"),
        ({"to": [1]}, "not a JSON object"),
        ({"m": "often"}, "'often' is not a valid CommitMode"),
        ({"topics": [1]}, "topics is not a JSON object"),
        ({"topics": {"t": -1}}, "t is not a count"),
        ({"extra": 1}, "its keys are not"),
        ({"v": True}, "its keys are not"),
    ],
)
def test_what_was_edited_is_not_believed(change: dict[str, Any], words: str) -> None:
    changed = {**WRITTEN, **change}
    if change == {"v": True}:
        changed["v"] = "1"
    told = refusal(changed)
    assert words in told
    assert "damaged, or was edited" in told


def test_a_missing_part_is_noticed() -> None:
    for key in WRITTEN.keys() - {"v"}:
        assert "its keys are not" in refusal({name: value for name, value in WRITTEN.items() if name != key})


def test_a_checkpoint_with_claims_is_none_without_and_says_what_to_do() -> None:
    check_mode(BATCH, CommitMode.CLAIM)
    with pytest.raises(ForeignCheckpoint) as caught:
        check_mode(BATCH, CommitMode.NONE)
    assert "Set group.offsets.commit=claim again; or commit to the group" in str(caught.value)
    assert "zkconsumer spark reconcile" in str(caught.value)
