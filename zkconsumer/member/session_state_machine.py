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
no stream delivers a record of the ended one (``the_session_expires_in_each_state_of_the_membership.txt``).

The probes (``PROBES_PER_TIMEOUT``) exist because only requests of our own have a known time of sending: kazoo's pings
have no hook, so they do not count.  Three in a row can stay without an answer before the lease of a quiet member
expires.  A member whose probes get no answer stops delivering at two thirds of the timeout; the server ends the session
at the earliest when the whole timeout has passed.  A ZooKeeper client gives up a silent server after the same two
thirds and connects to another one, so a member with a second server can keep its session.

A pause of the process (SIGSTOP, a suspended virtual machine) needs no event: the clock of the lease runs on, and each
stream compares it before each record.  After the pause nothing is delivered until an answer to a request that was sent
after it (``defect_05_no_record_is_delivered_after_the_lease_has_expired.txt``).  The Scala consumer delivers on between
the disconnect and the report of the expiry, while the next owner reads the same records.

What waits for this machine: ``MemberStateMachine`` sends no request outside ``CONNECTED``, and every command that
writes has the session id in which it was decided.  ``SUSPENDED`` to ``CONNECTED`` with the same id keeps all ephemeral
znodes and no watch.  ``LOST`` ends every other machine of the member.  ``CLOSED`` is final: reports that the client
still makes have no effect (``events_after_the_close_have_no_effect.txt``).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from zkconsumer.member.commands import SetLease
from zkconsumer.member.events import SessionAnswered, SessionClosed, SessionConnected, SessionLost, SessionSuspended
from zkconsumer.member.state_machine import StateMachine, TransitionTable, go_to, rows_for, transitions_to

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


STATES_WITH_SESSION = (SessionState.CONNECTED, SessionState.SUSPENDED)


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
        """The session; not None exactly in ``STATES_WITH_SESSION``.  A suspended one may have expired: the server ends
        it, and the client learns that when it connects again."""
        self.lease_until_ms = NO_LEASE_MS
        """The end of the lease, on the monotonic clock; never decreases during a session, and 0 exactly until its first
        answer.  It may have passed: then nothing is delivered, and the owner nodes still exist."""

    def handle(self, event: object) -> list[Any]:
        """Process one event, see the base class; a lease exists only with a session."""
        commands = super().handle(event)
        assert (self.live is not None) == (self.state in STATES_WITH_SESSION), "exactly these have a session"
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
        """Continue the session with its lease, or start a new one without; the server may grant another timeout.

        ``MemberStateMachine`` handles the loss of the old session before it passes a new id.
        """
        if self.live is None or self.live.session_id != event.session_id:
            self.lease_until_ms = NO_LEASE_MS
        self.live = LiveSession(event.session_id, event.timeout_ms)
        return SessionState.CONNECTED, [SetLease(self.lease_until_ms)]

    @transitions_to()
    def _answered(self, event: SessionAnswered) -> tuple[SessionState, list[Any]]:
        """Extend the lease from the time of sending; answers may arrive in another order than they were sent.

        A suspended session takes an answer, too: it was received before the connection broke.
        """
        assert self.live is not None, "an answer belongs to a session"
        if event.session_id == self.live.session_id:
            self.lease_until_ms = max(self.lease_until_ms, lease_end_ms(event.sent_at_ms, self.live.timeout_ms))
        return self.state, [SetLease(self.lease_until_ms)]

    @transitions_to()
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
        **rows_for(SessionState, SessionConnected, _connected),
        **rows_for(STATES_WITH_SESSION, SessionAnswered, _answered),
        **rows_for(STATES_WITH_SESSION, SessionSuspended, go_to(SessionState.SUSPENDED)),
        **rows_for(STATES_WITH_SESSION, SessionLost, _lost),
        **rows_for(SessionState, SessionClosed, _closed),
        # The client may still report an answer or a broken connection when the session has ended.
        **rows_for((SessionState.LOST, SessionState.CLOSED), SessionAnswered, _ignored),
        **rows_for((SessionState.LOST, SessionState.CLOSED), SessionSuspended, _ignored),
        (SessionState.CLOSED, SessionConnected): _ignored,
        (SessionState.CLOSED, SessionClosed): _ignored,
    }
