"""The five states of a group, and the changes between them: Kafka's ``GroupState``.  Pure.

                 all members left
  .----------------------------------------.
  v              a member joins            |
EMPTY ----------------------------> PREPARING_REBALANCE <------------------------.
  |                                        | all joined, or time up              | a member joins,
  |                                        v                                     | leaves, is lost
  |                                COMPLETING_REBALANCE ----- a new member -------+
  |                                        | the leader's assignment is written  |
  |                                        v                                     |
  '---> DEAD <--- any                    STABLE ---------------------------------'
"""

from __future__ import annotations

from enum import Enum
from types import MappingProxyType


class GroupState(Enum):
    """The five states, by their names in DescribeGroups (since 1.0)."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD = GroupState

VALID_PREVIOUS_STATES: MappingProxyType[GroupState, frozenset[GroupState]] = MappingProxyType(
    {
        EMPTY: frozenset({PREPARING_REBALANCE}),
        PREPARING_REBALANCE: frozenset({STABLE, COMPLETING_REBALANCE, EMPTY}),
        COMPLETING_REBALANCE: frozenset({PREPARING_REBALANCE}),
        STABLE: frozenset({COMPLETING_REBALANCE}),
        DEAD: frozenset(GroupState),
    }
)
"""State → those from which it is reached."""
