"""``admin.first_unread_reader`` and ``admin.lag_time_observer`` at brokers in memory."""

from __future__ import annotations

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from bridge.testing.fake_faults import PartitionError
from tests.admin_fixtures import doors
from tests.in_memory_fixtures import MakeWorld
from tests.transactional_records import ABORT, COMMIT, Transactions
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.first_unread_reader import FETCH_BYTES, FirstUnreadReader, PartitionOffset
from zkconsumer.admin.lag_time_observer import GroupPartition, LagTimeObserver
from zkconsumer.observe.lag_time import (
    WITHOUT_TIMESTAMPS,
    CaughtUp,
    FirstUnread,
    KnownLagTime,
    NoUnreadRecord,
    TimestampKind,
    UnknownLagTime,
    UnreadPosition,
    UnreadRecord,
    UnreadRecordProblem,
)
from zkconsumer.observe.lag_trend import LagTrend
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.entries import Record
from zkconsumer.wire.isolation_level import READ_COMMITTED, READ_UNCOMMITTED, IsolationLevel
from zkconsumer.wire.record_set_builder import build_record_set
from zkconsumer.wire.schemas import FETCH

T0, T1 = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


def open_session(world: FakeEnvironment) -> AdminSession:
    return AdminSession.open("fake:2181", None, doors(world))


def read(
    world: FakeEnvironment, *wanted: tuple[TopicPartition, int, int], level: IsolationLevel = READ_UNCOMMITTED
) -> list[FirstUnread]:
    places = {PartitionOffset(tp, offset): end for tp, offset, end in wanted}
    with open_session(world) as session:
        found = FirstUnreadReader(session.brokers, level).read(places)
    return [found[place] for place in places]


def created(offset: int, timestamp_ms: int) -> UnreadRecord:
    return UnreadRecord(offset, timestamp_ms, TimestampKind.CREATE_TIME)


@pytest.mark.parametrize("release", ["0.10.2.2", "1.1.1", "3.9.1"])
@pytest.mark.parametrize("codec", [0, 1])
def test_the_timestamp_is_that_of_the_record_also_inside_a_compressed_batch(
    make_world: MakeWorld, release: str, codec: int
) -> None:
    world = make_world(2, release=release)
    world.create_topic("clicks", 2)
    magic = 1 if release.startswith("0.10") else 2
    for tp in (T0, T1):
        records = [Record(n, 1_000 * n, 0, None, b"v" * 50) for n in range(20)]
        world.cluster.append_raw("clicks", tp.partition, build_record_set(records, magic, codec), 20)
    assert read(world, (T0, 7, 20), (T1, 19, 20)) == [created(7, 7_000), created(19, 19_000)]


def test_the_append_time_of_the_broker_is_named(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 1)
    records = [Record(n, 9_000, 1, None, b"v") for n in range(3)]
    world.cluster.append_raw("clicks", 0, build_record_set(records, 2, log_append_time=True), 3)
    assert read(world, (T0, 1, 3)) == [UnreadRecord(1, 9_000, TimestampKind.LOG_APPEND_TIME)]


@pytest.mark.parametrize("release", ["0.8.2.2", "0.9.0.1"])
def test_brokers_of_format_0_are_not_asked(make_world: MakeWorld, release: str) -> None:
    world = make_world(1, release=release)
    world.create_topic("clicks", 1)
    world.cluster.append("clicks", 0, [b"x"] * 3)
    assert read(world, (T0, 1, 3)) == [WITHOUT_TIMESTAMPS]
    assert not [request for request in world.cluster.requests if request.api is FETCH]


def test_messages_of_format_0_at_a_newer_broker_have_no_timestamp(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 1)
    records = [Record(n, -1, -1, None, b"v") for n in range(3)]
    world.cluster.append_raw("clicks", 0, build_record_set(records, 0), 3)
    assert read(world, (T0, 1, 3)) == [WITHOUT_TIMESTAMPS]


def test_a_batch_that_is_larger_than_the_first_limit_is_read_with_the_next(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 2)
    for tp in (T0, T1):
        records = [Record(n, 500 + n, 0, None, b"v" * FETCH_BYTES[0]) for n in range(20)]
        world.cluster.append_raw("clicks", tp.partition, build_record_set(records, 2), 20)
    assert read(world, (T0, 3, 20), (T1, 4, 20)) == [created(3, 503), created(4, 504)]


def test_two_groups_at_one_partition_each_have_their_own_record(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 1)
    for number in range(5):
        world.cluster.append("clicks", 0, [b"x"], timestamp_ms=1_000 * number)
    assert read(world, (T0, 1, 5), (T0, 3, 5)) == [created(1, 1_000), created(3, 3_000)]


def test_compacted_offsets_are_skipped(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 1)
    records = [Record(n, 1_000 * n, 0, None, b"v") for n in (0, 6)]
    world.cluster.append_raw("clicks", 0, build_record_set(records, 2), 7)
    assert read(world, (T0, 2, 7)) == [created(6, 6_000)]


def test_a_damaged_record_is_a_problem_of_its_partition_only(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 2)
    damaged = bytearray(build_record_set([Record(0, 5, 0, None, b"value")], 2))
    damaged[-3] ^= 1
    world.cluster.append_raw("clicks", 0, bytes(damaged), 1)
    world.cluster.append("clicks", 1, [b"x"], timestamp_ms=7_000)
    problem, record = read(world, (T0, 0, 1), (T1, 0, 1))
    assert isinstance(problem, UnreadRecordProblem)
    assert "the checksum does not match" in problem.reason
    assert record == created(0, 7_000)


