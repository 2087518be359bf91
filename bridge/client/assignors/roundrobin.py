"""``roundrobin``: assigns the partitions of all topics one by one to the members in rotation.  Pure.

    topics x (3 partitions), y (2), members a b      a: x0 x2 y1   b: x1 y0

It differs from the Scala consumer's ``roundrobin``, which orders partitions by a hash and assigns to threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from bridge.client.assignors.assignor_group import PartitionsByMember, assignor_group, members_in_order, to_assignments
from bridge.client.assignors.java_order import text_order
from zkconsumer.kafka.group.partition_assignor import Assignment, RebalanceProtocol, Subscription
from zkconsumer.types import TopicPartition


class RoundRobinAssignor:
    """Kafka's ``RoundRobinAssignor``; a ``ConsumerPartitionAssignor``.  It ignores racks."""

    name = "roundrobin"
    supported_protocols = frozenset({RebalanceProtocol.EAGER})

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Nothing."""
        return None

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Does nothing: the assignor has no state."""

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
    ) -> dict[str, Assignment]:
        """See ``ConsumerPartitionAssignor``.  A member without a subscription to a topic is skipped in the rotation."""
        group = assignor_group(partitions, subscriptions, racks or {})
        wants = {member: frozenset(each.topics) for member, each in group.members.items()}
        shares: PartitionsByMember = {member: [] for member in group.members}
        turns = cycle(members_in_order(group.members.items()))
        for topic in sorted(group.topics, key=text_order):
            for tp in group.partitions_of(topic):
                shares[next(member for member in turns if topic in wants[member])].append(tp)
        return to_assignments(shares)
