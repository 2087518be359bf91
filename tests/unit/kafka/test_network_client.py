"""The network client over real sockets on 127.0.0.1, with the development broker on the other side."""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bridge.broker.server_settings import TlsFiles
from bridge.coordinator.release_features import RELEASES
from bridge.testing import EmbeddedBroker
from bridge.testing.embedded_broker import TEST_PROPERTIES
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import CloseConnection, Delay, Garbage, Hold
from tests.broker_security_cases import PASSWORD, TLS, USER
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.timer import Timer
from zkconsumer.errors import (
    AuthenticationException,
    DisconnectException,
    ForkedError,
    SaslAuthenticationException,
    SecurityProtocolMismatch,
    SslAuthenticationException,
    UnsupportedVersionException,
    UsageError,
    WakeupException,
)
from zkconsumer.kafka.api_versions_deny_list import ApiVersionsDenyList
from zkconsumer.kafka.broker_security import BrokerSecurity, SecureConnectionFactory
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import ClientResponse, RequestBuilder
from zkconsumer.kafka.net.consumer_network_client import ConsumerNetworkClient
from zkconsumer.kafka.net.host_resolver import HostResolver, resolve_host
from zkconsumer.kafka.net.metadata_updater import ManualMetadataUpdater
from zkconsumer.kafka.net.network_client import POLL_MS, NetworkClient
from zkconsumer.kafka.net.network_machine import NetworkMachine, NetworkSettings
from zkconsumer.kafka.net.request_future import RequestFuture
from zkconsumer.kafka.net.selector import Selector
from zkconsumer.kafka.sasl_mechanisms import SaslSettings
from zkconsumer.kafka.supported_versions import ASSUMED_BEFORE_0_10, ASSUMED_FOR_0_9
from zkconsumer.kafka.tls import TlsSettings
from zkconsumer.wire.schemas import API_VERSIONS, FETCH, HEARTBEAT, METADATA, PRODUCE
from zkconsumer.wire.schemas.fetch import FetchPartition, FetchRequest, FetchTopic
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest
from zkconsumer.wire.schemas.metadata import MetadataRequest, MetadataRequestTopic
from zkconsumer.wire.schemas.produce import ProduceRequest

DEADLINE_S = 20
TRUST = TlsSettings(ca_file=str(TLS / "ca.pem"))
LOGIN = SaslSettings("PLAIN", USER, PASSWORD)
METADATA_BUILDER = RequestBuilder(METADATA, MetadataRequest(topics=[]))


class Metadata:
    """A ``ConsumerClusterMetadata`` that has nothing to say."""

    update_version = 0
    update_requested = False

    def request_update(self) -> int:
        return 0

    def time_to_next_update(self, now_ms: int) -> int:
        return 60_000

    def maybe_throw_any_exception(self) -> None:
        """There is none."""


