"""What came into being while a member was in its group."""

from __future__ import annotations

import pytest

from tests.coordinator.client_harness import T, U
from zkconsumer.kafka.group.coordinator_new_partitions import CoordinatorNewPartitions


@pytest.fixture
def newcomers() -> CoordinatorNewPartitions:
    """Of a member that has taken t/0 up, of two."""
    made = CoordinatorNewPartitions()
    made.on_assignment(T[:1], {"t": 2}, by_pattern=False)
    assert made.new == frozenset()
    return made


def test_what_was_there_before_is_not_new_whoever_had_it(newcomers: CoordinatorNewPartitions) -> None:
    newcomers.on_assignment(T[:2], {"t": 2}, by_pattern=False)
    assert newcomers.new == frozenset()


def test_what_came_since_is_new_for_as_long_as_it_is_ours(newcomers: CoordinatorNewPartitions) -> None:
    newcomers.on_assignment([T[0], T[3]], {"t": 4}, by_pattern=False)
    assert newcomers.new == {T[3]}
    newcomers.on_assignment(T[2:4], {"t": 4}, by_pattern=False)
    assert newcomers.new == {T[3]}
    newcomers.on_assignment(T[:1], {"t": 4}, by_pattern=False)
    newcomers.on_assignment(T[:4], {"t": 4}, by_pattern=False)
    assert newcomers.new == frozenset()


def test_the_leader_may_know_of_it_before_we_do(newcomers: CoordinatorNewPartitions) -> None:
    newcomers.on_assignment([T[3]], {"t": 2}, by_pattern=False)
    assert newcomers.new == {T[3]}
    newcomers.on_assignment(T[2:4], {"t": 4}, by_pattern=False)
    assert newcomers.new == {T[3]}, "the other one was there as well"


def test_a_topic_of_a_pattern_is_new_as_a_whole_and_a_new_name_is_not(newcomers: CoordinatorNewPartitions) -> None:
    newcomers.on_assignment([T[0], *U[:2]], {"t": 2, "u": 2}, by_pattern=True)
    assert newcomers.new == set(U[:2])
    by_name = CoordinatorNewPartitions()
    by_name.on_assignment(T[:1], {"t": 2}, by_pattern=False)
    by_name.on_assignment([T[0], *U[:2]], {"t": 2, "u": 2}, by_pattern=False)
    assert by_name.new == frozenset()


def test_a_topic_that_was_missing_is_new_when_it_comes_and_when_it_comes_again() -> None:
    newcomers = CoordinatorNewPartitions()
    newcomers.on_assignment([], {"t": 0}, by_pattern=False)
    newcomers.on_assignment(T[:1], {"t": 1}, by_pattern=False)
    assert newcomers.new == {T[0]}
    newcomers.on_assignment([], {"t": 0}, by_pattern=False)
    newcomers.on_assignment(T[:1], {"t": 1}, by_pattern=False)
    assert newcomers.new == {T[0]}


@pytest.mark.parametrize("by_pattern", [True, False])
def test_what_no_broker_has_told_yet_proves_nothing_until_one_does(by_pattern: bool) -> None:
    newcomers = CoordinatorNewPartitions()
    newcomers.on_assignment(T[:1], {"t": None}, by_pattern=by_pattern)
    newcomers.on_assignment(T[:2], {"t": None}, by_pattern=by_pattern)
    assert newcomers.new == frozenset()
    newcomers.on_metadata({"t": 3})
    newcomers.on_metadata({"t": 4})
    newcomers.on_assignment(T[2:4], {"t": 4}, by_pattern=by_pattern)
    assert newcomers.new == {T[3]}


def test_another_membership_begins_with_what_is_there_then(newcomers: CoordinatorNewPartitions) -> None:
    newcomers.on_assignment(T[2:3], {"t": 3}, by_pattern=False)
    newcomers.forget()
    newcomers.on_assignment(T[2:3], {"t": 3}, by_pattern=False)
    assert newcomers.new == frozenset()
