"""How long members that have joined may take to send SyncGroup: Kafka's ``DelayedSync`` (since 2.8.1).  Pure.

It starts when JoinGroup is answered, lasts the greatest rebalance timeout of a member, and ends when all have sent it.
A member that has not sent it by then is removed, and the group rebalances.  The next rebalance also ends it.
"""

from __future__ import annotations

from bridge.coordinator.events import TimerKey


def sync_key(group_id: str) -> TimerKey:
    """Kafka's ``GroupSyncKey``."""
    return ("sync", group_id)
