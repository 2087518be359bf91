"""A connection without its socket: real OpenSSL and real SCRAM against the fake broker's side, in memory."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import chain, cycle, repeat
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.testing.fake_security import FakeSecurity, SecuredTransport
from tests.broker_security_cases import PASSWORD, TLS, TOKEN, USER
from zkconsumer.errors import RemoteProtocolError, SaslAuthenticationException, SslAuthenticationException
from zkconsumer.kafka.broker_security import BrokerSecurity, SecureConnectionFactory
from zkconsumer.kafka.net.broker_channel import BrokerChannel, ChannelPhase
from zkconsumer.kafka.net.frame_receiver import RECEIVE_AHEAD_BYTES
from zkconsumer.kafka.net.handshake_errors import HandshakeClosedError
from zkconsumer.kafka.net.sasl_client_authenticator import RESERVED_CORRELATION_ID_MIN
from zkconsumer.kafka.sasl_mechanisms import SaslSettings
from zkconsumer.kafka.tls import HANDSHAKE_TIMEOUT_MS, TLS_LARGE_READ_BYTES, TLS_READ_BYTES, NotTlsError, TlsSettings
from zkconsumer.kafka.transport import fill_by_receiving
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.wire.primitives import MalformedMessage
from zkconsumer.wire.request_frames import SIZE_BYTES, decode_request_header
from zkconsumer.wire.schemas import API_VERSIONS, SASL_AUTHENTICATE, SASL_HANDSHAKE

TRUST = TlsSettings(ca_file=str(TLS / "ca.pem"))
SCRAM = SaslSettings("SCRAM-SHA-512", USER, PASSWORD)
PROTOCOLS = ["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
HOST, PORT = "broker-0.fake.invalid", 9092
LIFETIME_MS = 10_000


def framed(body: bytes) -> bytes:
    return len(body).to_bytes(SIZE_BYTES, "big") + body


def numbered(correlation_id: int, size: int = 20) -> bytes:
    """The body of a response."""
    return correlation_id.to_bytes(4, "big") + bytes(size)


class Requests:
    """What is behind the fake broker's TLS and login: takes requests, and sends what the test gives it."""

    def __init__(self) -> None:
        self.received: list[bytes] = []
        self.unsent = bytearray()
        self.has_ended = False

    def open(self, deadline_ms: int) -> None: ...

    def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None:
        self.received.append(bytes(data))

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        taken = bytes(self.unsent[: len(view)])
        view[: len(taken)] = taken
        del self.unsent[: len(taken)]
        return len(taken)

    def fill(self, view: memoryview, deadline_ms: int) -> int:
        return fill_by_receiving(self, view, deadline_ms)

    def wait(self, deadline_ms: int) -> bool:
        return bool(self.unsent)

    def abort(self) -> None: ...

    def release(self) -> None: ...


class Peer:
    """A broker's end of a channel: bytes in, bytes out."""

    def __init__(self, protocol: str, **changes: Any) -> None:
        settings: dict[str, Any] = {
            "certificate": TLS / "broker.pem",
            "users": {USER: PASSWORD},
            "tokens": frozenset({TOKEN}),
        }
        self.security = FakeSecurity(protocol, **(settings | changes))
        self.requests = Requests()
        self._secured = SecuredTransport(self.requests, self.security, ManualClock())
        self._secured.open(0)

    def take(self, data: bytes | memoryview) -> None:
        self._secured.send_all(bytes(data), 0)

    def give(self, *bodies: bytes) -> None:
        """Respond to requests."""
        self.requests.unsent += b"".join(map(framed, bodies))

    def output(self) -> bytes:
        """All bytes for the channel."""
        view = memoryview(bytearray(2**20))
        taken = bytearray()
        while self._secured.wait(0) and (count := self._secured.receive_into(view, 0)):
            taken += view[:count]
        return bytes(taken)


@cache
def factory(protocol: str) -> SecureConnectionFactory:
    return SecureConnectionFactory(BrokerSecurity(protocol, TRUST, SCRAM))


def channel_of(protocol: str) -> BrokerChannel:
    return factory(protocol).new_channel(HOST, PORT)


