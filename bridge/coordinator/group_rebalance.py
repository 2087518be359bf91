"""From the start of a rebalance to the next generation.  Pure.

    prepare_rebalance --> members join --> on_complete_join --> members sync --> stable
          ^                                     |                    |
          '-- a member joins, leaves, is lost --'--------------------'

In each wait a timer runs: ``join`` and ``sync`` of the group, ``heartbeat`` of each member.
"""

from __future__ import annotations

from bridge.coordinator.continuations import EMPTIED, LogAppendFailure
from bridge.coordinator.coordinator_base import CoordinatorBase
from bridge.coordinator.delayed_heartbeat import NEW_MEMBER_JOIN_TIMEOUT_MS
from bridge.coordinator.delayed_join import DelayedJoin, InitialDelayedJoin, join_key
from bridge.coordinator.delayed_sync import sync_key
from bridge.coordinator.errors import Errors
from bridge.coordinator.group_log_lines import member_text, option_text, set_text
from bridge.coordinator.group_metadata import (
    COMPLETING_REBALANCE,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    GroupMetadata,
)
from bridge.coordinator.group_responses import JoinGroupResult
from bridge.coordinator.member_metadata import DelayedRequest, MemberMetadata, Protocols
from zkconsumer.wire.schemas.join_group import JoinGroupMember


