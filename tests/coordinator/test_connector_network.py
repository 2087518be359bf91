"""A member's own connection to its coordinator: every request is answered once, whatever becomes of the connection."""

from __future__ import annotations

import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from bridge.client.network import Network
from bridge.testing.fake_cluster import FakeCluster
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.errors import ConnectorClosed
from zkconsumer.kafka.bootstrap_client import BootstrapClient
from zkconsumer.kafka.broker_connection import PendingRequest
from zkconsumer.kafka.group.commands import ConnectCoordinator, DisconnectCoordinator, Send
from zkconsumer.kafka.group.events import CoordinatorNode, Disconnected, Failure, RequestFailed, Responded
from zkconsumer.kafka.net.connection_errors import BrokerConnectionError, ConnectionFailureReason
from zkconsumer.testing.sandbox import waiting
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.request_frames import encode_request
from zkconsumer.wire.schemas import API_VERSIONS, FIND_COORDINATOR, HEARTBEAT, JOIN_GROUP
from zkconsumer.wire.schemas.api_versions import ApiVersion, ApiVersionsResponse
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from zkconsumer.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse

HERE = BrokerAddress(7, "broker", 9092)
WAIT_S = 30
"""Only what does not happen takes so long."""

RANGES = {API_VERSIONS.key: (0, 3), FIND_COORDINATOR.key: (0, 3), HEARTBEAT.key: (0, 4), JOIN_GROUP.key: (0, 9)}


class FakeBroker:
    """One broker for any number of connections; ``answers`` by API key, a missing one is never answered."""

    def __init__(self) -> None:
        self.ranges = dict(RANGES)
        self.answers: dict[int, Callable[[int], Any]] = {
            HEARTBEAT.key: lambda version: HeartbeatResponse(error_code=0),
            FIND_COORDINATOR.key: lambda version: FindCoordinatorResponse(node_id=7, host="broker", port=9092),
        }
        self.seen: list[tuple[str, int]] = []
        self.made: list[FakeConnection] = []
        self.is_down = False

    def connect(self, host: str, port: int, **how: Any) -> FakeConnection:
        self.made.append(FakeConnection(self, host, port))
        return self.made[-1]

    def answer(self, api: Any, version: int) -> Any:
        if api is API_VERSIONS:
            return ApiVersionsResponse(
                error_code=0,
                api_keys=[ApiVersion(api_key=k, min_version=a, max_version=b) for k, (a, b) in self.ranges.items()],
            )
        made = self.answers.get(api.key)
        return None if made is None else made(version)


class FakeConnection:
    """Answers come in the order of the requests; one without an answer holds up those behind it."""

    def __init__(self, broker: FakeBroker, host: str, port: int) -> None:
        self.host, self.port = host, port
        self._broker = broker
        self._waiting: deque[tuple[PendingRequest[Any], Any]] = deque()
        self._changed = threading.Condition()
        self.is_closed = False

    def _check(self) -> None:
        if self.is_closed:
            raise ConnectorClosed("closed")
        if self._broker.is_down:
            raise BrokerConnectionError(self.host, self.port, ConnectionFailureReason.CLOSED, "gone")

    def send(self, api: Any, version: int, body: Any, timeout_ms: int, **how: Any) -> PendingRequest[Any]:
        self._check()
        encode_request(api, version, 0, "c", body)
        pending: PendingRequest[Any] = PendingRequest(api, version, len(self._broker.seen))
        if api is not API_VERSIONS:
            self._broker.seen.append((api.name, version))
        self._waiting.append((pending, self._broker.answer(api, version)))
        return pending

    def has_response(self, timeout_ms: int) -> bool:
        with self._changed:
            self._check()
            if self._waiting[0][1] is None:
                self._changed.wait(timeout_ms / 1000)
                self._check()
                return False
            return True

    def receive(self, pending: PendingRequest[Any], timeout_ms: int, **how: Any) -> Any:
        self._check()
        assert self._waiting[0][0] is pending
        return self._waiting.popleft()[1]

    def receive_next(self, timeout_ms: int, **how: Any) -> tuple[PendingRequest[Any], Any]:
        self._check()
        return self._waiting.popleft()

    def request(self, api: Any, version: int, body: Any, timeout_ms: int, **how: Any) -> Any:
        return self.receive(self.send(api, version, body, timeout_ms), timeout_ms)

    def close(self) -> None:
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()