def put(channel: BrokerChannel, data: bytes, now_ms: int = 0, sizes: Sequence[int] = ()) -> list[bytes]:
    """Give the channel these bytes, in pieces of these sizes; returns the whole frames."""
    frames = []
    rest = memoryview(data)
    for size in chain(sizes, repeat(2**30)):
        if not rest:
            return frames
        view, _ = channel.receive_buffer()
        assert view, "there is always memory for bytes"
        count = min(size, len(view), len(rest))
        view[:count] = rest[:count]
        rest = rest[count:]
        channel.received(count, now_ms)
        if channel.phase is ChannelPhase.READY:
            frames += frames_of(channel)
    raise AssertionError("the sizes do not end")


def frames_of(channel: BrokerChannel) -> list[bytes]:
    frames = []
    while (frame := channel.next_frame()) is not None:
        frames.append(bytes(frame))
    return frames


def write(channel: BrokerChannel, peer: Peer, sizes: Sequence[int] = ()) -> None:
    """Give the peer what the channel has to write, in pieces of these sizes."""
    for size in chain(sizes, repeat(2**30)):
        data = channel.bytes_to_write()
        if not data:
            return
        assert bytes(channel.bytes_to_write()) == bytes(data), "the same bytes until they are written"
        count = min(size, len(data))
        peer.take(data[:count])
        channel.bytes_written(count)


def exchange(channel: BrokerChannel, peer: Peer, now_ms: int = 0, sizes: Sequence[int] = ()) -> list[bytes]:
    """Carry bytes in both directions until there are none."""
    frames: list[bytes] = []
    while True:
        write(channel, peer, sizes)
        data = peer.output()
        if not data:
            return frames
        frames += put(channel, data, now_ms, sizes)


def ready(protocol: str, now_ms: int = 0, **changes: Any) -> tuple[BrokerChannel, Peer]:
    channel, peer = channel_of(protocol), Peer(protocol, **changes)
    channel.start(now_ms)
    assert exchange(channel, peer, now_ms) == []
    assert channel.phase is ChannelPhase.READY
    return channel, peer


# --- bytes and frames ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", PROTOCOLS)
@settings(max_examples=25, deadline=None)
@given(
    bodies=st.lists(st.integers(0, 60).map(lambda size: size**3).map(bytes), max_size=5),
    sizes=st.lists(st.integers(1, 60).map(lambda size: size**3), max_size=30),
)
def test_any_division_of_the_bytes_gives_the_same_frames(protocol: str, bodies: list[bytes], sizes: list[int]) -> None:
    channel, peer = channel_of(protocol), Peer(protocol)
    channel.start(0)
    assert exchange(channel, peer, sizes=sizes) == []
    assert channel.phase is ChannelPhase.READY
    requests = [framed(numbered(number, 50_000 * number)) for number in range(3)]
    for request in requests:
        channel.send(request)
    write(channel, peer, sizes)
    assert b"".join(peer.requests.received) == b"".join(requests)
    peer.give(*bodies)
    assert exchange(channel, peer, sizes=sizes) == bodies
    assert not channel.has_response()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_bytes_that_come_one_by_one_give_the_same_frames(protocol: str) -> None:
    channel, peer = channel_of(protocol), Peer(protocol)
    channel.start(0)
    ones = [1] * 20_000
    assert exchange(channel, peer, sizes=ones) == []
    bodies = [numbered(0), b"", numbered(1, 200)]
    peer.give(*bodies)
    assert exchange(channel, peer, sizes=ones) == bodies


def test_a_large_response_is_received_into_its_own_buffer() -> None:
    channel, _ = ready("PLAINTEXT")
    body = bytes(range(256)) * 8_000
    data = framed(body)
    view, is_sure = channel.receive_buffer()
    assert not is_sure
    view[:] = data[: len(view)]
    channel.received(len(view), 0)
    buffers: list[bytearray] = []

    def new_buffer(size: int) -> memoryview:
        buffers.append(bytearray(size))
        return memoryview(buffers[-1])

    assert channel.next_frame(new_buffer=new_buffer) is None
    rest, is_sure = channel.receive_buffer()
    assert is_sure, "a blocking socket waits for all of the rest in one call"
    assert rest.obj is buffers[0]
    assert len(rest) == len(data) - RECEIVE_AHEAD_BYTES
    rest[:] = data[RECEIVE_AHEAD_BYTES:]
    channel.received(len(rest), 0)
    frame = channel.next_frame(new_buffer=new_buffer)
    assert frame is not None
    assert frame.obj is buffers[0]
    assert frame == body
    assert len(buffers) == 1


