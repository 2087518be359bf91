"""The login of a connection as a state machine: response frames in, request frames out.  Pure.

    begin          ApiVersions v0 --> SaslHandshake v1 --> SaslAuthenticate, until the mechanism ends   Kafka 1.0 to 4.x
                                 '--> SaslHandshake v0 --> the mechanism's raw messages, after their length   0.10, 0.11
    begin_raw      the mechanism's raw messages at once: GSSAPI on a new connection, after the broker         0.9
                   closed the first one on ApiVersions
    begin_renewal  SaslHandshake v1 --> SaslAuthenticate, on a connection that serves requests (KIP-368)

ApiVersions is sent first because it is the only request that a broker answers before a login, and a broker closes the
connection on a SaslHandshake of an unknown version.

At most one message of the client waits for an answer.  A lost answer means a lost connection: ``connection_lost``
returns what that means in the current state, and a new connection begins with a new authenticator, except for
``needs_reconnect``.

Invariants:
- ``_mechanism`` is new in each login and each renewal; no message of one login is used in another one.
- ``_correlation_id`` is that of the only request without an answer, and always reserved (``is_reserved``): responses to
  requests that were sent before a renewal arrive during it, and are recognized by their correlation ids.
- ``_api_ranges`` is empty until the broker has answered ApiVersions.
- ``renew_at_ms`` is set only after a login by SaslAuthenticate with a limited lifetime, never during a renewal.

Differences from Java's ``SaslClientAuthenticator`` (3.0): the first frames of a login that are no Kafka responses are
errors of the broker, never a hint to use raw GSSAPI messages (only a closed connection is); a renewal is due after 85 %
of the lifetime counted from the beginning of the login, not after a random part between 85 % and 95 % counted from its
end, so that two clocks that differ by a round trip cannot matter; the number and the length of challenges have limits.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import TYPE_CHECKING, Final, TypeVar

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
from zkconsumer.wire.request_frames import SIZE_BYTES, correlation_id_of, decode_response, encode_request
from zkconsumer.wire.schemas import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest
from zkconsumer.wire.schemas.sasl_authenticate import SaslAuthenticateRequest
from zkconsumer.wire.schemas.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from zkconsumer.kafka.sasl_mechanisms import KafkaSaslMechanism, SaslSettings
    from zkconsumer.wire.schemas import Api

Q = TypeVar("Q")
R = TypeVar("R")

LOGIN_TIMEOUT_MS: Final = 10_000
"""How long a login may take after the TCP connect, also if ``socket.timeout.ms`` is longer."""

LOGIN_BYTES_MAX: Final = 512 * 1024
"""The longest message of a login, as in brokers (``sasl.server.max.receive.size``)."""

CHALLENGES_MAX: Final = 20
"""How many challenges one login may have; Kerberos needs about four."""

RENEW_AT_FRACTION: Final = 0.85
"""The part of a login's lifetime after which it is renewed, as in Kafka's Java clients (KIP-368)."""

RESERVED_CORRELATION_ID_MAX: Final = 0x7FFF_FFFF
RESERVED_CORRELATION_ID_MIN: Final = RESERVED_CORRELATION_ID_MAX - 7
"""The range of correlation ids that only logins use, the same as in Java."""

REQUEST_CORRELATION_ID_MAX: Final = RESERVED_CORRELATION_ID_MIN - 1
"""The last correlation id of requests; 0 follows it."""


def is_reserved(correlation_id: int) -> bool:
    """Whether only logins use this correlation id."""
    return correlation_id >= RESERVED_CORRELATION_ID_MIN


class SaslClientState(Enum):
    """The states of a login; Java's ``SaslState`` without those in which a message waits to be written."""

    INITIAL = auto()
    RECEIVE_APIVERSIONS_RESPONSE = auto()
    RECEIVE_HANDSHAKE_RESPONSE = auto()
    INTERMEDIATE = auto()
    """Waits for a SaslAuthenticate response."""
    INTERMEDIATE_RAW = auto()
    """Waits for a raw message of the mechanism."""
    COMPLETE = auto()
    NEEDS_RECONNECT = auto()
    """GSSAPI, and the broker closed the connection on ApiVersions: ``begin_raw`` on a new connection follows."""
    FAILED = auto()


WAITING_STATES: Final = frozenset(
    {
        SaslClientState.RECEIVE_APIVERSIONS_RESPONSE,
        SaslClientState.RECEIVE_HANDSHAKE_RESPONSE,
        SaslClientState.INTERMEDIATE,
        SaslClientState.INTERMEDIATE_RAW,
    }
)
"""The states in which the next frame is for the login."""


