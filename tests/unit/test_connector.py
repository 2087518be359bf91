"""Whole connectors on a world in memory: what programs, neighbours and ZooKeeper see of them."""

from __future__ import annotations

import gc
import logging
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bridge import CoordinatorConsumerConnector, MigratingConsumerConnector
from bridge.coordinator.release_features import RELEASES
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.in_memory_fixtures import (
    MakeConnector,
    MakeWorld,
    Stream,
    our_threads,
    run_in_thread,
    take,
    wait_until,
)
from zkconsumer import ConsumerConfig
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import (
    ChrootMissing,
    ConnectorClosed,
    ConsumerIdInUse,
    ConsumerRebalanceFailedException,
    ConsumerTimeoutException,
    ForkedError,
    InvalidNameError,
    MessageStreamsExistException,
    MigrationError,
    OffsetsNotCommitted,
    UsageError,
    ZkTimeoutException,
)
from zkconsumer.kafka import version_negotiation
from zkconsumer.kafka.chunks import PartitionTopicInfo
from zkconsumer.member.offset_stores import CommitFailure
from zkconsumer.streams import string_decoder
from zkconsumer.testing.fake_zookeeper import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.schemas import FETCH, METADATA
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    OPEN_ACL,
    CheckOp,
    ChildNames,
    Create,
    CreateOp,
    DeleteOp,
    Multi,
    NoAuth,
    Request,
    SetData,
)
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.znode_formats import ControlRecord, format_control

TOPIC = "topic1"
GROUP = "group1"
SHORT_SESSION_MS = 300


def infos(connector: ZookeeperConsumerConnector) -> dict[int, PartitionTopicInfo]:
    """The ownerships as the streams know them, by partition."""
    return {tp.partition: info for tp, info in connector._member.streams.partition_infos.items()}


def streams_of(connector: ZookeeperConsumerConnector, threads: int = 1, topic: str = TOPIC) -> list[Stream]:
    return connector.create_message_streams({topic: threads})[topic]


def append(
    world: FakeEnvironment, partition: int, *values: str, codec: int = compression.NONE, topic: str = TOPIC
) -> None:
    world.cluster.append(topic, partition, [value.encode() for value in values], codec=codec)


def values_of(messages: list[Any]) -> list[str]:
    return sorted(message.value.decode() for message in messages)


def wait_for_owners(world: FakeEnvironment, owners: dict[int, str], topic: str = TOPIC) -> None:
    wait_until(lambda: world.owners(GROUP, topic) == owners, f"the owners are {owners}")


def members(world: FakeEnvironment) -> list[str]:
    """Who is registered."""
    children = world.zookeeper.tree.children(paths.ids(GROUP))
    return children.names if isinstance(children, ChildNames) else []


def short_sessions(world: FakeEnvironment) -> None:
    world.zookeeper.timeout_range_ms = (50, 40_000)


@contextmanager
def recorded(world: FakeEnvironment) -> Iterator[list[Request]]:
    """Every request that reaches ZooKeeper meanwhile."""
    seen: list[Request] = []
    is_on = True

    def look(request: Request) -> bool:
        if is_on:
            seen.append(request)
        return False

    world.zookeeper.fail_next(look, NoAuth)
    yield seen
    is_on = False


# --- the tests of the original ----------------------------------------------------------------------------------


def basic(world: FakeEnvironment, connect: MakeConnector, codec: int) -> None:
    """ZookeeperConsumerConnectorTest.testBasic, (b) to (e)."""
    for partition in range(2):
        append(world, partition, f"first-{partition}-0", f"first-{partition}-1", codec=codec)
    consumer1 = connect(on=world, group_id=GROUP, consumer_id="consumer1")
    [stream1] = streams_of(consumer1)
    expected = sorted(f"first-{partition}-{number}" for partition in range(2) for number in range(2))
    assert values_of(take(stream1, 4)) == expected
    assert world.owners(GROUP, TOPIC) == {0: "group1_consumer1-0", 1: "group1_consumer1-0"}
    consumer1.commit_offsets()
    assert world.offsets(GROUP, TOPIC) == {0: 2, 1: 2}

    joining = run_in_thread(
        lambda: streams_of(connect(on=world, group_id=GROUP, consumer_id="consumer2", num_consumer_fetchers=1))
    )
    assert_nothing_comes(stream1, consumer1, {0})
    [stream2] = joining()
    owners = {0: "group1_consumer1-0", 1: "group1_consumer2-0"}
    wait_for_owners(world, owners)
    for partition in range(2):
        append(world, partition, f"second-{partition}-0", f"second-{partition}-1", codec=codec)
    assert values_of(take(stream1, 2)) == ["second-0-0", "second-0-1"]
    assert values_of(take(stream2, 2)) == ["second-1-0", "second-1-1"]

    consumer3 = connect(on=world, group_id=GROUP, consumer_id="consumer3")
    assert consumer3.create_message_streams({}) == {}
    for partition in range(2):
        append(world, partition, f"third-{partition}-0", f"third-{partition}-1", codec=codec)
    assert values_of(take(stream1, 2)) == ["third-0-0", "third-0-1"]
    assert values_of(take(stream2, 2)) == ["third-1-0", "third-1-1"]
    assert world.owners(GROUP, TOPIC) == owners
    with pytest.raises(MessageStreamsExistException):
        consumer3.create_message_streams({})


def assert_nothing_comes(stream: Stream, connector: ZookeeperConsumerConnector, stays: set[int]) -> None:
    """Come back for more, as a program does, until the others have taken their part."""
    done = threading.Event()

    def come_back() -> None:
        while not done.is_set():
            assert not has_next_soon(stream)

    reading = run_in_thread(come_back)
    wait_until(lambda: {tp.partition for tp in connector.assignment} == stays, f"only {stays} stay")
    done.set()
    reading()


def has_next_soon(stream: Stream) -> bool:
    iterator = stream.iterator()
    before, iterator.delivery.timeout_ms = iterator.delivery.timeout_ms, 20
    try:
        return iterator.has_next()
    except ConsumerTimeoutException:
        return False
    finally:
        iterator.delivery.timeout_ms = before


def test_basic_a_times_out_twice_in_a_row_without_data(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 2)
    [stream] = streams_of(connect(consumer_timeout_ms=200))
    for _ in range(2):
        with pytest.raises(ConsumerTimeoutException):
            stream.iterator().has_next()


def test_basic_b_to_e(world: FakeEnvironment, connect: MakeConnector) -> None:
    """ZookeeperConsumerConnectorTest.testBasic."""
    world.create_topic(TOPIC, 2)
    basic(world, connect, compression.NONE)


CODECS = {"gzip": compression.GZIP, "snappy": compression.SNAPPY, "lz4": compression.LZ4, "zstd": compression.ZSTD}


