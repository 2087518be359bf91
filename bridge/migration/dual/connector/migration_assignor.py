"""The private protocol of a migration: it keeps stock clients out, and tells the members' names.  Pure.

It divides as Kafka's ``range`` does, so that nothing moves when the members go over to that one.  What moves is given
back first and given to its new member in the next generation (cooperative, KIP-429), so that what stays goes on.
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
    """What the members of a migration offer, and nobody else.  Raises ``InvalidNameError`` for what is no id."""
    return f"zkconsumer-{check_migration_id(migration_id)}"


def consumer_id_of_user_data(user_data: bytes | None) -> str:
    """Which consumer a member of such a group is: its id under ``/consumers/G/ids``; empty where it does not say."""
    return (user_data or b"").decode("utf-8", "replace")


class MigrationAssignor:
    """A ``ConsumerPartitionAssignor`` of one migration; ``consumer``: our id in the old group."""

    supported_protocols = frozenset({RebalanceProtocol.COOPERATIVE})

    def __init__(self, migration_id: str, consumer: str) -> None:
        self.name = migration_protocol_name(migration_id)
        self._consumer = consumer
        self._range = RangeAssignor()

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Who we are in the old group: whoever moves it compares the two sets of members by name."""
        return self._consumer.encode()

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """Nothing is remembered."""

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
    ) -> dict[str, Assignment]:
        """See ``ConsumerPartitionAssignor``; what another member says it has is in nobody's share for now.

        The bytes beside the shares keep clients of KIP-848 out, too.
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
