"""One client's connection: bytes in, frames in their order to the node, responses out.

    bytes --> buffer --frame--> login, decoder --> node's handler --reply--> bytes
                ^                                       |
                '--- the next frame is read only after this one is answered (Kafka mutes the channel)

Limits: a frame has at most ``socket.request.max.bytes`` (half a megabyte before the login), and must be complete within
``connections.max.idle.ms``; the buffer after a waiting request has at most ``READ_AHEAD_BYTES``.  If a slow client has
one unsent response, its connection is not read any more, and ends after
``SLOW_READER_TIMEOUT_MS``.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bridge.broker.receive_buffer import ReceiveBuffer, RequestMemoryBudget
from bridge.broker.request_decoder import (
    DecodedRequest,
    InvalidFrameAction,
    UnsupportedVersionResponse,
    api_versions_response,
    decode_frame,
)
from bridge.broker.sasl_server_authenticator import LOGIN_BYTES_MAX, SaslServerAuthenticator, SaslServerState
from bridge.coordinator.api_request import ApiRequest
from zkconsumer.errors import RemoteProtocolError, UsageError
from zkconsumer.wire.request_frames import SIZE_BYTES, encode_response
from zkconsumer.wire.schemas import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

if TYPE_CHECKING:
    from bridge.broker.node import BrokerNode
    from zkconsumer.wire.schemas.sasl_authenticate import SaslAuthenticateResponse
    from zkconsumer.wire.schemas.sasl_handshake import SaslHandshakeResponse

READ_AHEAD_BYTES = 64 * 1024
"""How much is read ahead while a request is being answered."""

SLOW_READER_TIMEOUT_MS = 60_000
"""How long a client may read nothing of a response."""

AUTHENTICATION_TIMEOUT_MS = 30_000
"""How long a login may take, without TLS."""

CLOSE_CONNECTION = object()
"""The reply that ends the connection: the request failed, and no response can express the error."""

_log = logging.getLogger(__name__)


class ClientConnection(asyncio.Protocol):
    """``open_connections`` contains all open connections; they share ``budget``."""

    def __init__(
        self,
        node: BrokerNode,
        listener: str,
        authenticator: SaslServerAuthenticator,
        budget: RequestMemoryBudget,
        open_connections: set[ClientConnection],
    ) -> None:
        self._node = node
        self._listener = listener
        self._login = authenticator
        self._open_ones = open_connections
        self._scheduler = node.cluster.scheduler
        self._frame_bytes_max = node.cluster.config.socket_request_max_bytes
        self._transport: asyncio.Transport | None = None
        self._client_host = ""
        self._is_busy = False
        self._is_processing = False
        self._is_write_paused = False
        self._is_read_paused = False
        self._unsent_bytes = 0
        """The unsent bytes when the client last read something, at ``_last_write_progress_ms``."""
        self._last_write_progress_ms = 0
        self._opened_ms = self._active_ms = self._scheduler.now_ms()
        self._receive_buffer = ReceiveBuffer(
            budget, lambda why: self._log_and_abort("connection-closed", why), self._opened_ms
        )
        self._cancel_pending: Callable[[], object] | None = None
        """Called to cancel the request that is being answered when the client has disconnected."""

    # --- what asyncio calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "the listener is a stream socket"
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._client_host = f"/{peer[0]}" if peer else "/"
        # Any bytes that the socket does not take at once count as slow.  Not 0: over TLS every write would be too much.
        transport.set_write_buffer_limits(high=1, low=0)
        self._open_ones.add(self)
        if len(self._open_ones) > self._node.cluster.config.max_connections:
            self._log_and_abort("connection-rejected", "max.connections are open")

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._open_ones.discard(self)
        self._receive_buffer.discard()
        forget, self._cancel_pending = self._cancel_pending, None
        if forget is not None:
            forget()

    def data_received(self, data: bytes) -> None:
        if not self._is_open:
            return
        self._receive_buffer.add(data, self._scheduler.now_ms())
        self._process_frames()

    def pause_writing(self) -> None:
        assert self._transport is not None, "only an open connection writes"
        self._is_write_paused = True
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._active_ms = self._last_write_progress_ms = self._scheduler.now_ms()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._active_ms = self._scheduler.now_ms()
        self._process_frames()

    # --- what the server calls ----------------------------------------------------------------------------------

    def check_timeouts(self, now_ms: int, idle_ms_max: int) -> None:
        """End the connection if it was idle, slow or without a login for too long.  A waiting request is not idle.

        A client that sends a request byte by byte is idle until the request is complete.
        """
        idle_ms = now_ms - max(self._active_ms, self._receive_buffer.since_ms)
        if self._is_write_paused:
            self._check_slow_reader(now_ms)
        elif not self._login.is_complete and now_ms - self._opened_ms > AUTHENTICATION_TIMEOUT_MS:
            self._log_and_abort("connection-closed", "the client did not log in")
        elif not self._is_busy and idle_ms > idle_ms_max:
            self.close()

    def _check_slow_reader(self, now_ms: int) -> None:
        """A client that reads anything within the limit may continue; the bytes that it sends do not count."""
        unsent_bytes = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:
            self._unsent_bytes, self._last_write_progress_ms = unsent_bytes, now_ms
        elif now_ms - self._last_write_progress_ms > SLOW_READER_TIMEOUT_MS:
            self._log_and_abort("connection-closed", "the client does not read its answer")

    def close(self) -> None:
        """End it; written bytes are sent first, as far as the client reads them."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- frames -------------------------------------------------------------------------------------------------

    def _process_frames(self) -> None:
        """Answer the complete frames, in order."""
        if self._is_processing:
            return
        self._is_processing = True
        try:
            while self._is_open and not (self._is_busy or self._is_write_paused):
                frame = self._next_frame()
                if frame is None:
                    break
                self._is_busy = True
                self._handle_frame(frame)
        finally:
            self._is_processing = False
        self._mute_or_unmute()

    @property
    def _is_open(self) -> bool:
        """Whether a response can still be sent; a disconnect is noticed at the first write that fails."""
        return self._transport is not None and not self._transport.is_closing()

    def _next_frame(self) -> bytes | None:
        bytes_max = self._frame_bytes_max if self._login.is_complete else min(LOGIN_BYTES_MAX, self._frame_bytes_max)
        try:
            return self._receive_buffer.next_frame(bytes_max, self._scheduler.now_ms())
        except RemoteProtocolError as error:
            self._log_and_abort("connection-closed", str(error))
            return None

    def _mute_or_unmute(self) -> None:
        if self._transport is None or self._transport.is_closing():
            return
        is_full = (self._is_busy or self._is_write_paused) and self._receive_buffer.size > READ_AHEAD_BYTES
        if is_full and not self._is_read_paused:
            self._transport.pause_reading()
        elif not is_full and self._is_read_paused:
            self._transport.resume_reading()
        self._is_read_paused = is_full

    def _handle_frame(self, frame: bytes) -> None:
        if self._login.state is SaslServerState.RAW_TOKEN:
            if self._login.authenticate_token(frame):
                self._send(bytes(SIZE_BYTES))
            else:
                self._log_and_abort("client-authentication-failed", "user or password is wrong")
            return
        match decode_frame(frame, self._node.release):
            case UnsupportedVersionResponse(answer):
                self._send(answer)
            case InvalidFrameAction.IGNORE:
                self._is_busy = False
            case InvalidFrameAction.CLOSE_CONNECTION:
                self._log_and_abort("connection-closed", "a frame is not a request that this release can read")
            case DecodedRequest() as request:
                try:
                    self._handle_request(request)
                except Exception as error:  # noqa: BLE001 (a bug of ours ends here, with its text in the log)
                    # Callers after this one wait for their responses: members of a group are answered one by one.
                    _log.exception("request-failed client=%s api=%s", self._client_host, request.api.name)
                    self._log_and_abort(
                        "connection-closed", f"{request.api.name} v{request.version}: {type(error).__name__}"
                    )

    def _handle_request(self, request: DecodedRequest) -> None:
        def reply(body: Any) -> None:
            self._reply(request, body)

        if request.api is API_VERSIONS:
            reply(api_versions_response(self._node.release))
        elif request.api is SASL_HANDSHAKE:
            handshake = self._login.handshake(request.body.mechanism, request.version)
            self._reply_authentication(request, handshake, f"mechanism {request.body.mechanism[:40]!r}; there is PLAIN")
        elif request.api is SASL_AUTHENTICATE:
            response = self._login.authenticate(request.body.auth_bytes)
            self._reply_authentication(request, response, response.error_message or "")
        elif not self._login.is_complete:
            self._log_and_abort("connection-closed", f"{request.api.name} before the login")
        else:
            self._node.kafka_apis.handle(
                ApiRequest(
                    request.api,
                    request.version,
                    request.body,
                    request.header.client_id or "",
                    self._client_host,
                    self._login.principal,
                    self._listener,
                    reply,
                    self._on_disconnect,
                )
            )

    def _on_disconnect(self, forget: Callable[[], object]) -> None:
        self._cancel_pending = forget

    def _reply_authentication(
        self, request: DecodedRequest, body: SaslHandshakeResponse | SaslAuthenticateResponse, why: str
    ) -> None:
        """Answer a login; the connection ends after the response to a rejected one."""
        if body.error_code:
            _log.info(
                "client-authentication-failed client=%s listener=%s reason=%s", self._client_host, self._listener, why
            )
        self._reply(request, body)
        if body.error_code and self._transport is not None:
            self._transport.close()

    def _reply(self, request: DecodedRequest, body: Any) -> None:
        if self._transport is None:
            return
        if body is CLOSE_CONNECTION:
            self._log_and_abort("connection-closed", f"{request.api.name} failed")
            return
        if body is None:
            self._send(b"")
            return
        try:
            frame = encode_response(request.api, request.version, request.header.correlation_id, body)
        except UsageError as error:
            self._log_and_abort(
                "response-encoding-failed", f"{request.api.name} v{request.version}: {error}", logging.ERROR
            )
            return
        self._send(frame)

    def _send(self, data: bytes) -> None:
        self._is_busy = False
        self._cancel_pending = None
        if self._transport is not None and self._is_open and data:
            self._transport.write(data)
        self._active_ms = self._scheduler.now_ms()
        if not self._is_processing:
            self._process_frames()

    def _log_and_abort(self, what: str, why: str, level: int = logging.INFO) -> None:
        _log.log(level, "%s client=%s listener=%s reason=%s", what, self._client_host, self._listener, why)
        if self._transport is not None:
            self._transport.abort()
