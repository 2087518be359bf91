"""The interface of assignors, which assign partitions to the members of a group.  Pure.

    every member:  subscription_user_data --> JoinGroup             on_assignment <-- SyncGroup
    the leader:         Subscription of each member --> assign --> Assignment of each member

It has the methods of Kafka's ``ConsumerPartitionAssignor`` (2.4, KIP-429).  An assignor uses no random number and no
clock; its only state between generations comes from ``on_assignment``.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import Protocol

from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import NO_GENERATION, Assignment, Subscription

__all__ = ["NO_GENERATION", "Assignment", "ConsumerPartitionAssignor", "RebalanceProtocol", "Subscription"]


class RebalanceProtocol(Enum):
    """What members do with their partitions during a rebalance (2.4, KIP-429)."""

    EAGER = 0
    """They revoke all partitions before they join."""

    COOPERATIVE = 1
    """They keep their partitions, and afterwards revoke those that another member gets; then the group rebalances
    again."""


class ConsumerPartitionAssignor(Protocol):
    """Computes assignments.  The result depends only on its input, and on earlier calls of ``on_assignment``."""

    @property
    def name(self) -> str:
        """The name that all members of a group must have in common (``range``, ``cooperative-sticky`` …)."""

    @property
    def supported_protocols(self) -> frozenset[RebalanceProtocol]:
        """Never empty.  A member uses the highest one that all its assignors support."""

    def subscription_user_data(self, topics: frozenset[str]) -> bytes | None:
        """Additional data for the leader's assignor; it is sent with our subscription."""

    def assign(
        self,
        partitions: Mapping[str, int],
        subscriptions: Mapping[str, Subscription],
        racks: Mapping[TopicPartition, frozenset[str]] | None = None,
    ) -> Mapping[str, Assignment]:
        """The assignment of each member, by member id; a member that is missing gets no partitions.

        ``partitions``: topic -> its number of partitions; a subscribed topic that is missing here does not exist.
        ``subscriptions`` is not empty, and in the order in which the coordinator sends the members.  ``racks``: the
        racks with replicas of each partition, as far as brokers report them (3.4, KIP-881).
        """

    def on_assignment(self, assignment: Assignment, generation: int) -> None:
        """This is our assignment in this generation, whichever member led."""
