"""The private protocol of a migration: it keeps stock clients out, and its user data is the consumer id.  Pure.

It assigns as Kafka's ``range`` does, so that no partition moves when the members change to ``range``.  A partition that
moves is revoked first, and assigned to its new member in the next generation (cooperative, KIP-429), so that the others
continue.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bridge.client.assignors import RangeAssignor
from bridge.client.partition_assignor import Assignment, RebalanceProtocol, Subscription
from bridge.migration.offsets.provenance import check_migration_id
from bridge.migration.placeholder.placeholder_rules import UPGRADE_BLOCKING_USER_DATA
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
        """Our consumer id: the tool that moves the group compares the members of both groups by it."""
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

        The user data of the assignments also keeps clients of KIP-848 out.
        """
        shares = self._range.assign(partitions, subscriptions, racks)
        owners: dict[TopicPartition, set[str]] = {}
        for member, subscription in subscriptions.items():
            for tp in subscription.owned_partitions:
                owners.setdefault(tp, set()).add(member)
        return {
            member: replace(
                share,
                partitions=tuple(tp for tp in share.partitions if owners.get(tp, {member}) == {member}),
                user_data=UPGRADE_BLOCKING_USER_DATA,
            )
            for member, share in shares.items()
        }