def test_an_offset_that_was_deleted_meanwhile_names_the_reset_policy(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 1)
    world.cluster.append("clicks", 0, [b"x"] * 5)
    world.cluster.delete_before("clicks", 0, 3)
    [problem] = read(world, (T0, 1, 5))
    assert isinstance(problem, UnreadRecordProblem)
    assert "auto.offset.reset decides" in problem.reason


def test_a_reader_of_committed_records_skips_aborted_ones_and_markers(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 1)
    log = Transactions(world.cluster, "clicks")
    log.records(1, 3)
    log.end(1, ABORT)
    log.records(2, 2)
    log.end(2, COMMIT)
    assert read(world, (T0, 0, 7), level=READ_COMMITTED) == [created(4, 0)]
    assert read(world, (T0, 0, 7)) == [created(0, 0)]
    assert read(world, (T0, 6, 7), level=READ_COMMITTED) == [NoUnreadRecord(7)]


def test_a_broker_that_is_gone_leaves_the_partitions_of_the_others(make_world: MakeWorld) -> None:
    world = make_world(2)
    world.cluster.create_topic("clicks", 2, leaders={0: 0, 1: 1})
    for partition in range(2):
        world.cluster.append("clicks", partition, [b"x"], timestamp_ms=1_000)
    world.cluster.stop_broker(0)
    problem, record = read(world, (T0, 0, 1), (T1, 0, 1))
    assert isinstance(problem, UnreadRecordProblem)
    assert record == created(0, 1_000)


def test_an_error_of_one_partition_is_its_own(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 2)
    for partition in range(2):
        world.cluster.append("clicks", partition, [b"x"], timestamp_ms=1_000)
    world.cluster.inject(PartitionError(T0, 6), api=FETCH, times=10)
    problem, record = read(world, (T0, 0, 1), (T1, 0, 1))
    assert problem == UnreadRecordProblem("its leader answers NOT_LEADER_OR_FOLLOWER (6)")
    assert record == created(0, 1_000)


def test_an_offset_that_was_read_before_costs_no_request_and_the_cache_is_bounded(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 1)
    world.cluster.append("clicks", 0, [b"x"] * 5, timestamp_ms=1_000)
    with open_session(world) as session:
        reader = FirstUnreadReader(session.brokers, cached_records_max=2)
        for offset in (0, 1, 2, 1, 2):
            reader.read({PartitionOffset(T0, offset): 5})
        assert fetches(world) == 3
        reader.read({PartitionOffset(T0, 0): 5})
        assert fetches(world) == 4


def test_the_bytes_of_one_read_are_bounded_and_the_next_read_begins_elsewhere(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 2)
    for partition in range(2):
        records = [Record(0, 5, 0, None, b"v" * 10_000)]
        world.cluster.append_raw("clicks", partition, build_record_set(records, 2), 1)
    with open_session(world) as session:
        reader = FirstUnreadReader(session.brokers, read_bytes_max=FETCH_BYTES[1])
        found = reader.read({PartitionOffset(tp, 0): 1 for tp in (T0, T1)})
        again = reader.read({PartitionOffset(tp, 0): 1 for tp in (T0, T1)})
    assert sum(isinstance(each, UnreadRecord) for each in found.values()) == 1
    assert any("bytes would have been read" in str(each) for each in found.values())
    assert list(again.values()) == [created(0, 5)] * 2


def fetches(world: FakeEnvironment) -> int:
    return sum(request.api is FETCH for request in world.cluster.requests)


# --- the observer -----------------------------------------------------------------------------------------------


def test_an_observer_of_messages_without_timestamps_knows_those_that_it_saw_come(make_world: MakeWorld) -> None:
    world = make_world(1, release="0.8.2.2")
    world.create_topic("clicks", 1)
    key = GroupPartition("g1", T0)
    clock = ManualClock()
    with open_session(world) as session:
        observer = LagTimeObserver(FirstUnreadReader(session.brokers), clock)
        end = 0
        found = []
        for _ in range(10):
            world.cluster.append("clicks", 0, [b"x"] * 10)
            end += 10
            found.append(observer.observe({key: UnreadPosition(15, 0, max(15, end))})[key])
            clock.move(1_000)
    assert [type(each.lag) for each in found[:3]] == [CaughtUp, KnownLagTime, KnownLagTime]
    last = found[-1].lag
    assert isinstance(last, KnownLagTime)
    assert (last.kind, abs(last.lag_ms - 8_000) <= last.error_ms_max) == (TimestampKind.OBSERVED, True)


def test_a_position_outside_the_log_has_no_trend(make_world: MakeWorld) -> None:
    world = make_world(1)
    world.create_topic("clicks", 1)
    key = GroupPartition("g1", T0)
    with open_session(world) as session:
        observer = LagTimeObserver.of_session(session)
        found = observer.observe({key: UnreadPosition(9, 0, 5)})[key]
    assert isinstance(found.lag, UnknownLagTime)
    assert found.catch_up.trend is LagTrend.UNKNOWN
