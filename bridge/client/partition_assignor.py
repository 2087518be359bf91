"""What divides partitions among the members of a group: the seam behind which the assignors stand.  Pure.

    every member:  subscription_user_data --> JoinGroup             on_assignment <-- SyncGroup
    the leader:         everybody's Subscription --> assign --> everybody's Assignment

The shape is that of Kafka's ``ConsumerPartitionAssignor`` (2.4, KIP-429).  An assignor draws no random number and reads
no clock; what it remembers from one generation to the next it is told by ``on_assignment``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import NO_GENERATION, Assignment, Subscription

__all__ = ["NO_GENERATION", "Assignment", "ConsumerPartitionAssignor", "RebalanceProtocol", "Subscription"]


class RebalanceProtocol(Enum):
    """What members do with what they have while a group forms anew (2.4, KIP-429)."""

    EAGER = 0
    """They give everything back before they join."""

    COOPERATIVE = 1
    """They keep what they have, and give back afterwards what somebody else shall have; then the group forms again."""


class ConsumerPartitionAssignor(Protocol):
    """Divides partitions.  Its answers depend on nothing but what it is given, and on what it was told before."""

    @property
    def name(self) -> str:
        """The word that all members of a group must have in common (``range``, ``cooperative-sticky`` …)."""

    @property
    def supported_protocols(self) -> frozenset[RebalanceProtocol]:
        """Never empty.  The highest that all assignors of a member have in common is what it speaks."""

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """What the leader's assignor should know of us besides; it goes with our subscription."""

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
    ) -> Mapping[str, Assignment]:
        """Everybody's share, by member id; a member that is left out gets nothing.

        ``partitions``: topic -> how many partitions it has; a topic that is subscribed to and missing here does not
        exist.  ``subscriptions`` is not empty, and in the order in which the coordinator tells the members.  ``racks``:
        where each partition has replicas, as far as brokers say it (3.4, KIP-881).
        """

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """This is our share in this generation, whoever led."""