class Client:
    """A network client, and what keeps it."""

    def __init__(
        self,
        security: BrokerSecurity | None = None,
        *,
        resolve: HostResolver = resolve_host,
        diagnoses: bool = False,
        **settings: Any,
    ) -> None:
        self.diagnosed: list[tuple[str, int]] = []
        channels = SecureConnectionFactory(security or BrokerSecurity("PLAINTEXT"), SYSTEM_CLOCK)
        self.deny_list = ApiVersionsDenyList()
        self.machine = NetworkMachine(
            NetworkSettings(
                client_id="test", **{"reconnect_backoff_ms": 1, "reconnect_backoff_max_ms": 20, **settings}
            ),
            ManualMetadataUpdater(),
            uniform=lambda: 0.5,
            deny_list=self.deny_list,
        )
        self.selector = Selector(channels.new_channel, SYSTEM_CLOCK, receive_buffer_bytes=65_536)

        def diagnose(host: str, port: int, error: Exception) -> AuthenticationException | None:
            self.diagnosed.append((host, port))
            return channels.diagnose(host, port, error)

        self.network = NetworkClient(
            self.machine, self.selector, SYSTEM_CLOCK, resolve=resolve, diagnose=diagnose if diagnoses else None
        )
        self.consumer = ConsumerNetworkClient(
            self.network, Metadata(), SYSTEM_CLOCK, retry_backoff_ms=20, request_timeout_ms=30_000
        )

    def poll_until(self, condition: Callable[[], bool]) -> list[ClientResponse]:
        responses = []
        deadline = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < deadline, "it does not happen"
            responses += self.network.poll(50, SYSTEM_CLOCK.now_ms())
            self.machine.check_invariants()
        return responses

    def await_ready(self, node: Node) -> None:
        self.poll_until(lambda: self.network.ready(node, SYSTEM_CLOCK.now_ms()))

    def send(self, node: Node, builder: RequestBuilder = METADATA_BUILDER, **options: Any) -> list[ClientResponse]:
        """Send one request; the list has its response once it has arrived."""
        done: list[ClientResponse] = []
        now_ms = SYSTEM_CLOCK.now_ms()
        self.network.send(
            self.network.new_client_request(node.id, builder, now_ms, callback=done.append, **options), now_ms
        )
        return done

    def ask(self, node: Node, builder: RequestBuilder = METADATA_BUILDER, **options: Any) -> ClientResponse:
        self.await_ready(node)
        done = self.send(node, builder, **options)
        self.poll_until(lambda: bool(done))
        return done[0]


@pytest.fixture
def make() -> Iterator[Callable[..., Client]]:
    with contextlib.ExitStack() as stack:

        def make_client(*args: Any, **options: Any) -> Client:
            client = Client(*args, **options)
            stack.callback(client.network.close)
            return client

        yield make_client


@contextlib.contextmanager
def serving(*brokers: int, **options: Any) -> Iterator[tuple[FakeCluster, Node]]:
    with FakeCluster(**options).serve() as cluster:
        yield cluster, node_of(cluster.address(0)[1:])


def node_of(address: tuple[str, int], node_id: int = 0) -> Node:
    return Node(node_id, *address)


@contextlib.contextmanager
def listening(family: socket.AddressFamily = socket.AF_INET) -> Iterator[tuple[socket.socket, int]]:
    """A port behind which nothing answers."""
    with socket.socket(family, socket.SOCK_STREAM) as server:
        server.bind(("::1" if family is socket.AF_INET6 else "127.0.0.1", 0))
        server.listen()
        yield server, server.getsockname()[1]


# --- releases -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("release", RELEASES)
def test_brokers_of_each_release_answer(release: str, make: Callable[..., Client]) -> None:
    client = make()
    with serving(release=release) as (_, node):
        response = client.ask(node)
        assert len(response.body.brokers) == 1
        versions = client.consumer.supported_versions(node)
        assert versions is not None
        if RELEASES[release].has_api_versions:
            assert dict(versions.ranges) == RELEASES[release].ranges
        else:
            knows_members = RELEASES[release].supports_group_members
            assert versions is (ASSUMED_FOR_0_9 if knows_members else ASSUMED_BEFORE_0_10)
            assert client.deny_list.contains(node.host, node.port) == knows_members
            assert response.version == 0


@pytest.mark.parametrize("release", ["0.9.0.1", "0.11.0.3", "1.1.1", "3.9.1", "4.1.1"])
def test_the_development_broker_answers(release: str, make: Callable[..., Client]) -> None:
    client = make()
    with EmbeddedBroker(release=release, properties=TEST_PROPERTIES) as broker:
        broker.create_topic("clicks", partitions=3)
        node = node_of(broker.addresses()[0][1:])
        wanted = MetadataRequest(topics=[MetadataRequestTopic(name="clicks")])
        response = client.ask(node, RequestBuilder(METADATA, wanted))
        assert [len(topic.partitions) for topic in response.body.topics] == [3]


