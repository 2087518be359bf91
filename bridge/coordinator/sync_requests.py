"""SyncGroup: the leader sends the assignment, and every member gets its part once the log has it.  Pure."""

from __future__ import annotations

from bridge.coordinator.continuations import DeliverAssignment
from bridge.coordinator.coordinator_base import LOADING_ERRORS
from bridge.coordinator.errors import Errors
from bridge.coordinator.events import RequestReceived
from bridge.coordinator.group_log_lines import set_text
from bridge.coordinator.group_metadata import COMPLETING_REBALANCE, PREPARING_REBALANCE, STABLE, GroupMetadata
from bridge.coordinator.group_rebalance import GroupRebalance
from bridge.coordinator.group_responses import sync_response
from bridge.coordinator.member_metadata import DelayedRequest, MemberMetadata
from zkconsumer.wire.schemas import SYNC_GROUP
from zkconsumer.wire.schemas.sync_group import PROTOCOL_FROM, SyncGroupRequest


class SyncRequests(GroupRebalance):
    """SyncGroup."""

    def handle_sync_group(self, request: RequestReceived) -> None:
        """Process the leader's assignment, or another member's request for its part."""
        body: SyncGroupRequest = request.body
        parked = DelayedRequest(request.token, request.version)
        refused = self.validate_group_status(body.group_id, SYNC_GROUP.key)
        group = None
        if refused is Errors.COORDINATOR_LOAD_IN_PROGRESS:
            refused = LOADING_ERRORS[SYNC_GROUP.key]
        elif refused is Errors.NONE:
            group = self.get_group(body.group_id)
            refused = self._validate_sync_group(group, body, request.version)
        if group is None or refused is not Errors.NONE:
            self.reply(parked, sync_response(refused))
            return
        member = group.get(body.member_id)
        if group.is_(STABLE):
            self.remove_pending_sync_member(group, member.member_id)
            self._deliver(group, member, parked)
        else:
            self._do_sync_group(group, member, body, parked)

    def _validate_sync_group(self, group: GroupMetadata | None, body: SyncGroupRequest, version: int) -> Errors:
        if version >= PROTOCOL_FROM and (body.protocol_type is None or body.protocol_name is None):
            return Errors.INCONSISTENT_GROUP_PROTOCOL
        if group is None:
            return Errors.UNKNOWN_MEMBER_ID
        refused = self.validate_current_member(group, body.member_id, body.group_instance_id, operation="sync-group")
        if refused is not Errors.NONE:
            return refused
        if body.generation_id != group.generation_id:
            return Errors.ILLEGAL_GENERATION
        if body.protocol_type not in (None, group.protocol_type):
            return Errors.INCONSISTENT_GROUP_PROTOCOL
        if body.protocol_name not in (None, group.protocol_name):
            return Errors.INCONSISTENT_GROUP_PROTOCOL
        return Errors.REBALANCE_IN_PROGRESS if group.is_(PREPARING_REBALANCE) else Errors.NONE

    def _do_sync_group(
        self, group: GroupMetadata, member: MemberMetadata, body: SyncGroupRequest, parked: DelayedRequest
    ) -> None:
        self.maybe_reply_sync(member, Errors.UNKNOWN_MEMBER_ID)
        member.awaiting_sync = parked
        self.remove_pending_sync_member(group, member.member_id)
        # A leader that repeats its request while its assignment is being written waits for that one: with two, the log
        # could have another assignment than the members.
        if group.is_leader(member.member_id) and group.pending_assignment is None:
            group.pending_assignment = DeliverAssignment(group.generation_id)
            given = {row.member_id: row.assignment for row in body.assignments}
            self.log_event(
                "assignment-received",
                f"Assignment received from leader {member.member_id} for group {group.group_id} for generation "
                f"{group.generation_id}. The group has {group.size} members, {len(group.static_members)} of which are "
                "static.",
                group=group.group_id,
                generation=group.generation_id,
            )
            missing = [member_id for member_id in group.members if member_id not in given]
            if missing:
                self.log_event(
                    "members-without-assignment",
                    f"Setting empty assignments for members {set_text(missing)} of {group.group_id} for generation "
                    f"{group.generation_id}",
                    group=group.group_id,
                    generation=group.generation_id,
                    members=len(missing),
                )
            self.manager.store_group(group, given, group.pending_assignment)

    def on_assignment_stored(self, group: GroupMetadata, stored: DeliverAssignment, error: int) -> None:
        """The assignment is in the log, or could not be written; ignored if the group has changed since.

        The generation does not show that: without the Empty state (0.9) generations begin again at 1.
        """
        if not group.is_(COMPLETING_REBALANCE) or group.pending_assignment is not stored:
            return
        if error != Errors.NONE:
            self.reset_and_propagate_assignment_error(group, error)
            reason = f"Error when storing group assignment during SyncGroup (member: {group.leader_id})"
            self.maybe_prepare_rebalance(group, reason)
            return
        assert group.stored.group is not None, "the record was replayed just now"
        group.pending_assignment = None
        group.apply_assignments(group.stored.group)
        group.transition_to(STABLE, self.now_ms)
        self.log_event("group-stable", group=group.group_id, generation=group.generation_id, members=group.size)
        for member in group.members.values():
            if not member.assignment:
                self.log_event(
                    "empty-assignment-sent",
                    f"Sending empty assignment to member {member.member_id} of {group.group_id} for generation "
                    f"{group.generation_id} with no errors",
                    group=group.group_id,
                    member=member.member_id,
                )
            parked, member.awaiting_sync = member.awaiting_sync, None
            if parked is not None:
                self._deliver(group, member, parked)

    def _deliver(self, group: GroupMetadata, member: MemberMetadata, parked: DelayedRequest) -> None:
        answer = sync_response(Errors.NONE, member.assignment, group.protocol_type, group.protocol_name)
        self.reply(parked, answer)
        self.complete_and_schedule_next_heartbeat_expiration(group, member)
