"""Heartbeat (12): a member of a coordinator group is alive, and asks whether it must join again (0.9)."""

from __future__ import annotations

from zkconsumer.wire.field_types import int16, int32, text
from zkconsumer.wire.schemas.message_schema import Api, f, message


@message
class HeartbeatRequest:
    """One member of one generation."""

    group_id: str = f(text)
    generation_id: int = f(int32)
    member_id: str = f(text)
    group_instance_id: str | None = f(text, "3+", nullable="3+", default=None, needed=True)


@message
class HeartbeatResponse:
    """Error 27 asks the member to join again."""

    throttle_time_ms: int = f(int32, "1+", default=0)
    error_code: int = f(int16, default=0)


HEARTBEAT = Api(12, "Heartbeat", HeartbeatRequest, HeartbeatResponse, highest=4, flexible_from=4)
