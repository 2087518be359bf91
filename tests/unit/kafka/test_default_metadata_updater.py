"""``DefaultMetadataUpdater``: one request at a time, and what follows each way in which it ends."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.metadata_responses import EMPTY, metadata_response, metadata_update, partition_row, topic_row
from zkconsumer.errors import SaslAuthenticationException, UnsupportedVersionException
from zkconsumer.kafka.error_codes import (
    LEADER_NOT_AVAILABLE,
    LISTENER_NOT_FOUND,
    NONE,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_TOPIC_OR_PARTITION,
)
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.kafka.metadata.default_metadata_updater import DefaultMetadataUpdater
from zkconsumer.kafka.metadata.metadata import Metadata
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import RequestBuilder
from zkconsumer.kafka.net.metadata_updater import MetadataUpdater
from zkconsumer.kafka.net.network_machine import NetworkMachine, NetworkSettings
from zkconsumer.kafka.net.network_messages import (
    FrameReceived,
    HostResolved,
    NetworkEvent,
    NodeConnected,
    OpenConnection,
    RequestWritten,
    ResolveHost,
    SendFrame,
)
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.wire.request_frames import ReceivedRequest, decode_request, encode_response
from zkconsumer.wire.schemas import APIS, METADATA
from zkconsumer.wire.schemas.api_versions import ApiVersion, ApiVersionsResponse
from zkconsumer.wire.schemas.metadata import MetadataResponse

BACKOFF_MS, EXPIRE_MS, REQUEST_TIMEOUT_MS, RECONNECT_BACKOFF_MS = 100, 1_000, 30_000, 50
VERSION = 12


class Sender:
    """The network machine: sends if a node is connected."""

    def __init__(self) -> None:
        self.is_connected = True
        self.sent: list[RequestBuilder] = []

    def send_metadata_request(self, new_request: Callable[[], RequestBuilder], now_ms: int) -> int:
        if not self.is_connected:
            return RECONNECT_BACKOFF_MS
        self.sent.append(new_request())
        return REQUEST_TIMEOUT_MS


@pytest.fixture
def metadata() -> Metadata:
    found = Metadata(BACKOFF_MS, EXPIRE_MS)
    found.bootstrap([("localhost", 9092)])
    return found


@pytest.fixture
def updater(metadata: Metadata) -> MetadataUpdater:
    return DefaultMetadataUpdater(metadata, REQUEST_TIMEOUT_MS)


@pytest.fixture
def sender() -> Sender:
    return Sender()


def test_one_request_is_in_progress_at_most(updater: MetadataUpdater, sender: Sender) -> None:
    assert updater.is_update_due(0)
    assert updater.maybe_update(0, sender) == REQUEST_TIMEOUT_MS
    assert not updater.is_update_due(0)
    assert updater.maybe_update(0, sender) == REQUEST_TIMEOUT_MS
    (request,) = sender.sent
    assert (request.api, request.version_min, request.build(1).topics) == (METADATA, 0, None)


def test_without_a_connected_node_no_request_is_in_progress(updater: MetadataUpdater, sender: Sender) -> None:
    sender.is_connected = False
    assert updater.maybe_update(0, sender) == RECONNECT_BACKOFF_MS
    assert updater.is_update_due(0)


def test_a_response_updates_the_metadata_and_the_next_update_is_due_when_it_expires(
    metadata: Metadata, updater: MetadataUpdater, sender: Sender
) -> None:
    assert updater.fetch_nodes() == (Node(-1, "localhost", 9092),)
    updater.maybe_update(0, sender)
    updater.handle_successful_response(VERSION, 1, 10, metadata_update({"a": 1}, nodes=2))
    assert metadata.fetch().topics == {"a"}
    assert [node.id for node in updater.fetch_nodes()] == [0, 1]
    assert not updater.is_update_due(10)
    assert updater.maybe_update(10, sender) == EXPIRE_MS
    assert updater.is_update_due(10 + EXPIRE_MS)


def test_the_version_of_the_response_decides_whether_its_epochs_count(
    metadata: Metadata, updater: MetadataUpdater, sender: Sender
) -> None:
    updater.maybe_update(0, sender)
    updater.handle_successful_response(8, 1, 0, metadata_update({"a": 1}, epoch=5))
    assert metadata.last_seen_leader_epoch(next(iter(metadata.fetch().partitions))) is None


def test_topics_that_were_added_during_a_request_are_requested_by_the_next(
    metadata: Metadata, updater: MetadataUpdater, sender: Sender
) -> None:
    updater.maybe_update(0, sender)
    metadata.request_update_for_new_topics()
    updater.handle_successful_response(VERSION, 1, 10, metadata_update())
    assert metadata.update_requested
    assert updater.maybe_update(10, sender) == BACKOFF_MS


def test_a_response_without_brokers_is_a_failed_update(
    metadata: Metadata, updater: MetadataUpdater, sender: Sender
) -> None:
    """A broker that starts does not have the metadata yet."""
    updater.maybe_update(0, sender)
    version = metadata.update_version
    updater.handle_successful_response(VERSION, 1, 10, EMPTY)
    assert metadata.update_version == version
    assert metadata.fetch().is_bootstrap_configured
    assert updater.maybe_update(10, sender) == BACKOFF_MS
    assert updater.is_update_due(10 + BACKOFF_MS)


def test_a_request_without_a_response_is_repeated_after_the_backoff(updater: MetadataUpdater, sender: Sender) -> None:
    updater.maybe_update(0, sender)
    updater.handle_failed_request(10, None)
    assert updater.maybe_update(10, sender) == BACKOFF_MS
    assert updater.maybe_update(10 + BACKOFF_MS, sender) == REQUEST_TIMEOUT_MS
    assert len(sender.sent) == 2


def test_an_error_that_a_repetition_does_not_change_is_raised_in_the_thread_of_the_program(
    metadata: Metadata, updater: MetadataUpdater, sender: Sender
) -> None:
    updater.maybe_update(0, sender)
    updater.handle_failed_request(10, UnsupportedVersionException("too old"))
    with pytest.raises(UnsupportedVersionException):
        metadata.maybe_throw_any_exception()
    metadata.maybe_throw_any_exception()


def test_a_disconnect_of_any_node_requests_an_update(
    metadata: Metadata, updater: MetadataUpdater, sender: Sender
) -> None:
    updater.maybe_update(0, sender)
    updater.handle_successful_response(VERSION, 1, 10, metadata_update({"a": 1}))
    assert updater.handle_server_disconnect(500, 0, None) == ()
    assert metadata.update_requested
    assert updater.maybe_update(500, sender) == REQUEST_TIMEOUT_MS, "the update was not due: there is no backoff"


def test_a_disconnect_while_an_update_is_due_waits_for_the_backoff(updater: MetadataUpdater, sender: Sender) -> None:
    (line,) = updater.handle_server_disconnect(500, -1, None)
    assert (line.level, str(line)) == ("WARNING", "bootstrap-broker-disconnected node=localhost:9092 (id -1)")
    assert updater.maybe_update(500, sender) == BACKOFF_MS


def test_a_disconnect_of_another_node_leaves_the_request_in_progress(
    metadata: Metadata, updater: MetadataUpdater, sender: Sender
) -> None:
    updater.maybe_update(0, sender)
    updater.handle_server_disconnect(5, -2, None)
    assert updater.maybe_update(5, sender) == REQUEST_TIMEOUT_MS
    updater.handle_successful_response(VERSION, 1, 10, metadata_update({"a": 1}))
    assert metadata.fetch().topics == {"a"}


def test_a_failed_login_is_raised_in_the_thread_of_the_program(metadata: Metadata, updater: MetadataUpdater) -> None:
    updater.handle_server_disconnect(500, -1, SaslAuthenticationException("wrong password"))
    with pytest.raises(SaslAuthenticationException):
        metadata.maybe_throw_any_exception()


def test_topics_with_errors_and_leaders_without_a_listener_are_logged_with_a_limit(
    updater: MetadataUpdater, sender: Sender
) -> None:
    updater.maybe_update(0, sender)
    missing = [topic_row(f"t{number:02}", error_code=UNKNOWN_TOPIC_OR_PARTITION.code) for number in range(12)]
    other = topic_row("x", error_code=LEADER_NOT_AVAILABLE.code)
    rows = [partition_row(number, -1, error_code=LISTENER_NOT_FOUND.code) for number in range(12)]
    good = topic_row("good", *rows, partition_row(12), error_code=NONE.code)
    lines = updater.handle_successful_response(VERSION, 7, 10, metadata_response(good, *missing, other))
    first_ten = ",".join(f"t{number:02}" for number in range(10))
    assert [str(line) for line in lines[:3]] == [
        "leaders-without-listener count=12 partitions=" + ",".join(f"good/{number}" for number in range(10)),
        f"metadata-error correlation_id=7 error=UNKNOWN_TOPIC_OR_PARTITION count=12 topics={first_ten}",
        "metadata-error correlation_id=7 error=LEADER_NOT_AVAILABLE count=1 topics=x",
    ]


def test_one_unauthorized_topic_does_not_hide_the_others(
    metadata: Metadata, updater: MetadataUpdater, sender: Sender
) -> None:
    updater.maybe_update(0, sender)
    response = metadata_update({"good": 1}, errors={"secret": TOPIC_AUTHORIZATION_FAILED})
    updater.handle_successful_response(VERSION, 1, 10, response)
    assert metadata.fetch().topics == {"good"}


def test_a_request_that_must_not_create_topics_needs_a_broker_that_supports_it(sender: Sender) -> None:
    subscription = SubscriptionState(OffsetResetStrategy.EARLIEST)
    subscription.subscribe({"a"})
    metadata = ConsumerMetadata(BACKOFF_MS, EXPIRE_MS, subscription, allow_auto_topic_creation=False)
    DefaultMetadataUpdater(metadata, REQUEST_TIMEOUT_MS).maybe_update(0, sender)
    assert sender.sent[0].version_min == 4
    assert not sender.sent[0].build(4).allow_auto_topic_creation


# --- with the network machine -----------------------------------------------------------------------------------------


class NoDenyList:
    def contains(self, host: str, port: int) -> bool:
        return False

    def add(self, host: str, port: int) -> None:
        raise AssertionError("each broker here answers ApiVersions")


class Network:
    """The machine with this updater; ``answers``: the body of the response to each Metadata request."""

    def __init__(self, updater: MetadataUpdater) -> None:
        settings = NetworkSettings(reconnect_backoff_ms=RECONNECT_BACKOFF_MS, request_timeout_ms=REQUEST_TIMEOUT_MS)
        self.machine = NetworkMachine(settings, updater, uniform=lambda: 0.0, deny_list=NoDenyList())
        self.clock = ManualClock()
        self.answers: list[MetadataResponse | None] = []
        self.asked: list[tuple[int, ReceivedRequest]] = []

    def poll(self) -> int:
        """Let the machine send what is due, and answer it."""
        wait_ms = self.machine.maybe_update_metadata(self.clock.now_ms())
        while commands := self.machine.take_commands():
            for command in commands:
                match command:
                    case ResolveHost(node_id):
                        self._event(HostResolved(node_id, ("10.0.0.1",), ""))
                    case OpenConnection(node_id):
                        self._event(NodeConnected(node_id))
                    case SendFrame(node_id, frame):
                        self._event(RequestWritten(node_id))
                        self._answer(node_id, decode_request(frame[4:]))
        self.machine.check_invariants()
        return wait_ms

    def _answer(self, node_id: int, request: ReceivedRequest) -> None:
        body: object = ApiVersionsResponse(
            api_keys=[ApiVersion(api_key=api.key, min_version=0, max_version=api.highest) for api in APIS.values()]
        )
        if request.api is METADATA:
            self.asked.append((node_id, request))
            body = self.answers.pop(0)
            if body is None:
                return
        frame = encode_response(request.api, request.header.api_version, request.header.correlation_id, body)
        self._event(FrameReceived(node_id, memoryview(frame[4:])))

    def _event(self, event: NetworkEvent) -> None:
        self.machine.on_event(event, self.clock.now_ms())


def poll_until(network: Network, requests: int) -> None:
    for _ in range(10):
        wait_ms = network.poll()
        if len(network.asked) >= requests:
            return
        network.clock.move(min(wait_ms, EXPIRE_MS))
    raise AssertionError(f"{len(network.asked)} Metadata requests were sent, not {requests}")


def test_the_network_machine_connects_to_a_bootstrap_broker_and_learns_the_others(
    metadata: Metadata, updater: MetadataUpdater
) -> None:
    network = Network(updater)
    network.answers = [metadata_update({"a": 2}, nodes=2, epoch=4)]
    poll_until(network, 1)
    ((node_id, request),) = network.asked
    assert (node_id, request.header.api_version) == (-1, METADATA.client_highest)
    assert metadata.fetch().topics == {"a"}
    assert [node.id for node in updater.fetch_nodes()] == [0, 1]
    now_ms = network.clock.now_ms()
    node = updater.fetch_nodes()[0]
    assert not network.machine.ready(node, now_ms), "it connects"
    network.poll()
    assert network.machine.ready(node, network.clock.now_ms())


def test_an_update_without_an_answer_is_sent_again_after_the_request_timeout(
    metadata: Metadata, updater: MetadataUpdater
) -> None:
    network = Network(updater)
    network.answers = [None, metadata_update({"a": 1})]
    poll_until(network, 1)
    assert network.poll() == REQUEST_TIMEOUT_MS
    assert len(network.asked) == 1
    network.clock.move(REQUEST_TIMEOUT_MS + 1)
    network.machine.on_time(network.clock.now_ms())
    assert network.poll() == BACKOFF_MS, "the connection ended, and with it the request"
    poll_until(network, 2)
    assert metadata.fetch().topics == {"a"}


def test_the_metadata_is_requested_again_when_it_expires(metadata: Metadata, updater: MetadataUpdater) -> None:
    network = Network(updater)
    network.answers = [metadata_update({"a": 1}), metadata_update({"a": 1, "b": 1})]
    poll_until(network, 1)
    assert network.poll() <= EXPIRE_MS
    assert len(network.asked) == 1
    poll_until(network, 2)
    assert metadata.fetch().topics == {"a", "b"}
