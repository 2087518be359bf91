"""The decisions of the network client, as NetworkClientTest of Kafka requires them, without a socket and a clock."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bridge.coordinator.release_features import RELEASES
from zkconsumer.base.timer import FOREVER_MS
from zkconsumer.errors import (
    AuthenticationException,
    UnsupportedVersionException,
    UsageError,
    ZkConsumerError,
)
from zkconsumer.kafka.client_log_event import ClientLogEvent
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.api_versions_discovery import NO_RESPONSE_MS
from zkconsumer.kafka.net.client_request import ClientRequest, ClientResponse, RequestBuilder
from zkconsumer.kafka.net.client_throttling import CLIENT_THROTTLES_FROM, throttle_time_ms
from zkconsumer.kafka.net.metadata_updater import ManualMetadataUpdater, MetadataRequestSender
from zkconsumer.kafka.net.network_machine import NetworkMachine, NetworkSettings
from zkconsumer.kafka.net.network_messages import (
    CompleteRequest,
    DisconnectReason,
    DropConnection,
    FrameReceived,
    HostResolved,
    NodeConnected,
    NodeDisconnected,
    OpenConnection,
    RequestWritten,
    ResolveHost,
    SendFrame,
)
from zkconsumer.kafka.net.sasl_client_authenticator import is_reserved
from zkconsumer.kafka.supported_versions import ASSUMED_BEFORE_0_10, ASSUMED_FOR_0_9
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.wire.request_frames import ReceivedRequest, decode_request, encode_response
from zkconsumer.wire.schemas import API_VERSIONS, APIS, FETCH, HEARTBEAT, LIST_OFFSETS, METADATA, PRODUCE
from zkconsumer.wire.schemas.api_versions import ApiVersion, ApiVersionsResponse
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from zkconsumer.wire.schemas.list_offsets import ListOffsetsResponse
from zkconsumer.wire.schemas.message_schema import Api
from zkconsumer.wire.schemas.metadata import MetadataBroker, MetadataRequest, MetadataResponse
from zkconsumer.wire.schemas.produce import ProduceRequest, ProduceResponse

REQUEST_MS, IDLE_MS = 30_000, 540_000
SETUP_MS = 5_000
BACKOFF_MS, BACKOFF_MAX_MS = 10_000, 100_000
NODE = Node(0, "one", 9092)
NODES = tuple(Node(number, f"host{number}", 9092) for number in range(3))
NEWEST = tuple(
    ApiVersion(api_key=api.key, min_version=api.lowest, max_version=api.client_highest) for api in APIS.values()
)
METADATA_BUILDER = RequestBuilder(METADATA, MetadataRequest(topics=[]))
HEARTBEAT_BUILDER = RequestBuilder(HEARTBEAT, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))


class FakeDenyList:
    """Addresses that must not get ApiVersions."""

    def __init__(self) -> None:
        self.addresses: set[tuple[str, int]] = set()

    def contains(self, host: str, port: int) -> bool:
        return (host, port) in self.addresses

    def add(self, host: str, port: int) -> None:
        self.addresses.add((host, port))


class FakeMetadataUpdater(ManualMetadataUpdater):
    """Sends a request when ``is_requested`` is set; keeps what it hears."""

    def __init__(self, nodes: Sequence[Node]) -> None:
        super().__init__(nodes)
        self.is_requested = False
        self.is_in_progress = False
        self.failures: list[ZkConsumerError | None] = []
        self.updates: list[tuple[int, MetadataResponse]] = []
        self.disconnected: list[tuple[int, AuthenticationException | None]] = []

    def is_update_due(self, now_ms: int) -> bool:
        return self.is_requested and not self.is_in_progress

    def maybe_update(self, now_ms: int, sender: MetadataRequestSender) -> int:
        return sender.send_metadata_request(self._new_request, now_ms) if self.is_update_due(now_ms) else FOREVER_MS

    def _new_request(self) -> RequestBuilder:
        self.is_in_progress = True
        return METADATA_BUILDER

    def handle_server_disconnect(
        self, now_ms: int, node_id: int, authentication_error: AuthenticationException | None
    ) -> Sequence[ClientLogEvent]:
        self.disconnected.append((node_id, authentication_error))
        return ()

    def handle_failed_request(self, now_ms: int, fatal_error: ZkConsumerError | None) -> Sequence[ClientLogEvent]:
        self.is_in_progress = False
        self.failures.append(fatal_error)
        return ()

    def handle_successful_response(
        self, version: int, correlation_id: int, now_ms: int, response: MetadataResponse
    ) -> Sequence[ClientLogEvent]:
        self.is_in_progress = self.is_requested = False
        self.updates.append((version, response))
        return ()


class Network:
    """A machine, and what it commanded.  Names resolve to ``addresses``, and each frame is written at once."""

    def __init__(
        self,
        nodes: Sequence[Node] = (NODE,),
        *,
        uniform: Callable[[], float] = lambda: 0.5,
        addresses: Mapping[str, tuple[str, ...]] | None = None,
        **settings: Any,
    ) -> None:
        self.clock = ManualClock()
        self.updater = FakeMetadataUpdater(nodes)
        self.deny_list = FakeDenyList()
        self.addresses = dict(addresses or {})
        self.machine = NetworkMachine(
            NetworkSettings(
                **{
                    "client_id": "mock",
                    "request_timeout_ms": REQUEST_MS,
                    "reconnect_backoff_ms": BACKOFF_MS,
                    "reconnect_backoff_max_ms": BACKOFF_MAX_MS,
                    "connection_setup_timeout_ms": SETUP_MS,
                    "connection_setup_timeout_max_ms": SETUP_MS,
                    "connections_max_idle_ms": IDLE_MS,
                    **settings,
                }
            ),
            self.updater,
            uniform=uniform,
            deny_list=self.deny_list,
        )
        self.opened: list[str] = []
        self.resolved: list[str] = []
        self.dropped: list[int] = []
        self.sent: list[tuple[int, ReceivedRequest]] = []
        self.answered: set[int] = set()
        self.completed: list[ClientResponse] = []
        self.logged: list[str] = []
        self.writes_at_once = True

    @property
    def now_ms(self) -> int:
        return self.clock.now_ms()

    def run(self) -> None:
        """Execute the commands until there are none."""
        while commands := self.machine.take_commands():
            for command in commands:
                match command:
                    case ResolveHost(node_id, host):
                        self.resolved.append(host)
                        found = self.addresses.get(host, ("10.0.0.1",))
                        self.machine.on_event(HostResolved(node_id, found, "no address"), self.now_ms)
                    case OpenConnection(address=address):
                        self.opened.append(address)
                    case SendFrame(node_id, frame):
                        self.sent.append((node_id, decode_request(frame[4:])))
                        if self.writes_at_once:
                            self.machine.on_event(RequestWritten(node_id), self.now_ms)
                    case DropConnection(node_id):
                        self.dropped.append(node_id)
                    case CompleteRequest(response):
                        self.completed.append(response)
                    case ClientLogEvent(level, name):
                        self.logged.append(f"{level} {name}")
        self.machine.check_invariants()

    def event(self, event: Any) -> None:
        self.machine.on_event(event, self.now_ms)
        self.run()

    def move(self, by_ms: int) -> None:
        """Let time pass; the machine acts at its own deadlines."""
        end_ms = self.now_ms + by_ms
        while (left_ms := self.machine.time_to_next_deadline_ms(self.now_ms)) <= end_ms - self.now_ms:
            self.clock.move(left_ms)
            self.machine.on_time(self.now_ms)
            self.run()
            assert self.machine.time_to_next_deadline_ms(self.now_ms) > 0, "a deadline that is over was not used"
        self.clock.move(end_ms - self.now_ms)
        self.machine.on_time(self.now_ms)
        self.run()

    def poll(self) -> int:
        """What the client does before it waits; returns the wait of the metadata."""
        wait_ms = self.machine.maybe_update_metadata(self.now_ms)
        self.run()
        return wait_ms

    def ready(self, node: Node = NODE) -> bool:
        is_ready = self.machine.ready(node, self.now_ms)
        self.run()
        return is_ready

    def respond(self, body: Any, node: Node = NODE, *, version: int | None = None, api: Any = None) -> None:
        """Answer the oldest request in flight to a node that was not answered."""
        request = self.unanswered(node)[0]
        frame = encode_response(
            api or request.api,
            request.header.api_version if version is None else version,
            request.header.correlation_id,
            body,
        )
        self.answered.add(request.header.correlation_id)
        self.event(FrameReceived(node.id, memoryview(frame[4:])))

    def unanswered(self, node: Node = NODE) -> list[ReceivedRequest]:
        return [
            request
            for node_id, request in self.sent
            if node_id == node.id and request.header.correlation_id not in self.answered
        ]

    def connect(self, node: Node = NODE) -> None:
        """Connect, without an answer to what follows."""
        assert not self.ready(node)
        self.event(NodeConnected(node.id))

    def await_ready(self, node: Node = NODE, versions: Sequence[ApiVersion] = NEWEST) -> None:
        """Connect, and answer ApiVersions."""
        self.connect(node)
        self.respond(ApiVersionsResponse(api_keys=list(versions)), node)
        assert self.machine.is_ready(node, self.now_ms)

    def send(
        self, builder: RequestBuilder = METADATA_BUILDER, node: Node = NODE, *, expects_response: bool = True,
        timeout_ms: int | None = None,
    ) -> ClientRequest:  # fmt: skip
        request = self.machine.new_client_request(
            node.id, builder, self.now_ms, expects_response=expects_response, request_timeout_ms=timeout_ms
        )
        self.machine.send(request, self.now_ms)
        self.run()
        return request

    def lose(self, node: Node = NODE, reason: DisconnectReason = DisconnectReason.CLOSED, error: Any = None) -> None:
        for request in self.unanswered(node):
            self.answered.add(request.header.correlation_id)
        self.event(NodeDisconnected(node.id, reason, "why", error))

    def last_sent(self) -> tuple[Api[Any, Any], int]:
        request = self.sent[-1][1]
        return request.api, request.header.api_version


@pytest.fixture
def network() -> Network:
    return Network()


def produce_builder(acks: int = 1, version_max: int | None = None) -> RequestBuilder:
    body = ProduceRequest(acks=acks, timeout_ms=1000, topic_data=[])
    return RequestBuilder(PRODUCE, body, version_max=version_max)


def throttled(ms: int) -> ProduceResponse:
    return ProduceResponse(responses=[], throttle_time_ms=ms)


# --- requests and responses -----------------------------------------------------------------------------------------


def test_a_node_that_is_not_ready_gets_no_request(network: Network) -> None:
    with pytest.raises(UsageError, match="not ready"):
        network.send(node=Node(5, "five", 9092))
    assert network.sent == []


def check_request_and_response(network: Network) -> None:
    handled: list[ClientResponse] = []
    request = network.machine.new_client_request(NODE.id, produce_builder(), network.now_ms, callback=handled.append)
    network.machine.send(request, network.now_ms)
    network.run()
    assert network.machine.in_flight_request_count() == 1
    network.clock.move(7)
    network.respond(throttled(0))
    (response,) = network.completed
    response.on_complete()
    assert handled == [response]
    assert response.has_response
    assert isinstance(response.body, ProduceResponse)
    assert response.correlation_id == request.correlation_id
    assert response.destination == NODE.id
    assert response.latency_ms == 7
    assert network.machine.in_flight_request_count() == 0


def test_a_request_gets_its_response(network: Network) -> None:
    network.await_ready()
    check_request_and_response(network)


def test_a_request_gets_its_response_without_a_backoff() -> None:
    network = Network(reconnect_backoff_ms=0, reconnect_backoff_max_ms=0)
    network.await_ready()
    check_request_and_response(network)


def test_without_discovery_a_connection_is_ready_at_once() -> None:
    network = Network(discover_api_versions=False)
    network.connect()
    assert network.sent == []
    assert network.machine.is_ready(NODE, network.now_ms)
    check_request_and_response(network)


def test_a_request_without_a_response_is_complete_when_it_is_written(network: Network) -> None:
    network.await_ready()
    network.writes_at_once = False
    network.send(produce_builder(acks=0), expects_response=False)
    assert network.completed == []
    assert not network.machine.is_ready(NODE, network.now_ms), "the next one waits until it is written"
    network.event(RequestWritten(NODE.id))
    (response,) = network.completed
    assert not response.has_response
    assert not response.was_disconnected
    assert network.machine.is_ready(NODE, network.now_ms)


def test_the_version_is_the_highest_that_both_sides_support(network: Network) -> None:
    versions = [each for each in NEWEST if each.api_key != METADATA.key]
    network.await_ready(versions=[*versions, ApiVersion(api_key=METADATA.key, min_version=0, max_version=5)])
    network.send()
    assert network.last_sent() == (METADATA, 5)
    network.respond(MetadataResponse(brokers=[], topics=[]))
    assert network.completed[0].version == 5


def test_a_request_body_may_depend_on_the_version(network: Network) -> None:
    network.await_ready()
    made: list[int] = []

    def body(version: int) -> MetadataRequest:
        made.append(version)
        return MetadataRequest(topics=None)

    network.send(RequestBuilder(METADATA, body, version_max=4))
    assert made == [4]


def test_a_request_that_the_node_does_not_support_is_not_sent_and_ends_with_the_error(network: Network) -> None:
    network.await_ready(versions=[each for each in NEWEST if each.api_key != HEARTBEAT.key])
    before = len(network.sent)
    request = network.send(HEARTBEAT_BUILDER)
    assert len(network.sent) == before
    (response,) = network.completed
    assert response.request is request
    assert isinstance(response.version_mismatch, UnsupportedVersionException)
    assert not response.was_disconnected
    assert not response.has_response
    assert network.machine.in_flight_request_count() == 0
    assert network.machine.is_ready(NODE, network.now_ms), "the connection is as before"


def test_a_field_that_the_version_cannot_contain_is_the_same_error(network: Network) -> None:
    network.await_ready()
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="i")
    network.send(RequestBuilder(HEARTBEAT, body, version_max=2))
    assert isinstance(network.completed[0].version_mismatch, UnsupportedVersionException)
    assert network.machine.in_flight_request_count() == 0


def test_closing_a_node_drops_its_requests_without_an_end(network: Network) -> None:
    network.await_ready()
    network.send()
    assert network.machine.in_flight_request_count(NODE.id) == 1
    assert network.machine.has_in_flight_requests(NODE.id)
    assert network.machine.has_in_flight_requests()
    network.machine.close(NODE.id, network.now_ms)
    network.run()
    assert network.dropped == [NODE.id]
    assert network.machine.in_flight_request_count(NODE.id) == 0
    assert not network.machine.has_in_flight_requests(NODE.id)
    assert not network.machine.has_in_flight_requests()
    assert not network.machine.is_ready(NODE, network.now_ms)
    assert network.completed == []


def test_correlation_ids_are_unique_and_below_those_of_sasl(network: Network) -> None:
    ids = {network.machine.next_correlation_id() for _ in range(100)}
    assert len(ids) == 100
    assert not any(map(is_reserved, ids))
    network.machine._correlation_ids = itertools.count(2**31 - 10)
    assert [network.machine.next_correlation_id() for _ in range(4)] == [2**31 - 10, 2**31 - 9, 0, 1]


def test_a_response_to_no_request_ends_the_connection(network: Network) -> None:
    network.await_ready()
    network.send()
    frame = encode_response(METADATA, 12, 99, MetadataResponse(brokers=[], topics=[]))
    network.event(FrameReceived(NODE.id, memoryview(frame[4:])))
    assert network.dropped == [NODE.id]
    assert network.logged[-1] == "ERROR response-invalid"
    assert network.completed[0].was_disconnected


@pytest.mark.parametrize("frame", [b"", b"abc", bytes(4), bytes(100)])
def test_bytes_that_nobody_asked_for_end_the_connection(network: Network, frame: bytes) -> None:
    network.await_ready()
    network.event(FrameReceived(NODE.id, memoryview(frame)))
    assert network.machine.connection_failed(NODE)
    assert network.logged[-1] == "ERROR response-invalid"


def test_a_response_that_cannot_be_read_ends_the_connection_and_its_requests(network: Network) -> None:
    network.await_ready()
    request = network.send()
    network.event(FrameReceived(NODE.id, memoryview(request.correlation_id.to_bytes(4, "big") + b"\xff" * 9)))
    assert network.dropped == [NODE.id]
    assert [each.was_disconnected for each in network.completed] == [True]
    assert network.machine.connection_failed(NODE)


def test_events_of_a_dropped_connection_are_ignored(network: Network) -> None:
    network.await_ready()
    network.send()
    network.machine.disconnect(NODE.id, network.now_ms)
    network.run()
    logged = list(network.logged)
    network.event(FrameReceived(NODE.id, memoryview(bytes(4))))
    network.event(NodeDisconnected(NODE.id, DisconnectReason.CLOSED))
    network.event(RequestWritten(NODE.id))
    assert network.logged == logged
    assert len(network.completed) == 1


# --- metadata -------------------------------------------------------------------------------------------------------


def test_a_metadata_request_of_the_updater_that_has_no_version_fails_in_the_updater() -> None:
    network = Network(discover_api_versions=False)
    network.connect()
    body = MetadataRequest(topics=[], include_topic_authorized_operations=True)
    builder = RequestBuilder(METADATA, body, version_max=3)
    network.machine.send_internal_metadata_request(builder, NODE.id, network.now_ms)
    network.run()
    (failure,) = network.updater.failures
    assert isinstance(failure, UnsupportedVersionException)
    assert network.completed == []


def test_a_due_update_goes_before_all_other_requests(network: Network) -> None:
    network.await_ready()
    network.updater.is_requested = True
    assert not network.machine.is_ready(NODE, network.now_ms)
    assert network.poll() == REQUEST_MS
    assert network.last_sent() == (METADATA, METADATA.client_highest)
    assert network.machine.is_ready(NODE, network.now_ms), "it is in progress, so others may follow"
    network.respond(MetadataResponse(brokers=[], topics=[]))
    assert [version for version, _ in network.updater.updates] == [METADATA.client_highest]
    assert network.completed == []


def test_an_update_connects_to_one_node_at_a_time() -> None:
    network = Network(NODES)
    network.updater.is_requested = True
    assert network.poll() == BACKOFF_MS
    assert network.poll() == BACKOFF_MS
    assert len(network.opened) == 1
    node = next(node for node in NODES if network.machine.connection_delay_ms(node, network.now_ms) > 0)
    network.event(NodeConnected(node.id))
    assert network.poll() == FOREVER_MS, "its versions are being requested"
    assert len(network.opened) == 1
    network.lose(node, DisconnectReason.NOT_CONNECTED)
    assert network.updater.disconnected == [(node.id, None)]
    network.poll()
    assert len(network.opened) == 2, "the next attempt takes another node"


def test_an_update_that_finds_no_node_waits_for_the_backoff(network: Network) -> None:
    network.ready()
    network.lose(reason=DisconnectReason.NOT_CONNECTED)
    network.updater.is_requested = True
    assert network.poll() == BACKOFF_MS
    assert len(network.opened) == 1


def test_a_lost_connection_fails_the_metadata_request_in_the_updater_only(network: Network) -> None:
    network.await_ready()
    network.updater.is_requested = True
    network.poll()
    network.lose()
    assert network.updater.failures == [None]
    assert network.updater.disconnected == [(NODE.id, None)]
    assert network.completed == []


def test_a_metadata_request_of_the_caller_ends_at_the_caller_when_the_node_is_lost(network: Network) -> None:
    network.await_ready()
    network.send()
    assert network.machine.in_flight_request_count(NODE.id) == 1
    network.lose()
    assert [each.was_disconnected for each in network.completed] == [True]
    assert network.updater.failures == []


def test_a_failed_login_at_one_node_does_not_end_a_metadata_request_at_another() -> None:
    network = Network(NODES[:2], discover_api_versions=False)
    network.connect(NODES[0])
    network.updater.is_requested = True
    network.poll()
    assert network.machine.has_in_flight_requests(NODES[0].id)
    assert not network.ready(NODES[1])
    error = AuthenticationException("bad password")
    network.lose(NODES[1], DisconnectReason.AUTHENTICATION_FAILED, error)
    assert network.machine.authentication_error(NODES[1]) is error
    assert network.updater.disconnected == [(NODES[1].id, error)]
    assert network.logged[-1] == "ERROR node-authentication-failed"
    network.respond(MetadataResponse(brokers=[MetadataBroker(node_id=0, host="h", port=1)], topics=[]), NODES[0])
    assert len(network.updater.updates) == 1


# --- API versions ---------------------------------------------------------------------------------------------------


def test_a_rejected_api_versions_request_ends_the_connection(network: Network) -> None:
    network.connect()
    assert network.machine.has_in_flight_requests(NODE.id)
    network.respond(ApiVersionsResponse(error_code=42, api_keys=[]))
    assert not network.machine.has_in_flight_requests(NODE.id)
    assert not network.machine.is_ready(NODE, network.now_ms)
    assert network.machine.connection_failed(NODE)
    assert network.dropped == [NODE.id]
    assert network.logged[-1] == "WARNING api-versions-rejected"


def test_a_connection_is_ready_when_its_versions_are_known(network: Network) -> None:
    network.connect()
    assert network.last_sent() == (API_VERSIONS, 3)
    assert network.machine.has_in_flight_requests(NODE.id)
    assert not network.machine.is_ready(NODE, network.now_ms)
    network.respond(ApiVersionsResponse(api_keys=list(NEWEST)))
    assert not network.machine.has_in_flight_requests(NODE.id)
    assert network.machine.is_ready(NODE, network.now_ms)
    assert network.completed == []


def test_the_version_that_the_broker_offers_is_used(network: Network) -> None:
    network.connect()
    offered = ApiVersion(api_key=API_VERSIONS.key, min_version=0, max_version=2)
    network.respond(ApiVersionsResponse(error_code=35, api_keys=[offered]), version=0)
    assert network.last_sent() == (API_VERSIONS, 2)
    assert network.machine.has_in_flight_requests(NODE.id)
    network.respond(ApiVersionsResponse(api_keys=list(NEWEST)))
    assert not network.machine.has_in_flight_requests(NODE.id)
    assert network.machine.is_ready(NODE, network.now_ms)


def test_version_0_is_used_when_the_broker_offers_none(network: Network) -> None:
    network.connect()
    network.respond(ApiVersionsResponse(error_code=35, api_keys=[]), version=0)
    assert network.last_sent() == (API_VERSIONS, 0)
    network.respond(ApiVersionsResponse(api_keys=list(NEWEST)))
    assert network.machine.is_ready(NODE, network.now_ms)


def test_a_connection_that_the_broker_closes_on_api_versions_is_not_reported(network: Network) -> None:
    network.connect()
    network.lose()
    assert not network.machine.has_in_flight_requests(NODE.id)
    assert network.completed == []


def test_a_connection_that_the_client_closes_on_api_versions_is_not_reported(network: Network) -> None:
    network.connect()
    network.machine.disconnect(NODE.id, network.now_ms)
    network.run()
    assert not network.machine.has_in_flight_requests(NODE.id)
    assert network.completed == []


def test_a_broker_of_0_9_ignores_api_versions_and_answers_the_probe(network: Network) -> None:
    network.connect()
    network.move(NO_RESPONSE_MS - 1)
    assert network.last_sent()[0] is API_VERSIONS
    network.move(1)
    assert network.last_sent() == (LIST_OFFSETS, 0)
    network.answered.add(network.sent[0][1].header.correlation_id)  # it never is
    network.respond(ListOffsetsResponse(topics=[]))
    assert network.machine.supported_versions(NODE) is ASSUMED_FOR_0_9
    assert network.machine.is_ready(NODE, network.now_ms)
    assert not network.machine.has_in_flight_requests()
    assert network.deny_list.addresses == {(NODE.host, NODE.port)}

    network.lose()
    network.clock.move(2 * BACKOFF_MS)
    network.connect()
    assert network.machine.supported_versions(NODE) is ASSUMED_FOR_0_9, "it is not asked again"
    check_request_and_response(network)


def test_a_slow_broker_is_not_taken_for_one_of_0_9(network: Network) -> None:
    network.connect()
    network.move(NO_RESPONSE_MS)
    network.respond(ApiVersionsResponse(api_keys=list(NEWEST)))
    assert not network.machine.is_ready(NODE, network.now_ms), "the probe may end the connection"
    network.respond(ListOffsetsResponse(topics=[]))
    versions = network.machine.supported_versions(NODE)
    assert versions is not None
    assert not versions.is_assumed
    assert network.deny_list.addresses == set()


def test_a_slow_broker_of_4_0_closes_on_the_probe_and_is_not_asked_again(network: Network) -> None:
    network.connect()
    network.move(NO_RESPONSE_MS)
    network.respond(ApiVersionsResponse(api_keys=list(NEWEST)))
    network.lose()
    network.clock.move(2 * BACKOFF_MS)
    sent = len(network.sent)
    network.connect()
    assert len(network.sent) == sent
    versions = network.machine.supported_versions(NODE)
    assert versions is not None
    assert not versions.is_assumed


def test_a_broker_of_0_8_closes_on_api_versions_and_answers_list_offsets(network: Network) -> None:
    asked = []
    for _ in range(2):
        network.connect()
        asked.append(network.last_sent())
        network.lose()
        network.clock.move(BACKOFF_MAX_MS)
    network.connect()
    asked.append(network.last_sent())
    assert asked == [(API_VERSIONS, 3), (API_VERSIONS, 0), (LIST_OFFSETS, 0)]
    network.respond(ListOffsetsResponse(topics=[]))
    assert network.machine.supported_versions(NODE) is ASSUMED_BEFORE_0_10
    check_request_and_response(network)


def test_a_port_that_closes_on_every_request_is_reported_and_asked_from_the_beginning(network: Network) -> None:
    for _ in range(3):
        network.connect()
        network.lose()
        network.clock.move(BACKOFF_MAX_MS)
    assert "WARNING every-request-closes-connection" in network.logged
    network.connect()
    assert network.last_sent() == (API_VERSIONS, 3)


def test_an_answer_that_cannot_be_read_says_nothing_about_the_age_of_the_broker(network: Network) -> None:
    for _ in range(2):
        network.connect()
        assert network.last_sent() == (API_VERSIONS, 3)
        network.event(FrameReceived(NODE.id, memoryview(b"HTTP/1.1")))
        network.clock.move(BACKOFF_MAX_MS)


def test_a_broker_that_answers_nothing_is_disconnected_after_the_request_timeout(network: Network) -> None:
    network.connect()
    network.move(REQUEST_MS)
    assert [request.api for _, request in network.sent] == [API_VERSIONS, LIST_OFFSETS]
    assert not network.machine.connection_failed(NODE)
    network.move(1)
    assert network.machine.connection_failed(NODE)
    assert network.completed == []


def test_a_broker_on_the_deny_list_is_not_asked(network: Network) -> None:
    network.deny_list.add(NODE.host, NODE.port)
    network.connect()
    assert network.sent == []
    assert network.machine.supported_versions(NODE) is ASSUMED_FOR_0_9
    assert network.machine.is_ready(NODE, network.now_ms)


@pytest.mark.parametrize("release", [name for name, each in RELEASES.items() if each.has_api_versions])
def test_the_versions_of_each_release_are_used(release: str) -> None:
    network = Network()
    ranges = RELEASES[release].ranges
    keys = [ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in ranges.items()]
    network.connect()
    network.respond(ApiVersionsResponse(api_keys=keys))
    network.send()
    assert network.last_sent() == (METADATA, min(ranges[METADATA.key].highest, METADATA.client_highest))


# --- time-outs ------------------------------------------------------------------------------------------------------


def check_request_timeout(network: Network, timeout_ms: int | None, expected_ms: int) -> None:
    network.await_ready()
    request = network.send(timeout_ms=timeout_ms)
    assert request.request_timeout_ms == expected_ms
    network.move(expected_ms)
    assert network.completed == []
    network.move(1)
    (response,) = network.completed
    assert response.destination == NODE.id
    assert response.was_disconnected
    assert response.timed_out
    assert network.dropped == [NODE.id]
    assert network.updater.disconnected == [(NODE.id, None)]


def test_a_request_has_a_timeout_of_its_own(network: Network) -> None:
    check_request_timeout(network, REQUEST_MS + 5000, REQUEST_MS + 5000)


def test_a_request_has_the_default_timeout_otherwise(network: Network) -> None:
    check_request_timeout(network, None, REQUEST_MS)


def test_a_late_request_ends_all_requests_of_its_connection(network: Network) -> None:
    network.await_ready()
    network.send(timeout_ms=100)
    network.send(HEARTBEAT_BUILDER)
    network.move(101)
    assert [(each.was_disconnected, each.timed_out) for each in network.completed] == [(True, True)] * 2


def test_attempts_to_connect_end_when_their_time_is_over() -> None:
    network = Network(NODES[:2])
    for node in NODES[:2]:
        network.ready(node)
    network.move(SETUP_MS)
    assert not any(network.machine.connection_failed(node) for node in NODES[:2])
    network.move(1)
    assert all(network.machine.connection_failed(node) for node in NODES[:2])
    assert network.dropped == [0, 1]


def test_the_time_to_connect_includes_tls_and_the_login(network: Network) -> None:
    """The machine hears ``NodeConnected`` after both, so a handshake that hangs is late like a TCP connect."""
    network.ready()
    network.run()
    assert not network.machine.is_ready(NODE, network.now_ms)
    network.move(SETUP_MS + 1)
    assert network.machine.connection_failed(NODE)


def test_an_idle_connection_is_closed_and_one_in_use_is_not() -> None:
    network = Network(NODES[:2])
    for node in NODES[:2]:
        network.await_ready(node)
    network.move(IDLE_MS // 2)
    network.send(node=NODES[1], timeout_ms=2 * IDLE_MS)
    network.move(IDLE_MS // 2 - 1)
    assert network.dropped == []
    network.move(1)
    assert network.dropped == [0]
    network.move(IDLE_MS)
    assert network.dropped == [0], "a request is in flight on the other one"
    network.respond(MetadataResponse(brokers=[], topics=[]), NODES[1])
    network.move(IDLE_MS - 1)
    assert network.dropped == [0]
    network.move(1)
    assert network.dropped == [0, 1]
    assert network.logged[-1] == "DEBUG idle-connection-closed"


def test_a_negative_limit_keeps_idle_connections() -> None:
    network = Network(connections_max_idle_ms=-1)
    network.await_ready()
    assert network.machine.time_to_next_deadline_ms(network.now_ms) == FOREVER_MS
    network.move(10 * IDLE_MS)
    assert network.dropped == []


# --- throttling -----------------------------------------------------------------------------------------------------


def test_a_throttled_connection_is_muted_for_the_time_of_the_response(network: Network) -> None:
    network.await_ready()
    network.send(produce_builder())
    network.respond(throttled(100))
    assert not network.ready()
    assert network.machine.throttle_delay_ms(NODE, network.now_ms) == 100
    assert network.machine.poll_delay_ms(NODE, network.now_ms) == 100
    network.clock.move(50)
    assert not network.ready()
    assert network.machine.throttle_delay_ms(NODE, network.now_ms) == 50
    network.clock.move(50)
    assert network.ready()
    assert network.machine.throttle_delay_ms(NODE, network.now_ms) == 0


def test_a_broker_that_throttles_itself_is_not_muted_as_well(network: Network) -> None:
    versions = [each for each in NEWEST if each.api_key != PRODUCE.key]
    network.await_ready(versions=[*versions, ApiVersion(api_key=PRODUCE.key, min_version=0, max_version=5)])
    network.send(produce_builder())
    network.respond(throttled(100))
    assert network.ready()
    assert network.machine.throttle_delay_ms(NODE, network.now_ms) == 0


def test_a_throttled_node_is_not_the_least_loaded_one(network: Network) -> None:
    network.await_ready()
    network.send(produce_builder())
    network.respond(throttled(100))
    assert network.machine.least_loaded_node(network.now_ms) is None


def test_from_which_version_on_a_client_throttles_itself() -> None:
    for key, first in CLIENT_THROTTLES_FROM.items():
        body = HeartbeatResponse(throttle_time_ms=9)
        assert throttle_time_ms(APIS[key], first, body) == 9
        assert throttle_time_ms(APIS[key], first - 1, body) == 0
        assert first <= APIS[key].highest
    assert CLIENT_THROTTLES_FROM[FETCH.key] == 8


# --- the choice of a node, and delays -------------------------------------------------------------------------------


def test_the_least_loaded_node_is_none_while_the_only_node_is_in_its_backoff(network: Network) -> None:
    network.ready()
    assert not network.machine.is_ready(NODE, network.now_ms)
    assert network.machine.least_loaded_node(network.now_ms) == NODE, "it is being connected"
    network.event(NodeConnected(NODE.id))
    assert network.machine.least_loaded_node(network.now_ms) == NODE, "its versions are being requested"
    network.respond(ApiVersionsResponse(api_keys=list(NEWEST)))
    assert network.machine.least_loaded_node(network.now_ms) == NODE
    network.clock.move(BACKOFF_MS)
    network.lose()
    assert not network.ready()
    assert network.machine.least_loaded_node(network.now_ms) is None


def test_disconnected_nodes_are_chosen_by_the_time_of_their_last_attempt() -> None:
    network = Network(NODES, reconnect_backoff_max_ms=0)
    for _ in range(10):
        chosen = set()
        for _ in NODES:
            node = network.machine.least_loaded_node(network.now_ms)
            assert node is not None
            chosen.add(node)
            network.ready(node)
            network.machine.disconnect(node.id, network.now_ms)
            network.run()
            network.clock.move(BACKOFF_MS + 1)
        assert chosen == set(NODES)


def test_the_ready_node_with_the_fewest_requests_is_chosen() -> None:
    start = 0.0
    network = Network(NODES, uniform=lambda: start)
    for node in NODES[:2]:
        network.await_ready(node)
    assert network.machine.least_loaded_node(network.now_ms) == NODES[0]
    start = 0.4
    assert network.machine.least_loaded_node(network.now_ms) == NODES[1], "a random start"
    network.send(node=NODES[1])
    assert network.machine.least_loaded_node(network.now_ms) == NODES[0], "it has no request"
    network.send(node=NODES[0])
    network.send(node=NODES[0])
    assert network.machine.least_loaded_node(network.now_ms) == NODES[1]


def test_without_nodes_there_is_no_least_loaded_one() -> None:
    assert Network(()).machine.least_loaded_node(0) is None


def test_an_unknown_node_has_no_delay_without_exponential_backoff() -> None:
    network = Network(reconnect_backoff_max_ms=0)
    assert network.machine.connection_delay_ms(NODE, network.now_ms) == 0


def test_a_connected_node_has_no_limit_of_delay_without_exponential_backoff() -> None:
    network = Network(reconnect_backoff_max_ms=0)
    network.await_ready()
    assert network.machine.connection_delay_ms(NODE, network.now_ms) == FOREVER_MS


def test_without_exponential_backoff_each_delay_is_the_same() -> None:
    network = Network(reconnect_backoff_max_ms=0, uniform=lambda: 0.9)
    network.await_ready()
    network.lose()
    assert network.machine.connection_delay_ms(NODE, network.now_ms) == BACKOFF_MS
    network.clock.move(BACKOFF_MS)
    assert network.machine.connection_delay_ms(NODE, network.now_ms) == 0
    network.ready()
    network.lose(reason=DisconnectReason.NOT_CONNECTED)
    assert network.machine.connection_delay_ms(NODE, network.now_ms) == BACKOFF_MS


def test_an_unknown_node_has_no_delay(network: Network) -> None:
    assert network.machine.connection_delay_ms(NODE, network.now_ms) == 0


def test_a_connected_node_has_no_limit_of_delay(network: Network) -> None:
    network.await_ready()
    assert network.machine.connection_delay_ms(NODE, network.now_ms) == FOREVER_MS


def test_the_delay_of_a_disconnected_node_doubles(network: Network) -> None:
    network.await_ready()
    network.lose()
    assert network.machine.connection_delay_ms(NODE, network.now_ms) == BACKOFF_MS
    network.clock.move(BACKOFF_MS)
    assert network.machine.connection_delay_ms(NODE, network.now_ms) == 0
    network.ready()
    network.lose(reason=DisconnectReason.NOT_CONNECTED)
    assert network.machine.connection_delay_ms(NODE, network.now_ms) == 2 * BACKOFF_MS
    assert network.logged[-1] == "WARNING connection-failed"


# --- disconnects ----------------------------------------------------------------------------------------------------


def test_a_disconnect_ends_the_requests_in_flight_in_their_order() -> None:
    network = Network(discover_api_versions=False)
    network.connect()
    requests = [network.send(), network.send(HEARTBEAT_BUILDER)]
    assert requests[0].correlation_id != requests[1].correlation_id
    assert network.machine.in_flight_request_count() == network.machine.in_flight_request_count(NODE.id) == 2
    network.machine.disconnect(NODE.id, network.now_ms)
    network.run()
    assert [each.request for each in network.completed] == requests
    assert all(each.was_disconnected and not each.timed_out for each in network.completed)
    assert network.machine.in_flight_request_count() == network.machine.in_flight_request_count(NODE.id) == 0


def test_a_disconnect_of_a_disconnected_node_does_not_renew_its_backoff(network: Network) -> None:
    network.await_ready()
    assert not network.machine.connection_failed(NODE)
    network.machine.disconnect(NODE.id, network.now_ms)
    network.run()
    assert network.dropped == [NODE.id]
    assert not network.machine.is_ready(NODE, network.now_ms)
    assert network.machine.connection_failed(NODE)
    assert not network.machine.can_connect(NODE, network.now_ms)
    network.clock.move(BACKOFF_MAX_MS)
    assert network.machine.can_connect(NODE, network.now_ms)
    network.machine.disconnect(NODE.id, network.now_ms)
    network.run()
    assert network.machine.can_connect(NODE, network.now_ms)


def test_a_node_that_is_being_connected_can_be_closed_and_connected_again() -> None:
    network = Network(NODES[:2])
    network.ready(NODES[0])
    network.machine.close(NODES[0].id, network.now_ms)
    network.run()
    network.move(SETUP_MS * 2)
    assert not any(network.machine.is_ready(node, network.now_ms) for node in NODES[:2])
    network.await_ready(NODES[1])
    network.await_ready(NODES[0])


def test_a_connection_that_ends_in_the_handshake_says_so(network: Network) -> None:
    network.ready()
    network.lose(reason=DisconnectReason.CLOSED_IN_HANDSHAKE)
    assert network.logged[-1] == "WARNING connection-closed-in-handshake"
    network.clock.move(BACKOFF_MAX_MS)
    network.connect()
    assert network.last_sent() == (API_VERSIONS, 3), "it says nothing about the age of the broker"


# --- addresses ------------------------------------------------------------------------------------------------------

OLD, NEW = ("10.1.0.1", "10.1.0.2", "10.1.0.3"), ("10.2.0.1", "10.2.0.2", "10.2.0.3")


def test_a_name_without_an_address_is_a_failed_connection() -> None:
    node = Node(1234, "badhost", 1234)
    network = Network((node,), addresses={"badhost": ()})
    assert not network.ready(node)
    assert network.opened == []
    assert network.machine.connection_failed(node)
    assert network.updater.disconnected == [(1234, None)]
    assert network.logged == ["WARNING host-unresolved"]


def test_a_lost_connection_uses_the_new_addresses_of_its_host() -> None:
    network = Network(addresses={NODE.host: OLD}, discover_api_versions=False)
    network.connect()
    network.addresses[NODE.host] = NEW
    network.lose()
    network.clock.move(BACKOFF_MAX_MS)
    network.connect()
    assert network.opened == [OLD[0], NEW[0]]
    assert network.resolved == [NODE.host] * 2


def test_a_failed_attempt_continues_with_the_next_address() -> None:
    network = Network(addresses={NODE.host: OLD}, discover_api_versions=False)
    network.ready()
    network.lose(reason=DisconnectReason.NOT_CONNECTED)
    assert not network.machine.is_ready(NODE, network.now_ms)
    network.clock.move(BACKOFF_MAX_MS)
    network.connect()
    assert network.machine.is_ready(NODE, network.now_ms)
    assert network.opened == [OLD[0], OLD[1]]
    assert network.resolved == [NODE.host]


def test_a_failed_attempt_after_a_lost_connection_continues_with_the_next_new_address() -> None:
    network = Network(addresses={NODE.host: OLD}, discover_api_versions=False)
    network.connect()
    network.addresses[NODE.host] = NEW
    network.lose()
    network.clock.move(BACKOFF_MAX_MS)
    network.ready()
    network.lose(reason=DisconnectReason.NOT_CONNECTED)
    network.clock.move(BACKOFF_MAX_MS)
    network.connect()
    assert network.opened == [OLD[0], NEW[0], NEW[1]]
    assert network.resolved == [NODE.host] * 2


def test_a_node_that_moves_to_another_host_is_connected_there(network: Network) -> None:
    network.await_ready()
    network.lose()
    moved = Node(NODE.id, "elsewhere", 9093)
    network.clock.move(BACKOFF_MAX_MS)
    network.ready(moved)
    assert network.resolved == ["one", "elsewhere"]
    assert "INFO node-host-changed" in network.logged


# --- any order ------------------------------------------------------------------------------------------------------

STEPS = ("ready", "connected", "refused", "closed", "login", "answer", "old", "send", "disconnect", "time", "update")
LIKELY = ("establish", "establish", "send", "send", *STEPS)
"""Without a preference hardly any connection becomes ready."""


def step(network: Network, what: str, node: Node, ms: int, requests: list[ClientRequest]) -> None:
    machine, now_ms = network.machine, network.now_ms
    is_connecting = machine._states.is_connecting(node.id)
    match what:
        case "establish":
            for each in ("ready", "connected", "answer"):
                step(network, each, node, 0, requests)
        case "ready":
            network.ready(node)
        case "connected" if is_connecting:
            network.event(NodeConnected(node.id))
        case "refused" if is_connecting:
            network.lose(node, DisconnectReason.NOT_CONNECTED)
        case "closed" if not is_connecting:
            network.lose(node)
        case "login" if is_connecting:
            network.lose(node, DisconnectReason.AUTHENTICATION_FAILED, AuthenticationException("no"))
        case "answer" | "old" if machine.has_in_flight_requests(node.id):
            answer_oldest(network, node, skips=what == "old", throttle_ms=ms % 3)
        case "send" if machine.can_send_request(node.id, now_ms):
            requests.append(network.send(HEARTBEAT_BUILDER, node, timeout_ms=1 + ms))
        case "disconnect":
            machine.disconnect(node.id, now_ms)
            network.run()
        case "time":
            network.move(ms)
        case "update":
            network.updater.is_requested = True
            network.poll()
        case _:
            pass


def answer_oldest(network: Network, node: Node, *, skips: bool, throttle_ms: int) -> None:
    """Answer the oldest request in flight, or, as 0.9 does, the one after ApiVersions."""
    waiting = [each.request for each in network.machine._in_flight.of(node.id)]
    if skips and len(waiting) > 1 and waiting[0].builder.api is API_VERSIONS:
        del waiting[0]
    api = waiting[0].builder.api
    bodies = {
        API_VERSIONS: ApiVersionsResponse(api_keys=list(NEWEST)),
        LIST_OFFSETS: ListOffsetsResponse(topics=[]),
        METADATA: MetadataResponse(brokers=[], topics=[]),
        HEARTBEAT: HeartbeatResponse(error_code=0, throttle_time_ms=throttle_ms),
    }
    sent = next(each for _, each in network.sent if each.header.correlation_id == waiting[0].correlation_id)
    frame = encode_response(api, sent.header.api_version, sent.header.correlation_id, bodies[api])
    network.answered.add(sent.header.correlation_id)
    network.event(FrameReceived(node.id, memoryview(frame[4:])))


@given(st.lists(st.tuples(st.sampled_from(LIKELY), st.integers(0, 2), st.integers(0, 40_000)), max_size=60))
@settings(deadline=None, max_examples=200)
def test_in_any_order_of_events_each_request_ends_once_and_the_invariants_hold(
    steps: list[tuple[str, int, int]],
) -> None:
    network = Network(NODES)
    requests: list[ClientRequest] = []
    for what, number, ms in steps:
        step(network, what, NODES[number], ms, requests)
    for node in NODES:
        network.machine.disconnect(node.id, network.now_ms)
        network.run()
    assert sorted(response.correlation_id for response in network.completed) == [
        request.correlation_id for request in requests
    ]
    assert network.machine.in_flight_request_count() == 0
    assert not network.updater.is_in_progress
