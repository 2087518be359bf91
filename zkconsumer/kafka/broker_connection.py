"""One blocking connection to one broker: a ``BrokerChannel`` over a blocking socket.

    send ----> frame ----> channel ----> transport      request = send + receive
    receive <- frame <---- channel <---- transport      answers come back in the order of the requests

One thread sends and receives; ``close`` may be called from any thread, and ends its blocked call at once.  The
connection opens at the first ``send``, and again at the first one after it broke.  It never repeats a request, since a
lost response does not show whether the request was executed.  After a break another broker, or another release of it,
may answer, so the caller negotiates again after a reconnect (``version_negotiation``).

A login with a lifetime is renewed by ``send``.  If no response is pending, ``send`` waits for the renewal.  Otherwise
the request waits in the channel, and the calls that receive the pending responses continue the renewal.

Errors are ``BrokerUnreachable`` for errors of the network or a missing broker (``net.connection_errors``), and
``RemoteProtocolError`` for bytes that no broker sends.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypedDict, TypeVar

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import (
    AuthenticationException,
    BrokerUnreachable,
    ConnectorClosed,
    ForkedError,
    KafkaException,
    RemoteProtocolError,
    SslAuthenticationException,
    UsageError,
)
from zkconsumer.kafka.net.broker_channel import BrokerChannel, ChannelFactory, ChannelPhase
from zkconsumer.kafka.net.connection_errors import (
    BrokerConnectionError,
    ConnectionFailureReason,
    connection_error,
    ended_error,
    guess_protocol,
)
from zkconsumer.kafka.net.frame_receiver import BufferAllocator
from zkconsumer.kafka.net.handshake_errors import HandshakeTimeoutError
from zkconsumer.kafka.net.sasl_client_authenticator import REQUEST_CORRELATION_ID_MAX
from zkconsumer.kafka.transport import SocketTransport, Transport, TransportFactory
from zkconsumer.wire.primitives import MalformedMessage
from zkconsumer.wire.request_frames import (
    RESPONSE_BYTES_MAX,
    SIZE_BYTES,
    correlation_id_of,
    decode_response,
    encode_request,
)
from zkconsumer.wire.schemas.message_schema import Api
from zkconsumer.wire.schemas.produce import ProduceRequest

Q = TypeVar("Q")
R = TypeVar("R")

CONNECT_TIMEOUT_MS = 10_000
"""How long a TCP connect may take; the Scala consumer had no separate limit for it."""

RECEIVE_BUFFER_BYTES = 64 * 1024
"""``socket.receive.buffer.bytes`` of the old consumer (0.8 to 1.1)."""

READABLE_TIMEOUT_MS = 1_000
"""How long a receive from a readable socket, or the sending of a few bytes, may take on a busy machine."""

ALERT_TIMEOUT_MS = 100
"""How long the TLS alert may take that says why this side ends a handshake."""

BROKER_ERRORS = (BrokerUnreachable, RemoteProtocolError, KafkaException, AuthenticationException)
"""Errors that concern one broker, and may not occur at another broker or later."""


@dataclass(frozen=True, slots=True, eq=False)
class PendingRequest(Generic[R]):
    """A request that was sent and whose response was not received yet."""

    api: Api[Any, R]
    version: int
    correlation_id: int

    def __str__(self) -> str:
        return f"{self.api.name} v{self.version}"


class Connection(Protocol):
    """A connection to one broker.  ``zkconsumer.testing`` has one without sockets."""

    @property
    def host(self) -> str: ...

    @property
    def port(self) -> int: ...

    def request(
        self,
        api: Api[Q, R],
        version: int,
        body: Q,
        timeout_ms: int,
        *,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        client_id: str | None = None,
    ) -> R:
        """Send a request, and wait for the response."""

    def send(
        self, api: Api[Q, R], version: int, body: Q, timeout_ms: int, *, client_id: str | None = None
    ) -> PendingRequest[R]:
        """Send a request without waiting; the responses must be received in the same order."""

    def receive(
        self,
        pending: PendingRequest[R],
        timeout_ms: int,
        *,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        new_buffer: BufferAllocator | None = None,
    ) -> R:
        """Receive the response to the oldest pending request."""

    def has_response(self, timeout_ms: int) -> bool:
        """Whether a receive would not block, within the timeout; a broken connection counts."""

    def receive_next(
        self, timeout_ms: int, *, response_bytes_max: int = RESPONSE_BYTES_MAX
    ) -> tuple[PendingRequest[Any], Any]:
        """Receive the next response and its request; earlier requests were ignored, and are not pending any more."""

    def close(self) -> None:
        """Close the connection permanently, from any thread."""


class ConnectionOptions(TypedDict, total=False):
    """The options of a ``ConnectionFactory``, for those that pass them on to ``BlockingConnection``."""

    client_id: str
    connect_timeout_ms: int
    receive_buffer_bytes: int


class ConnectionFactory(Protocol):
    """Makes a connection that opens when it is first used; ``BlockingConnection``, or one of a fake cluster."""

    def __call__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "",
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        receive_buffer_bytes: int = RECEIVE_BUFFER_BYTES,
    ) -> Connection: ...


class BlockingConnection:
    """A ``Connection``.  Nothing is opened before the first ``send``.

    ``request``, ``send`` and ``receive`` raise ``BrokerConnectionError`` (a ``BrokerUnreachable``),
    ``RemoteProtocolError``, ``ConnectorClosed`` after ``close``, ``ForkedError`` in a child process, and ``UsageError``
    for a request that cannot be written.  After any of the first two the connection is broken: pending answers are
    lost.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "",
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        receive_buffer_bytes: int = RECEIVE_BUFFER_BYTES,
        transport: TransportFactory = SocketTransport,
        channel: ChannelFactory = BrokerChannel,
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._host = host
        self._port = port
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._receive_buffer_bytes = receive_buffer_bytes
        self._new_transport = transport
        self._new_channel = channel
        self._clock = clock
        self._pid = os.getpid()
        self._correlation_id = 0
        self._pending: deque[PendingRequest[Any]] = deque()
        self._channel: BrokerChannel | None = None
        """What is above the transport; not None exactly while the connection is open and ready for requests."""
        self._lock = threading.Lock()
        # Under the lock: whether a thread is inside a call, the transport that it uses, and whether it must end.
        self._is_in_use = False
        self._transport: Transport | None = None
        self._is_closed = False

    @property
    def host(self) -> str:
        """The broker's host, as given."""
        return self._host

    @property
    def port(self) -> int:
        """The broker's port."""
        return self._port

    def __str__(self) -> str:
        return f"{self._host}:{self._port}"

    def request(
        self,
        api: Api[Q, R],
        version: int,
        body: Q,
        timeout_ms: int,
        *,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        client_id: str | None = None,
    ) -> R:
        """Send a request, and wait for the response; ``timeout_ms`` counts from when the connection is open.

        ``client_id``: for this request, instead of the connection's.
        """
        pending = self.send(api, version, body, timeout_ms, client_id=client_id)
        return self.receive(pending, timeout_ms, response_bytes_max=response_bytes_max)

    def send(
        self, api: Api[Q, R], version: int, body: Q, timeout_ms: int, *, client_id: str | None = None
    ) -> PendingRequest[R]:
        """Send a request without waiting; opens the connection (within its own timeout) if it is not open."""
        if isinstance(body, ProduceRequest) and body.acks == 0:
            raise UsageError("Produce with acks=0 has no answer, and this connection waits for one; use acks=1")
        with _ExclusiveUse(self):
            pending: PendingRequest[R] = PendingRequest(api, version, self._correlation_id)
            named = self._client_id if client_id is None else client_id
            frame = encode_request(api, version, pending.correlation_id, named, body)
            channel = self._channel or self._open()
            with _ErrorTranslation(self, pending, timeout_ms):
                now_ms = self._clock.now_ms()
                channel.maybe_renew(now_ms)
                channel.send(frame)
                if channel.is_renewing and not self._pending:
                    self._finish_renewal(channel, now_ms + timeout_ms)
                self._flush(channel, now_ms + timeout_ms)
            last = self._correlation_id
            self._correlation_id = 0 if last == REQUEST_CORRELATION_ID_MAX else last + 1
            self._pending.append(pending)
        return pending

    def receive(
        self,
        pending: PendingRequest[R],
        timeout_ms: int,
        *,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        new_buffer: BufferAllocator | None = None,
    ) -> R:
        """Receive the response to ``pending``, which must be the oldest pending request.

        ``response_bytes_max``: a longer response is rejected before it is read.  Record sets in the response are views
        of the received bytes, which live as long as one of them does.  ``new_buffer``: allocates the memory for these
        bytes.
        """
        with _ExclusiveUse(self):
            channel = self._channel_of(pending)
            if self._pending[0] is not pending:
                raise UsageError(f"the answer to {self._pending[0]} comes before that to {pending}")
            with _ErrorTranslation(self, pending, timeout_ms):
                deadline_ms = self._clock.now_ms() + timeout_ms
                data = self._frame(channel, pending, deadline_ms, response_bytes_max, new_buffer)
                body = self._decoded(pending, data)
            self._pending.popleft()
        return body

    def has_response(self, timeout_ms: int) -> bool:
        """Whether a receive would not block, within the timeout; a broken connection counts."""
        with _ExclusiveUse(self):
            channel = self._channel
            if channel is None:
                return True
            with _ErrorTranslation(self, "wait", timeout_ms):
                return self._has_response(channel, self._clock.now_ms() + timeout_ms)
        raise AssertionError("what fails is raised")

    def receive_next(
        self, timeout_ms: int, *, response_bytes_max: int = RESPONSE_BYTES_MAX
    ) -> tuple[PendingRequest[Any], Any]:
        """Receive the next response and its request; earlier requests were ignored, and are not pending any more.

        Brokers answer in order, but 0.9 sends nothing at all to a request that it does not know.
        """
        with _ExclusiveUse(self):
            if not self._pending:
                raise UsageError("no request is waiting for an answer")
            oldest = self._pending[0]
            channel = self._channel_of(oldest)
            with _ErrorTranslation(self, oldest, timeout_ms):
                data = self._frame(channel, oldest, self._clock.now_ms() + timeout_ms, response_bytes_max)
                answered = self._request_of(data)
                body = self._decoded(answered, data)
            while self._pending.popleft() is not answered:
                pass
        return answered, body

    def close(self) -> None:
        """Close the connection permanently.  A thread that is blocked in it gets ``ConnectorClosed`` at once."""
        if os.getpid() != self._pid:
            # The lock may be held by a thread that does not exist in this process, and an abort would reach the
            # parent's socket.
            self._is_closed = True
            self._release()
            return
        with self._lock:
            self._is_closed = True
            transport, is_in_use = self._transport, self._is_in_use
            if not is_in_use:
                self._transport = None
        if transport is not None:
            transport.abort()
            if not is_in_use:
                transport.release()

    def _enter(self) -> None:
        """See ``_ExclusiveUse``."""
        if os.getpid() != self._pid:
            raise ForkedError(f"the connection to {self} belongs to process {self._pid}; connect in the child instead")
        with self._lock:
            if self._is_closed:
                raise self._closed()
            if self._is_in_use:
                raise UsageError(f"two threads use the connection to {self} at once; give each its own")
            self._is_in_use = True

    def _leave(self) -> None:
        with self._lock:
            self._is_in_use = False
            is_closed = self._is_closed
        if is_closed:
            self._release()

    # --- opening ------------------------------------------------------------------------------------------------

    def _open(self) -> BrokerChannel:
        """Connect, and do the handshakes; all of it within the connect timeout."""
        channel = self._new_channel(self._host, self._port)
        self._place_transport()
        with _ErrorTranslation(self, "connect", self._connect_timeout_ms):
            deadline_ms = self._clock.now_ms() + self._connect_timeout_ms
            self._opened_transport().open(deadline_ms)
            self._channel = self._shake_hands(channel, deadline_ms)
        return self._channel

    def _place_transport(self) -> None:
        """Make a closed transport, unless the connection was closed meanwhile: a ``close`` can abort it from now on."""
        transport = self._new_transport(self._host, self._port, self._receive_buffer_bytes, self._clock)
        with self._lock:
            if self._is_closed:
                raise self._closed()
            self._transport = transport

    def _shake_hands(self, channel: BrokerChannel, deadline_ms: int) -> BrokerChannel:
        """Do what comes before the first request; returns the channel that is ready.

        That is another one if a broker of 0.9 closed the first connection (``BrokerChannel.needs_reconnect``).
        """
        channel.start(self._clock.now_ms())
        while channel.phase is not ChannelPhase.READY:
            try:
                self._exchange(channel, deadline_ms)
            except ConnectionError as error:
                lost = error if self._is_closed else channel.connection_lost(error)
                if lost is not None:
                    raise lost from lost.__cause__
            except SslAuthenticationException:
                self._send_alert(channel)
                raise
            if channel.needs_reconnect:
                channel = self._reconnect(channel, deadline_ms)
        self._flush(channel, deadline_ms)
        return channel

    def _reconnect(self, channel: BrokerChannel, deadline_ms: int) -> BrokerChannel:
        self._opened_transport().release()
        self._place_transport()
        self._opened_transport().open(deadline_ms)
        channel = channel.after_reconnect()
        channel.start(self._clock.now_ms())
        return channel

    def _send_alert(self, channel: BrokerChannel) -> None:
        """Send the reason to the other side (a TLS alert), as far as possible without waiting."""
        with suppress(OSError):
            while data := channel.bytes_to_write():
                self._opened_transport().send_all(data, self._clock.now_ms() + ALERT_TIMEOUT_MS)
                channel.bytes_written(len(data))

    # --- the channel's bytes --------------------------------------------------------------------------------------

    def _finish_renewal(self, channel: BrokerChannel, deadline_ms: int) -> None:
        """Wait for the renewal; what is received instead belongs to no request, and the next receive refuses it."""
        while channel.is_renewing and not channel.has_response():
            self._exchange(channel, deadline_ms)

    def _frame(
        self,
        channel: BrokerChannel,
        pending: PendingRequest[Any],
        deadline_ms: int,
        bytes_max: int,
        new_buffer: BufferAllocator | None = None,
    ) -> memoryview:
        """Receive one response; sends what a renewal of the login has to send after it."""
        is_renewing = channel.is_renewing
        while (data := channel.next_frame(bytes_max, new_buffer, pending)) is None:
            if channel.has_ended:
                raise ended_error(self._host, self._port, pending, channel.incomplete_bytes)
            self._exchange(channel, deadline_ms)
        if is_renewing:
            self._flush(channel, deadline_ms)
        return data

    def _has_response(self, channel: BrokerChannel, deadline_ms: int) -> bool:
        while not channel.has_response():
            self._flush(channel, max(deadline_ms, self._clock.now_ms() + READABLE_TIMEOUT_MS))
            if not self._opened_transport().wait(deadline_ms):
                return False
            if channel.response_frames is not None:
                return True
            # The deadline may have passed, and bytes that are there are still processed.
            self._exchange(channel, max(deadline_ms, self._clock.now_ms() + READABLE_TIMEOUT_MS))
        return True

    def _exchange(self, channel: BrokerChannel, deadline_ms: int) -> None:
        """Send what the channel has to send, and receive once; a handshake or a renewal has its own deadline."""
        limit_ms = channel.handshake_deadline_ms
        if limit_ms is not None:
            deadline_ms = min(deadline_ms, limit_ms)
        transport = self._transport
        assert transport is not None, "only the thread that uses the connection releases it"
        try:
            self._flush(channel, deadline_ms)
            view, is_sure = channel.receive_buffer()
            if is_sure:
                count = transport.fill(view, deadline_ms)
            else:
                count = transport.receive_into(view, deadline_ms)
        except TimeoutError:
            if limit_ms is None:
                raise
            raise HandshakeTimeoutError(channel.handshake_step) from None
        if count:
            channel.received(count, self._clock.now_ms())
            return
        if self._is_closed:
            raise ConnectionAbortedError("the transport was aborted")
        channel.receive_eof(self._clock.now_ms())

    def _flush(self, channel: BrokerChannel, deadline_ms: int) -> None:
        """Send what the channel has to send."""
        while data := channel.bytes_to_write():
            try:
                self._opened_transport().send_all(data, deadline_ms)
            except ConnectionError:
                if channel.has_tls:
                    self._raise_pending_alert(channel)
                raise
            channel.bytes_written(len(data))

    def _raise_pending_alert(self, channel: BrokerChannel) -> None:
        """The other side has closed the connection; raise its last TLS alert, if it was a rejection."""
        transport = self._opened_transport()
        with suppress(OSError):
            while transport.wait(self._clock.now_ms()):
                view, _ = channel.receive_buffer()
                count = transport.receive_into(view, self._clock.now_ms() + 1)
                if count == 0:
                    return
                channel.received(count, self._clock.now_ms())
                channel.raise_pending_alert()

    # --- the end --------------------------------------------------------------------------------------------------

    def _release(self) -> None:
        transport, self._transport = self._transport, None
        self._channel = None
        self._pending.clear()
        if transport is not None:
            transport.release()

    def _break(self, error: BaseException, what: str, timeout_ms: int) -> None:
        """Release the connection after an error, and raise the translated error, unless ``error`` is already one.

        Also after an interruption in the middle of a frame: the next bytes on this connection would be misread.
        """
        self._release()
        if not isinstance(error, OSError | MalformedMessage | BrokerConnectionError):
            return
        if self._is_closed:
            raise self._closed() from error
        if isinstance(error, OSError):
            raise connection_error(self._host, self._port, error, what, timeout_ms) from error

    def _closed(self) -> ConnectorClosed:
        return ConnectorClosed(f"the connection to {self} was closed by this process")

    def _channel_of(self, pending: PendingRequest[Any]) -> BrokerChannel:
        """The channel on which the answer to ``pending`` will come."""
        if pending not in self._pending:
            words = f"the connection broke before {pending} was answered"
            raise BrokerConnectionError(self._host, self._port, ConnectionFailureReason.CLOSED, words)
        assert self._channel is not None, "a request is pending only on an open connection"
        return self._channel

    def _opened_transport(self) -> Transport:
        transport = self._transport
        assert transport is not None, "only the thread that uses the connection releases it"
        return transport

    def _request_of(self, data: memoryview) -> PendingRequest[Any]:
        """Return the request of a response; the oldest if none matches, and then decoding reports the error."""
        correlation_id = correlation_id_of(data)
        for pending in self._pending:
            if pending.correlation_id == correlation_id:
                return pending
        return self._pending[0]

    def _decoded(self, pending: PendingRequest[R], data: memoryview) -> R:
        try:
            answered = correlation_id_of(data)
            if answered != pending.correlation_id:
                why = f"{answered}, expected {pending.correlation_id}{guess_protocol(bytes(data[:SIZE_BYTES]))}"
                raise MalformedMessage(f"{pending} response", "correlation_id", 0, why)
            return decode_response(pending.api, pending.version, data)[1]
        except MalformedMessage as error:
            raise MalformedMessage(f"{self}: {error.message}", error.field, error.offset, error.why) from None


class _ExclusiveUse:
    """One thread's use of the connection; a close meanwhile releases the connection only when that use ends."""

    __slots__ = ("_connection",)

    def __init__(self, connection: BlockingConnection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        self._connection._enter()

    def __exit__(self, *_: object) -> None:
        self._connection._leave()


class _ErrorTranslation:
    """Translates errors: any error inside breaks the connection and is raised as one of ours."""

    __slots__ = ("_connection", "_timeout_ms", "_what")

    def __init__(self, connection: BlockingConnection, what: object, timeout_ms: int) -> None:
        self._connection = connection
        self._what = what
        self._timeout_ms = timeout_ms

    def __enter__(self) -> None:
        """Nothing to do."""

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if error is not None:
            self._connection._break(error, str(self._what), self._timeout_ms)