def test_a_request_that_is_too_new_for_the_broker_is_not_sent(make: Callable[..., Client]) -> None:
    client = make()
    with serving(release="0.8.2.2") as (_, node):
        heartbeat = RequestBuilder(HEARTBEAT, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
        response = client.ask(node, heartbeat)
        assert isinstance(response.version_mismatch, UnsupportedVersionException)
        assert client.ask(node).has_response, "the connection is as before"


# --- bytes ----------------------------------------------------------------------------------------------------------


def test_a_large_response_arrives_whole(make: Callable[..., Client]) -> None:
    client = make()
    with serving(release="3.9.1") as (cluster, node):
        cluster.create_topic("clicks")
        values = [bytes([number]) * 400_000 for number in range(20)]
        for value in values:
            cluster.append("clicks", 0, [value])
        partition = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=64_000_000)
        topics = [FetchTopic(topic="clicks", partitions=[partition])]
        fetch = FetchRequest(max_wait_ms=100, min_bytes=1, max_bytes=64_000_000, topics=topics)
        response = client.ask(node, RequestBuilder(FETCH, fetch, version_max=11))
        records = bytes(response.body.responses[0].partitions[0].records)
        assert len(records) > 20 * 400_000
        assert all(value in records for value in values)


def test_requests_are_answered_in_their_order_on_one_connection(make: Callable[..., Client]) -> None:
    client = make()
    with serving() as (_, node):
        client.await_ready(node)
        order: list[int] = []
        now_ms = SYSTEM_CLOCK.now_ms()
        sent = []
        for _ in range(20):
            request = client.network.new_client_request(
                node.id, METADATA_BUILDER, now_ms, callback=lambda response: order.append(response.correlation_id)
            )
            client.network.send(request, now_ms)
            sent.append(request.correlation_id)
        assert client.network.in_flight_request_count(node.id) == 20
        client.poll_until(lambda: len(order) == 20)
        assert order == sent


def test_a_broker_that_does_not_read_holds_one_request_back(make: Callable[..., Client]) -> None:
    client = make(discover_api_versions=False, request_timeout_ms=60_000)
    with listening() as (server, port):
        node = node_of(("127.0.0.1", port))
        client.await_ready(node)
        accepted, _ = server.accept()
        with accepted:
            topics = [MetadataRequestTopic(name="x" * 30_000)] * 400
            large = RequestBuilder(METADATA, MetadataRequest(topics=topics))
            done = client.send(node, large)
            client.network.poll(10, SYSTEM_CLOCK.now_ms())
            assert not client.network.is_ready(node, SYSTEM_CLOCK.now_ms())
            received = 0
            while not client.network.is_ready(node, SYSTEM_CLOCK.now_ms()):
                client.network.poll(1, SYSTEM_CLOCK.now_ms())
                with contextlib.suppress(BlockingIOError):
                    received += len(accepted.recv(1 << 20, socket.MSG_DONTWAIT))
            assert received > 1_000_000, "the rest is in the buffers of the system"
            assert done == []


def test_a_request_without_a_response_is_complete_when_it_is_written(make: Callable[..., Client]) -> None:
    client = make()
    with serving() as (_, node):
        builder = RequestBuilder(PRODUCE, ProduceRequest(acks=0, timeout_ms=1000, topic_data=[]))
        response = client.ask(node, builder, expects_response=False)
        assert not response.has_response
        assert not response.was_disconnected


@pytest.mark.parametrize("data", [b"HTTP/1.1 400 Bad Request\r\n\r\n", b"\x00\x00\x00\x02xx", b"\xff\xff\xff\xff"])
def test_bytes_that_are_no_response_end_the_connection(
    data: bytes, make: Callable[..., Client], caplog: pytest.LogCaptureFixture
) -> None:
    client = make()
    with serving() as (cluster, node):
        client.await_ready(node)
        cluster.inject(Garbage(data))
        done = client.send(node)
        client.poll_until(lambda: bool(done))
        assert done[0].was_disconnected
        assert any("response-invalid" in record.message for record in caplog.records)
        assert client.ask(node).has_response


