"""``ExponentialBackoff``: pauses that grow, with jitter, as ``ExponentialBackoff`` of Kafka.  Pure.

Kafka 3.0 uses it for reconnects and for the set-up time-out of connections, releases from 3.7 on for every retry
(KIP-580).  The random source is passed in.  Difference from 3.0, as in 3.7: the jitter never leads above the maximum.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

MULTIPLIER = 2
JITTER = 0.2
"""The maximum relative change of a pause, so that members that failed together do not retry together."""

ATTEMPTS_MAX = 31
"""After so many failures a pause grows no more, whatever the maximum."""

Uniform: TypeAlias = Callable[[], float]
"""Returns a number in [0, 1); ``random.random`` in production, 0.5 for no jitter."""


class ExponentialBackoff:
    """``backoff(attempts)`` returns the pause in ms after so many failures in a row.

    ``initial_ms * multiplier ** attempts``, at most ``max_ms``, changed by at most the fraction ``jitter``.  If
    ``max_ms`` is not above ``initial_ms``, every pause is ``initial_ms``, without jitter.
    """

    def __init__(
        self, initial_ms: int, max_ms: int, uniform: Uniform, *, multiplier: int = MULTIPLIER, jitter: float = JITTER
    ) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max_ms
        self._uniform = uniform
        self._multiplier = multiplier
        self._jitter = jitter

    def backoff(self, attempts: int) -> int:
        """``attempts``: the number of failures before this one."""
        if self._max_ms <= self._initial_ms:
            return self._initial_ms
        plain: int = min(self._initial_ms * self._multiplier ** min(attempts, ATTEMPTS_MAX), self._max_ms)
        return min(round(plain * (1 + self._jitter * (2 * self._uniform() - 1))), self._max_ms)
