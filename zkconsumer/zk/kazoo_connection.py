"""The connection to ZooKeeper: kazoo's session handling, with our own sending and receiving; the only user of kazoo.

kazoo maintains the session: it selects servers, makes the handshake, sends pings and reconnects.  Its delivery of
answers is not used, for these reasons:

- Two threads deliver answers and watch events, so an event may overtake an answer.
- It blocks a caller that queues about 250 requests while the connection is broken.
- It would execute requests of the old session in a new session.
- It sends no ping while requests are sent often enough, and then never detects a server that does not answer.
- It needs two or more system calls for each packet, about 0.1 ms; many packets in one call take a tenth of that each.

So everything runs on one thread of this module.  Its loop waits in ``_KazooHandler.select``, which gets packets from
the owner, and breaks a connection whose oldest request has no answer after two thirds of the session timeout (as the
Java client does).  ``_KazooConnection`` sends all waiting packets in one call, reads all available bytes in one call,
and passes answers and watch events on as bytes.

This module depends on names that kazoo does not document as stable.  So ``setup.py`` sets an upper bound for kazoo's
version, the nightly run ``tox -e newest`` uses newer releases, and ``test_dependencies.py`` checks each name:

    overridden    ``ConnectionHandler``: ``_connect``, ``_invoke``, ``_read``, ``_send_request``, ``_read_socket``
                  ``SequentialThreadingHandler``: ``start``, ``stop``, ``dispatch_callback``, ``spawn``, ``select``,
                  ``create_connection``
    called, read  ``KazooClient``: ``_call``, ``_connection``, ``_conn_retry``, ``_queue``, ``_pending``, ``_stopped``,
                  ``_session_id``, ``_session_passwd``, ``_session_timeout``, ``last_zxid``
                  ``ConnectionHandler``: ``_submit``, ``_read_header``, ``_write``, ``_socket_error_handling``,
                  ``_socket``, ``_read_sock``, ``_xid``, ``ping_outstanding``
                  ``kazoo.protocol``: ``Connect``, ``CLOSE_RESPONSE``, ``PING_XID``, ``WATCH_XID``
"""

from __future__ import annotations

import errno
import logging
import os
import re
import select
import socket
import ssl
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from kazoo.client import KazooClient
from kazoo.exceptions import ConnectionDropped, SessionExpiredError
from kazoo.handlers.threading import KazooTimeoutError, SequentialThreadingHandler
from kazoo.protocol.connection import CLOSE_RESPONSE, PING_XID, WATCH_XID, ConnectionHandler
from kazoo.protocol.serialization import Connect
from kazoo.retry import KazooRetry

from zkconsumer.base.clock import Clock
from zkconsumer.base.threads import StopSignal, WorkerThread, spawn
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.zk.frame_buffer import FRAME_BYTES_MAX, FrameBuffer
from zkconsumer.zk.packets import MalformedResponseError
from zkconsumer.zk.zk_login import ZkLoginError, log_in
from zkconsumer.zk.zk_security import NO_SECURITY, ZkLogin, ZkSecurity

log = logging.getLogger(__name__)

RECONNECT_FIRST_S = 0.05
RECONNECT_MAX_S = 1.0
RECONNECT_JITTER = 0.5
"""The pauses after all servers were tried: they grow, and up to half of each is random."""

CONNECT_TIMEOUT_MIN_MS = 500
HANDSHAKES_PER_SESSION = 4
PROBE_TIMEOUT_MS = 500
PROBE_BYTES_MAX = 16_384
SEND_BYTES = 64 * 1024
RECEIVE_BYTES = 64 * 1024
"""About how many bytes one call writes, and at most how many it reads."""

GATHER_FROM_PACKETS = 100
GATHER_MS = 1
"""While at least so many answers are pending, the thread waits ``GATHER_MS`` before it reads, to read many in one call.
The server needs longer than that for these requests; reading answers one by one would use a core that it may need."""

RESTART_PAUSE_MS = 500
LOGIN_RETRY_PAUSE_MS = 5_000
"""The pause after a rejected login: a person must correct it."""

MULTI_READ_VERSION = (3, 6)