def test_a_large_response_through_tls_is_decrypted_into_its_own_buffer_and_received_in_large_pieces() -> None:
    channel, peer = ready("SSL")
    body = bytes(range(256)) * 8_000
    peer.give(body)
    data = peer.output()
    buffers: list[bytearray] = []

    def new_buffer(size: int) -> memoryview:
        buffers.append(bytearray(size))
        return memoryview(buffers[-1])

    lengths = []
    while (frame := channel.next_frame(new_buffer=new_buffer)) is None:
        view, is_sure = channel.receive_buffer()
        assert not is_sure or len(view) <= len(data), "what is sure will come"
        lengths.append(len(view))
        piece, data = data[: len(view)], data[len(view) :]
        view[: len(piece)] = piece
        channel.received(len(piece), 0)
    assert frame.obj is buffers[0]
    assert frame == body
    assert lengths[:4] == [TLS_READ_BYTES] + [TLS_LARGE_READ_BYTES] * 3
    assert len(lengths) <= 7


def test_small_responses_need_one_receive() -> None:
    channel, _ = ready("PLAINTEXT")
    data = framed(numbered(0)) + framed(numbered(1))
    view, _ = channel.receive_buffer()
    view[: len(data)] = data
    channel.received(len(data), 0)
    assert frames_of(channel) == [numbered(0), numbered(1)]


def test_a_response_that_is_too_long_is_refused_before_it_has_memory() -> None:
    channel, _ = ready("PLAINTEXT")
    view, _ = channel.receive_buffer()
    view[:4] = b"HTTP"
    channel.received(4, 0)

    def new_buffer(size: int) -> memoryview:
        raise AssertionError("no memory for it")

    with pytest.raises(MalformedMessage, match=r"broker-0.*:9092: Fetch v4 response: .* is this port an HTTP port"):
        channel.next_frame(1_000, new_buffer, "Fetch v4")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_the_end_comes_after_the_frames_before_it(protocol: str) -> None:
    channel, peer = ready(protocol)
    peer.give(numbered(0))
    data = peer.output() + (framed(numbered(1))[:9] if protocol == "PLAINTEXT" else b"")
    assert put(channel, data) == [numbered(0)]
    assert not channel.has_ended
    channel.receive_eof(0)
    assert channel.next_frame() is None
    assert channel.has_ended
    assert channel.has_response()
    assert channel.incomplete_bytes == (framed(numbered(1))[:9] if protocol == "PLAINTEXT" else b"")


def test_with_tls_only_complete_records_are_responses() -> None:
    channel, peer = ready("SSL")
    assert channel.response_frames is None
    peer.give(numbered(0))
    data = peer.output()
    assert put(channel, data[:-1]) == []
    assert not channel.has_response()
    view, _ = channel.receive_buffer()
    view[:1] = data[-1:]
    channel.received(1, 0)
    assert channel.has_response()
    assert channel.has_response(), "it takes nothing"
    assert frames_of(channel) == [numbered(0)]
    assert not channel.has_response()


def test_without_tls_and_login_every_byte_is_a_response() -> None:
    channel, _ = ready("PLAINTEXT")
    assert channel.response_frames is not None
    assert channel.handshake_deadline_ms is None
    assert not channel.has_response()
    put(channel, b"\0")
    assert channel.has_response()


# --- before the first request -------------------------------------------------------------------------------------


def test_each_step_has_a_name_and_a_deadline() -> None:
    channel, peer = channel_of("SASL_SSL"), Peer("SASL_SSL")
    channel.start(1_000)
    assert (channel.phase, channel.handshake_step) == (ChannelPhase.TLS_HANDSHAKE, "the TLS handshake")
    assert channel.handshake_deadline_ms == 1_000 + HANDSHAKE_TIMEOUT_MS
    write(channel, peer)
    put(channel, peer.output(), 3_000)
    assert (channel.phase, channel.handshake_step) == (ChannelPhase.AUTHENTICATION, "the SASL login")
    assert channel.handshake_deadline_ms == 13_000
    exchange(channel, peer, 4_000)
    assert (channel.phase, channel.handshake_deadline_ms) == (ChannelPhase.READY, None)


