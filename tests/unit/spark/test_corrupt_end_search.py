"""The end of a damage is found by fetches, one offset after the other; a range of any size ends after some of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.spark.decode.corrupt_end_search import ONE_BY_ONE_MAX, CorruptEndSearch


def searched(first: int, limit: int, is_readable: Callable[[int], bool]) -> tuple[int, list[int]]:
    search, probes = CorruptEndSearch(first, limit), []
    while (probe := search.next_probe) is not None:
        probes.append(probe)
        search.record(is_readable=is_readable(probe))
    return search.end, probes


@pytest.mark.parametrize("end", [11, 12, 57, 99, 100])
def test_the_end_is_the_first_offset_that_can_be_read(end: int) -> None:
    found, probes = searched(10, 100, lambda offset: offset >= end)
    assert found == end
    assert probes == list(range(11, min(end, 99) + 1))


def test_the_limit_is_never_fetched() -> None:
    assert searched(10, 11, lambda _: pytest.fail("fetched")) == (11, [])
    assert searched(10, 12, lambda _: False) == (12, [11])


def test_no_readable_offset_is_passed_over_while_the_search_is_one_by_one() -> None:
    assert searched(0, 10**9, lambda offset: offset in (500, 900))[0] == 500


@pytest.mark.parametrize("end", [ONE_BY_ONE_MAX + 2, ONE_BY_ONE_MAX + 777, 10**6, 2**40 - 1, 2**40])
def test_a_large_damage_is_found_with_a_limited_number_of_fetches(end: int) -> None:
    found, probes = searched(0, 2**40, lambda offset: offset >= end)
    assert found == end
    assert len(probes) < ONE_BY_ONE_MAX + 100
