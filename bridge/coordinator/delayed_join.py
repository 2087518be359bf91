"""How long a rebalance waits for its members: Kafka's ``DelayedJoin`` and ``InitialDelayedJoin``.  Pure.

DelayedJoin         until all have joined, or the greatest rebalance timeout of a member is over
InitialDelayedJoin  in an empty group: always a delay, and as long as new members come another, all of them
                    together no longer than that timeout (KIP-134, since 0.11)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from bridge.coordinator.events import TimerKey


def join_key(group_id: str) -> TimerKey:
    """Kafka's ``GroupJoinKey``."""
    return ("join", group_id)


@dataclass(frozen=True, slots=True)
class DelayedJoin:
    """``delay_ms``: the longest wait."""

    delay_ms: int


@dataclass(frozen=True, slots=True)
class InitialDelayedJoin:
    """``delay_ms``: this wait; ``remaining_ms``: what may come after it; ``step_ms``: the configured delay."""

    step_ms: int
    delay_ms: int
    remaining_ms: int

    @classmethod
    def first(cls, step_ms: int, rebalance_timeout_ms: int) -> InitialDelayedJoin:
        """The first wait of an empty group."""
        return cls(step_ms, step_ms, max(rebalance_timeout_ms - step_ms, 0))

    def extended(self) -> InitialDelayedJoin | None:
        """The next wait, after one in which a new member has joined; None: the time is over."""
        if self.remaining_ms == 0:
            return None
        delay_ms = min(self.step_ms, self.remaining_ms)
        return InitialDelayedJoin(self.step_ms, delay_ms, max(self.remaining_ms - delay_ms, 0))


AnyDelayedJoin: TypeAlias = DelayedJoin | InitialDelayedJoin
