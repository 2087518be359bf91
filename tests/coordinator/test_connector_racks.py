"""From the brokers' racks to a leader's assignment (KIP-881): what is said of racks arrives at the assignor."""

from __future__ import annotations

from typing import Any

from bridge.client.assignors import RangeAssignor
from zkconsumer.kafka.group.assignments import perform_assignment
from zkconsumer.kafka.group.events import MetadataUpdated
from zkconsumer.kafka.group.group_subscription import SubscriptionState
from zkconsumer.kafka.group.partition_assignor import RebalanceProtocol, Subscription
from zkconsumer.kafka.group.pending_commands import PendingCommands
from zkconsumer.kafka.metadata_client import fetch_topics
from zkconsumer.kafka.supported_versions import SupportedVersions, VersionRange
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import decode_assignment
from zkconsumer.wire.schemas import METADATA
from zkconsumer.wire.schemas.metadata import MetadataBroker, MetadataPartition, MetadataResponse, MetadataTopic

ON_A, ON_B = TopicPartition("t", 0), TopicPartition("t", 1)


class OneAnswer:
    """A connection that answers Metadata."""

    host, port = "broker", 9092

    def request(self, api: Any, version: int, body: Any, timeout_ms: int) -> MetadataResponse:
        assert api is METADATA
        return MetadataResponse(
            brokers=[
                MetadataBroker(node_id=1, host="a", port=1, rack="a"),
                MetadataBroker(node_id=2, host="b", port=1, rack="b"),
                MetadataBroker(node_id=3, host="c", port=1),
            ],
            topics=[
                MetadataTopic(
                    name="t",
                    partitions=[
                        MetadataPartition(partition_index=0, leader_id=1, replica_nodes=[1, 3, 9]),
                        MetadataPartition(partition_index=1, leader_id=2, replica_nodes=[2, 1]),
                    ],
                )
            ],
        )


def test_brokers_say_in_which_racks_a_partition_has_replicas() -> None:
    told, _ = fetch_topics(OneAnswer(), SupportedVersions({METADATA.key: VersionRange(0, 9)}), ["t"], 1_000)  # type: ignore[arg-type]
    assert told["t"].racks == {0: frozenset("a"), 1: frozenset("ab")}


def test_the_leader_gives_what_is_near() -> None:
    state = SubscriptionState(PendingCommands())
    racks = {ON_A: frozenset("a"), ON_B: frozenset("b")}
    state.subscribe(frozenset({"t"}), None)
    state.group_subscribe({"t"})
    state.metadata_updated(MetadataUpdated({"t": 2}, frozenset({"t"}), racks))
    assert state.racks() == racks
    subscriptions = {"m1": Subscription(("t",), rack_id="b"), "m2": Subscription(("t",), rack_id="a")}
    shares = perform_assignment(
        RangeAssignor(), RebalanceProtocol.EAGER, state.snapshot(), subscriptions, state.racks()
    )
    assert decode_assignment(shares["m1"]).partitions == (ON_B,)
    assert decode_assignment(shares["m2"]).partitions == (ON_A,)


def test_racks_of_a_topic_go_with_what_is_said_of_it_next() -> None:
    state = SubscriptionState(PendingCommands())
    state.group_subscribe({"t", "u"})
    both = frozenset({"t", "u"})
    state.metadata_updated(MetadataUpdated({"t": 1, "u": 1}, both, {ON_A: frozenset("a")}))
    state.metadata_updated(MetadataUpdated({"u": 1}, frozenset({"u"})))
    assert state.racks() == {ON_A: frozenset("a")}
    state.metadata_updated(MetadataUpdated({"t": 1}, frozenset({"t"})))
    assert state.racks() == {}