class SaslClientAuthenticator:
    """One connection's login and its renewals; see the head of this module.

    ``begin``, ``begin_raw``, ``begin_renewal`` and ``receive`` return the bytes to send, and raise
    ``AuthenticationException`` when the broker rejects the login or has not proved itself, ``RemoteProtocolError``
    for bytes that no broker sends, and ``InvalidConfigException`` when the mechanism lacks something.
    """

    def __init__(self, settings: SaslSettings, host: str, port: int) -> None:
        self._settings = settings
        self._host = host
        self._where = f"{host}:{port}"
        self._state = SaslClientState.INITIAL
        self._mechanism: KafkaSaslMechanism | None = None
        self._correlation_id = RESERVED_CORRELATION_ID_MAX
        self._api_ranges: dict[int, tuple[int, int]] = {}
        self._authenticate_version = 0
        self._is_raw_after_handshake = False
        self._messages_sent = 0
        self._began_ms = 0
        self._renew_at_ms: int | None = None

    @property
    def state(self) -> SaslClientState:
        """The state; ``COMPLETE`` before the first renewal and after each."""
        return self._state

    @property
    def is_complete(self) -> bool:
        """Whether the broker has accepted the login and has proved itself."""
        return self._state is SaslClientState.COMPLETE

    @property
    def needs_reconnect(self) -> bool:
        """Whether the login continues with ``begin_raw`` on a new connection."""
        return self._state is SaslClientState.NEEDS_RECONNECT

    @property
    def renew_at_ms(self) -> int | None:
        """When the login must be renewed; None: never, or a renewal is running."""
        return self._renew_at_ms

    @property
    def deadline_ms(self) -> int:
        """When the login or the renewal that began last must be complete."""
        return self._began_ms + LOGIN_TIMEOUT_MS

    @property
    def awaited(self) -> str:
        """The name of the response that the login waits for, for the texts of errors."""
        match self._state:
            case SaslClientState.RECEIVE_APIVERSIONS_RESPONSE:
                return API_VERSIONS.name
            case SaslClientState.RECEIVE_HANDSHAKE_RESPONSE:
                return SASL_HANDSHAKE.name
            case SaslClientState.INTERMEDIATE:
                return SASL_AUTHENTICATE.name
        return "SASL"

    # --- commands -------------------------------------------------------------------------------------------------

    def begin(self, now_ms: int) -> bytes:
        """Begin the login of a new connection."""
        assert self._state is SaslClientState.INITIAL, "an authenticator begins once"
        self._began_ms = now_ms
        self._mechanism = self._settings.new_mechanism(self._host)
        return self._request(SaslClientState.RECEIVE_APIVERSIONS_RESPONSE, API_VERSIONS, 0, ApiVersionsRequest())

    def begin_raw(self) -> bytes:
        """Continue after ``needs_reconnect`` on the new connection; the deadline stays that of the first one."""
        assert self._state is SaslClientState.NEEDS_RECONNECT, "only a login that the broker closed continues raw"
        return self._begin_exchange(SaslClientState.INTERMEDIATE_RAW)

    def begin_renewal(self, now_ms: int) -> bytes:
        """Log in again on the same connection; the broker's API versions stay those of the first login."""
        assert self._state is SaslClientState.COMPLETE, "a renewal follows a complete login"
        assert self._renew_at_ms is not None, "only a login with a lifetime is renewed"
        self._began_ms, self._renew_at_ms = now_ms, None
        self._mechanism = self._settings.new_mechanism(self._host)
        return self._send_handshake()

    def receive(self, frame: memoryview) -> bytes:
        """Process the next frame of the broker, without its size; returns the next message, empty if there is none."""
        assert self._state in WAITING_STATES, "a frame is for the login only while one of its messages has no answer"
        try:
            match self._state:
                case SaslClientState.RECEIVE_APIVERSIONS_RESPONSE:
                    return self._receive_api_versions(frame)
                case SaslClientState.RECEIVE_HANDSHAKE_RESPONSE:
                    return self._receive_handshake(frame)
                case SaslClientState.INTERMEDIATE:
                    return self._receive_authenticate(frame)
            return self._receive_raw(bytes(frame))
        except Exception:
            # Whatever the reason is, no later frame may continue this login.
            self._state = SaslClientState.FAILED
            raise

    def connection_lost(self, error: ConnectionError) -> Exception | None:
        """What the loss of the connection means: the exception to raise; None: ``needs_reconnect`` is set."""
        state, self._state = self._state, SaslClientState.FAILED
        if state is SaslClientState.RECEIVE_APIVERSIONS_RESPONSE and self._settings.mechanism == "GSSAPI":
            self._state = SaslClientState.NEEDS_RECONNECT
            return None
        if state is SaslClientState.INTERMEDIATE_RAW:
            rejected = SaslAuthenticationException(
                f"{self._where}: the broker closed the connection during the {self._settings.mechanism} login, "
                "which is how brokers before Kafka 1.0 reject a wrong user or password; its log has the reason"
            )
            rejected.__cause__ = error
            return rejected
        return error

    # --- the steps ------------------------------------------------------------------------------------------------

    def _receive_api_versions(self, frame: memoryview) -> bytes:
        response = self._response(API_VERSIONS, 0, frame)
        if response.error_code != NONE.code:
            raise self._login_error(f"ApiVersions was answered {error_code(response.error_code)}")
        self._api_ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        return self._send_handshake()

    def _send_handshake(self) -> bytes:
        lowest, highest = self._api_ranges.get(SASL_HANDSHAKE.key, (0, -1))
        version = min(highest, 1 if SASL_AUTHENTICATE.key in self._api_ranges else 0)
        if version < lowest:
            raise self._login_error(f"it has no SaslHandshake version that is supported here (v{lowest} to v{highest})")
        self._is_raw_after_handshake = version == 0
        wanted = SaslHandshakeRequest(mechanism=self._settings.mechanism)
        return self._request(SaslClientState.RECEIVE_HANDSHAKE_RESPONSE, SASL_HANDSHAKE, version, wanted)

    def _receive_handshake(self, frame: memoryview) -> bytes:
        wanted = self._settings.mechanism
        version = 0 if self._is_raw_after_handshake else 1
        response = self._response(SASL_HANDSHAKE, version, frame)
        match error_code(response.error_code):
            case code if code == NONE:
                pass
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
        if self._is_raw_after_handshake:
            return self._begin_exchange(SaslClientState.INTERMEDIATE_RAW)
        self._authenticate_version = min(self._api_ranges[SASL_AUTHENTICATE.key][1], SASL_AUTHENTICATE.highest)
        return self._begin_exchange(SaslClientState.INTERMEDIATE)

    def _begin_exchange(self, state: SaslClientState) -> bytes:
        self._messages_sent = 0
        message = self._next_message(None)
        assert message is not None, "every mechanism begins with a message of the client"
        return self._send_message(state, message)

    def _send_message(self, state: SaslClientState, message: bytes) -> bytes:
        """Frame a message of the mechanism, and wait for the answer."""
        assert self._mechanism is not None, "each login has a mechanism"
        if self._messages_sent == CHALLENGES_MAX:
            raise RemoteProtocolError(
                f"{self._where}: the {self._settings.mechanism} login does not end: {CHALLENGES_MAX} challenges; "
                "is this a Kafka broker?"
            )
        self._messages_sent += 1
        if state is SaslClientState.INTERMEDIATE:
            request = SaslAuthenticateRequest(auth_bytes=message)
            return self._request(state, SASL_AUTHENTICATE, self._authenticate_version, request)
        is_last = self._mechanism.final_message_unanswered and self._mechanism.is_complete
        self._state = SaslClientState.COMPLETE if is_last else state
        return len(message).to_bytes(SIZE_BYTES, "big") + message

    def _receive_authenticate(self, frame: memoryview) -> bytes:
        response = self._response(SASL_AUTHENTICATE, self._authenticate_version, frame)
        if response.error_code != NONE.code:
            raise self._authentication_error(error_code(response.error_code).code, response.error_message or "")
        message = self._next_message(response.auth_bytes)
        if message is not None:
            return self._send_message(SaslClientState.INTERMEDIATE, message)
        self._state = SaslClientState.COMPLETE
        if response.session_lifetime_ms > 0:
            self._renew_at_ms = self._began_ms + int(response.session_lifetime_ms * RENEW_AT_FRACTION)
        return b""

    def _receive_raw(self, challenge: bytes) -> bytes:
        message = self._next_message(challenge)
        if message is not None:
            return self._send_message(SaslClientState.INTERMEDIATE_RAW, message)
        self._state = SaslClientState.COMPLETE
        return b""

    def _next_message(self, challenge: bytes | None) -> bytes | None:
        """The mechanism's response to a challenge, or its first message; None when the login is complete."""
        mechanism = self._mechanism
        assert mechanism is not None, "each login has a mechanism"
        try:
            message = mechanism.initial_response() if challenge is None else mechanism.evaluate_challenge(challenge)
        except AuthenticationException as error:
            raise type(error)(f"{self._where}: {error}") from error.__cause__
        except RemoteProtocolError as error:
            raise RemoteProtocolError(f"{self._where}: {error}") from error
        if message is None and not mechanism.is_complete:
            raise self._login_error("the broker ended the login before it had proved its identity")
        return message

    # --- errors ---------------------------------------------------------------------------------------------------

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

    # --- frames ---------------------------------------------------------------------------------------------------

    def _request(self, state: SaslClientState, api: Api[Q, R], version: int, body: Q) -> bytes:
        """Encode a request with the next reserved correlation id, and wait for its response in ``state``."""
        last = self._correlation_id
        self._correlation_id = RESERVED_CORRELATION_ID_MIN if last == RESERVED_CORRELATION_ID_MAX else last + 1
        self._state = state
        return encode_request(api, version, self._correlation_id, "", body)

    def _response(self, api: Api[Q, R], version: int, frame: memoryview) -> R:
        if correlation_id_of(frame) != self._correlation_id:
            raise RemoteProtocolError(
                f"{self._where}: {api.name} was answered with the correlation id of another request"
            )
        return decode_response(api, version, frame)[1]
