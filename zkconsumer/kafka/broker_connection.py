"""One blocking connection to one broker.

    send ----> frame ----> transport            request = send + receive
    receive <- frame <---- transport            answers come back in the order of the requests

One thread sends and receives; ``close`` may be called from any thread, and ends its blocked call at once.  The
connection opens at the first ``send``, and again at the first one after it broke.  It never repeats a request, since a
lost response does not show whether the request was executed.  After a break another broker, or another release of it,
may answer, so the caller negotiates again after a reconnect (``version_negotiation``).

Errors are translated here and nowhere else: ``BrokerUnreachable`` for errors of the network or a missing broker,
``RemoteProtocolError`` for bytes that no broker sends.
"""

from __future__ import annotations

import os
import socket
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any, Generic, NoReturn, Protocol, TypeAlias, TypedDict, TypeVar

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import (
    AuthenticationException,
    BrokerUnreachable,
    ConnectorClosed,
    ForkedError,
    KafkaException,
    RemoteProtocolError,
    UsageError,
)
from zkconsumer.kafka.transport import (
    HandshakeClosedError,
    HandshakeTimeoutError,
    SocketTransport,
    Transport,
    TransportFactory,
)
from zkconsumer.wire import compiled
from zkconsumer.wire.primitives import MalformedMessage
from zkconsumer.wire.request_frames import (
    RESPONSE_BYTES_MAX,
    SIZE_BYTES,
    correlation_id_of,
    decode_response,
    encode_request,
    frame_size,
)
from zkconsumer.wire.schemas.message_schema import Api
from zkconsumer.wire.schemas.produce import ProduceRequest

Q = TypeVar("Q")
R = TypeVar("R")

CONNECT_TIMEOUT_MS = 10_000
"""How long a TCP connect may take; the Scala consumer had no separate limit for it."""

RECEIVE_BUFFER_BYTES = 64 * 1024
"""``socket.receive.buffer.bytes`` of the old consumer (0.8 to 1.1)."""

CORRELATION_ID_MAX = 0x7FFF_FFFF

RECEIVE_AHEAD_BYTES = 64 * 1024
"""How many bytes are received at a time before the size of a response is known, so that a small response is one system
call.  As much as the default receive buffer of a socket."""

BufferAllocator: TypeAlias = Callable[[int], memoryview]
"""A writable buffer of this size, with undefined content."""


BROKER_ERRORS = (BrokerUnreachable, RemoteProtocolError, KafkaException, AuthenticationException)
"""Errors that concern one broker, and may not occur at another broker or later."""


def uninitialized_buffer(size: int) -> memoryview:
    """A ``BufferAllocator``; zeros where the compiled decoder is missing."""
    return memoryview(bytearray(size) if compiled.RECORD_DECODER is None else compiled.RECORD_DECODER.unwritten(size))


class ConnectionFailureReason(Enum):
    """Why a broker could not be reached."""

    UNRESOLVED = "its name has no address"
    REFUSED = "nothing listens there"
    TIMED_OUT = "it did not answer in time"
    CLOSED = "it closed the connection"
    CLOSED_IN_HANDSHAKE = "it closed the connection before TLS or the login was agreed on"
    NETWORK_ERROR = "the network failed"


