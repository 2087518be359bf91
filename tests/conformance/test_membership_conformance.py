"""What a query may expect of its group: the same tests for the fake and for the service on a ZooKeeper in memory."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping

import pytest

from bridge.spark.group_membership import (
    NO_OFFSET,
    BatchAssignment,
    BatchEnd,
    ClaimedRange,
    ClaimRefused,
    ClaimResult,
    CommitMode,
    GroupMembership,
    GroupOffset,
    RangeToClaim,
)
from bridge.spark.membership.process_settings import MembershipProcessSettings
from bridge.spark.membership.zookeeper_batch_membership import ZooKeeperBatchMembership
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.fake_spark_group import FakeMembership, FakeSparkGroup
from tests.in_memory_fixtures import wait_until
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import ConnectorClosed
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.zk import paths

GROUP = "g1"
WAIT_MS = 30_000
"""Only what does not happen takes so long."""
CALL_MS = 10_000
FOUR = [TopicPartition("t", number) for number in range(4)]
A, B, C, D = FOUR


class Kept:
    """The service of the membership process as its client gives it, without the pipe."""

    def __init__(self, service: ZooKeeperBatchMembership) -> None:
        self.service = service
        self._is_closed = False

    def begin_batch(self, ended: Mapping[TopicPartition, BatchEnd], wait_ms: int) -> BatchAssignment:
        return self.service.begin_batch(ended, wait_ms, self._until())

    def batch_planned(self, partitions: Collection[TopicPartition]) -> None:
        self.service.planned(partitions, self._until())

    def group_offsets(self, partitions: Collection[TopicPartition], query: str) -> dict[TopicPartition, GroupOffset]:
        return self.service.group_offsets(partitions, query, self._until())

    def claim(
        self, query: str, batch: int, ranges: Mapping[TopicPartition, RangeToClaim]
    ) -> dict[TopicPartition, ClaimResult]:
        return self.service.claim(query, batch, ranges, self._until())

    def seek(self, offsets: Mapping[TopicPartition, int]) -> dict[TopicPartition, str]:
        return self.service.seek(offsets, self._until())

    def brokers(self) -> list[BrokerAddress]:
        return self.service.brokers()

    def metrics(self) -> Mapping[str, int]:
        return self.service.observe()

    def close(self) -> None:
        if not self._is_closed:
            self._is_closed = True
            self.service.leave()
            self.service.stop_waiting()

    def _until(self) -> int:
        return SYSTEM_CLOCK.now_ms() + CALL_MS


class Bench(ABC):
    """A group with topic ``t`` of four partitions."""

    @abstractmethod
    def first(self, mode: CommitMode) -> GroupMembership:
        """A member that has everything."""

    @abstractmethod
    def second(self, mode: CommitMode) -> GroupMembership:
        """Another one, to which C and D fall."""

    @property
    @abstractmethod
    def offsets(self) -> dict[TopicPartition, int]:
        """The offsets of the group."""

    @abstractmethod
    def put(self, tp: TopicPartition, offset: int) -> None:
        """Another client writes an offset."""

    @abstractmethod
    def close(self) -> None:
        """End everything."""


class FakeBench(Bench):
    def __init__(self) -> None:
        self._group = FakeSparkGroup({"t": 4})

    def first(self, mode: CommitMode) -> GroupMembership:
        return self._join("a", FOUR, mode)

    def second(self, mode: CommitMode) -> GroupMembership:
        return self._join("b", [C, D], mode)

    def _join(self, name: str, share: list[TopicPartition], mode: CommitMode) -> GroupMembership:
        member = FakeMembership(self._group, name, mode)
        self._group.assign(dict.fromkeys(share, name))
        return member

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        return dict(self._group.offsets)

    def put(self, tp: TopicPartition, offset: int) -> None:
        self._group.write(tp, offset)

    def close(self) -> None:
        """Nothing runs."""


class ServiceBench(Bench):
    def __init__(self) -> None:
        self._world = FakeEnvironment()
        self._world.create_topic("t", 4)
        self._made: list[Kept] = []

    def first(self, mode: CommitMode) -> GroupMembership:
        return self._join("a", mode)

    def second(self, mode: CommitMode) -> GroupMembership:
        """As the fake: once it has asked for its share, and the first one knows."""
        first = self._made[0].service
        member = self._join("b", mode)

        def is_known() -> bool:
            seen = first.observe()
            return seen["draining_partitions"] == 2 or seen["owned_partitions"] == 2

        wait_until(is_known, "the first one knows")
        return member

    def _join(self, name: str, mode: CommitMode) -> GroupMembership:
        given = {
            "group.id": GROUP, "zookeeper.connect": ADDRESS, "rebalance.backoff.ms": "50", "release.settle.ms": "0",
        }  # fmt: skip
        settings = MembershipProcessSettings(given, STATIC_SUBSCRIPTION, ("t",), f"{GROUP}_{name}", mode=mode)
        service = ZooKeeperBatchMembership(settings, make_store=self._world.store, connect=self._world.cluster.connect)
        self._made.append(Kept(service))
        service.open()
        return self._made[-1]

    @property
    def offsets(self) -> dict[TopicPartition, int]:
        return {TopicPartition("t", number): at for number, at in self._world.offsets(GROUP, "t").items()}

    def put(self, tp: TopicPartition, offset: int) -> None:
        self._world.zookeeper.ensure(paths.offset(GROUP, tp), b"%d" % offset)

    def close(self) -> None:
        for member in self._made:
            member.close()
        self._world.stop()


@pytest.fixture(params=[FakeBench, ServiceBench], ids=["fake", "service"])
def bench(request: pytest.FixtureRequest) -> Iterator[Bench]:
    made: Bench = request.param()
    yield made
    made.close()


def ends(holding: BatchAssignment, offset: int) -> dict[TopicPartition, BatchEnd]:
    return {tp: BatchEnd(held.epoch, offset) for tp, held in holding.partitions.items()}


def test_an_assignment_contains_the_offsets_of_the_group_and_the_sizes_of_the_topics(bench: Bench) -> None:
    bench.put(B, 7)
    holding = bench.first(CommitMode.AFTER_BATCH).begin_batch({}, WAIT_MS)
    assert holding.is_complete
    assert {tp: held.offset for tp, held in holding.partitions.items()} == {A: -1, B: 7, C: -1, D: -1}
    assert holding.partition_counts == {"t": 4}
    assert NO_OFFSET == -1


def test_the_end_of_a_batch_is_written_with_its_own_epoch_and_not_below_the_present_offset(bench: Bench) -> None:
    bench.put(B, 7)
    member = bench.first(CommitMode.AFTER_BATCH)
    held = member.begin_batch({}, WAIT_MS).partitions
    ended = {A: BatchEnd(held[A].epoch, 5), B: BatchEnd(held[B].epoch, 6), C: BatchEnd(held[C].epoch + 1_000, 5)}
    again = member.begin_batch(ended, WAIT_MS)
    assert bench.offsets == {A: 5, B: 7}
    assert again.partitions == held, "an ownership tells where it began"


@pytest.mark.parametrize("mode", [CommitMode.CLAIM, CommitMode.AFTER_BATCH])
def test_an_ownership_begins_at_the_offset_of_a_seek(bench: Bench, mode: CommitMode) -> None:
    bench.put(B, 7)
    member = bench.first(mode)
    member.begin_batch({}, WAIT_MS)
    assert member.seek({B: 2}) == {}
    held = member.begin_batch({}, WAIT_MS).partitions[B]
    assert held.offset == bench.offsets[B] == 2
    member.begin_batch({B: BatchEnd(held.epoch, 4)}, WAIT_MS)
    assert bench.offsets[B] == (4 if mode is CommitMode.AFTER_BATCH else 2)


@pytest.mark.parametrize("mode", [CommitMode.CLAIM, CommitMode.NONE])
def test_in_the_other_modes_no_end_is_written(bench: Bench, mode: CommitMode) -> None:
    member = bench.first(mode)
    member.begin_batch(ends(member.begin_batch({}, WAIT_MS), 5), WAIT_MS)
    assert bench.offsets == {}


def test_partitions_that_others_wait_for_are_released_when_the_batch_has_ended(bench: Bench) -> None:
    member = bench.first(CommitMode.AFTER_BATCH)
    holding = member.begin_batch({}, WAIT_MS)
    member.batch_planned(holding.partitions)
    other = bench.second(CommitMode.AFTER_BATCH)
    assert not other.begin_batch({}, 0).partitions.keys() & {C, D}
    assert member.begin_batch(ends(holding, 9), WAIT_MS).partitions.keys() == {A, B}
    taken = other.begin_batch({}, WAIT_MS)
    assert {tp: held.offset for tp, held in taken.partitions.items()} == {C: 9, D: 9}
    assert taken.is_complete
    assert {taken.partitions[tp].epoch for tp in (C, D)}.isdisjoint({holding.partitions[tp].epoch for tp in (C, D)})


def test_partitions_that_a_batch_does_not_need_are_released_at_once(bench: Bench) -> None:
    member = bench.first(CommitMode.AFTER_BATCH)
    member.begin_batch({}, WAIT_MS)
    other = bench.second(CommitMode.AFTER_BATCH)
    member.batch_planned([A, C])
    assert other.begin_batch({}, 500).partitions.keys() == {D}
    member.batch_planned([])
    assert other.begin_batch({}, WAIT_MS).partitions.keys() == {C, D}


@pytest.mark.parametrize("mode", [CommitMode.CLAIM, CommitMode.NONE])
def test_in_the_other_modes_no_batch_is_waited_for(bench: Bench, mode: CommitMode) -> None:
    member = bench.first(mode)
    member.batch_planned(member.begin_batch({}, WAIT_MS).partitions)
    assert bench.second(mode).begin_batch({}, WAIT_MS).partitions.keys() == {C, D}


def test_a_claim_commits_and_is_repeated_reduced_and_refused(bench: Bench) -> None:
    member = bench.first(CommitMode.CLAIM)
    held = member.begin_batch({}, WAIT_MS).partitions
    wanted = {tp: RangeToClaim(0, 5, owned.epoch) for tp, owned in held.items()}
    assert member.claim("q", 0, wanted) == dict.fromkeys(FOUR, ClaimedRange(0, 5))
    assert member.claim("q", 0, wanted) == dict.fromkeys(FOUR, ClaimedRange(0, 5))
    bench.put(A, 7)
    bench.put(B, 9)
    found = member.claim("q", 1, {tp: RangeToClaim(5, 9, held[tp].epoch) for tp in (A, B, C)})
    assert found[A] == ClaimedRange(7, 9)
    assert isinstance(found[B], ClaimRefused)
    assert found[C] == ClaimedRange(5, 9)
    assert bench.offsets == {A: 9, B: 9, C: 9, D: 5}
    assert member.group_offsets(FOUR, "q") == {
        A: GroupOffset(9, 9),
        B: GroupOffset(9, 5),
        C: GroupOffset(9, 9),
        D: GroupOffset(5, 5),
    }
    assert member.group_offsets([A], "another") == {A: GroupOffset(9, None)}


def test_partitions_that_are_not_owned_are_not_claimed(bench: Bench) -> None:
    member = bench.first(CommitMode.CLAIM)
    held = member.begin_batch({}, WAIT_MS).partitions
    bench.second(CommitMode.CLAIM).begin_batch({}, WAIT_MS)
    found = member.claim("q", 0, {tp: RangeToClaim(0, 5, held[tp].epoch) for tp in (A, C)})
    assert found[A] == ClaimedRange(0, 5)
    assert isinstance(found[C], ClaimRefused)


@pytest.mark.parametrize("mode", [CommitMode.CLAIM, CommitMode.AFTER_BATCH])
def test_a_query_may_begin_before_the_group(bench: Bench, mode: CommitMode) -> None:
    bench.put(A, 50)
    member = bench.first(mode)
    held = member.begin_batch({}, WAIT_MS).partitions
    assert member.seek({A: 3, B: 4, TopicPartition("t", 9): 1}) == {
        TopicPartition("t", 9): "this query does not own the partition"
    }
    assert bench.offsets == {A: 3, B: 4}
    if mode is CommitMode.AFTER_BATCH:
        member.begin_batch({A: BatchEnd(held[A].epoch, 8)}, WAIT_MS)
        assert bench.offsets == {A: 8, B: 4}


def test_an_ended_membership_reports_it(bench: Bench) -> None:
    member = bench.first(CommitMode.AFTER_BATCH)
    member.begin_batch({}, WAIT_MS)
    member.close()
    with pytest.raises(ConnectorClosed):
        member.begin_batch({}, 0)
