"""Connectors that keep their offsets in Kafka, alone or beside ZooKeeper; servers in memory, faults by hand."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_environment import FakeEnvironment
from bridge.testing.fake_faults import CloseConnection, GroupError, Hold
from tests.in_memory_fixtures import DEADLINE_MS, MakeConnector, MakeWorld, run_in_thread, take, take_all, wait_until
from zkconsumer.connector import Position, ZookeeperConsumerConnector
from zkconsumer.errors import OffsetsInKafkaUnsupported, OffsetsNotCommitted
from zkconsumer.member.offset_stores import OffsetSource
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import FIND_COORDINATOR, OFFSET_COMMIT, OFFSET_FETCH
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import ControlRecord, format_control

GROUP = "g1"
A, B = TopicPartition("t", 0), TopicPartition("t", 1)
BOTH: dict[str, Any] = {"offsets_storage": "kafka", "offsets_channel_backoff_ms": 5}
KAFKA: dict[str, Any] = BOTH | {"dual_commit_enabled": False}

both_ways = pytest.mark.parametrize("stores", [BOTH, KAFKA], ids=["dual", "kafka"])


@pytest.fixture(params=[1, 2])
def topic(world: FakeEnvironment, request: pytest.FixtureRequest) -> str:
    """A topic of two partitions with twenty records each; the group's coordinator is one broker, or the other."""
    filled(world)
    world.cluster.move_coordinator(GROUP, request.param - 1)
    return "t"


def filled(world: FakeEnvironment) -> None:
    world.create_topic("t", 2)
    for partition in range(2):
        world.cluster.append("t", partition, [b"%d" % number for number in range(20)])


def stored(world: FakeEnvironment, in_zookeeper: Mapping[int, int], in_kafka: Mapping[int, int]) -> None:
    for partition, offset in in_zookeeper.items():
        world.zookeeper.ensure(paths.offset(GROUP, TopicPartition("t", partition)), b"%d" % offset)
    for partition, offset in in_kafka.items():
        world.cluster.commit(GROUP, "t", partition, offset)


def in_kafka(world: FakeEnvironment) -> dict[int, int]:
    return {tp.partition: found.offset for tp, found in sorted(world.cluster.committed(GROUP).items())}


def asked(cluster: FakeCluster, api: object) -> int:
    return sum(seen.api is api for seen in cluster.requests)


def stream_of(connector: ZookeeperConsumerConnector) -> Any:
    return connector.create_message_streams({"t": 1})["t"][0]


# --- where a partition starts -----------------------------------------------------------------------------------------

CASES = [
    pytest.param({0: 3}, {0: 7}, 7, OffsetSource.KAFKA, id="kafka-is-larger"),
    pytest.param({0: 7}, {0: 3}, 7, OffsetSource.ZOOKEEPER, id="zookeeper-is-larger"),
    pytest.param({}, {0: 7}, 7, OffsetSource.KAFKA, id="missing-in-zookeeper"),
    pytest.param({0: 7}, {}, 7, OffsetSource.ZOOKEEPER, id="missing-in-kafka"),
    pytest.param({0: 7}, {0: 7}, 7, OffsetSource.BOTH, id="equal"),
    pytest.param({}, {}, -1, OffsetSource.NEITHER, id="missing-in-both"),
]


@pytest.mark.parametrize(("zookeeper", "kafka", "start", "source"), CASES)
def test_with_dual_commit_the_larger_offset_counts_and_both_stores_are_brought_to_it(
    world: FakeEnvironment,
    topic: str,
    connect: MakeConnector,
    zookeeper: dict[int, int],
    kafka: dict[int, int],
    start: int,
    source: OffsetSource,
) -> None:
    stored(world, zookeeper, kafka)
    connector = connect(**BOTH)
    stream = stream_of(connector)
    assert (connector.positions[A].started_at, connector.positions[A].source) == (start, source)
    wait_until(lambda: connector.positions[A].offset == max(start, 0), "the position is known")
    wait_until(lambda: connector.positions[B].offset == 0, "the position is known")
    connector.commit_offsets()
    assert world.offsets(GROUP, "t") == in_kafka(world) == {0: max(start, 0), 1: 0}, "an idle partition as well"
    handed = [message.offset for message in take(stream, 40 - max(start, 0)) if message.partition == 0]
    assert handed == list(range(max(start, 0), 20))


