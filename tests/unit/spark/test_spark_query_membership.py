"""The membership of a query while its group migrates: which side it is a member of, and what the query receives."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bridge.migration.control.phases import FORWARD, Phase
from bridge.spark.claims.claim_decision import (
    ClaimSnapshot,
    FinishClaim,
    OnRewind,
    WriteClaim,
    WriteRefusal,
    decide_claim,
)
from bridge.spark.claims.records import BatchClaim, ClaimRecord, format_record, parse_record
from bridge.spark.group_membership import BatchEnd, ClaimedRange, ClaimRefused, CommitMode, RangeToClaim
from bridge.spark.membership import membership_switcher, query_membership
from bridge.spark.membership.membership_target import TargetGroup, target_of
from bridge.spark.membership.process_settings import MembershipProcessSettings
from bridge.spark.membership.query_membership import QueryMembership
from bridge.spark.membership.zookeeper_batch_membership import ZooKeeperBatchMembership
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.in_memory_fixtures import wait_until
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import GroupMigratingError, MalformedZnode, MigrationError, UsageError, ZkTimeoutException
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import Authority, ControlRecord, format_control

GROUP, QUERY = "g1", "0" * 32
T0 = TopicPartition("t", 0)
RETURN_MS = 30_000
"""How long a batch may wait until the query is a member again; on a busy machine its new threads need seconds."""


def until() -> int:
    return SYSTEM_CLOCK.now_ms() + RETURN_MS


def control(phase: str, strategy: str = "copy", authority: Authority = "zookeeper") -> ControlRecord:
    return ControlRecord("m1", 3, phase, authority, strategy)


@pytest.fixture
def world() -> Iterator[FakeEnvironment]:
    with FakeEnvironment() as made:
        made.create_topic("t", 2)
        yield made


Keep = Callable[..., QueryMembership]


@pytest.fixture
def keep(world: FakeEnvironment, monkeypatch: pytest.MonkeyPatch) -> Iterator[Keep]:
    monkeypatch.setattr(query_membership, "MIGRATION_WAIT_MAX_MS", RETURN_MS)
    made: list[QueryMembership] = []

    def make(mode: CommitMode = CommitMode.CLAIM, **properties: Any) -> QueryMembership:
        given = {"group.id": GROUP, "zookeeper.connect": ADDRESS, "rebalance.backoff.ms": "50"}
        given |= {"release.settle.ms": "0", **properties}
        settings = MembershipProcessSettings(
            given, STATIC_SUBSCRIPTION, ("t",), f"{GROUP}_spark-{len(made)}", mode=mode, run="1" * 32
        )
        made.append(QueryMembership(settings, make_store=world.store, connect=world.cluster.connect))
        made[-1].open()
        return made[-1]

    yield make
    for one in made:
        assert one.leave()


def say(world: FakeEnvironment, phase: str, strategy: str = "copy", authority: Authority = "zookeeper") -> None:
    world.zookeeper.ensure(paths.control(GROUP), format_control(control(phase, strategy, authority)))


def is_member(world: FakeEnvironment) -> bool:
    root = f"{paths.ids(GROUP)}/"
    return any(path.startswith(root) for path in world.zookeeper.tree.dump())


def waits(membership: QueryMembership) -> bool:
    return membership.observe()["waiting_for_migration"] == 1


# --- where it is to be ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("strategy", "home", "kafka"),
    [
        ("copy", {"planned", "undone"}, {"switched", "completed"}),
        ("dual", {"undone"}, {"switched", "completed"}),
    ],
)
def test_every_phase_has_a_place(strategy: str, home: set[str], kafka: set[str]) -> None:
    back = {Phase.UNDOING, Phase.RETURNING, Phase.RETURNED, Phase.UNDONE}
    phases = {phase.value for phase in back.union(FORWARD["copy" if strategy == "copy" else "dual"])}
    found = {phase: target_of(control(phase, strategy)) for phase in phases}
    assert {phase for phase, place in found.items() if place.group is TargetGroup.ZOOKEEPER} == home
    assert {phase for phase, place in found.items() if place.group is TargetGroup.KAFKA} == kafka
    assert all("m1" in place.wait_reason for place in found.values() if place.group is TargetGroup.NONE)


def test_a_rollback_that_waits_takes_it_out_of_kafka_and_from_nowhere_else() -> None:
    assert target_of(control("switched"), is_rollback_waiting=True).group is TargetGroup.NONE
    assert target_of(control("undone"), is_rollback_waiting=True).group is TargetGroup.ZOOKEEPER
    assert target_of(None).group is TargetGroup.ZOOKEEPER


@pytest.mark.parametrize("found", [control("later"), control("switched", "gateway")])
def test_a_later_releases_words_are_an_error(found: ControlRecord) -> None:
    with pytest.raises(MigrationError, match="install the release that runs the migration"):
        target_of(found)


# --- a running membership process ---------------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [("fencing", "copy"), ("armed", "dual")])
def test_it_steps_aside_and_comes_back_when_the_migration_is_taken_back(
    world: FakeEnvironment, keep: Keep, phase: tuple[str, str]
) -> None:
    membership = keep()
    before = membership.begin_batch({}, 5_000, until()).partitions
    membership.planned((), until())
    say(world, *phase)
    wait_until(lambda: not is_member(world) and waits(membership), "it is gone")
    with pytest.raises(GroupMigratingError, match=f"group g1 is migrating, .* phase {phase[0]}"):
        membership.begin_batch({}, 0, until())
    with pytest.raises(GroupMigratingError):
        membership.group_offsets([T0], QUERY, until())
    membership.planned((), until())
    say(world, "undone", phase[1])
    after = membership.begin_batch({}, RETURN_MS, until())
    assert after.partitions.keys() == before.keys()
    assert {held.epoch for held in after.partitions.values()}.isdisjoint(held.epoch for held in before.values())
    assert membership.observe()["group_switches"] == 0, "it was in no other group"


def test_a_batch_that_is_read_ends_first_and_its_offsets_are_written(world: FakeEnvironment, keep: Keep) -> None:
    membership = keep(CommitMode.AFTER_BATCH)
    held = membership.begin_batch({}, 5_000, until()).partitions
    membership.planned(held, until())
    say(world, "fencing")
    wait_until(lambda: membership._is_leaving, "it has seen that")
    with pytest.raises(GroupMigratingError):
        membership.begin_batch({tp: BatchEnd(one.epoch, 7) for tp, one in held.items()}, 0, until())
    wait_until(lambda: not is_member(world), "it is gone")
    assert world.offsets(GROUP, "t") == {0: 7, 1: 7}


def test_a_batch_that_begins_in_the_moment_of_the_move_ends_first_too(
    world: FakeEnvironment, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before the call has lent anything nothing is under way, as far as the worker sees."""
    membership = keep(CommitMode.AFTER_BATCH)
    membership.begin_batch({}, 5_000, until())
    membership.planned((), until())
    wait_for_share, pause = ZooKeeperBatchMembership._wait_for_assignment, threading.Event()

    def moves_meanwhile(side: ZooKeeperBatchMembership, timeout_ms: int) -> None:
        say(world, "fencing")
        wait_until(lambda: membership._is_leaving, "it has seen that")
        pause.wait(0.5)
        wait_for_share(side, timeout_ms)

    with monkeypatch.context() as patch:
        patch.setattr(ZooKeeperBatchMembership, "_wait_for_assignment", moves_meanwhile)
        held = membership.begin_batch({}, 0, until()).partitions
    assert len(held) == 2
    pause.wait(0.5)
    membership.planned(held, until())
    with pytest.raises(GroupMigratingError):
        membership.begin_batch({tp: BatchEnd(one.epoch, 7) for tp, one in held.items()}, 0, until())
    wait_until(lambda: not is_member(world), "it is gone")
    assert world.offsets(GROUP, "t") == {0: 7, 1: 7}


