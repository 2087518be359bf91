"""The leader's assignment: its input, and whether the input is still the same.  Pure.

elected --all topics are known--> assigned by this snapshot --the snapshot has changed--> the group rebalances
        '-- not within max.poll.interval.ms --> error for the program, and a retry
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.group.assignments import perform_assignment, read_subscriptions
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.group.group_subscription import SubscriptionState
from zkconsumer.kafka.group.kafka_text_forms import assignments_text, topics_text
from zkconsumer.kafka.group.partition_assignor import ConsumerPartitionAssignor, RebalanceProtocol
from zkconsumer.kafka.group.pending_commands import PendingCommands
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import decode_assignment
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
        generation: int,
        skip_assignment: bool,
    ) -> Mapping[str, bytes] | None:
        """Compute the assignment of ``generation``, of all topics of all members; None while metadata is missing.

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
        self._log_assignment(generation, shares, skip_assignment=skip_assignment, members=len(members))
        return shares

    def _log_assignment(
        self, generation: int, shares: Mapping[str, bytes], *, skip_assignment: bool, members: int
    ) -> None:
        assignments = {member: decode_assignment(share) for member, share in shares.items()}
        sentence = f"Finished assignment for group at generation {generation}: {assignments_text(assignments)}"
        if skip_assignment:  # the sentence of Kafka 3.2
            sentence = (
                f"Skipped assignment for returning static leader at generation {generation}. The static leader will "
                "continue with its existing assignment."
            )
        topics = self._subscriptions.snapshot().keys()
        unassigned = topics - {tp.topic for share in assignments.values() for tp in share.partitions}
        if unassigned and not skip_assignment:
            self._pending_commands.log_event(
                "topics-unassigned",
                f"The following subscribed topics are not assigned to any members: {topics_text(unassigned)} ",
                topics=len(unassigned),
            )
        self._pending_commands.log_event(
            "group-assigned", sentence, members=members, topics=len(topics), is_skipped=skip_assignment
        )

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
        self._subscriptions.follow()

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
