"""DeleteGroups (42): delete coordinator groups without members, and their offsets (1.1, KIP-229)."""

from __future__ import annotations

from zkconsumer.wire.field_types import int16, int32, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message


@message
class DeleteGroupsRequest:
    """The groups; the coordinator of all of them must be the requested broker."""

    groups_names: list[str] = f(array(text))


@message
class DeletedGroup:
    """The result for one group: 68 it has members, 69 it does not exist."""

    group_id: str = f(text)
    error_code: int = f(int16, default=0)


@message
class DeleteGroupsResponse:
    """One entry for each requested group."""

    throttle_time_ms: int = f(int32, default=0)
    results: list[DeletedGroup] = f(array(DeletedGroup))


DELETE_GROUPS = Api(42, "DeleteGroups", DeleteGroupsRequest, DeleteGroupsResponse, highest=2, flexible_from=2)
