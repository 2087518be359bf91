"""Whether a modern group of some name is alive: the question that an old group of the same name must ask.

While it has members, only they may commit under that name: commits of old members to Kafka answer error 25, and both
kinds read everything, because they never see each other (0.9 and later).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.errors import RemoteProtocolError
from zkconsumer.kafka.error_codes import NONE, BrokerError, error_code
from zkconsumer.wire.schemas import DESCRIBE_GROUPS, LIST_GROUPS
from zkconsumer.wire.schemas.describe_groups import DescribeGroupsRequest
from zkconsumer.wire.schemas.list_groups import STATES_FROM, ListGroupsRequest

if TYPE_CHECKING:
    from zkconsumer.kafka.connection import Connection
    from zkconsumer.kafka.versions import ApiRanges

DEAD = "Dead"
EMPTY = "Empty"
NOBODY_THERE = (DEAD, EMPTY)
"""States of a group without members; ``Empty`` still has offsets."""


@dataclass(frozen=True, slots=True)
class ModernMember:
    """One modern member, as its coordinator has it."""

    member_id: str
    client_id: str
    host: str


@dataclass(frozen=True, slots=True)
class ModernGroup:
    """A modern group.  ``members`` is empty when the coordinator does not tell them (KIP-848 groups)."""

    state: str
    protocol_type: str = ""
    members: tuple[ModernMember, ...] = ()

    @property
    def is_alive(self) -> bool:
        """Whether it has members."""
        return bool(self.members) or self.state not in NOBODY_THERE


def describe_modern_group(connection: Connection, ranges: ApiRanges, group: str, timeout_ms: int) -> ModernGroup:
    """How the modern group of this name stands; ``Dead`` when there is none.

    ``connection`` is one to the coordinator.  Raises ``BrokerError`` with what it answered (16: another broker
    coordinates), ``KafkaException`` when it knows no such groups (before 0.9), and what ``Connection.request`` raises.
    """
    version = 0 if ranges.is_assumed else ranges.pick(DESCRIBE_GROUPS)
    response = connection.request(DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=[group]), timeout_ms)
    found = next((one for one in response.groups if one.group_id == group), None)
    if found is None:
        raise RemoteProtocolError(f"DescribeGroups v{version} was not answered for group {group}")
    if found.error_code != NONE.code:
        raise BrokerError(error_code(found.error_code), f"DescribeGroups of {group}")
    members = tuple(ModernMember(one.member_id, one.client_id, one.client_host) for one in found.members)
    if found.group_state == DEAD and ranges.knows(LIST_GROUPS, STATES_FROM):
        return _listed(connection, group, timeout_ms)
    return ModernGroup(found.group_state, found.protocol_type, members)


def _listed(connection: Connection, group: str, timeout_ms: int) -> ModernGroup:
    """Groups of KIP-848 are dead to DescribeGroups, and listed."""
    response = connection.request(LIST_GROUPS, STATES_FROM, ListGroupsRequest(), timeout_ms)
    if response.error_code != NONE.code:
        raise BrokerError(error_code(response.error_code), "ListGroups")
    found = next((one for one in response.groups if one.group_id == group), None)
    return ModernGroup(DEAD) if found is None else ModernGroup(found.group_state, found.protocol_type)
