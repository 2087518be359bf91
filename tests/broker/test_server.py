"""The broker's sockets: frames, order, limits, versions by release, TLS and logins."""

from __future__ import annotations

import errno
import logging
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from bridge.broker.client_connection import READ_AHEAD_BYTES
from bridge.broker.emulated_releases import EMULATED_RELEASES
from bridge.broker.log.partition_log import PartitionLog
from bridge.broker.server_settings import TlsFiles
from bridge.testing import EmbeddedBroker
from tests.broker.raw_client import TIMEOUT_MS, RawClient
from tests.broker_security_cases import TLS
from zkconsumer.errors import BrokerUnreachable, SaslAuthenticationException, UnsupportedSaslMechanismException
from zkconsumer.kafka.broker_connection import BlockingConnection
from zkconsumer.kafka.broker_security import BrokerSecurity, SecureConnectionFactory
from zkconsumer.kafka.sasl_mechanisms import SaslSettings
from zkconsumer.kafka.tls import TlsSettings
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.wire.request_frames import decode_response, encode_request
from zkconsumer.wire.schemas import (
    API_VERSIONS,
    FETCH,
    FIND_COORDINATOR,
    JOIN_GROUP,
    LIST_OFFSETS,
    METADATA,
    PRODUCE,
    SASL_AUTHENTICATE,
    SASL_HANDSHAKE,
)
from zkconsumer.wire.schemas.api_versions import ApiVersionsRequest
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorRequest
from zkconsumer.wire.schemas.join_group import JoinGroupProtocol, JoinGroupRequest
from zkconsumer.wire.schemas.list_offsets import ListOffsetsRequest
from zkconsumer.wire.schemas.metadata import MetadataRequest
from zkconsumer.wire.schemas.produce import ProduceRequest
from zkconsumer.wire.schemas.sasl_authenticate import SaslAuthenticateRequest
from zkconsumer.wire.schemas.sasl_handshake import SaslHandshakeRequest

ALL_TOPICS = MetadataRequest(topics=None)
QUICK_LOOK = {"connections.max.idle.ms": "300"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(properties={"socket.request.max.bytes": "100000"}) as started:
        yield started


class Raw:
    """A socket, and the frames on it."""

    def __init__(self, broker: EmbeddedBroker, listener: str | None = None) -> None:
        address = broker.addresses(listener)[0]
        self.socket = socket.create_connection((address.host, address.port), 10)
        self.socket.settimeout(10)

    def __enter__(self) -> Raw:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def send(self, *frames: bytes) -> None:
        self.socket.sendall(b"".join(frames))

    def frame(self) -> bytes:
        return self._exactly(struct.unpack(">i", self._exactly(4))[0])

    def _exactly(self, size: int) -> bytes:
        data = b""
        while len(data) < size:
            piece = self.socket.recv(size - len(data))
            if not piece:
                raise EOFError
            data += piece
        return data

    def has_ended(self) -> bool:
        try:
            return self.socket.recv(1) == b""
        except ConnectionError:
            return True

    def is_silent(self, seconds: float = 0.2) -> bool:
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1) is None
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(10)


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline, "this did not happen in time"
        time.sleep(0.01)


# --- frames and order ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 100_001),
        b"GET / HTTP/1.1\r\n\r\n",
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        encode_request(METADATA, 7, 1, "c", ALL_TOPICS).replace(b"\xff\xff\xff\xff", b"\xff\xff\xff\xfe"),
    ],
)  # fmt: skip
def test_what_is_no_request_ends_the_connection_and_nothing_else(data: bytes, broker: EmbeddedBroker) -> None:
    with Raw(broker) as raw:
        raw.send(data)
        assert raw.has_ended()
    with RawClient(broker.addresses()[0]) as talk:
        assert talk.metadata().brokers


def test_a_request_that_comes_byte_by_byte_is_answered(broker: EmbeddedBroker) -> None:
    with Raw(broker) as raw:
        raw.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in encode_request(METADATA, 7, 42, "c", ALL_TOPICS):
            raw.send(bytes([byte]))
        assert decode_response(METADATA, 7, raw.frame())[0] == 42


