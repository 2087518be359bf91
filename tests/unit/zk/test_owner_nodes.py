"""Owner nodes that somebody else touches: what is not ours any more is not handed out."""

from __future__ import annotations

from tests.in_memory_fixtures import MakeConnector, MakeWorld, wait_until
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

TP = TopicPartition("t", 1)


def test_an_owner_node_that_was_replaced_at_once_is_noticed_without_a_commit(
    make_world: MakeWorld, connect: MakeConnector
) -> None:
    world = make_world()
    world.create_topic("t", 2)
    connector = connect(on=world)
    connector.create_message_streams({"t": 1})
    node = paths.owner("g1", TP)
    wait_until(lambda: TP in connector.assignment, "the partition is ours")
    world.zookeeper.remove(node)
    world.zookeeper.ensure(node, b"g1_somebody-0")
    wait_until(lambda: TP not in connector.assignment, "the loss is noticed")
    world.zookeeper.remove(node)
    wait_until(lambda: TP in connector.assignment, "the partition is ours again")
    assert world.owners("g1", "t")[1] == f"{connector.consumer_id}-0"