CLOSE_OPCODE = int(CLOSE_RESPONSE)
_REQUEST_HEADER = struct.Struct("!iii")
_REPLY_HEADER = struct.Struct("!iqi")
_XID_MAX = 2**31 - 1
_VERSION = re.compile(rb"Zookeeper version: (\d+)\.(\d+)(?:\.(\d+))?")


class OutgoingPacket(Protocol):
    """A packet to send, with the callbacks for its answer."""

    @property
    def opcode(self) -> int:
        """ZooKeeper's request type."""

    @property
    def body(self) -> bytes:
        """The bytes after the request header."""

    def on_response(self, error: int, answer: bytes, at: int) -> None:
        """An answer arrived: the reply header's error code, and the bytes after the header."""

    def on_failure(self, *, is_session_over: bool) -> None:
        """No answer will arrive."""


class ZooKeeperConnection:
    """A connection to the servers ``addresses``, with one session after the other.

    All callbacks run on the connection's thread: ``on_state`` with CONNECTED, SUSPENDED or LOST; ``send_queued``, which
    calls ``send`` for the packets that may be sent now (after CONNECTED only when the login is complete); ``on_watch``
    with the bytes of a watch event; ``on_login_failed`` with the reason.
    """

    def __init__(
        self,
        addresses: str,
        session_timeout_ms: int,
        clock: Clock,
        *,
        send_queued: Callable[[], None],
        on_state: Callable[[str], None],
        on_watch: Callable[[bytes, int], None],
        on_login_failed: Callable[[str], None],
        security: ZkSecurity = NO_SECURITY,
    ) -> None:
        self._handler = _KazooHandler(clock, addresses.count(",") + 1, security.tls)
        self._addresses = addresses
        self._client = _new_client(addresses, session_timeout_ms, self._handler)
        self._connection = _KazooConnection(self._client, on_watch, security.login, on_login_failed)
        self._client._connection = self._connection
        self._client.add_listener(on_state)
        self._handler.attach(self._client, self._connection, send_queued)

    @property
    def session_id(self) -> int:
        """The session id of the present connection; call it when CONNECTED."""
        return int(self._client._session_id)

    @property
    def negotiated_timeout_ms(self) -> int:
        """The session timeout that the server granted, in ms; 0 before the first session."""
        return self._connection.negotiated_timeout_ms

    @property
    def is_connected(self) -> bool:
        """Whether packets can be sent."""
        return bool(self._client.connected)

    @property
    def server_version(self) -> tuple[int, ...] | None:
        """The version of the last connected server; None if it did not report it."""
        return self._handler.server_version

    @property
    def has_multi_read(self) -> bool:
        """Whether the server supports multiRead, by its ``srvr`` version; an old one closes the connection for it."""
        version = self._handler.server_version
        return version is not None and version >= MULTI_READ_VERSION

    @property
    def last_error(self) -> str:
        """The error of the last address that was tried; "" without one."""
        return self._handler.last_error

    def start(self) -> None:
        """Start connecting; call it once."""
        self._client.start_async()

    def send(self, outgoing: OutgoingPacket) -> None:
        """Append a packet to the queue; on the connection's thread, while connected."""
        packet = _KazooRequest(outgoing)
        if self._client._queue:
            self._client._queue.append((packet, packet))  # the first packet of the queue has woken the loop
        else:
            self._client._call(packet, packet)

    def wake(self) -> None:
        """Request a call of ``send_queued``; from any thread; never blocks."""
        self._handler.wake()

    def forget_version(self) -> None:
        """Forget the server's version; the next connection asks for it again."""
        self._handler.forget_version()

    def stop(self, timeout_ms: int) -> bool:
        """Do not connect again, and wait until the loop has ended; the owner sends the packet that closes the session.

        Returns False if the loop still runs after ``timeout_ms``.
        """
        self._client._stopped.set()
        self._handler.wake()
        return self._handler.join(timeout_ms)

    def break_connection(self, timeout_ms: int) -> bool:
        """Break the connection from another thread, and wait for the loop to end."""
        self._handler.break_connection()
        return self._handler.join(timeout_ms)

    def close_descriptors(self) -> None:
        """Close the file descriptors; call it after the loop has ended."""
        self._handler.close_descriptors()

    def break_and_reconnect(self) -> None:
        """For fault tests: break the connection; the loop connects again."""
        self._handler.break_connection()

    def expire(self, timeout_ms: int) -> None:
        """For fault tests: end the session at the servers, as if it had timed out.

        Raises ``ZkTimeoutException`` when no server answered.
        """
        identity = (self._client._session_id, self._client._session_passwd)
        second = KazooClient(self._addresses, client_id=identity, logger=_quiet_logger())
        try:
            second.start(timeout_ms / 1000)
        except KazooTimeoutError as exc:
            raise ZkTimeoutException(f"no server answered the request to end session {identity[0]:#x}") from exc
        second.stop()
        second.close()


