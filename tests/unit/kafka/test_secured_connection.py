"""TLS and SASL to fake brokers: real OpenSSL and real SCRAM, no sockets."""

from __future__ import annotations

import re
import socket
import ssl
import sys
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import Hold
from bridge.testing.fake_security import FakeSecurity
from tests.broker_security_cases import CASES, PASSWORD, TLS, TOKEN, USER, Case, Place, attempt, judge
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import spawn
from zkconsumer.errors import (
    BrokerUnreachable,
    ConnectorClosed,
    InvalidConfigException,
    RemoteProtocolError,
    SaslAuthenticationException,
    SslAuthenticationException,
)
from zkconsumer.kafka import sasl_mechanisms
from zkconsumer.kafka import tls as tls_module
from zkconsumer.kafka.bootstrap_client import BootstrapClient, NoBrokerAvailableError
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.broker_security import BrokerSecurity, SecureConnectionFactory
from zkconsumer.kafka.metadata_client import fetch_leaders
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.kafka.net.sasl_client_authenticator import LOGIN_TIMEOUT_MS
from zkconsumer.kafka.sasl_mechanisms import KafkaGssapi, SaslSettings
from zkconsumer.kafka.tls import TlsSettings
from zkconsumer.kafka.transport import fill_by_receiving
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.request_frames import encode_response
from zkconsumer.wire.schemas import FETCH, METADATA
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from zkconsumer.wire.schemas.metadata import MetadataRequest, MetadataResponse

TRUST = TlsSettings(ca_file=str(TLS / "ca.pem"))
SCRAM = SaslSettings("SCRAM-SHA-512", USER, PASSWORD)


def secured(protocol: str = "SASL_SSL", **changes: Any) -> FakeSecurity:
    settings = {"certificate": TLS / "broker.pem", "users": {USER: PASSWORD}, "tokens": frozenset({TOKEN})}
    return FakeSecurity(protocol, **(settings | changes))


def cluster_with(security: FakeSecurity, clock: Any = SYSTEM_CLOCK) -> FakeCluster:
    return FakeCluster(security=security, clock=clock)


def connected(
    cluster: FakeCluster,
    security: BrokerSecurity | None = None,
    *,
    clock: Any = SYSTEM_CLOCK,
    connect_timeout_ms: int = 5_000,
) -> BlockingConnection:
    security = security or BrokerSecurity("SASL_SSL", TRUST, SCRAM)
    connect = SecureConnectionFactory(security, clock, socket=cluster.transport)
    return connect(*cluster.address(0)[1:], connect_timeout_ms=connect_timeout_ms)


# --- who gets in, and what is said to the others ------------------------------------------------------------------


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_fake_broker_lets_in_and_refuses_as_a_real_one(case: Case) -> None:
    listener = "SSL" if case.listener == "MUTUAL" else case.listener
    security = secured(listener, client_ca=TLS / "ca.pem" if case.listener == "MUTUAL" else None)
    if "mechanisms" in case.change:
        security.mechanisms = (case.change["mechanisms"],)
    cluster = cluster_with(security)
    place = Place(
        lambda _: cluster.address(0)[1:], TLS / "ca.pem", TLS / "other-ca.pem", TLS / "client.pem", lambda: TOKEN,
        cluster.transport,
    )  # fmt: skip
    judge(case, attempt(case, place))


@pytest.mark.parametrize(
    ("certificate", "words"),
    [("elsewhere.pem", "the broker's certificate is not for broker-0"), ("expired.pem", "certificate has expired")],
)
def test_a_certificate_of_another_host_or_of_yesterday_is_refused_by_us(certificate: str, words: str) -> None:
    connection = connected(cluster_with(secured(certificate=TLS / certificate)))
    with pytest.raises(SslAuthenticationException, match=words):
        negotiate(connection, 5_000)


def test_a_broker_whose_certificate_we_refuse_gets_an_alert() -> None:
    cluster = cluster_with(secured("SSL", certificate=TLS / "expired.pem"))
    watched = WatchedSocket(cluster)
    connection = SecureConnectionFactory(BrokerSecurity("SSL", TRUST), socket=watched)(*cluster.address(0)[1:])
    with pytest.raises(SslAuthenticationException, match="certificate has expired"):
        negotiate(connection, 5_000)
    assert watched.sends == 2, "ClientHello, and the alert"