def test_ipv6_addresses_are_connected(make: Callable[..., Client]) -> None:
    client = make(discover_api_versions=False)
    try:
        with listening(socket.AF_INET6) as (_, port):
            client.await_ready(node_of(("::1", port)))
    except OSError:
        pytest.skip("no IPv6 on this machine")


# --- time-outs and disconnects --------------------------------------------------------------------------------------


def test_a_silent_server_is_disconnected_when_the_request_is_late(make: Callable[..., Client]) -> None:
    client = make(request_timeout_ms=700)
    with listening() as (server, port):
        node = node_of(("127.0.0.1", port))
        assert not client.network.ready(node, SYSTEM_CLOCK.now_ms())
        client.poll_until(lambda: client.network.connection_failed(node))
        accepted, _ = server.accept()
        with accepted:
            asked = accepted.recv(65_536)
            assert asked.count(b"\x00\x12\x00\x03") == 1, "ApiVersions v3"
            assert asked.count(b"\x00\x02\x00\x00") >= 1, "ListOffsets v0 after half a second"


def test_a_slow_broker_is_not_taken_for_one_of_0_9(make: Callable[..., Client]) -> None:
    client = make()
    for release in ("3.9.1", "4.1.1"):
        with serving(release=release) as (cluster, node):
            cluster.inject(Delay(900), api=API_VERSIONS)
            client.await_ready(node)
            versions = client.machine.supported_versions(node)
            assert versions is not None
            assert not versions.is_assumed
            assert client.ask(node).has_response
        client.network.close_node(node.id)


def test_a_late_request_ends_its_connection_and_the_next_one_connects_again(make: Callable[..., Client]) -> None:
    client = make()
    with serving() as (cluster, node):
        client.await_ready(node)
        held = cluster.inject(Hold(), api=METADATA)
        done = client.send(node, request_timeout_ms=100)
        client.poll_until(lambda: bool(done))
        assert done[0].was_disconnected
        assert done[0].timed_out
        held.lift()
        assert client.ask(node).has_response


def test_a_broker_that_stops_fails_its_requests_and_is_found_again(make: Callable[..., Client]) -> None:
    client = make()
    with serving() as (cluster, node):
        client.await_ready(node)
        held = cluster.inject(Hold(), api=METADATA)
        done = client.send(node)
        cluster.stop_broker(0)
        client.poll_until(lambda: bool(done))
        assert done[0].was_disconnected
        assert not done[0].timed_out
        held.lift()
        cluster.start_broker(0)
        assert client.ask(node_of(cluster.address(0)[1:])).has_response


def test_a_broker_that_closes_in_the_middle_of_a_response_fails_the_request(make: Callable[..., Client]) -> None:
    client = make()
    with serving() as (cluster, node):
        client.await_ready(node)
        cluster.inject(CloseConnection(after_bytes=7), api=METADATA)
        done = client.send(node)
        client.poll_until(lambda: bool(done))
        assert done[0].was_disconnected


def test_a_response_that_begins_is_seen_in_the_next_millisecond(make: Callable[..., Client]) -> None:
    client = make()
    with listening() as (server, port):
        node = node_of(("127.0.0.1", port))
        client.deny_list.add("127.0.0.1", port)  # so that no request about versions precedes
        client.await_ready(node)
        broker, _ = server.accept()
        done = client.send(node)
        client.poll_until(lambda: len(broker.recv(4096, socket.MSG_DONTWAIT | socket.MSG_PEEK)) > 0)
        polled_ms = SYSTEM_CLOCK.now_ms()
        client.network.poll(0, polled_ms)
        assert client.network.receive_more(polled_ms)
        assert client.network.receive_more(polled_ms + 1), "nothing has arrived"
        broker.sendall(b"\0")
        client.selector._selector.select(DEADLINE_S)
        assert client.network.receive_more(polled_ms + 1), "it has looked in this millisecond"
        assert not client.network.receive_more(polled_ms + 2)
        assert not client.network.receive_more(polled_ms + POLL_MS)
        broker.close()
        client.poll_until(lambda: bool(done))


