"""From which version of each API on a client delays its requests by ``throttle_time_ms`` itself (KIP-219).  Pure.

Brokers from 2.0 on answer at once, and expect the client to send nothing on the connection meanwhile.  In the versions
before, the broker delayed the response instead, so the client must not wait again.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from zkconsumer.wire.schemas import (
    API_VERSIONS,
    CREATE_TOPICS,
    DELETE_GROUPS,
    DELETE_TOPICS,
    DESCRIBE_CONFIGS,
    DESCRIBE_GROUPS,
    FETCH,
    FIND_COORDINATOR,
    HEARTBEAT,
    INIT_PRODUCER_ID,
    JOIN_GROUP,
    LEAVE_GROUP,
    LIST_GROUPS,
    LIST_OFFSETS,
    METADATA,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    OFFSET_FETCH,
    PRODUCE,
    SYNC_GROUP,
)
from zkconsumer.wire.schemas.message_schema import Api

CLIENT_THROTTLES_FROM = MappingProxyType(
    {
        PRODUCE.key: 6,
        FETCH.key: 8,
        LIST_OFFSETS.key: 3,
        METADATA.key: 6,
        OFFSET_COMMIT.key: 4,
        OFFSET_FETCH.key: 4,
        FIND_COORDINATOR.key: 2,
        JOIN_GROUP.key: 3,
        HEARTBEAT.key: 2,
        LEAVE_GROUP.key: 2,
        SYNC_GROUP.key: 2,
        DESCRIBE_GROUPS.key: 2,
        LIST_GROUPS.key: 2,
        API_VERSIONS.key: 2,
        CREATE_TOPICS.key: 3,
        DELETE_TOPICS.key: 2,
        INIT_PRODUCER_ID.key: 1,
        DESCRIBE_CONFIGS.key: 2,
        DELETE_GROUPS.key: 1,
        OFFSET_DELETE.key: 0,
    }
)
"""API key -> the first such version; the values of Kafka 3.0.  An API without an entry never delays the client."""


def throttle_time_ms(api: Api[Any, Any], version: int, body: Any) -> int:
    """How long the client must send nothing on the connection after this response; 0: no limit."""
    first = CLIENT_THROTTLES_FROM.get(api.key)
    if first is None or version < first:
        return 0
    return max(0, int(getattr(body, "throttle_time_ms", 0)))
