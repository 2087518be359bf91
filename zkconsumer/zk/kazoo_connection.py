"""What of kazoo is used, and what is put in its place.  The only importer of kazoo.

kazoo keeps the session: hosts, handshake, pings, reconnects.  Its own ways to answer are not used: it delivers answers
and watch events by two threads, so an event may overtake an answer; it blocks whoever queues some 250 requests behind
a broken connection; it would execute in a new session what was queued for the old one; and as long as requests are
sent often enough it sends no ping, and then never notices a server that went silent.  And it takes two system calls and
more for each packet, sent or received: a tenth of a millisecond, where many at a time take a tenth of that.

So all of it runs on one thread of ours.  Its loop waits in ``_KazooHandler.select``, which asks its owner for packets,
and ends a connection that owes an answer for two thirds of the session time-out (as the Java client does).
``_KazooConnection`` sends what waits in one piece, and reads answers and watch events from whatever has come; it hands
them on as bytes.

What this relies on, and no release of kazoo promises (``setup.py`` therefore sets an upper bound, the nightly run
``tox -e newest`` goes beyond it, and ``tests/unit/test_dependencies.py`` looks for each of these names):

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
"""The pauses between two rounds through the servers: growing, and half of each is chance."""

CONNECT_TIMEOUT_MIN_MS = 500
HANDSHAKES_PER_SESSION = 4
PROBE_TIMEOUT_MS = 500
PROBE_BYTES_MAX = 16_384
SEND_BYTES = 64 * 1024
RECEIVE_BYTES = 64 * 1024
"""About as much is written, and read, in one piece."""

GATHER_FROM_PACKETS = 100
GATHER_MS = 1
"""With so many answers to come, those of the next millisecond are read in one piece.  A server works on for longer than
that on what it has; answers that are read one by one take a core from it where the two share a machine."""

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
    """One session after the other, at the servers ``addresses``.

    All callbacks are called on the connection's thread: ``on_state`` with CONNECTED, SUSPENDED or LOST, ``send_queued``
    to hand over what may be sent now (by ``call``; after CONNECTED not before we are logged in), ``on_watch`` with the
    bytes of a watch event, ``on_login_failed`` with the reason.
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
        """Of the connection that there is; call it when CONNECTED."""
        return int(self._client._session_id)

    @property
    def negotiated_timeout_ms(self) -> int:
        """Granted by the server; 0 before the first session."""
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
        """Whether that server has multiRead; by its ``srvr`` version, as an old server closes the connection on it."""
        version = self._handler.server_version
        return version is not None and version >= MULTI_READ_VERSION

    @property
    def last_error(self) -> str:
        """The error of the last address that was tried; "" without one."""
        return self._handler.last_error

    def start(self) -> None:
        """Begin to connect; once."""
        self._client.start_async()

    def send(self, outgoing: OutgoingPacket) -> None:
        """Append a packet to the queue; on the connection's thread, while connected."""
        packet = _KazooRequest(outgoing)
        if self._client._queue:
            self._client._queue.append((packet, packet))  # whose bell has been rung already
        else:
            self._client._call(packet, packet)

    def wake(self) -> None:
        """Have ``send_queued`` called soon; any thread, never blocks."""
        self._handler.wake()

    def forget_version(self) -> None:
        """Ask the server again what it is, at the next connection."""
        self._handler.forget_version()

    def stop(self, timeout_ms: int) -> bool:
        """Connect no more, and wait for the loop to end: the owner feeds the packet that ends the session."""
        self._client._stopped.set()
        self._handler.wake()
        return self._handler.join(timeout_ms)

    def break_connection(self, timeout_ms: int) -> bool:
        """Break the connection from another thread, and wait for the loop to end."""
        self._handler.break_connection()
        return self._handler.join(timeout_ms)

    def close_descriptors(self) -> None:
        """Give the descriptors back, once the loop has ended."""
        self._handler.close_descriptors()

    def break_and_reconnect(self) -> None:
        """For fault tests: break the connection, and let the loop make another."""
        self._handler.break_connection()

    def expire(self, timeout_ms: int) -> None:
        """For fault tests: have the servers end the session now, as if it had timed out.

        Raises ``ZkTimeoutException`` when no server could be asked.
        """
        identity = (self._client._session_id, self._client._session_passwd)
        second = KazooClient(self._addresses, client_id=identity, logger=_quiet_logger())
        try:
            second.start(timeout_ms / 1000)
        except KazooTimeoutError as exc:
            raise ZkTimeoutException(f"no server to end session {identity[0]:#x} at") from exc
        second.stop()
        second.close()