def test_without_dual_commit_the_znodes_are_neither_read_nor_written(
    world: FakeEnvironment, topic: str, connect: MakeConnector
) -> None:
    stored(world, {0: 15, 1: 3}, {0: 7})
    connector = connect(**KAFKA)
    stream = stream_of(connector)
    assert connector.positions == {A: Position(7, 7, OffsetSource.KAFKA), B: connector.positions[B]}
    assert connector.positions[B][1:] == (-1, OffsetSource.NEITHER)
    take(stream, 33)
    connector.commit_offsets()
    assert in_kafka(world) == {0: 20, 1: 20}
    assert world.offsets(GROUP, "t") == {0: 15, 1: 3}


def test_without_kafka_nobody_asks_for_a_coordinator(
    world: FakeEnvironment, topic: str, connect: MakeConnector
) -> None:
    stored(world, {0: 5}, {0: 9})
    with connect() as connector:
        take(stream_of(connector), 35)
        connector.commit_offsets()
    assert asked(world.cluster, FIND_COORDINATOR) == 0
    assert in_kafka(world) == {0: 9}


# --- commits ----------------------------------------------------------------------------------------------------------


@both_ways
def test_offsets_are_committed_by_the_timer_by_hand_and_at_the_end(
    world: FakeEnvironment, topic: str, connect: MakeConnector, stores: dict[str, Any]
) -> None:
    connector = connect(**stores, auto_commit_interval_ms=20)
    stream = stream_of(connector)
    take(stream, 10)
    stream.iterator().has_next()
    wait_until(lambda: sum(in_kafka(world).values()) == 10, "the timer commits")
    take(stream, 10)
    connector.commit_offsets()
    assert sum(in_kafka(world).values()) == 20
    take(stream, 5)
    connector.close()
    assert sum(in_kafka(world).values()) == 25
    if stores is BOTH:
        assert world.offsets(GROUP, "t") == in_kafka(world)
    else:
        assert world.offsets(GROUP, "t") == {}


def test_defect_39_unchanged_offsets_are_told_again_by_every_automatic_commit(
    world: FakeEnvironment, topic: str, connect: MakeConnector
) -> None:
    stored(world, {}, {0: 20, 1: 20})
    connector = connect(**KAFKA, auto_commit_interval_ms=10)
    stream_of(connector)
    wait_until(lambda: asked(world.cluster, OFFSET_COMMIT) > 3, "brokers that forget hear it again")
    sizes = {
        sum(len(row.partitions) for row in seen.body.topics)
        for seen in world.cluster.requests
        if seen.api is OFFSET_COMMIT
    }
    assert sizes == {2}, "changed or not"
    assert in_kafka(world) == {0: 20, 1: 20}


@both_ways
def test_defect_35_no_negative_offset_is_told_to_kafka(
    make_world: MakeWorld, connect: MakeConnector, stores: dict[str, Any]
) -> None:
    world = make_world(brokers=1)
    world.create_topic("t", 2)
    held = world.cluster.inject(Hold(), api=None, broker_id=None, times=0)
    world.cluster.move_leader("t", 0, None)
    world.cluster.move_leader("t", 1, None)
    with connect(on=world, **stores, auto_commit_interval_ms=10) as connector:
        stream_of(connector)
        connector.commit_offsets()
        assert connector.positions[A].offset == -1
    assert asked(world.cluster, OFFSET_COMMIT) == 0
    world.cluster.lift(held)


def test_what_zookeeper_refuses_is_not_told_to_kafka(
    world: FakeEnvironment, topic: str, connect: MakeConnector
) -> None:
    connector = connect(**BOTH)
    stream = stream_of(connector)
    take(stream, 40)
    world.zookeeper.hold("events")
    world.zookeeper.remove(paths.owner(GROUP, A))
    with pytest.raises(OffsetsNotCommitted) as raised:
        connector.commit_offsets({A: 20, B: 19}, retry_on_failure=False)
    assert set(raised.value.errors) == {A}
    assert raised.value.errors[A] == "ZooKeeper: the owner node does not exist"
    assert in_kafka(world) == {1: 19}


def test_a_commit_to_kafka_alone_is_checked_against_the_owner_nodes(
    world: FakeEnvironment, topic: str, connect: MakeConnector
) -> None:
    connector = connect(**KAFKA)
    take(stream_of(connector), 40)
    owner = paths.owner(GROUP, A)
    world.zookeeper.hold("events")
    world.zookeeper.remove(owner)
    world.zookeeper.ensure(owner, b"somebody else")
    with pytest.raises(OffsetsNotCommitted) as raised:
        connector.commit_offsets({A: 20, B: 19}, retry_on_failure=False)
    assert raised.value.errors == {A: "Kafka: another member has the owner node: b'somebody else'"}
    assert in_kafka(world) == {1: 19}
    wait_until(lambda: A not in connector.assignment, "what is not ours is not read")