@pytest.mark.parametrize(
    ("release", "codec"),
    [
        (release, name)
        for release, facts in RELEASES.items()
        for name in CODECS
        if name != "zstd" or facts.version >= (2, 1)
    ],
)
def test_compression(
    release: str, codec: str, make_world: MakeWorld, connect: MakeConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(version_negotiation, "NO_RESPONSE_MS", 30)
    world = make_world(brokers=2, release=release)
    world.create_topic(TOPIC, 2)
    basic(world, connect, CODECS[codec])


def test_compression_set_consumption(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 2)
    for partition in range(2):
        append(world, partition, *(f"{partition}-{number:03}" for number in range(200)), codec=compression.GZIP)
    [stream] = streams_of(connect())
    expected = [f"{partition}-{number:03}" for partition in range(2) for number in range(200)]
    assert values_of(take(stream, 400)) == expected


def test_consumer_decoder(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 2)
    for partition in range(2):
        append(world, partition, *(f"{partition}-ä{number}" for number in range(5)))
    connector = connect()
    [stream] = connector.create_message_streams({TOPIC: 1}, string_decoder, string_decoder)[TOPIC]
    iterator = stream.iterator()
    received = []
    for _ in range(10):
        assert iterator.has_next()
        received.append(iterator.next().value)
    assert sorted(received) == [f"{partition}-ä{number}" for partition in range(2) for number in range(5)]


def test_leader_selection_for_partition(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    append(world, 0, "1", "2")
    connector = connect(group_id=GROUP, consumer_id="consumer1")
    [stream] = streams_of(connector)
    assert connector.assignment == {TopicPartition(TOPIC, 0): "group1_consumer1-0"}
    assert world.owners(GROUP, TOPIC) == {0: "group1_consumer1-0"}
    assert [message.value for message in take(stream, 2)] == [b"1", b"2"]


@pytest.mark.parametrize(("policy", "expected"), [("smallest", 10), ("largest", 0)])
@pytest.mark.parametrize("stored", [10_000, -1])
def test_auto_offset_reset(
    stored: int, policy: str, expected: int, world: FakeEnvironment, connect: MakeConnector
) -> None:
    """AutoOffsetResetTest: an offset that is too large, and one that is negative; what comes behind is read."""
    world.create_topic(TOPIC, 1)
    append(world, 0, *map(str, range(10)))
    world.zookeeper.ensure(paths.offset(GROUP, TopicPartition(TOPIC, 0)), str(stored).encode())
    connector = connect(group_id=GROUP, auto_offset_reset=policy)
    [stream] = streams_of(connector)
    wait_until(lambda: infos(connector)[0].resets, "the offset is reset")
    append(world, 0, "behind")
    assert [message.offset for message in take(stream, expected + 1)] == list(range(10 - expected, 11))


def test_a_reset_is_committed_although_it_goes_back(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    append(world, 0, *map(str, range(10)))
    world.zookeeper.ensure(paths.offset(GROUP, TopicPartition(TOPIC, 0)), b"10000")
    connector = connect(group_id=GROUP)
    [stream] = streams_of(connector)
    take(stream, 3)
    connector.commit_offsets()
    assert world.offsets(GROUP, TOPIC) == {0: 3}
    assert connector.counters["offsets_reset"] == 1


# --- what may be asked for --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "topic_count_map",
    [
        None,
        [TOPIC],
        {TOPIC: 0},
        {TOPIC: -1},
        {TOPIC: True},
        {TOPIC: "1"},
        {TOPIC: 1.0},
        {TOPIC: 2**31},
        {TOPIC: 1, "a/b": 1},
        {"..": 1},
        {"": 1},
        {"x" * 250: 1},
        {"t\n": 1},
    ],
    ids=repr,
)
def test_what_cannot_be_subscribed_to_is_refused_before_anything_is_written(
    topic_count_map: Any, world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 1)
    connector = connect(group_id=GROUP)
    before = world.zookeeper.tree.dump()
    with pytest.raises(UsageError):
        connector.create_message_streams(topic_count_map)
    assert world.zookeeper.tree.dump() == before
    append(world, 0, "v")
    [stream] = streams_of(connector)
    assert take(stream, 1)[0].value == b"v", "the next call may be right"


def test_a_consumer_id_that_leads_elsewhere_is_refused(world: FakeEnvironment, connect: MakeConnector) -> None:
    with pytest.raises((InvalidNameError, UsageError)):
        connect(consumer_id="../../brokers")


def test_streams_come_as_many_as_asked_for_also_without_partitions_for_them(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 1)
    connector = connect(group_id=GROUP, consumer_id="a")
    streams = connector.create_message_streams({TOPIC: 3, "absent": 2})
    assert [stream.thread for stream in streams[TOPIC]] == ["group1_a-0", "group1_a-1", "group1_a-2"]
    assert len(streams["absent"]) == 2
    assert connector.assignment == {TopicPartition(TOPIC, 0): "group1_a-0"}


def test_streams_can_be_made_once(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    connector = connect()
    streams_of(connector)
    with pytest.raises(MessageStreamsExistException):
        streams_of(connector)


def test_an_empty_map_registers_and_gets_nothing(world: FakeEnvironment, connect: MakeConnector) -> None:
    connector = connect(group_id=GROUP, consumer_id="a")
    assert connector.create_message_streams({}) == {}
    assert world.zookeeper.data(paths.registration(GROUP, "group1_a")) is not None
    assert connector.assignment == {}
    connector.commit_offsets()


def test_a_registration_that_another_client_overwrote_is_written_again_once(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic(TOPIC, 1)
    connector = connect(group_id=GROUP, consumer_id="a")
    streams_of(connector)
    wait_until(lambda: infos(connector), "the partition is fetched")
    path = paths.registration(GROUP, "group1_a")
    before = world.zookeeper.data(path)
    other = FakeZkStore(world.zookeeper)
    other.start(1_000)
    submit_and_wait(other, [SetData(path, b"no JSON")], 1_000)
    submit_and_wait(other, [Create(paths.registration(GROUP, "group1_b"), b"no JSON", ephemeral=True)], 1_000)
    wait_until(lambda: world.zookeeper.data(path) not in (b"no JSON", None), "it is written again")
    wait_until(lambda: infos(connector), "the partition is fetched again")
    assert before is not None
    assert world.zookeeper.data(path) != before, "it has a new timestamp"
    assert sum("registration-deleted" in line for line in caplog.messages) == 1


def test_a_made_up_consumer_id_is_as_the_original_makes_it(world: FakeEnvironment, connect: MakeConnector) -> None:
    group, host, millis, random = connect(group_id=GROUP).consumer_id.replace("_", "-", 1).rsplit("-", 3)[0:4]
    assert group.startswith(GROUP) or group == GROUP
    assert host
    assert millis.isdigit()
    assert len(random) == 8


@pytest.mark.parametrize("name", ["", "a b/c", "kiste\u00e4.lan"])
def test_a_machine_without_a_name_of_its_own_starts_all_the_same(
    name: str, world: FakeEnvironment, connect: MakeConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is resolved, and what cannot stand in a path is replaced."""
    monkeypatch.setattr("zkconsumer.runtime.membership_config.socket.gethostname", lambda: name)
    world.create_topic(TOPIC, 1)
    connector = connect(group_id=GROUP)
    streams_of(connector)
    assert world.owners(GROUP, TOPIC) == {0: f"{connector.consumer_id}-0"}


def test_zookeeper_that_is_down_is_one_clear_error_and_leaves_no_thread(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.zookeeper.is_up = False
    with pytest.raises(ZkTimeoutException):
        connect()
    assert our_threads() == []


def test_a_chroot_that_is_missing_is_one_clear_error_and_leaves_no_thread(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    """ZKPathTest makes the chroot, or fails where it may not; here a missing one is an error."""
    with pytest.raises(ChrootMissing):
        connect(zookeeper_connect="fake.invalid:2181/nowhere")
    assert our_threads() == []


# --- topics that change -----------------------------------------------------------------------------------------


def test_partitions_that_come_later_are_read_from_their_beginning(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 1)
    connector = connect(group_id=GROUP, consumer_id="a")
    [stream] = streams_of(connector)
    [kept] = infos(connector).values()
    world.create_topic(TOPIC, 3)
    for partition in range(3):
        append(world, partition, f"v{partition}")
    assert values_of(take(stream, 3)) == ["v0", "v1", "v2"]
    wait_for_owners(world, dict.fromkeys(range(3), "group1_a-0"))
    assert infos(connector)[0] is kept
    assert kept.is_live


def test_a_topic_that_is_created_after_the_subscription_is_read(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    connector = connect(group_id=GROUP, consumer_id="a")
    [stream] = streams_of(connector)
    assert [line for line in caplog.messages if "topic-missing" in line] == caplog.messages
    assert len(caplog.messages) == 1
    world.create_topic(TOPIC, 2)
    append(world, 1, "v")
    assert take(stream, 1)[0].value == b"v"


@pytest.mark.parametrize("brokers_first", [True, False])
def test_a_topic_that_is_deleted_is_one_warning_and_the_others_go_on(
    brokers_first: bool, world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic(TOPIC, 2)
    world.create_topic("other", 2)
    connector = connect(group_id=GROUP, consumer_id="a")
    streams = connector.create_message_streams({TOPIC: 1, "other": 1})
    with caplog.at_level(logging.WARNING):
        append(world, 0, "before", topic="other")
        take(streams["other"][0], 1)
        if brokers_first:
            world.cluster.delete_topic(TOPIC)
            append(world, 0, "between", topic="other")
            take(streams["other"][0], 1)
        world.zookeeper.remove(paths.topic(TOPIC))
        wait_until(lambda: {tp.topic for tp in connector.assignment} == {"other"}, "its partitions are given back")
        if not brokers_first:
            world.cluster.delete_topic(TOPIC)
        append(world, 0, "v", topic="other")
        assert take(streams["other"][0], 1)[0].value == b"v"
    [line] = caplog.messages
    assert "topic-missing" in line
    assert TOPIC in line
    wait_until(lambda: owner_stat(world, 0) is None, "its owner nodes are deleted")
    world.create_topic(TOPIC, 2)
    append(world, 1, "again")
    assert take(streams[TOPIC][0], 1)[0].value == b"again"


# --- sessions ---------------------------------------------------------------------------------------------------


def test_after_an_expiry_the_member_registers_again_and_nothing_is_lost(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    connector = connect(group_id=GROUP, consumer_id="a")
    [stream] = streams_of(connector)
    append(world, 0, *(f"{number}" for number in range(10)))
    take(stream, 3)
    connector.commit_offsets()
    take(stream, 2)
    old_session = world.store_of(connector).session_id
    old = infos(connector)
    world.zookeeper.expire(world.store_of(connector))
    wait_until(lambda: not old[0].is_live, "the end of the session is known")
    assert [message.offset for message in take(stream, 7)] == [3, 4, 5, 6, 7, 8, 9], "from the last commit on"
    assert world.store_of(connector).session_id != old_session
    assert world.owners(GROUP, TOPIC) == {0: "group1_a-0", 1: "group1_a-0"}
    assert not any(info.is_live for info in old.values())
    assert infos(connector)[0] is not old[0]


def test_records_of_an_ended_session_are_not_handed_out(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    connector = connect(group_id=GROUP, consumer_id="a")
    [stream] = streams_of(connector)
    append(world, 0, *map(str, range(10)))
    wait_until(lambda: len(stream.queue) == 1, "a chunk has arrived")
    take(stream, 2)
    assert stream.iterator().has_next()
    world.zookeeper.hold("requests", world.store_of(connector))
    world.zookeeper.expire(world.store_of(connector))
    wait_until(lambda: connector.assignment == {}, "the end of the session is known")
    assert not has_next_soon(stream)
    with pytest.raises(OffsetsNotCommitted):
        connector.commit_offsets({TopicPartition(TOPIC, 0): 5}, retry_on_failure=False)
    assert world.offsets(GROUP, TOPIC) == {}
    world.zookeeper.release("requests", world.store_of(connector))
    assert [message.offset for message in take(stream, 10)] == list(range(10))


def why_nothing_came(stream: Stream) -> str:
    """Take the next record; the error after ``consumer.timeout.ms`` without one, or an empty text."""
    try:
        next(stream.iterator())
    except ConsumerTimeoutException as error:
        return str(error)
    return ""


def test_without_an_answer_from_zookeeper_nothing_is_handed_out_after_two_thirds_of_the_time_out(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    """The lease on a real clock: no answers, and the connection does not even break.

    On a busy machine a chunk, or the renewal of the lease, takes longer than ``consumer.timeout.ms``: then the program
    asks again, here as well.
    """
    short_sessions(world)
    world.create_topic(TOPIC, 1)
    append(world, 0, *map(str, range(100_000)))
    connector = connect(
        group_id=GROUP, consumer_id="a", zookeeper_session_timeout_ms=SHORT_SESSION_MS, consumer_timeout_ms=100
    )
    [stream] = streams_of(connector)
    wait_until(lambda: why_nothing_came(stream) == "", "records are handed out")
    store = world.store_of(connector)
    world.zookeeper.hold("answers", store)
    held_at_ms = asked_at_ms = SYSTEM_CLOCK.now_ms()

    def is_silence_noticed() -> bool:
        nonlocal asked_at_ms
        asking_at_ms = SYSTEM_CLOCK.now_ms()
        why = why_nothing_came(stream)
        if why == "":
            asked_at_ms = asking_at_ms
        return "ZooKeeper has not answered lately" in why

    wait_until(is_silence_noticed, "the lease has run out")
    assert asked_at_ms - held_at_ms <= SHORT_SESSION_MS * 2 // 3
    world.zookeeper.release("answers", store)
    wait_until(lambda: has_next_soon(stream), "the lease is renewed")


def test_a_mere_disconnect_causes_no_rebalance_and_no_pause(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 4)
    connector = connect(group_id=GROUP, consumer_id="a")
    neighbour = connect(group_id=GROUP, consumer_id="b")
    [stream] = streams_of(connector)
    joining = run_in_thread(lambda: streams_of(neighbour))
    assert_nothing_comes(stream, connector, {0, 1})
    [stream2] = joining()
    owners = {0: "group1_a-0", 1: "group1_a-0", 2: "group1_b-0", 3: "group1_b-0"}
    wait_for_owners(world, owners)
    for partition in range(4):
        append(world, partition, "before")
    take(stream, 2)
    take(stream2, 2)
    before, others = infos(connector), infos(neighbour)
    asked = len([seen for seen in world.cluster.requests if seen.api is not FETCH])
    store, session_id = world.store_of(connector), world.store_of(connector).session_id
    sent = world.store_of(neighbour).packets_sent
    with recorded(world) as seen:
        world.zookeeper.disconnect(store)
        append(world, 0, "while away")
        assert take(stream, 1)[0].value == b"while away"
        world.zookeeper.reconnect(store)
        append(world, 0, "back")
        assert take(stream, 1)[0].value == b"back"
        connector.commit_offsets()
    assert world.owners(GROUP, TOPIC) == owners
    assert store.session_id == session_id
    for now, then in ((infos(connector), before), (infos(neighbour), others)):
        assert now.keys() == then.keys()
        assert all(now[number] is then[number] and then[number].is_live for number in then)
    written = [op for multi in multis_of_the_group(seen) for op in multi.ops if isinstance(op, CreateOp | DeleteOp)]
    assert not any(op.path.startswith(paths.owners(GROUP)) for op in written)
    assert world.store_of(neighbour).packets_sent - sent <= 2, "the neighbour has noticed nothing"
    assert len([seen for seen in world.cluster.requests if seen.api is not FETCH]) == asked
    assert world.offsets(GROUP, TOPIC)[0] == 3


def test_a_member_that_dies_leaves_its_partitions_to_the_others(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 2)
    first = connect(group_id=GROUP, consumer_id="a")
    [stream1] = streams_of(first)
    second = connect(group_id=GROUP, consumer_id="b")
    joining = run_in_thread(lambda: streams_of(second))
    assert_nothing_comes(stream1, first, {0})
    [stream2] = joining()
    wait_for_owners(world, {0: "group1_a-0", 1: "group1_b-0"})
    append(world, 0, "0", "1", "2")
    take(stream1, 2)
    first.commit_offsets()
    take(stream1, 1)
    world.kill(first)
    assert [message.offset for message in take(stream2, 1)] == [2], "what was handed out since the last commit"
    wait_for_owners(world, {0: "group1_b-0", 1: "group1_b-0"})


# --- hand-over --------------------------------------------------------------------------------------------------


def owner_stat(world: FakeEnvironment, partition: int) -> object:
    return world.zookeeper.tree.exists(paths.owner(GROUP, TopicPartition(TOPIC, partition)))


def asked_offsets(world: FakeEnvironment, partition: int) -> list[int]:
    """The offsets that were asked for of one partition, in their order."""
    return [
        row.fetch_offset
        for seen in world.cluster.requests
        if seen.api is FETCH
        for topic in seen.body.topics
        for row in topic.partitions
        if row.partition == partition
    ]


def test_what_stays_is_neither_released_nor_paused_in_a_rebalance(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 4)
    first = connect(group_id=GROUP, consumer_id="a")
    [stream] = streams_of(first)
    append(world, 0, "0", "1", "2")
    take(stream, 1)
    kept = infos(first)
    nodes = {number: owner_stat(world, number) for number in (0, 1)}
    second = connect(group_id=GROUP, consumer_id="b")
    streams_of(second)
    wait_for_owners(world, {0: "group1_a-0", 1: "group1_a-0", 2: "group1_b-0", 3: "group1_b-0"})
    assert kept[0].unacknowledged_offset == 0, "and the program was not asked to come back"
    for number in (0, 1):
        assert infos(first)[number] is kept[number]
        assert kept[number].is_live
        assert owner_stat(world, number) == nodes[number]
    assert [message.offset for message in take(stream, 2)] == [1, 2]
    append(world, 0, "3")
    assert [message.offset for message in take(stream, 1)] == [3]
    offsets = asked_offsets(world, 0)
    assert offsets == sorted(offsets), "nothing was fetched twice"


def test_a_clean_hand_over_loses_nothing_and_repeats_nothing(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 2)
    append(world, 1, *map(str, range(10)))
    first = connect(group_id=GROUP, consumer_id="a")
    [stream1] = streams_of(first)
    assert [message.offset for message in take(stream1, 4)] == [0, 1, 2, 3]
    second = connect(group_id=GROUP, consumer_id="b")
    joining = run_in_thread(lambda: streams_of(second))
    wait_until(lambda: not infos(first)[1].is_live, "the partition is being given back")
    assert not has_next_soon(stream1), "nothing more of it is handed out"
    [stream2] = joining()
    assert [message.offset for message in take(stream2, 6)] == [4, 5, 6, 7, 8, 9]
    assert first.counters.get("drain_timeouts", 0) == 0


def test_who_does_not_come_back_in_time_has_the_message_in_hand_repeated_and_counted(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    append(world, 1, *map(str, range(5)))
    first = connect(group_id=GROUP, consumer_id="a", rebalance_drain_timeout_ms=50)
    [stream1] = streams_of(first)
    assert [message.offset for message in take(stream1, 3)] == [0, 1, 2]
    second = connect(group_id=GROUP, consumer_id="b")
    [stream2] = streams_of(second)
    assert [message.offset for message in take(stream2, 3)] == [2, 3, 4]
    assert first.counters["drain_timeouts"] == 1
    assert not has_next_soon(stream1)
    wait_for_owners(world, {0: "group1_a-0", 1: "group1_b-0"})
    assert world.offsets(GROUP, TOPIC)[1] == 2


def test_a_move_between_threads_of_one_member_fetches_nothing_again_and_loses_nothing(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    """A member that sorts before ours comes: partition 2 goes from our second thread to our first."""
    world.create_topic(TOPIC, 4)
    ours = connect(group_id=GROUP, consumer_id="m", queued_max_message_chunks=10)
    stream0, stream1 = streams_of(ours, 2)
    assert ours.assignment[TopicPartition(TOPIC, 2)] == "group1_m-1"
    append(world, 2, *map(str, range(4)))
    wait_until(lambda: len(stream1.queue) == 1, "a first chunk")
    append(world, 2, *map(str, range(4, 8)))
    wait_until(lambda: len(stream1.queue) == 2, "a second chunk")
    assert [message.offset for message in take(stream1, 2)] == [0, 1]
    append(world, 3, "x")
    wait_until(lambda: len(stream1.queue) == 2, "and something else behind it")
    asked = len(asked_offsets(world, 2))
    earlier = connect(group_id=GROUP, consumer_id="a")
    joining = run_in_thread(lambda: streams_of(earlier))
    wait_until(lambda: not infos(ours)[2].is_live, "partition 2 is stopped")
    assert [message.partition for message in take(stream1, 1)] == [3]
    joining()
    owners = {0: "group1_a-0", 1: "group1_a-0", 2: "group1_m-0", 3: "group1_m-1"}
    wait_for_owners(world, owners)
    assert [(message.partition, message.offset) for message in take(stream0, 6)] == [(2, at) for at in range(2, 8)]
    append(world, 2, "8")
    assert [message.offset for message in take(stream0, 1)] == [8]
    assert set(asked_offsets(world, 2)[asked:]) <= {8, 9}, "what was in the queue was taken along"
    assert world.offsets(GROUP, TOPIC)[2] == 2


def test_a_broker_without_a_plaintext_address_is_said_once(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    """Brokers are looked up again and again while some partition has no leader."""
    node = b'{"version":2,"host":null,"port":-1,"endpoints":["SSL://secret.invalid:9093"]}'
    world.zookeeper.ensure(paths.broker(7), node)
    world.zookeeper.ensure(paths.broker(8), b"nonsense")
    world.create_topic(TOPIC, 2)
    world.cluster.move_leader(TOPIC, 0, None)
    [stream] = streams_of(connect(refresh_leader_backoff_ms=5))
    append(world, 1, "v")
    take(stream, 1)
    looks = len(world.cluster.requests)
    wait_until(lambda: len(world.cluster.requests) > looks + 5, "brokers are looked up again and again")
    assert len([line for line in caplog.messages if "broker=7" in line]) == 1
    assert len([line for line in caplog.messages if "broker=8" in line]) == 1


@pytest.mark.parametrize("has_multi_read", [True, False])
def test_a_join_costs_few_packets_and_pauses_nothing_that_stays(
    has_multi_read: bool, make_world: MakeWorld, connect: MakeConnector
) -> None:
    """8 members, 64 partitions: at most 15 packets for a member that was there, members + 15 for the joiner.

    A server that cannot read many nodes at once is asked for positions, and for whose the owner nodes are, one by one.
    How often those who wait list the owners depends on how fast the others let go, so the best of three joins counts.
    """
    world = make_world(brokers=2, has_multi_read=has_multi_read)
    world.create_topic(TOPIC, 64)
    there = [connect(on=world, group_id=GROUP, consumer_id=f"m{number}") for number in range(7)]
    for member in there:
        streams_of(member)
    read_singly = 0 if has_multi_read else 4 * 8
    # Before it joins it looks at a list of owners and at 16 of them.
    looked_at = 0 if has_multi_read else 1 + 16
    costs = []
    for attempt in range(3):
        wait_for_shares(world, 7)
        wait_until(lambda: sum(len(infos(member)) for member in there) == 64, "everything is fetched")
        before = [infos(member) for member in there]
        sent = [world.store_of(member).packets_sent for member in there]
        looked_up = lookups(world)
        joiner = connect(on=world, group_id=GROUP, consumer_id=f"z{attempt}")
        streams_of(joiner)
        wait_for_shares(world, 8)
        wait_until(lambda: all(len(infos(member)) == 8 for member in there), "what left was let go")
        everyone = [*there, joiner]
        wait_until(lambda of=everyone: not any(map(is_seeking, of)), "every leader is known")
        assert lookups(world) - looked_up <= LOOKUPS_OF_A_JOINER_MAX, "those that were there know the leaders"
        for member, then in zip(there, before, strict=True):
            for number, info in infos(member).items():
                assert info is then.get(number, info), "what stays is the same ownership"
                assert info.is_live
        others = max(world.store_of(member).packets_sent - then for member, then in zip(there, sent, strict=True))
        costs.append((others, world.store_of(joiner).packets_sent))
        if others <= 15 + read_singly and costs[-1][1] <= 8 + 15 + read_singly + looked_at:
            return
        joiner.close()
    pytest.fail(f"packets of a member that was there, and of the joiner: {costs}")


LOOKUPS_OF_A_JOINER_MAX = 4
"""One for what it claims at once, and one for each broker that it does not read from yet when more comes."""


def lookups(world: FakeEnvironment) -> int:
    """How often brokers were asked who leads what."""
    return sum(seen.api is METADATA for seen in world.cluster.requests)


def is_seeking(connector: ZookeeperConsumerConnector) -> bool:
    """Whether something that it owns waits for a leader."""
    return bool(connector._member.fetchers.leaderless())


def wait_for_shares(world: FakeEnvironment, members: int) -> None:
    def is_covered() -> bool:
        owners = list(world.owners(GROUP, TOPIC).values())
        counts = {owners.count(owner) for owner in owners}
        return len(owners) == 64 and len(set(owners)) == members and max(counts) - min(counts) <= 1

    wait_until(is_covered, f"{members} members hold 64 partitions")


# --- commits ----------------------------------------------------------------------------------------------------


def test_a_commit_covers_the_message_in_hand_of_the_calling_thread_only(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    connector = connect(group_id=GROUP, rebalance_drain_timeout_ms=50)
    stream0, stream1 = streams_of(connector, 2)
    for partition in range(2):
        append(world, partition, "0", "1", "2")
    run_in_thread(lambda: take(stream1, 2))()
    take(stream0, 2)
    connector.commit_offsets()
    assert world.offsets(GROUP, TOPIC) == {0: 2, 1: 1}
    run_in_thread(connector.commit_offsets)()
    assert world.offsets(GROUP, TOPIC) == {0: 2, 1: 1}, "and a commit of a third thread takes nothing back"


def test_a_message_in_hand_is_not_committed_by_itself(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    connector = connect(group_id=GROUP, auto_commit_interval_ms=20)
    [stream] = streams_of(connector)
    append(world, 0, "0", "1", "2")
    take(stream, 2)
    wait_until(lambda: world.offsets(GROUP, TOPIC) == {0: 1}, "the automatic commit writes what was moved past")
    take(stream, 1)
    wait_until(lambda: world.offsets(GROUP, TOPIC) == {0: 2}, "and goes on with it")


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_commit_of_a_partition_on_its_way_out_is_written(
    auto_commit: bool, world: FakeEnvironment, connect: MakeConnector
) -> None:
    """The next owner starts there; without automatic commits the program's own is the only one."""
    world.create_topic(TOPIC, 2)
    append(world, 1, *map(str, range(4)))
    first = connect(group_id=GROUP, consumer_id="a", auto_commit_enable=auto_commit)
    [stream1] = streams_of(first)
    take(stream1, 2)
    second = connect(group_id=GROUP, consumer_id="b", auto_commit_enable=auto_commit)
    joining = run_in_thread(lambda: streams_of(second))
    wait_until(lambda: not infos(first)[1].is_live, "the partition is being given back")
    first.commit_offsets()
    assert world.offsets(GROUP, TOPIC)[1] == 2
    assert not has_next_soon(stream1)
    [stream2] = joining()
    assert [message.offset for message in take(stream2, 2)] == [2, 3]


@pytest.mark.parametrize("auto_commit", [True, False])
def test_a_commit_in_the_middle_of_a_release_complains_of_nothing(
    auto_commit: bool, world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    append(world, 1, *map(str, range(4)))
    first = connect(group_id=GROUP, consumer_id="a", auto_commit_enable=auto_commit)
    [stream1] = streams_of(first)
    take(stream1, 2)
    wait_until(lambda: infos(first)[0].consumed_offset == 0, "what is empty has its place, too")
    first.commit_offsets()
    stream1.iterator().has_next()
    store = world.store_of(first)

    def hold_its_answer(request: Request) -> bool:
        if isinstance(request, Multi) and any(isinstance(op, DeleteOp) for op in request.ops):
            world.zookeeper.hold("answers", store)
        return False

    world.zookeeper.fail_next(hold_its_answer, NoAuth, store=store)
    joining = run_in_thread(lambda: streams_of(connect(group_id=GROUP, consumer_id="b")))
    wait_until(lambda: world.owners(GROUP, TOPIC).get(1) != "group1_a-0", "it is released")
    first.commit_offsets()
    world.zookeeper.release("answers", store)
    joining()
    assert world.offsets(GROUP, TOPIC)[1] == 2


@pytest.mark.parametrize(
    "offsets",
    [
        {TopicPartition(TOPIC, 0): "5"},
        {TopicPartition(TOPIC, 0): -1},
        {TopicPartition(TOPIC, 0): True},
        {TopicPartition(TOPIC, 0): 5.0},
        {TopicPartition(TOPIC, 0): 2**63},
        {TopicPartition(TOPIC, 0): None},
        {TOPIC: 5},
        {(TOPIC,): 5},
        {(TOPIC, "0"): 5},
        {(TOPIC, True): 5},
        {(0, TOPIC): 5},
    ],
    ids=repr,
)
def test_what_is_no_offset_is_refused_and_harms_nothing(
    offsets: Any, world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 1)
    append(world, 0, "v")
    connector = connect(group_id=GROUP)
    [stream] = streams_of(connector)
    with pytest.raises(UsageError):
        connector.commit_offsets({TopicPartition(TOPIC, 0): 1} | offsets)
    assert world.offsets(GROUP, TOPIC) == {}
    take(stream, 1)
    connector.commit_offsets({(TOPIC, 0): 1})  # type: ignore[dict-item]
    assert world.offsets(GROUP, TOPIC) == {0: 1}


@pytest.mark.parametrize("offsets", [5, [(TopicPartition(TOPIC, 0), 1)]], ids=repr)
def test_offsets_that_are_no_mapping_are_refused(offsets: Any, world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    connector = connect(group_id=GROUP)
    streams_of(connector)
    with pytest.raises(UsageError, match="offsets must be a mapping from TopicPartition to the next offset, not"):
        connector.commit_offsets(offsets)


@pytest.mark.parametrize("kind", [ZookeeperConsumerConnector, MigratingConsumerConnector, CoordinatorConsumerConnector])
@pytest.mark.parametrize("config", [{"group.id": "g"}, "consumer.properties", None], ids=repr)
def test_a_connector_takes_a_configuration_and_nothing_else(kind: Any, config: Any) -> None:
    with pytest.raises(UsageError) as it:
        kind(config)
    name = "CoordinatorConsumerConfig" if kind is CoordinatorConsumerConnector else "ConsumerConfig"
    assert f"{kind.__name__} takes a {name}, not {type(config).__name__}: create one with {name}(" in str(it.value)


def test_a_connector_that_is_not_closed_is_logged_once(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    def forgotten() -> list[str]:
        return [each.getMessage() for each in caplog.records if each.getMessage().startswith("connector-not-closed")]

    world.create_topic(TOPIC, 1)
    config = ConsumerConfig(group_id=GROUP, zookeeper_connect=ADDRESS, consumer_id="forgotten")
    connector = ZookeeperConsumerConnector(config, store=world.store, connect=world.cluster.connect)
    [stream] = streams_of(connector)
    member = connector._member.membership
    del connector
    gc.collect()
    assert forgotten() == [], "the stream is still read"
    del stream
    gc.collect()
    [line] = forgotten()
    assert line.startswith("connector-not-closed member=group1_forgotten: the program did not close its connector")
    member.leave()
    member.close()
    with connect(group_id=GROUP):
        pass
    gc.collect()
    assert len(forgotten()) == 1


def test_a_given_offset_below_the_stored_one_is_passed_over(world: FakeEnvironment, connect: MakeConnector) -> None:
    """No write of ours makes a stored offset smaller."""
    world.create_topic(TOPIC, 1)
    append(world, 0, *map(str, range(10)))
    connector = connect(group_id=GROUP)
    take(streams_of(connector)[0], 1)
    connector.commit_offsets({TopicPartition(TOPIC, 0): 7})
    connector.commit_offsets({TopicPartition(TOPIC, 0): 3})
    assert world.offsets(GROUP, TOPIC) == {0: 7}


def test_a_failed_commit_is_tried_again_as_often_as_the_settings_say(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 1)
    tp = TopicPartition(TOPIC, 0)
    world.zookeeper.ensure(paths.offset(GROUP, tp), b"0")
    connector = connect(group_id=GROUP, offsets_commit_max_retries=3, offsets_channel_backoff_ms=1)
    streams_of(connector)
    world.zookeeper.set_acl(paths.offset(GROUP, tp), ())
    with pytest.raises(OffsetsNotCommitted, match="NoAuth"):
        connector.commit_offsets({tp: 5})
    assert connector.counters["commits_failed"] == 4
    with pytest.raises(OffsetsNotCommitted):
        connector.commit_offsets({tp: 5}, retry_on_failure=False)
    assert connector.counters["commits_failed"] == 5
    assert connector.assignment, "it is held and read on"


@pytest.mark.parametrize(("is_passing", "pause_s"), [(True, 0.02), (False, 1.0)])
def test_a_commit_that_waits_for_the_group_to_move_is_tried_again_at_once_and_for_as_long(
    world: FakeEnvironment, connect: MakeConnector, monkeypatch: pytest.MonkeyPatch, is_passing: bool, pause_s: float
) -> None:
    """Whoever commits reads nothing meanwhile."""
    world.create_topic(TOPIC, 1)
    tp = TopicPartition(TOPIC, 0)
    connector = connect(group_id=GROUP, offsets_commit_max_retries=3)
    streams_of(connector)
    waited: list[float] = []

    class Pause:
        def wait(self, seconds: float) -> bool:
            waited.append(seconds)
            return False

    def refuse(positions: dict[TopicPartition, int], _: int) -> dict[TopicPartition, CommitFailure]:
        return dict.fromkeys(positions, CommitFailure("the group moves", is_transient=is_passing))

    with monkeypatch.context() as patch:
        patch.setattr(connector, "_closing", Pause())
        patch.setattr(connector._member.membership, "commit", refuse)
        with pytest.raises(OffsetsNotCommitted, match="the group moves"):
            connector.commit_offsets({tp: 5})
    assert set(waited) == {pause_s}
    assert sum(waited) == pytest.approx(3.0), "offsets.commit.max.retries times offsets.channel.backoff.ms"


def test_without_automatic_commits_one_that_is_tried_again_comes_before_the_partition_is_handed_over(
    world: FakeEnvironment, connect: MakeConnector, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The release writes nothing then, and who comes next would be given again what was committed here."""
    world.create_topic(TOPIC, 1)
    append(world, 0, "0", "1")
    first = connect(group_id=GROUP, consumer_id="b", auto_commit_enable=False, rebalance_drain_timeout_ms=30_000)
    [stream] = streams_of(first)
    assert values_of(take(stream, 1)) == ["0"]
    made: list[ZookeeperConsumerConnector] = []
    commit = first._member.membership.commit

    def put_off(positions: dict[TopicPartition, int], timeout_ms: int) -> dict[TopicPartition, CommitFailure]:
        if made:
            return commit(positions, timeout_ms)
        made.append(connect(group_id=GROUP, consumer_id="a", auto_commit_enable=False))
        joining.start()
        wait_until(lambda: not infos(first)[0].is_live, "it is on its way out")
        return dict.fromkeys(positions, CommitFailure("the group moves", is_transient=True))

    streams: list[Stream] = []
    joining = threading.Thread(target=lambda: streams.extend(streams_of(made[0])))
    with monkeypatch.context() as patch:
        patch.setattr(first._member.membership, "commit", put_off)
        first.commit_offsets()
    assert world.offsets(GROUP, TOPIC) == {0: 1}
    assert not has_next_soon(stream)
    joining.join()
    assert values_of(take(streams[0], 1)) == ["1"]


@pytest.mark.parametrize("happens", ["reset", "lost and won again"])
def test_a_failed_commit_is_not_tried_again_when_its_offset_may_mean_other_records(
    world: FakeEnvironment, connect: MakeConnector, monkeypatch: pytest.MonkeyPatch, happens: str
) -> None:
    """Between two tries the broker says where the partition begins now: an offset of before would lose records."""
    world.create_topic(TOPIC, 1)
    tp = TopicPartition(TOPIC, 0)
    world.zookeeper.ensure(paths.offset(GROUP, tp), b"0")
    connector = connect(group_id=GROUP, offsets_commit_max_retries=3)
    streams_of(connector)
    old = infos(connector)[0]
    world.zookeeper.set_acl(paths.offset(GROUP, tp), ())

    class Pause:
        def wait(self, _: float) -> bool:
            world.zookeeper.set_acl(paths.offset(GROUP, tp), OPEN_ACL)
            if happens == "reset":
                old.reset(0)
                connector._member.streams.on_reset(old, 0)
            else:
                world.zookeeper.remove(paths.owner(GROUP, tp))
                wait_until(lambda: infos(connector).get(0) not in (None, old), "it is won again")
            return False

    monkeypatch.setattr(connector, "_closing", Pause())
    with pytest.raises(OffsetsNotCommitted, match="NoAuth"):
        connector.commit_offsets({tp: 5})
    assert world.offsets(GROUP, TOPIC) == {0: 0}
    monkeypatch.undo()


def test_a_commit_is_bound_to_the_owner_node(world: FakeEnvironment, connect: MakeConnector) -> None:
    """Somebody deletes our owner node by hand: what we held is not written any more, and is claimed anew."""
    world.create_topic(TOPIC, 1)
    append(world, 0, "0", "1", "2")
    connector = connect(group_id=GROUP, consumer_id="a")
    [stream] = streams_of(connector)
    take(stream, 2)
    old = infos(connector)[0]
    world.zookeeper.hold("events", world.store_of(connector))
    world.zookeeper.remove(paths.owner(GROUP, TopicPartition(TOPIC, 0)))
    with pytest.raises(OffsetsNotCommitted, match="owner node"):
        connector.commit_offsets(retry_on_failure=False)
    assert world.offsets(GROUP, TOPIC) == {}
    world.zookeeper.release("events", world.store_of(connector))
    wait_for_owners(world, {0: "group1_a-0"})
    assert [message.offset for message in take(stream, 3)] == [0, 1, 2]
    assert infos(connector)[0] is not old


# --- the end ----------------------------------------------------------------------------------------------------


def test_leaving_with_covers_the_message_in_hand(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    append(world, 0, "0", "1", "2")
    with connect(group_id=GROUP) as connector:
        [stream] = streams_of(connector)
        take(stream, 2)
    assert world.offsets(GROUP, TOPIC) == {0: 2}
    assert list(stream) == []


def test_leaving_with_by_an_exception_does_not(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    append(world, 0, "0", "1", "2")
    with pytest.raises(ZeroDivisionError), connect(group_id=GROUP) as connector:
        take(streams_of(connector)[0], 2)
        raise ZeroDivisionError
    assert world.offsets(GROUP, TOPIC) == {0: 1}


def test_close_covers_the_message_in_hand_of_its_own_thread_only(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    for partition in range(2):
        append(world, partition, "0", "1", "2")
    connector = connect(group_id=GROUP, rebalance_drain_timeout_ms=50)
    stream0, stream1 = streams_of(connector, 2)
    run_in_thread(lambda: take(stream1, 2))()
    take(stream0, 2)
    connector.close()
    assert world.offsets(GROUP, TOPIC) == {0: 2, 1: 1}
    assert connector.counters["drain_timeouts"] == 1


def test_close_gives_everything_back_ends_the_streams_and_leaves_no_thread(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 2)
    connector = connect(group_id=GROUP, consumer_id="a", consumer_timeout_ms=-1)
    streams = streams_of(connector, 2)
    waiting = [run_in_thread(lambda stream=stream: list(stream)) for stream in streams]
    connector.shutdown()
    assert [ended() for ended in waiting] == [[], []]
    assert world.owners(GROUP, TOPIC) == {}
    assert world.zookeeper.data(paths.registration(GROUP, "group1_a")) is None
    assert our_threads() == []
    connector.shutdown()
    for refused in (connector.commit_offsets, lambda: streams_of(connector)):
        with pytest.raises(ConnectorClosed):
            refused()


def test_a_connector_without_streams_closes(world: FakeEnvironment, connect: MakeConnector) -> None:
    connect().close()


def test_close_while_streams_are_being_created_ends_the_waiting(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    world.zookeeper.ensure(paths.owner(GROUP, TopicPartition(TOPIC, 0)), b"somebody")
    connector = connect(group_id=GROUP)
    creating = run_in_thread(lambda: streams_of(connector))
    wait_until(lambda: members(world), "it has registered")
    connector.close()
    [stream] = creating()
    assert list(stream) == []


def test_ended_streams_hand_out_nothing_while_the_member_stays(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    append(world, 0, "0", "1", "2")
    connector = connect(group_id=GROUP, consumer_id="a")
    [stream] = streams_of(connector)
    take(stream, 1)
    connector.end_streams()
    assert list(stream) == []
    assert world.owners(GROUP, TOPIC) == {0: "group1_a-0"}
    connector.close()
    assert world.offsets(GROUP, TOPIC) == {0: 1}


def test_a_close_that_zookeeper_does_not_confirm_says_so(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    world.create_topic(TOPIC, 1)
    connector = connect(group_id=GROUP, rebalance_drain_timeout_ms=0)
    streams_of(connector)
    world.zookeeper.disconnect(world.store_of(connector))
    connector.close()
    assert [line for line in caplog.messages if "close-incomplete" in line]


# --- shares that cannot be had ----------------------------------------------------------------------------------


def test_without_its_whole_share_the_streams_come_with_a_warning_and_the_attempts_go_on(
    world: FakeEnvironment, connect: MakeConnector, caplog: pytest.LogCaptureFixture
) -> None:
    short_sessions(world)
    world.create_topic(TOPIC, 2)
    append(world, 0, "0")
    append(world, 1, "1")
    blocked = paths.owner(GROUP, TopicPartition(TOPIC, 0))
    world.zookeeper.ensure(blocked, b"by hand")
    connector = connect(
        group_id=GROUP,
        consumer_id="a",
        zookeeper_session_timeout_ms=SHORT_SESSION_MS,
        rebalance_max_retries=1,
        rebalance_backoff_ms=20,
    )
    [stream] = streams_of(connector)
    assert len([line for line in caplog.messages if "assignment-wait-timeout" in line]) == 1
    assert take(stream, 1)[0].partition == 1, "what can be had is read"
    world.zookeeper.remove(blocked)
    assert take(stream, 1)[0].partition == 0


def test_fail_fast_leaves_the_group_and_raises(world: FakeEnvironment, connect: MakeConnector) -> None:
    short_sessions(world)
    world.create_topic(TOPIC, 2)
    world.zookeeper.ensure(paths.owner(GROUP, TopicPartition(TOPIC, 0)), b"by hand")
    connector = connect(
        group_id=GROUP,
        consumer_id="a",
        zookeeper_session_timeout_ms=SHORT_SESSION_MS,
        rebalance_max_retries=1,
        rebalance_backoff_ms=20,
        rebalance_fail_fast=True,
    )
    with pytest.raises(ConsumerRebalanceFailedException, match="it has left the group"):
        streams_of(connector)
    assert world.zookeeper.data(paths.registration(GROUP, "group1_a")) is None
    assert world.owners(GROUP, TOPIC) == {0: "by hand"}


def hold_id(world: FakeEnvironment) -> FakeZkStore:
    """Another session that registered with our id."""
    holder = FakeZkStore(world.zookeeper)
    holder.listen(lambda _: None)
    holder.start(1_000)
    world.zookeeper.ensure(paths.ids(GROUP))
    submit_and_wait(holder, [Create(paths.registration(GROUP, "group1_a"), b"theirs", ephemeral=True)], 1_000)
    return holder


def test_an_id_that_another_session_holds_is_waited_for_then_refused_and_never_changed(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    short_sessions(world)
    world.create_topic(TOPIC, 1)
    holder = hold_id(world)
    connector = connect(group_id=GROUP, consumer_id="a", zookeeper_session_timeout_ms=SHORT_SESSION_MS)
    with pytest.raises(ConsumerIdInUse, match="group1_a") as raised:
        streams_of(connector)
    assert f"{holder.session_id:#x}" in str(raised.value)
    assert world.zookeeper.data(paths.registration(GROUP, "group1_a")) == b"theirs"
    assert members(world) == ["group1_a"]
    connector.close()
    assert world.zookeeper.data(paths.registration(GROUP, "group1_a")) == b"theirs"


def test_an_id_whose_holder_ends_is_taken(world: FakeEnvironment, connect: MakeConnector) -> None:
    """Our own predecessor, killed a moment ago."""
    world.create_topic(TOPIC, 1)
    holder = hold_id(world)
    connector = connect(group_id=GROUP, consumer_id="a")
    creating = run_in_thread(lambda: streams_of(connector))
    world.zookeeper.expire(holder, reconnects=False)
    [stream] = creating()
    append(world, 0, "v")
    take(stream, 1)
    assert connector.consumer_id == "group1_a"


# --- the control znode ------------------------------------------------------------------------------------------


def move(world: FakeEnvironment, authority: Any, epoch: int = 1) -> None:
    control = ControlRecord("m1", epoch, "prepared", authority, "cut-over")
    world.zookeeper.ensure(paths.control(GROUP), format_control(control))


def multis_of_the_group(seen: list[Request]) -> list[Multi]:
    return [r for r in seen if isinstance(r, Multi) and any(op.path.startswith(f"/consumers/{GROUP}/") for op in r.ops)]


def test_without_a_control_znode_nothing_is_checked(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    append(world, 0, "v")
    with recorded(world) as seen, connect(group_id=GROUP) as connector:
        take(streams_of(connector)[0], 1)
        connector.commit_offsets()
    assert len(multis_of_the_group(seen)) >= 3
    assert not any(op.path == paths.control(GROUP) for multi in multis_of_the_group(seen) for op in multi.ops)


def test_with_a_control_znode_its_version_is_in_every_multi(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    append(world, 0, "v")
    move(world, "zookeeper")
    move(world, "zookeeper", epoch=2)
    with recorded(world) as seen, connect(group_id=GROUP) as connector:
        take(streams_of(connector)[0], 1)
        connector.commit_offsets()
    assert len(multis_of_the_group(seen)) >= 3
    assert {multi.ops[0] for multi in multis_of_the_group(seen)} == {CheckOp(paths.control(GROUP), 1)}


def test_a_control_znode_that_changes_is_read_again_and_the_member_goes_on(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 1)
    append(world, 0, "0", "1")
    connector = connect(group_id=GROUP, offsets_channel_backoff_ms=20)
    [stream] = streams_of(connector)
    take(stream, 1)
    kept = infos(connector)[0]
    move(world, "zookeeper")
    connector.commit_offsets()
    move(world, "zookeeper", epoch=2)
    take(stream, 1)
    connector.commit_offsets()
    assert world.offsets(GROUP, TOPIC) == {0: 2}
    assert infos(connector)[0] is kept


def test_streams_end_with_an_error_when_the_authority_moves_to_kafka(
    world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC, 1)
    append(world, 0, "0", "1", "2")
    connector = connect(group_id=GROUP)
    [stream] = streams_of(connector)
    take(stream, 1)
    move(world, "kafka")
    with pytest.raises(MigrationError, match="'kafka'"):
        while True:
            has_next_soon(stream)
    with pytest.raises(MigrationError):
        next(stream.iterator())
    with pytest.raises(MigrationError):
        connector.commit_offsets()
    wait_until(lambda: world.owners(GROUP, TOPIC) == {}, "nothing is held")
    assert world.offsets(GROUP, TOPIC) == {}


def test_a_group_that_is_elsewhere_is_not_joined(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    move(world, "kafka")
    connector = connect(group_id=GROUP, consumer_id="a")
    with pytest.raises(MigrationError):
        streams_of(connector)
    assert world.zookeeper.data(paths.registration(GROUP, "group1_a")) is None


# --- a fork -----------------------------------------------------------------------------------------------------


def test_a_forked_child_gets_an_error_and_its_parent_goes_on(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 1)
    append(world, 0, "0", "1", "2")
    connector = connect(group_id=GROUP, consumer_id="a")
    [stream] = streams_of(connector)
    take(stream, 1)
    readable, writable = os.pipe()
    child = os.fork()
    if child == 0:
        outcomes = []
        try:
            for attempt in (
                lambda: next(stream.iterator()),
                stream.iterator().has_next,
                connector.commit_offsets,
                lambda: streams_of(connector),
            ):
                try:
                    attempt()
                    outcomes.append("returned")
                except ForkedError:
                    outcomes.append("forked")
            connector.close()
        finally:
            os.write(writable, ",".join(outcomes).encode())
            os._exit(0)
    os.close(writable)
    with os.fdopen(readable, "rb") as told:
        outcome = run_in_thread(told.read)()
    os.waitpid(child, 0)
    assert outcome == b"forked,forked,forked,forked"
    assert [message.offset for message in take(stream, 2)] == [1, 2]
    connector.commit_offsets()
    assert world.offsets(GROUP, TOPIC) == {0: 3}
    assert world.owners(GROUP, TOPIC) == {0: "group1_a-0"}
