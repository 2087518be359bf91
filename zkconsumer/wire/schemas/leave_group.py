"""LeaveGroup (13): members leave a coordinator group, and the group does not wait for them (0.9).

Versions 0 to 2 contain one member, and its error is the error of the response.  From version 3 on (2.4, KIP-345)
several members can leave at once, static members by their instance id, and each has its own error.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import int16, int32, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

BATCHED_FROM = 3
"""The first version whose request and answer contain lists of members."""


@message
class LeavingMember:
    """``member_id`` may be empty if the instance id identifies the member.  ``reason``: a text for the broker's log."""

    member_id: str = f(text)
    group_instance_id: str | None = f(text, nullable="0+", default=None)
    reason: str | None = f(text, "5+", nullable="5+", default=None)


@message
class LeaveGroupRequest:
    """``member_id`` up to version 2, ``members`` from 3 on."""

    group_id: str = f(text)
    member_id: str = f(text, "0-2", default="", needed=True)
    members: list[LeavingMember] = f(array(LeavingMember), "3+", default_factory=list, needed=True)


@message
class LeavingMemberResponse:
    """The result for one member."""

    member_id: str = f(text)
    group_instance_id: str | None = f(text, nullable="0+", default=None)
    error_code: int = f(int16, default=0)


@message
class LeaveGroupResponse:
    """``error_code``: from version 3 on only errors of the whole group; then ``members`` is empty."""

    throttle_time_ms: int = f(int32, "1+", default=0)
    error_code: int = f(int16, default=0)
    members: list[LeavingMemberResponse] = f(array(LeavingMemberResponse), "3+", default_factory=list, needed=True)


LEAVE_GROUP = Api(13, "LeaveGroup", LeaveGroupRequest, LeaveGroupResponse, highest=5, flexible_from=4)
