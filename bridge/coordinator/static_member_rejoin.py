"""A static member that joins without its member id, after a restart: it replaces its old self (2.3, KIP-345).  Pure.

    PREPARING_REBALANCE    it joins, under its new id
    COMPLETING_REBALANCE   the rebalance begins again, because the leader assigns to the old id
    STABLE                 if the group would choose the same protocol again: no rebalance.  The group is written
                           with the new id, and the answer contains its current generation;
                           else a rebalance

The parked requests of the old process are answered (82): from now on it is fenced.
"""

from __future__ import annotations

from bridge.coordinator.continuations import AnswerStaticMember
from bridge.coordinator.errors import Errors
from bridge.coordinator.group_metadata import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE, GroupMetadata
from bridge.coordinator.group_rebalance import GroupRebalance
from bridge.coordinator.group_responses import JoinGroupResult
from bridge.coordinator.member_metadata import DelayedRequest, Protocols
from zkconsumer.kafka.error_codes import error_code
from zkconsumer.wire.schemas.join_group import SKIP_ASSIGNMENT_FROM, JoinGroupRequest


class StaticMemberRejoin(GroupRebalance):
    """The join of a restarted static member."""

    def update_static_member_and_rebalance(
        self,
        group: GroupMetadata,
        group_instance_id: str,
        new_member_id: str,
        *,
        body: JoinGroupRequest,
        protocols: Protocols,
        parked: DelayedRequest,
    ) -> None:
        """Replace the old member id by the new one."""
        if not group.is_(PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE):
            # An empty group has no static members.  Kafka: IllegalStateException.
            self.log_event("illegal-state", group=group.group_id, state=group.state.value)
            self.reply_join(parked, JoinGroupResult(Errors.UNKNOWN_SERVER_ERROR))
            return
        old_leader_id = group.leader_id
        old_member_id = group.static_members[group_instance_id]
        self._replace(group, group_instance_id, old_member_id, new_member_id)
        member = group.get(new_member_id)
        undo = AnswerStaticMember(
            parked=parked,
            generation_id=group.generation_id,
            group_instance_id=group_instance_id,
            old_member_id=old_member_id,
            new_member_id=new_member_id,
            old_leader_id=old_leader_id,
            old_protocols=member.supported_protocols,
            old_rebalance_timeout_ms=member.rebalance_timeout_ms,
            old_session_timeout_ms=member.session_timeout_ms,
        )
        group.update_member(member, protocols, rebalance_timeout_ms(body), body.session_timeout_ms)
        group.set_awaiting_join(member, parked)
        self.complete_and_schedule_next_heartbeat_expiration(group, member)
        if group.is_(STABLE) and group.protocol_name == group.select_protocol():
            self.log_event(
                "static-member-kept",
                "Static member which joins during Stable stage and doesn't affect selectProtocol will not trigger "
                "rebalance.",
                group=group.group_id,
                member=new_member_id,
            )
            assignments = {other.member_id: other.assignment for other in group.members.values()}
            self.manager.store_group(group, assignments, undo)
        else:
            who = f"static member {new_member_id} with instance id {group_instance_id}"
            reason = f"Updating metadata for {who}"
            if group.is_(STABLE):
                reason = f"Group's selectedProtocol will change because {who} joined with change of protocol"
            self.maybe_prepare_rebalance(group, reason)

    def on_static_member_stored(self, group: GroupMetadata, stored: AnswerStaticMember, error: int) -> None:
        """The new id is in the log, or could not be written: answer the member, or restore its old id.

        When a rebalance began meanwhile, or the member joined once more, the written record does not matter any more:
        the rebalance answers its JoinGroup.
        """
        member = group.members.get(stored.new_member_id)
        is_current = group.is_(STABLE) and group.generation_id == stored.generation_id
        if member is None or not is_current:
            return
        if error != Errors.NONE:
            self.log_event(
                "static-member-not-written",
                f"Failed to persist metadata for group {group.group_id}: {error_code(error).name}",
                group=group.group_id,
                member=stored.new_member_id,
            )
            refused = JoinGroupResult(
                error=error,
                generation_id=group.generation_id,
                protocol_type=group.protocol_type,
                protocol_name=group.protocol_name,
                leader_id=stored.old_leader_id,
            )
            self.maybe_reply_join(group, member, refused)
            group.update_member(
                member, stored.old_protocols, stored.old_rebalance_timeout_ms, stored.old_session_timeout_ms
            )
            self._replace(group, stored.group_instance_id, stored.new_member_id, stored.old_member_id)
            self.complete_and_schedule_next_heartbeat_expiration(group, member)
            return
        is_told = stored.parked.version >= SKIP_ASSIGNMENT_FROM
        is_leader = is_told and group.is_leader(member.member_id)
        # A client whose version has no skip_assignment gets another leader in the answer, its old id if it led, so that
        # it does not compute an assignment.
        answer = JoinGroupResult(
            error=Errors.NONE,
            member_id=member.member_id,
            generation_id=group.generation_id,
            protocol_type=group.protocol_type,
            protocol_name=group.protocol_name,
            leader_id=group.leader_id if is_told else stored.old_leader_id,
            skip_assignment=is_leader,
            members=self.current_member_metadata(group) if is_leader else [],
        )
        self.maybe_reply_join(group, member, answer)
        # Its session may have ended while its JoinGroup was parked: harmless then, but its timer is not running any
        # more.
        self.complete_and_schedule_next_heartbeat_expiration(group, member)

    def _replace(self, group: GroupMetadata, group_instance_id: str, old_member_id: str, new_member_id: str) -> None:
        member = group.get(old_member_id)
        self.maybe_reply_join(group, member, JoinGroupResult(Errors.FENCED_INSTANCE_ID, old_member_id))
        self.maybe_reply_sync(member, Errors.FENCED_INSTANCE_ID)
        self.remove_heartbeat_for_leaving_member(group, old_member_id)
        group.replace_static_member(group_instance_id, old_member_id, new_member_id)


def rebalance_timeout_ms(body: JoinGroupRequest) -> int:
    """How long the member may take to join again; before version 1 its session timeout."""
    return body.session_timeout_ms if body.rebalance_timeout_ms < 0 else body.rebalance_timeout_ms
