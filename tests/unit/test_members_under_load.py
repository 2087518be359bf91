"""Members that come, go and are disturbed while records stream through them: what is lost, what is repeated.

Threads of a real program are at work here, so a seed gives the same disturbances, not the same run.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import MakeConnector, MakeWorld, run_in_thread, wait_until
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.streams import MessageAndMetadata
from zkconsumer.zk.requests import Multi
from zkconsumer.zk.znode_formats import consumer_of

TOPIC = "clicks"
GROUP = "g1"
PARTITIONS = 12
ROUNDS = 20
BURST = 10
MEMBERS_MAX = 4

Handed = tuple[int, int]


class Group:
    """The members, what they were handed, and one who disturbs them."""

    def __init__(self, world: FakeEnvironment, connect: MakeConnector, seed: int) -> None:
        self.world = world
        self.chance = random.Random(seed)
        self.members: dict[str, ZookeeperConsumerConnector] = {}
        self.handed: list[Handed] = []
        self._connect = connect
        self._lock = threading.Lock()
        self._names = 0
        self._threads: list[Callable[[], object]] = []
        self.produced = 0
        self._ends = [0] * PARTITIONS

    def join(self) -> None:
        """One more member, of one or two threads, before or behind the others."""
        if len(self.members) == MEMBERS_MAX:
            return
        self._names += 1
        name = f"{self.chance.choice('abxyz')}{self._names}"
        connector = self._connect(
            on=self.world,
            group_id=GROUP,
            consumer_id=name,
            consumer_timeout_ms=-1,
            fetch_wait_max_ms=10,
            refresh_leader_backoff_ms=10,
            rebalance_backoff_ms=30,
            queued_max_message_chunks=self.chance.choice([1, 2, 10]),
            auto_commit_interval_ms=self.chance.choice([20, 60_000]),
        )
        self.members[name] = connector
        self._threads.append(run_in_thread(lambda: self._run(connector, self.chance.choice([1, 2]))))

    def leave(self) -> None:
        """One member closes, unless it is the last."""
        if len(self.members) > 1:
            self._threads.append(run_in_thread(self.members.pop(self._any()).close))

    def disconnect(self) -> None:
        """One member loses its connection to ZooKeeper for a moment."""
        store = self.world.store_of(self.members[self._any()])
        self.world.zookeeper.disconnect(store)
        self.produce()
        self.world.zookeeper.reconnect(store)

    def lose_an_answer(self) -> None:
        """The connection breaks at the next write of one member, before or after it was done."""
        store = self.world.store_of(self.members[self._any()])
        is_done = self.chance.random() < 0.5
        self.world.zookeeper.lose_connection_on_next(
            lambda request: isinstance(request, Multi), is_done=is_done, store=store
        )

    def expire(self) -> None:
        """The session of one member ends."""
        self.world.zookeeper.expire(self.world.store_of(self.members[self._any()]))

    def kill(self) -> None:
        """One member is gone without a word, unless it is the last."""
        if len(self.members) > 1:
            self.world.kill(self.members.pop(self._any()))

    def bounce_a_broker(self) -> None:
        """A broker dies and comes back."""
        broker = self.chance.randrange(2)
        self.world.cluster.stop_broker(broker)
        self.produce()
        self.world.cluster.start_broker(broker)

    def move_a_leader(self) -> None:
        self.world.cluster.move_leader(TOPIC, self.chance.randrange(PARTITIONS), self.chance.randrange(2))

    def produce(self) -> None:
        """A burst for each partition."""
        for partition in range(PARTITIONS):
            self.world.cluster.append(TOPIC, partition, [b"%d" % number for number in range(BURST)])
        self.produced += BURST

    def catch_up(self) -> None:
        """Wait until the newest record of each partition was handed out, however many rebalances that takes."""
        wait_until(lambda: min(self._ends) == self.produced, f"{self._ends} reach {self.produced}")

    def settle(self) -> None:
        """Wait until every member has its share."""

        def has_settled() -> bool:
            owners = self.world.owners(GROUP, TOPIC)
            members = {f"{GROUP}_{name}" for name in self.members}
            return len(owners) == PARTITIONS and {consumer_of(owner) for owner in owners.values()} == members

        wait_until(has_settled, f"{sorted(self.members)} share the partitions")

    def finish(self) -> None:
        """Catch up, close everybody, and see that no thread is stuck and no record was passed over."""
        self.catch_up()
        self.world.stop()
        for ended in self._threads:
            ended()
        everything = {(partition, offset) for partition in range(PARTITIONS) for offset in range(self.produced)}
        assert set(self.handed) == everything

    def _any(self) -> str:
        return self.chance.choice(sorted(self.members))

    def _run(self, connector: ZookeeperConsumerConnector, threads: int) -> None:
        streams = connector.create_message_streams({TOPIC: threads})[TOPIC]
        self._threads.extend(run_in_thread(lambda stream=stream: self._read(stream)) for stream in streams)

    def _read(self, messages: object) -> None:
        for message in messages:  # type: ignore[attr-defined]
            assert isinstance(message, MessageAndMetadata)
            with self._lock:
                self.handed.append((message.partition, message.offset))
                self._ends[message.partition] = max(self._ends[message.partition], message.offset + 1)


def disturb(group: Group, acts: list[Callable[[], None]]) -> None:
    """Act in every round, sometimes twice, before the group has come to rest; produce all the time."""
    group.join()
    group.join()
    for _ in range(ROUNDS):
        group.produce()
        for act in group.chance.choices(acts, k=group.chance.choice([1, 2])):
            act()
        group.produce()
        if group.chance.random() < 0.5:
            group.settle()
        group.catch_up()
    group.finish()


@pytest.mark.parametrize("seed", range(2))
def test_members_that_come_and_go_lose_and_repeat_nothing(
    seed: int, make_world: MakeWorld, connect: MakeConnector
) -> None:
    """S4, S7, S9: connections and answers are lost, brokers die, leaders move; sessions live and drains end in time."""
    world = make_world(brokers=2)
    world.create_topic(TOPIC, PARTITIONS)
    group = Group(world, connect, seed)
    disturb(
        group,
        [
            group.join,
            group.leave,
            group.disconnect,
            group.lose_an_answer,
            group.bounce_a_broker,
            group.move_a_leader,
        ],
    )
    assert len(group.handed) == len(set(group.handed))
    assert world.offsets(GROUP, TOPIC) == dict.fromkeys(range(PARTITIONS), group.produced)
    by_partition: dict[int, list[int]] = {}
    for partition, offset in group.handed:
        by_partition.setdefault(partition, []).append(offset)
    assert all(offsets == sorted(offsets) for offsets in by_partition.values())


@pytest.mark.parametrize("seed", range(2))
def test_members_that_die_or_lose_their_session_lose_no_record(
    seed: int, make_world: MakeWorld, connect: MakeConnector
) -> None:
    """S4, L1, L2: what is repeated is bounded by the commits, what is committed was handed out."""
    world = make_world(brokers=2)
    world.create_topic(TOPIC, PARTITIONS)
    group = Group(world, connect, seed)
    disturb(group, [group.join, group.leave, group.expire, group.kill, group.lose_an_answer, group.bounce_a_broker])
    assert max(world.offsets(GROUP, TOPIC).values()) <= group.produced
