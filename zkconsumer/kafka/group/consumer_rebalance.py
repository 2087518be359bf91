r"""What a consumer does in a rebalance: compute the assignment, revoke, apply.  Pure.

    on_join_prepare      eager: revoke all partitions    cooperative: only those of topics that are no longer subscribed
    on_leader_elected    compute the assignment of all subscribed topics, and watch these topics from then on
    on_join_complete     revoke partitions that are no longer ours (cooperative), call the program, begin to read

A revocation stops a partition, commits it and calls the program, in this order (``revocation``).  When the generation
is lost, other members own the partitions by now: the program receives them as lost, and they are not committed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from zkconsumer.errors import ZkConsumerError
from zkconsumer.kafka.group.abstract_coordinator import AbstractCoordinator
from zkconsumer.kafka.group.assignments import (
    lookup_assignor,
    select_rebalance_protocol,
)
from zkconsumer.kafka.group.auto_commit_scheduler import AutoCommitScheduler
from zkconsumer.kafka.group.commands import Callback, CommitDone, Invoke, StartPartitions
from zkconsumer.kafka.group.commit_queue import CommitErrors, CommitQueue, CommitReason, PendingCommit
from zkconsumer.kafka.group.coordinator_new_partitions import CoordinatorNewPartitions
from zkconsumer.kafka.group.errors import AssignorFailed, RebalanceCallbackFailed
from zkconsumer.kafka.group.group_member import JoinStep
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.group.group_subscription import SubscriptionState
from zkconsumer.kafka.group.kafka_text_forms import assignment_text, offsets_text, partitions_text
from zkconsumer.kafka.group.leadership import Leadership
from zkconsumer.kafka.group.partition_assignor import (
    NO_GENERATION,
    Assignment,
    ConsumerPartitionAssignor,
    RebalanceProtocol,
    Subscription,
)
from zkconsumer.kafka.group.revocation import PartitionRevocation
from zkconsumer.kafka.net.exponential_backoff import Uniform
from zkconsumer.member.ownership import Drain
from zkconsumer.types import TopicPartition
from zkconsumer.wire.consumer_protocol import PROTOCOL_TYPE, decode_assignment, encode_subscription
from zkconsumer.wire.schemas.join_group import JoinGroupMember, JoinGroupProtocol

REVOKED_REASON = "need to revoke partitions and re-join"
OTHER_ASSIGNORS = "other assignors are offered"

INVALID_ASSIGNMENTS_MAX = 3
"""How many times in a row the member rejoins because its assignment has topics that it does not subscribe to."""


class Exit(Enum):
    """Whether the member leaves the group, and why."""

    NONE = "none"
    UNSUBSCRIBING = "unsubscribing"
    CLOSING = "closing"
    STOPPED = "stopped"


@dataclass(slots=True)
class _PendingAssignment:
    """An assignment that is being applied: its new partitions, and the callback about them once it was called."""

    assignment: Assignment
    assignor: ConsumerPartitionAssignor
    added: frozenset[TopicPartition] = frozenset()
    call: int | None = None
    is_called: bool = False
    error: Exception | None = None


class ConsumerRebalance(AbstractCoordinator):
    """A member that reads partitions; its events arrive through ``ConsumerCoordinator``."""

    def __init__(
        self, config: GroupMemberConfig, assignors: Sequence[ConsumerPartitionAssignor], uniform: Uniform, now_ms: int
    ) -> None:
        super().__init__(config, uniform, now_ms)
        self.assignors = tuple(assignors)
        self.protocol = self.protocol_of(self.assignors)
        self.subscriptions = SubscriptionState(self.pending_commands)
        self.new_partitions = CoordinatorNewPartitions()
        self.auto_commit = AutoCommitScheduler(config, self.backoff, self.pending_commands)
        self.commit_queue = CommitQueue(self, self._commit_finished)
        self.leadership = Leadership(config, self.subscriptions, self.pending_commands)
        self.exit = Exit.NONE
        self.joined_topics: frozenset[str] | None = None
        self.joined_assignors = self.assignors
        """The assignors of the last JoinGroup: the coordinator has chosen the generation's assignor among these."""
        self._owned_generation = NO_GENERATION
        self._owned_at_join_in: int | None = None
        """Generation in which a static member last sent JoinGroup and owned partitions, until an assignment keeps all.

        The next assignment may leave partitions without an owner, because this member must revoke them and join once
        more.  If a static member loses its generation before that, the coordinator returns the same assignment to it.
        """
        self._shares_refused = 0
        self.revocation: PartitionRevocation | None = None
        self._taking_up: _PendingAssignment | None = None

    @staticmethod
    def protocol_of(assignors: Sequence[ConsumerPartitionAssignor]) -> RebalanceProtocol:
        """The rebalance protocol of these assignors.  ``InvalidConfigException``: they have no common one."""
        return select_rebalance_protocol(assignors)

    @property
    def is_eager(self) -> bool:
        """Whether all partitions are revoked before this member joins again."""
        return self.protocol is RebalanceProtocol.EAGER

    def set_assignors(self, assignors: Sequence[ConsumerPartitionAssignor]) -> None:
        """Offer these in the next JoinGroup.  A JoinGroup that is not answered yet still has the others."""
        self.protocol = self.protocol_of(assignors)
        self.assignors = tuple(assignors)
        self.request_rejoin(OTHER_ASSIGNORS)

    @property
    def assigned(self) -> frozenset[TopicPartition]:
        """The partitions that this member reads, or is about to revoke."""
        return self.subscriptions.assigned

    @property
    def commits_while_joining(self) -> bool:
        """See ``GroupMemberBase``: true where it kept partitions during the join (cooperative protocol)."""
        return super().commits_while_joining and bool(self.assigned)

    @property
    def protocol_type(self) -> str:
        """See ``AbstractCoordinator``."""
        return PROTOCOL_TYPE

    @property
    def has_auto_assigned_partitions(self) -> bool:
        """See ``AbstractCoordinator``."""
        return self.subscriptions.has_auto_assigned_partitions or bool(self.assigned)

    def wants_group(self) -> bool:
        """See ``AbstractCoordinator``."""
        return self.subscriptions.has_auto_assigned_partitions and self.exit is Exit.NONE

    def metadata(self) -> Sequence[JoinGroupProtocol]:
        """Our subscription, once for each assignor, because each one may add its own user data."""
        topics = self.subscriptions.topics or frozenset()
        self.joined_topics = topics
        self.joined_assignors = self.assignors
        self.leadership.metadata_until_ms = None
        if not self.generation.is_lost:
            owes_revocation = bool(self.assigned) and not self.config.is_dynamic_member
            self._owned_at_join_in = self.generation.generation_id if owes_revocation else None
        return [
            JoinGroupProtocol(
                name=assignor.name,
                metadata=encode_subscription(
                    Subscription(
                        topics=tuple(sorted(topics)),
                        user_data=assignor.subscription_user_data(topics),
                        owned_partitions=tuple(sorted(self.assigned)),
                        generation_id=self._owned_generation,
                        rack_id=self.config.client_rack,
                    )
                ),
            )
            for assignor in self.assignors
        ]

    def check_for_changes(self) -> None:
        """Rejoin when the partitions differ from those that the leader assigned, or the subscription or the assignors
        from those of the last JoinGroup."""
        if self.leadership.is_outdated:
            self.request_rejoin_if_necessary("cached metadata has changed")
        if self.joined_topics is not None and self.joined_topics != self.subscriptions.topics:
            self.request_rejoin_if_necessary("subscription has changed")
        if self.joined_assignors != self.assignors:
            self.request_rejoin_if_necessary(OTHER_ASSIGNORS)

    # --- the leader -------------------------------------------------------------------------------------------------

    def on_leader_elected(
        self, protocol: str, members: Sequence[JoinGroupMember], *, skip_assignment: bool
    ) -> Mapping[str, bytes] | None:
        """Compute the assignment of all topics of all members; None until their partitions are known."""
        assignor = lookup_assignor(self.joined_assignors, protocol, self.config.group_id)
        return self.leadership.divide(
            assignor,
            members,
            self.protocol_of_assignor(assignor),
            generation=self.generation.generation_id,
            skip_assignment=skip_assignment,
        )

    def protocol_of_assignor(self, assignor: ConsumerPartitionAssignor) -> RebalanceProtocol:
        """The rebalance protocol by which partitions of this assignor's assignments change their owner."""
        return self.protocol

    # --- revocation -------------------------------------------------------------------------------------------------

    def on_join_prepare(self) -> bool:
        """Revoke the partitions that may not be kept during the rebalance; returns whether that is done."""
        if self.generation.is_lost:
            self.new_partitions.forget()
        if self.revocation is None:
            if self.generation.is_lost and self.assigned:
                self.pending_commands.log_event(
                    "partitions-given-away",
                    "Giving away all assigned partitions as lost since generation has been reset,indicating that "
                    "consumer is no longer part of the group",
                    partitions=len(self.assigned),
                )
            self.revocation = self.new_revocation(self._to_give_back_first())
        if not self.revocation.advance():
            return False
        self.on_revoked()
        self.leadership.resign()
        return True

    def _to_give_back_first(self) -> frozenset[TopicPartition]:
        if self.generation.is_lost or self.is_eager:
            return self.assigned
        wanted = self.subscriptions.topics or frozenset()
        return frozenset(tp for tp in self.assigned if tp.topic not in wanted)

    def new_revocation(
        self,
        partitions: frozenset[TopicPartition],
        until_ms: int | None = None,
        *,
        has_moved: bool = False,
        is_drained: bool = False,
    ) -> PartitionRevocation:
        """Stop, commit and call the program; within the rebalance timeout, or ``until_ms`` if that is earlier.

        ``has_moved``: another member owns them already.  ``is_drained``: ``Drain`` was emitted for them.
        """
        is_leaving = self.exit is not Exit.NONE
        return PartitionRevocation(
            self, self.commit_queue, self.auto_commit, partitions,
            until_ms or self.pending_commands.now_ms + self.config.max_poll_interval_ms,
            commits_first=self.config.enable_auto_commit and bool(self.assigned), is_leaving=is_leaving,
            has_moved=has_moved, is_drained=is_drained,
        )  # fmt: skip

    def on_revoked(self) -> None:
        """The partitions of the revocation are no longer ours."""
        done, self.revocation = self.revocation, None
        assert done is not None, "a revocation ends once"
        self.subscriptions.assigned -= done.partitions
        if not self.assigned:
            self._owned_generation = NO_GENERATION
        self._callback_failed(done.error)

    def _callback_failed(self, error: Exception | None) -> None:
        if error is not None:
            text = f"a callback of the rebalance listener raised {error!r}, and the rebalance continued without it"
            raised = error if isinstance(error, ZkConsumerError) else RebalanceCallbackFailed(text)
            if raised is not error:
                raised.__cause__ = error
            self.raise_to_program(raised)

    def reset_state_and_rejoin(self, reason: str, *, keeps_member_id: bool) -> None:
        """See ``GroupMemberBase``.  Stops lost partitions now: a callback, or an answer, may still be pending."""
        if self.assigned and self.step is not JoinStep.IDLE:
            self.pending_commands.add(Drain(tuple(sorted(self.assigned))))
        super().reset_state_and_rejoin(reason, keeps_member_id=keeps_member_id)

    def end(self, error: ZkConsumerError) -> None:
        """See ``AbstractCoordinator``; other members own our partitions now."""
        if self.assigned:
            self.pending_commands.add(Drain(tuple(sorted(self.assigned))))
        super().end(error)

    # --- assignment -------------------------------------------------------------------------------------------------

    def on_join_complete(self, assignment: bytes) -> bool:
        """Apply our assignment: first revoke partitions that are not in it, then call the program for the new ones."""
        if self._taking_up is None:
            self._taking_up = self._begin_taking_up(assignment)
            if self._taking_up is None:
                return True
        taking_up = self._taking_up
        if self.revocation is not None:
            if not self.revocation.advance():
                return False
            taking_up.error = self.revocation.error
            self.revocation.error = None
            is_waited_for = not self.revocation.has_moved
            self.on_revoked()
            if is_waited_for:
                self.request_rejoin(REVOKED_REASON)
        if taking_up.call is None and not self._take_up(taking_up):
            self._taking_up = None
            return True
        if not taking_up.is_called:
            return False
        self._taking_up = None
        if taking_up.added and not self.generation.is_lost and self.exit is Exit.NONE:
            new = taking_up.added & self.new_partitions.new
            self.pending_commands.add(StartPartitions(taking_up.added, self._owned_generation, new))
        self._callback_failed(taking_up.error)
        return True

    def _begin_taking_up(self, data: bytes) -> _PendingAssignment | None:
        if not self.leadership.is_leader:
            self.leadership.follow()
        if not data:
            self.pending_commands.log_event("assignment-missing", generation=self.generation.generation_id)
        assignor = lookup_assignor(self.joined_assignors, self.generation.protocol_name or "", self.config.group_id)
        assignment = decode_assignment(data)
        strangers = self.subscriptions.unsubscribed_topics(assignment.partitions)
        if strangers:
            self._refuse_share(strangers)
            return None
        self._shares_refused = 0
        revoked = self.assigned - frozenset(assignment.partitions)
        if not self.is_eager:
            self._log_change(frozenset(assignment.partitions))
        if revoked:
            self.revocation = self.new_revocation(revoked, has_moved=self.transfers_immediately(assignor))
        elif self.assigned:
            self._owned_at_join_in = None
        elif self._owned_at_join_in is not None and self.generation.generation_id <= self._owned_at_join_in + 1:
            # The member lost the partitions of that generation, and with them the request to join once more.
            self.request_rejoin(REVOKED_REASON)
        return _PendingAssignment(assignment, assignor)

    def _log_change(self, assigned: frozenset[TopicPartition]) -> None:
        """Kafka logs this in five lines; here they are one."""
        owned = self.assigned
        self.pending_commands.log_event(
            "assignment-updated",
            f"Updating assignment with Assigned partitions: [{partitions_text(assigned)}] Current owned partitions: "
            f"[{partitions_text(owned)}] Added partitions (assigned - owned): [{partitions_text(assigned - owned)}] "
            f"Revoked partitions (owned - assigned): [{partitions_text(owned - assigned)}]",
            generation=self.generation.generation_id,
        )

    def _refuse_share(self, strangers: Sequence[str]) -> None:
        """No stream reads these topics, so this member cannot own them: rejoin, since the subscription may have
        changed.

        A leader that assigns such topics repeatedly has a defect; each attempt makes the whole group rebalance.
        """
        self._shares_refused += 1
        self.pending_commands.log_event(
            "assignment-unsubscribed", generation=self.generation.generation_id, topics=strangers
        )
        if self._shares_refused < INVALID_ASSIGNMENTS_MAX:
            self.request_rejoin("received assignment does not match the current subscription")
            return
        self._shares_refused = 0
        raise AssignorFailed(
            f"the leader of group {self.config.group_id} assigned the topics {strangers} to this member, which does "
            f"not subscribe to them, {INVALID_ASSIGNMENTS_MAX} times in a row: correct the assignor "
            f"{self.generation.protocol_name} of the "
            "leader"
        )

    @property
    def is_applying_assignment(self) -> bool:
        """Whether ``on_join_complete`` has begun and is not done."""
        return self._taking_up is not None

    def partitions_already_transferred(self, data: bytes) -> frozenset[TopicPartition]:
        """Our partitions that other members own already by this assignment of the current generation."""
        assignor = lookup_assignor(self.joined_assignors, self.generation.protocol_name or "", self.config.group_id)
        if not self.transfers_immediately(assignor):
            return frozenset()
        return self.assigned - frozenset(decode_assignment(data).partitions)

    def transfers_immediately(self, assignor: ConsumerPartitionAssignor) -> bool:
        """Whether partitions that are not ours in this generation belong to another member already.

        With an eager protocol they were revoked before; with a cooperative one they have no owner until we revoke them.
        """
        return False

    def _take_up(self, taking_up: _PendingAssignment) -> bool:
        """We own the assigned partitions now; returns whether that is still so."""
        if self.generation.is_lost or self.exit is not Exit.NONE:
            return False
        generation = self.generation.generation_id
        self.pending_commands.log_event(
            "assignor-notified",
            f"Notifying assignor about the new {assignment_text(taking_up.assignment)}",
            assignor=taking_up.assignor.name,
        )
        try:
            taking_up.assignor.on_assignment(taking_up.assignment, generation)
        except Exception as error:  # noqa: BLE001 - the assignor is code of the program, which receives its error
            failure = AssignorFailed(f"the assignor {taking_up.assignor.name} raised {error!r}")
            failure.__cause__ = error
            taking_up.error = taking_up.error or failure
        assigned = frozenset(taking_up.assignment.partitions)
        taking_up.added = assigned - self.assigned
        self.subscriptions.assigned = assigned
        by_pattern = self.subscriptions.takes is not None
        self.new_partitions.on_assignment(assigned, self.subscriptions.partition_counts(), by_pattern=by_pattern)
        self._owned_generation = generation
        self.auto_commit.restart()
        taking_up.call = self.pending_commands.new_number()
        self.pending_commands.log_event(
            "assigned",
            f"Adding newly assigned partitions: {partitions_text(taking_up.added)}",
            generation=generation,
            partitions=len(assigned),
            added=len(taking_up.added),
        )
        self.pending_commands.add(Invoke(taking_up.call, Callback.ASSIGNED, taking_up.added))
        return True

    # --- answers ----------------------------------------------------------------------------------------------------

    def called(self, number: int, error: Exception | None) -> None:
        """A callback has returned."""
        if self.revocation is not None and self.revocation.called(number, error):
            return
        taking_up = self._taking_up
        if taking_up is not None and taking_up.call == number:
            taking_up.is_called = True
            taking_up.error = taking_up.error or error

    def _commit_finished(self, commit: PendingCommit, error: ZkConsumerError | None, refused: CommitErrors) -> None:
        match commit.why:
            case CommitReason.REQUESTED:
                self.pending_commands.add(CommitDone(commit.number, error, refused))
            case CommitReason.AUTOMATIC:
                self.auto_commit.committed(commit, error, refused)
            case CommitReason.REVOCATION:
                if error is not None:
                    self.pending_commands.log_event(
                        "revocation-commit-failed",
                        f"Synchronous auto-commit of offsets {offsets_text(commit.offsets)} failed: {error}",
                        reason=str(error),
                    )
                if self.revocation is not None:
                    self.revocation.committed(commit.number, is_done=error is None)
