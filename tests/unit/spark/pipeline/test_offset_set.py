"""A set of offsets against a set of integers."""

from __future__ import annotations

import itertools
import random

import pytest

from bridge.spark.pipeline.audit.offset_set import OffsetSet

HIGH = 40


def offsets_of(ranges: list[tuple[int, int]]) -> set[int]:
    return {offset for first, end in ranges for offset in range(first, end)}


@pytest.mark.parametrize("seed", range(30))
def test_it_has_the_offsets_that_were_added(seed: int) -> None:
    choose = random.Random(seed)
    made, expected = OffsetSet(), set[int]()
    for _ in range(12):
        first, end = choose.randrange(HIGH), choose.randrange(HIGH)
        made.add(first, end)
        expected |= set(range(first, end))
        ranges = list(made)
        assert offsets_of(ranges) == expected
        assert all(one[1] < other[0] for one, other in itertools.pairwise(ranges)), "none overlap or touch"
        assert made.count == len(expected)
        low, high = choose.randrange(HIGH), choose.randrange(HIGH)
        wanted = set(range(low, high))
        assert offsets_of(made.common(low, high)) == expected & wanted
        assert offsets_of(made.missing(low, high)) == wanted - expected
        assert made.common_count(low, high) == len(expected & wanted)
        assert made.contains(low, high) == (wanted <= expected)


def test_a_range_that_begins_at_the_largest_offset_is_no_problem() -> None:
    made = OffsetSet([(2**63 - 2, 2**63 - 1), (0, 1)])
    assert made.missing(0, 2**63 - 1) == [(1, 2**63 - 2)]
    assert (made.first, made.end, made.count) == (0, 2**63 - 1, 2)


def test_an_empty_set_misses_everything() -> None:
    assert not OffsetSet()
    assert OffsetSet().missing(3, 5) == [(3, 5)]
    assert OffsetSet().missing(5, 5) == []
