"""SyncGroup (14): the leader sends the assignment, and every member requests its own part (0.9).

The coordinator answers after the leader's request.  From version 5 on (2.5, KIP-559) request and answer contain the
protocol, and both sides check it.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import blob, int16, int32, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

PROTOCOL_FROM = 5
"""The first version whose request and answer contain the protocol."""


@message
class SyncGroupAssignment:
    """The assignment of one member, in the format of its protocol (``consumer_protocol``)."""

    member_id: str = f(text)
    assignment: bytes = f(blob)


@message
class SyncGroupRequest:
    """``assignments``: only the leader sends them."""

    group_id: str = f(text)
    generation_id: int = f(int32)
    member_id: str = f(text)
    group_instance_id: str | None = f(text, "3+", nullable="3+", default=None, needed=True)
    protocol_type: str | None = f(text, "5+", nullable="5+", default=None)
    protocol_name: str | None = f(text, "5+", nullable="5+", default=None)
    assignments: list[SyncGroupAssignment] = f(array(SyncGroupAssignment), default_factory=list)


@message
class SyncGroupResponse:
    """``assignment`` is empty with an error, and for a member that the leader omitted."""

    throttle_time_ms: int = f(int32, "1+", default=0)
    error_code: int = f(int16, default=0)
    protocol_type: str | None = f(text, "5+", nullable="5+", default=None)
    protocol_name: str | None = f(text, "5+", nullable="5+", default=None)
    assignment: bytes = f(blob, default=b"")


SYNC_GROUP = Api(14, "SyncGroup", SyncGroupRequest, SyncGroupResponse, highest=5, flexible_from=4)