class Told:
    """What the network said, in order."""

    def __init__(self) -> None:
        self._said: queue.Queue[tuple[Any, Send | None, int]] = queue.Queue()

    def __call__(self, event: Any, sent: Send | None, sent_at_ms: int) -> None:
        self._said.put((event, sent, sent_at_ms))

    def next(self) -> Any:
        return self.whole()[0]

    def whole(self) -> tuple[Any, Send | None, int]:
        return self._said.get(timeout=WAIT_S)

    @property
    def is_silent(self) -> bool:
        return self._said.empty()


@pytest.fixture
def broker() -> FakeBroker:
    return FakeBroker()


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def network(broker: FakeBroker, told: Told) -> Iterator[Network]:
    deaths: list[BaseException] = []
    asks = BootstrapClient(broker.connect, lambda: [HERE], "c", 1_000)  # type: ignore[arg-type]
    made = Network(
        "m",
        "c",
        broker.connect,
        any_broker=asks,
        clock=SYSTEM_CLOCK,
        on_answer=told,
        on_thread_error=lambda _, error: deaths.append(error),
    )  # type: ignore[arg-type]
    made.start()
    yield made
    made.ask_to_stop()
    assert made.join(5_000)
    assert deaths == []


def heartbeat(request: int, timeout_ms: int = 5_000) -> Send:
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
    return Send(request, 7, HEARTBEAT.key, body, timeout_ms)


def join(request: int, timeout_ms: int = 5_000) -> Send:
    body = JoinGroupRequest(
        group_id="g", session_timeout_ms=6_000, member_id="", protocol_type="consumer", protocols=[]
    )
    return Send(request, 7, JOIN_GROUP.key, body, timeout_ms)


def test_an_answer_comes_with_the_time_of_its_question(network: Network, told: Told) -> None:
    network.execute(ConnectCoordinator(CoordinatorNode(7, HERE)))
    before_ms = SYSTEM_CLOCK.now_ms()
    network.execute(heartbeat(1))
    event, sent, sent_at_ms = told.whole()
    assert isinstance(event, Responded)
    assert (event.request, event.body.error_code, event.version) == (1, 0, 4)
    assert sent is not None
    assert sent.api_key == HEARTBEAT.key
    assert before_ms <= sent_at_ms <= SYSTEM_CLOCK.now_ms()


def test_the_highest_version_that_both_know_is_spoken_unless_less_is_wanted(
    network: Network, told: Told, broker: FakeBroker
) -> None:
    network.execute(ConnectCoordinator(CoordinatorNode(7, HERE)))
    network.execute(heartbeat(1))
    network.execute(Send(2, 7, HEARTBEAT.key, heartbeat(2).body, 5_000, version_most=1))
    assert [told.next().request, told.next().request] == [1, 2]
    assert broker.seen == [("Heartbeat", 4), ("Heartbeat", 1)]


def test_a_join_that_is_not_answered_yet_does_not_keep_others_from_being_sent(
    network: Network, told: Told, broker: FakeBroker
) -> None:
    network.execute(ConnectCoordinator(CoordinatorNode(7, HERE)))
    network.execute(join(1))
    network.execute(heartbeat(2))
    assert told.next().request == 2
    network.execute(heartbeat(3))
    assert told.next().request == 3
    assert [name for name, _ in broker.seen] == ["JoinGroup", "Heartbeat", "Heartbeat"]
    assert told.is_silent


def test_a_join_group_has_its_own_connection_which_is_closed_with_its_answer(
    network: Network, told: Told, broker: FakeBroker
) -> None:
    """Brokers close idle connections (``connections.max.idle.ms``), and between two rebalances this one would be."""
    network.execute(ConnectCoordinator(CoordinatorNode(7, HERE)))
    broker.answers[JOIN_GROUP.key] = lambda version: JoinGroupResponse(
        generation_id=1, member_id="m", leader="m", members=[], protocol_name="range"
    )
    for request in (1, 2):
        network.execute(join(request))
        network.execute(heartbeat(10 + request))
        assert {told.next().request, told.next().request} == {request, 10 + request}
    main, *joining = broker.made
    waiting.wait_until(lambda: all(one.is_closed for one in joining), "they are closed", timeout_ms=WAIT_S * 1_000)
    assert len(joining) == 2
    assert not main.is_closed


def send_join_and_heartbeat(network: Network, broker: FakeBroker) -> None:
    """JoinGroup (1) and Heartbeat (2) are sent, and the broker answers neither."""
    del broker.answers[HEARTBEAT.key]
    network.execute(ConnectCoordinator(CoordinatorNode(7, HERE)))
    network.execute(join(1))
    network.execute(heartbeat(2))
    waiting.wait_until(lambda: len(broker.seen) == 2, "both were sent", timeout_ms=WAIT_S * 1_000)


