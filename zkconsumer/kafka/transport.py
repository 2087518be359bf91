"""Bytes to a broker and from it: the part of a connection that uses sockets.

A transport is created closed, so that another thread can abort it while it still connects.  One thread opens,
sends, receives and releases it; only ``abort`` may be called from any thread, and ends the blocked call of that one
thread at once.  Deadlines are ``Clock.now_ms`` times.  Only ``OSError`` is raised (``TimeoutError`` at the
deadline); ``net.connection_errors`` translates it.  TLS and the login are above this, in ``net.broker_channel``.
"""

from __future__ import annotations

import contextlib
import selectors
import socket
import struct
import threading
from typing import Any, Final, Protocol

from zkconsumer.base.clock import Clock
from zkconsumer.kafka.net.compiled_sockets import NO_WAKE_UP, SOCKETS

ADDRESSES_MAX = 8
"""How many addresses of one host name are tried."""

WAIT_MS_MAX = 24 * 24 * 3_600_000
"""The longest wait: 24 days, because a system call takes at most 2^31 - 1 ms.  A longer timeout ends then."""

OneWaitSelector: Final = getattr(selectors, "PollSelector", selectors.DefaultSelector)
"""For a single wait: it opens no descriptor, and has fewer system calls than the default selector."""

HAS_WAIT_ALL: Final = hasattr(socket, "MSG_WAITALL")
SECONDS_AND_MICROSECONDS = struct.Struct("@ll")
"""``struct timeval``, the value of SO_RCVTIMEO and SO_SNDTIMEO on 64-bit Linux and macOS."""


class Transport(Protocol):
    """A stream of bytes to one broker."""

    def open(self, deadline_ms: int) -> None:
        """Connect."""

    def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None:
        """Send everything."""

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        """Fill the beginning of ``view`` with available bytes, waiting for at least one; 0: the other side ended."""

    def fill(self, view: memoryview, deadline_ms: int) -> int:
        """Fill the whole of ``view``; returns the number of bytes: fewer, if the other side ended."""

    def wait(self, deadline_ms: int) -> bool:
        """Whether a receive would not block, by then; the end of the stream counts."""

    def abort(self) -> None:
        """End every blocked call, and every later one, at once; from any thread."""

    def release(self) -> None:
        """Close the descriptor; not while another thread is inside a call."""


def fill_by_receiving(transport: Transport, view: memoryview, deadline_ms: int) -> int:
    """``Transport.fill`` by ``receive_into``, for transports that have nothing faster."""
    filled = 0
    while filled < len(view) and (received := transport.receive_into(view[filled:], deadline_ms)):
        filled += received
    return filled


class TransportFactory(Protocol):
    """Makes a transport that is not connected yet."""

    def __call__(self, host: str, port: int, receive_buffer_bytes: int, clock: Clock) -> Transport: ...


