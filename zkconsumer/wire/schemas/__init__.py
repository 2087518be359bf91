"""The schemas of all supported APIs, one file for each API, declared as data.  Pure.

To add an API, write its tables in a separate file and add it to ``APIS``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from zkconsumer.wire.schemas.api_versions import API_VERSIONS
from zkconsumer.wire.schemas.create_topics import CREATE_TOPICS
from zkconsumer.wire.schemas.delete_groups import DELETE_GROUPS
from zkconsumer.wire.schemas.delete_topics import DELETE_TOPICS
from zkconsumer.wire.schemas.describe_cluster import DESCRIBE_CLUSTER
from zkconsumer.wire.schemas.describe_configs import DESCRIBE_CONFIGS
from zkconsumer.wire.schemas.describe_groups import DESCRIBE_GROUPS
from zkconsumer.wire.schemas.fetch import FETCH
from zkconsumer.wire.schemas.find_coordinator import FIND_COORDINATOR
from zkconsumer.wire.schemas.heartbeat import HEARTBEAT
from zkconsumer.wire.schemas.init_producer_id import INIT_PRODUCER_ID
from zkconsumer.wire.schemas.join_group import JOIN_GROUP
from zkconsumer.wire.schemas.leave_group import LEAVE_GROUP
from zkconsumer.wire.schemas.list_groups import LIST_GROUPS
from zkconsumer.wire.schemas.list_offsets import LIST_OFFSETS
from zkconsumer.wire.schemas.message_schema import Api
from zkconsumer.wire.schemas.metadata import METADATA
from zkconsumer.wire.schemas.offset_commit import OFFSET_COMMIT
from zkconsumer.wire.schemas.offset_delete import OFFSET_DELETE
from zkconsumer.wire.schemas.offset_fetch import OFFSET_FETCH
from zkconsumer.wire.schemas.offset_for_leader_epoch import OFFSET_FOR_LEADER_EPOCH
from zkconsumer.wire.schemas.produce import PRODUCE
from zkconsumer.wire.schemas.sasl_authenticate import SASL_AUTHENTICATE
from zkconsumer.wire.schemas.sasl_handshake import SASL_HANDSHAKE
from zkconsumer.wire.schemas.sync_group import SYNC_GROUP

APIS: MappingProxyType[int, Api[Any, Any]] = MappingProxyType(
    {
        api.key: api
        for api in (
            PRODUCE,
            FETCH,
            LIST_OFFSETS,
            METADATA,
            OFFSET_COMMIT,
            OFFSET_FETCH,
            FIND_COORDINATOR,
            JOIN_GROUP,
            HEARTBEAT,
            LEAVE_GROUP,
            SYNC_GROUP,
            DESCRIBE_GROUPS,
            LIST_GROUPS,
            SASL_HANDSHAKE,
            API_VERSIONS,
            CREATE_TOPICS,
            DELETE_TOPICS,
            INIT_PRODUCER_ID,
            OFFSET_FOR_LEADER_EPOCH,
            DESCRIBE_CONFIGS,
            SASL_AUTHENTICATE,
            DELETE_GROUPS,
            OFFSET_DELETE,
            DESCRIBE_CLUSTER,
        )
    }
)
"""API key → API."""

__all__ = [
    "APIS",
    "API_VERSIONS",
    "CREATE_TOPICS",
    "DELETE_GROUPS",
    "DELETE_TOPICS",
    "DESCRIBE_CLUSTER",
    "DESCRIBE_CONFIGS",
    "DESCRIBE_GROUPS",
    "FETCH",
    "FIND_COORDINATOR",
    "HEARTBEAT",
    "INIT_PRODUCER_ID",
    "JOIN_GROUP",
    "LEAVE_GROUP",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_DELETE",
    "OFFSET_FETCH",
    "OFFSET_FOR_LEADER_EPOCH",
    "PRODUCE",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "SYNC_GROUP",
    "Api",
]
