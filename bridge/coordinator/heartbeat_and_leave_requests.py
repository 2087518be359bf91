"""Heartbeat and LeaveGroup.  Pure."""

from __future__ import annotations

from bridge.coordinator.coordinator_base import LOADING_ERRORS
from bridge.coordinator.errors import Errors
from bridge.coordinator.events import RequestReceived
from bridge.coordinator.group_log_lines import member_text
from bridge.coordinator.group_metadata import (
    COMPLETING_REBALANCE,
    DEAD,
    PREPARING_REBALANCE,
    STABLE,
    GroupMetadata,
)
from bridge.coordinator.group_rebalance import GroupRebalance
from bridge.coordinator.group_responses import leave_response
from bridge.coordinator.member_metadata import DelayedRequest
from zkconsumer.wire.schemas import HEARTBEAT, LEAVE_GROUP
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from zkconsumer.wire.schemas.join_group import NO_MEMBER_ID
from zkconsumer.wire.schemas.leave_group import BATCHED_FROM, LeaveGroupRequest, LeavingMember


class HeartbeatAndLeaveRequests(GroupRebalance):
    """Heartbeat, LeaveGroup."""

    def handle_heartbeat(self, request: RequestReceived) -> None:
        """A member is alive; the answer contains whether it must join again (27)."""
        body: HeartbeatRequest = request.body
        refused = self.validate_group_status(body.group_id, HEARTBEAT.key)
        if refused is Errors.COORDINATOR_LOAD_IN_PROGRESS:
            refused = LOADING_ERRORS[HEARTBEAT.key]
        elif refused is Errors.NONE:
            refused = self._heartbeat(self.get_group(body.group_id), body)
        self.reply(DelayedRequest(request.token, request.version), HeartbeatResponse(error_code=refused))

    def _heartbeat(self, group: GroupMetadata | None, body: HeartbeatRequest) -> Errors:
        if group is None:
            return Errors.UNKNOWN_MEMBER_ID
        if group.is_(DEAD):
            return self.behaviour.dead_group_error
        if self.behaviour.heartbeat_checks_state_first and not group.is_(STABLE):
            return Errors.REBALANCE_IN_PROGRESS
        refused = self.validate_current_member(group, body.member_id, body.group_instance_id, operation="heartbeat")
        if refused is not Errors.NONE:
            return refused
        while_completing = self.behaviour.heartbeat_while_completing
        if group.is_(COMPLETING_REBALANCE) and while_completing is not Errors.NONE:
            return while_completing
        if body.generation_id != group.generation_id:
            return Errors.ILLEGAL_GENERATION
        self.complete_and_schedule_next_heartbeat_expiration(group, group.get(body.member_id))
        return Errors.REBALANCE_IN_PROGRESS if group.is_(PREPARING_REBALANCE) else Errors.NONE

    def handle_leave_group(self, request: RequestReceived) -> None:
        """Members leave; each has an error of its own."""
        body: LeaveGroupRequest = request.body
        leaving = body.members if request.version >= BATCHED_FROM else [LeavingMember(member_id=body.member_id)]
        refused = self.validate_group_status(body.group_id, LEAVE_GROUP.key)
        members: list[tuple[LeavingMember, int]] = []
        if refused is Errors.NONE:
            group = self.get_group(body.group_id)
            if group is not None and group.is_(DEAD):
                refused = self.behaviour.dead_group_error
            else:
                members = [(who, self._leave(group, who)) for who in leaving]
        self.reply(DelayedRequest(request.token, request.version), leave_response(request.version, refused, members))

    def _leave(self, group: GroupMetadata | None, who: LeavingMember) -> Errors:
        member_id, instance_id = who.member_id, who.group_instance_id
        if group is None:
            return Errors.UNKNOWN_MEMBER_ID
        if member_id in group.pending_members:
            self.remove_pending_member_and_update_group(group, member_id)
            self.log_event(
                "pending-member-left",
                f"Pending member with memberId={member_id} has left group {group.group_id} through explicit "
                "`LeaveGroup` request",
                group=group.group_id,
                member=member_id,
            )
            return Errors.NONE
        if member_id == NO_MEMBER_ID:
            # An operator removes a static member with only its instance id.
            member_id = group.static_members.get(instance_id or "", NO_MEMBER_ID)
        refused = self.validate_current_member(group, member_id, instance_id, operation="leave-group")
        if refused is Errors.NONE:
            member = group.get(member_id)
            self.log_event(
                "member-left",
                f"Member {member_text(member)} has left group {group.group_id} through explicit `LeaveGroup` request",
                group=group.group_id,
                member=member_id,
                reason=who.reason or "",
            )
            self.remove_member_and_update_group(group, member, f"Removing member {member_id} on LeaveGroup")
        return refused
