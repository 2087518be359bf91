r"""The state of a member in its group.  Pure.

    UNJOINED --JoinGroup sent--> PREPARING_REBALANCE --answered--> COMPLETING_REBALANCE --SyncGroup answered--> STABLE
       ^                              ^     no heartbeats                heartbeats                               |
       '------ left, or removed ------+----------------------------- the group rebalances -----------------------'

These are the four states of Kafka's clients since 2.7; before, the two in the middle were one, ``REBALANCING``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NO_MEMBER_ID = ""
NO_GENERATION_ID = -1


class MemberState(Enum):
    """The state of this member at the coordinator, as far as it is known here."""

    UNJOINED = "unjoined"
    PREPARING_REBALANCE = "preparing rebalance"
    COMPLETING_REBALANCE = "completing rebalance"
    STABLE = "stable"

    @property
    def has_not_joined_group(self) -> bool:
        """Whether there is no generation to send heartbeats for."""
        return self in (MemberState.UNJOINED, MemberState.PREPARING_REBALANCE)

    @property
    def is_rebalance_in_progress(self) -> bool:
        """Whether the group rebalances and this member takes part."""
        return self in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a group, and this member's identity in it.

    A member may have an id before it is in a generation (from 2.2 on the coordinator assigns it first).
    """

    generation_id: int = NO_GENERATION_ID
    member_id: str = NO_MEMBER_ID
    protocol_name: str | None = None

    @property
    def has_member_id(self) -> bool:
        """Whether the coordinator has assigned an id to this member."""
        return self.member_id != NO_MEMBER_ID

    @property
    def is_reset(self) -> bool:
        """Whether this member is in no generation; its id may still be valid."""
        return self.generation_id == NO_GENERATION_ID and self.protocol_name is None

    @property
    def is_lost(self) -> bool:
        """Whether other members own the partitions of this generation by now."""
        return self.generation_id == NO_GENERATION_ID or not self.has_member_id

    def __str__(self) -> str:
        return f"{self.generation_id} as {self.member_id or '-'} by {self.protocol_name or '-'}"


NO_GENERATION = Generation()
