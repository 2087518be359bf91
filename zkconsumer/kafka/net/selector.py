"""``Selector``: non-blocking sockets to brokers, and the channels of TLS and SASL on them (IO).

One thread calls ``connect``, ``send``, ``drop`` and ``poll``; any thread may call ``wakeup``.  The selector decides
nothing: what happens on its sockets becomes events for the network machine (``network_messages``).

    connect --> TCP connect --> channel.start --> TLS, login --> NodeConnected --> FrameReceived, RequestWritten ...
                    |                                 |                |
                    '---------------------------------'----------------'--> NodeDisconnected, once; the socket is closed

Each attempt to connect ends with one ``NodeConnected`` or one ``NodeDisconnected``, unless ``drop`` ends it without an
event.  A broker that never answers is no event: the network machine has the time-outs.  Only the renewal of a login
(KIP-368) has its deadline here, since the machine does not know of it.

``send`` writes at once as much as the socket takes, so a small request is one system call before the wait.

The rest of a large response is received by ``_sockets.receive``, which waits for its bytes itself, so that a part of it
costs no call of Python.

``is_in_io``: a thread is between a call of the socket and the call of the channel that belongs to it.  If an exception
of a signal handler (Ctrl-C) interrupts it there, bytes are lost, so the next ``poll`` ends this connection.
"""

from __future__ import annotations

import contextlib
import errno
import selectors
import socket
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from functools import partial
from typing import Final

from zkconsumer.base.clock import Clock
from zkconsumer.base.timer import FOREVER_MS
from zkconsumer.errors import AuthenticationException, InvalidConfigException, RemoteProtocolError
from zkconsumer.kafka.net.broker_channel import BrokerChannel, ChannelFactory, ChannelPhase
from zkconsumer.kafka.net.compiled_sockets import SOCKETS
from zkconsumer.kafka.net.handshake_errors import HandshakeClosedError, HandshakeTimeoutError
from zkconsumer.kafka.net.network_messages import (
    DisconnectReason,
    FrameReceived,
    NetworkEvent,
    NodeConnected,
    NodeDisconnected,
    RequestWritten,
)
from zkconsumer.wire.request_frames import RESPONSE_BYTES_MAX

READS_MAX = 64
"""How many system calls read from one socket before the others have their turn."""

RESPONSE_MS_MAX = 10
"""How long the rest of a response is received before other sockets have their turn; a wake-up ends it earlier."""

WAKE_UP_BYTES = 1024
SELECT_MS_MAX = 24 * 3_600_000
"""The longest wait of one system call; a longer one is several polls."""

_CONNECTING: Final = frozenset({0, errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EINTR})


@dataclass(slots=True, eq=False)
class BrokerSocket:
    """One connection.

    ``interest``: the events for which the socket is registered.  ``has_login``: of the channel.
    ``is_announced``: ``NodeConnected`` was returned.
    ``has_unwritten_frame``: a frame was sent, and ``RequestWritten`` was not returned yet.  ``is_in_response``: a part
    of a response has arrived, and its size is known.
    """

    node_id: int
    port: int
    address: str
    socket: socket.socket
    channel: BrokerChannel
    has_login: bool
    interest: int = selectors.EVENT_WRITE
    is_tcp_connected: bool = False
    is_announced: bool = False
    has_unwritten_frame: bool = False
    is_in_response: bool = False
    is_in_io: bool = False


class ReceivedParts(Enum):
    """What ``receive_more`` has found."""

    NONE = auto()
    """No response has begun to arrive."""
    SOME = auto()
    """Responses have begun to arrive, and none is complete."""
    EVENT = auto()
    """A response is complete, or a socket has another event, or bytes to write: call ``poll``."""


_NONE, _SOME, _EVENT = ReceivedParts
"""For ``receive_more``: a look-up in an enum class costs as much as a call."""


