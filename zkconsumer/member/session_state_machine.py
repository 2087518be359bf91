"""The ZooKeeper session, and the lease that it gives.

                  +------------- SessionConnected (same id) -----------+
                  v                                                    |
  CONNECTING -> CONNECTED -- SessionSuspended --> SUSPENDED -----------+
      ^           |  ^ |                            |
      |           |  | +-- SessionAnswered          | SessionLost
      |           |  |     (the lease moves)        v
      |           +--|------ SessionLost -------> LOST -- SessionConnected (new id) --> CONNECTED
      +- (start)                                     any state -- SessionClosed --> CLOSED

Connected-or-not is a dimension of its own: no other machine has such states.

The lease is the time until which this member may hand out records.  It ends two thirds of the *negotiated*
time-out after the **sending** of the latest answered request of this session.  It is counted from the sending
because the server counts its own time-out from the receiving, which cannot be earlier; so an answer that lay in
the socket buffer while the process was stopped renews nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.member.commands import SetLease
from zkconsumer.member.events import SessionAnswered, SessionClosed, SessionConnected, SessionLost, SessionSuspended
from zkconsumer.member.state_machine import StateMachine, TransitionTable, stays_in_state, transitions_to

LEASE_NUMERATOR, LEASE_DENOMINATOR = 2, 3
PROBES_PER_TIMEOUT = 6
NO_LEASE_MS = 0


def lease_end_ms(sent_at_ms: int, timeout_ms: int) -> int:
    """Until when records may be handed out, given when the latest answered request was sent."""
    return sent_at_ms + timeout_ms * LEASE_NUMERATOR // LEASE_DENOMINATOR


class SessionState(Enum):
    """Where the connection to ZooKeeper stands."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A session: its id, and its negotiated time-out."""

    session_id: int
    timeout_ms: int


class SessionStateMachine(StateMachine):
    """Which session lives, and until when its lease runs."""

    INITIAL = SessionState.CONNECTING

    def __init__(self) -> None:
        super().__init__()
        self.live: LiveSession | None = None
        self.lease_until_ms = NO_LEASE_MS

    @property
    def is_connected(self) -> bool:
        """Whether requests can be sent now."""
        return self.state is SessionState.CONNECTED

    @property
    def probe_interval_ms(self) -> int:
        """How often to ask ZooKeeper for a sign of life: a sixth of the time-out."""
        return max(1, self.live.timeout_ms // PROBES_PER_TIMEOUT) if self.live else 1000

    @transitions_to(SessionState.CONNECTED)
    def _connected(self, event: SessionConnected) -> tuple[SessionState, list[Any]]:
        if self.live is None or self.live.session_id != event.session_id:
            self.lease_until_ms = NO_LEASE_MS
        self.live = LiveSession(event.session_id, event.timeout_ms)
        return SessionState.CONNECTED, [SetLease(self.lease_until_ms)]

    @transitions_to(SessionState.SUSPENDED)
    def _suspended(self, _: SessionSuspended) -> tuple[SessionState, list[Any]]:
        return SessionState.SUSPENDED, []

    @stays_in_state
    def _answered(self, event: SessionAnswered) -> tuple[SessionState, list[Any]]:
        assert self.live is not None, "an answer needs a session that asked"
        if event.session_id == self.live.session_id:
            self.lease_until_ms = max(self.lease_until_ms, lease_end_ms(event.sent_at_ms, self.live.timeout_ms))
        return self.state, [SetLease(self.lease_until_ms)]

    @stays_in_state
    def _ignored(self, _: object) -> tuple[SessionState, list[Any]]:
        return self.state, []

    @transitions_to(SessionState.LOST)
    def _lost(self, _: SessionLost) -> tuple[SessionState, list[Any]]:
        self.live = None
        self.lease_until_ms = NO_LEASE_MS
        return SessionState.LOST, [SetLease(NO_LEASE_MS)]

    @transitions_to(SessionState.CLOSED)
    def _closed(self, _: SessionClosed) -> tuple[SessionState, list[Any]]:
        self.live = None
        self.lease_until_ms = NO_LEASE_MS
        return SessionState.CLOSED, [SetLease(NO_LEASE_MS)]

    TRANSITIONS: ClassVar[TransitionTable] = {
        (SessionState.CONNECTING, SessionConnected): _connected,
        (SessionState.CONNECTING, SessionClosed): _closed,
        (SessionState.CONNECTED, SessionConnected): _connected,
        (SessionState.CONNECTED, SessionAnswered): _answered,
        (SessionState.CONNECTED, SessionSuspended): _suspended,
        (SessionState.CONNECTED, SessionLost): _lost,
        (SessionState.CONNECTED, SessionClosed): _closed,
        (SessionState.SUSPENDED, SessionConnected): _connected,
        (SessionState.SUSPENDED, SessionAnswered): _answered,
        (SessionState.SUSPENDED, SessionSuspended): _suspended,
        (SessionState.SUSPENDED, SessionLost): _lost,
        (SessionState.SUSPENDED, SessionClosed): _closed,
        (SessionState.LOST, SessionConnected): _connected,
        (SessionState.LOST, SessionAnswered): _ignored,
        (SessionState.LOST, SessionSuspended): _ignored,
        (SessionState.LOST, SessionClosed): _closed,
        (SessionState.CLOSED, SessionConnected): _ignored,
        (SessionState.CLOSED, SessionAnswered): _ignored,
        (SessionState.CLOSED, SessionSuspended): _ignored,
        (SessionState.CLOSED, SessionClosed): _ignored,
    }
