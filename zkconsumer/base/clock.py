"""The clocks.  The only module of the package that imports ``time``.

``now_ms`` also counts while the machine is suspended, if the system has such a clock (``CLOCK_BOOTTIME``).  So the
lease of a member (``member.session_state_machine``) expires during a suspend; otherwise the resumed process would
deliver records of partitions that another member owns.
"""

from __future__ import annotations

import time
from typing import Protocol

_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Clock(Protocol):
    """The clock that ``runtime`` uses; ``zkconsumer.testing`` has one that tests advance."""

    def now_ms(self) -> int:
        """Milliseconds since an arbitrary start; they never decrease."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970, for data that other programs read (registration timestamps)."""


class SystemClock:
    """The machine's clocks."""

    def now_ms(self) -> int:
        return time.clock_gettime_ns(_CLOCK) // 1_000_000

    def wall_ms(self) -> int:
        return time.time_ns() // 1_000_000


def thread_cpu_ms() -> int:
    """Milliseconds of CPU that the calling thread has used."""
    return time.thread_time_ns() // 1_000_000


SYSTEM_CLOCK = SystemClock()
