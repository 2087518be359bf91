"""The login as a conversation: which request follows which response, by which versions, and what an error means."""

from __future__ import annotations

from typing import Any

import pytest

from zkconsumer.errors import (
    InvalidConfigException,
    RemoteProtocolError,
    SaslAuthenticationException,
    SecurityProtocolMismatch,
    UnsupportedSaslMechanismException,
)
from zkconsumer.kafka.error_codes import (
    ILLEGAL_SASL_STATE,
    SASL_AUTHENTICATION_FAILED,
    UNKNOWN_SERVER_ERROR,
    UNSUPPORTED_SASL_MECHANISM,
)
from zkconsumer.kafka.net.sasl_client_authenticator import (
    CHALLENGES_MAX,
    REQUEST_CORRELATION_ID_MAX,
    RESERVED_CORRELATION_ID_MIN,
    SaslClientAuthenticator,
    SaslClientState,
    is_reserved,
)
from zkconsumer.kafka.sasl_mechanisms import SaslSettings
from zkconsumer.wire.request_frames import SIZE_BYTES, RequestHeader, decode_request_header, encode_response
from zkconsumer.wire.schemas import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE
from zkconsumer.wire.schemas.api_versions import ApiVersion, ApiVersionsResponse
from zkconsumer.wire.schemas.sasl_authenticate import SaslAuthenticateResponse
from zkconsumer.wire.schemas.sasl_handshake import SaslHandshakeResponse

PLAIN = SaslSettings("PLAIN", "alice", "word")
FIRST_MESSAGE = b"\0alice\0word"


class Conversation:
    """A login whose other side is the test; ``last`` is the last message of the client, with its size."""

    def __init__(self, settings: SaslSettings = PLAIN, now_ms: int = 1_000) -> None:
        self.login = SaslClientAuthenticator(settings, "b1", 9092)
        self.last = self.login.begin(now_ms)

    @property
    def header(self) -> RequestHeader:
        return decode_request_header(self.last[SIZE_BYTES:])

    def raw(self, message: bytes) -> bytes:
        self.last = self.login.receive(memoryview(message))
        return self.last

    def answer(self, api: Any, version: int, body: Any) -> bytes:
        assert (self.header.api_key, self.header.api_version) == (api.key, version)
        return self.raw(encode_response(api, version, self.header.correlation_id, body)[SIZE_BYTES:])

    def versions(self, handshake: tuple[int, int] | None = (0, 1), authenticate: int | None = 2) -> bytes:
        ranges = []
        if handshake is not None:
            ranges.append(ApiVersion(api_key=SASL_HANDSHAKE.key, min_version=handshake[0], max_version=handshake[1]))
        if authenticate is not None:
            ranges.append(ApiVersion(api_key=SASL_AUTHENTICATE.key, min_version=0, max_version=authenticate))
        return self.answer(API_VERSIONS, 0, ApiVersionsResponse(error_code=0, api_keys=ranges))

    def handshake(self, version: int = 1, error_code: int = 0, mechanisms: list[str] | None = None) -> bytes:
        body = SaslHandshakeResponse(error_code=error_code, mechanisms=mechanisms or ["PLAIN"])
        return self.answer(SASL_HANDSHAKE, version, body)

    def authenticate(self, version: int = 2, **changes: Any) -> bytes:
        return self.answer(SASL_AUTHENTICATE, version, SaslAuthenticateResponse(**changes))


def test_a_login_by_sasl_authenticate() -> None:
    talk = Conversation()
    assert talk.login.state is SaslClientState.RECEIVE_APIVERSIONS_RESPONSE
    assert talk.login.awaited == "ApiVersions"
    talk.versions()
    assert talk.login.awaited == "SaslHandshake"
    assert FIRST_MESSAGE in talk.handshake()
    assert talk.login.awaited == "SaslAuthenticate"
    assert talk.authenticate() == b""
    assert talk.login.is_complete
    assert talk.login.renew_at_ms is None


@pytest.mark.parametrize(("offered", "used"), [(0, 0), (1, 1), (9, SASL_AUTHENTICATE.highest)])
def test_the_version_of_sasl_authenticate_is_the_highest_of_both(offered: int, used: int) -> None:
    talk = Conversation()
    talk.versions(authenticate=offered)
    talk.handshake()
    talk.authenticate(used)
    assert talk.login.is_complete


@pytest.mark.parametrize(("handshake", "authenticate"), [((0, 0), 2), ((0, 1), None), ((0, 0), None)], ids=str)
def test_messages_are_raw_without_one_of_the_two_apis(handshake: tuple[int, int], authenticate: int | None) -> None:
    talk = Conversation()
    talk.versions(handshake, authenticate)
    assert talk.handshake(version=0) == len(FIRST_MESSAGE).to_bytes(4, "big") + FIRST_MESSAGE
    assert talk.login.awaited == "SASL"
    assert talk.raw(b"") == b""
    assert talk.login.is_complete


@pytest.mark.parametrize("handshake", [None, (2, 3)])
def test_a_broker_without_a_version_of_the_handshake_that_exists_here(handshake: tuple[int, int] | None) -> None:
    talk = Conversation()
    with pytest.raises(SaslAuthenticationException, match="it has no SaslHandshake version that is supported here"):
        talk.versions(handshake)
    assert talk.login.state is SaslClientState.FAILED


