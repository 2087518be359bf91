"""DescribeGroups (15): the state of a coordinator group, requested from its coordinator (0.9).

A group that does not exist is *Dead*: without an error up to version 5, with error 69 and a reason from version 6 on
(4.0, KIP-1043).  The same applies to a group of the consumer protocol (KIP-848, 4.0): ListGroups contains those.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import blob, boolean, int16, int32, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

OPERATIONS_OMITTED = -(2**31)
"""``authorized_operations`` if they were not requested (2.3, KIP-430)."""


@message
class DescribeGroupsRequest:
    """The groups to describe."""

    groups: list[str] = f(array(text))
    include_authorized_operations: bool = f(boolean, "3+", default=False)


@message
class DescribedGroupMember:
    """One member; metadata and assignment are bytes in the format of its protocol."""

    member_id: str = f(text)
    group_instance_id: str | None = f(text, "4+", nullable="4+", default=None)
    client_id: str = f(text)
    client_host: str = f(text)
    member_metadata: bytes = f(blob)
    member_assignment: bytes = f(blob)


@message
class DescribedGroup:
    """One group; ``protocol_data``: the protocol that all its members support."""

    error_code: int = f(int16, default=0)
    error_message: str | None = f(text, "6+", nullable="6+", default=None)
    group_id: str = f(text)
    group_state: str = f(text)
    protocol_type: str = f(text)
    protocol_data: str = f(text)
    members: list[DescribedGroupMember] = f(array(DescribedGroupMember))
    authorized_operations: int = f(int32, "3+", default=OPERATIONS_OMITTED)


@message
class DescribeGroupsResponse:
    """The groups, in the order of the request."""

    throttle_time_ms: int = f(int32, "1+", default=0)
    groups: list[DescribedGroup] = f(array(DescribedGroup))


DESCRIBE_GROUPS = Api(
    15, "DescribeGroups", DescribeGroupsRequest, DescribeGroupsResponse, highest=6, flexible_from=5, client_max=5
)