def test_answers_come_in_the_order_of_the_requests_even_when_the_first_has_to_wait(broker: EmbeddedBroker) -> None:
    topic = "order"
    broker.create_topic(topic)
    with Raw(broker) as raw, RawClient(broker.addresses()[0]) as other:
        fetch = other.fetch_body(topic, 0, 0, max_wait_ms=10_000)
        raw.send(encode_request(FETCH, 11, 1, "c", fetch), encode_request(METADATA, 7, 2, "c", ALL_TOPICS))
        assert raw.is_silent(), "the second waits for the first"
        other.produce(topic, 0, b"x")
        assert decode_response(FETCH, 11, raw.frame())[0] == 1
        assert decode_response(METADATA, 7, raw.frame())[0] == 2


def test_many_requests_at_once_are_answered_one_after_the_other(broker: EmbeddedBroker) -> None:
    with Raw(broker) as raw:
        raw.send(*[encode_request(METADATA, 7, at, "c", ALL_TOPICS) for at in range(500)])
        assert [decode_response(METADATA, 7, raw.frame())[0] for _ in range(500)] == list(range(500))


def test_behind_a_request_that_waits_little_is_read(broker: EmbeddedBroker) -> None:
    topic = "ahead"
    broker.create_topic(topic)
    with Raw(broker) as raw, RawClient(broker.addresses()[0]) as other:
        raw.send(encode_request(FETCH, 11, 1, "c", other.fetch_body(topic, 0, 0, max_wait_ms=3_000)))
        raw.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        raw.socket.settimeout(0.5)
        more = encode_request(METADATA, 7, 2, "c", ALL_TOPICS) * 1000
        sent = 0
        with pytest.raises(TimeoutError):
            while sent < 100 * 1024 * 1024:
                sent += raw.socket.send(more)
        raw.socket.settimeout(10)
        held = broker.run_on_broker_thread(
            lambda cluster: max(c._receive_buffer.size for c in broker._server._connections)
        )
        assert READ_AHEAD_BYTES < held < READ_AHEAD_BYTES + 512 * 1024
        other.produce(topic, 0, b"x")
        assert decode_response(FETCH, 11, raw.frame())[0] == 1


def test_who_does_not_read_its_answers_is_not_read_either() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("big")
        broker.append("big", 0, [b"x" * 900_000])
        with Raw(broker) as raw:
            fetch = talk.fetch_body("big", 0, 0)
            raw.send(*[encode_request(FETCH, 11, at, "c", fetch) for at in range(30)])

            def unsent(_: object) -> list[int]:
                transports = [c._transport for c in broker._server._connections]
                return [t.get_write_buffer_size() for t in transports if t is not None]

            until(lambda: max(broker.run_on_broker_thread(unsent), default=0) > 0)
            time.sleep(0.1)
            assert max(broker.run_on_broker_thread(unsent)) < 1_000_000, "one answer, and not thirty"
            assert [decode_response(FETCH, 11, raw.frame())[0] for _ in range(30)] == list(range(30))


def test_idle_connections_are_ended_and_those_that_wait_are_not() -> None:
    with EmbeddedBroker(properties=QUICK_LOOK) as broker, Raw(broker) as idle, Raw(broker) as waiting:
        broker.create_topic("t")
        with RawClient(broker.addresses()[0]) as talk:
            waiting.send(encode_request(FETCH, 11, 1, "c", talk.fetch_body("t", 0, 0, max_wait_ms=2_500)))
            assert idle.has_ended()
            assert decode_response(FETCH, 11, waiting.frame())[0] == 1


def test_no_more_connections_are_open_than_allowed() -> None:
    with EmbeddedBroker(properties={"max.connections": "2"}) as broker, Raw(broker) as one, Raw(broker) as two:
        for raw in (one, two):
            raw.send(encode_request(METADATA, 7, 1, "c", ALL_TOPICS))
            raw.frame()
        with Raw(broker) as third:
            assert third.has_ended()
        one.send(encode_request(METADATA, 7, 2, "c", ALL_TOPICS))
        assert one.frame()


def test_half_requests_hold_no_more_bytes_together_than_allowed() -> None:
    with EmbeddedBroker(properties={"queued.max.request.bytes": "200000"}) as broker:
        raws = [Raw(broker) for _ in range(4)]
        for raw in raws:
            try:
                raw.send(struct.pack(">i", 90_000), bytes(80_000))
            except ConnectionError:
                continue
        until(lambda: broker.run_on_broker_thread(lambda _: len(broker._server._connections)) <= 2)
        for raw in raws:
            raw.socket.close()


