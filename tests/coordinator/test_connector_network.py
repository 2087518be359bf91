"""A member's own connections to its coordinator: every request is answered once, whatever becomes of the connection."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bridge.client.network import Network
from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_faults import CloseConnection, Hold
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.kafka.group.commands import ConnectCoordinator, DisconnectCoordinator, Send
from zkconsumer.kafka.group.events import CoordinatorNode, Disconnected, Failure, RequestFailed, Responded
from zkconsumer.kafka.net.broker_channel import BrokerChannel
from zkconsumer.kafka.net.consumer_network_client import ConsumerNetworkClient
from zkconsumer.kafka.net.metadata_updater import ManualMetadataUpdater
from zkconsumer.kafka.net.network_client import new_network_client
from zkconsumer.kafka.net.network_machine import NetworkSettings
from zkconsumer.testing.sandbox import waiting
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.schemas import FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorRequest
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest
from zkconsumer.wire.schemas.join_group import JoinGroupRequest

WAIT_S = 30
"""Only what does not happen takes so long."""

NOT_COORDINATOR = 16
COORDINATOR = 7


class Answers:
    """What the network reported, in order."""

    def __init__(self) -> None:
        self._said: queue.Queue[tuple[Any, Send | None, int]] = queue.Queue()

    def __call__(self, event: Any, sent: Send | None, sent_at_ms: int) -> None:
        self._said.put((event, sent, sent_at_ms))

    def next(self) -> Any:
        return self.whole()[0]

    def whole(self) -> tuple[Any, Send | None, int]:
        return self._said.get(timeout=WAIT_S)

    @property
    def is_empty(self) -> bool:
        return self._said.empty()


class World:
    """A cluster of one broker, and the network of a member."""

    def __init__(self, release: str = "3.9.1", backoff_ms: int = 1) -> None:
        self.answers = Answers()
        self.failures: list[BaseException] = []
        self._serving = FakeCluster(brokers=[COORDINATOR], release=release).serve()
        self.cluster = self._serving.__enter__()
        self.cluster.create_topic("t", 1)
        nodes = ManualMetadataUpdater()
        settings = NetworkSettings(
            client_id="m", reconnect_backoff_ms=backoff_ms, reconnect_backoff_max_ms=20 * backoff_ms
        )
        client = ConsumerNetworkClient(
            new_network_client(BrokerChannel, nodes, settings, SYSTEM_CLOCK, diagnose=None), nodes, SYSTEM_CLOCK,
            retry_backoff_ms=20, request_timeout_ms=5_000,
        )  # fmt: skip
        self.network = Network(
            "m", client, nodes, lambda: [self.address], clock=SYSTEM_CLOCK, on_answer=self.answers,
            on_thread_error=lambda _, error: self.failures.append(error),
        )  # fmt: skip
        self.address = self.cluster.address(COORDINATOR)
        self.network.start()

    def close(self) -> None:
        self.network.ask_to_stop()
        assert self.network.join(5_000)
        self._serving.__exit__(None, None, None)
        assert self.failures == []

    def connect(self) -> None:
        self.network.execute(ConnectCoordinator(CoordinatorNode(COORDINATOR, self.address)))

    def seen(self) -> list[tuple[str, int]]:
        """API and version of the requests to the coordinator."""
        apis = {JOIN_GROUP.key, HEARTBEAT.key}
        return [(each.api.name, each.version) for each in self.cluster.requests if each.api.key in apis]

    def wait_until_sent(self, count: int) -> None:
        waiting.wait_until(lambda: len(self.seen()) == count, "they were sent", timeout_ms=WAIT_S * 1_000)


@pytest.fixture
def make_world() -> Iterator[Callable[..., World]]:
    made: list[World] = []

    def make(*args: Any, **options: Any) -> World:
        made.append(World(*args, **options))
        return made[-1]

    yield make
    for world in made:
        world.close()


@pytest.fixture
def world(make_world: Callable[..., World]) -> World:
    return make_world()


def heartbeat(request: int, timeout_ms: int = 5_000, version_most: int = 0x7FFF) -> Send:
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    return Send(request, COORDINATOR, HEARTBEAT.key, body, timeout_ms, version_most)


def join(request: int, timeout_ms: int = 5_000) -> Send:
    body = JoinGroupRequest(
        group_id="g", session_timeout_ms=6_000, member_id="", protocol_type="consumer", protocols=[]
    )
    return Send(request, COORDINATOR, JOIN_GROUP.key, body, timeout_ms)


def test_an_answer_comes_with_a_time_before_its_request(world: World) -> None:
    world.connect()
    before_ms = SYSTEM_CLOCK.now_ms()
    world.network.execute(heartbeat(1))
    event, sent, sent_at_ms = world.answers.whole()
    assert isinstance(event, Responded)
    assert (event.request, event.body.error_code, event.version) == (1, NOT_COORDINATOR, 4)
    assert sent is not None
    assert sent.api_key == HEARTBEAT.key
    assert before_ms <= sent_at_ms <= SYSTEM_CLOCK.now_ms()


def test_the_highest_version_of_both_sides_is_used_unless_the_command_limits_it(world: World) -> None:
    world.connect()
    world.network.execute(heartbeat(1))
    world.network.execute(heartbeat(2, version_most=1))
    assert [world.answers.next().request, world.answers.next().request] == [1, 2]
    assert world.seen() == [("Heartbeat", 4), ("Heartbeat", 1)]


def test_a_join_group_without_an_answer_does_not_delay_other_requests(world: World) -> None:
    world.cluster.inject(Hold(), api=JOIN_GROUP)
    world.connect()
    world.network.execute(join(1))
    world.wait_until_sent(1)
    world.network.execute(heartbeat(2))
    assert world.answers.next().request == 2
    world.network.execute(heartbeat(3))
    assert world.answers.next().request == 3
    assert [name for name, _ in world.seen()] == ["JoinGroup", "Heartbeat", "Heartbeat"]
    assert world.answers.is_empty


def send_join_and_heartbeat(world: World) -> None:
    """JoinGroup (1) and Heartbeat (2) are sent, and the broker answers neither."""
    world.cluster.inject(Hold(), api=JOIN_GROUP)
    world.cluster.inject(Hold(), api=HEARTBEAT)
    world.connect()
    world.network.execute(join(1))
    world.network.execute(heartbeat(2))
    world.wait_until_sent(2)


def failures_of(world: World, *requests: int) -> list[RequestFailed]:
    """The failures of these requests, in this order; the loss of the connection may be reported between them."""
    found: dict[int, RequestFailed] = {}
    while len(found) < len(requests):
        event = world.answers.next()
        if event != Disconnected(COORDINATOR):
            found[event.request] = event
    return [found[request] for request in requests]


def test_a_disconnect_ends_the_connection_of_join_group_too(world: World) -> None:
    send_join_and_heartbeat(world)
    world.network.execute(DisconnectCoordinator(COORDINATOR))
    assert failures_of(world, 1, 2) == [
        RequestFailed(1, Failure.DISCONNECTED),
        RequestFailed(2, Failure.DISCONNECTED),
    ]
    assert world.answers.is_empty


def test_a_connection_that_breaks_takes_the_other_one_with_it(world: World) -> None:
    world.cluster.inject(Hold(), api=JOIN_GROUP)
    world.connect()
    world.network.execute(join(1))
    world.wait_until_sent(1)
    world.cluster.inject(CloseConnection(), api=HEARTBEAT)
    world.network.execute(heartbeat(2))
    assert failures_of(world, 1, 2) == [
        RequestFailed(1, Failure.DISCONNECTED),
        RequestFailed(2, Failure.DISCONNECTED),
    ]


def test_a_coordinator_that_ends_is_reported_also_while_nothing_is_in_flight(make_world: Callable[..., World]) -> None:
    # Reported only during the back-off, as in Java: after it the next request connects again.
    world = make_world(backoff_ms=60_000)
    world.connect()
    world.network.execute(heartbeat(1))
    assert world.answers.next().request == 1
    world.cluster.stop_broker(COORDINATOR)
    assert world.answers.next() == Disconnected(COORDINATOR)
    assert world.answers.is_empty


def test_a_request_without_an_answer_in_time_ends_both_connections(world: World) -> None:
    world.cluster.inject(Hold(), api=HEARTBEAT)
    world.cluster.inject(Hold(), api=JOIN_GROUP)
    world.connect()
    world.network.execute(join(1))
    world.wait_until_sent(1)
    world.network.execute(heartbeat(2, timeout_ms=150))
    assert failures_of(world, 1, 2) == [
        RequestFailed(1, Failure.DISCONNECTED),
        RequestFailed(2, Failure.DISCONNECTED),
    ]


def test_a_request_to_a_coordinator_that_was_never_found_fails(world: World) -> None:
    world.network.execute(heartbeat(1))
    assert world.answers.next() == RequestFailed(1, Failure.NO_BROKER)


def test_a_field_that_the_version_cannot_contain_is_named(make_world: Callable[..., World]) -> None:
    world = make_world("1.1.1")
    world.connect()
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="one")
    world.network.execute(Send(1, COORDINATOR, HEARTBEAT.key, body, 5_000))
    failed = world.answers.next()
    assert (failed.request, failed.failure) == (1, Failure.UNSUPPORTED)
    assert "group_instance_id" in str(failed.error)
    world.network.execute(heartbeat(2))
    assert world.answers.next().request == 2


def test_a_coordinator_that_supports_no_members_is_named(make_world: Callable[..., World]) -> None:
    """As when brokers are upgraded one by one, and one of 0.8 keeps the offsets of the group."""
    world = make_world("0.8.2.2")
    for request in range(10):  # it closes the first connections instead of answering ApiVersions
        waiting.pause_ms(30)  # longer than the back-off
        world.connect()
        world.network.execute(join(request))
        [failed] = failures_of(world, request)
        if failed.failure is not Failure.DISCONNECTED:
            break
    assert failed.failure is Failure.UNSUPPORTED
    assert "older than 0.9" in str(failed.error)


def find_coordinator(request: int) -> Send:
    return Send(request, None, FIND_COORDINATOR.key, FindCoordinatorRequest(key="g"), 5_000, 3)


def test_any_broker_is_asked_for_the_coordinator(world: World) -> None:
    world.network.execute(find_coordinator(1))
    assert world.answers.next().body.node_id == COORDINATOR
    world.cluster.stop_broker(COORDINATOR)
    world.network.execute(find_coordinator(2))
    failed = world.answers.next()
    assert (failed.request, failed.error) == (2, None)
    assert failed.failure in (Failure.DISCONNECTED, Failure.NO_BROKER)


def test_a_broker_that_moved_is_asked_at_its_new_address(world: World) -> None:
    right, world.address = world.address, BrokerAddress(-1, "127.0.0.1", 1)
    world.network.execute(find_coordinator(1))
    assert isinstance(world.answers.next(), RequestFailed)
    world.address = right
    world.network.execute(find_coordinator(2))
    assert isinstance(world.answers.next(), Responded)
