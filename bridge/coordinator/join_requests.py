"""JoinGroup: become a member, or join the next generation.  Pure.

without an id    version 4 and later: the answer has an id (79), and the member joins again with it
                 before, or with an instance id: it is a member at once
with an id       a pending one becomes a member; a member joins again, or receives the current generation
"""

from __future__ import annotations

from bridge.coordinator.continuations import ConfirmNewGroup
from bridge.coordinator.errors import Errors
from bridge.coordinator.events import RequestReceived
from bridge.coordinator.group_metadata import (
    COMPLETING_REBALANCE,
    DEAD,
    EMPTY,
    PREPARING_REBALANCE,
    STABLE,
    GroupMetadata,
)
from bridge.coordinator.group_responses import JoinGroupResult
from bridge.coordinator.member_metadata import DelayedRequest, MemberMetadata, Protocols
from bridge.coordinator.static_member_rejoin import StaticMemberRejoin, rebalance_timeout_ms
from zkconsumer.wire.schemas import JOIN_GROUP
from zkconsumer.wire.schemas.join_group import MEMBER_ID_REQUIRED_FROM, NO_MEMBER_ID, JoinGroupRequest

NAME_BYTES_MAX = 0x7FFF
"""The maximum length of a protocol name, or a member id, in a message or a record of the log."""

MEMBER_ID_EXTRA_CHARS = 64
"""The maximum length of a member id in addition to its base: the client id, or the instance id."""


