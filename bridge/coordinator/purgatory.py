"""Stores deadlines: Kafka's ``DelayedOperationPurgatory``, on top of external timers.  Pure.

A deadline has a key, and each key has one deadline.  A later deadline needs no new timer: the old timer fires early and
is set again for the rest.  A group of 5 members that heartbeat every 3 seconds with a session of 45 seconds therefore
sets one timer a member in 45 seconds, not fifteen.

    watch(key, 45)   SetGroupTimer(key, 45)       heartbeat in time: no command
    watch(key, 48)                                  wanted 48, set 45
    fired(key, 45)   SetGroupTimer(key, 48)       not due
    fired(key, 48)                                due
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.coordinator.commands import CancelGroupTimer, Command, SetGroupTimer
from bridge.coordinator.events import GroupTimerFired, TimerKey


class DelayedOperationPurgatory:
    """Deadlines by key; ``out`` collects commands."""

    __slots__ = ("_set", "_wanted", "out")

    def __init__(self) -> None:
        self.out: list[Command] = []
        self._wanted: dict[TimerKey, int] = {}
        self._set: dict[TimerKey, int] = {}

    def watch(self, key: TimerKey, deadline_ms: int) -> None:
        """Set a deadline; it replaces the earlier one of the key."""
        self._wanted[key] = deadline_ms
        if self._set.get(key, deadline_ms + 1) > deadline_ms:
            self._set[key] = deadline_ms
            self.out.append(SetGroupTimer(key, deadline_ms))

    def cancel(self, key: TimerKey) -> None:
        """Remove a deadline; no effect without one."""
        self._wanted.pop(key, None)
        if self._set.pop(key, None) is not None:
            self.out.append(CancelGroupTimer(key))

    def is_watched(self, key: TimerKey) -> bool:
        """Whether the key has a deadline."""
        return key in self._wanted

    def deadline_ms(self, key: TimerKey) -> int:
        """The deadline of a key; it must have one."""
        return self._wanted[key]

    def keys(self) -> Iterator[TimerKey]:
        """All keys with a deadline."""
        return iter(self._wanted)

    def is_due(self, fired: GroupTimerFired) -> bool:
        """Whether the deadline of a fired timer is over; if so, it is removed.

        The event of a timer that was cancelled, or set again before it fired, is ignored.
        """
        if self._set.get(fired.key) != fired.deadline_ms:
            return False
        wanted = self._wanted[fired.key]
        if wanted > fired.deadline_ms:
            self._set[fired.key] = wanted
            self.out.append(SetGroupTimer(fired.key, wanted))
            return False
        del self._set[fired.key], self._wanted[fired.key]
        return True
