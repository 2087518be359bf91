"""SASL as a layer over a transport: logs in when it opens, and again before the login expires.

    ApiVersions v0 --> SaslHandshake v1 --> SaslAuthenticate, as often as the mechanism needs     Kafka 1.0 and later
                  '--> SaslHandshake v0 --> the mechanism's raw messages after their length        0.10 and 0.11
    closed (GSSAPI only): a new connection, and the mechanism's messages at once                   0.9

ApiVersions is sent first because it is the only request that a broker answers before a login, and a broker closes the
connection on a SaslHandshake of an unknown version.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from zkconsumer.errors import (
    AuthenticationException,
    RemoteProtocolError,
    SaslAuthenticationException,
    SecurityProtocolMismatch,
    UnsupportedSaslMechanismException,
)
from zkconsumer.kafka.error_codes import (
    ILLEGAL_SASL_STATE,
    NONE,
    SASL_AUTHENTICATION_FAILED,
    UNSUPPORTED_SASL_MECHANISM,
    error_code,
)
from zkconsumer.kafka.sasl_mechanisms import printable_text
from zkconsumer.kafka.transport import HandshakeClosedError, HandshakeTimeoutError
from zkconsumer.wire.request_frames import SIZE_BYTES, correlation_id_of, decode_response, encode_request, frame_size
from zkconsumer.wire.schemas import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest
from zkconsumer.wire.schemas.sasl_authenticate import SaslAuthenticateRequest
from zkconsumer.wire.schemas.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.sasl_mechanisms import KafkaSaslMechanism, SaslSettings
    from zkconsumer.kafka.transport import Transport
    from zkconsumer.wire.schemas import Api

Q = TypeVar("Q")
R = TypeVar("R")

LOGIN_TIMEOUT_MS = 10_000
"""How long a login may take after the TCP connect, also if ``socket.timeout.ms`` is longer."""

LOGIN_BYTES_MAX = 512 * 1024
"""The longest message of a login, as in brokers (``sasl.server.max.receive.size``)."""

CHALLENGES_MAX = 20
"""How many challenges one login may have; Kerberos needs about four."""

RENEW_AT_FRACTION = 0.85
"""The part of a login's lifetime after which it is renewed, as in Kafka's Java clients (KIP-368)."""


class SaslTransport:
    """A ``Transport`` that logs in over another one, which it owns.

    Besides the exceptions of the transport below: ``AuthenticationException`` when the broker rejects the login, and
    ``RemoteProtocolError`` for bytes that no broker sends.
    """

    def __init__(
        self, make_below: Callable[[], Transport], settings: SaslSettings, host: str, port: int, clock: Clock
    ) -> None:
        self._make_below = make_below
        self._inner = make_below()
        self._settings = settings
        self._host = host
        self._where = f"{host}:{port}"
        self._clock = clock
        self._is_aborted = False
        self._correlation_id = 0
        self._renew_at_ms: int | None = None

    def open(self, deadline_ms: int) -> None:
        """Connect and log in, in ``LOGIN_TIMEOUT_MS`` at most."""
        self._inner.open(deadline_ms)
        try:
            self._log_in(min(deadline_ms, self._clock.now_ms() + LOGIN_TIMEOUT_MS), deadline_ms)
        except HandshakeTimeoutError:
            raise
        except TimeoutError:
            raise HandshakeTimeoutError("the SASL login") from None

    def renew(self, deadline_ms: int) -> None:
        """Log in again on the same connection when most of the login's lifetime is over."""
        self._inner.renew(deadline_ms)
        if self._renew_at_ms is not None and self._clock.now_ms() >= self._renew_at_ms:
            try:
                self._log_in(min(deadline_ms, self._clock.now_ms() + LOGIN_TIMEOUT_MS), deadline_ms)
            except TimeoutError:
                raise HandshakeTimeoutError("the renewal of the SASL login") from None

    # --- delegated ----------------------------------------------------------------------------------------------

    def send_all(self, data: bytes, deadline_ms: int) -> None:
        """See ``Transport``."""
        self._inner.send_all(data, deadline_ms)

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        """See ``Transport``."""
        return self._inner.receive_into(view, deadline_ms)

    def fill(self, view: memoryview, deadline_ms: int) -> int:
        """See ``Transport``."""
        return self._inner.fill(view, deadline_ms)

    def wait(self, deadline_ms: int) -> bool:
        """See ``Transport``."""
        return self._inner.wait(deadline_ms)

    def abort(self) -> None:
        """See ``Transport``."""
        self._is_aborted = True
        self._inner.abort()

    def release(self) -> None:
        """See ``Transport``."""
        self._inner.release()

    # --- the login ----------------------------------------------------------------------------------------------

    def _log_in(self, deadline_ms: int, connect_deadline_ms: int) -> None:
        mechanism = self._settings.new_mechanism(self._host)
        began_ms = self._clock.now_ms()
        try:
            ranges = self._ask_versions(deadline_ms)
        except ConnectionError:
            if self._settings.mechanism != "GSSAPI" or self._is_aborted:
                raise
            self._reconnect(connect_deadline_ms)
            self._exchange_raw(mechanism, deadline_ms)
            return
        lowest, highest = ranges.get(SASL_HANDSHAKE.key, (0, -1))
        version = min(highest, 1 if SASL_AUTHENTICATE.key in ranges else 0)
        if version < lowest:
            raise self._login_error(f"it has no SaslHandshake version that is supported here (v{lowest} to v{highest})")
        self._handshake(version, deadline_ms)
        if version == 0:
            self._exchange_raw(mechanism, deadline_ms)
            return
        version = min(ranges[SASL_AUTHENTICATE.key][1], SASL_AUTHENTICATE.highest)
        lifetime_ms = self._exchange(mechanism, version, deadline_ms)
        self._renew_at_ms = began_ms + int(lifetime_ms * RENEW_AT_FRACTION) if lifetime_ms > 0 else None

    def _reconnect(self, deadline_ms: int) -> None:
        self._inner.release()
        self._inner = self._make_below()
        if self._is_aborted:
            # The abort may have reached only the previous transport.
            raise ConnectionAbortedError("the transport was aborted")
        self._inner.open(deadline_ms)

    def _ask_versions(self, deadline_ms: int) -> dict[int, tuple[int, int]]:
        response = self._request(API_VERSIONS, 0, ApiVersionsRequest(), deadline_ms)
        if response.error_code != NONE.code:
            raise self._login_error(f"ApiVersions was answered {error_code(response.error_code)}")
        return {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}

    def _handshake(self, version: int, deadline_ms: int) -> None:
        wanted = self._settings.mechanism
        response = self._request(SASL_HANDSHAKE, version, SaslHandshakeRequest(mechanism=wanted), deadline_ms)
        match error_code(response.error_code):
            case code if code == NONE:
                return
            case code if code == UNSUPPORTED_SASL_MECHANISM:
                enabled = printable_text(", ".join(sorted(response.mechanisms))) or "none"
                raise UnsupportedSaslMechanismException(
                    f"{self._where}: the broker does not have sasl.mechanism={wanted}; enabled there: {enabled}"
                )
            case code if code == ILLEGAL_SASL_STATE:
                raise SecurityProtocolMismatch(
                    f"{self._where}: this port wants no SASL, but security.protocol does; take PLAINTEXT for "
                    "SASL_PLAINTEXT and SSL for SASL_SSL, or the broker's other port"
                )
            case code:
                raise self._login_error(f"SaslHandshake was answered {code}")

    def _exchange(self, mechanism: KafkaSaslMechanism, version: int, deadline_ms: int) -> int:
        """Exchange SaslAuthenticate messages until the login is complete; returns its lifetime, 0 for unlimited."""
        message = self._next_message(mechanism, None)
        for _ in range(CHALLENGES_MAX):
            assert message is not None, "the loop continues only with a message"
            request = SaslAuthenticateRequest(auth_bytes=message)
            response = self._request(SASL_AUTHENTICATE, version, request, deadline_ms)
            if response.error_code != NONE.code:
                raise self._authentication_error(error_code(response.error_code).code, response.error_message or "")
            message = self._next_message(mechanism, response.auth_bytes)
            if message is None:
                return response.session_lifetime_ms
        raise self._too_many_challenges()

    def _exchange_raw(self, mechanism: KafkaSaslMechanism, deadline_ms: int) -> None:
        """Exchange the mechanism's raw messages; a rejection is a closed connection."""
        message = self._next_message(mechanism, None)
        for _ in range(CHALLENGES_MAX):
            assert message is not None, "the loop continues only with a message"
            self._inner.send_all(len(message).to_bytes(SIZE_BYTES, "big") + message, deadline_ms)
            if mechanism.final_message_unanswered and mechanism.is_complete:
                return
            try:
                challenge = bytes(self._frame("SASL", deadline_ms))
            except ConnectionError as error:
                if self._is_aborted:
                    raise
                raise SaslAuthenticationException(
                    f"{self._where}: the broker closed the connection during the {self._settings.mechanism} login, "
                    "which is how brokers before Kafka 1.0 reject a wrong user or password; its log has the reason"
                ) from error
            message = self._next_message(mechanism, challenge)
            if message is None:
                return
        raise self._too_many_challenges()

    def _next_message(self, mechanism: KafkaSaslMechanism, challenge: bytes | None) -> bytes | None:
        """The mechanism's response to a challenge, or its first message; None when the login is complete."""
        try:
            message = mechanism.initial_response() if challenge is None else mechanism.evaluate_challenge(challenge)
        except AuthenticationException as error:
            raise type(error)(f"{self._where}: {error}") from error.__cause__
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{self._where}: {error}") from error
        if message is None and not mechanism.is_complete:
            raise self._login_error("the broker ended the login before it had proved its identity")
        return message

    def _authentication_error(self, code: int, words: str) -> AuthenticationException:
        mechanism = self._settings.mechanism
        reason = printable_text(words) or str(error_code(code))
        if code == SASL_AUTHENTICATION_FAILED.code:
            who = {
                "OAUTHBEARER": "the token; look at what oauth_token gives",
                "GSSAPI": "the ticket",
            }.get(mechanism, "the user or the password (sasl.username, sasl.password, or sasl.jaas.config)")
            return SaslAuthenticationException(f"{self._where}: the broker does not accept {who}; it says: {reason}")
        return self._login_error(reason)

    def _login_error(self, why: str) -> SaslAuthenticationException:
        return SaslAuthenticationException(f"{self._where}: the {self._settings.mechanism} login failed: {why}")

    def _too_many_challenges(self) -> RemoteProtocolError:
        return RemoteProtocolError(
            f"{self._where}: the {self._settings.mechanism} login does not end: {CHALLENGES_MAX} challenges; "
            "is this a Kafka broker?"
        )

    # --- requests -----------------------------------------------------------------------------------------------

    def _request(self, api: Api[Q, R], version: int, body: Q, deadline_ms: int) -> R:
        self._correlation_id = (self._correlation_id + 1) & 0x7FFF_FFFF
        self._inner.send_all(encode_request(api, version, self._correlation_id, "", body), deadline_ms)
        data = self._frame(api.name, deadline_ms)
        answered = correlation_id_of(data)
        if answered != self._correlation_id:
            raise RemoteProtocolError(
                f"{self._where}: {api.name} was answered with the correlation id of another request"
            )
        return decode_response(api, version, data)[1]

    def _frame(self, what: str, deadline_ms: int) -> memoryview:
        start = self._filled(SIZE_BYTES, deadline_ms)
        return self._filled(frame_size(start, LOGIN_BYTES_MAX, f"{self._where}: {what} response"), deadline_ms)

    def _filled(self, size: int, deadline_ms: int) -> memoryview:
        data = memoryview(bytearray(size))
        filled = 0
        while filled < size:
            received = self._inner.receive_into(data[filled:], deadline_ms)
            if received == 0:
                raise HandshakeClosedError("the SASL login")
            filled += received
        return data
