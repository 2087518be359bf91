"""Exponential backoff with jitter (KIP-580, in all of Kafka's clients since 3.7).  Pure: its random source is
injected."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

EXP_BASE = 2
JITTER = 0.2
"""The maximum relative change of a pause, so that members that failed together do not retry together."""

DOUBLINGS_MAX = 31

Uniform: TypeAlias = Callable[[], float]
"""Returns a number in [0, 1); ``random.random`` in production, 0.5 for no jitter."""


class ExponentialBackoff:
    """``backoff(attempts)`` returns the pause in ms after so many failures in a row."""

    def __init__(self, initial_ms: int, max_ms: int, uniform: Uniform) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)
        self._uniform = uniform

    def backoff(self, attempts: int) -> int:
        """``attempts``: the number of failures before this one."""
        plain: int = min(self._initial_ms * EXP_BASE ** min(attempts, DOUBLINGS_MAX), self._max_ms)
        return min(round(plain * (1 + JITTER * (2 * self._uniform() - 1))), self._max_ms)