class GroupRebalance(CoordinatorBase):
    """The steps of a group between two generations."""

    # --- members join ------------------------------------------------------------------------------------------------

    def add_member_and_rebalance(self, group: GroupMetadata, member: MemberMetadata, parked: DelayedRequest) -> None:
        """Add a new member and park its JoinGroup."""
        if group.is_(PREPARING_REBALANCE) and self._may_extend(group):
            group.new_member_added = True
        group.add(member, parked)
        if self.behaviour.limits_new_members:
            member.is_new = True
            self.watch_member(group, member.member_id, NEW_MEMBER_JOIN_TIMEOUT_MS)
        instance = option_text(member.group_instance_id)
        self.maybe_prepare_rebalance(group, f"Adding new member {member.member_id} with group instance id {instance}")

    def update_member_and_rebalance(
        self,
        group: GroupMetadata,
        member: MemberMetadata,
        protocols: Protocols,
        *,
        rebalance_timeout_ms: int,
        session_timeout_ms: int,
        parked: DelayedRequest,
    ) -> None:
        """A member joins again: park its JoinGroup, and answer an earlier one (Kafka does not answer that)."""
        group.update_member(member, protocols, rebalance_timeout_ms, session_timeout_ms)
        superseded = group.set_awaiting_join(member, parked)
        if superseded is not None:
            self.reply_join(superseded, JoinGroupResult(Errors.UNKNOWN_MEMBER_ID, member.member_id))
        is_leader = group.is_(STABLE) and group.is_leader(member.member_id)
        did = f"Leader {member.member_id} re-joining group" if is_leader else None
        self.maybe_prepare_rebalance(
            group, f"{did or f'Updating metadata for member {member.member_id}'} during {group.state.value}"
        )

    def _may_extend(self, group: GroupMetadata) -> bool:
        if self.behaviour.extends_delay_of_emptied_group:
            return group.previous_state is EMPTY
        return group.generation_id == 0

    # --- joining -----------------------------------------------------------------------------------------------------

    def maybe_prepare_rebalance(self, group: GroupMetadata, reason: str) -> None:
        """Begin a rebalance, unless one is in progress."""
        if group.can_rebalance:
            self.prepare_rebalance(group, reason)

    def prepare_rebalance(self, group: GroupMetadata, reason: str) -> None:
        """Begin a rebalance; members that wait for their last assignment are answered (27)."""
        if group.is_(COMPLETING_REBALANCE):
            self.reset_and_propagate_assignment_error(group, Errors.REBALANCE_IN_PROGRESS)
        self.remove_sync_expiration(group)
        is_initial = group.is_(EMPTY) and self.behaviour.has_initial_delay
        group.transition_to(PREPARING_REBALANCE, self.now_ms)
        self.log_event(
            "group-rebalance-started",
            f"Preparing to rebalance group {group.group_id} in state {group.state.value} with old generation "
            f"{group.generation_id} ({self.log_partition_of(group)}) (reason: {reason})",
            group=group.group_id,
            generation=group.generation_id,
            reason=reason,
        )
        timeout_ms = group.rebalance_timeout_ms
        if is_initial:
            step_ms = self.config.group_initial_rebalance_delay_ms
            self._wait_for_joins(group, InitialDelayedJoin.first(step_ms, timeout_ms))
        elif group.has_all_members_joined:
            self.on_complete_join(group)
        else:
            self._wait_for_joins(group, DelayedJoin(timeout_ms))

    def try_complete_join(self, group: GroupMetadata) -> None:
        """Complete the join if all members have joined; never during the initial delay."""
        if (
            group.is_(PREPARING_REBALANCE)
            and group.has_all_members_joined
            and not isinstance(group.delayed_join, InitialDelayedJoin)
        ):
            self.on_complete_join(group)

    def on_expire_join(self, group: GroupMetadata) -> None:
        """The time to join is over; the initial delay is extended while new members join, and there is time."""
        if isinstance(group.delayed_join, InitialDelayedJoin) and group.new_member_added:
            extended = group.delayed_join.extended()
            if extended is not None:
                group.new_member_added = False
                self._wait_for_joins(group, extended)
                return
        self.on_complete_join(group)

    def on_complete_join(self, group: GroupMetadata) -> None:
        """Remove the dynamic members that did not join, and begin the next generation with the others.

        If only static members are left and none of them joined, the wait begins again (2.3).
        """
        self.purgatory.cancel(join_key(group.group_id))
        group.delayed_join = None
        for lost in group.not_yet_rejoined_members():
            if not lost.is_static_member:
                self._log_removed_member(
                    group,
                    lost.member_id,
                    "it did not join again",
                    f"Group {group.group_id} removed dynamic members who haven't joined: {set_text([lost.member_id])}",
                )
                self.forget_member(group, lost.member_id)
        if group.members and not self._elect_leader(group):
            self.log_event(
                "rebalance-not-completed",
                f"Group {group.group_id} could not complete rebalance because no members rejoined",
                group=group.group_id,
            )
            self._wait_for_joins(group, DelayedJoin(group.rebalance_timeout_ms))
            return
        group.init_next_generation(self.now_ms)
        if group.is_(EMPTY):
            self._on_emptied(group)
        else:
            self._reply_joined(group)

    def _elect_leader(self, group: GroupMetadata) -> bool:
        """Whether a joined member leads the group."""
        before = group.members.get(group.leader_id or "")
        was_absent = before is not None and before.awaiting_join is None
        is_elected = group.maybe_elect_new_joined_leader()
        if before is not None and was_absent:
            old = f"[member.id: {before.member_id}, group.instance.id: {option_text(before.group_instance_id)}]"
            new = group.members.get(group.leader_id or "")
            consequence = "and the group couldn't proceed to next generationbecause no member joined."
            if is_elected and new is not None:
                consequence = f"while new leader {member_text(new)} was elected."
            self.log_event(
                "leader-not-rejoined",
                f"Group leader {old} failed to join before rebalance timeout, {consequence}",
                group=group.group_id,
                member=before.member_id,
            )
        return is_elected

    def _reply_joined(self, group: GroupMetadata) -> None:
        self.log_event(
            "group-join-completed",
            f"Stabilized group {group.group_id} generation {group.generation_id} ({self.log_partition_of(group)}) with "
            f"{group.size} members",
            group=group.group_id,
            generation=group.generation_id,
            members=group.size,
        )
        for member in group.members.values():
            self.maybe_reply_join(group, member, self.current_generation(group, member.member_id))
            self.complete_and_schedule_next_heartbeat_expiration(group, member)
            member.is_new = False
            if self.behaviour.times_out_syncs:
                group.pending_sync_members[member.member_id] = None
        if self.behaviour.times_out_syncs:
            self.purgatory.watch(sync_key(group.group_id), self.now_ms + group.rebalance_timeout_ms)

    def _on_emptied(self, group: GroupMetadata) -> None:
        self.log_event(
            "group-empty",
            f"Group {group.group_id} with generation {group.generation_id} is now empty "
            f"({self.log_partition_of(group)})",
            group=group.group_id,
            generation=group.generation_id,
        )
        if self.behaviour.has_empty_state:
            self.manager.store_group(group, {}, LogAppendFailure(EMPTIED))
        else:
            self.manager.delete_group_record(group, LogAppendFailure(EMPTIED))

    def _wait_for_joins(self, group: GroupMetadata, delayed: DelayedJoin | InitialDelayedJoin) -> None:
        group.delayed_join = delayed
        self.purgatory.watch(join_key(group.group_id), self.now_ms + delayed.delay_ms)

    def current_generation(self, group: GroupMetadata, member_id: str) -> JoinGroupResult:
        """The answer to a member about its generation; the leader's contains all members."""
        return JoinGroupResult(
            error=Errors.NONE,
            member_id=member_id,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=group.leader_id,
            members=self.current_member_metadata(group) if group.is_leader(member_id) else [],
        )

    def current_member_metadata(self, group: GroupMetadata) -> list[JoinGroupMember]:
        """All members with their metadata in the chosen protocol; visits every member, for the leader only."""
        protocol = group.protocol_name
        assert protocol is not None, "a generation with members has a protocol"
        return [
            JoinGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                metadata=member.metadata(protocol),
            )
            for member in group.members.values()
        ]

    # --- syncing -----------------------------------------------------------------------------------------------------

    def propagate_assignment_error(self, group: GroupMetadata, error: int) -> None:
        """Answer all parked SyncGroups with this error; visits every member."""
        for member in group.members.values():
            if self.maybe_reply_sync(member, error):
                self.complete_and_schedule_next_heartbeat_expiration(group, member)

    def reset_and_propagate_assignment_error(self, group: GroupMetadata, error: int) -> None:
        """The generation failed: its assignments are removed."""
        assert group.is_(COMPLETING_REBALANCE), "only a generation without an assignment can fail"
        group.clear_assignments()
        group.pending_assignment = None
        self.propagate_assignment_error(group, error)

    def remove_pending_sync_member(self, group: GroupMetadata, member_id: str) -> None:
        """The member has sent its SyncGroup, or has left."""
        group.pending_sync_members.pop(member_id, None)
        if not group.pending_sync_members:
            self.remove_sync_expiration(group)

    def remove_sync_expiration(self, group: GroupMetadata) -> None:
        """The wait for SyncGroup requests ends."""
        group.pending_sync_members.clear()
        self.purgatory.cancel(sync_key(group.group_id))

    def on_expire_pending_sync(self, group: GroupMetadata) -> None:
        """Members that have not sent SyncGroup by now are removed, and the others rebalance."""
        assert group.is_(COMPLETING_REBALANCE, STABLE), "a rebalance cancels the timer"
        late = list(group.pending_sync_members)
        self.log_event(
            "members-not-synced",
            f"Group {group.group_id} removed members who haven't sent their sync request: {set_text(late)}",
            group=group.group_id,
            members=len(late),
        )
        for member_id in late:
            self._log_removed_member(group, member_id, "it sent no SyncGroup")
            self.forget_member(group, member_id)
        self.prepare_rebalance(group, f"Removing {set_text(late)} on pending sync request expiration")

    # --- members leave -----------------------------------------------------------------------------------------------

    def remove_member_and_update_group(self, group: GroupMetadata, member: MemberMetadata, reason: str) -> None:
        """The member has left or timed out; its parked request is answered (25)."""
        self.forget_member(group, member.member_id)
        self._after_removal(group, reason)

    def remove_pending_member_and_update_group(self, group: GroupMetadata, member_id: str) -> None:
        """A pending member does not join with its id."""
        self.forget_member(group, member_id)
        if group.is_(PREPARING_REBALANCE):
            self._after_removal(group, "")

    def forget_member(self, group: GroupMetadata, member_id: str) -> None:
        """Remove a member, or a pending one; the caller decides about a rebalance."""
        if group.has(member_id):
            member = group.get(member_id)
            self.maybe_reply_join(group, member, JoinGroupResult(Errors.UNKNOWN_MEMBER_ID))
            self.maybe_reply_sync(member, Errors.UNKNOWN_MEMBER_ID)
        group.remove(member_id)
        self.remove_heartbeat_for_leaving_member(group, member_id)

    def _after_removal(self, group: GroupMetadata, reason: str) -> None:
        if group.is_(STABLE, COMPLETING_REBALANCE):
            self.prepare_rebalance(group, reason)
        else:
            self.try_complete_join(group)

    def on_expire_heartbeat(self, group: GroupMetadata, member_id: str) -> None:
        """A member timed out: remove it, unless it has a parked request."""
        if member_id in group.pending_members:
            self.log_event(
                "pending-member-expired",
                f"Pending member {member_id} in group {group.group_id} has been removed after session timeout "
                "expiration.",
                group=group.group_id,
                member=member_id,
            )
            self.remove_pending_member_and_update_group(group, member_id)
        elif group.has(member_id) and not group.get(member_id).has_satisfied_heartbeat:
            self._log_removed_member(
                group,
                member_id,
                "it sent no heartbeat",
                f"Member {member_id} in group {group.group_id} has failed, removing it from the group",
            )
            reason = f"removing member {member_id} on heartbeat expiration"
            self.remove_member_and_update_group(group, group.get(member_id), reason)

    def _log_removed_member(self, group: GroupMetadata, member_id: str, why: str, sentence: str = "") -> None:
        self.log_event("member-removed", sentence, group=group.group_id, member=member_id, reason=why)
