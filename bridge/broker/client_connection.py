"""One client's connection: bytes in, frames in their order to the node, answers out.

    bytes --> buffer --frame--> login, gate --> node's handler --reply--> bytes
                ^                                    |
                '--- the next frame is not looked at until this one is answered (Kafka mutes the channel)

Bounded: a frame by ``socket.request.max.bytes`` (half a megabyte before the login), and by
``connections.max.idle.ms``, in which it must be whole; what lies in the buffer behind a request that waits by
``READ_AHEAD_BYTES``; what a slow reader leaves unsent by one answer, after which its connection is not read any more,
and by ``SLOW_READER_TIMEOUT_MS``, after which it ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from bridge.broker.receive_buffer import ReceiveBuffer, RequestMemoryBudget
from bridge.broker.sasl_server_authenticator import LOGIN_BYTES_MAX, SaslServerAuthenticator, SaslServerState
from bridge.coordinator.api_request import ApiRequest
from zkconsumer.errors import RemoteProtocolError, UsageError
from zkconsumer.kafka.request_decoder import (
    DecodedRequest,
    InvalidFrameAction,
    UnsupportedVersionResponse,
    api_versions_response,
    decode_frame,
)
from zkconsumer.wire.request_frames import SIZE_BYTES, encode_response
from zkconsumer.wire.schemas import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

if TYPE_CHECKING:
    from bridge.broker.node import BrokerNode
    from zkconsumer.wire.schemas.sasl_authenticate import SaslAuthenticateResponse
    from zkconsumer.wire.schemas.sasl_handshake import SaslHandshakeResponse

READ_AHEAD_BYTES = 64 * 1024
"""How much is read while a request is being answered."""

SLOW_READER_TIMEOUT_MS = 60_000
"""How long a client may take nothing of an answer."""

AUTHENTICATION_TIMEOUT_MS = 30_000
"""How long a login may take, TLS not counted."""

CLOSE_CONNECTION = object()
"""The reply that ends the connection: what was asked has failed, and no answer could say so."""

_log = logging.getLogger(__name__)


class ClientConnection(asyncio.Protocol):
    """``open_connections`` has all that are open; ``budget`` is shared by them."""

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
        """How much of an answer was not taken when the client last took something, at ``_last_write_progress_ms``."""
        self._last_write_progress_ms = 0
        self._opened_ms = self._active_ms = self._scheduler.now_ms()
        self._receive_buffer = ReceiveBuffer(
            budget, lambda why: self._log_and_abort("connection-closed", why), self._opened_ms
        )
        self._cancel_pending: Callable[[], object] | None = None
        """What to do about the request that is being answered when the client is gone."""

    # --- what asyncio calls -------------------------------------------------------------------------------------

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport), "a stream was listened for"
        self._transport = transport
        peer = transport.get_extra_info("peername")
        self._client_host = f"/{peer[0]}" if peer else "/"
        # What the socket does not take at once counts as slow.  Not 0: over TLS nothing at all would be too much.
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
        assert self._transport is not None, "who writes has something to write to"
        self._is_write_paused = True
        self._unsent_bytes = self._transport.get_write_buffer_size()
        self._active_ms = self._last_write_progress_ms = self._scheduler.now_ms()

    def resume_writing(self) -> None:
        self._is_write_paused = False
        self._active_ms = self._scheduler.now_ms()
        self._process_frames()

    # --- what the server calls ----------------------------------------------------------------------------------

    def check_timeouts(self, now_ms: int, idle_ms_max: int) -> None:
        """End it when it has been idle, slow or without a login for too long.  A parked request is not idle.

        Who sends a request byte by byte is idle until it is whole.
        """
        idle_ms = now_ms - max(self._active_ms, self._receive_buffer.since_ms)
        if self._is_write_paused:
            self._check_slow_reader(now_ms)
        elif not self._login.is_complete and now_ms - self._opened_ms > AUTHENTICATION_TIMEOUT_MS:
            self._log_and_abort("connection-closed", "nobody logged in")
        elif not self._is_busy and idle_ms > idle_ms_max:
            self.close()

    def _check_slow_reader(self, now_ms: int) -> None:
        """Who takes something now and then is waited for; what the client sends meanwhile says nothing of that."""
        unsent_bytes = 0 if self._transport is None else self._transport.get_write_buffer_size()
        if unsent_bytes < self._unsent_bytes:
            self._unsent_bytes, self._last_write_progress_ms = unsent_bytes, now_ms
        elif now_ms - self._last_write_progress_ms > SLOW_READER_TIMEOUT_MS:
            self._log_and_abort("connection-closed", "the client does not read its answer")

    def close(self) -> None:
        """End it; what was written is sent first, as far as the client reads it."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """End it at once."""
        if self._transport is not None:
            self._transport.abort()

    # --- frames -------------------------------------------------------------------------------------------------

    def _process_frames(self) -> None:
        """Answer what can be answered, in order."""
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
        """Whether an answer can still go out; a client that is gone is seen by the first that cannot."""
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
        match decode_frame(frame, self._node.cluster.release):
            case UnsupportedVersionResponse(answer):
                self._send(answer)
            case InvalidFrameAction.IGNORE:
                self._is_busy = False
            case InvalidFrameAction.CLOSE_CONNECTION:
                self._log_and_abort("connection-closed", "a frame is no request that this release reads")
            case DecodedRequest() as request:
                try:
                    self._handle_request(request)
                except Exception as error:  # noqa: BLE001 (a mistake of ours ends here, with its words in the log)
                    # Behind this call others wait for their answers: members of a group are answered one by one.
                    _log.exception("request-failed client=%s api=%s", self._client_host, request.api.name)
                    self._log_and_abort(
                        "connection-closed", f"{request.api.name} v{request.version}: {type(error).__name__}"
                    )

    def _handle_request(self, request: DecodedRequest) -> None:
        def reply(body: Any) -> None:
            self._reply(request, body)

        if request.api is API_VERSIONS:
            reply(api_versions_response(self._node.cluster.release))
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
        """The connection ends behind the answer to a login that was refused."""
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
