"""JoinGroup (11): join a coordinator group, or stay in it for its next generation (0.9).

The response comes when all members have joined, or their time is up: the request takes as long as a rebalance.  Version
1 (0.10.1, KIP-62) sets how long that may be.  From version 4 (2.2, KIP-394) a member without an id gets one with
error 79, and joins again; version 5 (2.3, KIP-345) has static members.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import blob, boolean, int16, int32, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

NO_MEMBER_ID = ""
"""``member_id`` of a member that has none yet, and in a response without one."""

NO_GENERATION = -1
"""``generation_id`` in a response with an error."""

USE_SESSION_TIMEOUT = -1
"""``rebalance_timeout_ms`` in versions without it: the session timeout applies."""

MEMBER_ID_REQUIRED_FROM = 4
"""The first version in which a member without an id may get one with error 79."""

SKIP_ASSIGNMENT_FROM = 9
"""The first version in which the leader may have to keep the present assignment (3.2, KIP-814)."""


@message
class JoinGroupProtocol:
    """A protocol that the member supports; ``metadata`` is in the format of the protocol (``consumer_protocol``)."""

    name: str = f(text)
    metadata: bytes = f(blob)


@message
class JoinGroupRequest:
    """``protocols``: the preferred one first.  ``reason``: a text for the broker's log (3.2, KIP-800)."""

    group_id: str = f(text)
    session_timeout_ms: int = f(int32)
    rebalance_timeout_ms: int = f(int32, "1+", default=USE_SESSION_TIMEOUT)
    member_id: str = f(text, default=NO_MEMBER_ID)
    group_instance_id: str | None = f(text, "5+", nullable="5+", default=None, needed=True)
    protocol_type: str = f(text)
    protocols: list[JoinGroupProtocol] = f(array(JoinGroupProtocol))
    reason: str | None = f(text, "8+", nullable="8+", default=None)


@message
class JoinGroupMember:
    """One member, in the response to the leader; ``metadata``: for the selected protocol."""

    member_id: str = f(text)
    group_instance_id: str | None = f(text, "5+", nullable="5+", default=None)
    metadata: bytes = f(blob)


@message
class JoinGroupResponse:
    """``members``: only for the leader.  ``protocol_name`` None (from version 7): no protocol was selected."""

    throttle_time_ms: int = f(int32, "2+", default=0)
    error_code: int = f(int16, default=0)
    generation_id: int = f(int32, default=NO_GENERATION)
    protocol_type: str | None = f(text, "7+", nullable="7+", default=None)
    protocol_name: str | None = f(text, nullable="7+", default="")
    leader: str = f(text, default=NO_MEMBER_ID)
    skip_assignment: bool = f(boolean, "9+", default=False, needed=True)
    member_id: str = f(text, default=NO_MEMBER_ID)
    members: list[JoinGroupMember] = f(array(JoinGroupMember), default_factory=list)


JOIN_GROUP = Api(11, "JoinGroup", JoinGroupRequest, JoinGroupResponse, highest=9, flexible_from=6)