def test_no_request_is_sent_before_the_login() -> None:
    channel = channel_of("SASL_PLAINTEXT")
    channel.start(0)
    with pytest.raises(AssertionError, match="requests follow the login"):
        channel.send(framed(numbered(0)))


@pytest.mark.parametrize(("protocol", "step"), [("SSL", "the TLS handshake"), ("SASL_PLAINTEXT", "the SASL login")])
def test_an_end_before_the_channel_is_ready_names_the_step(protocol: str, step: str) -> None:
    channel = channel_of(protocol)
    channel.start(0)
    with pytest.raises(HandshakeClosedError, match=f"^{step}$"):
        channel.receive_eof(0)
    assert channel.phase is ChannelPhase.CLOSED


def test_an_end_of_tls_in_the_middle_of_the_login_names_the_login() -> None:
    channel, peer = channel_of("SASL_SSL"), Peer("SASL_SSL")
    channel.start(0)
    write(channel, peer)
    put(channel, peer.output())
    with pytest.raises(HandshakeClosedError, match=r"^the SASL login$"):
        channel.receive_eof(0)


def test_a_port_without_tls_is_named() -> None:
    channel = channel_of("SSL")
    channel.start(0)
    channel.bytes_written(len(channel.bytes_to_write()))
    with pytest.raises(NotTlsError, match="is this a PLAINTEXT port"):
        put(channel, b"HTTP/1.1 400 Bad Request\r\n\r\n")
    assert channel.phase is ChannelPhase.CLOSED


def test_a_broker_whose_certificate_is_rejected_gets_an_alert() -> None:
    other = TlsSettings(ca_file=str(TLS / "other-ca.pem")).context()
    channel, peer = BrokerChannel(HOST, PORT, tls_context=other), Peer("SSL")
    channel.start(0)
    write(channel, peer)
    with pytest.raises(SslAuthenticationException, match="from an unknown authority"):
        put(channel, peer.output())
    assert channel.phase is ChannelPhase.CLOSED
    assert channel.bytes_to_write(), "an alert for the other side"


def test_a_certificate_that_is_missing_is_a_late_alert_of_tls_1_3() -> None:
    peer = Peer("SSL", client_ca=TLS / "ca.pem")
    channel = channel_of("SSL")
    channel.start(0)
    write(channel, peer)
    put(channel, peer.output())
    assert channel.phase is ChannelPhase.READY, "the client's side of the handshake ends first"
    write(channel, peer)
    view, _ = channel.receive_buffer()
    data = peer.output()
    view[: len(data)] = data
    channel.received(len(data), 0)
    with pytest.raises(SslAuthenticationException, match="requires one that we do not send"):
        channel.raise_pending_alert()


def test_the_loss_of_a_ready_connection_is_only_that() -> None:
    channel, _ = ready("SASL_PLAINTEXT")
    error = ConnectionResetError("reset")
    assert channel.connection_lost(error) is error
    assert channel.phase is ChannelPhase.CLOSED


def test_a_frame_of_a_login_has_a_limit() -> None:
    channel = channel_of("SASL_PLAINTEXT")
    channel.start(0)
    with pytest.raises(MalformedMessage, match=r"ApiVersions response: .* at most 524288 are accepted"):
        put(channel, b"\x7f\xff\xff\xff")


# --- GSSAPI at brokers of 0.9 -------------------------------------------------------------------------------------


def kerberos_channel() -> BrokerChannel:
    return BrokerChannel(HOST, PORT, sasl=SaslSettings("GSSAPI"))