def test_a_commit_of_an_ended_session_is_not_sent(world: FakeEnvironment, topic: str, connect: MakeConnector) -> None:
    connector = connect(**KAFKA, auto_commit_enable=False)
    take(stream_of(connector), 40)
    world.cluster.move_coordinator(GROUP, 1 - (world.cluster.coordinator(GROUP) or 0))
    with pytest.raises(OffsetsNotCommitted, match="NOT_COORDINATOR"):
        connector.commit_offsets(retry_on_failure=False)
    before = asked(world.cluster, FIND_COORDINATOR)
    held = world.cluster.inject(Hold(), api=FIND_COORDINATOR, times=None)

    def commit() -> str:
        with pytest.raises(OffsetsNotCommitted) as raised:
            connector.commit_offsets({A: 20}, retry_on_failure=False)
        return raised.value.errors[A]

    failing = run_in_thread(commit)
    wait_until(lambda: asked(world.cluster, FIND_COORDINATOR) > before, "the coordinator is looked for")
    world.zookeeper.expire(world.store_of(connector))
    assert failing() == "the ZooKeeper session expired"
    world.cluster.lift(held)
    wait_until(lambda: len(connector.assignment) == 2, "the next session reads on")
    assert in_kafka(world) == {}, "nothing of the ended session was sent"


# --- who tries again, and how often -------------------------------------------------------------------------------

RETRIES = 3


@pytest.fixture
def refusing(world: FakeEnvironment, topic: str) -> Iterator[FakeEnvironment]:
    """A world whose coordinator answers every commit with error 7, which another try may cure."""
    injected = world.cluster.inject(GroupError(GROUP, 7), api=OFFSET_COMMIT, times=None)
    yield world
    world.cluster.lift(injected)


def committed_once(connect: MakeConnector, stores: dict[str, Any], **settings: Any) -> ZookeeperConsumerConnector:
    connector = connect(**stores, offsets_commit_max_retries=RETRIES, **settings)
    take(stream_of(connector), 10)
    return connector


@both_ways
@pytest.mark.parametrize(("retry", "attempts"), [(True, 1 + RETRIES), (False, 1)])
def test_defect_26_a_commit_by_hand_is_tried_again_as_documented(
    refusing: FakeEnvironment, connect: MakeConnector, stores: dict[str, Any], retry: bool, attempts: int
) -> None:
    connector = committed_once(connect, stores, auto_commit_enable=False)
    with pytest.raises(OffsetsNotCommitted) as raised:
        connector.commit_offsets(retry_on_failure=retry)
    assert asked(refusing.cluster, OFFSET_COMMIT) == attempts
    assert "Kafka: REQUEST_TIMED_OUT (7)" in str(raised.value)


@both_ways
def test_an_automatic_commit_is_tried_once(
    refusing: FakeEnvironment, connect: MakeConnector, stores: dict[str, Any]
) -> None:
    connector = committed_once(connect, stores, auto_commit_interval_ms=50)
    wait_until(lambda: connector.counters.get("kafka_commits_failed", 0) >= 4, "two automatic commits")
    rounds = connector.counters["kafka_commits_failed"] // 2
    assert abs(asked(refusing.cluster, OFFSET_COMMIT) - rounds) <= 1


@both_ways
def test_a_rebalance_commits_at_the_change_and_at_the_release_and_tries_neither_again(
    refusing: FakeEnvironment, connect: MakeConnector, stores: dict[str, Any]
) -> None:
    """The release commits once more what the coordinator refused when the change was seen."""
    first = committed_once(connect, stores)
    second = connect(**stores)
    stream_of(second)
    wait_until(lambda: len(second.assignment) == 1, "the second member has its share", 2 * DEADLINE_MS)
    assert asked(refusing.cluster, OFFSET_COMMIT) <= 2
    assert len(first.assignment) == 1


@both_ways
def test_shutdown_tries_again_as_documented(
    refusing: FakeEnvironment, connect: MakeConnector, stores: dict[str, Any]
) -> None:
    connector = committed_once(connect, stores)
    connector.shutdown()
    assert asked(refusing.cluster, OFFSET_COMMIT) == 1 + RETRIES
    assert refusing.owners(GROUP, "t") == {}


