"""Every API that is spoken here, one file an API, declared as data.  Pure.

To add an API: write its tables in a file of its own and put it in ``APIS``.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

from zkconsumer.wire.schemas.api_versions import API_VERSIONS
from zkconsumer.wire.schemas.describe_groups import DESCRIBE_GROUPS
from zkconsumer.wire.schemas.fetch import FETCH
from zkconsumer.wire.schemas.find_coordinator import FIND_COORDINATOR
from zkconsumer.wire.schemas.list_groups import LIST_GROUPS
from zkconsumer.wire.schemas.list_offsets import LIST_OFFSETS
from zkconsumer.wire.schemas.metadata import METADATA
from zkconsumer.wire.schemas.offset_commit import OFFSET_COMMIT
from zkconsumer.wire.schemas.offset_delete import OFFSET_DELETE
from zkconsumer.wire.schemas.offset_fetch import OFFSET_FETCH
from zkconsumer.wire.schemas.produce import PRODUCE
from zkconsumer.wire.schemas.sasl_authenticate import SASL_AUTHENTICATE
from zkconsumer.wire.schemas.sasl_handshake import SASL_HANDSHAKE
from zkconsumer.wire.schemas.table import Api

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
            DESCRIBE_GROUPS,
            LIST_GROUPS,
            SASL_HANDSHAKE,
            API_VERSIONS,
            OFFSET_DELETE,
            SASL_AUTHENTICATE,
        )
    }
)
"""API key → API."""

__all__ = [
    "APIS",
    "API_VERSIONS",
    "DESCRIBE_GROUPS",
    "FETCH",
    "FIND_COORDINATOR",
    "LIST_GROUPS",
    "LIST_OFFSETS",
    "METADATA",
    "OFFSET_COMMIT",
    "OFFSET_DELETE",
    "OFFSET_FETCH",
    "PRODUCE",
    "SASL_AUTHENTICATE",
    "SASL_HANDSHAKE",
    "Api",
]
