"""Brokers of 0.9, to which ApiVersions must not be sent.

A broker of 0.9.0.x throws on ApiVersions in the thread that serves its connections ("Processor got uncaught exception
… ArrayIndexOutOfBoundsException: 18", seen on 0.9.0.1), outside of the code that catches errors of one connection.  So
it loses the requests that *other* clients' connections sent in the same poll, and stops reading from the connections
whose responses were sent in it.  Unrelated members and producers then hang until their own timeouts.  0.8 closes only
the one connection; 0.10.0 and later answer.

So the process keeps what it knows of such a broker: from its registration in ZooKeeper, from the setting
``api.version.request=false``, or because it ignored the request once.  The entry expires, because the broker may have
been upgraded.  Meanwhile requests use the versions of 0.9, which every release before 4.0 supports.
"""

from __future__ import annotations

import threading

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock

ENTRY_TTL_MS = 10 * 60_000
"""How long a broker counts as one of 0.9 without another sign of it."""

REGISTRATION_VERSION_0_9 = 2
"""The version of the registration that 0.9 writes below ``/brokers/ids``; 0.10.0 and later write 3 or more, unless they
are configured to act as 0.9 (``inter.broker.protocol.version``)."""

DENY_LIST_ENTRIES_MAX = 4_096


class ApiVersionsDenyList:
    """Addresses of brokers to which ApiVersions must not be sent; for any thread."""

    def __init__(self, clock: Clock = SYSTEM_CLOCK) -> None:
        self._clock = clock
        self._until_ms: dict[tuple[str, int], int] = {}
        self._lock = threading.Lock()

    def add(self, host: str, port: int) -> None:
        """Do not send ApiVersions to this broker for ``ENTRY_TTL_MS`` from now on."""
        with self._lock:
            self._until_ms.pop((host, port), None)
            self._until_ms[host, port] = self._clock.now_ms() + ENTRY_TTL_MS
            while len(self._until_ms) > DENY_LIST_ENTRIES_MAX:
                del self._until_ms[next(iter(self._until_ms))]

    def remove(self, host: str, port: int) -> None:
        """Allow ApiVersions for this broker."""
        with self._lock:
            self._until_ms.pop((host, port), None)

    def update_from_registration(self, host: str, port: int, version: int) -> None:
        """Add or remove a broker by the ``version`` of its registration in ZooKeeper."""
        if version == REGISTRATION_VERSION_0_9:
            self.add(host, port)
        else:
            self.remove(host, port)

    def contains(self, host: str, port: int) -> bool:
        """Whether ApiVersions must not be sent to this broker now."""
        with self._lock:
            return self._until_ms.get((host, port), 0) > self._clock.now_ms()

    def clear(self) -> None:
        """Remove all entries."""
        with self._lock:
            self._until_ms.clear()


API_VERSIONS_DENY_LIST = ApiVersionsDenyList()
"""The list of this process."""