class BrokerConnectionError(BrokerUnreachable):
    """A broker did not answer; the text contains the broker, the request, and who must act."""

    def __init__(self, host: str, port: int, reason: ConnectionFailureReason, what: str) -> None:
        super().__init__(f"{host}:{port}: {what}")
        self.host = host
        self.port = port
        self.reason = reason


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
        new_buffer: BufferAllocator = uninitialized_buffer,
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
        clock: Clock = SYSTEM_CLOCK,
    ) -> None:
        self._host = host
        self._port = port
        self._client_id = client_id
        self._connect_timeout_ms = connect_timeout_ms
        self._receive_buffer_bytes = receive_buffer_bytes
        self._new_transport = transport
        self._clock = clock
        self._pid = os.getpid()
        self._correlation_id = 0
        self._pending: deque[PendingRequest[Any]] = deque()
        # Received bytes that no response has used yet: ``_ahead[_ahead_start:_ahead_end]``.
        self._read_ahead = memoryview(b"")
        self._ahead_start = self._ahead_end = 0
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
            transport = self._transport or self._open()
            with _ErrorTranslation(self, pending, timeout_ms):
                if not self._pending:
                    transport.renew(self._clock.now_ms() + timeout_ms)
                transport.send_all(frame, self._clock.now_ms() + timeout_ms)
            self._correlation_id = (self._correlation_id + 1) & CORRELATION_ID_MAX
            self._pending.append(pending)
        return pending

    def receive(
        self,
        pending: PendingRequest[R],
        timeout_ms: int,
        *,
        response_bytes_max: int = RESPONSE_BYTES_MAX,
        new_buffer: BufferAllocator = uninitialized_buffer,
    ) -> R:
        """Receive the response to ``pending``, which must be the oldest pending request.

        ``response_bytes_max``: a longer response is rejected before it is read.  Record sets in the response are views
        of the received bytes, which live as long as one of them does.  ``new_buffer``: allocates the memory for these
        bytes.
        """
        with _ExclusiveUse(self):
            transport = self._transport_of(pending)
            if self._pending[0] is not pending:
                raise UsageError(f"the answer to {self._pending[0]} comes before that to {pending}")
            with _ErrorTranslation(self, pending, timeout_ms):
                deadline_ms = self._clock.now_ms() + timeout_ms
                data = self._frame(transport, pending, deadline_ms, response_bytes_max, new_buffer)
                body = self._decoded(pending, data)
            self._pending.popleft()
        return body

    def has_response(self, timeout_ms: int) -> bool:
        """Whether a receive would not block, within the timeout; a broken connection counts."""
        with _ExclusiveUse(self):
            if self._transport is None or self._ahead_start < self._ahead_end:
                return True
            with _ErrorTranslation(self, "wait", timeout_ms):
                return self._transport.wait(self._clock.now_ms() + timeout_ms)
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
            transport = self._transport_of(oldest)
            with _ErrorTranslation(self, oldest, timeout_ms):
                data = self._frame(transport, oldest, self._clock.now_ms() + timeout_ms, response_bytes_max)
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

    def _open(self) -> Transport:
        transport = self._new_transport(self._host, self._port, self._receive_buffer_bytes, self._clock)
        with self._lock:
            if self._is_closed:
                raise self._closed()
            self._transport = transport
        with _ErrorTranslation(self, "connect", self._connect_timeout_ms):
            transport.open(self._clock.now_ms() + self._connect_timeout_ms)
        return transport

    def _release(self) -> None:
        transport, self._transport = self._transport, None
        self._pending.clear()
        self._ahead_start = self._ahead_end = 0
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
            raise self._network_error(error, what, timeout_ms) from error

    def _network_error(self, error: OSError, what: str, timeout_ms: int) -> BrokerConnectionError:
        match error:
            case TimeoutError():
                advice = "the broker hangs, is overloaded, or a firewall drops the packets"
                during = f" (during {error})" if isinstance(error, HandshakeTimeoutError) else ""
                return self._failed(
                    ConnectionFailureReason.TIMED_OUT, f"no answer to {what} within {timeout_ms} ms{during}; {advice}"
                )
            case socket.gaierror():
                advice = "correct DNS here, or the host: the one given here, or the one that the broker advertises"
                return self._failed(
                    ConnectionFailureReason.UNRESOLVED, f"the name {self._host} has no address ({error}); {advice}"
                )
            case ConnectionRefusedError():
                advice = "start the broker, or correct its address: the one given here, or the one that it advertises"
                return self._failed(ConnectionFailureReason.REFUSED, f"the connection was refused; {advice}")
            case HandshakeClosedError():
                advice = "is this a port for another security.protocol? The broker's log says why it closed"
                return self._failed(
                    ConnectionFailureReason.CLOSED_IN_HANDSHAKE,
                    f"the connection was closed in the middle of {error}; {advice}",
                )
            case ConnectionError():
                return self._failed(
                    ConnectionFailureReason.CLOSED, f"the connection was closed during {what} ({error})"
                )
            case _:
                advice = "check the network between this machine and the broker"
                return self._failed(ConnectionFailureReason.NETWORK_ERROR, f"{what} failed: {error}; {advice}")

    def _failed(self, reason: ConnectionFailureReason, what: str) -> BrokerConnectionError:
        return BrokerConnectionError(self._host, self._port, reason, what)

    def _closed(self) -> ConnectorClosed:
        return ConnectorClosed(f"the connection to {self} was closed by this process")

    def _frame(
        self,
        transport: Transport,
        pending: PendingRequest[Any],
        deadline_ms: int,
        bytes_max: int,
        new_buffer: BufferAllocator = uninitialized_buffer,
    ) -> memoryview:
        """Receive one response: bytes received earlier, bytes that arrive with its size, and in one call the rest."""
        while self._ahead_end - self._ahead_start < SIZE_BYTES:
            self._receive_ahead(transport, pending, deadline_ms)
        start = bytes(self._read_ahead[self._ahead_start : self._ahead_start + SIZE_BYTES])
        try:
            size = frame_size(start, bytes_max, f"{self}: {pending} response")
        except MalformedMessage as error:
            raise MalformedMessage(
                error.message, error.field, error.offset, error.why + guess_protocol(start)
            ) from None
        data = new_buffer(size)
        here = self._read_ahead[self._ahead_start + SIZE_BYTES : self._ahead_end][:size]
        data[: len(here)] = here
        self._ahead_start += SIZE_BYTES + len(here)
        filled = len(here)
        if filled < size:
            filled += transport.fill(data[filled:], deadline_ms)
            if filled < size:
                self._raise_ended(pending, start + bytes(data[:filled]))
        return data

    def _receive_ahead(self, transport: Transport, pending: PendingRequest[Any], deadline_ms: int) -> None:
        """Receive the available bytes after the earlier ones, while the size of the next response is incomplete."""
        if not self._read_ahead:
            self._read_ahead = memoryview(bytearray(RECEIVE_AHEAD_BYTES))
        kept = bytes(self._read_ahead[self._ahead_start : self._ahead_end])
        self._read_ahead[: len(kept)] = kept
        self._ahead_start, self._ahead_end = 0, len(kept)
        received = transport.receive_into(self._read_ahead[len(kept) :], deadline_ms)
        if received == 0:
            self._raise_ended(pending, kept)
        self._ahead_end += received

    def _raise_ended(self, pending: PendingRequest[Any], seen: bytes) -> NoReturn:
        where = f"after {len(seen)} bytes of the answer to" if seen else "instead of answering"
        raise self._failed(
            ConnectionFailureReason.CLOSED, f"the connection was closed {where} {pending}{guess_protocol(seen)}"
        )

    def _transport_of(self, pending: PendingRequest[Any]) -> Transport:
        """The transport on which the answer to ``pending`` will come."""
        if pending not in self._pending:
            raise self._failed(ConnectionFailureReason.CLOSED, f"the connection broke before {pending} was answered")
        assert self._transport is not None, "a request is pending only on an open connection"
        return self._transport

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


def guess_protocol(start: bytes | bytearray) -> str:
    """A question for the error text, if the first bytes of a response look like another protocol's."""
    if start[:4] in (b"HTTP", b"<!DO", b"<htm", b"<HTM"):
        return "; is this port an HTTP port?"
    if len(start) >= 2 and start[0] in (0x15, 0x16) and start[1] == 0x03:
        return "; is this port a TLS port?"
    if start[:4] == b"SSH-":
        return "; is this port an SSH port?"
    if len(start) >= SIZE_BYTES and _is_invalid_size(start):
        return "; is this port a TLS or HTTP port, or something else than a Kafka broker?"
    return ""


def _is_invalid_size(start: bytes | bytearray) -> bool:
    """Whether the first four bytes cannot be the size of any frame that is accepted by default."""
    size = int.from_bytes(start[:SIZE_BYTES], "big", signed=True)
    return not 0 <= size <= RESPONSE_BYTES_MAX