@pytest.mark.parametrize(
    ("code", "error", "text"),
    [
        (UNSUPPORTED_SASL_MECHANISM, UnsupportedSaslMechanismException, "enabled there: GSSAPI, SCRAM"),
        (ILLEGAL_SASL_STATE, SecurityProtocolMismatch, "this port wants no SASL"),
        (UNKNOWN_SERVER_ERROR, SaslAuthenticationException, "SaslHandshake was answered"),
    ],
)
def test_a_handshake_that_is_refused(code: Any, error: type[Exception], text: str) -> None:
    talk = Conversation()
    talk.versions()
    with pytest.raises(error, match=text):
        talk.handshake(error_code=code.code, mechanisms=["SCRAM", "GSSAPI"])
    assert talk.login.state is SaslClientState.FAILED


def test_a_refused_password_has_the_brokers_reason() -> None:
    talk = Conversation()
    talk.versions()
    talk.handshake()
    with pytest.raises(SaslAuthenticationException, match=r"does not accept the user or the password .* go away"):
        talk.authenticate(error_code=SASL_AUTHENTICATION_FAILED.code, error_message="go away")


def test_an_error_of_api_versions_is_named() -> None:
    talk = Conversation()
    with pytest.raises(SaslAuthenticationException, match="ApiVersions was answered UNKNOWN_SERVER_ERROR"):
        talk.answer(API_VERSIONS, 0, ApiVersionsResponse(error_code=UNKNOWN_SERVER_ERROR.code, api_keys=[]))


def test_the_response_to_another_request_is_no_response() -> None:
    talk = Conversation()
    with pytest.raises(RemoteProtocolError, match="ApiVersions was answered with the correlation id of another"):
        talk.raw(bytes(4))


def test_challenges_have_a_limit() -> None:
    talk = Conversation(SaslSettings("OAUTHBEARER", oauth_token=lambda: "token"))
    talk.versions()
    talk.handshake()
    for _ in range(CHALLENGES_MAX - 1):
        talk.authenticate(auth_bytes=b'{"status":"again"}')
    with pytest.raises(RemoteProtocolError, match="does not end: 20 challenges"):
        talk.authenticate(auth_bytes=b'{"status":"again"}')


def test_a_broker_that_proves_nothing_is_not_believed() -> None:
    talk = Conversation(SaslSettings("SCRAM-SHA-256", "alice", "word"))
    talk.versions()
    talk.handshake()
    with pytest.raises((SaslAuthenticationException, RemoteProtocolError)):
        talk.authenticate(auth_bytes=b"")
    assert not talk.login.is_complete


def test_a_mechanism_that_lacks_something_fails_at_the_beginning() -> None:
    with pytest.raises(InvalidConfigException, match="is not supported"):
        SaslClientAuthenticator(SaslSettings("NONE"), "b1", 9092).begin(0)


# --- a lost connection --------------------------------------------------------------------------------------------


def test_a_lost_connection_in_a_raw_exchange_is_a_rejection() -> None:
    talk = Conversation()
    talk.versions(authenticate=None)
    talk.handshake(version=0)
    error = ConnectionResetError("reset")
    lost = talk.login.connection_lost(error)
    assert isinstance(lost, SaslAuthenticationException)
    assert lost.__cause__ is error
    assert talk.login.state is SaslClientState.FAILED


def test_a_lost_connection_in_another_state_is_only_that() -> None:
    talk = Conversation()
    talk.versions()
    error = ConnectionResetError("reset")
    assert talk.login.connection_lost(error) is error
    assert not talk.login.needs_reconnect


def test_gssapi_needs_a_new_connection_only_after_api_versions(kerberos: dict[str, Any]) -> None:
    talk = Conversation(SaslSettings("GSSAPI"))
    talk.versions()
    error = ConnectionResetError("reset")
    assert talk.login.connection_lost(error) is error
    first = Conversation(SaslSettings("GSSAPI"))
    assert first.login.connection_lost(error) is None
    assert first.login.needs_reconnect
    assert first.login.begin_raw() == b"\0\0\0\x06AP-REQ"


# --- renewals -----------------------------------------------------------------------------------------------------


def test_a_renewal_begins_with_the_handshake_and_a_new_token() -> None:
    tokens = iter(["first", "second"])
    talk = Conversation(SaslSettings("OAUTHBEARER", oauth_token=lambda: next(tokens)), now_ms=1_000)
    talk.versions()
    assert b"Bearer first" in talk.handshake()
    talk.authenticate(session_lifetime_ms=10_000)
    assert talk.login.renew_at_ms == 1_000 + 8_500
    talk.last = talk.login.begin_renewal(9_500)
    assert talk.login.renew_at_ms is None
    assert talk.login.deadline_ms == 19_500
    assert b"Bearer second" in talk.handshake()
    talk.authenticate(session_lifetime_ms=20_000)
    assert talk.login.renew_at_ms == 9_500 + 17_000


def test_correlation_ids_are_reserved_and_begin_again_after_the_last() -> None:
    talk = Conversation()
    seen = [talk.header.correlation_id]
    talk.versions()
    seen.append(talk.header.correlation_id)
    for now_ms in range(10_000, 200_000, 10_000):
        talk.handshake()
        seen.append(talk.header.correlation_id)
        talk.authenticate(session_lifetime_ms=10_000)
        talk.last = talk.login.begin_renewal(now_ms)
        seen.append(talk.header.correlation_id)
    assert set(seen) == set(range(RESERVED_CORRELATION_ID_MIN, 2**31))
    assert all(map(is_reserved, seen))
    assert not is_reserved(REQUEST_CORRELATION_ID_MAX)
    assert is_reserved(REQUEST_CORRELATION_ID_MAX + 1)
