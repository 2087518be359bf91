"""``admin.log_ranges``: where logs begin and end, on brokers of every kind."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.testing.fake_faults import CloseConnection, PartitionError
from tests.admin_fixtures import doors
from tests.in_memory_fixtures import MakeWorld
from tests.transactional_records import Transactions
from zkconsumer.admin import log_ranges as module
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.broker_client import SEARCH_TIMEOUT_MS, BrokerClient
from zkconsumer.admin.log_ranges import LogRange, OffsetForTime, log_ranges
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.isolation_level import READ_COMMITTED
from zkconsumer.wire.schemas import LIST_OFFSETS, METADATA

T0, T1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


def open_session(world: FakeEnvironment) -> AdminSession:
    return AdminSession.open(ADDRESS, None, doors(world))


def filled(make_world: MakeWorld, brokers: int = 2, release: str = "3.9.1") -> FakeEnvironment:
    """clicks/0: 2 to 5, stamped 1000, 2000, ...; clicks/1: empty."""
    world = make_world(brokers, release=release)
    world.create_topic("clicks", 2)
    for number in range(5):
        world.cluster.append("clicks", 0, [b"x"], timestamp_ms=1_000 * (number + 1))
    world.cluster.delete_before("clicks", 0, 2)
    return world


@pytest.mark.parametrize("release", ["0.8.2.2", "0.9.0.1", "0.10.2.2", "1.1.1", "3.9.1"])
def test_the_range_of_a_log_is_told_by_brokers_of_every_release(make_world: MakeWorld, release: str) -> None:
    world = filled(make_world, release=release)
    with open_session(world) as admin:
        assert log_ranges(admin.brokers, [T0, T1]) == {T0: LogRange(2, 5), T1: LogRange(0, 0)}


def test_the_end_is_in_the_range_and_what_lies_outside_is_not() -> None:
    assert [offset for offset in range(8) if LogRange(2, 5).contains(offset)] == [2, 3, 4, 5]


def test_a_time_is_exact_from_0_10_1_on_and_the_end_where_nothing_is_as_young(make_world: MakeWorld) -> None:
    world = filled(make_world)
    with open_session(world) as admin:
        at = {time_ms: log_ranges(admin.brokers, [T0, T1], time_ms) for time_ms in (0, 4_000, 4_001, 5_001)}
    assert {time_ms: found[T0] for time_ms, found in at.items()} == {
        0: LogRange(2, 5, OffsetForTime(2, "exact")),
        4_000: LogRange(2, 5, OffsetForTime(3, "exact")),
        4_001: LogRange(2, 5, OffsetForTime(4, "exact")),
        5_001: LogRange(2, 5, OffsetForTime(5, "end")),
    }
    assert at[0][T1] == LogRange(0, 0, OffsetForTime(0, "end"))


@pytest.mark.parametrize("release", ["0.9.0.1", "1.1.1", "3.9.1"])
@pytest.mark.parametrize("time_ms", [-1, -2, -3, -4, -86_400_000])
def test_a_time_before_1970_is_the_start_of_the_log(make_world: MakeWorld, release: str, time_ms: int) -> None:
    world = filled(make_world, release=release)
    with open_session(world) as admin:
        found = log_ranges(admin.brokers, [T0], time_ms)[T0]
    assert isinstance(found, LogRange), found
    assert (found.earliest, found.latest, found.for_time and found.for_time.offset) == (2, 5, 2)


def test_a_time_is_a_segment_before_0_10_1_and_never_later_than_asked_for(make_world: MakeWorld) -> None:
    world = filled(make_world, release="0.8.2.2")
    with open_session(world) as admin:
        long_ago = log_ranges(admin.brokers, [T0], 1)[T0]
        tomorrow = log_ranges(admin.brokers, [T0], admin.clock.wall_ms() + 86_400_000)[T0]
    assert long_ago == LogRange(2, 5, OffsetForTime(2, "start"))
    assert tomorrow == LogRange(2, 5, OffsetForTime(5, "segment"))


def test_a_log_without_timestamps_on_a_new_broker_is_asked_by_segment() -> None:
    cluster = FakeCluster(2, release={0: "0.8.2.2", 1: "1.1.1"})
    cluster.create_topic("old", 1, leaders={0: 0})
    cluster.append("old", 0, [b"x"])
    cluster.move_leader("old", 0, 1)
    tp = TopicPartition("old", 0)
    brokers = BrokerClient(lambda: cluster.addresses, cluster.connect, SYSTEM_CLOCK, client_id="test")
    with closing(brokers):
        assert log_ranges(brokers, [tp], 1) == {tp: LogRange(0, 1, OffsetForTime(0, "start"))}
    versions = [seen.version for seen in cluster.requests if seen.api is LIST_OFFSETS and seen.body.topics]
    assert versions[-1] == 0
    assert set(versions[:-1]) != {0}


def test_leaders_are_asked_side_by_side_in_requests_of_bounded_size(
    make_world: MakeWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "LIST_OFFSETS_PARTITIONS_MAX", 10)
    world = make_world(3)
    world.create_topic("wide", 90)
    wanted = [TopicPartition("wide", number) for number in range(90)]
    with open_session(world) as admin:
        found = log_ranges(admin.brokers, wanted)
    assert found == {tp: LogRange(0, 0) for tp in wanted}
    asked = [seen.broker_id for seen in world.cluster.requests if seen.api is LIST_OFFSETS and seen.body.topics]
    assert {broker: asked.count(broker) for broker in asked} == {0: 6, 1: 6, 2: 6}
    assert max(len(seen.body.topics[0].partitions) for seen in world.cluster.requests
               if seen.api is LIST_OFFSETS and seen.body.topics) == 10  # fmt: skip


def test_a_leader_that_moved_is_looked_for_again(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.cluster.inject(PartitionError(T0, 6), api=LIST_OFFSETS, times=2)
    pauses: list[int] = []
    with open_session(world) as admin:
        found = log_ranges(admin.brokers, [T0, T1], pause=pauses.append)
    assert found == {T0: LogRange(2, 5), T1: LogRange(0, 0)}
    assert pauses == [module.RETRY_PAUSE_MS]
    assert sum(seen.api is METADATA for seen in world.cluster.requests) == 2


def test_a_connection_that_breaks_in_the_middle_costs_one_more_try(make_world: MakeWorld) -> None:
    world = filled(make_world, brokers=1)
    with open_session(world) as admin:
        log_ranges(admin.brokers, [T0])
        world.cluster.inject(CloseConnection(), api=LIST_OFFSETS)
        assert log_ranges(admin.brokers, [T0, T1], pause=lambda _: None) == {T0: LogRange(2, 5), T1: LogRange(0, 0)}


def test_a_partition_that_cannot_be_asked_says_why_and_the_others_are_told(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.cluster.move_leader("clicks", 1, None)
    with open_session(world) as admin:
        found = log_ranges(admin.brokers, [T0, T1, TopicPartition("clicks", 9)], pause=lambda _: None)
    assert found[T0] == LogRange(2, 5)
    assert found[T1] == "it has no leader: LEADER_NOT_AVAILABLE (5)"
    assert found[TopicPartition("clicks", 9)] == "there is no such partition"


def test_an_error_that_lasts_is_told_with_its_name(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.cluster.inject(PartitionError(T0, 29), api=LIST_OFFSETS, times=None)
    with open_session(world) as admin:
        found = log_ranges(admin.brokers, [T0, T1], pause=lambda _: None)
    assert found == {T0: "its leader answers TOPIC_AUTHORIZATION_FAILED (29)", T1: LogRange(0, 0)}


def test_no_broker_at_all_is_one_sentence(make_world: MakeWorld) -> None:
    world = filled(make_world, brokers=1)
    world.cluster.stop_broker(0)
    with closing(open_session(world)) as admin, pytest.raises(BrokerUnreachable, match="none of 1 brokers"):
        log_ranges(admin.brokers, [T0])


def test_leaders_that_swallow_packets_do_not_keep_the_others_waiting_for_long(make_world: MakeWorld) -> None:
    world, clock = make_world(14), ManualClock()
    world.create_topic("clicks", 14)

    def connect(host: str, port: int, **how: Any) -> Connection:
        if host == world.cluster.address(0).host:
            return world.cluster.connect(host, port, **how)
        clock.move(how["connect_timeout_ms"])
        raise BrokerUnreachable(f"{host}: the broker hangs")

    with AdminSession.open(ADDRESS, None, AdminDependencies(world.store, connect, clock)) as admin:
        began_ms = clock.now_ms()
        found = log_ranges(admin.brokers, [TopicPartition("clicks", number) for number in range(14)])
    told = [tp for tp, one in found.items() if isinstance(one, LogRange)]
    assert len(told) == 1, "each broker leads one"
    assert clock.now_ms() - began_ms <= (1 + module.TRIES_MAX) * SEARCH_TIMEOUT_MS
    assert "the broker hangs" in str(next(one for tp, one in found.items() if tp not in told))


@pytest.mark.parametrize("release", ["0.10.2.2", "3.9.1"])
def test_a_reader_of_committed_records_ends_at_the_last_stable_offset(make_world: MakeWorld, release: str) -> None:
    """A broker before 0.11 has no transactions: there every record is committed."""
    world = make_world(release=release)
    world.create_topic("clicks", 2)
    if release == "0.10.2.2":
        world.cluster.append("clicks", 0, [b"x"] * 5)
    else:
        log = Transactions(world.cluster, "clicks")
        log.plain(2)
        log.records(7, 3)
    end = 5 if release == "0.10.2.2" else 2
    with open_session(world) as admin:
        at = log_ranges(admin.brokers, [T0, T1], isolation_level=READ_COMMITTED)
        assert at == {T0: LogRange(0, 5, last_stable=end), T1: LogRange(0, 0, last_stable=0)}
        assert [found.readable_end for found in at.values() if isinstance(found, LogRange)] == [end, 0]
        everything = log_ranges(admin.brokers, [T0])[T0]
        assert isinstance(everything, LogRange)
        assert everything.readable_end == 5
