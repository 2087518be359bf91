"""The secured port of a fake broker: real TLS and real SASL, in memory.

    cluster = FakeCluster(security=FakeSecurity("SASL_SSL", certificate="broker.pem", users={"alice": "word"}))
    connect = SecureConnectionFactory(BrokerSecurity("SASL_SSL", tls, sasl), socket=cluster.transport)

``SecuredTransport`` replaces the client's socket: the client's bytes pass the server's side of TLS
and of the login, and only then reach the broker.
"""

from __future__ import annotations

import re
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import scramp

from bridge.broker.request_decoder import api_versions_response
from bridge.testing.fake_releases import NEWEST, release_named
from zkconsumer.kafka.error_codes import ILLEGAL_SASL_STATE, SASL_AUTHENTICATION_FAILED, UNSUPPORTED_SASL_MECHANISM
from zkconsumer.kafka.transport import Transport, fill_by_receiving
from zkconsumer.wire.request_frames import (
    REQUEST_BYTES_MAX,
    SIZE_BYTES,
    decode_request,
    decode_request_header,
    encode_response,
)
from zkconsumer.wire.schemas import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from zkconsumer.wire.schemas.api_versions import ApiVersion
from zkconsumer.wire.schemas.sasl_authenticate import SaslAuthenticateResponse
from zkconsumer.wire.schemas.sasl_handshake import SaslHandshakeResponse

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock

PIECE_BYTES = 64 * 1024

ResponseTamper = Callable[[int, bytes], bytes | None]


@dataclass(slots=True)
class FakeSecurity:
    """``certificate``: PEM of the broker, for TLS; ``client_ca``: client certificates are required.

    ``users`` have passwords; ``tokens`` are accepted by OAUTHBEARER.  ``has_authenticate`` False: as before 1.0,
    messages are raw.  ``misbehave(n, answer)`` may change the n-th response of a login; None ends the connection.
    ``logins``: the users that logged in, in order.
    """

    protocol: str
    certificate: Path | None = None
    client_ca: Path | None = None
    users: dict[str, str] = field(default_factory=dict)
    tokens: frozenset[str] = frozenset()
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
    session_lifetime_ms: int = 0
    has_authenticate: bool = True
    tamper: ResponseTamper | None = None
    logins: list[str] = field(default_factory=list)

    def context(self) -> ssl.SSLContext | None:
        """The server's side of TLS."""
        if not self.protocol.endswith("SSL"):
            return None
        assert self.certificate is not None, "TLS needs a certificate"
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(self.certificate)
        if self.client_ca is not None:
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(self.client_ca)
        return context


class FakeLogin:
    """One client's login: frames in, frames out.  ``is_over``: later frames are for the broker."""

    def __init__(self, security: FakeSecurity) -> None:
        self._security = security
        self._step: Callable[[bytes], bytes | None] | None = None
        self._is_bare = False
        self._answers = 0
        self.is_over = not security.protocol.startswith("SASL")
        self.has_ended = False

    def takes(self, frame: bytes) -> bool:
        """Whether a frame is for the login and not for the broker."""
        if not self.is_over:
            return True
        key, version = int.from_bytes(frame[:2], "big"), int.from_bytes(frame[2:4], "big")
        return key in (SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key) or (key, version) == (API_VERSIONS.key, 0)

    def answer(self, frame: bytes) -> bytes:
        """The response frame, with its size; empty if the connection ends instead."""
        if self._is_bare and not self.is_over:
            reply = self._reply(frame)
            return b"" if reply is None else self._sent(len(reply).to_bytes(SIZE_BYTES, "big") + reply)
        header = decode_request_header(frame)
        if header.api_key == API_VERSIONS.key:
            version = min(header.api_version, API_VERSIONS.highest)
            answer = api_versions_response(release_named(NEWEST))
            has_authenticate = self._security.has_authenticate
            answer.api_keys.append(
                ApiVersion(api_key=SASL_HANDSHAKE.key, min_version=0, max_version=int(has_authenticate))
            )
            if has_authenticate:
                answer.api_keys.append(ApiVersion(api_key=SASL_AUTHENTICATE.key, min_version=0, max_version=2))
            return self._sent(encode_response(API_VERSIONS, version, header.correlation_id, answer))
        if header.api_key not in (SASL_HANDSHAKE.key, SASL_AUTHENTICATE.key):
            self.has_ended = True
            return b""
        body = decode_request(frame).body
        if header.api_key == SASL_HANDSHAKE.key:
            handshake = self._handshake(body.mechanism)
            self._is_bare = header.api_version == 0
            return self._sent(encode_response(SASL_HANDSHAKE, header.api_version, header.correlation_id, handshake))
        reply = self._reply(body.auth_bytes)
        if reply is None:
            response = SaslAuthenticateResponse(
                error_code=SASL_AUTHENTICATION_FAILED.code, error_message="Authentication failed: invalid credentials"
            )
            self.has_ended = True
        else:
            lifetime_ms = self._security.session_lifetime_ms if self.is_over else 0
            response = SaslAuthenticateResponse(auth_bytes=reply, session_lifetime_ms=lifetime_ms)
        return self._sent(encode_response(SASL_AUTHENTICATE, header.api_version, header.correlation_id, response))

    def _sent(self, answer: bytes) -> bytes:
        self._answers += 1
        if self._security.tamper is None:
            return answer
        changed = self._security.tamper(self._answers, answer)
        self.has_ended |= changed is None
        return changed or b""

    def _handshake(self, mechanism: str) -> SaslHandshakeResponse:
        enabled = list(self._security.mechanisms)
        if not self._security.protocol.startswith("SASL"):
            return SaslHandshakeResponse(error_code=ILLEGAL_SASL_STATE.code, mechanisms=[])
        if mechanism not in enabled:
            return SaslHandshakeResponse(error_code=UNSUPPORTED_SASL_MECHANISM.code, mechanisms=enabled)
        self.is_over = False
        self._step = {"PLAIN": self._plain, "OAUTHBEARER": self._oauth}.get(mechanism) or self._scram(mechanism)
        return SaslHandshakeResponse(mechanisms=enabled)

    def _reply(self, message: bytes) -> bytes | None:
        """None: rejected."""
        assert self._step is not None, "a login begins with a handshake"
        reply = self._step(message)
        if reply is None and self._is_bare:
            self.has_ended = True
        return reply

    def _in(self, user: str) -> None:
        self._security.logins.append(user)
        self.is_over = True

    def _plain(self, message: bytes) -> bytes | None:
        _, user, password = message.decode().split("\0")
        if self._security.users.get(user) != password:
            return None
        self._in(user)
        return b""

    def _oauth(self, message: bytes) -> bytes | None:
        if message == b"\x01":
            return None
        token = re.fullmatch(rb"n,[^,]*,\x01auth=Bearer ([^\x01]+)\x01.*\x01", message)
        if token is None or token[1].decode() not in self._security.tokens:
            return b'{"status":"invalid_token"}'
        self._in("token")
        return b""

    def _scram(self, mechanism: str) -> Callable[[bytes], bytes | None]:
        scram = scramp.ScramMechanism(mechanism)
        asked: list[str] = []

        def stored(user: str) -> Any:
            asked.append(user)
            return scram.make_auth_info(self._security.users[user])

        server = scram.make_server(stored)

        def step(message: bytes) -> bytes | None:
            try:
                if not asked:
                    server.set_client_first(message.decode())
                    return str(server.get_server_first()).encode()
                server.set_client_final(message.decode())
            except (scramp.ScramException, KeyError):
                return None
            self._in(asked[0])
            return str(server.get_server_final()).encode()

        return step


