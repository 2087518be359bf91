"""Brokers that say anything during a login or a TLS handshake: an error in time, little memory, no password shown."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest

from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_security import FakeSecurity
from tests.broker_security_cases import PASSWORD, TLS, USER
from zkconsumer.errors import BrokerUnreachable, RemoteProtocolError, SaslAuthenticationException, ZkConsumerError
from zkconsumer.kafka.broker_security import BrokerSecurity, SecureConnectionFactory
from zkconsumer.kafka.net.sasl_client_authenticator import CHALLENGES_MAX
from zkconsumer.kafka.sasl_mechanisms import BROKER_MESSAGE_CHARS_MAX, SCRAM_ITERATIONS_MAX, SaslSettings, Scram
from zkconsumer.kafka.tls import TlsSettings
from zkconsumer.kafka.transport import fill_by_receiving
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.wire.request_frames import encode_response
from zkconsumer.wire.schemas import SASL_AUTHENTICATE
from zkconsumer.wire.schemas.sasl_authenticate import SaslAuthenticateResponse

TRUST = TlsSettings(ca_file=str(TLS / "ca.pem"))


def outcome(mechanism: str, misbehave: Callable[[int, bytes], bytes | None], **changes: bool) -> ZkConsumerError:
    """The error of a login at a broker that misbehaves."""
    security = FakeSecurity(
        "SASL_SSL", certificate=TLS / "broker.pem", users={USER: PASSWORD}, tamper=misbehave, **changes
    )
    cluster = FakeCluster(security=security)
    settings = SaslSettings(mechanism, USER, PASSWORD, oauth_token=lambda: "token")
    connect = SecureConnectionFactory(BrokerSecurity("SASL_SSL", TRUST, settings), socket=cluster.transport)
    with pytest.raises(ZkConsumerError) as refused:
        negotiate(connect(*cluster.address(0)[1:], connect_timeout_ms=2_000), 2_000)
    assert PASSWORD not in str(refused.value)
    assert len(str(refused.value)) < 1_000
    return refused.value


def framed(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def challenge(answer: bytes, said: bytes) -> bytes:
    """An answer of SaslAuthenticate v2 to the request that ``answer`` answers, with another message in it."""
    number = int.from_bytes(answer[4:8], "big")
    return encode_response(SASL_AUTHENTICATE, 2, number, SaslAuthenticateResponse(auth_bytes=said))


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "OAUTHBEARER"])
@pytest.mark.parametrize("at", [1, 2, 3, 4])
@pytest.mark.parametrize("modern", [True, False])
def test_garbage_at_any_step_is_an_error_of_the_peer(mechanism: str, at: int, modern: bool) -> None:
    for seed in range(20):
        chance = random.Random(seed)

        def misbehave(step: int, answer: bytes, chance: random.Random = chance) -> bytes | None:
            return framed(chance.randbytes(chance.randrange(60))) if step >= at else answer

        try:
            error = outcome(mechanism, misbehave, has_authenticate=modern)
        except pytest.fail.Exception:
            assert mechanism != "SCRAM-SHA-256", "a broker that knows no password is never believed"
            continue
        assert isinstance(error, RemoteProtocolError | SaslAuthenticationException | BrokerUnreachable), repr(error)


@pytest.mark.parametrize("at", [1, 2, 3])
def test_an_end_at_any_step_is_a_closed_connection(at: int) -> None:
    error = outcome("SCRAM-SHA-512", lambda step, answer: None if step >= at else answer)
    assert isinstance(error, BrokerUnreachable)
    assert "closed in the middle of the SASL login" in str(error)


def test_a_huge_message_is_refused_before_it_is_read() -> None:
    error = outcome("PLAIN", lambda step, answer: (2**31 - 1).to_bytes(4, "big") if step == 3 else answer)
    assert isinstance(error, RemoteProtocolError)
    assert "at most 524288 are accepted" in str(error)


def test_challenges_without_end_are_ended() -> None:
    steps: list[int] = []

    def misbehave(step: int, answer: bytes) -> bytes:
        steps.append(step)
        return challenge(answer, b'{"status":"again"}') if step > 2 else answer

    error = outcome("OAUTHBEARER", misbehave)
    assert isinstance(error, RemoteProtocolError | SaslAuthenticationException | BrokerUnreachable)
    assert len(steps) <= CHALLENGES_MAX + 2


def test_a_broker_that_does_not_know_the_password_is_not_believed() -> None:
    """Whoever only says yes has not proved anything."""
    yes = outcome("SCRAM-SHA-256", lambda step, answer: challenge(answer, b"v=AAAA") if step == 4 else answer)
    assert isinstance(yes, SaslAuthenticationException)
    assert "has not proved that it knows the password" in str(yes)
    silent = outcome("SCRAM-SHA-256", lambda step, answer: challenge(answer, b"") if step >= 3 else answer)
    assert isinstance(silent, SaslAuthenticationException | RemoteProtocolError)


def test_iterations_that_would_take_hours_are_refused() -> None:
    scram = Scram("SCRAM-SHA-256", USER, PASSWORD)
    nonce = scram.initial_response().decode().rpartition("r=")[2]
    words = f"r={nonce}x,s=c2FsdHNhbHRzYWx0c2FsdA==,i={SCRAM_ITERATIONS_MAX + 1}"
    with pytest.raises(RemoteProtocolError, match="iterations"):
        scram.evaluate_challenge(words.encode())


def test_what_a_broker_says_is_cut_and_fit_for_one_line() -> None:
    words = "bad\r\n\x1b[31m" + "x" * 10_000
    response = SaslAuthenticateResponse(error_code=58, error_message=words)

    def misbehave(step: int, answer: bytes) -> bytes:
        number = int.from_bytes(answer[4:8], "big")
        return encode_response(SASL_AUTHENTICATE, 2, number, response) if step == 3 else answer

    error = outcome("PLAIN", misbehave)
    assert "x" * (BROKER_MESSAGE_CHARS_MAX - 20) in str(error)
    assert "\n" not in str(error)
    assert "\x1b" not in str(error)


def test_garbage_instead_of_tls_is_an_error_in_time() -> None:
    for seed in range(200):
        chance = random.Random(seed)
        start = chance.choice(
            [b"", b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x16\x03\x03\x40\x00", b"\x15\x03\x01\x00\x02"]
        )
        data = start + chance.randbytes(chance.randrange(200))
        connect = SecureConnectionFactory(BrokerSecurity("SSL", TRUST), socket=lambda *_, data=data: Recorded(data))
        with pytest.raises((RemoteProtocolError, BrokerUnreachable, ZkConsumerError)):
            negotiate(connect("127.0.0.1", 1, connect_timeout_ms=1_000), 1_000)


class Recorded:
    """A transport that says what it was told to, and ends."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def open(self, deadline_ms: int) -> None: ...

    def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None: ...

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        piece, self._data = self._data[: len(view)], self._data[len(view) :]
        view[: len(piece)] = piece
        return len(piece)

    def fill(self, view: memoryview, deadline_ms: int) -> int:
        return fill_by_receiving(self, view, deadline_ms)

    def wait(self, deadline_ms: int) -> bool:
        return True

    def abort(self) -> None: ...

    def release(self) -> None: ...
