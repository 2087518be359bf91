"""Builds the requests of a member from its configuration and its generation.  Pure.

Where an API has two forms the newer one is sent first, and the older one when the broker does not support it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from zkconsumer.kafka.group.generation import Generation
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest
from zkconsumer.wire.schemas.leave_group import LeaveGroupRequest, LeavingMember
from zkconsumer.wire.schemas.sync_group import SyncGroupAssignment, SyncGroupRequest

REASON_CHARS_MAX = 255
"""The maximum length of a reason that a coordinator reads (KIP-800)."""


def join_group(
    config: GroupMemberConfig,
    generation: Generation,
    protocol_type: str,
    protocols: Sequence[JoinGroupProtocol],
    reason: str,
) -> JoinGroupRequest:
    """JoinGroup: become, or stay, a member."""
    return JoinGroupRequest(
        group_id=config.group_id,
        session_timeout_ms=config.session_timeout_ms,
        rebalance_timeout_ms=config.max_poll_interval_ms,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=protocol_type,
        protocols=list(protocols),
        reason=reason[:REASON_CHARS_MAX],
    )


def sync_group(
    config: GroupMemberConfig, generation: Generation, protocol_type: str, assignments: Mapping[str, bytes]
) -> SyncGroupRequest:
    """SyncGroup: request our assignment; the leader's contains those of all members."""
    return SyncGroupRequest(
        group_id=config.group_id,
        generation_id=generation.generation_id,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
        protocol_type=protocol_type,
        protocol_name=generation.protocol_name,
        assignments=[
            SyncGroupAssignment(member_id=member, assignment=share) for member, share in sorted(assignments.items())
        ],
    )


def heartbeat(config: GroupMemberConfig, generation: Generation) -> HeartbeatRequest:
    """Heartbeat: this member is alive."""
    return HeartbeatRequest(
        group_id=config.group_id,
        generation_id=generation.generation_id,
        member_id=generation.member_id,
        group_instance_id=config.group_instance_id,
    )


def leave_group(config: GroupMemberConfig, generation: Generation, reason: str) -> LeaveGroupRequest:
    """LeaveGroup in the form of brokers from 2.4 on."""
    member = LeavingMember(member_id=generation.member_id, reason=reason[:REASON_CHARS_MAX])
    return LeaveGroupRequest(group_id=config.group_id, members=[member])


def leave_group_single(config: GroupMemberConfig, generation: Generation) -> LeaveGroupRequest:
    """LeaveGroup in the form of brokers before 2.4."""
    return LeaveGroupRequest(group_id=config.group_id, member_id=generation.member_id)