@both_ways
@pytest.mark.parametrize("way", ["commit_offsets", "shutdown", "timer"])
def test_defect_33_a_modern_group_of_the_name_is_told_at_once(
    world: FakeEnvironment,
    topic: str,
    connect: MakeConnector,
    stores: dict[str, Any],
    way: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    connector = committed_once(connect, stores, auto_commit_interval_ms=20 if way == "timer" else 60_000)
    world.cluster.set_coordinator_members(GROUP, True)
    if way == "commit_offsets":
        with pytest.raises(
            OffsetsNotCommitted, match=r"Kafka: UNKNOWN_MEMBER_ID \(25\): a coordinator group of this name has members"
        ):
            connector.commit_offsets()
        assert asked(world.cluster, OFFSET_COMMIT) == 1
    elif way == "shutdown":
        connector.shutdown()
        assert asked(world.cluster, OFFSET_COMMIT) == 1
    else:
        wait_until(lambda: asked(world.cluster, OFFSET_COMMIT) > 4, "it goes on trying at its time")
    told = [record for record in caplog.records if record.getMessage().startswith("coordinator-group-active")]
    assert len(told) == 1
    assert told[0].levelname == "ERROR"
    if stores is BOTH:
        assert sum(world.offsets(GROUP, "t").values()) >= 9, "ZooKeeper has them"
    world.cluster.set_coordinator_members(GROUP, False)
    if way == "timer":
        before = connector.counters.get("kafka_commits", 0)
        wait_until(lambda: connector.counters.get("kafka_commits", 0) > before, "it goes by itself when they leave")


# --- the coordinator moves, or is away ----------------------------------------------------------------------------


@both_ways
def test_nothing_goes_back_while_the_coordinator_moves(
    world: FakeEnvironment, topic: str, connect: MakeConnector, stores: dict[str, Any]
) -> None:
    connector = connect(**stores, auto_commit_enable=False)
    stream = stream_of(connector)
    last: dict[int, int] = {}
    for number in range(8):
        take(stream, 5)
        world.cluster.move_coordinator(GROUP, number % 2)
        connector.commit_offsets()
        now = in_kafka(world)
        assert sum(now.values()) == 5 * (number + 1)
        assert all(now[partition] >= offset for partition, offset in last.items())
        last = now


@both_ways
def test_an_answer_that_is_lost_is_repeated(
    world: FakeEnvironment, topic: str, connect: MakeConnector, stores: dict[str, Any]
) -> None:
    connector = connect(**stores, auto_commit_enable=False)
    take(stream_of(connector), 10)
    world.cluster.inject(CloseConnection(), api=OFFSET_COMMIT)
    connector.commit_offsets()
    assert sum(in_kafka(world).values()) == 10


@both_ways
def test_a_partition_whose_offset_kafka_does_not_tell_is_held_and_not_read_until_it_does(
    world: FakeEnvironment, topic: str, connect: MakeConnector, stores: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    stored(world, {}, {0: 7, 1: 20})
    loading = world.cluster.inject(GroupError(GROUP, 14), api=OFFSET_FETCH, times=None)
    connector = connect(**stores, rebalance_offsets_timeout_ms=50, rebalance_backoff_ms=50, rebalance_max_retries=1)
    made = run_in_thread(lambda: stream_of(connector))
    wait_until(lambda: len(world.owners(GROUP, "t")) == 2, "it is held")
    wait_until(lambda: "offset-fetch-failed" in caplog.text, "and told")
    assert connector.assignment == {}
    world.cluster.lift(loading)
    assert {message.offset for message in take(made(3 * DEADLINE_MS), 13)} == set(range(7, 20))
    told = [record for record in caplog.records if record.getMessage().startswith("offset-fetch-failed")]
    assert len(told) == 1


@both_ways
def test_a_coordinator_that_never_answers_does_not_hold_partitions_that_others_want(
    world: FakeEnvironment, topic: str, connect: MakeConnector, stores: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    first = connect(**stores, rebalance_offsets_timeout_ms=100)
    stream = stream_of(first)
    take(stream, 22)  # of 20 a partition: some of each are consumed, whichever is fetched first
    world.cluster.inject(Hold(), api=OFFSET_COMMIT, times=None)
    second = connect()
    stream_of(second)
    wait_until(lambda: len(second.assignment) == 1, "the second member has its share")
    assert first.counters["kafka_release_timeouts"] == 1
    assert "kafka-release-timeout" in caplog.text
    if stores is BOTH:
        # The commit at the change may have written the partition that stays, too.
        assert {tp.partition for tp in second.assignment} <= set(world.offsets(GROUP, "t"))


@both_ways
def test_an_automatic_commit_that_hangs_does_not_hold_partitions_either(
    world: FakeEnvironment, topic: str, connect: MakeConnector, stores: dict[str, Any]
) -> None:
    first = connect(**stores, rebalance_offsets_timeout_ms=100, auto_commit_interval_ms=30)
    stream = stream_of(first)
    take(stream, 10)
    world.cluster.inject(Hold(), api=OFFSET_COMMIT, times=None)
    wait_until(lambda: asked(world.cluster, OFFSET_COMMIT), "a commit hangs")
    second = connect()
    stream_of(second)
    wait_until(lambda: len(second.assignment) == 1, "the second member has its share")


@both_ways
@pytest.mark.parametrize("api", [FIND_COORDINATOR, OFFSET_FETCH, OFFSET_COMMIT])
def test_defect_15_shutdown_does_not_wait_for_a_coordinator_for_ever(
    world: FakeEnvironment, topic: str, connect: MakeConnector, stores: dict[str, Any], api: Any
) -> None:
    world.cluster.inject(Hold(), api=api, times=None)
    settings = {"rebalance_offsets_timeout_ms": 100, "offsets_commit_max_retries": 0, "rebalance_max_retries": 1}
    connector = connect(**stores, **settings, rebalance_backoff_ms=50, zookeeper_session_timeout_ms=500)
    joined = threading.Event()

    def join() -> None:
        stream_of(connector)
        joined.set()

    run_in_thread(join)
    world.cluster.wait_for_request(lambda seen: seen.api is api or api is OFFSET_COMMIT, DEADLINE_MS)
    if api is OFFSET_COMMIT:
        wait_until(joined.is_set, "it has joined")
    run_in_thread(connector.shutdown)(DEADLINE_MS)
    assert world.owners(GROUP, "t") == {}


def test_brokers_of_0_8_1_are_named_instead_of_asked_for_ever(make_world: MakeWorld, connect: MakeConnector) -> None:
    world = make_world(brokers=2, release="0.8.1.1")
    filled(world)
    connector = connect(on=world, **BOTH)
    with pytest.raises(OffsetsInKafkaUnsupported, match=r"needs brokers from 0\.8\.2 on"):
        connector.create_message_streams({"t": 1})
    connector.close()
    assert world.owners(GROUP, "t") == {}


@both_ways
def test_a_group_of_two_loses_and_repeats_nothing_in_a_clean_rebalance(
    world: FakeEnvironment, topic: str, connect: MakeConnector, stores: dict[str, Any]
) -> None:
    first = connect(**stores, consumer_timeout_ms=200)
    stream = stream_of(first)
    seen = [(message.partition, message.offset) for message in take(stream, 15)]
    second = connect(**stores, consumer_timeout_ms=200)
    streams = [stream]
    run_in_thread(lambda: streams.append(stream_of(second)))

    def all_are_seen() -> bool:
        for each in [*streams]:  # the first goes on while the second joins: no message stays in hand until then
            seen.extend((message.partition, message.offset) for message in take_all(each))
        return len(seen) >= 40 and len(streams) == 2

    wait_until(all_are_seen, "40 records, and two members")
    all_are_seen()  # takes what is handed out twice
    assert sorted(seen) == [(partition, offset) for partition in range(2) for offset in range(20)]


def test_a_commit_to_kafka_alone_is_checked_against_the_control_znode(
    world: FakeEnvironment, topic: str, connect: MakeConnector
) -> None:
    control = paths.control(GROUP)
    world.zookeeper.ensure(control, format_control(ControlRecord("m1", 1, "planned", "zookeeper", "stop")))
    connector = connect(**KAFKA)
    take(stream_of(connector), 40)
    connector.commit_offsets({A: 7})
    assert in_kafka(world) == {0: 7}
    world.zookeeper.hold("events")
    world.zookeeper.ensure(control, format_control(ControlRecord("m1", 2, "moved", "kafka", "stop")))
    with pytest.raises(OffsetsNotCommitted, match="Kafka: the control znode of the group changed"):
        connector.commit_offsets({A: 20}, retry_on_failure=False)
    assert in_kafka(world) == {0: 7}