class _KazooRequest:
    """A packet in the form that kazoo expects; it is kazoo's request object and its result object."""

    __slots__ = ("outgoing", "type")

    def __init__(self, outgoing: OutgoingPacket) -> None:
        self.type = outgoing.opcode
        self.outgoing = outgoing

    def serialize(self) -> bytes:
        return self.outgoing.body

    def set_exception(self, exc: Exception) -> None:
        self.outgoing.on_failure(is_session_over=isinstance(exc, SessionExpiredError))


class _KazooConnection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection loop, with our own sending of packets and reading of answers and events."""

    _xid: int

    def __init__(
        self,
        client: Any,
        read_event: Callable[[bytes, int], None],
        login: ZkLogin | None,
        on_login_failed: Callable[[str], None],
    ) -> None:
        super().__init__(client, client._conn_retry.copy(), logger=client.logger)
        self.negotiated_timeout_ms = 0
        self.is_login_failed = False
        self._read_event = read_event
        self._login = login
        self._on_login_refused = on_login_failed
        self._frames = FrameBuffer()

    def _connect(self, host: str, hostip: str, port: int) -> tuple[float, float]:
        timeouts: tuple[float, float] = super()._connect(host, hostip, port)
        self._frames = FrameBuffer()
        self.is_login_failed = False
        if self._login is not None:
            timeout_s = timeouts[1] / 1000
            try:
                log_in(
                    self._login,
                    host,
                    lambda packet, xid: self._submit(packet, timeout_s, xid),
                    lambda: self._read_header(timeout_s),
                )
            except ZkLoginError as exc:
                self.is_login_failed = True
                self._on_login_refused(f"{host}:{port}: {exc}")
                raise
        return timeouts

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        if isinstance(request, Connect):
            # A starting server may accept the handshake and never answer: a short timeout, to retry while the session
            # lives.
            timeout = min(timeout, self.client._session_timeout / 1000 / HANDSHAKES_PER_SESSION)
        answer = super()._invoke(timeout, request, xid)
        if isinstance(request, Connect) and answer[0].time_out > 0:
            self.negotiated_timeout_ms = int(answer[0].time_out)
        return answer

    def _read(self, length: int, timeout: float) -> bytes:
        if not 0 <= length <= FRAME_BYTES_MAX:
            raise ConnectionDropped(f"a frame of {length} bytes")
        data: bytes = super()._read(length, timeout)
        return data

    def _send_request(self, read_timeout: float, connect_timeout: float) -> None:
        """Send the waiting packets in one call, up to about ``SEND_BYTES``."""
        client = self.client
        frames = bytearray()
        while client._queue and len(frames) < SEND_BYTES:
            _, packet = client._queue.popleft()
            self._xid = self._xid % _XID_MAX + 1
            body = packet.serialize()
            frames += _REQUEST_HEADER.pack(_REQUEST_HEADER.size - 4 + len(body), self._xid, packet.type)
            frames += body
            # Before sending: the server may execute a packet although sending it failed.
            client._pending.append((packet, packet, self._xid))
        if not client._queue:
            with suppress(OSError):
                self._read_sock.recv(1)  # the byte that the first packet of the queue wrote to wake the loop
        if frames:
            self._write(frames, connect_timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        """Read the available bytes and process the complete packets; ``select`` waits for the rest of another one."""
        if len(self.client._pending) >= GATHER_FROM_PACKETS:
            select.poll().poll(GATHER_MS)
        with self._socket_error_handling():
            try:
                received = self._socket.recv(RECEIVE_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return None  # a TLS record without application data
        if not received:
            raise ConnectionDropped("socket connection broken")
        self._frames.add(received)
        try:
            while (frame := self._frames.next()) is not None:
                if self._read_frame(frame) == CLOSE_RESPONSE:
                    return CLOSE_RESPONSE
        except (MalformedResponseError, struct.error) as exc:
            raise ConnectionDropped(f"malformed packet: {exc}") from exc
        return None

    def _read_frame(self, frame: bytes) -> Any:
        xid, zxid, error = _REPLY_HEADER.unpack_from(frame)
        if xid == PING_XID:
            self.ping_outstanding.clear()
            return None
        if xid == WATCH_XID:
            self._read_event(frame, _REPLY_HEADER.size)
            return None
        client = self.client
        if not client._pending:
            raise ConnectionDropped("an answer without a request")
        _, packet, due = client._pending[0]
        if xid != due:
            raise ConnectionDropped(f"an answer to request {xid} instead of {due}")
        client._pending.popleft()
        if zxid > 0:
            client.last_zxid = zxid
        packet.outgoing.on_response(error, frame, _REPLY_HEADER.size)
        return CLOSE_RESPONSE if packet.type == CLOSE_OPCODE else None


class _KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """Implements kazoo's handler interface on one thread: waiting, connecting, and running the loop."""

    def __init__(self, clock: Clock, servers: int, tls: ssl.SSLContext | None) -> None:
        super().__init__()
        self._tls = tls
        self.worker: WorkerThread | None = None
        self._loop_ended: threading.Event | None = None
        self.last_error = ""
        self.server_version: tuple[int, ...] | None = None
        self._clock = clock
        self._servers = servers
        self._wake_out, self._wake_in = socket.socketpair()
        self._wake_out.setblocking(False)
        self._wake_in.setblocking(False)
        self._address: tuple[str, int] | None = None
        self._versions: dict[tuple[str, int], tuple[int, ...]] = {}
        self._oldest_pending: object = None
        self._oldest_pending_since_ms = 0

    def attach(self, client: Any, connection: _KazooConnection, send_queued: Callable[[], None]) -> None:
        self._client = client
        self._connection = connection
        self._send_queued = send_queued

    def forget_version(self) -> None:
        """Forget the server's version; the next connection asks for it again."""
        if self._address is not None:
            self._versions.pop(self._address, None)

    def wake(self) -> None:
        """Wake the connection's thread, so that it calls ``send_queued``; from any thread; never blocks."""
        try:
            self._wake_out.send(b"\0")
        except OSError:
            return  # the buffer is full: the thread wakes up anyway; or closed: the thread has ended

    def break_connection(self) -> None:
        """Break the connection from another thread."""
        broken = self._connection._socket
        try:
            if broken is not None:
                # Not SSLSocket.shutdown: the TLS state belongs to the connection's thread.
                socket.socket.shutdown(broken, socket.SHUT_RDWR)
        except OSError:
            return

    def join(self, timeout_ms: int) -> bool:
        """Wait until the loop has ended; False if it still runs."""
        if self.worker is not None:
            return self.worker.join(timeout_ms)
        # No loop was started, or a signal handler raised in ``spawn`` after the thread had started.
        return self._loop_ended is None or self._loop_ended.wait(timeout_ms / 1000)

    def close_descriptors(self) -> None:
        """Close the file descriptors; call it after the thread has ended."""
        self._connection.close()
        self._wake_in.close()
        self._wake_out.close()

    # --- methods that kazoo calls

    def start(self) -> None:
        """Start no worker threads: the connection's thread delivers answers and events."""

    def stop(self) -> None:
        """Do nothing, because ``start`` starts nothing."""

    def dispatch_callback(self, callback: Any) -> None:
        """Do nothing: this module uses none of kazoo's watchers."""

    def spawn(self, func: Callable[[], None]) -> WorkerThread:
        ended = self._loop_ended = threading.Event()

        def run(stop: StopSignal) -> None:
            try:
                while not self._client._stopped.is_set():
                    try:
                        func()
                    except Exception:
                        log.exception("zookeeper-connection-failed")
                    if not self._client._stopped.is_set():
                        self._pause(stop)
            finally:
                ended.set()

        def on_thread_error(name: str, error: BaseException) -> None:
            log.critical("thread-died thread=%s", name, exc_info=error)

        self.worker = spawn("zkconsumer-zookeeper", run, on_thread_error, wake=self.wake)
        return self.worker

    def _pause(self, stop: StopSignal) -> None:
        if not self._connection.is_login_failed:
            stop.wait(RESTART_PAUSE_MS)
            return
        with suppress(OSError):
            self._wait_for([], [], LOGIN_RETRY_PAUSE_MS)

    def select(self, rlist: list[Any], wlist: list[Any], xlist: list[Any], timeout: float) -> Any:
        if len(rlist) == 2:
            return self._wait(rlist, timeout), [], []
        return (*_ready(rlist, wlist, timeout), [])

    def create_connection(self, address: tuple[str, int], *, timeout: float, hostname: str, **_: Any) -> socket.socket:
        timeout_ms = max(CONNECT_TIMEOUT_MIN_MS, round(timeout * 1000) // self._servers)
        try:
            version = self._versions.get(address) or self._probe(address, hostname, timeout_ms)
            connected = self._connect(address, hostname, timeout_ms)
        except OSError as exc:
            self.last_error = f"{address[0]}:{address[1]}: {_connect_error_message(exc)}"
            raise
        if version is not None and version >= MULTI_READ_VERSION:
            self._versions[address] = version
        self._address, self.server_version = address, version
        hint = "" if self._tls else "; if it is a port for TLS, set zookeeper.ssl.client.enable=true"
        self.last_error = f"{address[0]}:{address[1]} accepted the connection and created no session{hint}"
        return connected

    # --- parts

    def _wait(self, rlist: list[Any], timeout: float) -> list[Any]:
        """Wait until the server sends data, a packet can be sent, or a ping is due."""
        end_ms = self._clock.now_ms() + round(timeout * 1000)
        while True:
            self._send_queued()
            now_ms = self._clock.now_ms()
            # The socket is not readable when TLS has already decrypted the data.
            is_read_ahead = isinstance(rlist[0], ssl.SSLSocket) and rlist[0].pending() > 0
            wait_ms = 0 if is_read_ahead else max(0, min(end_ms, self._response_deadline_ms(now_ms)) - now_ms)
            ready = _ready([*rlist, self._wake_in], [], wait_ms / 1000)[0]
            if is_read_ahead and rlist[0] not in ready:
                ready.append(rlist[0])
            if self._wake_in in ready:
                ready.remove(self._wake_in)
                self._drain()
            now_ms = self._clock.now_ms()
            if rlist[0] not in ready and now_ms >= self._response_deadline_ms(now_ms):
                self._oldest_pending = None
                raise self.timeout_exception("the server did not answer for two thirds of the session timeout")
            if ready or now_ms >= end_ms:
                return list(ready)

    def _response_deadline_ms(self, now_ms: int) -> int:
        """When the connection must be broken because the oldest request has no answer; later than now without one.

        Answers to pings do not count: they do not extend the lease either.
        """
        oldest = self._client._pending[0] if self._client._pending else None
        if oldest is not self._oldest_pending:
            self._oldest_pending, self._oldest_pending_since_ms = oldest, now_ms
        since_ms = now_ms if oldest is None else self._oldest_pending_since_ms
        return since_ms + self._connection.negotiated_timeout_ms * 2 // 3

    def _drain(self) -> None:
        try:
            while self._wake_in.recv(4096):
                pass
        except BlockingIOError:
            return

    def _connect(self, address: tuple[str, int], host: str, timeout_ms: int) -> socket.socket:
        """Connect a socket and make the TLS handshake.  Raises ``OSError``, also when the store is closed meanwhile."""
        made = self._connect_plain(address, timeout_ms)
        return made if self._tls is None else self._tls_handshake(self._tls, made, host, timeout_ms)

    def _tls_handshake(self, tls: ssl.SSLContext, plain: socket.socket, host: str, timeout_ms: int) -> socket.socket:
        made = tls.wrap_socket(plain, server_hostname=host, do_handshake_on_connect=False)
        try:
            while True:
                try:
                    made.do_handshake()
                    return made
                except ssl.SSLWantReadError:
                    self._wait_for([made], [], timeout_ms)
                except ssl.SSLWantWriteError:
                    self._wait_for([], [made], timeout_ms)
        except BaseException:
            made.close()
            raise

    def _connect_plain(self, address: tuple[str, int], timeout_ms: int) -> socket.socket:
        family, kind, protocol, _, target = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)[0]
        made = socket.socket(family, kind, protocol)
        try:
            made.setblocking(False)
            made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            code = made.connect_ex(target)
            if code not in (0, errno.EINPROGRESS):
                raise OSError(code, os.strerror(code))
            self._wait_for([], [made], timeout_ms)
            code = made.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
            if code:
                raise OSError(code, os.strerror(code))
        except BaseException:
            made.close()
            raise
        return made

    def _probe(self, address: tuple[str, int], host: str, timeout_ms: int) -> tuple[int, ...] | None:
        """The server's version, by the four-letter word ``srvr``; None if it does not report it."""
        asked = self._connect(address, host, timeout_ms)
        received = b""
        try:
            asked.send(b"srvr")
            while len(received) < PROBE_BYTES_MAX:
                self._wait_for([asked], [], PROBE_TIMEOUT_MS)
                try:
                    more = asked.recv(4096)
                except ssl.SSLWantReadError:  # a TLS record without application data
                    continue
                received += more
                if not more or _VERSION.search(received):
                    break
        except OSError as exc:
            log.debug("zookeeper-version-unknown address=%s reason=%s", address, exc)
        finally:
            asked.close()
        found = _VERSION.search(received)
        return tuple(int(number) for number in found.groups(default=b"0")) if found else None

    def _wait_for(self, rlist: list[Any], wlist: list[Any], timeout_ms: int) -> None:
        """Wait until a socket is ready.  Raises ``OSError`` after ``timeout_ms``, or when the store is closed."""
        end_ms = self._clock.now_ms() + timeout_ms
        while not self._client._stopped.is_set():
            left_ms = end_ms - self._clock.now_ms()
            if left_ms <= 0:
                raise TimeoutError(errno.ETIMEDOUT, "the server did not answer in time")
            ready = _ready([*rlist, self._wake_in], wlist, left_ms / 1000)
            self._drain()
            if ready[1] or any(each is not self._wake_in for each in ready[0]):
                return
        raise OSError(errno.ECANCELED, "closing")