class _KazooRequest:
    """As kazoo wants it: its request, and the receiver of its result, in one."""

    __slots__ = ("outgoing", "type")

    def __init__(self, outgoing: OutgoingPacket) -> None:
        self.type = outgoing.opcode
        self.outgoing = outgoing

    def serialize(self) -> bytes:
        return self.outgoing.body

    def set_exception(self, exc: Exception) -> None:
        self.outgoing.on_failure(is_session_over=isinstance(exc, SessionExpiredError))


class _KazooConnection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection loop, with packets sent, and answers and events read, by us."""

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
            # A server that is just starting may take the handshake and lose it: ask again while the session lives.
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
        """Everything that waits, in one piece, or in more of about ``SEND_BYTES``."""
        client = self.client
        frames = bytearray()
        while client._queue and len(frames) < SEND_BYTES:
            _, packet = client._queue.popleft()
            self._xid = self._xid % _XID_MAX + 1
            body = packet.serialize()
            frames += _REQUEST_HEADER.pack(_REQUEST_HEADER.size - 4 + len(body), self._xid, packet.type)
            frames += body
            # Before it is sent: it is unknown whether the server executes a partly sent packet.
            client._pending.append((packet, packet, self._xid))
        if not client._queue:
            with suppress(OSError):
                self._read_sock.recv(1)  # the bell: rung by the first that waits, until none does
        if frames:
            self._write(frames, connect_timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        """Whatever has come; the rest of a packet is waited for where everything is waited for."""
        if len(self.client._pending) >= GATHER_FROM_PACKETS:
            select.poll().poll(GATHER_MS)
        with self._socket_error_handling():
            try:
                received = self._socket.recv(RECEIVE_BYTES)
            except (BlockingIOError, ssl.SSLWantReadError, ssl.SSLWantWriteError):
                return None  # TLS spoke of itself
        if not received:
            raise ConnectionDropped("socket connection broken")
        self._frames.add(received)
        try:
            while (frame := self._frames.next()) is not None:
                if self._read_frame(frame) == CLOSE_RESPONSE:
                    return CLOSE_RESPONSE
        except (MalformedResponseError, struct.error) as exc:
            raise ConnectionDropped(f"bytes that are no packet: {exc}") from exc
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
            raise ConnectionDropped("an answer to nothing")
        _, packet, due = client._pending[0]
        if xid != due:
            raise ConnectionDropped(f"an answer to {xid} where {due} was due")
        client._pending.popleft()
        if zxid > 0:
            client.last_zxid = zxid
        packet.outgoing.on_response(error, frame, _REPLY_HEADER.size)
        return CLOSE_RESPONSE if packet.type == CLOSE_OPCODE else None


class _KazooHandler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's environment on one thread: what it waits for, how it connects, where it runs."""

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
        """Ask the server again what it is, at the next connection."""
        if self._address is not None:
            self._versions.pop(self._address, None)

    def wake(self) -> None:
        """Let the connection's thread look at the pipeline; any thread, never blocks."""
        try:
            self._wake_out.send(b"\0")
        except OSError:
            return  # full: it is being woken already; closed: there is nobody to wake

    def break_connection(self) -> None:
        """Break the connection from another thread."""
        broken = self._connection._socket
        try:
            if broken is not None:
                # Not TLS's own: its connection is another thread's.
                socket.socket.shutdown(broken, socket.SHUT_RDWR)
        except OSError:
            return

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end of the loop; False: it still runs."""
        if self.worker is not None:
            return self.worker.join(timeout_ms)
        # No loop was started, or a signal handler raised in ``spawn`` after the thread had started.
        return self._loop_ended is None or self._loop_ended.wait(timeout_ms / 1000)

    def close_descriptors(self) -> None:
        """Give the descriptors back; the thread has ended."""
        self._connection.close()
        self._wake_in.close()
        self._wake_out.close()

    # --- what kazoo calls

    def start(self) -> None:
        """No workers: answers and events are delivered where they are read."""

    def stop(self) -> None:
        """See ``start``."""

    def dispatch_callback(self, callback: Any) -> None:
        """kazoo's own watchers; we leave none."""

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
        self.last_error = f"{address[0]}:{address[1]} took the connection and gave no session{hint}"
        return connected

    # --- parts

    def _wait(self, rlist: list[Any], timeout: float) -> list[Any]:
        """Wait until the server sends data, a packet can be sent, or a ping is due."""
        end_ms = self._clock.now_ms() + round(timeout * 1000)
        while True:
            self._send_queued()
            now_ms = self._clock.now_ms()
            # What TLS has decrypted already makes no socket readable.
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
                raise self.timeout_exception("the server owes an answer for two thirds of the session time-out")
            if ready or now_ms >= end_ms:
                return list(ready)

    def _response_deadline_ms(self, now_ms: int) -> int:
        """When the oldest packet without an answer has waited too long; far away when there is none.

        Answers to pings do not count, as they do not for the lease.
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
        """A connected socket, after the handshake of TLS; ends early when the store is closed.  Raises ``OSError``."""
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
                except ssl.SSLWantReadError:  # TLS spoke of itself
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
        """Raises ``OSError`` when none is ready in time, or the store is closed meanwhile."""
        end_ms = self._clock.now_ms() + timeout_ms
        while not self._client._stopped.is_set():
            left_ms = end_ms - self._clock.now_ms()
            if left_ms <= 0:
                raise TimeoutError(errno.ETIMEDOUT, "no answer in time")
            ready = _ready([*rlist, self._wake_in], wlist, left_ms / 1000)
            self._drain()
            if ready[1] or any(each is not self._wake_in for each in ready[0]):
                return
        raise OSError(errno.ECANCELED, "closing")


def _ready(readers: list[socket.socket], writers: list[socket.socket], timeout_s: float) -> tuple[list[Any], list[Any]]:
    """Which of them need not be waited for; a socket that broke is ready for what was asked of it.

    kazoo's own asks the system five times for it, which is most of what a packet costs.
    """
    waiting = select.poll()
    for one in readers:
        waiting.register(one, select.POLLIN)
    for one in writers:
        waiting.register(one, select.POLLOUT)
    ready = {fd for fd, _ in waiting.poll(timeout_s * 1000)}
    return [one for one in readers if one.fileno() in ready], [one for one in writers if one.fileno() in ready]


def _connect_error_message(error: OSError) -> str:
    """The text of why a connection failed, for the user who configured it."""
    match error:
        case ssl.SSLCertVerificationError():
            return (
                f"its certificate is not accepted ({error.verify_message}); zookeeper.ssl.truststore.location must "
                "hold its authority, and the certificate the name in zookeeper.connect"
            )
        case ssl.SSLError():
            reason = error.reason or error.strerror or "the connection ended"
            return f"no TLS there ({reason}); is it a secure client port? does it want a certificate of ours?"
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
    """A silent logger for kazoo: its lines repeat our events for every connection attempt."""
    quiet = logging.getLogger("zkconsumer.zk.kazoo")
    if quiet.level == logging.NOTSET:
        quiet.setLevel(logging.CRITICAL)
    return quiet
