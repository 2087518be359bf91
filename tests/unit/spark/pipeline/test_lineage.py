"""The lineage of a batch: its JSON form, and the rules about two batches."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.lineage import (
    BatchAttempt,
    BatchCounts,
    BatchLineage,
    InvalidLineageError,
    LineageConflictError,
    abandoned,
    check_reservation,
    from_json,
    partition_ranges,
    require_same_corrupt_offsets,
    require_same_ranges,
    to_json,
    uncovered,
)
from zkconsumer.types import TopicPartition

A0, A1 = TopicPartition("a", 0), TopicPartition("a", 1)


def lineage(
    kind: str = "batch", batch: int = 7, query: str = "q", **ranges: tuple[tuple[int, int], ...]
) -> BatchLineage:
    """``ranges``: ``a0`` and ``a1``; without any: offsets 10 to 19 of partition 0."""
    pairs = ranges or {"a0": ((10, 20),)}
    partitions = {TopicPartition("a", int(name[1:])): each for name, each in pairs.items()}
    return BatchLineage(query, batch, kind, "clicks", "claim", "t1", 5_000, partitions, BatchCounts(8, 1, 1, 0))


def changed(**members: Any) -> str:
    return json.dumps({**json.loads(to_json(lineage())), **members})


def test_a_lineage_is_read_as_it_was_written() -> None:
    whole = lineage("backfill", a0=((1, 3), (5, 9)), a1=((0, 1),))
    assert from_json(to_json(whole), "x") == whole
    assert whole.offsets == 7


def test_the_stored_form_is_stable() -> None:
    assert to_json(lineage(a1=((3, 4),), a0=((1, 2), (5, 9)))) == (
        '{"version":1,"kind":"batch","query":"q","batch":7,"pipeline":"clicks","mode":"claim","attempt":"t1",'
        '"created_ms":5000,"ranges":{"a":{"0":[[1,2],[5,9]],"1":[[3,4]]}},'
        '"counts":{"rows":8,"dead_letters":1,"filtered":1,"skipped_offsets":0}}'
    )


def test_corrupt_offsets_are_stored_where_there_are_some() -> None:
    whole = replace(lineage(), corrupt={A0: ((12, 15),)})
    assert from_json(to_json(whole), "x") == whole
    assert to_json(whole).endswith(',"corrupt":{"a":{"0":[[12,15]]}}}')
    assert "corrupt" not in to_json(lineage())


def test_two_attempts_with_other_corrupt_offsets_are_an_error() -> None:
    stored = replace(lineage(), corrupt={A0: ((12, 15),)})
    require_same_corrupt_offsets(stored, replace(stored, attempt="t2"))
    with pytest.raises(LineageConflictError, match=r"attempt t1 .*a/0 \[12, 15\).* this attempt found no offset"):
        require_same_corrupt_offsets(stored, replace(lineage(), attempt="t2"))


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("{", "not JSON"),
        (changed(corrupt={"a": {"0": [[2, 2]]}}), r"the corrupt offsets of a/0: \[2, 2\) is empty"),
        (changed(version=2), "version 2; this release reads version 1"),
        (changed(kind="other"), "must be one of batch, backfill, replay"),
        (changed(mode="other"), "must be one of claim, snapshot"),
        (changed(query="../q"), "'query'.*is no id"),
        (changed(batch=-1), "'batch' is no integer"),
        (changed(more=1), "'more' is not known"),
        (changed(counts={"rows": 1}), "'dead_letters' is missing"),
        (changed(ranges={"a": 1}), "the ranges of 'a' are no object"),
        (changed(ranges={"a": {"x": [[1, 2]]}}), "a/x: this is no partition"),
        (changed(ranges={"a": {"0": [[2, 2]]}}), r"a/0: \[2, 2\) is empty"),
        (changed(ranges={"a": {"0": [[1, 3], [2, 4]]}}), "a/0 are empty, not sorted, or overlap"),
        (changed(ranges={"a": {"0": [[1, 2], [2, 4]]}}), "a/0 are empty, not sorted, or overlap"),
        (changed(ranges={"a": {"0": []}}), "a/0 are empty, not sorted, or overlap"),
        (changed(ranges={"a": {"0": [[1, 2, 3]]}}), "no list of 2"),
    ],
)
def test_a_damaged_lineage_is_an_error_with_its_place(text: str, why: str) -> None:
    with pytest.raises(InvalidLineageError, match=f"the file f.*{why}"):
        from_json(text, "the file f")


def test_ranges_of_a_batch_have_one_form() -> None:
    ranges = [OffsetRange(A1, 5, 9), OffsetRange(A0, 4, 6), OffsetRange(A0, 1, 4), OffsetRange(A0, 9, 9)]
    assert partition_ranges(ranges) == {A0: ((1, 6),), A1: ((5, 9),)}
    assert list(partition_ranges(ranges)) == [A0, A1]


@pytest.mark.parametrize("text", ["", "a/b", ".hidden", "x" * 101, "a b", "ä"])
def test_an_id_can_be_the_name_of_a_file(text: str) -> None:
    with pytest.raises(ValueError, match="is no id"):
        BatchAttempt(text, 0, "t", 0)


def test_the_same_ranges_of_another_attempt_are_the_same_batch() -> None:
    require_same_ranges(lineage(), replace(lineage(), attempt="t2", created_ms=9, counts=BatchCounts()))


@pytest.mark.parametrize(
    "other",
    [lineage(a0=((10, 21),)), lineage(a0=((10, 20),), a1=((0, 1),)), lineage(a1=((10, 20),)), lineage("replay")],
)
def test_other_ranges_of_the_same_key_are_an_error_that_names_both_and_who_must_act(other: BatchLineage) -> None:
    with pytest.raises(LineageConflictError) as caught:
        require_same_ranges(lineage(), replace(other, attempt="t2"))
    text = str(caught.value)
    assert "stored a/0 [10, 20), committed by attempt t1" in text
    assert "The operator must" in text
    assert "this attempt has a/" in text


def test_a_backfill_may_read_what_no_batch_and_no_backfill_has() -> None:
    stored = [lineage(a0=((10, 20),)), lineage("backfill", 1, a0=((30, 40),)), lineage("replay", 2, a0=((0, 5),))]
    assert uncovered({A0: ((0, 50),), A1: ((0, 5),)}, stored) == {A0: ((0, 10), (20, 30), (40, 50)), A1: ((0, 5),)}
    assert uncovered({A0: ((12, 15),)}, stored) == {}


def test_a_backfill_reserves_free_offsets_below_the_live_query() -> None:
    check_reservation(lineage("backfill", 1, "f", a0=((0, 10), (20, 25))), [lineage()], [], {A0: 25})


def test_a_backfill_that_is_repeated_does_not_conflict_with_itself() -> None:
    mine = lineage("backfill", 1, "f", a0=((0, 10),))
    check_reservation(mine, [], [mine], {})


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        (((5, 11),), r"a/0 \[10, 11\) was written by batch 7 of query q"),
        (((30, 32),), r"a/0 \[31, 32\) is reserved for backfill 2 of query g"),
        (((40, 51),), r"the live query has yet to read a/0 \[50, 51\)"),
    ],
)
def test_a_backfill_is_refused_offsets_that_others_have_or_will_have(
    wanted: tuple[tuple[int, int], ...], why: str
) -> None:
    reserved = lineage("backfill", 2, "g", a0=((31, 35),))
    with pytest.raises(LineageConflictError, match=why):
        check_reservation(lineage("backfill", 1, "f", a0=wanted), [lineage()], [reserved], {A0: 50})


def test_a_replay_reserves_offsets_that_were_read_and_not_replayed() -> None:
    replayed = lineage("replay", 0, "r1", a0=((12, 13),))
    check_reservation(lineage("replay", 0, "r2", a0=((11, 12), (13, 14))), [lineage(), replayed], [], {A0: 0})
    with pytest.raises(LineageConflictError, match=r"a/0 \[12, 13\) was written by replay 0 of query r1"):
        check_reservation(lineage("replay", 0, "r2", a0=((11, 14),)), [lineage(), replayed], [], {})
    with pytest.raises(LineageConflictError, match=r"no batch has read a/0 \[20, 22\)"):
        check_reservation(lineage("replay", 0, "r2", a0=((19, 22),)), [lineage()], [], {})


def test_a_replacement_reserves_what_others_have_and_not_what_the_live_query_has_yet_to_read() -> None:
    replayed = lineage("replay", 0, "r1", a0=((12, 13),))
    check_reservation(lineage("replace", 0, "n", a0=((5, 20),)), [lineage(), replayed], [], {A0: 20})
    with pytest.raises(LineageConflictError, match=r"the live query has yet to read a/0 \[19, 20\)"):
        check_reservation(lineage("replace", 0, "n", a0=((5, 20),)), [lineage()], [], {A0: 19})


@pytest.mark.parametrize(
    ("kind", "other", "is_refused"),
    [
        ("replace", "backfill", True), ("replace", "replay", True), ("replace", "replace", True),
        ("replay", "replace", True), ("replay", "replay", True), ("replay", "backfill", False),
        ("backfill", "replay", False),
    ],
)  # fmt: skip
def test_two_reservations_exclude_each_other_if_both_could_write_the_same_record(
    kind: str, other: str, is_refused: bool
) -> None:
    wanted, reserved = lineage(kind, 0, "n", a0=((0, 5),)), lineage(other, 1, "f", a0=((4, 9),))
    committed = [lineage(a0=((0, 9),))] if kind == "replay" else []
    if not is_refused:
        check_reservation(wanted, committed, [reserved], {})
        return
    with pytest.raises(LineageConflictError, match=rf"a/0 \[4, 5\) is reserved for {other} 1 of query f.*--abandon f"):
        check_reservation(wanted, committed, [reserved], {})


def test_a_replay_may_follow_the_replacement_of_a_record_that_was_replayed_before() -> None:
    replayed = replace(lineage("replay", 0, "r1", a0=((12, 14),)), created_ms=10)
    replacement = replace(lineage("replace", 0, "n", a0=((13, 20),)), created_ms=20)
    check_reservation(lineage("replay", 1, "r1", a0=((13, 14),)), [lineage(), replayed, replacement], [], {})
    with pytest.raises(LineageConflictError, match=r"a/0 \[12, 13\) was written by replay 0"):
        check_reservation(lineage("replay", 1, "r1", a0=((12, 14),)), [lineage(), replayed, replacement], [], {})
    late = replace(replayed, created_ms=30)
    with pytest.raises(LineageConflictError, match=r"a/0 \[12, 14\) was written by replay 0"):
        check_reservation(lineage("replay", 1, "r1", a0=((12, 14),)), [lineage(), late, replacement], [], {})


def test_a_released_reservation_covers_nothing_under_its_key() -> None:
    found = abandoned(lineage("backfill", 1, "f"))
    assert (found.key, found.ranges, found.counts) == (("f", 1), {}, BatchCounts())
    assert from_json(to_json(found), "x") == found
    assert uncovered({A0: ((10, 20),)}, [found]) == {A0: ((10, 20),)}


def test_an_error_shows_few_ranges_of_many() -> None:
    many = lineage(a0=tuple((2 * n, 2 * n + 1) for n in range(100)))
    with pytest.raises(LineageConflictError, match="and 95 more ranges"):
        require_same_ranges(lineage(), many)
