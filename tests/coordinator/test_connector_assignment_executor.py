"""What is done between the machine and the streams, step by step, without a thread: order is the law here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from bridge.client.assignment_executor import (
    PARTITION_LOST_REASON,
    AssignmentExecutor,
    AssignmentLimits,
    AssignmentWait,
)
from bridge.client.stream_assignor import StreamAssignor
from zkconsumer.errors import TopicAuthorizationException
from zkconsumer.kafka.group import commands as cmd
from zkconsumer.kafka.group import events as cev
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.member import commands as do
from zkconsumer.member import ownership
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION, TopicSubscription
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.types import TopicPartition

LIMITS = AssignmentLimits(drain_ms=2_000, listener_ms=5_000, positions_ms=100, new_from_beginning=True)


def tps(*numbers: int) -> frozenset[TopicPartition]:
    return frozenset(TopicPartition("t", number) for number in numbers)


def ordered(*numbers: int) -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition("t", number) for number in numbers)


class World:
    """Processor, machine, listener, observer and clock of one ``AssignmentExecutor``; ``said``: what it did."""

    member = "m"

    def __init__(self, limits: AssignmentLimits = LIMITS, threads: int = 1) -> None:
        self.said: list[Any] = []
        self.waits: dict[AssignmentWait, int] = {}
        self.shares = 0
        self.listener: object | None = None
        self.handing = AssignmentExecutor(
            StreamAssignor("m", "range", exclude_internal_topics=True),
            limits,
            self,  # type: ignore[arg-type]
            observing=self,  # type: ignore[arg-type]
            feed=self.said.append,
            wait=self._wait,
            assignment_complete=self._share_held,
            refused=self._say,
        )
        self.handing.processor = self  # type: ignore[assignment]
        self.handing.subscription = TopicSubscription(STATIC_SUBSCRIPTION, {"t": threads})

    def _wait(self, what: AssignmentWait, timeout_ms: int | None) -> None:
        if timeout_ms is None:
            self.waits.pop(what, None)
        else:
            self.waits[what] = timeout_ms

    def _share_held(self) -> None:
        self.shares += 1

    def command_executed(self, command: do.Command) -> None:
        if isinstance(command, do.AnnounceAssignment):
            self.said.append("share")

    def _say(self, command: object) -> None:
        self.said.append(command)

    execute = call_before_releasing = call_before_starting = call_partitions_lost = _say

    def taken(self) -> list[Any]:
        taken = list(self.said)
        self.said.clear()
        return taken

    def own(self, offsets: Mapping[int, int | None], generation: int = 1) -> None:
        """Take these up, from these committed offsets."""
        self.handing.start_fetching(cmd.StartPartitions(tps(*offsets), generation))
        [asked] = [each for each in self.taken() if isinstance(each, cev.FetchAsked)]
        told = {TopicPartition("t", n): None if at is None else cev.Offset(at) for n, at in offsets.items()}
        self.handing.fetched(cmd.FetchDone(asked.number, told))


def test_partitions_are_read_from_what_is_committed_and_the_rest_by_the_reset_policy() -> None:
    world = World()
    world.own({0: 7, 1: None})
    started, share = world.taken()
    assert started.positions == {TopicPartition("t", 0): 7, TopicPartition("t", 1): -1}
    assert started.sources == {TopicPartition("t", 0): OffsetSource.KAFKA, TopicPartition("t", 1): OffsetSource.NEITHER}
    assert set(started.epochs.values()) == {1}
    assert share == "share"
    assert world.shares == 1


@pytest.mark.parametrize("from_beginning", [True, False])
def test_what_is_new_and_has_no_offset_is_read_from_its_beginning(from_beginning: bool) -> None:
    world = World(replace(LIMITS, new_from_beginning=from_beginning))
    world.handing.start_fetching(cmd.StartPartitions(tps(0, 1, 2), 2, new=tps(1, 2)))
    [asked] = world.taken()
    world.handing.fetched(cmd.FetchDone(asked.number, {TopicPartition("t", 2): cev.Offset(7)}))
    [started, _] = world.taken()
    start = ownership.BEGINNING if from_beginning else -1
    assert [started.positions[tp] for tp in ordered(0, 1, 2)] == [-1, start, 7]


def test_positions_that_cannot_be_told_are_asked_for_again_after_a_pause() -> None:
    world = World()
    world.handing.start_fetching(cmd.StartPartitions(tps(0), 1))
    [asked] = world.taken()
    world.handing.fetched(cmd.FetchDone(asked.number, {}, RuntimeError("no")))  # type: ignore[arg-type]
    assert world.taken() == []
    assert world.waits == {AssignmentWait.POSITIONS: 100}
    world.handing.fired(AssignmentWait.POSITIONS)
    [again] = world.taken()
    assert again.partitions == tps(0)
    assert again.number != asked.number


def test_what_the_coordinator_refuses_for_good_is_not_asked_again_and_the_program_gets_it() -> None:
    world = World()
    world.handing.start_fetching(cmd.StartPartitions(tps(0), 1))
    [asked] = world.taken()
    error = TopicAuthorizationException("the leader gave us what we may not read")
    assert world.handing.fetched(cmd.FetchDone(asked.number, {}, error))
    assert world.taken() == [error]
    assert world.waits == {}
    world.handing.start_fetching(cmd.StartPartitions(tps(1), 2))
    [asked] = world.taken()
    world.handing.drain(ownership.Drain(ordered(0, 1)))
    world.handing.fetched(cmd.FetchDone(asked.number, {}, error))
    assert world.taken() == [], "it is not ours any more"


def test_nothing_is_committed_or_given_back_before_all_that_leaves_is_at_rest() -> None:
    world = World()
    world.own({0: 0, 1: 0})
    world.taken()
    world.handing.drain(ownership.Drain(ordered(0, 1)))
    world.handing.collect_positions()
    assert world.taken() == [ownership.Drain(ordered(0, 1))]
    world.handing.drained(ownership.PartitionsDrained({TopicPartition("t", 0): 5}))
    assert world.taken() == []
    world.handing.drained(ownership.PartitionsDrained({TopicPartition("t", 1): 6}))
    assert world.taken() == [ownership.CollectPositions()]
    assert world.waits == {}
    world.handing.collected(ownership.PositionsCollected({}))
    expected = {TopicPartition("t", 0): 5, TopicPartition("t", 1): 6}
    assert world.taken() == [ownership.PositionsCollected(expected)]
    world.handing.invoke(cmd.Invoke(9, Callback.REVOKED, tps(0, 1)))
    assert world.taken() == [ownership.DropPartitions(ordered(0, 1), "released"), cev.CallbackDone(9)]
    assert world.handing.partitions == frozenset()


def test_who_does_not_come_back_in_time_is_not_waited_for() -> None:
    world = World()
    world.own({0: 0})
    world.handing.drain(ownership.Drain(ordered(0)))
    world.handing.invoke(cmd.Invoke(9, Callback.REVOKED, tps(0)))
    world.taken()
    assert world.waits == {AssignmentWait.DRAIN: 2_000}
    world.handing.fired(AssignmentWait.DRAIN)
    assert world.taken() == [ownership.ForceDrain(ordered(0))]
    world.handing.drained(ownership.PartitionsDrained({TopicPartition("t", 0): 3}))
    assert world.taken() == [ownership.DropPartitions(ordered(0), "released"), cev.CallbackDone(9)]


def test_what_is_lost_is_dropped_at_once_and_the_listener_not_asked() -> None:
    world = World()
    world.listener = object()
    world.own({0: 0})
    world.handing.drain(ownership.Drain(ordered(0)))
    world.taken()
    world.handing.invoke(cmd.Invoke(9, Callback.LOST, tps(0)))
    [dropped, done] = world.taken()
    assert dropped.partitions == ordered(0)
    assert done == cev.CallbackDone(9)


def test_a_partition_given_back_while_its_position_is_asked_for_is_not_started() -> None:
    world = World()
    world.handing.start_fetching(cmd.StartPartitions(tps(0, 1), 1))
    [asked] = world.taken()
    world.handing.drain(ownership.Drain(ordered(0)))
    world.handing.fetched(cmd.FetchDone(asked.number, {TopicPartition("t", 1): cev.Offset(4)}))
    started = world.taken()[0]
    assert list(started.positions) == [*ordered(1)]


def test_the_listener_is_told_in_turns_and_waited_for() -> None:
    world = World()
    world.listener = object()
    world.handing.invoke(cmd.Invoke(1, Callback.ASSIGNED, tps(0)))
    assert world.taken() == [do.CallBeforeReleasing(0, ())]
    world.handing.listener_returned()
    [started] = world.taken()
    assert isinstance(started, do.CallBeforeStarting)
    assert list(started.assignment) == [*ordered(0)]
    world.handing.listener_returned()
    assert world.taken() == [cev.CallbackDone(1)]
    world.own({0: 0})
    world.handing.drain(ownership.Drain(ordered(0)))
    world.handing.drained(ownership.PartitionsDrained({TopicPartition("t", 0): 3}))
    world.taken()
    world.handing.invoke(cmd.Invoke(2, Callback.REVOKED, tps(0)))
    assert world.taken() == [do.CallBeforeReleasing(0, ordered(0))]
    world.handing.listener_returned()
    assert world.taken() == [ownership.DropPartitions(ordered(0), "released"), cev.CallbackDone(2)]


def test_a_listener_that_takes_too_long_is_passed_over_and_not_called_a_second_time_meanwhile(
    caplog: pytest.LogCaptureFixture,
) -> None:
    world = World()
    world.listener = object()
    world.own({0: 0})
    world.taken()
    world.handing.invoke(cmd.Invoke(1, Callback.REVOKED, tps(0)))
    world.taken()
    world.handing.fired(AssignmentWait.LISTENER)
    words = "call=before_releasing_partitions timeout_ms=5000: the rebalance continues without it"
    assert [record.getMessage() for record in caplog.records] == [
        f"listener-timeout member=m {words} (rebalance.listener.timeout.ms)"
    ]
    assert world.taken() == [ownership.DropPartitions(ordered(0), "released"), cev.CallbackDone(1)]
    world.handing.invoke(cmd.Invoke(2, Callback.ASSIGNED, tps(0)))
    assert world.taken() == []
    world.handing.listener_returned()
    assert [type(each) for each in world.taken()] == [do.CallBeforeStarting]


def test_a_start_call_that_was_skipped_is_made_when_the_late_call_returns() -> None:
    world = World()
    world.listener = object()
    world.handing.invoke(cmd.Invoke(1, Callback.ASSIGNED, tps(0)))
    assert world.taken() == [do.CallBeforeReleasing(0, ())]
    world.handing.fired(AssignmentWait.LISTENER)
    assert world.taken() == [cev.CallbackDone(1)]
    world.own({0: 0})
    world.taken()
    world.handing.listener_returned()
    [start] = world.taken()
    assert list(start.assignment) == [*ordered(0)]
    world.handing.listener_returned()
    assert world.taken() == []
    world.handing.invoke(cmd.Invoke(2, Callback.ASSIGNED, tps()))
    assert world.taken() == [do.CallBeforeReleasing(0, ())], "the two calls alternate"


def test_after_a_late_start_call_the_listener_is_called_with_the_present_partitions() -> None:
    world = started(0)
    world.handing.invoke(cmd.Invoke(2, Callback.ASSIGNED, tps(1)))
    world.handing.listener_returned()
    assert [type(each) for each in world.taken()] == [do.CallBeforeReleasing, do.CallBeforeStarting]
    world.handing.fired(AssignmentWait.LISTENER)
    world.own({1: 0}, 2)
    world.handing.invoke(cmd.Invoke(3, Callback.ASSIGNED, tps(2)))
    world.handing.fired(AssignmentWait.LISTENER)
    world.own({2: 0}, 3)
    world.taken()
    world.handing.listener_returned()
    assert world.taken() == [do.CallBeforeReleasing(0, ())]
    world.handing.listener_returned()
    [start] = world.taken()
    assert list(start.assignment) == [*ordered(0, 1, 2)]
    world.handing.listener_returned()
    assert world.taken() == [], "no call was skipped since"


def test_a_close_does_not_call_the_listener() -> None:
    world = World()
    world.listener = object()
    world.own({0: 0})
    world.taken()
    world.handing.close()
    world.handing.invoke(cmd.Invoke(1, Callback.REVOKED, tps(0)))
    assert world.taken() == [ownership.DropPartitions(ordered(0), "released"), cev.CallbackDone(1)]


def started(*numbers: int) -> World:
    """A member whose listener was called about the start of these."""
    world = World()
    world.listener = object()
    world.handing.invoke(cmd.Invoke(1, Callback.ASSIGNED, tps(*numbers)))
    for _ in range(2):
        world.handing.listener_returned()
    world.own(dict.fromkeys(numbers, 0))
    world.taken()
    return world


def test_the_listener_is_called_about_what_is_lost_and_not_waited_for() -> None:
    world = started(0, 1, 2)
    world.handing.invoke(cmd.Invoke(2, Callback.LOST, tps(0, 1)))
    assert world.taken() == [
        ownership.DropPartitions(ordered(0, 1), PARTITION_LOST_REASON),
        do.CallPartitionsLost(ordered(0, 1)),
        cev.CallbackDone(2),
    ]
    world.handing.invoke(cmd.Invoke(3, Callback.LOST, tps(1, 2)))
    assert world.taken() == [
        ownership.DropPartitions(ordered(2), PARTITION_LOST_REASON),
        do.CallPartitionsLost(ordered(2)),
        cev.CallbackDone(3),
    ], "each once"


def test_what_is_lost_before_it_is_read_is_reported_as_well() -> None:
    world = World()
    world.listener = object()
    world.handing.invoke(cmd.Invoke(1, Callback.ASSIGNED, tps(0, 1)))
    world.handing.listener_returned()
    world.taken()
    world.handing.invoke(cmd.Invoke(2, Callback.LOST, tps(0)))
    assert world.taken() == [do.CallPartitionsLost(ordered(0)), cev.CallbackDone(2)], (
        "the call about its start is under way"
    )
    world.handing.listener_returned()
    world.handing.start_fetching(cmd.StartPartitions(tps(1), 1))
    world.taken()
    world.handing.invoke(cmd.Invoke(3, Callback.LOST, tps(1)))
    assert world.taken() == [do.CallPartitionsLost(ordered(1)), cev.CallbackDone(3)], "where it begins is not known yet"


def test_what_the_listener_gave_back_is_not_reported_as_lost() -> None:
    world = started(0, 1)
    world.handing.invoke(cmd.Invoke(2, Callback.REVOKED, tps(0)))
    world.handing.listener_returned()
    world.taken()
    world.handing.invoke(cmd.Invoke(3, Callback.LOST, tps(0, 1)))
    assert world.taken() == [
        ownership.DropPartitions(ordered(1), PARTITION_LOST_REASON),
        do.CallPartitionsLost(ordered(1)),
        cev.CallbackDone(3),
    ]


def test_a_close_reports_no_loss() -> None:
    world = started(0, 1)
    world.handing.close()
    world.handing.invoke(cmd.Invoke(2, Callback.LOST, tps(0, 1)))
    assert world.taken() == [ownership.DropPartitions(ordered(0, 1), PARTITION_LOST_REASON), cev.CallbackDone(2)]


ERROR = TopicAuthorizationException("no READ on t")
ENDED = "an error ended the member: no READ on t"


@pytest.mark.parametrize("is_closed_too", [True, False])
def test_what_an_ended_member_still_has_is_given_back_as_in_a_rebalance(is_closed_too: bool) -> None:
    world = started(0, 1)
    world.handing.end(ERROR)
    if is_closed_too:
        world.handing.close()
    world.handing.invoke(cmd.Invoke(2, Callback.REVOKED, tps(0, 1)))
    assert world.taken() == [do.CallBeforeReleasing(0, ordered(0, 1))]
    world.handing.listener_returned()
    assert world.taken() == [ownership.DropPartitions(ordered(0, 1), "released"), cev.CallbackDone(2)]
    world.handing.stopped()
    assert world.taken() == []


def test_what_an_ended_member_has_not_any_more_is_lost_by_the_error() -> None:
    world = started(0, 1)
    world.handing.end(ERROR)
    world.handing.invoke(cmd.Invoke(2, Callback.LOST, tps(0, 1)))
    assert world.taken() == [
        ownership.DropPartitions(ordered(0, 1), ENDED),
        do.CallPartitionsLost(ordered(0, 1)),
        cev.CallbackDone(2),
    ]


def test_what_an_ended_member_could_not_give_back_in_time_is_lost() -> None:
    world = started(0, 1)
    world.handing.end(ERROR)
    world.handing.stopped()
    assert world.taken() == [ownership.DropPartitions(ordered(0, 1), ENDED), do.CallPartitionsLost(ordered(0, 1))]


def test_a_release_that_the_listener_was_called_about_is_one_though_the_member_stops_meanwhile() -> None:
    world = started(0, 1)
    world.handing.end(ERROR)
    world.handing.invoke(cmd.Invoke(2, Callback.REVOKED, tps(0)))
    world.taken()
    world.handing.stopped()
    assert world.taken() == [
        ownership.DropPartitions(ordered(0), "released"),
        cev.CallbackDone(2),
        ownership.DropPartitions(ordered(1), ENDED),
        do.CallPartitionsLost(ordered(1)),
    ]


def test_an_ended_member_starts_nothing() -> None:
    world = started(0)
    world.handing.end(ERROR)
    world.handing.invoke(cmd.Invoke(2, Callback.ASSIGNED, tps(1)))
    assert world.taken() == [cev.CallbackDone(2)]


def test_what_falls_to_another_stream_is_brought_to_rest_and_then_moved() -> None:
    world = World(threads=2)
    world.own({0: 0, 1: 0})
    world.taken()
    # 0 and 1 were one each; of four partitions both are the first stream's.
    world.handing.start_fetching(cmd.StartPartitions(tps(2, 3), 2))
    asked, drain = world.taken()
    assert asked.partitions == tps(2, 3)
    assert drain == ownership.Drain(ordered(1))
    world.handing.drained(ownership.PartitionsDrained({TopicPartition("t", 1): 8}))
    assert world.taken() == [ownership.MoveToThread({TopicPartition("t", 1): "m-0"}, {TopicPartition("t", 1): 2})]


def test_what_only_changes_its_thread_is_not_waited_for_before_something_is_given_back() -> None:
    world = World(threads=2)
    world.own({0: 0, 1: 0})
    world.handing.start_fetching(cmd.StartPartitions(tps(2, 3), 2))
    world.handing.drain(ownership.Drain(ordered(0)))
    world.handing.invoke(cmd.Invoke(9, Callback.REVOKED, tps(0)))
    assert world.taken()[-2:] == [ownership.Drain(ordered(1)), ownership.Drain(ordered(0))]
    world.handing.drained(ownership.PartitionsDrained({TopicPartition("t", 0): 5}))
    assert world.taken() == [ownership.DropPartitions(ordered(0), "released"), cev.CallbackDone(9)]


def test_a_move_that_is_under_way_delays_no_commit_and_becomes_a_release() -> None:
    world = World(threads=2)
    world.own({0: 0, 1: 0})
    world.handing.start_fetching(cmd.StartPartitions(tps(2, 3), 2))
    world.taken()
    world.handing.collect_positions()
    assert world.taken() == [ownership.CollectPositions()]
    world.handing.drain(ownership.Drain(ordered(1)))
    world.handing.invoke(cmd.Invoke(5, Callback.REVOKED, tps(1)))
    assert world.taken() == []
    world.handing.drained(ownership.PartitionsDrained({TopicPartition("t", 1): 8}))
    assert world.taken() == [ownership.DropPartitions(ordered(1), "released"), cev.CallbackDone(5)]


def test_an_offset_out_of_range_is_told_where_something_was_committed() -> None:
    world = World()
    world.own({0: 7, 1: None})
    assert world.handing.on_offset_reset(ownership.OffsetReset(TopicPartition("t", 0), 3))
    assert not world.handing.on_offset_reset(ownership.OffsetReset(TopicPartition("t", 1), 3))


@pytest.mark.parametrize(
    ("strategy", "threads", "expected"),
    [
        ("range", 3, {0: "m-0", 1: "m-0", 2: "m-1", 5: "m-2"}),
        ("range", 1, {0: "m-0", 1: "m-0", 2: "m-0", 5: "m-0"}),
        ("range", 6, {0: "m-0", 1: "m-1", 2: "m-2", 5: "m-3"}),
    ],
)
def test_a_share_is_divided_among_streams_by_the_old_rule(
    strategy: str, threads: int, expected: dict[int, str]
) -> None:
    spread = StreamAssignor("m", strategy, exclude_internal_topics=True)
    found = spread.threads(TopicSubscription(STATIC_SUBSCRIPTION, {"t": threads}), tps(0, 1, 2, 5))
    assert {tp.partition: str(thread) for tp, thread in found.items()} == expected


def test_roundrobin_gives_each_stream_its_turn() -> None:
    spread = StreamAssignor("m", "roundrobin", exclude_internal_topics=True)
    found = spread.threads(TopicSubscription(STATIC_SUBSCRIPTION, {"t": 2}), tps(0, 1, 2, 3))
    assert sorted(str(thread) for thread in found.values()) == ["m-0", "m-0", "m-1", "m-1"]


def test_a_filter_takes_topics_and_passes_over_internal_ones() -> None:
    spread = StreamAssignor("m", "range", exclude_internal_topics=True)
    wanted = TopicSubscription("white_list", {"t.*|__consumer_offsets": 1})
    assert spread.topics(wanted, ["t1", "u", "__consumer_offsets", "t2"]) == {"t1", "t2"}


def test_offsets_of_partitions_that_were_revoked_meanwhile_complete_no_assignment() -> None:
    """The member rejoins: its assignment is complete when it has the next one."""
    world = World()
    world.handing.start_fetching(cmd.StartPartitions(tps(0), 1))
    [asked] = world.taken()
    world.handing.drain(ownership.Drain(ordered(0)))
    assert world.handing.fetched(cmd.FetchDone(asked.number, {TopicPartition("t", 0): cev.Offset(7)}))
    assert world.taken() == []
    assert world.shares == 0


def test_a_partition_that_waits_for_its_offset_starts_on_the_thread_of_the_latest_assignment() -> None:
    world = World(threads=2)
    world.handing.start_fetching(cmd.StartPartitions(tps(1), 1))
    [asked] = world.taken()
    world.handing.start_fetching(cmd.StartPartitions(tps(0), 2))
    world.taken()
    world.handing.fetched(cmd.FetchDone(asked.number, {TopicPartition("t", 1): cev.Offset(7)}))
    [started] = world.taken()
    assert started.threads == {TopicPartition("t", 1): "m-1"}, "m-0 has t/0"
