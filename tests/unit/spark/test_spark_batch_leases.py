"""Which partition is with which batch, and what may be given back when."""

from __future__ import annotations

from bridge.spark.group_membership import BatchEnd, LeasedPartition
from bridge.spark.membership.batch_leases import UNSET_POSITION, BatchLeases
from zkconsumer.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))


def lending(*, waits: bool = True) -> BatchLeases:
    made = BatchLeases(waits_for_batch=waits)
    made.add(A, "c-0", 11, 5)
    made.add(B, "c-0", 12, -1)
    made.add(C, "c-0", 13, -2)
    return made


def test_what_nobody_waits_for_is_lent() -> None:
    assert lending().lease_all() == {A: LeasedPartition(11, 5), B: LeasedPartition(12, -1), C: LeasedPartition(13, -2)}


def test_what_no_batch_works_on_is_at_rest_at_once_where_the_group_stands() -> None:
    assert lending().drain([A, B, C]) == {A: 5, B: UNSET_POSITION, C: UNSET_POSITION}


def test_what_a_batch_works_on_is_at_rest_with_its_end() -> None:
    one = lending()
    one.lease_all()
    assert one.drain([A, B]) == {}
    assert one.end_batch({A: BatchEnd(11, 9), C: BatchEnd(13, 4)}) == ({C: 4}, {A: 9, B: UNSET_POSITION})
    assert one.lease_all().keys() == {C}, "what leaves is in no plan"


def test_what_leaves_is_told_only_once() -> None:
    one = lending()
    assert one.drain([A]) == {A: 5}
    assert one.keep_planned([]) == one.end_query() == {}


def test_a_plan_that_does_without_a_partition_gives_it_back() -> None:
    one = lending()
    one.lease_all()
    one.drain([A, B])
    assert one.keep_planned([B]) == {A: 5}
    assert one.leased == {B}


def test_in_the_other_modes_no_batch_is_waited_for() -> None:
    one = lending(waits=False)
    one.lease_all()
    assert one.drain([A]) == {A: 5}
    assert one.end_batch({B: BatchEnd(12, 9)}) == ({}, {}), "and nothing is written"


def test_a_claim_that_is_being_written_is_waited_for_in_every_mode_and_by_everybody() -> None:
    one = lending(waits=False)
    held = one.begin_claim([A, B])
    assert held == {A: 11, B: 12}
    assert one.drain([A]) == {}
    assert one.abandon_drain([A]) == {}, "an owner node that another member makes looks like ours to a multi"
    assert one.set_group_offset(A, 11, 20)
    assert one.end_claim(held) == {A: 20}
    assert not one.set_group_offset(B, 99, 20), "of another ownership"


def test_an_end_under_another_ownership_is_not_written() -> None:
    one = lending()
    one.lease_all()
    one.drop([A])
    one.add(A, "c-0", 21, 7)
    assert one.end_batch({A: BatchEnd(11, 9), TopicPartition("u", 0): BatchEnd(1, 1)}) == ({}, {})


def test_a_batch_that_was_given_up_on_ends_under_the_thread_that_its_partition_moved_to() -> None:
    one = lending()
    one.lease_all()
    one.drain([A])
    assert one.abandon_drain([A]) == {A: 5}
    one.change_thread(A, "c-1", 21)
    assert one.threads[A] == "c-1"
    assert one.end_batch({A: BatchEnd(11, 9)}) == ({A: 9}, {}), "nobody else had it in between"
    assert one.lease_all()[A] == LeasedPartition(21, 5)


def test_an_end_never_goes_back() -> None:
    one = lending()
    one.end_batch({A: BatchEnd(11, 9)})
    assert one.end_batch({A: BatchEnd(11, 7)}) == ({A: 9}, {})


def test_when_the_query_is_gone_nothing_is_waited_for() -> None:
    one = lending()
    one.lease_all()
    assert one.drain([A]) == {}
    assert one.end_query() == {A: 5}
    assert one.drain([B, C]) == {B: UNSET_POSITION, C: UNSET_POSITION}


def test_where_a_seek_put_the_group_is_where_it_is_lent_and_its_next_end_counts() -> None:
    one = lending()
    assert one.set_group_offset(A, 11, 2)
    assert one.lease_all()[A] == LeasedPartition(11, 2)
    assert one.end_batch({A: BatchEnd(11, 3)}) == ({A: 3}, {}), "though the group stood at 5"
