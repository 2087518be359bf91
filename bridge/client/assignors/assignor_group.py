"""A group as the input of Kafka's assignors: members and topics in Java's order, existing partitions, racks.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from bridge.client.assignors.java_order import hash_order, text_order
from zkconsumer.kafka.group.partition_assignor import Assignment, Subscription
from zkconsumer.types import TopicPartition
from zkconsumer.wire.java_hash import java_hash

PartitionsByMember = dict[str, list[TopicPartition]]
"""Member id -> its partitions, in their order."""


@dataclass(frozen=True, slots=True)
class AssignorGroup:
    """``members``, in the order of Kafka's leader (``ConsumerCoordinator.onLeaderElected`` puts them into a HashMap).

    ``topics``: the number of partitions of each subscribed topic that exists.  ``racks``: the racks with replicas of a
    partition; a missing partition has none.
    """

    members: Mapping[str, Subscription]
    topics: Mapping[str, int]
    racks: Mapping[TopicPartition, frozenset[str]]

    def partitions_of(self, topic: str) -> list[TopicPartition]:
        """All partitions of a topic, from 0 on."""
        return [TopicPartition(topic, number) for number in range(self.topics.get(topic, 0))]

    def has(self, tp: TopicPartition) -> bool:
        """Whether this partition exists."""
        return 0 <= tp.partition < self.topics.get(tp.topic, 0)


def assignor_group(
    partitions: Mapping[str, int],
    subscriptions: Mapping[str, Subscription],
    racks: Mapping[TopicPartition, frozenset[str]],
) -> AssignorGroup:
    """The input of an assignor, in order.  A topic that a member names twice counts once."""
    members = {
        member: replace(subscriptions[member], topics=tuple(dict.fromkeys(subscriptions[member].topics)))
        for member in hash_order(subscriptions, java_hash)
    }
    wanted = hash_order((topic for each in members.values() for topic in each.topics), java_hash)
    existing = [topic for topic in wanted if partitions.get(topic, 0) > 0]
    return AssignorGroup(members, {topic: partitions[topic] for topic in hash_order(existing, java_hash)}, racks)


def members_in_order(members: Iterable[tuple[str, Subscription]]) -> list[str]:
    """Static members first, by their instance id, then the others by member id (``MemberInfo.compareTo``, 2.3)."""

    def place(member: tuple[str, Subscription]) -> tuple[bool, bytes]:
        instance = member[1].group_instance_id
        return (instance is None, text_order(member[0] if instance is None else instance))

    return [member for member, _ in sorted(members, key=place)]


def to_assignments(shares: Mapping[str, Iterable[TopicPartition]]) -> dict[str, Assignment]:
    """The assignments in the form that is sent to the members."""
    return {member: Assignment(tuple(share)) for member, share in shares.items()}
