"""``roundrobin``: all partitions of all topics in a row, one to each member in turn.  Pure.

    topics x (3 partitions), y (2), members a b      a: x0 x2 y1   b: x1 y0

Not the old consumer's ``roundrobin``, which orders partitions by a hash and goes by threads.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import cycle

from bridge.client.assignors.assignor_group import PartitionsByMember, assignor_group, members_in_order, to_assignments
from bridge.client.assignors.java_order import text_order
from bridge.client.partition_assignor import Assignment, RebalanceProtocol, Subscription
from zkconsumer.types import TopicPartition


class RoundRobinAssignor:
    """Kafka's ``RoundRobinAssignor``; a ``ConsumerPartitionAssignor``.  Racks do not matter to it."""

    name = "roundrobin"
    supported_protocols = frozenset({RebalanceProtocol.EAGER})

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Nothing."""
        return None

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Nothing is remembered."""

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
    ) -> dict[str, Assignment]:
        """See ``ConsumerPartitionAssignor``.  Who does not want a topic is passed over, and loses that turn."""
        group = assignor_group(partitions, subscriptions, racks or {})
        wants = {member: frozenset(each.topics) for member, each in group.members.items()}
        shares: PartitionsByMember = {member: [] for member in group.members}
        turns = cycle(members_in_order(group.members.items()))
        for topic in sorted(group.topics, key=text_order):
            for tp in group.partitions_of(topic):
                shares[next(member for member in turns if topic in wants[member])].append(tp)
        return to_assignments(shares)
