"""How long a member may be silent: Kafka's ``DelayedHeartbeat``.  Pure.

a member            its session timeout, from its last sign of life; a parked request is one as long as it is parked
a new member        five minutes, until its first rebalance is done: it cannot heartbeat yet (since 2.2)
a pending member    (it was sent away with an id, error 79) its session timeout, to come back with it
"""

from __future__ import annotations

from bridge.coordinator.events import TimerKey

NEW_MEMBER_JOIN_TIMEOUT_MS = 5 * 60 * 1000


def member_key(group_id: str, member_id: str) -> TimerKey:
    """Kafka's ``MemberKey``."""
    return ("heartbeat", group_id, member_id)