class JoinRequests(StaticMemberRejoin):
    """JoinGroup."""

    def handle_join_group(self, request: RequestReceived) -> None:
        """Add a member to a group, or keep it there; usually the answer is sent when the rebalance is done."""
        body: JoinGroupRequest = request.body
        parked = DelayedRequest(request.token, request.version)
        refused = self.validate_group_status(body.group_id, JOIN_GROUP.key)
        if refused is Errors.NONE and not self._is_session_timeout_valid(body.session_timeout_ms):
            refused = Errors.INVALID_SESSION_TIMEOUT
        if refused is Errors.NONE and not _has_storable_names(body):
            refused = Errors.INCONSISTENT_GROUP_PROTOCOL
        if refused is Errors.NONE and not _fits(request.client_id + " " * MEMBER_ID_EXTRA_CHARS):
            # A JoinGroup response to the leader could not contain this member, which would harm the leader.
            refused = Errors.UNKNOWN_SERVER_ERROR
        if refused is not Errors.NONE:
            self.reply_join(parked, JoinGroupResult(refused, body.member_id))
            return
        is_unknown_member = body.member_id == NO_MEMBER_ID
        group = self.get_group(body.group_id)
        if group is None and not is_unknown_member:
            self.reply_join(parked, JoinGroupResult(Errors.UNKNOWN_MEMBER_ID, body.member_id))
            return
        if group is None:
            group = self._new_group(body.group_id)
        if not self._accept_joining_member(group, body.member_id):
            self.forget_member(group, body.member_id)
            self.reply_join(parked, JoinGroupResult(Errors.GROUP_MAX_SIZE_REACHED))
        elif is_unknown_member:
            self._do_new_member_join_group(group, request, body, parked)
        else:
            self._do_current_member_join_group(group, request, body, parked)
        self.try_complete_join(group)

    def _new_group(self, group_id: str) -> GroupMetadata:
        # Without the Empty state (0.9) the group may have offsets, although it counts as not existing.
        group = self.manager.get_group(group_id) or self.manager.add_group(group_id)
        if self.behaviour.writes_new_groups:
            self.manager.store_group(group, {}, ConfirmNewGroup())
        return group

    def _is_session_timeout_valid(self, session_timeout_ms: int) -> bool:
        lowest, highest = self.config.group_min_session_timeout_ms, self.config.group_max_session_timeout_ms
        return lowest <= session_timeout_ms <= highest

    def _accept_joining_member(self, group: GroupMetadata, member_id: str) -> bool:
        """Whether ``group.max.size`` allows it: members stay, and in a rebalance the first that join."""
        size_max = self.config.group_max_size
        if not self.behaviour.limits_new_members or group.is_(EMPTY, DEAD):
            return True
        is_member = group.has(member_id)
        if group.is_(PREPARING_REBALANCE):
            is_waiting = is_member and group.get(member_id).awaiting_join is not None
            return is_waiting or group.num_members_awaiting_join < size_max
        return is_member or group.size < size_max

    def _supports(self, group: GroupMetadata, body: JoinGroupRequest, protocols: Protocols) -> bool:
        may_be_empty_type = not self.behaviour.rejects_empty_protocol_type
        return group.supports_protocols(body.protocol_type, protocols, may_be_empty_type=may_be_empty_type)

    # --- new members -------------------------------------------------------------------------------------------------

    def _do_new_member_join_group(
        self, group: GroupMetadata, request: RequestReceived, body: JoinGroupRequest, parked: DelayedRequest
    ) -> None:
        protocols = _protocols(body)
        instance_id = body.group_instance_id
        if group.is_(DEAD):
            self.reply_join(parked, JoinGroupResult(self.behaviour.dead_group_error))
            return
        if not self._supports(group, body, protocols):
            self.reply_join(parked, JoinGroupResult(Errors.INCONSISTENT_GROUP_PROTOCOL))
            return
        new_member_id = self.new_member_id(request.client_id if instance_id is None else instance_id)
        self._log_new_member(group, instance_id, new_member_id, version=parked.version)
        if instance_id is not None and group.current_static_member_id(instance_id) is not None:
            self.update_static_member_and_rebalance(
                group, instance_id, new_member_id, body=body, protocols=protocols, parked=parked
            )
        elif instance_id is None and self._requires_member_id(parked.version):
            group.pending_members.add(new_member_id)
            self.watch_member(group, new_member_id, body.session_timeout_ms)
            self.reply_join(parked, JoinGroupResult(Errors.MEMBER_ID_REQUIRED, new_member_id))
        else:
            member = _member(new_member_id, request, body, protocols)
            self.add_member_and_rebalance(group, member, parked)

    def _requires_member_id(self, version: int) -> bool:
        return self.behaviour.limits_new_members and version >= MEMBER_ID_REQUIRED_FROM

    def _log_new_member(
        self, group: GroupMetadata, instance_id: str | None, new_member_id: str, *, version: int
    ) -> None:
        state, name = group.state.value, group.group_id
        created = f"Created a new member id {new_member_id}"
        if instance_id is not None:
            old_member_id = group.current_static_member_id(instance_id)
            what = f"{created} for this member and add to the group."
            if old_member_id is not None:
                what = f"Replacing previously mapped member {old_member_id} with this groupInstanceId."
            self.log_event(
                "static-member-joining",
                f"Static member with groupInstanceId={instance_id} and unknown member id joins group {name} in {state} "
                f"state. {what}",
                group=name,
                member=new_member_id,
            )
            return
        who, what = "Member", f"{created} for this member and add to the group."
        if self._requires_member_id(version):
            who, what = "member", f"{created} and request the member to rejoin with this id."
        self.log_event(
            "dynamic-member-joining",
            f"Dynamic {who} with unknown member id joins group {name} in {state} state. {what}",
            group=name,
            member=new_member_id,
        )

    # --- known members -----------------------------------------------------------------------------------------------

    def _do_current_member_join_group(
        self, group: GroupMetadata, request: RequestReceived, body: JoinGroupRequest, parked: DelayedRequest
    ) -> None:
        protocols = _protocols(body)
        member_id = body.member_id
        if group.is_(DEAD):
            self.reply_join(parked, JoinGroupResult(self.behaviour.dead_group_error, member_id))
            return
        if not self._supports(group, body, protocols):
            self.reply_join(parked, JoinGroupResult(Errors.INCONSISTENT_GROUP_PROTOCOL, member_id))
            return
        if member_id in group.pending_members:
            self._do_pending_member_join_group(group, request, body, parked)
            return
        refused = self.validate_current_member(group, member_id, body.group_instance_id, operation="join-group")
        if refused is not Errors.NONE:
            self.reply_join(parked, JoinGroupResult(refused, member_id))
            return
        member = group.get(member_id)
        is_settled = member.matches(protocols) and (
            group.is_(COMPLETING_REBALANCE) or (group.is_(STABLE) and not group.is_leader(member_id))
        )
        if is_settled:
            self.reply_join(parked, self.current_generation(group, member_id))
        else:
            rebalance_ms = rebalance_timeout_ms(body)
            self.update_member_and_rebalance(
                group,
                member,
                protocols,
                rebalance_timeout_ms=rebalance_ms,
                session_timeout_ms=body.session_timeout_ms,
                parked=parked,
            )

    def _do_pending_member_join_group(
        self, group: GroupMetadata, request: RequestReceived, body: JoinGroupRequest, parked: DelayedRequest
    ) -> None:
        if body.group_instance_id is not None:
            # Only dynamic members get pending ids.  Kafka: IllegalStateException.
            self.reply_join(parked, JoinGroupResult(Errors.UNKNOWN_SERVER_ERROR, body.member_id))
            return
        self.log_event(
            "pending-member-joining",
            f"Pending dynamic member with id {body.member_id} joins group {group.group_id} in {group.state.value} "
            "state. Adding to the group now.",
            group=group.group_id,
            member=body.member_id,
        )
        self.add_member_and_rebalance(group, _member(body.member_id, request, body, _protocols(body)), parked)


def _protocols(body: JoinGroupRequest) -> Protocols:
    return tuple((protocol.name, protocol.metadata) for protocol in body.protocols)


def _member(member_id: str, request: RequestReceived, body: JoinGroupRequest, protocols: Protocols) -> MemberMetadata:
    return MemberMetadata(
        member_id=member_id,
        group_instance_id=body.group_instance_id,
        client_id=request.client_id,
        client_host=request.client_host,
        rebalance_timeout_ms=rebalance_timeout_ms(body),
        session_timeout_ms=body.session_timeout_ms,
        protocol_type=body.protocol_type,
        supported_protocols=protocols,
    )


def _has_storable_names(body: JoinGroupRequest) -> bool:
    instance_id = (body.group_instance_id or "") + " " * MEMBER_ID_EXTRA_CHARS
    return all(map(_fits, [body.protocol_type, *(protocol.name for protocol in body.protocols), instance_id]))


def _fits(name: str) -> bool:
    return len(name) <= NAME_BYTES_MAX // 4 or len(name.encode()) <= NAME_BYTES_MAX
