"""How long members that have joined may take to send SyncGroup: Kafka's ``DelayedSync`` (since 2.8.1).  Pure.

It starts when JoinGroup is answered and ends when all have sent it; who has not by then is removed, and the group
rebalances.  It belongs to one generation.
"""

from __future__ import annotations

from dataclasses import dataclass

from bridge.coordinator.events import TimerKey


def sync_key(group_id: str) -> TimerKey:
    """Kafka's ``GroupSyncKey``."""
    return ("sync", group_id)


@dataclass(frozen=True, slots=True)
class DelayedSync:
    """``delay_ms``: the greatest rebalance timeout of a member."""

    generation_id: int
    delay_ms: int