def test_a_disconnect_ends_the_connection_of_a_join_group_too(network: Network, told: Told, broker: FakeBroker) -> None:
    send_join_and_heartbeat(network, broker)
    network.execute(DisconnectCoordinator(7))
    assert [told.next(), told.next()] == [
        RequestFailed(1, Failure.DISCONNECTED),
        RequestFailed(2, Failure.DISCONNECTED),
    ]
    assert [one.is_closed for one in broker.made] == [True, True]


def test_a_connection_that_breaks_fails_what_is_on_its_way_and_is_said_to_be_gone(
    network: Network, told: Told, broker: FakeBroker
) -> None:
    send_join_and_heartbeat(network, broker)
    broker.is_down = True
    assert told.next() == RequestFailed(1, Failure.DISCONNECTED)
    assert told.next() == RequestFailed(2, Failure.DISCONNECTED)
    assert told.next() == Disconnected(7)


def test_one_that_is_closed_on_command_says_only_what_failed(network: Network, told: Told) -> None:
    network.execute(ConnectCoordinator(CoordinatorNode(7, HERE)))
    network.execute(join(1))
    threading.Event().wait(0.1)
    network.execute(DisconnectCoordinator(7))
    assert told.next() == RequestFailed(1, Failure.DISCONNECTED)
    network.execute(heartbeat(2))
    assert told.next() == RequestFailed(2, Failure.DISCONNECTED)
    assert told.is_silent


def test_a_request_without_an_answer_in_time_ends_the_connection(
    network: Network, told: Told, broker: FakeBroker
) -> None:
    del broker.answers[HEARTBEAT.key]
    network.execute(ConnectCoordinator(CoordinatorNode(7, HERE)))
    network.execute(join(1, timeout_ms=150))
    network.execute(heartbeat(2))
    assert told.next() == RequestFailed(1, Failure.TIMED_OUT)
    assert told.next() == RequestFailed(2, Failure.DISCONNECTED)
    assert told.next() == Disconnected(7)


def test_what_the_broker_does_not_know_fails_alone(network: Network, told: Told, broker: FakeBroker) -> None:
    del broker.ranges[JOIN_GROUP.key]
    network.execute(ConnectCoordinator(CoordinatorNode(7, HERE)))
    network.execute(join(1))
    network.execute(heartbeat(2))
    assert told.next() == RequestFailed(1, Failure.UNSUPPORTED)
    assert told.next().request == 2


def test_what_a_version_cannot_say_is_told_in_words(network: Network, told: Told, broker: FakeBroker) -> None:
    broker.ranges[HEARTBEAT.key] = (0, 0)
    network.execute(ConnectCoordinator(CoordinatorNode(7, HERE)))
    body = HeartbeatRequest(group_id="g", generation_id=1, member_id="m", group_instance_id="one")
    network.execute(Send(1, 7, HEARTBEAT.key, body, 5_000))
    failed = told.next()
    assert (failed.request, failed.failure) == (1, Failure.UNSUPPORTED)
    assert "group_instance_id" in str(failed.error)
    network.execute(heartbeat(2))
    assert told.next().request == 2


def test_a_coordinator_that_keeps_no_members_is_named(told: Told) -> None:
    """As when brokers are upgraded one by one, and one of 0.8 keeps the offsets of the group."""
    cluster = FakeCluster(release="0.8.2.2")
    asks = BootstrapClient(cluster.connect, lambda: [cluster.address(0)], "c", 1_000)
    network = Network(
        "m", "c", cluster.connect, any_broker=asks, clock=SYSTEM_CLOCK, on_answer=told, on_thread_error=lambda *_: None
    )
    network.start()
    network.execute(ConnectCoordinator(CoordinatorNode(7, cluster.address(0))))
    network.execute(join(1))
    failed = told.next()
    assert failed.failure is Failure.UNSUPPORTED
    assert "older than 0.9" in str(failed.error)
    network.ask_to_stop()
    assert network.join(5_000)


def test_any_broker_is_asked_for_the_coordinator(network: Network, told: Told, broker: FakeBroker) -> None:
    ask = Send(1, None, FIND_COORDINATOR.key, FindCoordinatorRequest(key="g"), 1_000, 3)
    network.execute(ask)
    assert told.next().body.node_id == 7
    broker.is_down = True
    network.execute(Send(2, None, FIND_COORDINATOR.key, FindCoordinatorRequest(key="g"), 1_000, 3))
    assert told.next() == RequestFailed(2, Failure.NO_BROKER)