@pytest.mark.parametrize("is_reset", [True, False])
def test_gssapi_continues_with_raw_messages_on_a_new_connection(kerberos: dict[str, Any], is_reset: bool) -> None:
    first = kerberos_channel()
    first.start(1_000)
    if is_reset:
        assert first.connection_lost(ConnectionResetError()) is None
    else:
        first.receive_eof(2_000)
    assert first.needs_reconnect
    assert first.phase is ChannelPhase.CLOSED
    channel = first.after_reconnect()
    channel.start(3_000)
    assert channel.handshake_deadline_ms == 11_000, "the deadline of the login stays"
    written = []
    for answer in (b"AP-REP", b"wrapped offer", b""):
        data = channel.bytes_to_write()
        written.append(bytes(data))
        channel.bytes_written(len(data))
        if answer:
            put(channel, framed(answer), 4_000)
    assert written == [framed(b"AP-REQ"), framed(b""), framed(b"wrapped \x01\x00\x00\x00")]
    assert channel.phase is ChannelPhase.READY
    assert not channel.needs_reconnect


def test_the_new_connection_of_gssapi_begins_with_tls_again(kerberos: dict[str, Any]) -> None:
    def begun(channel: BrokerChannel) -> BrokerChannel:
        peer = Peer("SSL")
        channel.start(0)
        write(channel, peer)
        put(channel, peer.output())
        assert channel.phase is ChannelPhase.AUTHENTICATION
        write(channel, peer)
        sent.extend(peer.requests.received)
        return channel

    sent: list[bytes] = []
    first = begun(BrokerChannel(HOST, PORT, tls_context=TRUST.context(), sasl=SaslSettings("GSSAPI")))
    first.receive_eof(0)
    begun(first.after_reconnect())
    assert sent == [framed(b"AP-REQ")], "the fake broker answers ApiVersions itself"


def test_a_second_connection_that_closes_is_a_rejection(kerberos: dict[str, Any]) -> None:
    first = kerberos_channel()
    first.start(0)
    first.receive_eof(0)
    channel = first.after_reconnect()
    channel.start(0)
    with pytest.raises(SaslAuthenticationException, match="closed the connection during the GSSAPI login"):
        channel.receive_eof(0)
    assert not channel.needs_reconnect


def test_other_mechanisms_do_not_reconnect() -> None:
    channel = channel_of("SASL_PLAINTEXT")
    channel.start(0)
    error = ConnectionResetError()
    assert channel.connection_lost(error) is error
    assert not channel.needs_reconnect


# --- the renewal of a login (KIP-368) -----------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
@pytest.mark.parametrize("size", [1, 7, 8, 1_000, 2**20], ids=lambda size: f"pieces of {size}")
def test_responses_that_are_on_their_way_are_delivered_during_a_renewal(protocol: str, size: int) -> None:
    channel, peer = ready(protocol, session_lifetime_ms=LIFETIME_MS)
    assert channel.renew_at_ms == 8_500
    earlier = [framed(numbered(number)) for number in range(2)]
    for request in earlier:
        channel.send(request)
    write(channel, peer)
    channel.maybe_renew(8_499)
    assert not channel.is_renewing
    bodies = [numbered(0, 100_000), numbered(1)]
    peer.give(*bodies)
    on_its_way = peer.output()
    channel.maybe_renew(9_000)
    assert channel.is_renewing
    assert channel.phase is ChannelPhase.READY
    assert channel.handshake_step == "the renewal of the SASL login"
    assert channel.handshake_deadline_ms is None, "the broker answers the earlier requests first"
    channel.send(framed(numbered(2)))
    write(channel, peer)
    assert peer.requests.received == earlier, "a request waits for the end of the renewal"
    assert put(channel, on_its_way, 30_000, [size] * 200_000) == bodies
    assert channel.is_renewing
    assert channel.handshake_deadline_ms == 40_000
    assert not channel.has_response()
    assert exchange(channel, peer, 9_001, [size] * 200_000) == []
    assert not channel.is_renewing
    assert peer.security.logins == [USER, USER]
    assert peer.requests.received[2:] == [framed(numbered(2))]
    assert channel.renew_at_ms == 9_000 + 8_500
    peer.give(numbered(2))
    assert exchange(channel, peer, 9_002) == [numbered(2)]


def test_responses_between_those_of_the_renewal_are_delivered_in_order() -> None:
    channel, peer = ready("SASL_PLAINTEXT", session_lifetime_ms=LIFETIME_MS)
    channel.maybe_renew(9_000)
    write(channel, peer)
    handshake = peer.output()
    data = framed(numbered(0)) + handshake + framed(numbered(1, 100))
    assert put(channel, data, 9_000) == [numbered(0), numbered(1, 100)]
    assert channel.is_renewing
    write(channel, peer)
    assert put(channel, peer.output() + framed(numbered(2)), 9_000) == [numbered(2)]
    assert exchange(channel, peer, 9_000) == []
    assert not channel.is_renewing


