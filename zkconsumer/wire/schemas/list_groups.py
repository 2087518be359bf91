"""ListGroups (16): the groups that one broker coordinates (0.9).

From version 4 on (2.6, KIP-518) with their states and a filter by state; from version 5 on (3.8, KIP-848) with their
types and a filter by type.
"""

from __future__ import annotations

from zkconsumer.wire.field_types import int16, int32, text
from zkconsumer.wire.schemas.message_schema import Api, array, f, message

STATES_FROM = 4
"""The first version whose answer contains states."""


@message
class ListGroupsRequest:
    """``states_filter`` empty: groups in any state; ``types_filter`` empty: groups of any type."""

    states_filter: list[str] = f(array(text), "4+", default_factory=list, needed=True)
    types_filter: list[str] = f(array(text), "5+", default_factory=list, needed=True)


@message
class ListedGroup:
    """One group; ``protocol_type``: ``consumer`` for consumers; empty for a group that only stores offsets."""

    group_id: str = f(text)
    protocol_type: str = f(text)
    group_state: str = f(text, "4+", default="")
    group_type: str = f(text, "5+", default="")


@message
class ListGroupsResponse:
    """The groups that this broker coordinates."""

    throttle_time_ms: int = f(int32, "1+", default=0)
    error_code: int = f(int16, default=0)
    groups: list[ListedGroup] = f(array(ListedGroup))


LIST_GROUPS = Api(16, "ListGroups", ListGroupsRequest, ListGroupsResponse, highest=5, flexible_from=3, client_max=4)