def test_a_produce_without_acks_has_no_answer_and_one_that_fails_ends_the_connection(broker: EmbeddedBroker) -> None:
    topic = "silent"
    broker.create_topic(topic)
    with RawClient(broker.addresses()[0]) as talk, Raw(broker) as raw:
        talk.produce(topic, 0, b"first")
        from zkconsumer.wire.entries import Record
        from zkconsumer.wire.record_set_builder import build_record_set
        from zkconsumer.wire.schemas.produce import ProducePartition, ProduceTopic

        def frame(name: str, number: int) -> bytes:
            sent = ProducePartition(index=0, records=build_record_set([Record(0, 1, 0, None, b"second")], 2))
            rows = [ProduceTopic(name=name, partition_data=[sent])]
            return encode_request(PRODUCE, 7, number, "c", ProduceRequest(acks=0, timeout_ms=0, topic_data=rows))

        raw.send(frame(topic, 1), encode_request(METADATA, 7, 2, "c", ALL_TOPICS))
        assert decode_response(METADATA, 7, raw.frame())[0] == 2
        assert talk.values(topic, 0) == [b"first", b"second"]
        raw.send(frame("no-such-topic", 3))
        assert raw.has_ended()


def test_a_member_whose_connection_dies_while_it_waits_harms_nobody(broker: EmbeddedBroker) -> None:
    with RawClient(broker.addresses()[0]) as talk:
        while talk.find_coordinator("gone").error_code:
            pass
        first = talk.join("gone")
        with Raw(broker) as raw:
            body = JoinGroupRequest(
                group_id="gone", session_timeout_ms=6_000, rebalance_timeout_ms=6_000, protocol_type="consumer",
                protocols=[JoinGroupProtocol(name="range", metadata=b"\0\0\0\0\0\0\xff\xff\xff\xff")],
            )  # fmt: skip
            raw.send(encode_request(JOIN_GROUP, 2, 1, "c", body))
            assert raw.is_silent(0.1)
        until(lambda: talk.heartbeat("gone", first.generation_id, first.member_id) == 27)
        again = talk.join("gone", first.member_id)
        assert again.generation_id == first.generation_id + 1


# --- versions -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", EMULATED_RELEASES)
def test_each_release_tells_its_versions_and_our_client_agrees_on_them(name: str) -> None:
    with EmbeddedBroker(release=name) as broker:
        address = broker.addresses()[0]
        connection = BlockingConnection(address.host, address.port, client_id="c")
        ranges = negotiate(connection, TIMEOUT_MS)
        connection.close()
        release = EMULATED_RELEASES[name]
        assert ranges.is_assumed == (release.version < (0, 10))
        if not ranges.is_assumed:
            assert dict(ranges.ranges) == dict(release.ranges)


def test_a_version_of_api_versions_that_is_too_new_is_refused_in_the_layout_of_version_0() -> None:
    for name, listed in (("1.1.1", []), ("2.8.2", [18])):
        with EmbeddedBroker(release=name) as broker, Raw(broker) as raw:
            raw.send(encode_request(API_VERSIONS, 4, 7, "c", ApiVersionsRequest()))
            correlation_id, answer = decode_response(API_VERSIONS, 0, raw.frame())
            assert (correlation_id, answer.error_code) == (7, 35)
            assert [row.api_key for row in answer.api_keys] == listed
            raw.send(encode_request(API_VERSIONS, 1, 8, "c", ApiVersionsRequest()))
            assert decode_response(API_VERSIONS, 1, raw.frame())[0] == 8


def test_a_broker_of_0_9_passes_over_what_it_does_not_know() -> None:
    with EmbeddedBroker(release="0.9.0.1") as broker, Raw(broker) as raw:
        raw.send(encode_request(API_VERSIONS, 0, 1, "c", ApiVersionsRequest()))
        raw.send(encode_request(LIST_OFFSETS, 0, 2, "c", ListOffsetsRequest(topics=[])))
        assert decode_response(LIST_OFFSETS, 0, raw.frame())[0] == 2


def test_a_broker_of_0_9_ends_the_connection_on_a_group_call_without_a_client_id() -> None:
    for release, ends in (("0.9.0.1", True), ("1.1.1", False)):
        with EmbeddedBroker(release=release) as broker, Raw(broker) as raw:
            raw.send(encode_request(FIND_COORDINATOR, 0, 1, None, FindCoordinatorRequest(key="g")))
            if ends:
                assert raw.has_ended()
            else:
                assert decode_response(FIND_COORDINATOR, 0, raw.frame())[0] == 1


