"""What a stream asks brokers when it plans, on brokers in memory."""

from __future__ import annotations

import pytest

from bridge.spark.source.log_reader import LEADERS_AGE_MAX_MS, BrokerLogReader
from bridge.spark.source.micro_batch_plan import LogBounds
from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import MakeWorld
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.config import ConsumerConfig
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import METADATA

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
CONFIG = ConsumerConfig(group_id="g", zookeeper_connect="zk:1")


def filled(make_world: MakeWorld, release: str = "3.9.1") -> FakeEnvironment:
    world = make_world(2, release=release)
    world.create_topic("t", 2)
    for number in range(10):
        world.cluster.append("t", 0, [b"x" * 100], timestamp_ms=1_000 * (number + 1))
    return world


def logs_of(world: FakeEnvironment, clock: ManualClock | None = None) -> BrokerLogReader:
    cluster = world.cluster
    return BrokerLogReader(CONFIG, lambda: cluster.addresses, clock or SYSTEM_CLOCK, cluster.connect)


def metadata_requests(world: FakeEnvironment) -> int:
    return sum(seen.api is METADATA for seen in world.cluster.requests)


def test_where_logs_begin_and_end_and_the_offset_of_a_time(make_world: MakeWorld) -> None:
    world = filled(make_world)
    world.cluster.delete_before("t", 0, 2)
    logs = logs_of(world)
    assert logs.read_bounds([T0, T1], {}) == {T0: LogBounds(2, 10), T1: LogBounds(0, 0)}
    assert logs.read_bounds([T0, T1], {T0: 4_500}) == {T0: LogBounds(2, 10, 4), T1: LogBounds(0, 0)}
    assert logs.read_bounds([T0], {T0: 99_000}) == {T0: LogBounds(2, 10, None)}
    assert logs.read_bounds([TopicPartition("t", 9)], {}) == {TopicPartition("t", 9): "there is no such partition"}
    logs.close()


def test_why_no_broker_answers(make_world: MakeWorld) -> None:
    world = filled(make_world)
    logs = logs_of(world)
    assert logs.unreachable_reason() == ""
    for number in (0, 1):
        world.cluster.stop_broker(number)
    assert "none of 2 brokers answers; the last one: " in logs.unreachable_reason()
    logs.close()
    nobody = BrokerLogReader(CONFIG, list, SYSTEM_CLOCK, world.cluster.connect)
    assert "no broker is registered in ZooKeeper" in nobody.unreachable_reason()


def test_leaders_are_remembered_until_they_move(make_world: MakeWorld) -> None:
    world = filled(make_world)
    logs = logs_of(world)
    logs.read_bounds([T0, T1], {})
    asked = metadata_requests(world)
    logs.read_bounds([T0, T1], {})
    assert metadata_requests(world) == asked
    for partition in (0, 1):
        world.cluster.move_leader("t", partition, 0)
    assert logs.read_bounds([T0, T1], {}) == {T0: LogBounds(0, 10), T1: LogBounds(0, 0)}
    assert metadata_requests(world) > asked
    logs.close()


def test_a_committed_query_asks_for_the_leaders_as_seldom_as_another(make_world: MakeWorld) -> None:
    world = filled(make_world)
    config = CONFIG.with_overrides({"isolation.level": "read_committed"})
    logs = BrokerLogReader(config, lambda: world.cluster.addresses, SYSTEM_CLOCK, world.cluster.connect)
    bounds = {T0: LogBounds(0, 10, last_stable=10), T1: LogBounds(0, 0, last_stable=0)}
    assert logs.read_bounds([T0, T1], {}) == bounds
    asked = metadata_requests(world)
    assert logs.read_bounds([T0, T1], {}) == bounds
    assert metadata_requests(world) == asked
    logs.close()


def test_leaders_are_not_believed_for_ever(make_world: MakeWorld) -> None:
    world = filled(make_world)
    clock = ManualClock()
    logs = logs_of(world, clock)
    logs.read_bounds([T0], {})
    asked = metadata_requests(world)
    clock.move(LEADERS_AGE_MAX_MS)
    logs.read_bounds([T0], {})
    assert metadata_requests(world) == asked + 1
    logs.close()


@pytest.mark.parametrize("release", ["0.8.2.2", "1.1.1", "3.9.1"])
def test_a_sample_says_about_how_large_a_record_is(make_world: MakeWorld, release: str) -> None:
    world = filled(make_world, release)
    logs = logs_of(world)
    sampled = logs.sample_bytes_per_offset(T0, 3)
    assert sampled is not None
    assert 100 < sampled < 200
    assert logs.sample_bytes_per_offset(T1, 0) is None
    assert logs.sample_bytes_per_offset(TopicPartition("t", 9), 0) is None
    logs.close()