def test_a_batch_whose_planning_the_move_ended_is_not_waited_for(
    world: FakeEnvironment, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    membership = keep()
    assert len(membership.begin_batch({}, 5_000, until()).partitions) == 2

    def is_interrupted(*_: Any) -> None:
        raise ZkTimeoutException("the connection broke")

    monkeypatch.setattr(ZooKeeperBatchMembership, "group_offsets", is_interrupted)
    say(world, "fencing")
    with pytest.raises(GroupMigratingError):
        membership.group_offsets([T0], QUERY, until())
    with pytest.raises(GroupMigratingError):
        membership.begin_batch({}, 0, until())
    wait_until(lambda: not is_member(world), "it is gone")


def test_a_batch_that_does_not_end_is_not_waited_for_for_ever(
    world: FakeEnvironment, keep: Keep, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(membership_switcher, "FINISH_BATCH_TIMEOUT_MS", 100)
    membership = keep(CommitMode.AFTER_BATCH, **{"rebalance.drain.timeout.ms": "100"})
    membership.planned(membership.begin_batch({}, 5_000, until()).partitions, until())
    say(world, "fencing")
    wait_until(lambda: not is_member(world), "it is gone")
    assert world.offsets(GROUP, "t") == {}


def test_what_was_planned_is_claimed_first_and_what_comes_later_is_answered_from_the_records(
    world: FakeEnvironment, keep: Keep
) -> None:
    membership = keep()
    held = membership.begin_batch({}, 5_000, until()).partitions
    membership.planned(held, until())
    say(world, "fencing")
    ranges = {tp: RangeToClaim(0, 5, one.epoch) for tp, one in held.items()}
    assert membership.claim(QUERY, 0, ranges, until()) == dict.fromkeys(held, ClaimedRange(0, 5))
    wait_until(lambda: waits(membership), "it waits")
    assert membership.claim(QUERY, 0, ranges, until()) == dict.fromkeys(held, ClaimedRange(0, 5)), "run again"
    found = membership.claim(QUERY, 1, {T0: RangeToClaim(5, 9, 1)}, until())
    assert isinstance(found[T0], ClaimRefused)
    say(world, "undone")
    membership.begin_batch({}, RETURN_MS, until())
    assert isinstance(membership.claim(QUERY, 1, {T0: RangeToClaim(5, 9, 1)}, until())[T0], ClaimRefused), (
        "it was refused then"
    )


def test_a_claim_that_was_begun_waits_for_the_end_of_the_move(world: FakeEnvironment, keep: Keep) -> None:
    say(world, "fenced")
    path = paths.claims_of_partition(GROUP, QUERY, T0)
    world.zookeeper.ensure(path, format_record(ClaimRecord().with_pending(BatchClaim(0, 0, 5, 1 << 62, 1))))
    with pytest.raises(GroupMigratingError, match="the query died while batch 0 claimed t/0"):
        keep().claim(QUERY, 0, {T0: RangeToClaim(0, 5, 1)}, until())


def test_a_query_that_is_started_meanwhile_waits_and_begins_when_it_is_over(world: FakeEnvironment, keep: Keep) -> None:
    say(world, "verified")
    membership = keep()
    assert not is_member(world)
    assert [broker.port for broker in membership.brokers()] == [address.port for address in world.cluster.addresses]
    with pytest.raises(GroupMigratingError):
        membership.begin_batch({}, 0, until())
    say(world, "undone")
    assert len(membership.begin_batch({}, RETURN_MS, until()).partitions) == 2


def test_a_day_is_enough(world: FakeEnvironment, keep: Keep, monkeypatch: pytest.MonkeyPatch) -> None:
    say(world, "fenced")
    membership = keep()
    monkeypatch.setattr(query_membership, "MIGRATION_TIMEOUT_MS", -1)
    with pytest.raises(MigrationError, match="zkconsumer migrate status g1 shows how") as caught:
        membership.begin_batch({}, 0, until())
    assert not isinstance(caught.value, GroupMigratingError)


def test_a_phase_of_a_later_release_ends_the_query(world: FakeEnvironment, keep: Keep) -> None:
    membership = keep()
    membership.begin_batch({}, 5_000, until())
    say(world, "teleported")
    wait_until(lambda: _raises(membership), "the error is told")
    wait_until(lambda: not is_member(world), "and nothing is held")


def _raises(membership: QueryMembership) -> bool:
    try:
        membership.begin_batch({}, 0, until())
    except GroupMigratingError:
        return False
    except MigrationError as error:
        return "does not know" in str(error)
    return False


def test_without_brokers_in_zookeeper_the_option_is_named(world: FakeEnvironment, keep: Keep) -> None:
    for address in world.cluster.addresses:
        world.zookeeper.remove(paths.broker(address.broker_id))
    say(world, "switched", authority="kafka")
    with pytest.raises(UsageError, match=r"set kafka\.bootstrap\.servers"):
        keep()


# --- a claim that was begun -------------------------------------------------------------------------------------

BEGUN = BatchClaim(4, 10, 20, 7, 1)


def test_a_record_keeps_what_was_begun_and_forgets_it_with_the_answer() -> None:
    record = ClaimRecord((BatchClaim(3, 5, 10, 7, 1),)).with_pending(BEGUN)
    assert parse_record(format_record(record), "/p") == record
    assert record.last_decided_batch == 3
    assert record.with_claim(BEGUN).pending is None
    assert record.with_refusal(4).pending is None


@pytest.mark.parametrize("begun", ["[3,1,2,1,1]", "[4,2,2,1,1]", "[4,1]", '"x"', "{}"])
def test_a_begun_claim_that_is_none_is_refused(begun: str) -> None:
    data = b'{"v":1,"claims":[[3,0,1,1,1]],"begun":%s}' % begun.encode()
    with pytest.raises(MalformedZnode):
        parse_record(data, "/p")


@pytest.mark.parametrize(
    ("cur", "batch", "held", "wanted"),
    [
        (20, 4, True, FinishClaim(10, 20)),
        (33, 4, False, FinishClaim(10, 20)),
        (10, 4, True, WriteClaim(10, 20)),
        (15, 4, True, WriteClaim(15, 20)),
        (10, 4, False, WriteRefusal("not held")),
        (None, 4, False, WriteRefusal("not held")),
        (20, 5, True, WriteRefusal("the group's offset is 20: other members have read the range")),
    ],
)
def test_what_was_begun_is_finished_where_the_group_stands_behind_it(
    cur: int | None, batch: int, held: bool, wanted: object
) -> None:
    seen = ClaimSnapshot(ClaimRecord().with_pending(BEGUN), None, "" if held else "not held", cur)
    assert decide_claim(batch, RangeToClaim(10, 20, 7), seen, OnRewind.IGNORE) == wanted
