"""One connection to a broker without its socket: TLS, the login, requests and responses.  Pure.

    driver                          channel
    socket --receive_buffer,-->     TLS --> frames --> the login, or next_frame()
             received
    socket <--bytes_to_write,--     TLS <-- frames <-- the login, or send()
             bytes_written

A driver owns the socket.  ``BlockingConnection`` is one with a blocking socket, the selector one without.  Each does
the same: connect, ``start``, and then write what ``bytes_to_write`` returns, and receive into ``receive_buffer``.
After each receive it calls ``next_frame`` until that returns None.

    TLS_HANDSHAKE --> AUTHENTICATION --> READY --> CLOSED
                      needs_reconnect: a broker of 0.9 and GSSAPI; ``after_reconnect`` continues on a new connection

A renewal of the login (KIP-368) runs in READY.  It begins with ``maybe_renew`` before a request is sent; requests that
are sent during it wait in ``_held``, since a broker accepts only messages of the login until that is complete.
Responses to earlier requests may arrive first: they are returned by ``next_frame`` as always, while responses to the
login are recognized by their reserved correlation ids and never returned.  A broker answers in the order of the
requests, so the deadline of a renewal counts from the last response before it.  When an answer is lost, the deadline of
the driver (``handshake_deadline_ms``, or that of the request) ends the connection.

Invariants:
- ``_held`` is empty except during a renewal.
- ``_unanswered`` is the number of requests before a renewal whose responses ``next_frame`` has not returned.
- ``_login`` is None without SASL.  ``_is_renewing`` is True exactly while a renewal waits for a response.
- ``_is_login_frame`` has a meaning only during a renewal while a frame is partly received.
- ``_wire[_wire_written:]`` are the bytes that come next on the wire; ``_output`` are the plain frames after them, of
  which ``_output_encrypted`` bytes of the first were already encrypted.

Differences from Java (``KafkaChannel``, ``SslTransportLayer``, 3.0): the plain bytes of a response are decrypted into
its own buffer, without a buffer of application data between; a renewal does not stop the delivery of responses that
arrive during it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.kafka.net.connection_errors import guess_protocol
from zkconsumer.kafka.net.frame_receiver import BufferAllocator, FrameBuffers, FrameReceiver, uninitialized_buffer
from zkconsumer.kafka.net.handshake_errors import HandshakeClosedError
from zkconsumer.kafka.net.sasl_client_authenticator import (
    LOGIN_BYTES_MAX,
    LOGIN_TIMEOUT_MS,
    SaslClientAuthenticator,
    is_reserved,
)
from zkconsumer.kafka.tls import (
    HANDSHAKE_TIMEOUT_MS,
    RECORD_BYTES_MAX,
    TLS_LARGE_READ_BYTES,
    TLS_READ_BYTES,
    TlsClient,
)
from zkconsumer.wire.primitives import MalformedMessage
from zkconsumer.wire.request_frames import RESPONSE_BYTES_MAX, SIZE_BYTES

if TYPE_CHECKING:
    import ssl

    from zkconsumer.kafka.sasl_mechanisms import SaslSettings

TLS_STEP, LOGIN_STEP, RENEWAL_STEP = "the TLS handshake", "the SASL login", "the renewal of the SASL login"


class ChannelPhase(Enum):
    """What a channel does; see the head of this module."""

    TLS_HANDSHAKE = auto()
    AUTHENTICATION = auto()
    READY = auto()
    CLOSED = auto()


class BrokerChannel:
    """See the head of this module.

    Exceptions: ``SslAuthenticationException`` (``NotTlsError`` when the port does not use TLS),
    ``SaslAuthenticationException``, ``UnsupportedSaslMechanismException``, ``SecurityProtocolMismatch``,
    ``RemoteProtocolError`` (``MalformedMessage``) for bytes that no broker sends, ``InvalidConfigException``, and
    ``HandshakeClosedError``.  After an exception the channel is useless; ``bytes_to_write`` may return a TLS alert that
    says why, which the driver sends as far as it can without waiting.
    """

    def __init__(
        self,
        host: str,
        port: int,
        *,
        tls_context: ssl.SSLContext | None = None,
        sasl: SaslSettings | None = None,
    ) -> None:
        self._host = host
        self._port = port
        self._tls_context = tls_context
        self._tls: TlsClient | None = None
        self._login = None if sasl is None else SaslClientAuthenticator(sasl, host, port)
        self._phase = ChannelPhase.TLS_HANDSHAKE
        self._tls_deadline_ms = 0
        self._frames = FrameReceiver()
        self._buffers = FrameBuffers()
        self._encrypted = memoryview(b"")
        self._has_ended = False
        self._output: deque[bytes] = deque()
        self._output_encrypted = 0
        self._held: deque[bytes] = deque()
        self._unanswered = 0
        self._wire = b""
        self._wire_written = 0
        self._is_renewing = False
        self._renewal_deadline_ms = 0
        self._is_login_frame = False

    # --- state ----------------------------------------------------------------------------------------------------

    @property
    def phase(self) -> ChannelPhase:
        """What the channel does; a renewal of the login does not change it."""
        return self._phase

    @property
    def is_renewing(self) -> bool:
        """Whether the login is being renewed."""
        return self._is_renewing

    @property
    def needs_reconnect(self) -> bool:
        """Whether the login goes on by ``after_reconnect`` on a new connection (GSSAPI and a broker of 0.9)."""
        return self._login is not None and self._login.needs_reconnect

    @property
    def has_login(self) -> bool:
        """Whether the connection begins with a login, which may be renewed."""
        return self._login is not None

    @property
    def has_tls(self) -> bool:
        """Whether the bytes of the socket are encrypted."""
        return self._tls_context is not None

    @property
    def has_ended(self) -> bool:
        """Whether the broker has ended its stream of bytes.  Valid after ``next_frame`` has returned None."""
        return self._has_ended if self._tls is None else self._tls.has_ended

    @property
    def response_frames(self) -> FrameReceiver | None:
        """Where received bytes go if all that can arrive belong to responses: no TLS, no login that is under way.

        None otherwise: only ``receive_buffer`` and ``received`` know.
        """
        if self._tls is not None or self._phase is not ChannelPhase.READY or self._is_renewing:
            return None
        return self._frames

    @property
    def is_in_response(self) -> bool:
        """Whether a part of a response has arrived, and its size is known."""
        return self._frames.is_in_frame

    @property
    def incomplete_bytes(self) -> bytes:
        """The bytes of the incomplete response that have arrived, with its size; for the texts of errors."""
        return self._frames.incomplete_bytes()

    @property
    def handshake_deadline_ms(self) -> int | None:
        """When the current step must be complete: TLS, the login, or its renewal; None: no such step.

        Also None during a renewal while responses to earlier requests are missing: these have deadlines of their own.
        """
        if self._phase is ChannelPhase.READY:
            return self._renewal_deadline_ms if self._is_renewing and not self._unanswered else None
        if self._phase is ChannelPhase.AUTHENTICATION:
            assert self._login is not None, "only a channel with SASL authenticates"
            return self._login.deadline_ms
        return self._tls_deadline_ms

    @property
    def handshake_step(self) -> str:
        """The name of the step that ``handshake_deadline_ms`` limits, for ``HandshakeTimeoutError``."""
        if self._is_renewing:
            return RENEWAL_STEP
        return TLS_STEP if self._phase is ChannelPhase.TLS_HANDSHAKE else LOGIN_STEP

    @property
    def renew_at_ms(self) -> int | None:
        """When a renewal of the login is due; None: never, or it is running."""
        return None if self._login is None else self._login.renew_at_ms

    # --- the beginning --------------------------------------------------------------------------------------------

    def start(self, now_ms: int) -> None:
        """The socket is connected: begin with TLS, or with the login."""
        if self._tls_context is None:
            self._start_login(now_ms)
            return
        self._tls = TlsClient(self._tls_context, self._host, self._port)
        self._tls_deadline_ms = now_ms + HANDSHAKE_TIMEOUT_MS
        self._encrypted = memoryview(bytearray(TLS_READ_BYTES))
        self._advance(now_ms)

    def after_reconnect(self) -> BrokerChannel:
        """A channel for a new connection to the same broker, on which the login goes on."""
        assert self.needs_reconnect, "other logins begin again with a new channel"
        channel = BrokerChannel(self._host, self._port, tls_context=self._tls_context)
        channel._login = self._login
        return channel

    def _start_login(self, now_ms: int) -> None:
        login = self._login
        if login is None:
            self._phase = ChannelPhase.READY
            return
        self._phase = ChannelPhase.AUTHENTICATION
        self._output.append(login.begin_raw() if login.needs_reconnect else login.begin(now_ms))

    def _advance(self, now_ms: int) -> None:
        """Process the received bytes until the channel is ready; READY: leave them to ``next_frame``."""
        try:
            if self._phase is ChannelPhase.TLS_HANDSHAKE:
                assert self._tls is not None, "the handshake begins with the session"
                if not self._tls.handshake():
                    return
                self._start_login(now_ms)
            while self._phase is ChannelPhase.AUTHENTICATION:
                frame = self._login_frame()
                if frame is None:
                    break
                self._login_received(frame)
            if self._phase is ChannelPhase.AUTHENTICATION and self.has_ended:
                lost = self.connection_lost(HandshakeClosedError(LOGIN_STEP))
                if lost is not None:
                    raise lost from lost.__cause__
        except Exception:
            # Whatever the reason is, nothing may be sent any more.
            self._phase = ChannelPhase.CLOSED
            raise

    def _login_frame(self) -> memoryview | None:
        assert self._login is not None, "only a channel with SASL authenticates"
        try:
            return self._read_frame(LOGIN_BYTES_MAX, uninitialized_buffer)
        except MalformedMessage as error:
            name = f"{self._host}:{self._port}: {self._login.awaited} response"
            raise MalformedMessage(name, error.field, error.offset, error.why) from None

    def _login_received(self, frame: memoryview) -> None:
        login = self._login
        assert login is not None, "only a channel with SASL authenticates"
        message = login.receive(frame)
        if message:
            self._output.append(message)
        if login.is_complete:
            self._phase = ChannelPhase.READY
            self._is_renewing = False
            self._output += self._held
            self._unanswered += len(self._held)
            self._held.clear()

    # --- output ---------------------------------------------------------------------------------------------------

    def send(self, frame: bytes) -> None:
        """Send a request: an encoded frame with its size.  Only in READY; during a renewal it waits for its end."""
        assert self._phase is ChannelPhase.READY, "requests follow the login"
        if self._is_renewing:
            self._held.append(frame)
        else:
            self._output.append(frame)
            self._unanswered += 1

    def maybe_renew(self, now_ms: int) -> None:
        """Begin to renew the login if most of its lifetime is over; call it before each ``send``."""
        login = self._login
        if login is None or login.renew_at_ms is None or now_ms < login.renew_at_ms:
            return
        assert self._phase is ChannelPhase.READY, "a login is complete before it can be renewed"
        self._output.append(login.begin_renewal(now_ms))
        self._is_renewing, self._is_login_frame = True, False
        self._renewal_deadline_ms = now_ms + LOGIN_TIMEOUT_MS

    def bytes_to_write(self) -> bytes | memoryview:
        """What the socket must write next; empty: nothing.  The same bytes until ``bytes_written``."""
        if self._wire_written:
            return memoryview(self._wire)[self._wire_written :]
        if not self._wire:
            if self._tls is not None:
                self._wire = self._encrypted_output(self._tls)
            elif self._output:
                self._wire = self._output.popleft()
        return self._wire

    def bytes_written(self, count: int) -> None:
        """The socket has accepted the first ``count`` bytes of ``bytes_to_write``."""
        self._wire_written += count
        assert self._wire_written <= len(self._wire), "only bytes of bytes_to_write were written"
        if self._wire_written == len(self._wire):
            self._wire, self._wire_written = b"", 0

    def _encrypted_output(self, tls: TlsClient) -> bytes:
        if not tls.has_output:
            if not self._output:
                return b""
            frame = self._output[0]
            rest = memoryview(frame)[self._output_encrypted :]
            self._output_encrypted += tls.encrypt(rest[:TLS_READ_BYTES])
            if self._output_encrypted == len(frame):
                self._output.popleft()
                self._output_encrypted = 0
        return tls.take_encrypted()

    # --- input ----------------------------------------------------------------------------------------------------

    def receive_buffer(self) -> tuple[memoryview, bool]:
        """Memory for the next bytes of the socket, never empty.

        True: as many bytes will arrive as it has, unless the broker ends the connection; a blocking socket may wait for
        all of them in one call.
        """
        tls = self._tls
        if tls is None:
            frames = self._frames
            return frames.buffer(), frames.is_in_frame
        # TLS adds bytes to the plain bytes, so all the missing bytes will arrive, less the beginning of one TLS record,
        # which OpenSSL may have already.
        sure = self._frames.missing_bytes - tls.encrypted_bytes - RECORD_BYTES_MAX
        if sure <= TLS_READ_BYTES:
            return self._encrypted, False
        if len(self._encrypted) < TLS_LARGE_READ_BYTES:
            self._encrypted = memoryview(bytearray(TLS_LARGE_READ_BYTES))
        return self._encrypted[:sure], True

    def received(self, count: int, now_ms: int) -> None:
        """The socket has put ``count`` bytes, at least one, at the beginning of ``receive_buffer``."""
        if self._tls is None:
            self._frames.filled(count)
        else:
            self._tls.put_encrypted(self._encrypted[:count])
        if self._is_renewing:
            self._renewal_deadline_ms = now_ms + LOGIN_TIMEOUT_MS
        elif self._phase is not ChannelPhase.READY:
            self._advance(now_ms)

    def receive_eof(self, now_ms: int) -> None:
        """The broker has ended its stream of bytes.  Raises ``HandshakeClosedError`` before READY."""
        self._has_ended = True
        if self._phase is ChannelPhase.TLS_HANDSHAKE:
            self._phase = ChannelPhase.CLOSED
            raise HandshakeClosedError(TLS_STEP)
        if self._tls is not None:
            self._tls.put_eof()
        if self._phase is ChannelPhase.AUTHENTICATION:
            self._advance(now_ms)

    def next_frame(
        self,
        bytes_max: int = RESPONSE_BYTES_MAX,
        new_buffer: BufferAllocator | None = None,
        what: object = "next",
    ) -> memoryview | None:
        """The next response without its size, or None while it is incomplete.

        ``bytes_max``: a longer response is rejected (``MalformedMessage``) before it is received.  ``new_buffer``:
        allocates its memory; without it, memory of earlier responses is used again when no view of them exists.
        ``what``: the expected response, for the text of that error.
        """
        if self._is_renewing and not self._advance_renewal():
            if self.has_ended:
                raise HandshakeClosedError(LOGIN_STEP)
            return None
        try:
            frame = self._read_frame(bytes_max, new_buffer or self._buffers.allocate)
        except MalformedMessage as error:
            name = f"{self._host}:{self._port}: {what} response"
            why = error.why + guess_protocol(self.incomplete_bytes[:SIZE_BYTES])
            raise MalformedMessage(name, error.field, error.offset, why) from None
        if frame is not None and self._unanswered:
            self._unanswered -= 1
        return frame

    def has_response(self) -> bool:
        """Whether bytes of a response have arrived (with TLS, complete records only), or the broker has ended."""
        if self._is_renewing and not self._advance_renewal():
            return self.has_ended
        return self._frames.has_bytes or self._decrypt() or self.has_ended

    def _read_frame(self, bytes_max: int, new_buffer: BufferAllocator) -> memoryview | None:
        while True:
            frame = self._frames.next_frame(bytes_max, new_buffer)
            if frame is not None or self._tls is None or not self._decrypt():
                return frame

    def _decrypt(self) -> bool:
        """Decrypt for the incomplete frame; False: it needs more bytes from the socket.

        One record at a time while the frame's size is unknown, so that the rest is decrypted into the frame's buffer.
        """
        tls = self._tls
        if tls is None:
            return False
        frames = self._frames
        if frames.missing_bytes:
            frames.filled(tls.decrypt(frames.buffer()))
            return not frames.missing_bytes
        count = tls.decrypt_record(frames.buffer())
        frames.filled(count)
        return count > 0

    def _advance_renewal(self) -> bool:
        """Process the responses of the renewal that are next.

        True: the next bytes are those of a response to a request; False: more bytes are needed.
        """
        frames = self._frames
        while self._is_renewing:
            if not frames.is_in_frame:
                correlation_id = frames.next_correlation_id()
                if correlation_id is None:
                    if self._decrypt():
                        continue
                    return False
                self._is_login_frame = is_reserved(correlation_id)
            if not self._is_login_frame:
                return True
            frame = self._login_frame()
            if frame is None:
                return False
            self._login_received(frame)
        return True

    # --- failures -------------------------------------------------------------------------------------------------

    def connection_lost(self, error: ConnectionError) -> Exception | None:
        """The socket failed with ``error``: the exception to raise; None: ``needs_reconnect`` is set."""
        phase, self._phase = self._phase, ChannelPhase.CLOSED
        if phase is ChannelPhase.AUTHENTICATION:
            assert self._login is not None, "only a channel with SASL authenticates"
            return self._login.connection_lost(error)
        return error

    def raise_pending_alert(self) -> None:
        """A write failed: raise the TLS alert of the broker that explains it, if there is one.

        Only with TLS.  The driver has passed on the bytes that the socket still had.  Discards plain bytes.
        """
        assert self._tls is not None, "alerts are those of TLS"
        if self._phase is not ChannelPhase.TLS_HANDSHAKE:
            self._tls.raise_pending_alert()


ChannelFactory: TypeAlias = Callable[[str, int], BrokerChannel]
"""Host and port -> a channel that has not started."""
