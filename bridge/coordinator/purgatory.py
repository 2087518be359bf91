"""Where deadlines wait: Kafka's ``DelayedOperationPurgatory``, over timers that are somebody else's.  Pure.

A deadline has a name (its key), and there is one of a name.  Putting a deadline off costs no timer: the one that is
set fires early and is set anew for what is left.  A group of 5 members that heartbeat every 3 seconds with a session of
45 seconds therefore sets one timer a member in 45 seconds, not fifteen.

    watch(key, 45)   SetTimer(key, 45)            heartbeat in time: nothing is said to the clock
    watch(key, 48)                                  wanted 48, set 45
    fired(key, 45)   SetTimer(key, 48)            not due
    fired(key, 48)                                due
"""

from __future__ import annotations

from collections.abc import Iterator

from bridge.coordinator.commands import CancelGroupTimer, Command, SetGroupTimer
from bridge.coordinator.events import GroupTimerFired, TimerKey


class DelayedOperationPurgatory:
    """Named deadlines; ``out`` is where commands go."""

    __slots__ = ("_set", "_wanted", "out")

    def __init__(self) -> None:
        self.out: list[Command] = []
        self._wanted: dict[TimerKey, int] = {}
        self._set: dict[TimerKey, int] = {}

    def watch(self, key: TimerKey, deadline_ms: int) -> None:
        """Wait for this; what was waited for under the same name is not waited for any more."""
        self._wanted[key] = deadline_ms
        if self._set.get(key, deadline_ms + 1) > deadline_ms:
            self._set[key] = deadline_ms
            self.out.append(SetGroupTimer(key, deadline_ms))

    def cancel(self, key: TimerKey) -> None:
        """Nobody waits for this; no harm if nobody did."""
        self._wanted.pop(key, None)
        if self._set.pop(key, None) is not None:
            self.out.append(CancelGroupTimer(key))

    def is_watched(self, key: TimerKey) -> bool:
        """Whether somebody waits for this."""
        return key in self._wanted

    def deadline_ms(self, key: TimerKey) -> int:
        """What is waited for; the name must be watched."""
        return self._wanted[key]

    def keys(self) -> Iterator[TimerKey]:
        """All names."""
        return iter(self._wanted)

    def is_due(self, fired: GroupTimerFired) -> bool:
        """Whether a timer that fired means anything; if so, nobody waits for it any more.

        One that was cancelled, or set anew before it came, is passed over.
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
