"""A commit of the program while the group moves: which store has it first, and what the other one gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, cast

import pytest

from bridge.migration.connector.commits import CommitDesk
from bridge.migration.member import values as val
from bridge.migration.member.duty import DUTIES, Duty, Stance
from zkconsumer.core.stores import KAFKA, ZOOKEEPER, NotWritten
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition

A, B, C = (TopicPartition("t", number) for number in range(3))
POSITIONS = {A: 5, B: 7, C: 9}
TIMEOUT_MS = 5_000


class Store:
    """One side's ``commit``: what it was given, and what it refuses."""

    def __init__(self, name: str, *refuses: TopicPartition) -> None:
        self.refuses = {tp: NotWritten("no", name) for tp in refuses}
        self.given: dict[TopicPartition, int] = {}
        self.control = self

    def call(self, action: Callable[[], None]) -> None:
        """The control thread of ZooKeeper's side, in place."""
        action()

    def commit(self, offsets: Mapping[TopicPartition, int], *_: Any, **__: Any) -> dict[TopicPartition, NotWritten]:
        self.given |= offsets
        return {tp: why for tp, why in self.refuses.items() if tp in offsets}


class Machine:
    """What the desk asks the machine: all three partitions run here, and have an owner node of ours."""

    def __init__(self, duty: Duty) -> None:
        self.duty = duty
        self.works = self
        self.running = dict.fromkeys(POSITIONS, "c-0")
        self.locked = set(POSITIONS)


class Listener:
    """The rebalance listener is not being called."""

    is_waited_for_here = False


class Member:
    failure = None
    listener = Listener()

    def __init__(self, stance: Stance, zookeeper: Store, coordinator: Store) -> None:
        self.machine = Machine(DUTIES[stance])
        self.clock = ManualClock()
        self.zookeeper, self.coordinator = zookeeper, coordinator
        self.heard: list[val.Event] = []

    def hear(self, event: val.Event) -> None:
        self.heard.append(event)

    def look(self) -> None: ...

    def metadata(self, positions: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        return dict.fromkeys(positions, "words")


def commit(member: Member) -> dict[TopicPartition, NotWritten]:
    return CommitDesk(cast("Any", member)).commit(POSITIONS, TIMEOUT_MS)


@pytest.mark.parametrize("stance", [Stance.COPIED, Stance.RETURNING])
def test_what_kafka_refuses_is_not_written_to_zookeeper_where_kafka_is_first(stance: Stance) -> None:
    """It was not accepted: in ZooKeeper it would be the position of the next owner, or what the group goes back to."""
    member = Member(stance, Store(ZOOKEEPER), Store(KAFKA, B))
    refused = commit(member)
    assert refused.keys() == {B}
    assert member.coordinator.given == POSITIONS
    assert member.zookeeper.given == {A: 5, C: 9}


def test_what_has_no_owner_node_of_ours_is_written_to_kafka_alone() -> None:
    member = Member(Stance.COPIED, Store(ZOOKEEPER), Store(KAFKA))
    member.machine.locked.discard(B)
    assert commit(member) == {}
    assert member.zookeeper.given == {A: 5, C: 9}


@pytest.mark.parametrize("stance", [Stance.COPIED, Stance.RETURNING, Stance.SWITCHED])
def test_a_partition_that_was_lost_is_told_to_neither_store(stance: Stance) -> None:
    member = Member(stance, Store(ZOOKEEPER), Store(KAFKA))
    del member.machine.running[B]
    assert commit(member).keys() == {B}
    assert B not in member.coordinator.given
    assert B not in member.zookeeper.given


@pytest.mark.parametrize("stance", [Stance.LOCKED, Stance.RETURNED])
def test_where_zookeeper_is_first_kafka_follows_later(stance: Stance) -> None:
    """``Sides`` writes to Kafka what ZooKeeper has, and not what it refused."""
    member = Member(stance, Store(ZOOKEEPER, B), Store(KAFKA))
    assert commit(member).keys() == {B}
    assert member.zookeeper.given == POSITIONS
    assert member.coordinator.given == {}


def test_a_commit_begins_and_ends_for_the_machine_whatever_becomes_of_it() -> None:
    member = Member(Stance.COPIED, Store(ZOOKEEPER), Store(KAFKA, A, B, C))
    commit(member)
    assert member.heard == [val.CommitBegun(1, frozenset(POSITIONS)), val.CommitEnded(1)]