def test_while_a_response_is_incomplete_a_poll_follows_after_some_milliseconds(make: Callable[..., Client]) -> None:
    client = make()
    with listening() as (server, port):
        node = node_of(("127.0.0.1", port))
        client.deny_list.add("127.0.0.1", port)  # so that no request about versions precedes
        client.await_ready(node)
        broker, _ = server.accept()
        done = client.send(node)
        client.poll_until(lambda: len(broker.recv(4096, socket.MSG_DONTWAIT | socket.MSG_PEEK)) > 0)
        broker.sendall(b"\0\0\1\0\0\0")
        client.poll_until(lambda: client.selector._sockets[node.id].channel.is_in_response)
        polled_ms = SYSTEM_CLOCK.now_ms()
        client.network.poll(0, polled_ms)
        assert client.network.receive_more(polled_ms + POLL_MS - 1)
        assert not client.network.receive_more(polled_ms + POLL_MS)
        client.network.poll(0, polled_ms + POLL_MS)
        assert client.network.receive_more(polled_ms + POLL_MS)
        broker.close()
        client.poll_until(lambda: bool(done))


def test_a_refused_connection_is_tried_again_after_the_backoff(
    make: Callable[..., Client], caplog: pytest.LogCaptureFixture
) -> None:
    client = make()
    with listening() as (_, port):
        pass
    node = node_of(("127.0.0.1", port))
    client.network.ready(node, SYSTEM_CLOCK.now_ms())
    client.poll_until(lambda: client.network.connection_failed(node))
    assert [record.message.split()[0] for record in caplog.records] == ["connection-failed"]
    assert "127.0.0.1" in caplog.records[0].message
    with FakeCluster().serve() as cluster:
        assert client.ask(node_of(cluster.address(0)[1:])).has_response


def test_an_idle_connection_is_closed(make: Callable[..., Client]) -> None:
    client = make(connections_max_idle_ms=100)
    with serving() as (_, node):
        client.await_ready(node)
        client.poll_until(lambda: client.network.connection_failed(node))
        assert client.ask(node).has_response


def test_a_disconnect_fails_the_requests_of_the_node_at_the_next_poll(make: Callable[..., Client]) -> None:
    client = make()
    with serving() as (cluster, node):
        client.await_ready(node)
        cluster.inject(Hold(), api=METADATA)
        done = client.send(node)
        client.network.disconnect(node.id)
        assert done == []
        assert [response.was_disconnected for response in client.network.poll(0, SYSTEM_CLOCK.now_ms())] == [True]
        assert len(done) == 1


# --- addresses ------------------------------------------------------------------------------------------------------


def test_a_failed_address_is_followed_by_the_next_one(make: Callable[..., Client]) -> None:
    asked: list[str] = []

    def resolve(host: str) -> tuple[str, ...]:
        asked.append(host)
        return "127.0.0.2", "127.0.0.1"

    client = make(resolve=resolve)
    with serving() as (_, node):
        named = Node(0, "broker.example", node.port)
        assert client.ask(named).has_response
        assert asked == ["broker.example"]


def test_a_name_that_cannot_be_resolved_is_a_failed_connection(
    make: Callable[..., Client], caplog: pytest.LogCaptureFixture
) -> None:
    def resolve(host: str) -> tuple[str, ...]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    client = make(resolve=resolve)
    node = Node(0, "badhost", 9092)
    assert not client.network.ready(node, SYSTEM_CLOCK.now_ms())
    assert client.network.connection_failed(node)
    assert "host-unresolved" in caplog.text
    assert "badhost: [Errno" in caplog.text