class SocketTransport:
    """TCP, with keep-alive and without Nagle's delay.

    ``abort`` ends a receive or a send at once on every system, and a connect at once on Linux; a slow name resolution
    cannot be interrupted (the resolver has no deadline).

    Once connected, the socket blocks in the kernel (SO_RCVTIMEO, SO_SNDTIMEO), so that a receive is one system call in
    which the thread does not need the global interpreter lock.  With a timeout of the ``socket`` module it would be
    two, and each takes the lock again, which a thread that computes releases only after ``sys.getswitchinterval``
    (5 ms).  Only the main thread waits first: it runs signal handlers, and a system call that is repeated after each
    signal would start its timeout again.  It fills a buffer by ``_sockets.receive``, which waits without a call of
    Python for each part that arrives.
    """

    def __init__(self, host: str, port: int, receive_buffer_bytes: int, clock: Clock) -> None:
        self._host = host
        self._port = port
        self._receive_buffer_bytes = receive_buffer_bytes
        self._clock = clock
        # Held while the descriptor is shut down or closed: the number of a closed one may already belong to another
        # file.
        self._lock = threading.Lock()
        self._socket: socket.socket | None = None
        self._is_aborted = False
        self._timeouts_ms: dict[int, int] = {}
        """The timeouts that were last set in the kernel: option -> ms."""

    def open(self, deadline_ms: int) -> None:
        try:
            addresses = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)
        except UnicodeError as error:  # a label that IDNA does not allow: empty, or longer than 63 characters
            raise socket.gaierror(socket.EAI_NONAME, str(error)) from error
        last_error: OSError = OSError(f"{self._host} has no address")
        for family, kind, protocol, _, address in addresses[:ADDRESSES_MAX]:
            try:
                self._connect(socket.socket(family, kind, protocol), address, deadline_ms)
                return
            except TimeoutError:
                raise
            except OSError as error:
                self.release()
                self._refuse_if_aborted()
                last_error = error
        raise last_error

    def _connect(self, sock: socket.socket, address: tuple[Any, ...], deadline_ms: int) -> None:
        self._socket = sock
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        if self._receive_buffer_bytes > 0:
            # Before connecting: the first packets negotiate the window to which a connection can grow.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
        self._refuse_if_aborted()
        sock.settimeout(self._left(deadline_ms))
        sock.connect(address)
        # Shutting a connecting socket down lets ``connect`` return as if it had succeeded.
        self._refuse_if_aborted()
        sock.settimeout(None)
        self._timeouts_ms.clear()

    def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None:
        sock = self._opened()
        sent = 0
        while sent < len(data):
            self._set_timeout(sock, socket.SO_SNDTIMEO, selectors.EVENT_WRITE, deadline_ms)
            try:
                sent += sock.send(memoryview(data)[sent:] if sent else data)
            except BlockingIOError:
                continue  # the time is up, or nearly: ``_left`` decides

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        sock = self._opened()
        while True:
            self._set_timeout(sock, socket.SO_RCVTIMEO, selectors.EVENT_READ, deadline_ms)
            try:
                return sock.recv_into(view)
            except BlockingIOError:
                continue

    def fill(self, view: memoryview, deadline_ms: int) -> int:
        sock = self._opened()
        filled = 0
        while filled < len(view):
            try:
                received = self._receive_part(sock, view[filled:], deadline_ms)
            except BlockingIOError:
                continue  # the time is up, or a signal has arrived, and its handler has run
            if received == 0:
                break
            filled += received
        return filled

    def _receive_part(self, sock: socket.socket, view: memoryview, deadline_ms: int) -> int:
        """As much of ``view`` as one call can fill."""
        if SOCKETS is not None and _is_main_thread():
            wait_ms = int(self._left(deadline_ms) * 1000)
            received: int = SOCKETS.receive(sock.fileno(), NO_WAKE_UP, wait_ms, view)
            return received
        self._set_timeout(sock, socket.SO_RCVTIMEO, selectors.EVENT_READ, deadline_ms)
        return sock.recv_into(view, 0, socket.MSG_WAITALL if HAS_WAIT_ALL and not _is_main_thread() else 0)

    def wait(self, deadline_ms: int) -> bool:
        return self._wait(self._opened(), selectors.EVENT_READ, max(0, self._left_ms(deadline_ms)) / 1000)

    def abort(self) -> None:
        with self._lock:
            self._is_aborted = True
            if self._socket is not None:
                with contextlib.suppress(OSError):
                    self._socket.shutdown(socket.SHUT_RDWR)

    def release(self) -> None:
        with self._lock:
            sock, self._socket = self._socket, None
            if sock is not None:
                sock.close()

    def _set_timeout(self, sock: socket.socket, option: int, event: int, deadline_ms: int) -> None:
        """Make the next call on the socket end at the deadline, or earlier: then it is repeated.

        The timeout that was set for the previous call mostly serves this one too.
        """
        left_s = self._left(deadline_ms)
        if _is_main_thread() and not self._wait(sock, event, left_s):
            raise TimeoutError
        left_ms = int(left_s * 1000)
        if not left_ms * 7 // 8 <= self._timeouts_ms.get(option, -1) <= left_ms:
            self._timeouts_ms[option] = left_ms
            sock.setsockopt(
                socket.SOL_SOCKET, option, SECONDS_AND_MICROSECONDS.pack(left_ms // 1000, left_ms % 1000 * 1000)
            )

    @staticmethod
    def _wait(sock: socket.socket, event: int, seconds: float) -> bool:
        with OneWaitSelector() as ready:
            ready.register(sock, event)
            return ready.select(seconds) != []

    def _opened(self) -> socket.socket:
        self._refuse_if_aborted()
        if self._socket is None:
            raise ConnectionAbortedError("the transport is not open")
        return self._socket

    def _refuse_if_aborted(self) -> None:
        if self._is_aborted:
            raise ConnectionAbortedError("the transport was aborted")

    def _left(self, deadline_ms: int) -> float:
        """Seconds to the deadline.  Never 0, which would mean "do not wait at all" or "without a limit"."""
        left_ms = self._left_ms(deadline_ms)
        if left_ms <= 0:
            raise TimeoutError
        return left_ms / 1000

    def _left_ms(self, deadline_ms: int) -> int:
        return min(WAIT_MS_MAX, deadline_ms - self._clock.now_ms())


def _is_main_thread() -> bool:
    return threading.get_ident() == threading.main_thread().ident