class SecuredTransport:
    """A ``Transport`` into a secured port; ``below`` goes to the broker itself."""

    def __init__(self, below: Transport, security: FakeSecurity, clock: Clock) -> None:
        self._below = below
        self._clock = clock
        self._login = FakeLogin(security)
        self._context = security.context()
        self._from_client = ssl.MemoryBIO()
        self._to_client = ssl.MemoryBIO()
        self._tls: ssl.SSLObject | None = None
        self._has_shaken_hands = self._context is None
        self._frames = b""
        self._out = b""
        self._has_ended = False

    def open(self, deadline_ms: int) -> None:
        self._below.open(deadline_ms)
        if self._context is not None:
            self._tls = self._context.wrap_bio(self._from_client, self._to_client, server_side=True)

    def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None:
        if self._has_ended:
            raise BrokenPipeError("the other side has ended")
        if self._tls is None:
            self._take(bytes(data), deadline_ms)
            return
        self._from_client.write(data)
        try:
            if not self._has_shaken_hands:
                self._tls.do_handshake()
                self._has_shaken_hands = True
            while piece := self._tls.read(PIECE_BYTES):
                self._take(piece, deadline_ms)
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError:
            # An alert may wait to be sent; the end follows it.
            self._has_ended = True
        self._out += self._to_client.read()

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        if not self._out and not self._has_ended:
            piece = memoryview(bytearray(PIECE_BYTES))
            received = self._below.receive_into(piece, deadline_ms)
            self._has_ended = received == 0
            self._encrypt(bytes(piece[:received]))
        size = min(len(view), len(self._out))
        view[:size] = self._out[:size]
        self._out = self._out[size:]
        return size

    def fill(self, view: memoryview, deadline_ms: int) -> int:
        return fill_by_receiving(self, view, deadline_ms)

    def wait(self, deadline_ms: int) -> bool:
        return bool(self._out) or self._has_ended or self._below.wait(deadline_ms)

    def abort(self) -> None:
        self._below.abort()

    def release(self) -> None:
        self._below.release()

    def _take(self, data: bytes, deadline_ms: int) -> None:
        """Process the client's plain bytes: frames for the login, or for the broker."""
        self._frames += data
        while len(self._frames) >= SIZE_BYTES:
            size = int.from_bytes(self._frames[:SIZE_BYTES], "big")
            if size > REQUEST_BYTES_MAX:
                # As a broker does with the beginning of another protocol.
                self._has_ended = True
                return
            if len(self._frames) < SIZE_BYTES + size:
                return
            frame, self._frames = self._frames[: SIZE_BYTES + size], self._frames[SIZE_BYTES + size :]
            if not self._login.takes(frame[SIZE_BYTES:]):
                self._below.send_all(frame, deadline_ms)
                continue
            self._encrypt(self._login.answer(frame[SIZE_BYTES:]))
            if self._login.has_ended:
                self._has_ended = True
                return

    def _encrypt(self, data: bytes) -> None:
        if self._tls is None:
            self._out += data
        elif data:
            self._tls.write(data)
            self._out += self._to_client.read()
