"""Brokers of 0.9, which must not be asked what they speak.

A broker of 0.9.0.x throws on ApiVersions in the thread that serves its connections ("Processor got uncaught exception
… ArrayIndexOutOfBoundsException: 18", seen on 0.9.0.1), outside of what that thread catches for one connection.  So it
loses whatever *other* clients' connections brought in the same turn, and goes on listening to none of those whose
answer went out in it: innocent members and producers then hang until their own time-outs.  0.8 closes the one
connection, 0.10.0 and later answer.

What is known of a broker is therefore kept for the whole process: from its registration in ZooKeeper, from the setting
``api.version.request=false``, or because it passed over the question once.  It is forgotten after a while, because the
broker may have been upgraded; meanwhile it is spoken to as one of 0.9, which every release before 4.0 understands.
"""

from __future__ import annotations

import threading

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock

ENTRY_TTL_MS = 10 * 60_000
"""How long a broker is taken for one of 0.9 without another sign of it."""

REGISTRATION_VERSION_0_9 = 2
"""The version of what 0.9 writes below ``/brokers/ids``; 0.10.0 and later write 3 and more, unless they are told to be
as 0.9 (``inter.broker.protocol.version``)."""

DENY_LIST_ENTRIES_MAX = 4_096


class ApiVersionsDenyList:
    """Addresses of brokers that are not to be asked; for any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._until_ms: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def add(self, host: str, port: int) -> None:
        """Do not ask this one for ``ENTRY_TTL_MS`` from now on."""
        with self._lock:
            self._until_ms.pop((host, port), None)
            self._until_ms[host, port] = self._clock.now_ms() + ENTRY_TTL_MS
            while len(self._until_ms) > DENY_LIST_ENTRIES_MAX:
                del self._until_ms[next(iter(self._until_ms))]

    def remove(self, host: str, port: int) -> None:
        """It may be asked."""
        with self._lock:
            self._until_ms.pop((host, port), None)

    def update_from_registration(self, host: str, port: int, version: int) -> None:
        """What a broker's registration in ZooKeeper says (its ``version``)."""
        if version == REGISTRATION_VERSION_0_9:
            self.add(host, port)
        else:
            self.remove(host, port)

    def contains(self, host: str, port: int) -> bool:
        """Whether this one must not be asked now."""
        with self._lock:
            return self._until_ms.get((host, port), 0) > self._clock.now_ms()

    def clear(self) -> None:
        """Nothing is known of any."""
        with self._lock:
            self._until_ms.clear()


API_VERSIONS_DENY_LIST = ApiVersionsDenyList()
"""Of this process."""
