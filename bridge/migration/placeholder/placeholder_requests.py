"""The requests of the placeholder member to its coordinator, in the highest version that both sides support."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.placeholder.placeholder_rules import UPGRADE_BLOCKING_USER_DATA
from zkconsumer.admin.broker_client import REQUEST_TIMEOUT_MS
from zkconsumer.kafka.error_codes import ErrorCode, error_code
from zkconsumer.kafka.group.generation import Generation
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.group.group_requests import heartbeat, join_group, leave_group, leave_group_single, sync_group
from zkconsumer.wire.consumer_protocol import PROTOCOL_TYPE, Assignment, encode_assignment
from zkconsumer.wire.schemas import HEARTBEAT, JOIN_GROUP, LEAVE_GROUP, SYNC_GROUP
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupResponse
from zkconsumer.wire.schemas.leave_group import BATCHED_FROM

if TYPE_CHECKING:
    from zkconsumer.kafka.broker_connection import Connection
    from zkconsumer.kafka.supported_versions import SupportedVersions

REBALANCE_TIMEOUT_MS = 10_000
"""How long a rebalance of the placeholder may take; after it the coordinator removes members that did not join
again.
"""

HEARTBEAT_INTERVAL_MS = 3_000
"""Kafka's ``heartbeat.interval.ms``."""

STATIC_FROM = 5
"""The version of JoinGroup from which there are static members (2.3)."""

_LEAVE_REASON = "the migration goes on without a seat"


@dataclass(frozen=True, slots=True)
class PlaceholderJoinRequest:
    """One JoinGroup.  ``is_static``: as a static member, where the brokers have those."""

    group: str
    name: str
    metadata: bytes
    session_timeout_ms: int
    member_id: str = ""
    is_static: bool = True

    def send(self, connection: Connection, ranges: SupportedVersions) -> tuple[JoinGroupResponse, GroupMemberConfig]:
        """The answer, and the settings of the join.  The client id is the placeholder's name, by which runs find it."""
        version = ranges.pick(JOIN_GROUP)
        instance_id = self.name if self.is_static and version >= STATIC_FROM else None
        config = placeholder_config(self.group, instance_id, self.session_timeout_ms)
        protocols = [JoinGroupProtocol(name=self.name, metadata=self.metadata)]
        body = join_group(config, Generation(member_id=self.member_id), PROTOCOL_TYPE, protocols, self.name)
        timeout_ms = config.join_group_timeout_ms
        return connection.request(JOIN_GROUP, version, body, timeout_ms, client_id=self.name), config


def placeholder_config(group: str, instance_id: str | None, session_timeout_ms: int) -> GroupMemberConfig:
    """The settings of the placeholder member, as of any member."""
    return GroupMemberConfig(
        {
            "group.id": group,
            "group.instance.id": instance_id,
            "session.timeout.ms": session_timeout_ms,
            "heartbeat.interval.ms": HEARTBEAT_INTERVAL_MS,
            "max.poll.interval.ms": REBALANCE_TIMEOUT_MS,
        }
    )


def send_sync_group(
    connection: Connection, ranges: SupportedVersions, config: GroupMemberConfig, generation: Generation
) -> ErrorCode:
    """Complete the generation with empty assignments.  The coordinator ignores them from a member that is not
    leader.
    """
    shares = {generation.member_id: encode_assignment(Assignment((), UPGRADE_BLOCKING_USER_DATA))}
    body = sync_group(config, generation, PROTOCOL_TYPE, shares)
    response = connection.request(SYNC_GROUP, ranges.pick(SYNC_GROUP), body, REQUEST_TIMEOUT_MS)
    return error_code(response.error_code)


def send_heartbeat(
    connection: Connection, ranges: SupportedVersions, config: GroupMemberConfig, generation: Generation
) -> ErrorCode:
    """Send a heartbeat."""
    body = heartbeat(config, generation)
    return error_code(connection.request(HEARTBEAT, ranges.pick(HEARTBEAT), body, REQUEST_TIMEOUT_MS).error_code)


def send_leave_group(
    connection: Connection, ranges: SupportedVersions, config: GroupMemberConfig, member_id: str
) -> ErrorCode:
    """Remove one member, static or not."""
    version = ranges.pick(LEAVE_GROUP)
    member = Generation(member_id=member_id)
    if version < BATCHED_FROM:
        body = leave_group_single(config, member)
    else:
        body = leave_group(config, member, _LEAVE_REASON)
    response = connection.request(LEAVE_GROUP, version, body, REQUEST_TIMEOUT_MS)
    codes = [response.error_code, *(one.error_code for one in response.members)]
    return error_code(next(filter(None, codes), 0))
