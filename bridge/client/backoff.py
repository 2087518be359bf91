"""Growing pauses with jitter (KIP-580, in all of Kafka's clients since 3.7).  Pure: the jitter's source is injected."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

EXP_BASE = 2
JITTER = 0.2
"""A pause is up to this part longer or shorter, so that members that failed together do not come back together."""

DOUBLINGS_MAX = 31

Uniform: TypeAlias = Callable[[], float]
"""Gives a number from 0 up to, and without, 1; ``random.random`` of a shell, 0.5 where there shall be no jitter."""


class ExponentialBackoff:
    """``backoff(attempts)`` gives the pause in ms after so many failures in a row."""

    def __init__(self, initial_ms: int, max_ms: int, uniform: Uniform) -> None:
        self._initial_ms = initial_ms
        self._max_ms = max(initial_ms, max_ms)
        self._uniform = uniform

    def backoff(self, attempts: int) -> int:
        """``attempts``: how many failures there were before this one."""
        plain: int = min(self._initial_ms * EXP_BASE ** min(attempts, DOUBLINGS_MAX), self._max_ms)
        return min(round(plain * (1 + JITTER * (2 * self._uniform() - 1))), self._max_ms)