def test_a_response_of_which_a_part_has_arrived_is_completed_during_a_renewal() -> None:
    channel, peer = ready("SASL_PLAINTEXT", session_lifetime_ms=LIFETIME_MS)
    data = framed(numbered(RESERVED_CORRELATION_ID_MIN - 1, 100_000))
    assert put(channel, data[:50_000], 8_000) == []
    channel.maybe_renew(9_000)
    write(channel, peer)
    assert put(channel, data[50_000:] + peer.output(), 9_000) == [data[SIZE_BYTES:]]
    assert exchange(channel, peer, 9_000) == []
    assert peer.security.logins == [USER, USER]


def test_a_renewal_asks_for_no_versions_and_uses_reserved_correlation_ids() -> None:
    headers = []

    class Watched(Peer):
        def take(self, data: bytes | memoryview) -> None:
            headers.append(decode_request_header(bytes(data)[SIZE_BYTES:]))
            super().take(data)

    channel, peer = channel_of("SASL_PLAINTEXT"), Watched("SASL_PLAINTEXT", session_lifetime_ms=LIFETIME_MS)
    channel.start(0)
    exchange(channel, peer)
    for now_ms in (9_000, 18_000):
        channel.maybe_renew(now_ms)
        exchange(channel, peer, now_ms)
    first, renewal = [API_VERSIONS, SASL_HANDSHAKE], [SASL_HANDSHAKE]
    steps = [SASL_AUTHENTICATE] * 2
    expected = [api.key for api in first + steps + renewal + steps + renewal + steps]
    assert [header.api_key for header in headers] == expected
    ids = cycle(range(RESERVED_CORRELATION_ID_MIN, 2**31))
    assert [header.correlation_id for header in headers] == [next(ids) for _ in headers]


def test_an_end_during_a_renewal_follows_the_responses_before_it() -> None:
    channel, _ = ready("SASL_PLAINTEXT", session_lifetime_ms=LIFETIME_MS)
    channel.maybe_renew(9_000)
    assert put(channel, framed(numbered(0)), 9_000) == [numbered(0)]
    channel.receive_eof(9_000)
    assert channel.has_response()
    with pytest.raises(HandshakeClosedError, match=r"^the SASL login$"):
        channel.next_frame()


@pytest.mark.parametrize(
    ("body", "error"),
    [
        (numbered(RESERVED_CORRELATION_ID_MIN), "correlation id of another request"),
        (numbered(2**31 - 1), "correlation id of another request"),
    ],
)
def test_a_wrong_reserved_correlation_id_is_an_error_of_the_broker(body: bytes, error: str) -> None:
    channel, _ = ready("SASL_PLAINTEXT", session_lifetime_ms=LIFETIME_MS)
    channel.maybe_renew(9_000)
    with pytest.raises(RemoteProtocolError, match=error):
        put(channel, framed(body), 9_000)


def test_a_frame_without_a_correlation_id_does_not_stop_a_renewal() -> None:
    channel, _ = ready("SASL_PLAINTEXT", session_lifetime_ms=LIFETIME_MS)
    channel.maybe_renew(9_000)
    assert put(channel, framed(b"xyz"), 9_000) == [b"xyz"], "the receiver of the response refuses it"


def test_a_login_without_a_lifetime_is_never_renewed() -> None:
    channel, _ = ready("SASL_PLAINTEXT")
    assert channel.renew_at_ms is None
    channel.maybe_renew(10**12)
    assert not channel.is_renewing
    assert not channel.bytes_to_write()


def test_a_renewal_that_is_refused_closes_the_channel() -> None:
    channel, peer = ready("SASL_SSL", session_lifetime_ms=LIFETIME_MS)
    peer.security.users[USER] = "changed"
    channel.maybe_renew(9_000)
    with pytest.raises(SaslAuthenticationException, match="does not accept the user or the password"):
        exchange(channel, peer, 9_000)
