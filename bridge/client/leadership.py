"""The leader's assignment: its input, and whether the input is still the same.  Pure.

elected --all topics are known--> assigned by this snapshot --the snapshot has changed--> the group rebalances
        '-- not within max.poll.interval.ms --> error for the program, and a retry
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
"""The input of an assignment: topic -> its number of partitions; partition -> racks of its replicas."""


class Leadership:
    """``is_leader``: this member has computed the group's assignment.  It watches the group's topics then."""

    def __init__(self, config: GroupMemberConfig, subscriptions: SubscriptionState, outbox: PendingCommands) -> None:
        self.is_leader = False
        self.metadata_until_ms: int | None = None
        """The deadline for the metadata of the group's topics, while it is missing."""
        self._config = config
        self._subscriptions = subscriptions
        self._pending_commands = outbox
        self._assignment_snapshot: Snapshot | None = None
        self._divided: Snapshot | None = None
        """The input of the last assignment that this process computed or left unchanged, also of an earlier
        membership."""

    def divide(
        self,
        assignor: ConsumerPartitionAssignor,
        members: Sequence[JoinGroupMember],
        protocol: RebalanceProtocol,
        *,
        skip_assignment: bool,
    ) -> Mapping[str, bytes] | None:
        """Compute the assignment of all subscribed topics of all members; None while their metadata is incomplete.

        Raises ``BrokerUnreachable`` when that takes too long, and the errors of ``perform_assignment``.
        """
        subscriptions = read_subscriptions(members)
        if not self._knows({topic for subscription in subscriptions.values() for topic in subscription.topics}):
            return None
        self.is_leader = True
        if not subscriptions:
            # A coordinator that assigns itself may name us as the leader without any members: it watches the topics,
            # too.
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
            # The unchanged assignment was computed from the metadata of that time: a change since then is a reason to
            # rebalance, once; a coordinator may leave it unchanged again.
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
            raise BrokerUnreachable(f"no broker returned the number of partitions of the topics of {group}")
        self.metadata_until_ms = None
        return True

    def follow(self) -> None:
        """Another member leads, and watches the topics."""
        self._assignment_snapshot = None

    def resign(self) -> None:
        """The group rebalances, and has no leader for the moment."""
        self.is_leader = False
        self._assignment_snapshot = None
        self._subscriptions.reset_group_subscription()

    @property
    def is_outdated(self) -> bool:
        """Whether the topics differ from the input of the assignment."""
        return self._assignment_snapshot is not None and self._assignment_snapshot != self._snapshot()

    def _snapshot(self) -> Snapshot:
        """The current metadata of the group's topics; with racks if a member has a rack (3.5, KIP-881)."""
        racks = self._subscriptions.racks() if self._config.client_rack else {}
        return self._subscriptions.snapshot(), racks