# --- TLS and logins -----------------------------------------------------------------------------------------------


def secured(protocol: str, **change: str) -> SecureConnectionFactory:
    sasl = SaslSettings(change.get("mechanism", "PLAIN"), "ann", change.get("password", "ann-secret"))
    return SecureConnectionFactory(BrokerSecurity(protocol, TlsSettings(ca_file=str(TLS / "ca.pem")), sasl))


@pytest.fixture(scope="module")
def secure() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(
        listeners=["PLAINTEXT://127.0.0.1:0", "SSL://127.0.0.1:0", "SASL_PLAINTEXT://127.0.0.1:0",
                   "SASL_SSL://127.0.0.1:0"],
        users={"ann": "ann-secret"},
        tls=TlsFiles(TLS / "broker.pem"),
    ) as started:  # fmt: skip
        yield started


def ask(broker: EmbeddedBroker, protocol: str, **change: str) -> int:
    address = broker.addresses(protocol)[0]
    connection = secured(protocol, **change)(address.host, address.port, client_id="c")
    try:
        return connection.request(METADATA, 7, ALL_TOPICS, TIMEOUT_MS).brokers[0].port
    finally:
        connection.close()


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_each_listener_speaks_its_protocol_and_tells_its_own_address(protocol: str, secure: EmbeddedBroker) -> None:
    assert ask(secure, protocol) == secure.addresses(protocol)[0].port


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_reader_that_keeps_up_never_counts_as_slow(protocol: str, secure: EmbeddedBroker) -> None:
    address = secure.addresses(protocol)[0]
    connection = secured(protocol)(address.host, address.port, client_id="c")
    for _ in range(20):
        connection.request(METADATA, 7, ALL_TOPICS, TIMEOUT_MS)
        assert not secure.run_on_broker_thread(lambda _: any(c._is_write_paused for c in secure._server._connections))
    connection.close()


