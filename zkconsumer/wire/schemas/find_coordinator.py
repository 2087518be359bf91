"""FindCoordinator (10), formerly *ConsumerMetadata*, then *GroupCoordinator*: the coordinator of a group (0.8.2).

Version 0 has one group.  Version 1 (0.11) adds the type of the key, and an error message; version 4 (3.0, KIP-699) has
several keys.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import int8, int16, int32, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

KEY_TYPE_GROUP = 0
"""``key_type`` of a consumer group; 1 is a transactional id (0.11, KIP-98), 2 a share group (4.1, KIP-932)."""

BATCHED_FROM = 4
"""The first version whose request and answer contain lists."""


@message
class FindCoordinatorRequest:
    """``key`` up to version 3, ``coordinator_keys`` from 4 on."""

    key: str = f(text, "0-3", default="", needed=True)
    key_type: int = f(int8, "1+", default=KEY_TYPE_GROUP, needed=True)
    coordinator_keys: list[str] = f(array(text), "4+", default_factory=list, needed=True)


@message
class Coordinator:
    """The coordinator of one key; ``node_id`` −1: none."""

    key: str = f(text)
    node_id: int = f(int32)
    host: str = f(text)
    port: int = f(int32)
    error_code: int = f(int16, default=0)
    error_message: str | None = f(text, nullable="0+", default=None)


@message
class FindCoordinatorResponse:
    """Up to version 3 one coordinator, in the fields of the answer; ``coordinators`` from 4 on."""

    throttle_time_ms: int = f(int32, "1+", default=0)
    error_code: int = f(int16, "0-3", default=0, needed=True)
    error_message: str | None = f(text, "1-3", nullable="1-3", default=None)
    node_id: int = f(int32, "0-3", default=-1)
    host: str = f(text, "0-3", default="")
    port: int = f(int32, "0-3", default=-1)
    coordinators: list[Coordinator] = f(array(Coordinator), "4+", default_factory=list, needed=True)


FIND_COORDINATOR = Api(
    10, "FindCoordinator", FindCoordinatorRequest, FindCoordinatorResponse, highest=6, flexible_from=3
)
