"""The time-outs of members: Kafka's ``DelayedHeartbeat``.  Pure.

a member            its session timeout, from its last request; a parked request keeps it alive while it is parked
a new member        five minutes, until its first rebalance is done: it cannot heartbeat yet (since 2.2)
a pending member    (it was answered with an id, error 79) its session timeout, to join with that id
"""

from __future__ import annotations

from bridge.coordinator.events import TimerKey

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


def member_key(group_id: str, member_id: str) -> TimerKey:
    """Kafka's ``MemberKey``."""
    return ("heartbeat", group_id, member_id)
