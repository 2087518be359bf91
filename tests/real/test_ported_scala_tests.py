"""Kafka's own tests of the Scala consumer, written again, on a real ZooKeeper and a real broker.

The same on the fakes, and many more, are in ``tests/unit/test_connector.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.in_memory_fixtures import run_in_thread, take, take_all, wait_until
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.errors import ConsumerTimeoutException, MessageStreamsExistException
from zkconsumer.javaapi import Consumer
from zkconsumer.streams import KafkaStream, string_decoder
from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

pytestmark = [pytest.mark.real, pytest.mark.timeout(120)]

TIMEOUT_MS = 3_000
Connect = Callable[..., ZookeeperConsumerConnector]


@pytest.fixture
def config(shared_cluster: Sandbox, fresh_name: str) -> dict[str, Any]:
    """Group and topic of the test carry its name."""
    return {
        "group_id": fresh_name,
        "zookeeper_connect": shared_cluster.zookeeper_connect,
        "zookeeper_session_timeout_ms": 4000,
        "auto_offset_reset": "smallest",
        "consumer_timeout_ms": TIMEOUT_MS,
    }


@pytest.fixture
def connect(config: dict[str, Any]) -> Iterator[Connect]:
    made: list[ZookeeperConsumerConnector] = []

    def make(**settings: Any) -> ZookeeperConsumerConnector:
        made.append(ZookeeperConsumerConnector(ConsumerConfig(**(config | settings))))
        return made[-1]

    yield make
    for each in made:
        each.close()


def values(stream: KafkaStream[Any, Any], count: int) -> list[Any]:
    return sorted(message.value for message in take(stream, count))


def test_basic(shared_cluster: Sandbox, fresh_name: str, connect: Connect) -> None:
    """ZookeeperConsumerConnectorTest.testBasic, (a) to (e)."""
    topic, admin = fresh_name, shared_cluster.admin
    shared_cluster.create_topic(topic, 2)
    one = connect(consumer_id="consumer1", consumer_timeout_ms=200)
    [stream] = one.create_message_streams({topic: 1})[topic]
    for _ in range(2):
        with pytest.raises(ConsumerTimeoutException):
            next(stream.iterator())

    for partition in range(2):
        shared_cluster.produce(topic, partition, 2)
    assert sorted((m.partition, m.offset) for m in _read(stream, 4)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
    assert admin.owners(fresh_name, topic) == {0: f"{fresh_name}_consumer1-0", 1: f"{fresh_name}_consumer1-0"}

    one.commit_offsets()
    two = connect(consumer_id="consumer2", consumer_timeout_ms=200)
    [second] = two.create_message_streams({topic: 1})[topic]
    split = {0: f"{fresh_name}_consumer1-0", 1: f"{fresh_name}_consumer2-0"}
    wait_until(lambda: admin.owners(fresh_name, topic) == split, "each has one partition")
    for partition in range(2):
        shared_cluster.produce(topic, partition, 2)
    assert [(m.partition, m.offset) for m in _read(stream, 2)] == [(0, 2), (0, 3)]
    assert [(m.partition, m.offset) for m in _read(second, 2)] == [(1, 2), (1, 3)]

    three = connect(consumer_id="consumer3")
    assert three.create_message_streams({}) == {}
    for partition in range(2):
        shared_cluster.produce(topic, partition, 1)
    assert len(_read(stream, 1)) == len(_read(second, 1)) == 1
    assert admin.owners(fresh_name, topic) == split
    with pytest.raises(MessageStreamsExistException):
        three.create_message_streams({topic: 1})


def _read(stream: KafkaStream[Any, Any], count: int) -> list[Any]:
    """The next records, this many; the Scala consumer permits time-outs of the iterator in between."""
    found: list[Any] = []
    wait_until(lambda: found.extend(take_all(stream)) or len(found) >= count, f"{count} records come")
    return found


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4"])
def test_compression(codec: str, shared_cluster: Sandbox, fresh_name: str, connect: Connect) -> None:
    """ZookeeperConsumerConnectorTest.testCompression and testCompressionSetConsumption."""
    shared_cluster.create_topic(fresh_name, 2)
    for partition in range(2):
        shared_cluster.produce(fresh_name, partition, 200, codec=codec)
    [stream] = connect().create_message_streams({fresh_name: 1})[fresh_name]
    found = [(message.partition, message.offset) for message in take(stream, 400)]
    assert sorted(found) == [(partition, offset) for partition in range(2) for offset in range(200)]


def test_consumer_decoder(shared_cluster: Sandbox, fresh_name: str, connect: Connect) -> None:
    """ZookeeperConsumerConnectorTest.testConsumerDecoder."""
    shared_cluster.create_topic(fresh_name, 1)
    shared_cluster.produce(fresh_name, 0, ["grün".encode(), b"two"])
    streams = connect().create_message_streams({fresh_name: 1}, string_decoder, string_decoder)
    assert values(streams[fresh_name][0], 2) == ["grün", "two"]


def test_leader_selection_for_partition(shared_cluster: Sandbox, fresh_name: str, connect: Connect) -> None:
    """ZookeeperConsumerConnectorTest.testLeaderSelectionForPartition."""
    shared_cluster.create_topic(fresh_name, 1)
    connector = connect(consumer_id="consumer1")
    [stream] = connector.create_message_streams({fresh_name: 1})[fresh_name]
    thread = f"{fresh_name}_consumer1-0"
    assert connector.assignment == {TopicPartition(fresh_name, 0): thread}
    assert shared_cluster.admin.owners(fresh_name, fresh_name) == {0: thread}
    shared_cluster.produce(fresh_name, 0, 20)
    assert [message.offset for message in take(stream, 20)] == list(range(20))


@pytest.mark.parametrize(("policy", "records"), [("smallest", 10), ("largest", 0)])
@pytest.mark.parametrize("stored", [10_000, -1])
def test_auto_offset_reset(
    stored: int, policy: str, records: int, shared_cluster: Sandbox, fresh_name: str, connect: Connect
) -> None:
    """AutoOffsetResetTest: a stored offset that is too large, or negative, and each policy."""
    shared_cluster.create_topic(fresh_name, 1)
    shared_cluster.produce(fresh_name, 0, 10)
    path = paths.offset(fresh_name, TopicPartition(fresh_name, 0))
    shared_cluster.admin.ensure_path(path.rpartition("/")[0])
    shared_cluster.admin.put(path, str(stored).encode())
    [stream] = connect(auto_offset_reset=policy, consumer_timeout_ms=1500).create_message_streams({fresh_name: 1})[
        fresh_name
    ]
    assert len(take_all(stream)) == records


def test_the_java_names(shared_cluster: Sandbox, fresh_name: str, config: dict[str, Any]) -> None:
    """javaapi.consumer.ZookeeperConsumerConnectorTest.testBasic."""
    shared_cluster.create_topic(fresh_name, 2)
    for partition in range(2):
        shared_cluster.produce(fresh_name, partition, 5)
    connector = Consumer.createJavaConsumerConnector(ConsumerConfig(**config))
    try:
        [first, second] = connector.createMessageStreams({fresh_name: 2})[fresh_name]
        reads = [
            run_in_thread(lambda stream=stream: [stream.iterator().next().offset() for _ in range(5)])
            for stream in (first, second)
        ]
        assert [read() for read in reads] == [list(range(5)), list(range(5))]
    finally:
        connector.shutdown()
