"""Rebalance listeners on a real ZooKeeper and a real broker: the original's own test, and one beside an original."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.member.topic_count import ConsumerThreadId
from zkconsumer.testing.sandbox import Sandbox, wait_until
from zkconsumer.types import TopicPartition

pytestmark = [pytest.mark.real, pytest.mark.timeout(90)]

Connect = Callable[..., ZookeeperConsumerConnector]
MOVE_MS = 20_000


class Recorder:
    """What it was told, and what stood in ZooKeeper then."""

    def __init__(self, owners: Callable[[], dict[int, str]]) -> None:
        self.released: list[dict[str, set[int]]] = []
        self.owners_at_release: list[dict[int, str]] = []
        self.started: list[tuple[str, dict[str, dict[int, ConsumerThreadId]]]] = []
        self._owners = owners

    def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
        self.released.append(partitions)
        self.owners_at_release.append(self._owners())

    def before_starting_fetchers(self, consumer_id: str, assignment: dict[str, dict[int, ConsumerThreadId]]) -> None:
        self.started.append((consumer_id, assignment))


@pytest.fixture
def connect(shared_cluster: Sandbox, fresh_name: str) -> Iterator[Connect]:
    made: list[ZookeeperConsumerConnector] = []

    def make(consumer: str, listener: Any, **settings: Any) -> ZookeeperConsumerConnector:
        config = ConsumerConfig(
            group_id=fresh_name,
            consumer_id=consumer,
            zookeeper_connect=shared_cluster.zookeeper_connect,
            auto_offset_reset="smallest",
            consumer_timeout_ms=5_000,
            **settings,
        )
        made.append(ZookeeperConsumerConnector(config))
        made[-1].set_consumer_rebalance_listener(listener)
        return made[-1]

    yield make
    for each in made:
        each.close()


def test_consumer_rebalance_listener(shared_cluster: Sandbox, fresh_name: str, connect: Connect) -> None:
    """ZookeeperConsumerConnectorTest.testConsumerRebalanceListener."""
    group = topic = fresh_name
    shared_cluster.create_topic(topic, 2)
    one, two = (Recorder(lambda: shared_cluster.admin.owners(group, topic)) for _ in range(2))
    connect("consumer1", one).create_message_streams({topic: 1})
    first, second = ConsumerThreadId(f"{group}_consumer1", 0), ConsumerThreadId(f"{group}_consumer2", 0)
    assert one.released == [{}]
    assert one.started == [(f"{group}_consumer1", {topic: {0: first, 1: first}})]

    connect("consumer2", two).create_message_streams({topic: 1})
    wait_until(lambda: len(one.started) == 2, "the first member hears of the second", MOVE_MS)
    assert one.released == [{}, {topic: {1}}], "what leaves; the original names both, because it gives up both"
    assert one.owners_at_release[1] == {0: str(first), 1: str(first)}, "still ours while it is told"
    assert one.started[1] == (f"{group}_consumer1", {topic: {0: first, 1: second}})
    assert two.released == [{}]
    assert two.started == [(f"{group}_consumer2", {topic: {0: first, 1: second}})]


def test_beside_an_original_member_with_its_own_listener(
    shared_cluster: Sandbox, fresh_name: str, connect: Connect
) -> None:
    """Both are told the same assignment, and what ours commits in its call is where the original goes on."""
    group = topic = fresh_name
    shared_cluster.create_topic(topic, 2)
    shared_cluster.produce(topic, 1, 10)

    class CommitsEarly(Recorder):
        def before_releasing_partitions(self, partitions: dict[str, set[int]]) -> None:
            super().before_releasing_partitions(partitions)
            if partitions:
                ours.commit_offsets({TopicPartition(topic, 1): 7})

    recorder = CommitsEarly(lambda: shared_cluster.admin.owners(group, topic))
    # An original reads the offset before it claims: it is refused once after our commit, and reads again.
    ours = connect("a", recorder, release_settle_ms=500)
    ours.create_message_streams({topic: 1})
    scala = shared_cluster.start_member("1.1.1", group, {topic: 1}, listener=True)
    scala.wait_for(lambda: scala.count("claimed"), MOVE_MS, "the original has its share")
    wait_until(lambda: len(recorder.started) == 2, "ours hears of the original", MOVE_MS)
    assert recorder.released == [{}, {topic: {1}}]
    other = shared_cluster.admin.owners(group, topic)[1]
    told = {number: str(thread) for number, thread in recorder.started[1][1][topic].items()}
    assert told == {0: f"{group}_a-0", 1: other}
    claimed = [event for event in scala.events if event["event"] == "claimed"]
    assert f"{group}_a" in str(claimed[-1]["partitions"]), "the original is told the whole group's assignment as well"
    assert [handed.offset for handed in scala.wait_delivered(3)] == [7, 8, 9]
