"""Members whose requests and watch events come in any order that a server allows: each change ends with all owners."""

from __future__ import annotations

from random import Random

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import MakeConnector, MakeWorld, wait_until
from tests.simulation_seeds import Seeds
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.types import TopicPartition

TOPICS = ("clicks", "orders")
PARTITIONS = 4
CHANGES = 40
SEEDS = Seeds("sessions-in-any-order")


def play(seed: int, make_world: MakeWorld, connect: MakeConnector) -> None:
    """Members come and leave; after each change each partition must get an owner."""
    random = Random(seed)
    world: FakeEnvironment = make_world()
    world.zookeeper.choose = random.choice
    for topic in TOPICS:
        world.create_topic(topic, PARTITIONS)
    every = sorted(TopicPartition(topic, number) for topic in TOPICS for number in range(PARTITIONS))
    members: list[ZookeeperConsumerConnector] = []
    for change in range(CHANGES):
        if len(members) < 2 or (len(members) < 4 and random.random() < 0.5):
            members.append(connect(on=world, group_id="g"))
            members[-1].create_message_streams(dict.fromkeys(TOPICS, 1))
        else:
            members.pop(random.randrange(len(members))).shutdown()
        wait_until(
            lambda: sorted(tp for member in members for tp in member.assignment) == every,
            f"change {change} of seed {seed}: each partition has an owner",
        )
    for member in members:
        member.shutdown()


@pytest.mark.parametrize("seed", SEEDS.first(4))
def test_each_change_of_a_group_ends_with_an_owner_for_each_partition(
    seed: int, make_world: MakeWorld, connect: MakeConnector
) -> None:
    play(seed, make_world, connect)


@pytest.mark.nightly
@pytest.mark.timeout(900)
def test_each_change_of_many_groups_ends_so(make_world: MakeWorld, connect: MakeConnector) -> None:
    SEEDS.live(SEEDS.new(60), lambda seed: play(seed, make_world, connect))
