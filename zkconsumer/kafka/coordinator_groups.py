"""Groups as their coordinators describe them; also used by a ZooKeeper group to check for a group of its own name.

While a coordinator group has members, only they may commit under its name: commits of ZooKeeper members to Kafka get
error 25, and both kinds of members read everything, because they do not know of each other (0.9 and later).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.errors import RemoteProtocolError
from zkconsumer.kafka.error_codes import NONE, BrokerError, ErrorCode, error_code
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.wire import consumer_protocol
from zkconsumer.wire.schemas import DELETE_GROUPS, DESCRIBE_GROUPS, LIST_GROUPS
from zkconsumer.wire.schemas.delete_groups import DeleteGroupsRequest
from zkconsumer.wire.schemas.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest
from zkconsumer.wire.schemas.list_groups import STATES_FROM, ListGroupsRequest

if TYPE_CHECKING:
    from zkconsumer.kafka.broker_connection import Connection
    from zkconsumer.kafka.supported_versions import SupportedVersions
    from zkconsumer.types import TopicPartition

DEAD = "Dead"
EMPTY = "Empty"
DEAD_STATE_UP_TO = 5
"""The last version of DescribeGroups that reports a missing group as dead; later ones return error 69."""

GROUPS_PER_DESCRIBE = 100
"""Groups in one DescribeGroups request."""

STATES_WITHOUT_MEMBERS = (DEAD, EMPTY)
"""States of a group without members; ``Empty`` still has offsets."""


@dataclass(frozen=True, slots=True)
class CoordinatorGroupMember:
    """One member, as its coordinator describes it.

    ``topics`` (subscribed) and ``partitions`` (assigned) are decoded from the protocol's own bytes, which a coordinator
    returns for stable groups only; ``problem`` is the reason if they cannot be read.  ``user_data``: the data of the
    member's assignor, of any kind; empty if it cannot be read.
    """

    member_id: str
    client_id: str
    host: str
    instance_id: str | None = None
    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    problem: str = ""
    user_data: bytes = b""


@dataclass(frozen=True, slots=True)
class CoordinatorGroup:
    """A coordinator group.  ``members`` is empty if the coordinator does not return them (KIP-848 groups)."""

    state: str
    protocol_type: str = ""
    members: tuple[CoordinatorGroupMember, ...] = ()
    protocol: str = ""

    @property
    def has_members(self) -> bool:
        """Whether it has members."""
        return bool(self.members) or self.state not in STATES_WITHOUT_MEMBERS


def describe_coordinator_group(
    connection: Connection, ranges: SupportedVersions, group: str, timeout_ms: int
) -> CoordinatorGroup:
    """The state of the coordinator group of this name; ``Dead`` if there is none.

    ``connection`` is one to the coordinator.  Raises ``BrokerError`` with its error (16: another broker coordinates),
    ``KafkaException`` when it does not support groups (before 0.9), and what ``Connection.request`` raises.
    """
    [found] = _described(connection, ranges, [group], timeout_ms)
    if found.group_state == DEAD and ranges.supports(LIST_GROUPS, STATES_FROM):
        return _listed(connection, group, timeout_ms)
    return _group_of(found)


def list_coordinator_groups(
    connection: Connection, ranges: SupportedVersions, timeout_ms: int
) -> dict[str, CoordinatorGroup]:
    """Every group that one broker coordinates, by name; empty for brokers without groups (before 0.9).

    Raises ``BrokerError`` with its error, and what ``Connection.request`` raises.
    """
    if not ranges.is_assumed and LIST_GROUPS.key not in ranges.ranges:
        return {}
    version = 0 if ranges.is_assumed else ranges.pick(LIST_GROUPS)
    try:
        listed = connection.request(LIST_GROUPS, version, ListGroupsRequest(), timeout_ms)
    except BrokerConnectionError as error:
        if ranges.is_assumed and error.reason is ConnectionFailureReason.CLOSED:
            return {}  # brokers of 0.8 close the connection at an unknown request
        raise
    if listed.error_code != NONE.code:
        raise BrokerError(error_code(listed.error_code), "ListGroups")
    # Groups that DescribeGroups does not support (KIP-848) are returned as they were listed.
    groups = {one.group_id: CoordinatorGroup(one.group_state or DEAD, one.protocol_type) for one in listed.groups}
    names = sorted(groups)
    for start in range(0, len(names), GROUPS_PER_DESCRIBE):
        for found in _described(connection, ranges, names[start : start + GROUPS_PER_DESCRIBE], timeout_ms):
            if found.group_state != DEAD:
                groups[found.group_id] = _group_of(found)
    return groups


def delete_group(connection: Connection, ranges: SupportedVersions, group: str, timeout_ms: int) -> ErrorCode:
    """Delete a group and its offsets (brokers from 1.1 on, KIP-229); error 68: it has members, 69: it does not exist.

    ``connection`` is one to the coordinator.  Raises what ``Connection.request`` raises.
    """
    version = ranges.pick(DELETE_GROUPS)
    response = connection.request(DELETE_GROUPS, version, DeleteGroupsRequest(groups_names=[group]), timeout_ms)
    for one in response.results:
        if one.group_id == group:
            return error_code(one.error_code)
    raise RemoteProtocolError(f"DeleteGroups v{version} was not answered for group {group}")


def _described(
    connection: Connection, ranges: SupportedVersions, groups: list[str], timeout_ms: int
) -> list[DescribedGroup]:
    """A response for each, in this order, in the highest version in which a missing group is ``Dead``."""
    version = 0 if ranges.is_assumed else ranges.pick(DESCRIBE_GROUPS, at_most=DEAD_STATE_UP_TO)
    response = connection.request(DESCRIBE_GROUPS, version, DescribeGroupsRequest(groups=groups), timeout_ms)
    found = {one.group_id: one for one in response.groups}
    for group in groups:
        if group not in found:
            raise RemoteProtocolError(f"DescribeGroups v{version} was not answered for group {group}")
        if found[group].error_code != NONE.code:
            raise BrokerError(error_code(found[group].error_code), f"DescribeGroups of {group}")
    return [found[group] for group in groups]


def _group_of(found: DescribedGroup) -> CoordinatorGroup:
    members = tuple(_member_of(found.protocol_type, one) for one in found.members)
    return CoordinatorGroup(found.group_state, found.protocol_type, members, found.protocol_data)


def _member_of(protocol_type: str, one: DescribedGroupMember) -> CoordinatorGroupMember:
    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    problem = ""
    user_data = b""
    if protocol_type == consumer_protocol.PROTOCOL_TYPE:
        try:
            topics = consumer_protocol.subscribed_topics(one.member_metadata) if one.member_metadata else ()
            partitions = consumer_protocol.decode_assignment(one.member_assignment).partitions
            if one.member_metadata:
                user_data = consumer_protocol.decode_subscription(one.member_metadata).user_data or b""
        except RemoteProtocolError as error:
            problem = str(error)
    return CoordinatorGroupMember(
        one.member_id, one.client_id, one.client_host, one.group_instance_id, topics, partitions, problem, user_data
    )


def _listed(connection: Connection, group: str, timeout_ms: int) -> CoordinatorGroup:
    """Groups of KIP-848 are dead for DescribeGroups, but ListGroups lists them."""
    response = connection.request(LIST_GROUPS, STATES_FROM, ListGroupsRequest(), timeout_ms)
    if response.error_code != NONE.code:
        raise BrokerError(error_code(response.error_code), "ListGroups")
    found = next((one for one in response.groups if one.group_id == group), None)
    return CoordinatorGroup(DEAD) if found is None else CoordinatorGroup(found.group_state, found.protocol_type)