def test_the_host_is_not_compared_when_that_is_switched_off() -> None:
    cluster = cluster_with(secured("SSL", certificate=TLS / "elsewhere.pem"))
    trusting = TlsSettings(ca_file=str(TLS / "ca.pem"), checks_host=False)
    negotiate(connected(cluster, BrokerSecurity("SSL", trusting)), 5_000)
    other = TlsSettings(ca_file=str(TLS / "other-ca.pem"), checks_host=False)
    with pytest.raises(SslAuthenticationException, match="from an unknown authority"):
        negotiate(connected(cluster, BrokerSecurity("SSL", other)), 5_000)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"])
def test_messages_are_bare_with_brokers_before_1_0(mechanism: str) -> None:
    cluster = cluster_with(secured(has_authenticate=False))
    settings = SaslSettings(mechanism, USER, PASSWORD, oauth_token=lambda: TOKEN)
    negotiate(connected(cluster, BrokerSecurity("SASL_SSL", TRUST, settings)), 5_000)
    wrong = SaslSettings(mechanism, USER, "wrong", oauth_token=lambda: "wrong")
    with pytest.raises(SaslAuthenticationException, match=r"closed the connection during the .* login, which is how"):
        negotiate(connected(cluster, BrokerSecurity("SASL_SSL", TRUST, wrong)), 5_000)


# --- bytes through TLS --------------------------------------------------------------------------------------------


def test_large_answers_come_whole_through_tls() -> None:
    cluster = cluster_with(secured())
    cluster.create_topic("clicks")
    value = bytes(range(256)) * 2_000
    cluster.append("clicks", 0, [value])
    connection = connected(cluster)
    ranges = negotiate(connection, 5_000)
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**20)
    body = FetchRequest(
        max_wait_ms=1, min_bytes=1, max_bytes=2**21, topics=[FetchTopic(topic="clicks", partitions=[row])]
    )
    answer = connection.request(FETCH, ranges.pick(FETCH), body, 5_000)
    records = answer.responses[0].partitions[0].records
    assert records is not None
    assert value in bytes(records)


def test_a_large_answer_through_tls_is_taken_from_below_in_large_pieces() -> None:
    """Each call needs the interpreter's lock again."""
    cluster = cluster_with(secured("SSL"))
    cluster.create_topic("clicks")
    cluster.append("clicks", 0, [bytes(4_000_000)])
    calls: list[int] = []

    def counted(*where: Any) -> Any:
        below = cluster.transport(*where)
        real = below.receive_into, below.fill

        def receive_into(view: memoryview, deadline_ms: int) -> int:
            calls.append(len(view))
            return real[0](view, deadline_ms)

        def fill(view: memoryview, deadline_ms: int) -> int:
            before = len(calls)
            received = real[1](view, deadline_ms)
            calls[before:] = [len(view)]
            return received

        below.receive_into, below.fill = receive_into, fill  # type: ignore[method-assign]
        return below

    connection = SecureConnectionFactory(BrokerSecurity("SSL", TRUST), socket=counted)(*cluster.address(0)[1:])
    version = negotiate(connection, 5_000).pick(FETCH)
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=2**23)
    body = FetchRequest(max_wait_ms=1, min_bytes=1, topics=[FetchTopic(topic="clicks", partitions=[row])])
    calls.clear()
    records = connection.request(FETCH, version, body, 5_000).responses[0].partitions[0].records
    assert records is not None
    assert len(records) > 4_000_000
    assert len(calls) <= 4_000_000 / tls_module.TLS_LARGE_READ_BYTES + 6


def test_a_session_ticket_is_no_answer() -> None:
    """TLS 1.3 sends tickets after the handshake: a socket that can be read is not yet an answer."""
    cluster = cluster_with(secured("SSL"))
    cluster.inject(Hold(), api=METADATA)
    connection = connected(cluster, BrokerSecurity("SSL", TRUST))
    connection.send(METADATA, 0, MetadataRequest(topics=[]), 5_000)
    assert not connection.has_response(20)
    connection.close()


def test_the_end_of_the_other_side_is_the_end() -> None:
    cluster = cluster_with(secured("SSL"))
    connection = connected(cluster, BrokerSecurity("SSL", TRUST))
    ranges = negotiate(connection, 5_000)
    cluster.stop_broker(0)
    with pytest.raises(BrokerConnectionError) as failed:
        fetch_leaders(connection, ranges, [], 5_000)
    assert failed.value.reason is ConnectionFailureReason.CLOSED