@contextlib.contextmanager
def secured(protocol: str) -> Iterator[Node]:
    """A development broker with one listener."""
    tls = TlsFiles(TLS / "broker.pem") if "SSL" in protocol else None
    users = {USER: PASSWORD} if "SASL" in protocol else None
    with EmbeddedBroker(listeners=[f"{protocol}://127.0.0.1:0"], tls=tls, users=users) as broker:
        yield node_of(broker.addresses()[0][1:])


# --- TLS and SASL ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
def test_tls_and_logins_are_part_of_the_connection(protocol: str, make: Callable[..., Client]) -> None:
    security = BrokerSecurity(protocol, TRUST if "SSL" in protocol else None, LOGIN if "SASL" in protocol else None)
    client = make(security)
    with secured(protocol) as node:
        assert client.ask(node).has_response


def test_a_failed_login_is_the_error_of_the_node(make: Callable[..., Client], caplog: pytest.LogCaptureFixture) -> None:
    client = make(BrokerSecurity("SASL_PLAINTEXT", None, SaslSettings("PLAIN", USER, "wrong")))
    with secured("SASL_PLAINTEXT") as node:
        future = client.consumer.send(node, METADATA_BUILDER)
        client.consumer.poll_future(future)
        assert isinstance(future.exception, SaslAuthenticationException)
        assert isinstance(client.network.authentication_error(node), SaslAuthenticationException)
        with pytest.raises(AuthenticationException):
            client.consumer.maybe_throw_auth_failure(node)
        assert "node-authentication-failed" in caplog.text


def test_a_certificate_of_another_authority_is_the_error_of_the_node(make: Callable[..., Client]) -> None:
    trust = TlsSettings(ca_file=str(TLS / "other-ca.pem"))
    client = make(BrokerSecurity("SSL", trust))
    with secured("SSL") as node:
        future = client.consumer.send(node, METADATA_BUILDER)
        client.consumer.poll_future(future)
        assert isinstance(future.exception, SslAuthenticationException)


def test_a_port_without_tls_fails_in_the_handshake(
    make: Callable[..., Client], caplog: pytest.LogCaptureFixture
) -> None:
    client = make(BrokerSecurity("SSL", TRUST))
    with serving() as (_, node):
        client.network.ready(node, SYSTEM_CLOCK.now_ms())
        client.poll_until(lambda: client.network.connection_failed(node))
        assert "node-authentication-failed" in caplog.text or "connection-closed-in-handshake" in caplog.text


@pytest.mark.parametrize(
    ("configured", "of_port"),
    [
        ("PLAINTEXT", "SSL"),
        ("SSL", "PLAINTEXT"),
        ("PLAINTEXT", "SASL_SSL"),
        ("SASL_PLAINTEXT", "SASL_SSL"),
        ("SASL_SSL", "SASL_PLAINTEXT"),
    ],
)
def test_a_port_with_another_protocol_is_the_error_of_the_node(
    configured: str, of_port: str, make: Callable[..., Client]
) -> None:
    trust = TRUST if "SSL" in configured else None
    client = make(BrokerSecurity(configured, trust, LOGIN if "SASL" in configured else None), diagnoses=True)
    with secured(of_port) as node:
        future = client.consumer.send(node, METADATA_BUILDER)
        client.consumer.poll_future(future)
        assert isinstance(future.exception, SecurityProtocolMismatch)
        assert f"this port speaks {of_port}, and security.protocol is {configured}" in str(future.exception)
        client.consumer.poll_future(client.consumer.send(node, METADATA_BUILDER))
        assert client.diagnosed == [(node.host, node.port)], "once"


def test_a_connection_that_ends_after_an_answer_is_not_examined(make: Callable[..., Client]) -> None:
    client = make(diagnoses=True)
    with serving() as (cluster, node):
        client.ask(node)
        cluster.inject(CloseConnection(), api=METADATA)
        done = client.send(node)
        client.poll_until(lambda: bool(done))
        assert done[0].was_disconnected
    client.network.ready(node, SYSTEM_CLOCK.now_ms())
    client.poll_until(lambda: client.network.connection_failed(node))
    assert client.diagnosed == []