class Selector:
    """See the module.  ``send_buffer_bytes``, ``receive_buffer_bytes``: not above 0 means the system's default."""

    def __init__(
        self,
        new_channel: ChannelFactory,
        clock: Clock,
        *,
        send_buffer_bytes: int = -1,
        receive_buffer_bytes: int = -1,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
    ) -> None:
        self._new_channel = new_channel
        self._clock = clock
        self._send_buffer_bytes = send_buffer_bytes
        self._receive_buffer_bytes = receive_buffer_bytes
        self._response_bytes_max = response_bytes_max
        self._sockets: dict[int, BrokerSocket] = {}
        """Node id -> its connection; each socket here is registered in ``_selector``."""
        self._events: list[NetworkEvent] = []
        self._selector = selectors.DefaultSelector()
        self._wake_up_reader, self._wake_up_writer = socket.socketpair()
        self._wake_up_reader.setblocking(False)
        self._wake_up_writer.setblocking(False)
        self._selector.register(self._wake_up_reader, selectors.EVENT_READ, None)

    def connect(self, node_id: int, host: str, port: int, address: str) -> None:
        """Begin to connect to an IP address, IPv4 or IPv6; ``host`` is the name for TLS and SASL."""
        assert node_id not in self._sockets, "a node has one connection"
        self._open(node_id, port, address, self._new_channel(host, port))

    def send(self, node_id: int, frame: bytes) -> None:
        """Send a frame on a connection that was announced; one that has failed meanwhile ignores it."""
        connection = self._sockets.get(node_id)
        if connection is None:
            return
        connection.has_unwritten_frame = True
        try:
            connection.channel.maybe_renew(self._clock.now_ms())
            connection.channel.send(frame)
        except _CHANNEL_ERRORS as error:
            self._fail(connection, error)
            return
        self._write(connection)

    def drop(self, node_id: int) -> None:
        """Close a connection, if there is one; no event follows, and earlier events of it are discarded."""
        connection = self._sockets.get(node_id)
        if connection is not None:
            self._close(connection)
        self._events = [event for event in self._events if event.node_id != node_id]

    def take_events(self) -> list[NetworkEvent]:
        """The events since the last call, in their order."""
        events, self._events = self._events, []
        return events

    def poll(self, timeout_ms: int) -> list[NetworkEvent]:
        """Wait for an event or ``wakeup``, at most ``timeout_ms``; returns the events.

        It does not wait if there are events already.  It goes on to wait when a part of a response has arrived.
        """
        for connection in [each for each in self._sockets.values() if each.is_in_io]:
            self._end(connection, NodeDisconnected(connection.node_id, DisconnectReason.LOCAL_CLOSE, "interrupted"))
        wait_ms = 0
        if timeout_ms > 0 and not self._events:
            wait_ms = min(timeout_ms, self._time_to_deadline_ms(), SELECT_MS_MAX)
        end_ms = self._clock.now_ms() + wait_ms
        while self._handle_ready_sockets(wait_ms) and wait_ms > 0:
            wait_ms = end_ms - self._clock.now_ms()
        self._end_late_handshakes()
        return self.take_events()

    def _handle_ready_sockets(self, wait_ms: int) -> bool:
        """Wait for ready sockets; returns whether there were some, and neither an event nor a wake-up."""
        ready = self._selector.select(max(0, wait_ms) / 1000)
        is_woken = False
        for key, mask in ready:
            connection = key.data
            if connection is None:
                self._clear_wake_up()
                is_woken = True
                continue
            if not connection.is_tcp_connected:
                self._on_tcp_connected(connection)
                continue
            if mask & selectors.EVENT_READ and self._is_open(connection):
                self._read(connection, wait_ms)
            if mask & selectors.EVENT_WRITE and self._is_open(connection):
                self._write(connection)
        return len(ready) > 0 and not is_woken and not self._events

    def receive_more(self) -> ReceivedParts:
        """Receive more of the responses that have begun to arrive, without waiting."""
        found = _NONE
        for connection in self._sockets.values():
            if connection.interest & selectors.EVENT_WRITE:
                return _EVENT
            if not connection.is_in_response:
                continue
            try:
                self._receive(connection)
            except _CHANNEL_ERRORS as error:
                connection.is_in_io = False
                self._fail(connection, error)
                return _EVENT
            if connection.channel.has_ended:
                self._report(connection)
                return _EVENT
            found = _SOME
        return _EVENT if self._events else found

    def is_any_socket_ready(self) -> bool:
        """Whether ``poll`` would find an event now, or a wake-up."""
        return bool(self._events or self._selector.select(0))

    def wakeup(self) -> None:
        """End the present ``poll``, or the next one, without waiting; from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):  # it is full of wake-ups already, or closed
            self._wake_up_writer.send(b"\0")

    def close(self) -> None:
        """Close all connections.

        In a child process only the descriptors of the child: it shares the kernel's list of watched sockets with its
        parent, so nothing is removed from that.
        """
        for connection in self._sockets.values():
            connection.socket.close()
        self._sockets.clear()
        self._selector.close()
        self._wake_up_reader.close()
        self._wake_up_writer.close()

    # --- sockets ----------------------------------------------------------------------------------------------------

    def _open(self, node_id: int, port: int, address: str, channel: BrokerChannel) -> None:
        try:
            sock = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET, socket.SOCK_STREAM)
        except OSError as error:  # too many open files, or no IPv6
            self._events.append(NodeDisconnected(node_id, DisconnectReason.NOT_CONNECTED, f"{address}: {error}"))
            return
        connection = BrokerSocket(node_id, port, address, sock, channel, channel.has_login)
        self._sockets[node_id] = connection
        sock.setblocking(False)
        self._selector.register(sock, connection.interest, connection)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            if self._send_buffer_bytes > 0:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, self._send_buffer_bytes)
            if self._receive_buffer_bytes > 0:
                # Before connecting: the first packets negotiate the window to which a connection can grow.
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_buffer_bytes)
            code = sock.connect_ex((address, port))
        except OSError as error:
            code = error.errno or errno.EINVAL
        except OverflowError:  # a port that does not exist; brokers may name any number
            code = errno.EINVAL
        if code not in _CONNECTING:
            self._end_connect(connection, code)

    def _on_tcp_connected(self, connection: BrokerSocket) -> None:
        code = connection.socket.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code != 0:
            self._end_connect(connection, code)
            return
        connection.is_tcp_connected = True
        try:
            connection.channel.start(self._clock.now_ms())
        except _CHANNEL_ERRORS as error:
            self._fail(connection, error)
            return
        self._write(connection)

    def _end_connect(self, connection: BrokerSocket, code: int) -> None:
        why = OSError(code, errno.errorcode.get(code, ""))
        detail = f"{connection.address}:{connection.port}: {why.strerror}"
        self._end(connection, NodeDisconnected(connection.node_id, DisconnectReason.NOT_CONNECTED, detail))

    def _write(self, connection: BrokerSocket) -> None:
        """Write what the channel has; then report what has become true of it."""
        try:
            while data := connection.channel.bytes_to_write():
                connection.is_in_io = True
                try:
                    written = connection.socket.send(data)
                except BlockingIOError:
                    connection.is_in_io = False
                    break
                connection.channel.bytes_written(written)
                connection.is_in_io = False
        except OSError as error:
            connection.is_in_io = False
            self._on_failed_write(connection, error)
            return
        self._report(connection)

    def _read(self, connection: BrokerSocket, wait_ms: int) -> None:
        channel = connection.channel
        has_only_responses = channel.response_frames is not None
        try:
            for _ in range(READS_MAX):
                if not self._receive(connection, 0 if self._events else wait_ms):
                    break
        except _CHANNEL_ERRORS as error:
            connection.is_in_io = False
            self._fail(connection, error)
            return
        if channel.has_ended or not has_only_responses:
            self._write(connection)

    def _receive(self, connection: BrokerSocket, wait_ms: int = 0) -> bool:
        """Receive once, and take the whole frames; returns whether more may be there.

        ``wait_ms``: how long this may wait for the rest of a response.
        """
        channel = connection.channel
        frames = channel.response_frames
        if frames is not None and not frames.missing_bytes:
            frames = None
        connection.is_in_io = True
        try:
            if frames is not None:
                receive: Callable[[memoryview], int] = connection.socket.recv_into
                if wait_ms > 0 and SOCKETS is not None:
                    wake_up, wait_ms = self._wake_up_reader.fileno(), min(wait_ms, RESPONSE_MS_MAX)
                    receive = partial(SOCKETS.receive, connection.socket.fileno(), wake_up, wait_ms)
                received = frames.receive(receive)
                has_more = frames.missing_bytes == 0
                if received and not has_more:
                    connection.is_in_io = False
                    return False
            else:
                view, _ = channel.receive_buffer()
                received = connection.socket.recv_into(view)
                has_more = 0 < received == len(view)
        except BlockingIOError:
            connection.is_in_io = False
            return False
        if not received:
            channel.receive_eof(self._clock.now_ms())
        elif frames is None:
            channel.received(received, self._clock.now_ms())
        connection.is_in_io = False
        self._announce_if_ready(connection)
        if connection.is_announced:
            self._take_frames(connection)
        return has_more

    def _take_frames(self, connection: BrokerSocket) -> None:
        what = f"response of node {connection.node_id}"
        while (frame := connection.channel.next_frame(bytes_max=self._response_bytes_max, what=what)) is not None:
            self._events.append(FrameReceived(connection.node_id, frame))
        connection.is_in_response = connection.channel.is_in_response

    def _announce_if_ready(self, connection: BrokerSocket) -> None:
        if not connection.is_announced and connection.channel.phase is ChannelPhase.READY:
            connection.is_announced = True
            self._events.append(NodeConnected(connection.node_id))

    def _report(self, connection: BrokerSocket) -> None:
        channel = connection.channel
        if channel.needs_reconnect:
            self._reconnect(connection)
            return
        if connection.is_announced and channel.has_ended:
            self._end(connection, NodeDisconnected(connection.node_id, DisconnectReason.CLOSED))
            return
        self._announce_if_ready(connection)
        has_output = len(channel.bytes_to_write()) > 0
        if connection.has_unwritten_frame and not has_output and not channel.is_renewing:
            connection.has_unwritten_frame = False
            self._events.append(RequestWritten(connection.node_id))
        interest = selectors.EVENT_READ | (selectors.EVENT_WRITE if has_output else 0)
        if interest != connection.interest:
            connection.interest = interest
            self._selector.modify(connection.socket, interest, connection)

    # --- ends -------------------------------------------------------------------------------------------------------

    def _on_failed_write(self, connection: BrokerSocket, error: OSError) -> None:
        """Read first what the broker sent before it closed: responses, or a TLS alert that explains it."""
        try:
            while self._receive(connection):
                pass
            if connection.channel.has_tls:
                connection.channel.raise_pending_alert()
        except OSError:
            connection.is_in_io = False
        except _CHANNEL_ERRORS as explained:
            connection.is_in_io = False
            self._fail(connection, explained)
            return
        self._fail(connection, error)

    def _fail(self, connection: BrokerSocket, error: Exception) -> None:
        """End a connection on which the socket or the channel raised an exception."""
        if isinstance(error, ConnectionError) and not isinstance(error, HandshakeClosedError):
            explained = connection.channel.connection_lost(error)
            if explained is None:
                self._reconnect(connection)
                return
            error = explained
        self._write_alert(connection)
        node_id = connection.node_id
        match error:
            case AuthenticationException():
                reason = DisconnectReason.AUTHENTICATION_FAILED
                self._end(connection, NodeDisconnected(node_id, reason, str(error), error))
            case InvalidConfigException():
                refused = AuthenticationException(str(error))
                refused.__cause__ = error
                reason = DisconnectReason.AUTHENTICATION_FAILED
                self._end(connection, NodeDisconnected(node_id, reason, str(error), refused))
            case RemoteProtocolError():
                self._end(connection, NodeDisconnected(node_id, DisconnectReason.INVALID_RESPONSE, str(error)))
            case _:
                is_early = (
                    isinstance(error, HandshakeClosedError | HandshakeTimeoutError) or not connection.is_announced
                )
                reason = DisconnectReason.CLOSED_IN_HANDSHAKE if is_early else DisconnectReason.CLOSED
                self._end(connection, NodeDisconnected(node_id, reason, str(error)))

    def _write_alert(self, connection: BrokerSocket) -> None:
        """A failed TLS handshake may have an alert for the broker; it is sent if the socket takes it."""
        with contextlib.suppress(OSError):
            while data := connection.channel.bytes_to_write():
                connection.channel.bytes_written(connection.socket.send(data))

    def _reconnect(self, connection: BrokerSocket) -> None:
        """The login continues on another connection to the same address (GSSAPI at brokers of 0.9)."""
        self._close(connection)
        self._open(connection.node_id, connection.port, connection.address, connection.channel.after_reconnect())

    def _end(self, connection: BrokerSocket, event: NodeDisconnected) -> None:
        self._close(connection)
        self._events.append(event)

    def _close(self, connection: BrokerSocket) -> None:
        del self._sockets[connection.node_id]
        self._selector.unregister(connection.socket)
        connection.socket.close()

    def _is_open(self, connection: BrokerSocket) -> bool:
        return self._sockets.get(connection.node_id) is connection

    def _time_to_deadline_ms(self) -> int:
        deadlines = [deadline_ms for _, deadline_ms in self._renewals()]
        return max(0, min(deadlines) - self._clock.now_ms()) if deadlines else FOREVER_MS

    def _end_late_handshakes(self) -> None:
        for connection, deadline_ms in self._renewals():
            if self._clock.now_ms() >= deadline_ms:
                self._fail(connection, HandshakeTimeoutError(f"{connection.channel.handshake_step}: no answer in time"))

    def _renewals(self) -> list[tuple[BrokerSocket, int]]:
        """The connections whose login is being renewed, and until when."""
        return [
            (each, deadline_ms)
            for each in self._sockets.values()
            if each.has_login and each.is_announced and (deadline_ms := each.channel.handshake_deadline_ms) is not None
        ]

    def _clear_wake_up(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while len(self._wake_up_reader.recv(WAKE_UP_BYTES)) == WAKE_UP_BYTES:
                pass


_CHANNEL_ERRORS = (OSError, AuthenticationException, RemoteProtocolError, InvalidConfigException)
"""What a socket or a channel raises when a connection has failed."""
