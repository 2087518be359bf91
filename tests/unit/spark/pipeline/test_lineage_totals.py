"""Batches are merged as they come: what is kept of them, and what is seen."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.audit.lineage_totals import GROUPS_MAX, BatchGap, LineageTotals
from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage, abandoned, partition_ranges
from zkconsumer.types import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def lineage(
    batch: int,
    ranges: Mapping[TopicPartition, tuple[int, int]],
    rows: int | None = None,
    *,
    dead: int = 0,
    filtered: int = 0,
    skipped: int = 0,
    kind: str = "batch",
    query: str = "q",
    mode: str = "claim",
) -> BatchLineage:
    """``rows`` None: so many that the batch closes."""
    offsets = sum(end - first for first, end in ranges.values())
    counts = BatchCounts(offsets - dead - filtered - skipped if rows is None else rows, dead, filtered, skipped)
    pairs = partition_ranges(OffsetRange(tp, first, end) for tp, (first, end) in ranges.items())
    return BatchLineage(query, batch, kind, "clicks", mode, f"a{batch}", 1_000 + batch, pairs, counts)


def totals_of(*lineages: BatchLineage) -> LineageTotals:
    made = LineageTotals()
    for each in lineages:
        made.add(each)
    return made


def test_many_batches_that_close_need_two_ranges() -> None:
    made = totals_of(*(lineage(n, {T0: (n * 10, n * 10 + 10), T1: (n, n + 1)}) for n in range(20_000)))
    assert list(made.partitions[T0].covered) == [(0, 200_000)]
    assert list(made.partitions[T1].covered) == [(0, 20_000)]
    assert (made.groups, made.doubles, made.gaps, made.dead_letters) == ([], [], [], {})
    assert made.offsets == made.counts.rows == 220_000
    assert made.newest is not None
    assert made.newest[1].batch == 19_999


def test_batches_that_do_not_close_are_merged_to_a_limit() -> None:
    count = 4 * GROUPS_MAX
    made = totals_of(*(lineage(n, {T0: (n * 10, n * 10 + 10)}, rows=9) for n in range(count)))
    assert len(made.groups) <= GROUPS_MAX
    assert sum(each.missing for each in made.groups) == count
    assert sum(each.batches for each in made.groups) == count
    assert sum(each.offsets for each in made.groups) == 10 * count
    first = made.groups[0]
    assert first.ranges == {T0: ((0, first.offsets),)}
    assert first.name.startswith("batch 0 of query q to batch ")


def test_each_count_is_part_of_the_identity() -> None:
    made = totals_of(lineage(0, {T0: (0, 10)}, rows=4, dead=3, filtered=2, skipped=1))
    assert made.groups == []
    assert made.dead_letters == {("q", 0): 3}
    [group] = totals_of(lineage(0, {T0: (0, 10)}, rows=3, dead=3, filtered=2, skipped=1)).groups
    assert group.missing == 1


def test_more_records_than_offsets_are_a_surplus_and_hide_nothing() -> None:
    made = totals_of(lineage(0, {T0: (0, 10)}, rows=12), lineage(1, {T0: (10, 20)}, rows=8))
    assert made.surplus == [("batch 0 of query q", 2)]
    assert [each.missing for each in made.groups] == [2]


def test_offsets_of_two_lineages_are_doubles() -> None:
    made = totals_of(lineage(0, {T0: (0, 10), T1: (0, 5)}), lineage(0, {T0: (7, 12)}, query="r"))
    assert made.doubles == [("batch 0 of query r", OffsetRange(T0, 7, 10))]
    assert made.doubled_offsets == 3
    assert list(made.partitions[T0].covered) == [(0, 12)]


def test_a_replay_covers_nothing() -> None:
    made = totals_of(
        lineage(0, {T0: (0, 10)}, dead=2), lineage(0, {T0: (3, 5)}, rows=1, filtered=1, kind="replay", query="r")
    )
    assert (made.doubles, made.offsets, made.counts.rows) == ([], 10, 8)
    assert (made.replayed, made.replays.rows, made.replays.filtered) == (1, 1, 1)


def test_a_replacement_is_no_double_and_its_own_counts_are_compared() -> None:
    made = totals_of(
        lineage(0, {T0: (0, 10)}),
        lineage(1, {T0: (2, 6)}, rows=3, kind="replace", query="r"),
        lineage(2, {T0: (2, 6)}, rows=5, kind="replace", query="r"),
    )
    assert (made.doubles, made.replacements, made.replaced_offsets) == ([], 2, 8)
    assert (made.counts.rows, made.offsets) == (10, 10)
    assert [each.missing for each in made.groups] == [1]
    assert made.surplus == [("replace 2 of query r", 1)]


def test_a_released_reservation_counts_as_nothing() -> None:
    reserved = lineage(0, {T0: (0, 10)}, kind="backfill", query="b")
    made = totals_of(abandoned(reserved))
    assert (made.offsets, made.groups, made.partitions) == (0, [], {})


def test_the_hole_beside_a_missing_batch_is_suspect_and_others_are_not() -> None:
    made = totals_of(
        lineage(0, {T0: (0, 10), T1: (0, 10)}),
        lineage(1, {T0: (15, 20)}),  # the hole [10, 15) has no missing batch
        lineage(3, {T0: (30, 40)}),
        lineage(4, {T0: (45, 50), T1: (20, 30)}),
    )
    assert made.gaps == [BatchGap("q", 2, 3)]
    assert list(made.partitions[T0].suspects) == [(20, 30)]
    assert list(made.partitions[T1].suspects) == [(10, 20)]


def test_the_first_batch_of_a_query_is_missing_too() -> None:
    assert totals_of(lineage(2, {T0: (5, 10)})).gaps == [BatchGap("q", 0, 2)]


def test_a_hole_between_two_queries_is_not_suspect() -> None:
    made = totals_of(lineage(0, {T0: (0, 10)}), lineage(0, {T0: (20, 30)}, query="r"))
    assert not made.partitions[T0].suspects


def test_a_backfill_fills_a_hole_and_has_no_batch_number() -> None:
    made = totals_of(
        lineage(7, {T0: (10, 20)}, kind="backfill", query="b"), lineage(0, {T0: (0, 10)}), lineage(1, {T0: (20, 30)})
    )
    assert list(made.partitions[T0].covered) == [(0, 30)]
    assert (made.batches, made.backfills, made.gaps) == (2, 1, [])


def test_lineages_that_are_not_sorted_are_refused() -> None:
    with pytest.raises(AssertionError, match="sorted"):
        totals_of(lineage(1, {T0: (0, 1)}), lineage(0, {T0: (1, 2)}))