@pytest.mark.timeout(30)
@pytest.mark.parametrize("is_closed_first", [True, False], ids=["close_notify", "connection ends"])
def test_an_end_in_the_middle_of_a_large_answer_is_the_end(is_closed_first: bool) -> None:
    """A broker that is restarted ends its TLS sessions with ``close_notify``, whatever it was sending."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "broker.pem")
    listening = socket.create_server(("127.0.0.1", 0))
    port = listening.getsockname()[1]

    def serve() -> None:
        with listening, context.wrap_socket(listening.accept()[0], server_side=True) as secure:
            secure.recv(1)
            secure.sendall((1_000_000).to_bytes(4, "big") + bytes(299_996))
            if is_closed_first:
                secure.settimeout(0.01)  # as a broker, it does not wait for our ``close_notify``
                with suppress(OSError):
                    secure.unwrap()

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    connection = SecureConnectionFactory(BrokerSecurity("SSL", TRUST))("127.0.0.1", port)
    with pytest.raises(BrokerConnectionError, match="closed after 300000 bytes of the answer to Metadata v0") as ended:
        connection.request(METADATA, 0, MetadataRequest(topics=[]), 10_000)
    assert ended.value.reason is ConnectionFailureReason.CLOSED
    connection.close()
    thread.join(10)


# --- logins that end -----------------------------------------------------------------------------------------------


def test_a_login_is_renewed_on_the_same_connection_before_it_ends() -> None:
    clock = ManualClock()
    security = secured(session_lifetime_ms=10_000)
    cluster = cluster_with(security, clock)
    connection = connected(cluster, clock=clock)
    ranges = negotiate(connection, 5_000)
    clock.move(8_000)
    fetch_leaders(connection, ranges, [], 5_000)
    assert security.logins == [USER]
    clock.move(1_000)
    fetch_leaders(connection, ranges, [], 5_000)
    assert security.logins == [USER, USER]
    clock.move(8_000)
    fetch_leaders(connection, ranges, [], 5_000)
    assert security.logins == [USER, USER], "the second login has a lifetime of its own"


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_login_is_renewed_while_a_response_is_on_its_way(protocol: str) -> None:
    """A fetcher has nearly always a request without a response."""
    clock = ManualClock()
    security = secured(protocol, session_lifetime_ms=10_000)
    cluster = cluster_with(security, clock)
    connection = connected(cluster, BrokerSecurity(protocol, TRUST, SCRAM), clock=clock)
    version = negotiate(connection, 5_000).pick(METADATA)
    body = MetadataRequest(topics=[])
    first = connection.send(METADATA, version, body, 5_000)
    for number in range(1, 5):
        clock.move(5_000)
        second = connection.send(METADATA, version, body, 5_000)
        assert connection.receive(first, 5_000).brokers
        assert connection.has_response(1_000)
        first = second
        assert security.logins == [USER] * (1 + number // 2)
    assert connection.receive(first, 5_000).brokers
    connection.close()


class WatchedSocket:
    """Makes the transports of a cluster, and watches what is sent and received."""

    def __init__(self, cluster: FakeCluster, clock: Any = SYSTEM_CLOCK) -> None:
        self._cluster = cluster
        self._clock = clock
        self.sends = 0
        self.deadlines_ms: list[int] = []
        """Those of the receives."""
        self.is_silent = False
        """Whether the broker answers nothing more."""
        self.takes_all = False
        """Whether a receive takes what the broker sends separately as one piece."""

    def __call__(self, *where: Any) -> Any:
        below = self._cluster.transport(*where)
        send_all, receive_into = below.send_all, below.receive_into

        def watched_send(data: bytes | memoryview, deadline_ms: int) -> None:
            self.sends += 1
            send_all(data, deadline_ms)

        def watched_receive(view: memoryview, deadline_ms: int) -> int:
            self.deadlines_ms.append(deadline_ms)
            if self.is_silent:
                raise TimeoutError
            count = receive_into(view, deadline_ms)
            while self.takes_all and below.wait(self._clock.now_ms()):
                count += receive_into(view[count:], deadline_ms)
            return count

        below.send_all, below.receive_into = watched_send, watched_receive  # type: ignore[method-assign]
        return below


def test_a_renewal_that_the_broker_does_not_answer_is_named_in_the_error() -> None:
    clock = ManualClock()
    cluster = cluster_with(secured(session_lifetime_ms=10_000), clock)
    watched = WatchedSocket(cluster)
    connect = SecureConnectionFactory(BrokerSecurity("SASL_SSL", TRUST, SCRAM), clock, socket=watched)
    connection = connect(*cluster.address(0)[1:])
    ranges = negotiate(connection, 5_000)
    clock.move(9_000)
    watched.is_silent = True
    with pytest.raises(
        BrokerConnectionError, match=r"within 60000 ms \(during the renewal of the SASL login\)"
    ) as late:
        fetch_leaders(connection, ranges, [], 60_000)
    assert late.value.reason is ConnectionFailureReason.TIMED_OUT
    assert watched.deadlines_ms[-1] == clock.now_ms() + 10_000, "a renewal has a deadline of its own"


def test_a_renewal_does_not_wait_for_the_response_to_an_earlier_request() -> None:
    clock = ManualClock()
    security = secured("SASL_PLAINTEXT", session_lifetime_ms=10_000)
    cluster = cluster_with(security, clock)
    watched = WatchedSocket(cluster, clock)
    plain = BrokerSecurity("SASL_PLAINTEXT", TRUST, SaslSettings("PLAIN", USER, PASSWORD))
    connection = SecureConnectionFactory(plain, clock, socket=watched)(*cluster.address(0)[1:])
    version = negotiate(connection, 5_000).pick(METADATA)
    first = connection.send(METADATA, version, MetadataRequest(topics=[]), 60_000)
    clock.move(9_000)
    watched.deadlines_ms.clear()
    second = connection.send(METADATA, version, MetadataRequest(topics=[]), 60_000)
    assert watched.deadlines_ms == [], "nothing is received while a request is sent"
    watched.takes_all = True
    assert connection.receive(first, 60_000).brokers
    assert len(watched.deadlines_ms) == 1
    assert security.logins == [USER, USER], "the next message of the login is sent at once"
    assert connection.receive(second, 60_000).brokers


def test_a_renewal_that_is_refused_says_so() -> None:
    clock = ManualClock()
    security = secured(session_lifetime_ms=10_000)
    cluster = cluster_with(security, clock)
    connection = connected(cluster, clock=clock)
    ranges = negotiate(connection, 5_000)
    security.users[USER] = "changed"
    clock.move(9_000)
    with pytest.raises(SaslAuthenticationException, match="does not accept the user or the password"):
        fetch_leaders(connection, ranges, [], 5_000)


def test_each_login_asks_for_a_token_of_its_own() -> None:
    tokens = iter(["first", "second"])
    security = secured("SASL_PLAINTEXT", tokens=frozenset({"first", "second"}))
    cluster = cluster_with(security)
    connect = SecureConnectionFactory(
        BrokerSecurity("SASL_PLAINTEXT", TRUST, SaslSettings("OAUTHBEARER", oauth_token=lambda: next(tokens))),
        socket=cluster.transport,
    )
    for _ in range(2):
        negotiate(connect(*cluster.address(0)[1:]), 5_000)
    assert security.logins == ["token", "token"]
    with pytest.raises(SaslAuthenticationException, match="oauth_token failed: StopIteration"):
        negotiate(connect(*cluster.address(0)[1:]), 5_000)


@pytest.mark.parametrize("token", ["", "two words", "line\r\nend", 5, None])
def test_what_is_no_token_is_not_sent(token: Any) -> None:
    with pytest.raises(SaslAuthenticationException, match="returned no token"):
        sasl_mechanisms.OAuthBearer(lambda: token).initial_response()


# --- nothing waits for ever ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("protocol", "during"), [("SASL_SSL", "the TLS handshake"), ("SASL_PLAINTEXT", "the SASL login")]
)
def test_a_broker_that_hangs_in_a_handshake_is_left_in_time(protocol: str, during: str) -> None:
    with silent_port() as (host, port):
        connect = SecureConnectionFactory(BrokerSecurity(protocol, TRUST, SCRAM))
        with pytest.raises(BrokerConnectionError, match=rf"within 1000 ms \(during {during}\)"):
            negotiate(connect(host, port, connect_timeout_ms=1_000), 5_000)


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT"])
def test_a_handshake_is_ended_from_another_thread(protocol: str) -> None:
    with silent_port() as (host, port):
        connection = SecureConnectionFactory(BrokerSecurity(protocol, TRUST, SCRAM))(
            host, port, connect_timeout_ms=60_000
        )
        caught: list[BaseException] = []
        entered = threading.Event()

        def run(_: object) -> None:
            entered.set()
            try:
                negotiate(connection, 60_000)
            except ConnectorClosed as error:
                caught.append(error)

        worker = spawn("handshake", run, lambda *_: None)
        assert entered.wait(30)
        connection.close()
        assert worker.join(5_000)
        assert len(caught) == 1


class silent_port:  # noqa: N801 (a context manager)
    """A port that takes connections and says nothing."""

    def __enter__(self) -> tuple[str, int]:
        import socket

        self._listener = socket.create_server(("127.0.0.1", 0))
        host, port = self._listener.getsockname()
        return host, port

    def __exit__(self, *_: object) -> None:
        self._listener.close()


# --- files ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("start", "command"),
    [
        (b"\xfe\xed\xfe\xed\x00\x00", r"keytool -list -rfc -keystore '.*my trust\.jks' > truststore\.pem"),
        (b"\x30\x82\x04\x00", r"openssl pkcs12 -in '.*my trust\.jks' -nokeys -out truststore\.pem"),
    ],
)
def test_a_file_of_java_is_refused_with_the_command_that_converts_it(
    tmp_path: Path, start: bytes, command: str
) -> None:
    file = tmp_path / "my trust.jks"
    file.write_bytes(start + bytes(100))
    with pytest.raises(InvalidConfigException, match=command):
        TlsSettings(ca_file=str(file)).context()
    with pytest.raises(InvalidConfigException, match=r"-nodes -out keystore\.pem"):
        TlsSettings(ca_file=TRUST.ca_file, certificate_file=str(file)).context()


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigException, match=r"none\.pem: .* cannot be read: No such file"):
        TlsSettings(ca_file=str(tmp_path / "none.pem")).context()
    empty = tmp_path / "empty.pem"
    empty.write_text("")
    with pytest.raises(InvalidConfigException, match=r"empty\.pem: contains no certificate"):
        TlsSettings(ca_file=str(empty)).context()
    with pytest.raises(InvalidConfigException, match=r"ca\.pem: contains no private key"):
        TlsSettings(certificate_file=str(TLS / "ca.pem")).context()


def test_an_encrypted_key_needs_its_password_and_asks_nobody() -> None:
    files = {"certificate_file": str(TLS / "client-cert.pem"), "key_file": str(TLS / "client-encrypted.key")}
    assert isinstance(TlsSettings(**files, key_password="hush").context(), ssl.SSLContext)
    for password in (None, "wrong"):
        with pytest.raises(InvalidConfigException, match=r"that ssl\.key\.password decrypts") as refused:
            TlsSettings(**files, key_password=password).context()
        assert "hush" not in str(refused.value)
    assert "hush" not in repr(TlsSettings(**files, key_password="hush"))


def test_the_layers_below_openssl_are_the_two_versions() -> None:
    context = TlsSettings(versions=("TLSv1.2",)).context()
    assert (context.minimum_version, context.maximum_version) == (ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_2)
    assert TlsSettings().context().minimum_version is ssl.TLSVersion.TLSv1_2
    assert tls_module.HANDSHAKE_TIMEOUT_MS == LOGIN_TIMEOUT_MS == 10_000


# --- Kerberos, without a KDC -----------------------------------------------------------------------------------------


def test_without_its_package_gssapi_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gssapi", None)
    with pytest.raises(InvalidConfigException, match=re.escape("pip install 'gssapi>=1.8'")):
        SecureConnectionFactory(BrokerSecurity("SASL_PLAINTEXT", TRUST, SaslSettings("GSSAPI")))


def test_kerberos_chooses_no_layer_and_speaks_last(kerberos: dict[str, Any]) -> None:
    mechanism = KafkaGssapi("kafka", "b1.example.com")
    assert kerberos["names"] == ["service:kafka@b1.example.com"]
    assert mechanism.initial_response() == b"AP-REQ"
    assert mechanism.evaluate_challenge(b"AP-REP") == b""
    assert not mechanism.is_complete
    assert mechanism.evaluate_challenge(b"wrapped offer") == b"wrapped \x01\x00\x00\x00"
    assert mechanism.is_complete
    assert mechanism.evaluate_challenge(b"") is None


def test_kerberos_refuses_a_layer_that_kafka_does_not_have(kerberos: dict[str, Any]) -> None:
    kerberos["offer"] = b"\x06\x00\x10\x00"
    mechanism = KafkaGssapi("kafka", "b1")
    mechanism.initial_response()
    mechanism.evaluate_challenge(b"AP-REP")
    with pytest.raises(RemoteProtocolError, match="requires a security layer"):
        mechanism.evaluate_challenge(b"wrapped offer")


def test_without_a_ticket_kerberos_says_what_to_look_at(kerberos: dict[str, Any]) -> None:
    kerberos["ticket"] = False
    with pytest.raises(SaslAuthenticationException, match=r"No Kerberos credentials available; is there a ticket"):
        KafkaGssapi("kafka", "b1").initial_response()


class Scripted:
    """A transport to a broker that gives these bytes to each of its connections, and then ends them."""

    def __init__(self, *answers: bytes) -> None:
        self._answers = iter(answers)
        self.sent: list[bytes] = []
        self.connections = 0

    def __call__(self, host: str, port: int, receive_buffer_bytes: int, clock: Any) -> Scripted:
        self.connections += 1
        return self

    def open(self, deadline_ms: int) -> None:
        self._unread = next(self._answers)

    def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None:
        self.sent.append(bytes(data))

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        piece, self._unread = self._unread[: len(view)], self._unread[len(view) :]
        view[: len(piece)] = piece
        return len(piece)

    def fill(self, view: memoryview, deadline_ms: int) -> int:
        return fill_by_receiving(self, view, deadline_ms)

    def wait(self, deadline_ms: int) -> bool:
        return True

    def abort(self) -> None: ...

    def release(self) -> None: ...


def raw(*messages: bytes) -> bytes:
    return b"".join(len(message).to_bytes(4, "big") + message for message in messages)


def test_kerberos_begins_again_without_a_handshake_when_a_broker_of_0_9_closes(kerberos: dict[str, Any]) -> None:
    metadata = encode_response(METADATA, 0, 0, MetadataResponse(brokers=[], topics=[]))
    broker = Scripted(b"", raw(b"AP-REP", b"wrapped offer") + metadata)
    connect = SecureConnectionFactory(BrokerSecurity("SASL_PLAINTEXT", TRUST, SaslSettings("GSSAPI")), socket=broker)
    connection = connect("b1.example.com", 9092)
    assert connection.request(METADATA, 0, MetadataRequest(topics=[]), 5_000).topics == []
    assert broker.connections == 2
    assert broker.sent[1:4] == [raw(b"AP-REQ"), raw(b""), raw(b"wrapped \x01\x00\x00\x00")]
    assert len(broker.sent) == 5


def test_kerberos_is_rejected_by_a_broker_of_0_9_that_closes_again(kerberos: dict[str, Any]) -> None:
    broker = Scripted(b"", raw(b"AP-REP"))
    connect = SecureConnectionFactory(BrokerSecurity("SASL_PLAINTEXT", TRUST, SaslSettings("GSSAPI")), socket=broker)
    with pytest.raises(SaslAuthenticationException, match="closed the connection during the GSSAPI login"):
        negotiate(connect("b1.example.com", 9092), 5_000)
    assert broker.connections == 2


def test_a_close_during_a_raw_login_is_no_rejection(kerberos: dict[str, Any]) -> None:
    class Closing(Scripted):
        def receive_into(self, view: memoryview, deadline_ms: int) -> int:
            if len(self.sent) == 2:
                connection.close()
            return super().receive_into(view, deadline_ms)

    broker = Closing(b"", b"")
    connect = SecureConnectionFactory(BrokerSecurity("SASL_PLAINTEXT", TRUST, SaslSettings("GSSAPI")), socket=broker)
    connection = connect("b1.example.com", 9092)
    with pytest.raises(ConnectorClosed):
        negotiate(connection, 5_000)
    assert broker.connections == 2


# --- asking until one answers ---------------------------------------------------------------------------------------


def test_one_broker_that_lets_us_in_is_enough() -> None:
    cluster = cluster_with(secured())
    connect = SecureConnectionFactory(BrokerSecurity("SASL_SSL", TRUST, SCRAM), socket=cluster.transport)
    dead = [BrokerAddress(n, f"dead-{n}.fake.invalid", 9092) for n in range(5)]
    broker = BootstrapClient(connect, lambda: [*dead, *cluster.addresses], "g", 1_000, diagnose=connect.diagnose)
    assert broker.execute(lambda connection, ranges, timeout_ms: connection.port) == 9092
    cluster.stop_broker(0)
    with pytest.raises(NoBrokerAvailableError, match="none of 6 brokers answers") as nobody:
        broker.execute(lambda connection, ranges, timeout_ms: None)
    assert nobody.value.authentication_error is None, "to be down is no refusal"
    assert isinstance(nobody.value, BrokerUnreachable)
