r"""Where a member stands in its group.  Pure.

    UNJOINED --JoinGroup sent--> PREPARING_REBALANCE --answered--> COMPLETING_REBALANCE --SyncGroup answered--> STABLE
       ^                              ^     no heartbeats                heartbeats                               |
       '------ left, or dropped ------+---------------------------- the group forms anew ------------------------'

These are the four states of Kafka's clients since 2.7; before, the two in the middle were one, ``REBALANCING``.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

NO_MEMBER_ID = ""
NO_GENERATION_ID = -1


class MemberState(Enum):
    """What the coordinator and this member have said to each other."""

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
        """Whether the group forms anew and this member takes part in it."""
        return self in (MemberState.PREPARING_REBALANCE, MemberState.COMPLETING_REBALANCE)


@dataclass(frozen=True, slots=True)
class Generation:
    """One forming of a group, and who this member is in it.

    A member may have an id before it is in a generation (from 2.2 on the coordinator gives it first).
    """

    generation_id: int = NO_GENERATION_ID
    member_id: str = NO_MEMBER_ID
    protocol_name: str | None = None

    @property
    def has_member_id(self) -> bool:
        """Whether the coordinator knows this member by an id."""
        return self.member_id != NO_MEMBER_ID

    @property
    def is_reset(self) -> bool:
        """Whether this member is in no generation; its id may still be good."""
        return self.generation_id == NO_GENERATION_ID and self.protocol_name is None

    @property
    def is_lost(self) -> bool:
        """Whether what was owned in it belongs to others by now."""
        return self.generation_id == NO_GENERATION_ID or not self.has_member_id

    def __str__(self) -> str:
        return f"{self.generation_id} as {self.member_id or '-'} by {self.protocol_name or '-'}"


NO_GENERATION = Generation()
