"""The sessions of browsers that sent the token, and the limit on wrong tokens.  Pure: the caller gives time and ids.

A browser exchanges the token once for the id of a session, which it gets as a cookie.  The token itself is in no cookie
and no address, so neither a log nor the history of the browser contains it.
"""

from __future__ import annotations

import hashlib
from collections import OrderedDict, deque

from bridge.web.request_checks import equals_token

SESSION_MS = 12 * 3_600_000
"""How long a session is valid: a working day."""

SESSIONS_MAX = 1_000
"""With more sessions the oldest one ends."""

WRONG_TOKENS_MAX = 10
WRONG_TOKENS_WINDOW_MS = 60_000
"""After this number of wrong tokens within the window, no token of that client is checked until it has passed."""

CLIENTS_MAX = 1_000
"""Clients whose wrong tokens are remembered; with more, the oldest is forgotten."""


class WebSessions:
    """The sessions of one server.  Not thread-safe: only the event loop uses it."""

    def __init__(self, token: str) -> None:
        self._token = token
        # Digest of the id -> end.  Digests: a lookup by the id itself would compare byte by byte.
        self._ends: OrderedDict[bytes, int] = OrderedDict()
        # Client -> times of its wrong tokens.  A limit for all clients together would let one lock out the others.
        self._wrong_ms: OrderedDict[str, deque[int]] = OrderedDict()

    def is_blocked(self, client: str, now_ms: int) -> bool:
        """Whether the client (its address) sent too many wrong tokens in the last minute."""
        times = self._wrong_ms.get(client)
        return times is not None and len(times) == WRONG_TOKENS_MAX and now_ms - times[0] < WRONG_TOKENS_WINDOW_MS

    def is_token(self, token: str, client: str, now_ms: int) -> bool:
        """Whether it is the token.  A wrong one is counted; while ``is_blocked`` also the right one is refused."""
        if self.is_blocked(client, now_ms):
            return False
        if equals_token(token, self._token):
            return True
        self._wrong_ms.setdefault(client, deque(maxlen=WRONG_TOKENS_MAX)).append(now_ms)
        self._wrong_ms.move_to_end(client)
        while len(self._wrong_ms) > CLIENTS_MAX:
            self._wrong_ms.popitem(last=False)
        return False

    def exchange(self, token: str, new_id: str, client: str, now_ms: int) -> bool:
        """Begin the session ``new_id``, if this is the token."""
        if not self.is_token(token, client, now_ms):
            return False
        self._ends[_digest(new_id)] = now_ms + SESSION_MS
        while len(self._ends) > SESSIONS_MAX:
            self._ends.popitem(last=False)
        return True

    def is_valid(self, session_id: str, now_ms: int) -> bool:
        """Whether the session exists and has not ended."""
        key = _digest(session_id)
        end_ms = self._ends.get(key)
        if end_ms is not None and now_ms >= end_ms:
            del self._ends[key]
            return False
        return end_ms is not None


def _digest(session_id: str) -> bytes:
    return hashlib.sha256(session_id.encode("utf-8", "surrogatepass")).digest()
