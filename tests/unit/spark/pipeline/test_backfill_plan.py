"""The batches of a backfill: what is left, in which order, and what a repetition does."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest

from bridge.spark.pipeline.backfill.backfill_plan import (
    BackfillCommand,
    below_positions,
    count_offsets,
    plan_backfill,
    replacement_id,
    split_ranges,
)
from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage, PartitionRanges
from zkconsumer.types import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def lineage(query: str, batch: int, kind: str, ranges: PartitionRanges) -> BatchLineage:
    return BatchLineage(query, batch, kind, "p", "snapshot", "t", 1, ranges, BatchCounts())


def command(ranges: PartitionRanges, kind: str = "backfill", most: int = 10) -> BackfillCommand:
    return BackfillCommand("f", kind, "p", ranges, most, 7)


def test_a_backfill_plans_what_no_batch_has_in_batches_of_so_many_offsets() -> None:
    stored = [lineage("q", 0, "batch", {A0: ((5, 20),)}), lineage("r", 0, "replay", {A0: ((6, 7),)})]
    plan = plan_backfill(command({A0: ((0, 45),)}), stored, [])
    assert [each.ranges for each in plan.new] == [
        {A0: ((0, 5),)},
        {A0: ((20, 30),)},
        {A0: ((30, 40),)},
        {A0: ((40, 45),)},
    ]
    assert [each.key for each in plan.new] == [("f", number) for number in range(4)]
    assert {(each.kind, each.mode, each.attempt, each.created_ms) for each in plan.new} == {
        ("backfill", "snapshot", "reserved", 7)
    }
    assert (plan.pending, plan.covered) == ((), 15)


def test_a_repetition_continues_its_reservations_and_adds_what_is_neither_reserved_nor_covered() -> None:
    first = plan_backfill(command({A0: ((0, 30),)}), [], [])
    committed, reserved = [first.new[0]], [first.new[1]]  # it was killed before its third reservation
    plan = plan_backfill(command({A0: ((0, 34),)}, most=100), committed, reserved)
    assert plan.pending == (first.new[1],)
    assert [(each.batch, each.ranges) for each in plan.new] == [(2, {A0: ((20, 34),)})]
    assert plan.covered == 10
    assert plan.batches == (first.new[1], plan.new[0])


def test_a_number_is_not_used_again_after_its_reservation_was_released() -> None:
    released = lineage("f", 4, "backfill", {})
    plan = plan_backfill(command({A0: ((0, 5),)}), [released], [])
    assert [each.key for each in plan.new] == [("f", 5)]


def test_a_backfill_of_what_is_there_has_no_batch() -> None:
    plan = plan_backfill(command({A0: ((3, 9),)}), [lineage("q", 0, "batch", {A0: ((0, 10),)})], [])
    assert (plan.batches, plan.covered) == ((), 6)


def test_a_replacement_plans_what_others_have_and_not_what_it_has_written_itself() -> None:
    stored = [lineage("q", 0, "batch", {A0: ((0, 30),)}), lineage("f", 0, "replace", {A0: ((0, 10),)})]
    plan = plan_backfill(command({A0: ((0, 30),)}, "replace"), stored, [lineage("f", 1, "replace", {A0: ((10, 20),)})])
    assert [each.batch for each in plan.pending] == [1]
    assert [(each.batch, each.kind, each.ranges) for each in plan.new] == [(2, "replace", {A0: ((20, 30),)})]


def test_a_replacement_with_reservations_continues_and_a_complete_one_is_made_anew() -> None:
    assert replacement_id("x-", [], []) == "x-1"
    one = lineage("x-1", 0, "replace", {A0: ((0, 1),)})
    assert replacement_id("x-", [one], [replace(one, batch=1)]) == "x-1"
    assert replacement_id("x-", [one, lineage("x-other", 0, "batch", {}), lineage("y-9", 0, "batch", {})], []) == "x-2"


@pytest.mark.parametrize("most", [1, 2, 3, 7, 10, 1_000])
def test_batches_have_all_offsets_once_and_one_range_of_a_partition_and_never_too_many(most: int) -> None:
    ranges = {A0: ((0, 3), (5, 21)), A1: ((7, 8),), B0: ((100, 117),)}
    batches = list(split_ranges(ranges, most))
    found = [
        (tp, offset) for batch in batches for tp, pairs in batch.items() for pair in pairs for offset in range(*pair)
    ]
    assert sorted(found) == sorted((tp, n) for tp, pairs in ranges.items() for pair in pairs for n in range(*pair))
    assert len(set(found)) == len(found)
    assert all(len(pairs) == 1 for batch in batches for pairs in batch.values())
    assert all(1 <= count_offsets(batch) <= most for batch in batches)
    for tp in ranges:
        offsets = [offset for place, offset in found if place == tp]
        assert all(low < high for low, high in pairwise(offsets)), "low offsets first"


def test_a_batch_takes_from_all_partitions_and_uses_what_short_ones_leave() -> None:
    batches = list(split_ranges({A0: ((0, 2),), A1: ((0, 50),)}, 20))
    assert batches[0] == {A0: ((0, 2),), A1: ((0, 18),)}


def test_what_the_live_query_has_yet_to_read_is_left_out() -> None:
    assert below_positions({A0: ((0, 5), (8, 20)), A1: ((3, 9),)}, {A0: 10, A1: 3}) == {A0: ((0, 5), (8, 10))}
    assert below_positions({A0: ((0, 5),)}, {}) == {A0: ((0, 5),)}
