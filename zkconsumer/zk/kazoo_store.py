"""Implements ``ZkStore`` with real servers: a ``Pipeline`` of requests and a ``ZooKeeperConnection``.

any thread                    the connection's thread
submit --> Pipeline --wake--> send_queued --> connection --> answers, in the order of the requests --> Pipeline --> done
                                                         `-> watch events and session states, in between --> listener
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.base.host_names import check_host_names, possible_hosts
from zkconsumer.errors import (
    ChrootMissing,
    ForkedError,
    UnavailableError,
    ZkAuthenticationFailed,
    ZkConsumerError,
    ZkTimeoutException,
)
from zkconsumer.member.events import SessionConnected, SessionLost, SessionSuspended
from zkconsumer.zk.connect_string import ConnectString, parse_connect
from zkconsumer.zk.four_letter_words import host_of_session
from zkconsumer.zk.kazoo_connection import CLOSE_OPCODE, ZooKeeperConnection
from zkconsumer.zk.packets import CODE_NO_AUTH, CODE_NO_NODE, CODE_OK, decode_event, encode, store_error_of
from zkconsumer.zk.pipeline import Pipeline
from zkconsumer.zk.requests import (
    Exists,
    Request,
    Result,
    StoreEvent,
    check_path,
    paths_of,
)
from zkconsumer.zk.zk_login import check_libraries
from zkconsumer.zk.zk_security import NO_SECURITY, ZkSecurity, zk_security_of

if TYPE_CHECKING:
    from zkconsumer.config import ConsumerConfig

log = logging.getLogger(__name__)

OLDEST_VERSION: Final = (3, 4)
"""The first ZooKeeper with multi."""

BREAK_GRACE_MS = 200
"""How much longer ``close`` may take when it must break the connection."""


class KazooStore:
    """A ``ZkStore``.  ``connect`` is ``zookeeper.connect`` with its chroot; the timeout is the requested one.

    Raises ``InvalidConfigException`` for an invalid ``connect``, ``UsageError`` when a library for the login is
    missing.  ``start`` also raises ``ZkAuthenticationFailed``, and ``UnknownHostException`` at once.
    """

    def __init__(
        self, connect: str, session_timeout_ms: int, clock: Clock = SYSTEM_CLOCK, *, security: ZkSecurity = NO_SECURITY
    ) -> None:
        check_libraries(security.login)
        self._servers = parse_connect(connect)
        self._tried = ConnectString(possible_hosts(self._servers.hosts))
        self._security = security
        self._pipeline = Pipeline(self._servers.chroot)
        self._connection = ZooKeeperConnection(
            self._tried.addresses,
            session_timeout_ms,
            clock,
            send_queued=self._send_queued,
            on_state=self._on_state,
            on_watch=self._on_watch,
            on_login_failed=self._on_login_failed,
            security=security,
        )
        self._on_event: Callable[[StoreEvent], None] = _ignore_event
        self._pid: int | None = None
        self._settled = threading.Event()
        self._start_error: ZkConsumerError | None = None
        self._has_chroot = not self._servers.chroot
        self._is_opening = False
        self._logged_login_error = ""
        self._announced_session_id: int | None = None
        self._is_usable = False
        self._is_closing = threading.Event()
        self._is_confirmed = False
        self._is_end_sent = False

    # --- ZkStore

    @property
    def session_id(self) -> int | None:
        return self._pipeline.session_id

    @property
    def negotiated_timeout_ms(self) -> int:
        return self._connection.negotiated_timeout_ms

    @property
    def packets_sent(self) -> int:
        return self._pipeline.packets_sent

    @property
    def server_version(self) -> tuple[int, ...] | None:
        """The version of the connected server; None when it does not report it (``srvr``)."""
        return self._connection.server_version

    def listen(self, on_event: Callable[[StoreEvent], None]) -> None:
        self._on_event = on_event

    def start(self, timeout_ms: int) -> None:
        check_host_names("zookeeper.connect", self._servers.hosts)
        self._pid = os.getpid()
        self._connection.start()
        is_settled = self._settled.wait(timeout_ms / 1000)
        version = self._connection.server_version
        if not is_settled:
            reason = self._connection.last_error or "no server was tried"
            self._start_error = ZkTimeoutException(
                f"no session with ZooKeeper at {self._servers.addresses} within {timeout_ms} ms ({reason}): "
                "start its servers, or correct the address (zookeeper.connect)"
            )
        elif version is not None and version < OLDEST_VERSION:
            text = ".".join(map(str, version))
            self._start_error = UnavailableError(
                f"ZooKeeper {text} at {self._servers.addresses} is too old: 3.4 has multi"
            )
        if self._start_error is not None:
            self.close(BREAK_GRACE_MS)
            raise self._start_error

    def submit(self, session_id: int | None, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        if self._is_forked():
            raise ForkedError("this ZooKeeper session belongs to the parent process")
        for request in requests:
            for path in paths_of(request):
                check_path(path)
        self._pipeline.submit(session_id, requests, done)
        self._connection.wake()

    def host_of(self, session_id: int, timeout_ms: int) -> str | None:
        return host_of_session(self._tried.hosts, session_id, timeout_ms, self._security.tls)

    def close(self, timeout_ms: int) -> bool:
        """As ``ZkStore.close``.  In a forked child it does nothing: the session belongs to the parent."""
        if self._is_forked():
            return False
        is_first = not self._is_closing.is_set()
        self._is_closing.set()
        self._pipeline.close()
        has_ended = self._connection.stop(timeout_ms)
        if not has_ended and is_first:
            has_ended = self._connection.break_connection(BREAK_GRACE_MS)
        self._pipeline.fail_in_flight()
        if has_ended and is_first:
            self._connection.close_descriptors()
        return self._is_confirmed or self._pid is None

    def expire(self, timeout_ms: int) -> None:
        """For fault tests: end the session at the servers, as if it had timed out; the servers report it to the store.

        Raises ``ZkTimeoutException`` when no server answered.
        """
        self._connection.expire(timeout_ms)

    def bounce(self) -> None:
        """For fault tests: break the connection; the store connects again."""
        self._connection.break_and_reconnect()

    # --- the connection's thread

    def _send_queued(self) -> None:
        """Send queued requests; the login is complete."""
        if self._is_closing.is_set():
            if not self._is_end_sent and self._connection.is_connected:
                self._is_end_sent = True
                self._connection.send(_InternalPacket(CLOSE_OPCODE, b"", self._on_ended))
            return
        if self._is_opening:
            self._is_opening = False
            self._begin()
        while self._is_usable:
            slot = self._pipeline.next_slot(has_multi_read=self._connection.has_multi_read)
            if slot is None:
                return
            self._connection.send(slot)

    def _on_state(self, state: str) -> None:
        self._is_opening = state == "CONNECTED"
        if self._is_opening:
            return  # the login comes first: see ``_send_queued``
        if state == "SUSPENDED":
            self._suspend()
        else:
            self._session_lost()

    def _begin(self) -> None:
        self._logged_login_error = ""
        if self._has_chroot:
            self._open()
        else:
            opcode, body = encode(Exists("/"), self._servers.chroot)
            self._connection.send(_InternalPacket(opcode, body, self._on_chroot))

    def _on_login_failed(self, reason: str) -> None:
        if not self._settled.is_set():
            words = f"ZooKeeper refused {self._security.user_description} at {reason}; correct zookeeper.auth"
            self._start_error = ZkAuthenticationFailed(words)
            self._settled.set()
        elif reason != self._logged_login_error and not self._is_closing.is_set():
            self._logged_login_error = reason
            who = self._security.user_description
            log.error("zookeeper-authentication-failed who=%r reason=%r: no session until it is corrected", who, reason)

    def _on_chroot(self, error: int) -> None:
        if error in (CODE_OK, CODE_NO_AUTH):  # NoAuth: the node exists
            self._has_chroot = True
            self._open()
            return
        if error == CODE_NO_NODE:
            self._start_error = ChrootMissing(
                f"the chroot of {self._servers} does not exist: correct it (zookeeper.connect), or create it"
            )
        else:
            self._start_error = UnavailableError(
                f"ZooKeeper rejected the check of the chroot: {store_error_of(error, '/')}"
            )
        self._settled.set()

    def _on_ended(self, error: int) -> None:
        self._is_confirmed = error == CODE_OK

    def _open(self) -> None:
        session_id = self._connection.session_id
        is_new, self._announced_session_id = session_id != self._announced_session_id, session_id
        self._is_usable = True
        self._pipeline.begin_session(session_id)
        self._settled.set()
        self._notify(SessionConnected(session_id, self._connection.negotiated_timeout_ms, is_new))

    def _suspend(self) -> None:
        was_usable, self._is_usable = self._is_usable, False
        if self._pipeline.on_connection_lost():
            self._connection.forget_version()
        if was_usable:
            self._notify(SessionSuspended())

    def _session_lost(self) -> None:
        if self._is_usable:  # kazoo's loop failed, and there was no SUSPENDED before
            self._suspend()
        lost, self._announced_session_id = self._announced_session_id, None
        if lost is not None:
            self._notify(SessionLost(lost))
        self._pipeline.end_session()

    def _on_watch(self, answer: bytes, at: int) -> None:
        event = decode_event(self._servers.chroot, answer, at)
        if event is not None:
            self._notify(event)

    def _notify(self, event: StoreEvent) -> None:
        if self._is_closing.is_set():
            return
        try:
            self._on_event(event)
        except Exception:
            log.exception("zookeeper-listener-failed")

    def _is_forked(self) -> bool:
        return self._pid is not None and self._pid != os.getpid()


def kazoo_store_factory(config: ConsumerConfig) -> Callable[[str, int], KazooStore]:
    """A factory of stores with the login and TLS of the configuration.  Raises ``InvalidConfigException``."""
    return partial(KazooStore, security=zk_security_of(config))


class _InternalPacket:
    """A packet of the store itself; if the connection breaks, it is sent again on the next one if still needed."""

    def __init__(self, opcode: int, body: bytes, on_answer: Callable[[int], None]) -> None:
        self.opcode = opcode
        self.body = body
        self._on_answer = on_answer

    def on_response(self, error: int, answer: bytes, at: int) -> None:
        self._on_answer(error)

    def on_failure(self, *, is_session_over: bool) -> None:
        """No caller waits for it."""


def _ignore_event(event: StoreEvent) -> None:
    """The listener of tools that need no events."""
