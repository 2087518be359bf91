"""Leading a group: what this member divided, by what there was then, and whether that is how things are still.  Pure.

elected --all topics are known--> divided by this snapshot --now it is another one--> the group forms anew
        '-- not within max.poll.interval.ms --> the program is told, and it is tried again
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from bridge.client.assignments import perform_assignment, read_subscriptions
from bridge.client.config import GroupMemberConfig
from bridge.client.partition_assignor import ConsumerPartitionAssignor, RebalanceProtocol
from bridge.client.pending_commands import PendingCommands
from bridge.client.subscription_state import SubscriptionState
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas.join_group import JoinGroupMember

Snapshot: TypeAlias = tuple[Mapping[str, int], Mapping[TopicPartition, frozenset[str]]]
"""By what a leader divided: topic -> how many partitions; partition -> racks of its replicas."""


class Leadership:
    """``is_leader``: the group goes by what this member divided.  It watches the group's topics then."""

    def __init__(self, config: GroupMemberConfig, subscriptions: SubscriptionState, outbox: PendingCommands) -> None:
        self.is_leader = False
        self.metadata_until_ms: int | None = None
        """Until when the topics of the group are waited for, while they are."""
        self._config = config
        self._subscriptions = subscriptions
        self._pending_commands = outbox
        self._assignment_snapshot: Snapshot | None = None
        self._divided: Snapshot | None = None
        """By what this process divided last, or let stand, whatever became of its membership since."""

    def divide(
        self,
        assignor: ConsumerPartitionAssignor,
        members: Sequence[JoinGroupMember],
        protocol: RebalanceProtocol,
        *,
        skip_assignment: bool,
    ) -> Mapping[str, bytes] | None:
        """Divide what all members together subscribe to; None while not all of it is known.

        Raises ``BrokerUnreachable`` when that takes too long, and what ``perform_assignment`` raises.
        """
        subscriptions = read_subscriptions(members)
        if not self._knows({topic for subscription in subscriptions.values() for topic in subscription.topics}):
            return None
        self.is_leader = True
        if not subscriptions:
            # A coordinator that divides by itself may name us as the leader and tell us of nobody: it watches, too.
            self._assignment_snapshot = None
            return {}
        partitions = self._subscriptions.snapshot()
        shares: Mapping[str, bytes] = {}
        now = self._snapshot()
        self._assignment_snapshot = now
        if not skip_assignment:
            racks = self._subscriptions.racks()
            shares = perform_assignment(assignor, protocol, partitions, subscriptions, racks)
        elif self._divided is not None:
            # The share that stands was divided by what there was then: what has changed since is a reason to rebalance,
            # once; a coordinator may let it stand again.
            self._assignment_snapshot = self._divided
        self._divided = now
        self._pending_commands.log_event(
            "group-assigned", members=len(members), topics=len(partitions), is_skipped=skip_assignment
        )
        return shares

    def _knows(self, topics: set[str]) -> bool:
        if not self._subscriptions.group_subscribe(topics):
            now_ms = self._pending_commands.now_ms
            self.metadata_until_ms = self.metadata_until_ms or now_ms + self._config.max_poll_interval_ms
            if now_ms < self.metadata_until_ms:
                return False
            self.metadata_until_ms = None
            group = self._config.group_id
            raise BrokerUnreachable(f"no broker told how many partitions the topics of {group} have")
        self.metadata_until_ms = None
        return True

    def follow(self) -> None:
        """Somebody else leads, and watches."""
        self._assignment_snapshot = None

    def resign(self) -> None:
        """The group forms anew, and nobody leads for the time being."""
        self.is_leader = False
        self._assignment_snapshot = None
        self._subscriptions.reset_group_subscription()

    @property
    def is_outdated(self) -> bool:
        """Whether there is something else to divide now than what was divided."""
        return self._assignment_snapshot is not None and self._assignment_snapshot != self._snapshot()

    def _snapshot(self) -> Snapshot:
        """What the group's topics are now; racks matter to who says where it runs (3.5, KIP-881)."""
        racks = self._subscriptions.racks() if self._config.client_rack else {}
        return self._subscriptions.snapshot(), racks
