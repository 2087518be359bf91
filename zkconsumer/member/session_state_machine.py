"""The ZooKeeper session, and the lease that follows from it.

                  +------------- SessionConnected (same id) -----------+
                  v                                                    |
  CONNECTING -> CONNECTED -- SessionSuspended --> SUSPENDED -----------+
      ^           |  ^ |                            |
      |           |  | +-- SessionAnswered          | SessionLost
      |           |  |     (renews the lease)       v
      |           +--|------ SessionLost -------> LOST -- SessionConnected (new id) --> CONNECTED
      +- (start)                                     any state -- SessionClosed --> CLOSED

Only this machine has states for the connection; the other machines do not repeat them.

The lease is the time until which this member may deliver records.  It ends two thirds of the *negotiated* session
timeout after the member **sent** the latest answered request of this session.  It counts from the time of sending
because the server counts its timeout from the time of receiving, which cannot be earlier.  So an answer that waited
in the socket buffer while the process was paused does not extend the lease beyond the session.

A suspended session keeps its lease until it expires: the owner nodes exist as long as the session, and no other member
can acquire them.  A new session starts without a lease: ``SetLease(0)`` precedes every command of the new session, so
no stream delivers a record of the ended one (``the_session_expires_wherever_a_member_stands.txt``).

The probes (``PROBES_PER_TIMEOUT``) exist because only requests of our own have a known time of sending.  Three in a
row can stay without an answer before the lease of a quiet member expires.  A member whose probes get no answer stops
delivering at two thirds of the timeout; the server ends the session at the earliest when the whole timeout has
passed.
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
    """The end of the lease, in ms of the same clock: until then records may be delivered.

    ``sent_at_ms``: when the latest answered request was sent; ``timeout_ms``: the negotiated session timeout.
    """
    return sent_at_ms + timeout_ms * LEASE_NUMERATOR // LEASE_DENOMINATOR


class SessionState(Enum):
    """The state of the session and its connection."""

    CONNECTING = "connecting"
    CONNECTED = "connected"
    SUSPENDED = "suspended"
    LOST = "lost"
    CLOSED = "closed"


@dataclass(frozen=True, slots=True)
class LiveSession:
    """A session: its id, and its negotiated timeout."""

    session_id: int
    timeout_ms: int


class SessionStateMachine(StateMachine):
    """The live session, and the end of its lease."""

    INITIAL = SessionState.CONNECTING

    def __init__(self) -> None:
        super().__init__()
        self.live: LiveSession | None = None
        """The session; not None exactly in ``CONNECTED`` and ``SUSPENDED``."""
        self.lease_until_ms = NO_LEASE_MS
        """The end of the lease; never decreases during a session, and 0 exactly until its first answer."""

    def handle(self, event: object) -> list[Any]:
        """Process one event, see the base class; a lease exists only with a session."""
        commands = super().handle(event)
        assert (self.live is not None) == (self.state in (SessionState.CONNECTED, SessionState.SUSPENDED))
        assert self.live is not None or self.lease_until_ms == NO_LEASE_MS, "a lease belongs to a session"
        return commands

    @property
    def is_connected(self) -> bool:
        """Whether requests can be sent now."""
        return self.state is SessionState.CONNECTED

    @property
    def probe_interval_ms(self) -> int:
        """The interval of probe requests to ZooKeeper: a sixth of the session timeout; 1000 ms without a session."""
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
        assert self.live is not None, "an answer belongs to a session"
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
