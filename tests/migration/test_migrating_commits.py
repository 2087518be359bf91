"""A commit of the program while the group moves: which store has it first, and what the other one gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from bridge.migration.dual.connector.migrating_commits import MigratingCommits
from bridge.migration.dual.machine import machine_messages as val
from bridge.migration.dual.machine.migrating_partitions import MigratingPartitions
from bridge.migration.dual.machine.phase_rules import PHASE_RULES, MemberPhase, PhaseRules
from zkconsumer.member.offset_stores import KAFKA_NAME, ZOOKEEPER_NAME, CommitFailure, OffsetSource
from zkconsumer.member.ownership import StartFetching
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
POSITIONS = {A: 5, B: 7, C: 9}
TIMEOUT_MS = 5_000


class Store:
    """One side's ``commit``: what it was given, and what it refuses."""

    def __init__(self, name: str, *refuses: TopicPartition) -> None:
        self.refuses = {tp: CommitFailure("no", name) for tp in refuses}
        self.given: dict[TopicPartition, int] = {}
        self.event_loop = self

    def call_soon(self, action: Callable[[], None]) -> None:
        """The control thread of ZooKeeper's side, in place."""
        action()

    def commit(self, offsets: Mapping[TopicPartition, int], *_: Any, **__: Any) -> dict[TopicPartition, CommitFailure]:
        self.given |= offsets
        return {tp: why for tp, why in self.refuses.items() if tp in offsets}


class Machine:
    """What the desk asks the machine: all three partitions run here, and have an owner node of ours."""

    def __init__(self, duty: PhaseRules) -> None:
        self.rules = duty
        self.partitions = MigratingPartitions(lambda _: None)
        sources = dict.fromkeys(POSITIONS, OffsetSource.NEITHER)
        threads = dict.fromkeys(POSITIONS, "c-0")
        self.partitions.start(StartFetching(POSITIONS, threads, sources, dict.fromkeys(POSITIONS, 1)))
        for tp in POSITIONS:
            self.partitions[tp].is_owned = True


class Listener:
    """The rebalance listener is not being called."""

    is_inside_awaited_call = False


class Member:
    failure = None
    listener = Listener()

    def __init__(self, phase: MemberPhase, zookeeper: Store, coordinator: Store) -> None:
        self.machine = Machine(PHASE_RULES[phase])
        self.clock = ManualClock()
        self.zookeeper, self.coordinator = zookeeper, coordinator
        self.heard: list[val.MigratingMemberEvent] = []

    def handle_event(self, event: val.MigratingMemberEvent) -> None:
        self.heard.append(event)

    def check_zookeeper_offsets(self) -> None: ...

    def metadata(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        return dict.fromkeys(positions, "words")


def commit(member: Member) -> dict[TopicPartition, CommitFailure]:
    return MigratingCommits(cast("Any", member)).commit(POSITIONS, TIMEOUT_MS)


@pytest.mark.parametrize("phase", [MemberPhase.COPIED, MemberPhase.RETURNING])
def test_offsets_that_kafka_rejects_are_not_written_to_zookeeper_where_kafka_is_first(phase: MemberPhase) -> None:
    """It was not accepted: in ZooKeeper it would be the position of the next owner, or what the group goes back to."""
    member = Member(phase, Store(ZOOKEEPER_NAME), Store(KAFKA_NAME, B))
    refused = commit(member)
    assert refused.keys() == {B}
    assert member.coordinator.given == POSITIONS
    assert member.zookeeper.given == {A: 5, C: 9}


def test_partitions_without_our_owner_node_are_committed_to_kafka_only() -> None:
    member = Member(MemberPhase.COPIED, Store(ZOOKEEPER_NAME), Store(KAFKA_NAME))
    member.machine.partitions[B].is_owned = False
    assert commit(member) == {}
    assert member.zookeeper.given == {A: 5, C: 9}


@pytest.mark.parametrize("phase", [MemberPhase.COPIED, MemberPhase.RETURNING, MemberPhase.SWITCHED])
def test_a_lost_partition_is_committed_to_neither_store(phase: MemberPhase) -> None:
    member = Member(phase, Store(ZOOKEEPER_NAME), Store(KAFKA_NAME))
    member.machine.partitions.stop([B], "lost")
    assert commit(member).keys() == {B}
    assert B not in member.coordinator.given
    assert B not in member.zookeeper.given


@pytest.mark.parametrize("phase", [MemberPhase.LOCKED, MemberPhase.RETURNED])
def test_where_zookeeper_is_first_kafka_follows_later(phase: MemberPhase) -> None:
    """``SideArbiter`` writes to Kafka what ZooKeeper has, and not what it refused."""
    member = Member(phase, Store(ZOOKEEPER_NAME, B), Store(KAFKA_NAME))
    assert commit(member).keys() == {B}
    assert member.zookeeper.given == POSITIONS
    assert member.coordinator.given == {}


def test_a_commit_begins_and_ends_for_the_machine_whatever_becomes_of_it() -> None:
    member = Member(MemberPhase.COPIED, Store(ZOOKEEPER_NAME), Store(KAFKA_NAME, A, B, C))
    commit(member)
    assert member.heard == [val.CommitStarted(1, frozenset(POSITIONS)), val.CommitFinished(1)]


@pytest.mark.parametrize("has_started", [True, False])
def test_a_commit_that_a_signal_handler_ends_by_an_exception_ends_for_the_machine_too(has_started: bool) -> None:
    """Otherwise the member acknowledges no later phase with another order, and the migration waits for it."""
    queued: list[Callable[[], None]] = []

    class InterruptedStore(Store):
        def call_soon(self, action: Callable[[], None]) -> None:
            queued.append(action)
            if len(queued) == 1:
                if has_started:
                    action()
                raise KeyboardInterrupt

    member = Member(MemberPhase.COPIED, InterruptedStore(ZOOKEEPER_NAME), Store(KAFKA_NAME))
    with pytest.raises(KeyboardInterrupt):
        commit(member)
    for action in queued[has_started:]:
        action()
    both = [val.CommitStarted(1, frozenset(POSITIONS)), val.CommitFinished(1)]
    assert member.heard == (both if has_started else [])
    assert member.coordinator.given == {}
