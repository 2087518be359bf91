"""Answers health requests of supervisors: one thread per socket, for all members of the process with the same path.

    supervisor --connect--> health thread --request_snapshot--> control thread of each member
                                 `<---- at most SNAPSHOT_TIMEOUT_MS ----'

If a member does not answer in time, the health report contains that.  A supervisor cannot block a member: a snapshot
is one short call on the control thread, and a report is reused for requests within ``CACHED_ANSWER_MAX_AGE_MS``.
"""

from __future__ import annotations

import json
import logging
import os
import select
import socket
import threading
from contextlib import suppress
from pathlib import Path
from typing import Protocol

from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import StopSignal, WorkerThread, spawn
from zkconsumer.observe.member_health import MemberHealth, process_health
from zkconsumer.runtime.health_socket import open_listening_socket, socket_identity, socket_path

SNAPSHOT_TIMEOUT_MS = 1_000
"""How long all members of a process together may take to answer."""

CACHED_ANSWER_MAX_AGE_MS = 200
SEND_TIMEOUT_MS = 500
"""How long a supervisor may take to read."""

PAUSE_AFTER_ERROR_MS = 200
STOP_TIMEOUT_MS = 1_000

log = logging.getLogger("zkconsumer.health")


class HealthSource(Protocol):
    """A member whose health can be requested."""

    def request_snapshot(self) -> None:
        """Request a snapshot; returns at once."""

    def health(self, timeout_ms: int) -> MemberHealth:
        """The health with the requested snapshot; without it after ``timeout_ms``."""


class HealthServer:
    """One socket, for the members in ``members``; it is closed with the last one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.members: list[HealthSource] = []
        self._socket = open_listening_socket(path)
        self._identity = socket_identity(path)
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_out.setblocking(False)
        self._answer = b""
        self._answered_at_ms = -CACHED_ANSWER_MAX_AGE_MS
        self._worker: WorkerThread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._worker = spawn("zkconsumer-health", self._serve, self._on_thread_error, wake=self._wake)

    def close(self) -> None:
        """Stop the thread, and remove the socket file unless another socket has replaced it."""
        if self._worker is not None:
            self._worker.stop(STOP_TIMEOUT_MS)
        self.close_descriptors()
        if socket_identity(self.path) == self._identity:
            with suppress(OSError):
                self.path.unlink()

    def close_descriptors(self) -> None:
        """Close the descriptors, but keep the file: for a forked child, whose parent still answers there."""
        for each in (self._socket, self._wake_in, self._wake_out):
            each.close()

    def _wake(self) -> None:
        with suppress(OSError):
            self._wake_out.send(b"\0")

    def _on_thread_error(self, name: str, error: BaseException) -> None:
        log.error("health-thread-died thread=%s", name, exc_info=error)

    def _serve(self, stop: StopSignal) -> None:
        waiting = select.poll()  # select() cannot wait for descriptors above 1023
        waiting.register(self._socket, select.POLLIN)
        waiting.register(self._wake_in, select.POLLIN)
        while not stop.is_set():
            ready = {descriptor for descriptor, _ in waiting.poll()}
            if self._socket.fileno() not in ready or stop.is_set():
                continue
            try:
                connection, _ = self._socket.accept()
            except OSError as error:  # no free descriptors, or the supervisor has closed the connection
                log.debug("health-accept-failed reason=%s", error)
                stop.wait(PAUSE_AFTER_ERROR_MS)
                continue
            with connection:
                self._send_report(connection)

    def _send_report(self, connection: socket.socket) -> None:
        try:
            connection.settimeout(SEND_TIMEOUT_MS / 1000)
            connection.sendall(self._current())
            # Unread input would turn the close into a connection reset, and the supervisor would lose the report.
            # After SHUT_RD no more input arrives, so this loop is bounded by the size of the socket's buffer.
            connection.shutdown(socket.SHUT_RDWR)
            while connection.recv(65_536):
                pass
        except OSError as error:  # the supervisor has closed the connection, or does not read
            log.debug("health-report-failed reason=%s", error)

    def _current(self) -> bytes:
        if SYSTEM_CLOCK.now_ms() - self._answered_at_ms >= CACHED_ANSWER_MAX_AGE_MS:
            members = list(self.members)
            for member in members:
                member.request_snapshot()
            end_ms = SYSTEM_CLOCK.now_ms() + SNAPSHOT_TIMEOUT_MS
            healths = [member.health(max(0, end_ms - SYSTEM_CLOCK.now_ms())) for member in members]
            self._answer = json.dumps(process_health(os.getpid(), healths)).encode() + b"\n"
            self._answered_at_ms = SYSTEM_CLOCK.now_ms()
        return self._answer


_servers: dict[Path, HealthServer] = {}
_lock = threading.Lock()


def register_health_source(member: HealthSource, setting: str) -> HealthServer:
    """Serve the health of this member at the path of ``health.socket``.  Raises ``UsageError``."""
    path = socket_path(setting)
    with _lock:
        server = _servers.get(path)
        if server is None:
            server = HealthServer(path)
            server.members.append(member)
            server.start()
            _servers[path] = server
        else:
            server.members.append(member)
    return server


def unregister_health_source(member: HealthSource, server: HealthServer) -> None:
    """Remove a closed member; the last one closes the socket.

    Under the lock, because a connector that is being created must not find the old server at its path.
    """
    with _lock:
        if member in server.members:
            server.members.remove(member)
        if not server.members and _servers.get(server.path) is server:
            del _servers[server.path]
            server.close()


def _forget_in_child() -> None:
    """After a fork only the parent answers: the child closes its copies of the descriptors."""
    global _lock
    _lock = threading.Lock()  # the old lock may be locked by a thread that does not exist in the child
    for server in _servers.values():
        server.close_descriptors()
    _servers.clear()


os.register_at_fork(after_in_child=_forget_in_child)
