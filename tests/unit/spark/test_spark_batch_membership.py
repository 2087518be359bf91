"""What a membership process does for a Spark query, on a ZooKeeper and a Kafka in memory: no process, no socket."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bridge.spark.group_membership import (
    FROM_BEGINNING,
    NO_OFFSET,
    BatchEnd,
    ClaimedRange,
    ClaimRefused,
    CommitMode,
    GroupOffset,
    RangeToClaim,
)
from bridge.spark.membership.process_settings import ALL_THREADS, MembershipProcessSettings
from bridge.spark.membership.zookeeper_batch_membership import ZooKeeperBatchMembership
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.in_memory_fixtures import wait_until
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import ChrootMissing, ConsumerRebalanceFailedException, GroupNotExclusive, UsageError
from zkconsumer.member.group_view import STATIC_SUBSCRIPTION
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.member_registration import format_registration
from zkconsumer.zk.znode_formats import Registration

GROUP = "g1"
WAIT_MS = 30_000
"""Only what does not happen takes so long."""
CALL_MS = 10_000
SETTLE_MS = 1_000


def tp(number: int, topic: str = "t") -> TopicPartition:
    return TopicPartition(topic, number)


def until() -> int:
    return SYSTEM_CLOCK.now_ms() + CALL_MS


@pytest.fixture
def world() -> Iterator[FakeEnvironment]:
    with FakeEnvironment() as made:
        made.create_topic("t", 4)
        yield made


Keep = Callable[..., ZooKeeperBatchMembership]


@pytest.fixture
def keep(world: FakeEnvironment) -> Iterator[Keep]:
    """Makes the services of membership processes, and joins them to the group."""
    made: list[ZooKeeperBatchMembership] = []

    def make(
        mode: CommitMode = CommitMode.AFTER_BATCH, *, threads: int = 1, **properties: Any
    ) -> ZooKeeperBatchMembership:
        given = {"group.id": GROUP, "zookeeper.connect": ADDRESS}
        given |= {"rebalance.backoff.ms": "100", "release.settle.ms": "0"}
        given |= {key.replace("_", "."): str(value) for key, value in properties.items()}
        settings = MembershipProcessSettings(
            given,
            STATIC_SUBSCRIPTION,
            ("t",),
            f"{GROUP}_spark-{len(made)}",
            threads=threads,
            mode=mode,
            takeover_wait_ms=100,
        )
        service = ZooKeeperBatchMembership(settings, make_store=world.store, connect=world.cluster.connect)
        made.append(service)
        service.open()
        return service

    yield make
    for service in made:
        service.stop_waiting()
        service.leave()


def set_offset(world: FakeEnvironment, number: int, offset: int) -> None:
    world.zookeeper.ensure(paths.offset(GROUP, tp(number)), str(offset).encode())


def test_a_query_holds_its_share_and_where_the_group_stands(world: FakeEnvironment, keep: Keep) -> None:
    set_offset(world, 1, 7)
    holding = keep().begin_batch({}, WAIT_MS, until())
    assert holding.is_complete
    assert {one: held.offset for one, held in holding.partitions.items()} == {
        tp(0): NO_OFFSET, tp(1): 7, tp(2): NO_OFFSET, tp(3): NO_OFFSET
    }  # fmt: skip
    assert all(held.epoch > 0 for held in holding.partitions.values())
    assert holding.partition_counts == {"t": 4}


def test_after_a_batch_its_offsets_are_written_under_the_same_ownership_only(
    world: FakeEnvironment, keep: Keep
) -> None:
    service = keep()
    held = service.begin_batch({}, WAIT_MS, until()).partitions
    ended = {tp(0): BatchEnd(held[tp(0)].epoch, 5), tp(1): BatchEnd(held[tp(1)].epoch + 1, 5)}
    service.begin_batch(ended, 0, until())
    assert world.offsets(GROUP, "t") == {0: 5}


def test_what_others_wait_for_is_given_back_with_its_commit_when_the_batch_has_ended(
    world: FakeEnvironment, keep: Keep
) -> None:
    service = keep()
    held = service.begin_batch({}, WAIT_MS, until()).partitions
    service.planned(held, until())
    other = keep()
    wait_until(lambda: service.observe()["draining_partitions"] == 2, "the other one waits")
    assert len(world.owners(GROUP, "t")) == 4, "nothing is given back in the middle of a batch"
    ended = {one: BatchEnd(owned.epoch, 9) for one, owned in held.items()}
    again = service.begin_batch(ended, WAIT_MS, until())
    assert len(again.partitions) == 2
    taken = other.begin_batch({}, WAIT_MS, until())
    assert taken.is_complete
    assert {owned.offset for owned in taken.partitions.values()} == {9}
    assert world.offsets(GROUP, "t") == dict.fromkeys(range(4), 9)


def test_what_others_wait_for_is_not_planned_and_not_waited_for_once_the_plan_does_without_it(
    world: FakeEnvironment, keep: Keep
) -> None:
    service = keep()
    service.begin_batch({}, WAIT_MS, until())
    keep()
    wait_until(lambda: service.observe()["draining_partitions"] == 2, "the other one waits")
    service.planned([], until())
    wait_until(lambda: service.observe()["owned_partitions"] == 2, "they are given back")


def test_a_batch_that_takes_too_long_is_not_waited_for_for_ever(world: FakeEnvironment, keep: Keep) -> None:
    service = keep(rebalance_drain_timeout_ms=200)
    held = service.begin_batch({}, WAIT_MS, until()).partitions
    other = keep()
    assert other.begin_batch({}, WAIT_MS, until()).is_complete
    assert service.observe()["drain_timeouts"] == 2
    service.begin_batch({one: BatchEnd(owned.epoch, 9) for one, owned in held.items()}, WAIT_MS, until())
    assert len(world.offsets(GROUP, "t")) == 2, "what is the other's is not written"


@pytest.mark.parametrize("mode", [CommitMode.CLAIM, CommitMode.NONE])
def test_in_the_other_modes_a_partition_is_given_back_at_once(
    world: FakeEnvironment, keep: Keep, mode: CommitMode
) -> None:
    service = keep(mode)
    held = service.begin_batch({}, WAIT_MS, until()).partitions
    assert keep(mode).begin_batch({}, WAIT_MS, until()).is_complete
    service.begin_batch({one: BatchEnd(owned.epoch, 9) for one, owned in held.items()}, WAIT_MS, until())
    assert world.offsets(GROUP, "t") == {}


@pytest.mark.parametrize("mode", list(CommitMode))
def test_a_node_is_held_a_little_longer_so_that_an_original_successor_reads_again(
    world: FakeEnvironment, keep: Keep, mode: CommitMode
) -> None:
    service = keep(mode, release_settle_ms=SETTLE_MS)
    service.begin_batch({}, WAIT_MS, until())
    service.planned([], until())
    keep(mode)
    wait_until(lambda: service.observe()["draining_partitions"] == 2, "the other one waits")
    leaving_ms = SYSTEM_CLOCK.now_ms()
    wait_until(lambda: service.observe()["owned_partitions"] == 2, "they are given back")
    # Half of it: a busy machine sees late that the other one waits.
    assert SYSTEM_CLOCK.now_ms() - leaving_ms > SETTLE_MS / 2


def test_a_zookeeper_that_is_silent_is_told_once_and_so_is_its_return(
    world: FakeEnvironment, keep: Keep, caplog: pytest.LogCaptureFixture
) -> None:
    service = keep(CommitMode.CLAIM)
    service.begin_batch({}, WAIT_MS, until())
    assert "membership-" not in caplog.text
    [store] = world.zookeeper.stores
    world.zookeeper.disconnect(store)
    wait_until(lambda: not service.begin_batch({}, 0, until()).partitions, "the lease is over")
    assert not service.begin_batch({}, 0, until()).partitions
    assert caplog.text.count("membership-unconfirmed group=g1 by=ZooKeeper: it does not answer; the") == 1
    world.zookeeper.reconnect(store)
    with caplog.at_level("INFO", "zkconsumer.membership"):
        assert service.begin_batch({}, WAIT_MS, until()).is_complete
    assert caplog.text.count("membership-confirmed group=g1 by=ZooKeeper") == 1


def test_a_claim_moves_the_group_and_is_found_again(world: FakeEnvironment, keep: Keep) -> None:
    service = keep(CommitMode.CLAIM)
    held = service.begin_batch({}, WAIT_MS, until()).partitions
    ranges = {one: RangeToClaim(0, 5, owned.epoch) for one, owned in held.items()}
    assert service.claim("q", 0, ranges, until()) == dict.fromkeys(held, ClaimedRange(0, 5))
    assert service.claim("q", 0, ranges, until()) == dict.fromkeys(held, ClaimedRange(0, 5))
    assert service.group_offsets([tp(0)], "q", until()) == {tp(0): GroupOffset(5, 5)}
    other = keep(CommitMode.CLAIM)
    moved = other.begin_batch({}, WAIT_MS, until()).partitions
    lost = next(iter(moved))
    found = service.claim("q", 1, {lost: RangeToClaim(5, 8, held[lost].epoch)}, until())
    assert isinstance(found[lost], ClaimRefused)
    assert service.observe()["spark_claims_refused"] == 1


def test_claims_need_their_mode(keep: Keep) -> None:
    with pytest.raises(UsageError, match="does not claim"):
        keep().claim("q", 0, {}, until())
    with pytest.raises(UsageError, match=r"dual\.commit\.enabled"):
        keep(CommitMode.CLAIM, offsets_storage="kafka", dual_commit_enabled="false")


def test_a_query_may_begin_before_the_group_and_commits_go_on_from_there(world: FakeEnvironment, keep: Keep) -> None:
    set_offset(world, 0, 50)
    service = keep()
    held = service.begin_batch({}, WAIT_MS, until()).partitions
    assert service.seek({tp(0): 3, tp(1): 4, tp(9): 1}, until()) == {tp(9): "this query does not own the partition"}
    assert world.offsets(GROUP, "t") == {0: 3, 1: 4}
    service.begin_batch({tp(0): BatchEnd(held[tp(0)].epoch, 6)}, 0, until())
    assert world.offsets(GROUP, "t") == {0: 6, 1: 4}


def test_without_commits_nothing_is_written(world: FakeEnvironment, keep: Keep) -> None:
    service = keep(CommitMode.NONE)
    service.begin_batch({}, WAIT_MS, until())
    assert service.seek({tp(0): 3}, until()) == {tp(0): "group.offsets.commit=none does not commit"}
    assert world.offsets(GROUP, "t") == {}


def test_a_partition_that_comes_while_we_look_is_read_from_its_beginning(world: FakeEnvironment, keep: Keep) -> None:
    service = keep()
    service.begin_batch({}, WAIT_MS, until())
    world.create_topic("t", 5)
    wait_until(lambda: service.observe()["owned_partitions"] == 5, "it is taken up")
    assert service.begin_batch({}, WAIT_MS, until()).partitions[tp(4)].offset == FROM_BEGINNING


def test_an_expired_session_gives_new_epochs_and_old_ends_are_not_written(world: FakeEnvironment, keep: Keep) -> None:
    service = keep()
    held = service.begin_batch({}, WAIT_MS, until()).partitions
    world.zookeeper.expire(world.stores[0])
    wait_until(lambda: service.observe().get("spark_sessions_lost") == 1, "the session is lost")
    ended = {one: BatchEnd(owned.epoch, 9) for one, owned in held.items()}
    again = service.begin_batch(ended, WAIT_MS, until())
    assert again.is_complete
    assert not {owned.epoch for owned in again.partitions.values()} & {owned.epoch for owned in held.values()}
    assert world.offsets(GROUP, "t") == {}


@pytest.mark.parametrize("leave", [ZooKeeperBatchMembership.leave, ZooKeeperBatchMembership.abandon])
def test_a_query_that_is_gone_leaves_no_owner_and_no_registration(
    world: FakeEnvironment, keep: Keep, leave: Callable[[ZooKeeperBatchMembership], bool]
) -> None:
    service = keep()
    service.begin_batch({}, WAIT_MS, until())
    service.stop_waiting()
    assert leave(service)
    assert world.owners(GROUP, "t") == {}
    assert world.zookeeper.data(paths.registration(GROUP, f"{GROUP}_spark-0")) is None


# --- offsets in both stores -------------------------------------------------------------------------------------

BOTH = {"offsets_storage": "kafka", "offsets_channel_backoff_ms": "5"}


def in_kafka(world: FakeEnvironment) -> dict[int, int]:
    return {one.partition: found.offset for one, found in sorted(world.cluster.committed(GROUP).items())}


def test_with_dual_commit_kafka_is_told_what_zookeeper_took(world: FakeEnvironment, keep: Keep) -> None:
    service = keep(**BOTH)
    held = service.begin_batch({}, WAIT_MS, until()).partitions
    assert service.seek({tp(1): 3}, until()) == {}
    service.begin_batch({tp(0): BatchEnd(held[tp(0)].epoch, 5)}, 0, until())
    assert world.offsets(GROUP, "t") == in_kafka(world) == {0: 5, 1: 3}


def test_with_dual_commit_zookeeper_decides_a_claim_and_kafka_is_told(world: FakeEnvironment, keep: Keep) -> None:
    service = keep(CommitMode.CLAIM, **BOTH)
    held = service.begin_batch({}, WAIT_MS, until()).partitions
    assert service.claim("q", 0, {tp(0): RangeToClaim(0, 5, held[tp(0)].epoch)}, until()) == {tp(0): ClaimedRange(0, 5)}
    wait_until(lambda: in_kafka(world) == {0: 5}, "Kafka is told")
    assert world.offsets(GROUP, "t") == {0: 5}


def test_with_offsets_in_kafka_alone_zookeeper_has_none(world: FakeEnvironment, keep: Keep) -> None:
    service = keep(**BOTH, dual_commit_enabled="false")
    held = service.begin_batch({}, WAIT_MS, until()).partitions
    assert service.seek({tp(1): 30}, until()) == {}
    assert service.seek({tp(1): 3}, until()) == {}
    service.begin_batch({tp(0): BatchEnd(held[tp(0)].epoch, 5)}, 0, until())
    assert in_kafka(world) == {0: 5, 1: 3}
    assert service.group_offsets([tp(0), tp(2)], "q", until()) == {
        tp(0): GroupOffset(5, None),
        tp(2): GroupOffset(NO_OFFSET, None),
    }
    assert world.offsets(GROUP, "t") == {}


@pytest.mark.parametrize("stores", [{}, BOTH, {**BOTH, "dual_commit_enabled": "false"}])
def test_a_group_that_was_set_back_moves_again_with_each_batch(
    world: FakeEnvironment, keep: Keep, stores: dict[str, str]
) -> None:
    service = keep(**stores)
    service.begin_batch({}, WAIT_MS, until())
    assert service.seek({tp(1): 30}, until()) == {}
    assert service.seek({tp(1): 3}, until()) == {}
    held = service.begin_batch({}, 0, until()).partitions[tp(1)]
    assert held.offset == 3, "whoever plans without an end of this ownership goes on there"
    service.begin_batch({tp(1): BatchEnd(held.epoch, 5)}, 0, until())
    assert service.group_offsets([tp(1)], "q", until())[tp(1)].offset == 5
    service.leave()
    assert keep(**stores).begin_batch({}, WAIT_MS, until()).partitions[tp(1)].offset == 5


# --- consumer.threads=all ---------------------------------------------------------------------------------------


def test_a_takeover_is_refused_while_others_are_there_and_names_them(world: FakeEnvironment, keep: Keep) -> None:
    keep().begin_batch({}, WAIT_MS, until())
    with pytest.raises(GroupNotExclusive, match=f"all needs group {GROUP} for this query alone.*{GROUP}_spark-0"):
        keep(threads=ALL_THREADS)


def test_a_takeover_takes_everything_and_whoever_joins_is_an_error(world: FakeEnvironment, keep: Keep) -> None:
    service = keep(threads=ALL_THREADS)
    assert len(service.begin_batch({}, WAIT_MS, until()).partitions) == 4
    service.planned([], until())
    world.create_topic("t", 6)
    wait_until(lambda: service.observe()["owned_partitions"] == 6, "the topic has grown")
    service.begin_batch({}, WAIT_MS, until())
    service.planned([], until())
    wait_until(lambda: len(set(world.owners(GROUP, "t").values())) == 6, "a thread each")
    keep()

    def fails() -> bool:
        try:
            service.begin_batch({}, 0, until())
        except GroupNotExclusive as error:
            return f"{GROUP}_spark-1" in str(error)
        return False

    wait_until(fails, "the error names the one that joined")


# --- what stands in the way -------------------------------------------------------------------------------------


def test_a_topic_that_does_not_exist_is_named_before_anything_is_registered(world: FakeEnvironment) -> None:
    settings = MembershipProcessSettings(
        {"group.id": GROUP, "zookeeper.connect": ADDRESS}, STATIC_SUBSCRIPTION, ("tt",), f"{GROUP}_spark"
    )
    service = ZooKeeperBatchMembership(settings, make_store=world.store, connect=world.cluster.connect)
    with pytest.raises(UsageError, match=r"did you mean t\?"):
        service.open()
    service.leave()
    assert world.zookeeper.data(paths.ids(GROUP)) is None


def test_a_chroot_that_does_not_exist_is_named(world: FakeEnvironment) -> None:
    settings = MembershipProcessSettings(
        {"group.id": GROUP, "zookeeper.connect": f"{ADDRESS}/nowhere"}, STATIC_SUBSCRIPTION, ("t",), f"{GROUP}_spark"
    )
    service = ZooKeeperBatchMembership(settings, make_store=world.store, connect=world.cluster.connect)
    with pytest.raises(ChrootMissing):
        service.open()
    assert service.leave()


def test_a_member_whose_pattern_cannot_be_evaluated_is_an_error_and_no_query_that_stands_still(
    world: FakeEnvironment, keep: Keep
) -> None:
    service = keep()
    service.begin_batch({}, WAIT_MS, until())
    service.planned([], until())
    other = Registration("white_list", {"(((?!b)a)*)*t": 1}, "0")
    world.zookeeper.ensure(paths.registration(GROUP, f"{GROUP}_other"), format_registration(other))
    wait_until(lambda: service.observe()["owned_partitions"] == 0, "it gives everything back")
    with pytest.raises(ConsumerRebalanceFailedException, match=f"{GROUP}_other"):
        for _ in range(50):
            service.begin_batch({}, 200, until())


def test_an_address_for_metrics_that_cannot_be_is_an_error_before_anything_is_registered(
    world: FakeEnvironment,
) -> None:
    settings = MembershipProcessSettings(
        {"group.id": GROUP, "zookeeper.connect": ADDRESS},
        STATIC_SUBSCRIPTION,
        ("t",),
        f"{GROUP}_spark",
        metrics_listen="nowhere",
    )
    service = ZooKeeperBatchMembership(settings, make_store=world.store, connect=world.cluster.connect)
    with pytest.raises(UsageError, match=r"metrics\.listen=nowhere"):
        service.open()
    service.leave()
    assert world.zookeeper.data(paths.ids(GROUP)) is None