@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_wrong_password_and_another_mechanism_are_refused(
    protocol: str, secure: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    with pytest.raises(SaslAuthenticationException, match="Invalid username or password"):
        ask(secure, protocol, password="wrong")
    with pytest.raises(UnsupportedSaslMechanismException, match="PLAIN"):
        ask(secure, protocol, mechanism="SCRAM-SHA-256")
    password, mechanism = (line for line in caplog.messages if line.startswith("client-authentication-failed"))
    assert password.endswith(f"listener={protocol} reason=Authentication failed: Invalid username or password")
    assert mechanism.endswith("reason=mechanism 'SCRAM-SHA-256'; there is PLAIN")


def test_nothing_is_answered_before_the_login_but_versions(secure: EmbeddedBroker) -> None:
    with Raw(secure, "SASL_PLAINTEXT") as raw:
        raw.send(encode_request(API_VERSIONS, 3, 1, "c", ApiVersionsRequest(client_software_name="c")))
        assert decode_response(API_VERSIONS, 3, raw.frame())[0] == 1
        raw.send(encode_request(METADATA, 7, 2, "c", ALL_TOPICS))
        assert raw.has_ended()
    with Raw(secure, "SASL_PLAINTEXT") as raw:
        raw.send(struct.pack(">i", 600_000))
        assert raw.has_ended(), "a frame this long is no login"


@pytest.mark.parametrize(("password", "is_right"), [("ann-secret", True), ("wrong", False)])
def test_the_bare_login_of_0_10(password: str, is_right: bool, secure: EmbeddedBroker) -> None:
    with Raw(secure, "SASL_PLAINTEXT") as raw:
        raw.send(encode_request(SASL_HANDSHAKE, 0, 1, "c", SaslHandshakeRequest(mechanism="PLAIN")))
        assert decode_response(SASL_HANDSHAKE, 0, raw.frame())[1].mechanisms == ["PLAIN"]
        token = f"\0ann\0{password}".encode()
        raw.send(struct.pack(">i", len(token)), token)
        if is_right:
            assert raw.frame() == b""
            raw.send(encode_request(METADATA, 7, 2, "c", ALL_TOPICS))
            assert decode_response(METADATA, 7, raw.frame())[0] == 2
        else:
            assert raw.has_ended()


def test_a_login_where_none_is_asked_for_is_an_illegal_state(secure: EmbeddedBroker) -> None:
    with Raw(secure) as raw:
        raw.send(encode_request(SASL_HANDSHAKE, 1, 1, "c", SaslHandshakeRequest(mechanism="PLAIN")))
        assert decode_response(SASL_HANDSHAKE, 1, raw.frame())[1].error_code == 34
        assert raw.has_ended()
    with Raw(secure, "SASL_PLAINTEXT") as raw:
        raw.send(encode_request(SASL_AUTHENTICATE, 1, 1, "c", SaslAuthenticateRequest(auth_bytes=b"\0ann\0ann-secret")))
        assert decode_response(SASL_AUTHENTICATE, 1, raw.frame())[1].error_code == 34
        assert raw.has_ended()


def test_who_speaks_plainly_to_a_tls_port_is_not_answered_and_told(
    secure: EmbeddedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "bridge.broker")
    with Raw(secure, "SSL") as raw:
        raw.send(encode_request(METADATA, 7, 1, "c", ALL_TOPICS))
        assert raw.socket.recv(1) in (b"", b"\x15"), "an alert, or the end"
    assert [record.message for record in caplog.records] == ["tls-handshake-failed reason=WRONG_VERSION_NUMBER"]
    ask(secure, "SSL")
    assert len(caplog.records) == 1, "one that succeeds is no news"


def test_a_listener_may_want_certificates_of_clients() -> None:
    tls = TlsFiles(TLS / "broker.pem", client_ca=TLS / "ca.pem")
    with EmbeddedBroker(listeners=["SSL://127.0.0.1:0"], tls=tls) as broker:
        with pytest.raises((BrokerUnreachable, Exception), match=r"certificate|closed|refuse"):
            ask(broker, "SSL")
        address = broker.addresses()[0]
        own = TlsSettings(ca_file=str(TLS / "ca.pem"), certificate_file=str(TLS / "client.pem"))
        connection = SecureConnectionFactory(BrokerSecurity("SSL", own))(address.host, address.port, client_id="c")
        assert connection.request(METADATA, 7, ALL_TOPICS, TIMEOUT_MS).brokers
        connection.close()


# --- the disk -----------------------------------------------------------------------------------------------------


def test_a_full_disk_is_told_when_it_begins_and_when_it_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    append = PartitionLog.append_validated
    is_full = True

    def full(log: PartitionLog, *words: Any) -> Any:
        if is_full and log.settings.retention_bytes == 10_000:
            raise OSError(errno.ENOSPC, "No space left on device")
        return append(log, *words)

    monkeypatch.setattr(PartitionLog, "append_validated", full)
    with EmbeddedBroker(data_dir=tmp_path / "data") as broker:
        broker.create_topic("full", config={"retention.bytes": "10000"})
        broker.create_topic("fits")
        with RawClient(broker.addresses()[0]) as talk:
            for topic, error in [("full", 56), ("full", 56), ("fits", 0), ("full", 56)]:
                assert talk.produce(topic, 0, b"x").error_code == error
            [begun] = caplog.records
            assert begun.levelname == "ERROR"
            where = f"directory={tmp_path / 'data'} topic=full partition=0 "
            assert begun.message.startswith(f"disk-write-failed {where}")
            assert "No space left on device" in begun.message
            is_full = False
            assert [talk.produce("full", 0, b"x").error_code for _ in range(2)] == [0, 0]
    assert [record.message for record in caplog.records[1:]] == [
        f"disk-write-recovered directory={tmp_path / 'data'} appends_refused=3"
    ]


# --- the process --------------------------------------------------------------------------------------------------


def test_stopping_twice_and_a_directory_that_is_free_again(tmp_path: Path) -> None:
    broker = EmbeddedBroker(data_dir=tmp_path / "data").start()
    broker.create_topic("t")
    broker.append("t", 0, [b"kept"])
    broker.stop()
    broker.stop()
    with EmbeddedBroker(data_dir=tmp_path / "data") as again:
        assert [record.value for record in again.records("t", 0)] == [b"kept"]


def test_no_thread_is_left() -> None:
    from zkconsumer.base.threads import live_threads

    with EmbeddedBroker():
        assert "broker" in live_threads()
    assert live_threads().count("broker") <= 2, "only those of the fixtures"
