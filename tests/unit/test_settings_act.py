"""Settings reach what they are for: what a connector with a setting does, or asks for, that it would not without."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import MakeConnector, take, wait_until
from zkconsumer.base.threads import live_threads
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.kafka.fetcher_manager import fetcher_number
from zkconsumer.kafka.offsets_coordinator_client import OffsetsChannelSettings
from zkconsumer.runtime.membership_config import channel_settings_of
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import FETCH, METADATA

TOPIC = "t"
GROUP = "g"
SOON_MS = 200
"""How long nothing happens that shall not happen."""


def stream_of(connector: ZookeeperConsumerConnector) -> Any:
    [stream] = connector.create_message_streams({TOPIC: 1})[TOPIC]
    return stream


def append(world: FakeEnvironment, *values: bytes, partition: int = 0) -> None:
    world.cluster.append(TOPIC, partition, list(values))


def pause() -> None:
    threading.Event().wait(SOON_MS / 1000)


# --- reading --------------------------------------------------------------------------------------------------------


def test_a_fetch_asks_for_what_is_set(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC)
    limits = {"fetch_message_max_bytes": 3_000, "fetch_max_bytes": 7_000, "fetch_min_bytes": 5, "fetch_wait_max_ms": 40}
    stream = stream_of(connect(**limits))
    append(world, b"long enough")
    take(stream, 1)
    fetch = next(seen.body for seen in world.cluster.requests if seen.api is FETCH)
    each = fetch.topics[0].partitions[0].partition_max_bytes
    assert [each, fetch.max_bytes, fetch.min_bytes, fetch.max_wait_ms] == list(limits.values())


def test_sockets_to_brokers_have_the_receive_buffer_that_is_set(world: FakeEnvironment, connect: MakeConnector) -> None:
    buffers: set[int | None] = set()

    def recorded(host: str, port: int, **how: Any) -> Any:
        buffers.add(how.get("receive_buffer_bytes"))
        return world.cluster.connect(host, port, **how)

    world.connect = recorded
    world.create_topic(TOPIC)
    stream = stream_of(connect(socket_receive_buffer_bytes=123_456))
    append(world, b"v")
    take(stream, 1)
    assert 123_456 in buffers


def test_so_many_threads_read_from_each_broker(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC, 12)
    stream = stream_of(connect(num_consumer_fetchers=3))
    for partition in range(12):
        append(world, b"v", partition=partition)
    take(stream, 12)
    ends = {f"-{fetcher_number(TopicPartition(TOPIC, number), 3)}-{number % 2}" for number in range(12)}
    threads = [name for name in live_threads() if name.startswith("ConsumerFetcherThread-")]
    assert len(threads) == len(ends) == 6
    assert {name[-4:] for name in threads} == ends


@pytest.mark.parametrize(("pause_ms", "requests"), [(600_000, 1), (0, 2)])
def test_a_fetcher_asks_again_after_the_pause_that_is_set(
    pause_ms: int, requests: int, world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC)
    stream = stream_of(connect(fetch_pause_ms=pause_ms, fetch_wait_max_ms=30_000, socket_timeout_ms=30_000))
    append(world, b"v")
    take(stream, 1)
    assert sum(seen.api is FETCH for seen in world.cluster.requests) == requests


def test_so_many_chunks_wait_for_a_program_that_does_not_come(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.create_topic(TOPIC)
    connector = connect(queued_max_message_chunks=3)
    stream = stream_of(connector)
    info = connector._member.streams.partition_infos[TopicPartition(TOPIC, 0)]
    for number in range(3):
        append(world, b"v")
        wait_until(lambda behind=number + 1: info.fetch_offset == behind, "the chunk is queued")
    append(world, b"v")
    pause()
    assert info.fetch_offset == 3
    take(stream, 1)
    wait_until(lambda: info.fetch_offset == 4, "there is room again")


@pytest.mark.parametrize(("backoff_ms", "is_repeated"), [(60_000, False), (5, True)])
def test_a_leader_is_looked_for_again_after_the_pause_that_is_set(
    backoff_ms: int, is_repeated: bool, world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC)
    world.cluster.move_leader(TOPIC, 0, None)

    def asked() -> int:
        return sum(seen.api is METADATA for seen in world.cluster.requests)

    stream_of(connect(refresh_leader_backoff_ms=backoff_ms))
    wait_until(asked, "the leader is looked for")
    if is_repeated:
        wait_until(lambda: asked() > 3, "it is looked for again and again")
    else:
        pause()
        assert asked() == 1


# --- offsets --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [True, False])
def test_a_connector_commits_by_itself_if_that_is_set(
    commits: bool, world: FakeEnvironment, connect: MakeConnector
) -> None:
    world.create_topic(TOPIC)
    append(world, b"0", b"1", b"2")
    connector = connect(group_id=GROUP, auto_commit_enable=commits, auto_commit_interval_ms=20)
    stream = stream_of(connector)
    take(stream, 2)
    if commits:
        wait_until(lambda: world.offsets(GROUP, TOPIC) == {0: 1}, "what the program is done with is committed")
    else:
        pause()
    connector.close()
    assert world.offsets(GROUP, TOPIC) == ({0: 2} if commits else {})


def test_the_coordinator_is_asked_as_it_is_set() -> None:
    asked = {"offsets_channel_socket_timeout_ms": 7, "offsets_channel_backoff_ms": 8, "client_id": "c"}
    config = ConsumerConfig(group_id=GROUP, zookeeper_connect="z:2181", offsets_storage="kafka", **asked)
    assert channel_settings_of(config) == OffsetsChannelSettings(GROUP, "c", socket_timeout_ms=7, backoff_ms=8)


# --- ZooKeeper ------------------------------------------------------------------------------------------------------


def test_a_session_is_asked_for_with_the_timeout_that_is_set(world: FakeEnvironment, connect: MakeConnector) -> None:
    connector = connect(zookeeper_session_timeout_ms=9_876)
    assert world.store_of(connector).negotiated_timeout_ms == 9_876


def test_a_session_is_waited_for_as_long_as_is_set(world: FakeEnvironment, connect: MakeConnector) -> None:
    world.zookeeper.is_up = False
    with pytest.raises(ZkTimeoutException, match="within 4321 ms"):
        connect(zookeeper_connection_timeout_ms=4_321)
