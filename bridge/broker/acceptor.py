"""Accepts connections, and waits while the process has no file descriptor to spare.

    port readable --> accept --> ClientConnection
                        '-- no descriptor --> stop polling the port for ``ACCEPT_RETRY_S`` --> try again

asyncio's own server is not used: up to Python 3.13 it calls ``accept`` as often as the backlog is long after
``EMFILE`` (1,024 tracebacks a second), and starts as many timers.  Connected clients are still served; new ones
wait in the backlog of the port.

A part of the descriptors is reserved for files, so that connections cannot use up what the logs of the topics need.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
import socket
import ssl
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass

from bridge.broker.log.segment_files import OPEN_FILES_MAX

ACCEPT_RETRY_S = 1.0
"""How long a port is not polled after a connection could not be accepted."""

SHORTAGE_LOG_INTERVAL_S = 60.0
"""At most one line in the log in this time."""

SHORTAGE_OVER_AFTER_S = 10.0
"""After this time without a pause the shortage is over."""

ACCEPTS_PER_WAKEUP = 64
"""Connections that are accepted before existing ones are served again."""

_FILES_RESERVED = OPEN_FILES_MAX + 32
"""Descriptors for the segments of the logs, the catalogue, the ports and the event loop."""

_EXHAUSTED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})

_log = logging.getLogger(__name__)


def connections_max() -> int:
    """How many connections the soft limit of open files (``ulimit -n``) allows: at least half of it."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit == resource.RLIM_INFINITY:
        return 2**31
    return max(1, limit - min(_FILES_RESERVED, limit // 2))


class DescriptorShortageLogger:
    """Reports that connections cannot be accepted: once for each period, with the count, and once when it is over.

    For the broker's thread alone; all its ports share one.
    """

    def __init__(self) -> None:
        self._pauses = 0
        """Pauses since the shortage began; 0: there is none."""
        self._reported_s: float | None = None
        """When the last line was written; None: never."""
        self._paused_s = 0.0

    def record_pause(self, why: str, connections: int, now_s: float) -> None:
        """A port is not polled for ``ACCEPT_RETRY_S``; ``connections`` are open."""
        self._pauses += 1
        self._paused_s = now_s
        if self._reported_s is not None and now_s - self._reported_s < SHORTAGE_LOG_INTERVAL_S:
            return
        self._reported_s = now_s
        _log.error(
            "connections-not-accepted open_files_limit=%s connections=%d pauses=%d reason=%s: new clients wait until "
            "others close their connections; close some, or raise the limit (ulimit -n) and start the broker again",
            resource.getrlimit(resource.RLIMIT_NOFILE)[0], connections, self._pauses, why,
        )  # fmt: skip

    def check_recovered(self, now_s: float) -> None:
        """Call it about every second."""
        if self._pauses and now_s - self._paused_s >= SHORTAGE_OVER_AFTER_S:
            _log.warning("connections-accepted-again pauses=%d", self._pauses)
            self._pauses = 0


@dataclass(eq=False, repr=False)
class Acceptor:
    """Accepts at one port from ``start`` until ``close``.  For the broker's thread alone."""

    listener: socket.socket
    new_connection: Callable[[], asyncio.Protocol]
    open_connections: Callable[[], int]
    _: KW_ONLY
    shortage: DescriptorShortageLogger
    tls: ssl.SSLContext | None
    tls_handshake_s: float

    def __post_init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._connections_max = connections_max()
        self._retry: asyncio.TimerHandle | None = None
        """Set while the port is not polled."""
        self._starting_connections: set[asyncio.Task[None]] = set()
        """Accepted connections that are in their TLS handshake or have no protocol object yet."""

    def start(self) -> None:
        """Begin to accept, or continue after a pause."""
        self._retry = None
        self.listener.setblocking(False)
        self._loop.add_reader(self.listener, self._accept)

    def close(self) -> None:
        """Close the port; connections stay."""
        if self._retry is not None:
            self._retry.cancel()
        if self.listener.fileno() >= 0:
            self._loop.remove_reader(self.listener)
        self.listener.close()
        for task in self._starting_connections:
            task.cancel()

    def _accept(self) -> None:
        for _ in range(ACCEPTS_PER_WAKEUP):
            connections = self.open_connections() + len(self._starting_connections)
            if connections >= self._connections_max:
                self._pause("the rest of the limit is kept for files", connections)
                return
            try:
                accepted, _ = self.listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                # Other errors concern a client that has disconnected (accept(2) also returns pending network errors).
                if error.errno in _EXHAUSTED:
                    self._pause(error.strerror or str(error), connections)
                return
            accepted.setblocking(False)
            task = self._loop.create_task(self._start_connection(accepted))
            self._starting_connections.add(task)
            task.add_done_callback(self._starting_connections.discard)

    def _pause(self, why: str, connections: int) -> None:
        self._loop.remove_reader(self.listener)
        self._retry = self._loop.call_later(ACCEPT_RETRY_S, self.start)
        self.shortage.record_pause(why, connections, self._loop.time())

    async def _start_connection(self, accepted: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(
                self.new_connection,
                accepted,
                ssl=self.tls,
                ssl_handshake_timeout=None if self.tls is None else self.tls_handshake_s,
            )
        except OSError as error:
            # The client left, or its TLS handshake failed (``LoggedHandshake`` logs why); asyncio closes the socket.
            _log.debug("connection-setup-failed error=%s", error)