def _ready(readers: list[socket.socket], writers: list[socket.socket], timeout_s: float) -> tuple[list[Any], list[Any]]:
    """The sockets that are readable, and those that are writable, after at most ``timeout_s``; broken sockets count.

    kazoo's own function makes five system calls for this, which is most of the cost of a packet.
    """
    waiting = select.poll()
    for one in readers:
        waiting.register(one, select.POLLIN)
    for one in writers:
        waiting.register(one, select.POLLOUT)
    ready = {fd for fd, _ in waiting.poll(timeout_s * 1000)}
    return [one for one in readers if one.fileno() in ready], [one for one in writers if one.fileno() in ready]


def _connect_error_message(error: OSError) -> str:
    """Why a connection failed, as a text for the user that configured it."""
    match error:
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not accepted ({error.verify_message}); zookeeper.ssl.truststore.location must "
                "contain its authority, and the certificate must contain the host name in zookeeper.connect"
            )
        case ssl.SSLError():
            reason = error.reason or error.strerror or "the connection ended"
            return f"the TLS handshake failed ({reason}): is it a TLS port, and does it require a client certificate?"
        case _:
            return error.strerror or str(error)


def _new_client(addresses: str, session_timeout_ms: int, handler: _KazooHandler) -> Any:
    retry = KazooRetry(
        max_tries=-1,
        delay=RECONNECT_FIRST_S,
        backoff=2,
        max_delay=RECONNECT_MAX_S,
        max_jitter=RECONNECT_JITTER,
        sleep_func=handler.sleep_func,
    )
    return KazooClient(
        addresses,
        timeout=session_timeout_ms / 1000,
        handler=handler,
        connection_retry=retry,
        randomize_hosts=True,
        logger=_quiet_logger(),
    )


def _quiet_logger() -> logging.Logger:
    """A disabled logger for kazoo, because kazoo logs every connection attempt, and this module logs the failures."""
    quiet = logging.getLogger("zkconsumer.zk.kazoo")
    if quiet.level == logging.NOTSET:
        quiet.setLevel(logging.CRITICAL)
    return quiet
