"""The private protocol of a migration: it keeps stock clients out, and its user data is the consumer id.  Pure.

It assigns as Kafka's ``range`` does, so that no partition moves when the members change to ``range``.  A partition that
moves is revoked first, and assigned to its new member in the next generation (cooperative, KIP-429), so that the others
continue.

Why a protocol of its own: JoinGroup of a client that offers none of the group's protocols fails with
INCONSISTENT_GROUP_PROTOCOL (23).  So a stock client cannot join before the switch, and cannot commit: brokers accept
commits of members only.  The name contains the migration id, so a member that was paused in an earlier migration of the
group cannot join either.

The group leader computes the assignment, and any member may be it.  The assignor has no state: what a member owns is in
its subscription (``owned_partitions``), so a new leader continues where the last one stopped.  After a lost answer the
member joins again with what it still owns, and gets the same partitions.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bridge.client.assignors import RangeAssignor
from bridge.migration.offsets.provenance import check_migration_id
from bridge.migration.placeholder.placeholder_rules import UPGRADE_BLOCKING_USER_DATA
from zkconsumer.kafka.group.partition_assignor import Assignment, RebalanceProtocol, Subscription
from zkconsumer.types import TopicPartition


def migration_protocol_name(migration_id: str) -> str:
    """The name of the protocol of one migration.  Raises ``InvalidNameError`` for an invalid migration id."""
    return f"zkconsumer-{check_migration_id(migration_id)}"


def consumer_id_of_user_data(user_data: bytes | None) -> str:
    """The consumer id of a member (its name in ``/consumers/G/ids``), from its user data; "" without one."""
    return (user_data or b"").decode("utf-8", "replace")


class MigrationAssignor:
    """A ``ConsumerPartitionAssignor`` of one migration; ``consumer``: our consumer id in the ZooKeeper group."""

    supported_protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    def __init__(self, migration_id: str, consumer: str) -> None:
        self.name = migration_protocol_name(migration_id)
        self._consumer = consumer
        self._range = RangeAssignor()

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Our consumer id: the tool that moves the group compares the members of both groups by it.

        DescribeGroups returns the user data only of a stable group, and of the protocol that the group uses; so the
        tool waits for both (``participants``).
        """
        return self._consumer.encode()

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Does nothing: this assignor has no state."""

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
    ) -> dict[str, Assignment]:
        """See ``ConsumerPartitionAssignor``; a partition that another member still owns is assigned to no member now.

        Two members may name the same partition: one of them lost it and has not noticed.  It is assigned to neither
        until they agree (``test_a_partition_that_two_members_own_is_assigned_to_neither_until_they_agree``).

        The user data of the assignments also keeps clients of KIP-848 out: a broker from 4.0 on converts a group to the
        consumer protocol only if it can parse them (``placeholder_rules``).
        """
        assignments = self._range.assign(partitions, subscriptions, racks)
        assert assignments.keys() == subscriptions.keys(), "each member gets an assignment"
        owners: dict[TopicPartition, set[str]] = {}
        for member, subscription in subscriptions.items():
            for tp in subscription.owned_partitions:
                owners.setdefault(tp, set()).add(member)
        return {
            member: replace(
                assignment,
                partitions=tuple(tp for tp in assignment.partitions if owners.get(tp, {member}) == {member}),
                user_data=UPGRADE_BLOCKING_USER_DATA,
            )
            for member, assignment in assignments.items()
        }