# --- threads and the end --------------------------------------------------------------------------------------------


def test_a_wakeup_of_another_thread_ends_the_poll(make: Callable[..., Client]) -> None:
    client = make()
    caught: list[BaseException] = []

    def poll() -> None:
        try:
            while True:
                client.consumer.poll_future(RequestFuture(), Timer(SYSTEM_CLOCK, DEADLINE_S * 1000))
        except WakeupException as error:
            caught.append(error)

    with serving() as (cluster, node):
        cluster.inject(Hold(), api=METADATA)
        client.consumer.send(node, METADATA_BUILDER)
        thread = threading.Thread(target=poll, daemon=True)
        thread.start()
        while not client.network.has_in_flight_requests():
            time.sleep(0.001)
        client.consumer.wakeup()
        thread.join(DEADLINE_S)
        assert len(caught) == 1


def test_two_threads_send_and_poll_at_the_same_time(make: Callable[..., Client]) -> None:
    client = make()
    with serving() as (_, node):
        results: list[list[bool]] = [[], []]

        def work(number: int) -> None:
            for _ in range(50):
                future = client.consumer.send(node, METADATA_BUILDER)
                client.consumer.poll_future(future, Timer(SYSTEM_CLOCK, DEADLINE_S * 1000))
                results[number].append(future.succeeded)

        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE_S)
        assert results == [[True] * 50] * 2


def test_an_error_of_a_callback_is_logged_and_ends_nothing(
    make: Callable[..., Client], caplog: pytest.LogCaptureFixture
) -> None:
    client = make()
    with serving() as (_, node):
        client.await_ready(node)
        now_ms = SYSTEM_CLOCK.now_ms()

        def fail(_: ClientResponse) -> None:
            raise ValueError("boom")

        client.network.send(client.network.new_client_request(node.id, METADATA_BUILDER, now_ms, callback=fail), now_ms)
        done = client.send(node)
        client.poll_until(lambda: bool(done))
        assert "request-callback-failed" in caplog.text


def test_a_closed_client_sends_nothing(make: Callable[..., Client]) -> None:
    client = make()
    with serving() as (_, node):
        client.await_ready(node)
        request = client.network.new_client_request(node.id, METADATA_BUILDER, 0)
        client.network.initiate_close()
        assert not client.network.is_active
        with pytest.raises(DisconnectException):
            client.network.send(request, SYSTEM_CLOCK.now_ms())
        with pytest.raises(DisconnectException):
            client.network.poll(0, SYSTEM_CLOCK.now_ms())
        client.network.close()
        client.network.close()
        client.network.wakeup()


def test_a_child_process_can_only_close_the_client_and_leaves_the_parent_its_connections(
    make: Callable[..., Client],
) -> None:
    client = make()
    with serving() as (_, node):
        client.await_ready(node)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                client.network.poll(0, SYSTEM_CLOCK.now_ms())
            except ForkedError:
                client.network.close()
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        done = client.send(node)
        client.poll_until(lambda: bool(done))
        assert done[0].has_response, "on the same connection"


def test_a_node_that_is_not_ready_gets_no_request(make: Callable[..., Client]) -> None:
    client = make()
    with pytest.raises(UsageError, match="not ready"):
        client.send(Node(3, "localhost", 1))


def test_the_lines_of_a_connection_name_the_broker(
    make: Callable[..., Client], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "zkconsumer.kafka")
    client = make()
    with serving() as (_, node):
        client.await_ready(node)
    client.poll_until(lambda: client.network.connection_failed(node))
    lines = [record.message for record in caplog.records]
    assert [line.split()[0] for line in lines[:4]] == ["connecting", "connected", "node-ready", "disconnected"]
    assert all(f"node={node}" in line for line in lines[:4])
