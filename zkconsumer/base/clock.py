"""The clocks.  The only module of the package that imports ``time``.

``now_ms`` counts while the machine sleeps (``CLOCK_BOOTTIME``) where the system has such a clock: the lease of
``core.session`` must run out during a suspend, or a woken process would hand out what belongs to someone else.
"""

from __future__ import annotations

import time
from typing import Protocol

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """The clock that ``runtime`` uses; ``zkconsumer.testing`` has one that tests advance."""

    def now_ms(self) -> int:
        """Milliseconds that only grow, from an arbitrary start."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for what other programs read (registration timestamps)."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.clock_gettime_ns(_CLOCK) // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


SYSTEM_CLOCK = SystemClock()
