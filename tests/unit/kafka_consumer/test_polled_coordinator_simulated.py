"""``PolledCoordinator``: how it executes the commands of the group's machine, and in which thread.

The first part has a machine that returns what a test says; the others have the real one, on a simulated cluster.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import pytest

from bridge.client.consumer_interceptors import ConsumerInterceptors
from bridge.client.kafka_consumer.offset_calls import Offsets
from bridge.client.kafka_consumer.polled_coordinator import CALL_REPORT_MS, PolledCoordinator
from tests.kafka_consumer_fixtures import NoThread
from tests.simulated_consumer import (
    API_MS,
    HEARTBEAT_MS,
    POLL_INTERVAL_MS,
    RETRY_MS,
    SESSION_MS,
    SimulatedConsumer,
    T,
    has_timer,
)
from tests.simulated_group_cluster import NODE, SimulatedCluster, SimulatedNetwork
from zkconsumer.base.timer import Timer
from zkconsumer.errors import (
    InternalError,
    SaslAuthenticationException,
    TimeoutException,
    TopicAuthorizationException,
    UnsupportedVersionException,
    UsageError,
    WakeupException,
)
from zkconsumer.kafka.coordinator_requests import COORDINATOR_NODE_ID, JOIN_NODE_ID
from zkconsumer.kafka.fetch.fetch_position import FetchPosition
from zkconsumer.kafka.fetch.offset_reset_strategy import OffsetResetStrategy
from zkconsumer.kafka.fetch.subscription_state import SubscriptionState
from zkconsumer.kafka.group import commands as do
from zkconsumer.kafka.group import events as ev
from zkconsumer.kafka.group.commands import Callback
from zkconsumer.kafka.group.consumer_rebalance import Exit
from zkconsumer.kafka.group.errors import (
    CommitFailedException,
    GroupAuthorizationException,
    RebalanceCallbackFailed,
    RetriableCommitFailedException,
)
from zkconsumer.kafka.group.events import CoordinatorNode, Failure, TimerKind
from zkconsumer.kafka.group.generation import NO_GENERATION
from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.group.pending_commands import PendingCommands
from zkconsumer.kafka.group.revocation import RevocationStep
from zkconsumer.kafka.metadata.consumer_metadata import ConsumerMetadata
from zkconsumer.kafka.metadata.leader_and_epoch import LeaderAndEpoch
from zkconsumer.kafka.net.consumer_network_client import ConsumerNetworkClient
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.member.ownership import CollectPositions, Drain
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import (
    FIND_COORDINATOR,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    SYNC_GROUP,
)
from zkconsumer.wire.schemas.find_coordinator import FindCoordinatorRequest
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse
from zkconsumer.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitPartition,
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopic,
    OffsetCommitTopicResponse,
)

BROKER = 0
COORDINATOR = CoordinatorNode(BROKER, BrokerAddress(BROKER, NODE.host, NODE.port))


class _Discovery:
    coordinator: CoordinatorNode | None = None


class ScriptedMachine:
    """Instead of the group's machine: returns the next commands of ``script`` for each event, and notes the events."""

    def __init__(self, config: GroupMemberConfig) -> None:
        self.config = config
        self.exit = Exit.NONE
        self.generation = NO_GENERATION
        self.pending_commands = PendingCommands()
        self.coordinator_discovery = _Discovery()
        self.is_settled = False
        self.script: deque[list[do.Command]] = deque()
        self.events: list[ev.Event] = []

    def handle(self, event: ev.Event, now_ms: int) -> list[do.Command]:
        self.events.append(event)
        return self.script.popleft() if self.script else []


class NotedCallbacks:
    """A rebalance listener that notes the calls; ``during`` is called inside of them."""

    def __init__(self) -> None:
        self.calls: list[tuple[Callback, frozenset[TopicPartition]]] = []
        self.during: Callable[[], None] = lambda: None

    def on_partitions_revoked(self, partitions: Collection[TopicPartition]) -> None:
        self._note(Callback.REVOKED, partitions)

    def on_partitions_assigned(self, partitions: Collection[TopicPartition]) -> None:
        self._note(Callback.ASSIGNED, partitions)

    def on_partitions_lost(self, partitions: Collection[TopicPartition]) -> None:
        self._note(Callback.LOST, partitions)

    def _note(self, callback: Callback, partitions: Collection[TopicPartition]) -> None:
        self.calls.append((callback, frozenset(partitions)))
        self.during()


class NotedInterceptor:
    def __init__(self) -> None:
        self.committed: list[dict[TopicPartition, int]] = []

    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Offsets) -> None:
        self.committed.append({tp: one.offset for tp, one in offsets.items()})

    def close(self) -> None:
        pass


class Scripted:
    """A ``PolledCoordinator`` with a scripted machine; the heartbeat thread does not run."""

    def __init__(self, interceptor: NotedInterceptor | None = None, **settings: object) -> None:
        self.clock = ManualClock()
        self.cluster = SimulatedCluster(self.clock, {"t": 4})
        self.subscriptions = SubscriptionState(OffsetResetStrategy.EARLIEST)
        self.metadata = ConsumerMetadata(RETRY_MS, 300_000, self.subscriptions)
        self.network = SimulatedNetwork(self.cluster, self.metadata)
        self.client = ConsumerNetworkClient(
            self.network, self.metadata, self.clock, retry_backoff_ms=RETRY_MS, request_timeout_ms=5_000
        )
        given = {"group.id": "g"} | {key.replace("_", "."): value for key, value in settings.items()}
        self.machine = ScriptedMachine(GroupMemberConfig(given))
        self.callbacks = NotedCallbacks()
        self.group = PolledCoordinator(
            self.machine,  # type: ignore[arg-type]
            self.client,
            self.metadata,
            self.subscriptions,
            self.clock,
            interceptors=ConsumerInterceptors([] if interceptor is None else [interceptor]),
            name="test",
            start_thread=NoThread,  # type: ignore[arg-type]
        )
        self.subscriptions.subscribe(["t"], self.callbacks)

    def do(self, *commands: do.Command) -> None:
        """Let the machine answer an event with these commands."""
        self.machine.script.append(list(commands))
        self.group.enforce_rebalance("the test needs an event")

    def poll_network(self, duration_ms: int = 50) -> None:
        """Poll the network for so long."""
        timer = Timer(self.clock, duration_ms)
        while not timer.is_expired:
            self.client.poll(timer)

    def events(self, kind: type[Any]) -> list[Any]:
        return [event for event in self.machine.events if isinstance(event, kind)]

    def assign(self, *partitions: TopicPartition, offset: int = 0) -> None:
        self.subscriptions.assign_from_subscribed(partitions)
        for tp in partitions:
            position = FetchPosition(offset, None, LeaderAndEpoch(NODE, None))
            self.subscriptions.seek_validated(tp, position)


def heartbeat(request: int, node: int | None = BROKER, timeout_ms: int = 5_000) -> do.Send:
    return do.Send(
        request, node, HEARTBEAT.key, HeartbeatRequest(group_id="g", member_id="m", generation_id=1), timeout_ms
    )


def invoke(number: int, callback: Callback, *partitions: TopicPartition) -> do.Invoke:
    return do.Invoke(number, callback, frozenset(partitions))


# --- calls of poll ----------------------------------------------------------------------------------------------------


def test_a_machine_that_has_nothing_to_do_sees_few_calls() -> None:
    one = Scripted()
    one.machine.is_settled = True
    for _ in range(4 * CALL_REPORT_MS):
        one.group.poll()
        one.clock.move(1)
    assert len(one.events(ev.Polled)) == 3
    one.machine.is_settled = False
    for _ in range(10):
        one.group.poll()
    assert len(one.events(ev.Polled)) == 13


def test_the_last_call_is_reported_before_a_timer_fires() -> None:
    one = Scripted()
    one.machine.is_settled = True
    timer = do.SetMemberTimer(ev.TimerKind.POLL, one.clock.now_ms() + 50)
    one.do(timer)
    one.clock.move(20)
    one.group.poll()
    called_ms = one.clock.now_ms()
    one.clock.move(40)
    one.group.poll_in_background()
    assert one.machine.events[-2:] == [
        ev.Polled(called_ms),
        ev.MemberTimerFired(ev.TimerKind.POLL, timer.deadline_ms),
    ]


# --- requests ---------------------------------------------------------------------------------------------------------


def test_a_request_to_the_coordinator_is_sent_on_its_connection_and_its_answer_is_an_event() -> None:
    one = Scripted()
    one.cluster.prepared[HEARTBEAT.key].append(HeartbeatResponse(error_code=27))
    one.do(do.ConnectCoordinator(COORDINATOR), heartbeat(7))
    one.poll_network()
    (sent,) = one.cluster.requests
    assert sent.request.destination == COORDINATOR_NODE_ID - BROKER
    (answer,) = one.events(ev.Responded)
    assert (answer.request, answer.body.error_code, answer.version) == (7, 27, 4)


def test_a_request_whose_sending_a_signal_handler_has_interrupted_is_sent_by_the_next_event(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = Scripted()
    one.do(do.ConnectCoordinator(COORDINATOR))

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(one.client, "send", interrupt)
        with pytest.raises(KeyboardInterrupt):
            one.do(heartbeat(7))
    one.do()
    one.poll_network()
    assert [answer.request for answer in one.events(ev.Responded)] == [7]


def test_join_group_has_a_connection_of_its_own() -> None:
    """The broker reads nothing else of its connection before all members have joined."""
    one = Scripted()
    one.cluster.prepared[JOIN_GROUP.key].append(JoinGroupResponse(error_code=79, member_id="m"))
    body = JoinGroupRequest(
        group_id="g", session_timeout_ms=6_000, member_id="", protocol_type="consumer", protocols=[]
    )
    one.do(do.ConnectCoordinator(COORDINATOR), do.Send(1, BROKER, JOIN_GROUP.key, body, 5_000))
    one.poll_network()
    assert [sent.request.destination for sent in one.cluster.requests] == [JOIN_NODE_ID + BROKER]
    assert [answer.body.member_id for answer in one.events(ev.Responded)] == ["m"]


def test_a_request_to_any_broker_goes_to_the_least_loaded_one() -> None:
    one = Scripted()
    body = FindCoordinatorRequest(key="g")
    one.do(do.Send(1, None, FIND_COORDINATOR.key, body, 5_000, version_most=3))
    one.poll_network()
    assert [sent.request.destination for sent in one.cluster.requests] == [NODE.id]
    assert [answer.body.port for answer in one.events(ev.Responded)] == [NODE.port]


@pytest.mark.parametrize("node", [None, BROKER])
def test_a_request_fails_at_once_without_a_broker(node: int | None) -> None:
    """No broker can be used, or the coordinator was never found."""
    one = Scripted()
    one.network.stop_broker()
    assert not one.network.ready(NODE, one.clock.now_ms())
    one.do(do.Send(1, node, FIND_COORDINATOR.key, FindCoordinatorRequest(key="g"), 5_000))
    assert one.events(ev.RequestFailed) == [ev.RequestFailed(1, Failure.NO_BROKER)]


def test_a_version_limit_of_the_machine_is_kept() -> None:
    one = Scripted()
    one.do(do.Send(1, None, FIND_COORDINATOR.key, FindCoordinatorRequest(key="g"), 5_000, version_most=1))
    one.poll_network()
    assert [sent.version for sent in one.cluster.requests] == [1]


def test_a_connection_that_ends_fails_its_requests() -> None:
    one = Scripted()
    one.cluster.is_silent = True
    one.do(do.ConnectCoordinator(COORDINATOR), heartbeat(1), heartbeat(2))
    one.poll_network()
    one.network.stop_broker()
    one.poll_network()
    assert one.events(ev.RequestFailed) == [
        ev.RequestFailed(1, Failure.DISCONNECTED), ev.RequestFailed(2, Failure.DISCONNECTED)
    ]  # fmt: skip


def test_a_request_without_an_answer_fails_after_its_own_time_out() -> None:
    one = Scripted()
    one.cluster.is_silent = True
    one.do(do.ConnectCoordinator(COORDINATOR), heartbeat(1, timeout_ms=700))
    one.poll_network(690)
    assert not one.events(ev.RequestFailed)
    one.poll_network(30)
    assert one.events(ev.RequestFailed) == [ev.RequestFailed(1, Failure.DISCONNECTED)]


def test_a_request_that_could_not_be_sent_in_time_has_timed_out(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Scripted()
    monkeypatch.setattr(one.network, "ready", lambda node, now_ms: False)
    one.do(do.ConnectCoordinator(COORDINATOR), heartbeat(1, timeout_ms=300))
    one.poll_network(1_000)
    assert one.events(ev.RequestFailed) == [ev.RequestFailed(1, Failure.TIMED_OUT)]


@pytest.mark.parametrize(
    ("error", "failure"),
    [
        (SaslAuthenticationException("no"), Failure.DISCONNECTED),
        (UnsupportedVersionException("old"), Failure.UNSUPPORTED),
    ],
)
def test_the_machine_gets_the_error_of_a_failed_login_and_of_an_old_broker(error: Exception, failure: Failure) -> None:
    one = Scripted()
    one.do(do.ConnectCoordinator(COORDINATOR), heartbeat(1))
    one.group._requests._on_failure(heartbeat(1), NODE, 0, error)
    assert one.events(ev.RequestFailed) == [ev.RequestFailed(1, failure, error)]


def test_both_connections_to_a_coordinator_are_closed() -> None:
    one = Scripted()
    one.cluster.is_silent = True
    body = JoinGroupRequest(
        group_id="g", session_timeout_ms=6_000, member_id="", protocol_type="consumer", protocols=[]
    )
    one.do(do.ConnectCoordinator(COORDINATOR), heartbeat(1), do.Send(2, BROKER, JOIN_GROUP.key, body, 60_000))
    one.poll_network()
    one.do(do.DisconnectCoordinator(BROKER))
    assert not one.events(ev.RequestFailed), "the next poll closes them"
    one.poll_network()
    assert one.events(ev.RequestFailed) == [
        ev.RequestFailed(1, Failure.DISCONNECTED), ev.RequestFailed(2, Failure.DISCONNECTED)
    ]  # fmt: skip


def test_a_broken_connection_is_an_event_though_no_request_was_in_flight() -> None:
    one = Scripted()
    one.cluster.prepared[HEARTBEAT.key].append(HeartbeatResponse())
    one.do(do.ConnectCoordinator(COORDINATOR), heartbeat(1))
    one.poll_network()
    one.machine.coordinator_discovery.coordinator = COORDINATOR
    one.group.poll()
    assert not one.events(ev.Disconnected)
    one.network.stop_broker()
    one.group.poll()
    assert one.events(ev.Disconnected) == [ev.Disconnected(BROKER)]


def test_an_event_that_a_command_causes_is_handled_after_the_present_one() -> None:
    """Commands are executed in the order in which the machine returned them; none is left out."""
    one = Scripted()
    one.network.stop_broker()
    one.network.ready(NODE, one.clock.now_ms())
    one.machine.script.append(
        [
            do.Send(1, None, FIND_COORDINATOR.key, FindCoordinatorRequest(key="g"), 5_000),
            invoke(1, Callback.ASSIGNED, T[0]),
        ]
    )
    one.machine.script.append([invoke(2, Callback.ASSIGNED, T[1])])
    one.group.enforce_rebalance("")
    assert [type(event) for event in one.machine.events] == [ev.RejoinAsked, ev.RequestFailed]
    one.group.poll()
    assert [partitions for _, partitions in one.callbacks.calls] == [{T[0]}, {T[1]}]


# --- timers -----------------------------------------------------------------------------------------------------------


def test_a_timer_fires_once_after_its_deadline() -> None:
    one = Scripted()
    one.do(do.SetMemberTimer(TimerKind.HEARTBEAT, one.clock.now_ms() + 300))
    assert one.group.background_deadline_ms() == one.clock.now_ms() + 300
    one.clock.move(299)
    one.group.poll()
    assert not one.events(ev.MemberTimerFired)
    one.clock.move(1)
    one.group.poll()
    one.group.poll_in_background()
    (fired,) = one.events(ev.MemberTimerFired)
    assert fired == ev.MemberTimerFired(TimerKind.HEARTBEAT, one.clock.now_ms())
    assert one.group.background_deadline_ms() is None


def test_a_timer_is_replaced_and_cancelled() -> None:
    one = Scripted()
    now_ms = one.clock.now_ms()
    one.do(do.SetMemberTimer(TimerKind.SESSION, now_ms + 100), do.SetMemberTimer(TimerKind.SESSION, now_ms + 900))
    one.do(do.SetMemberTimer(TimerKind.POLL, now_ms + 200), do.CancelMemberTimer(TimerKind.POLL))
    one.clock.move(500)
    one.group.poll_in_background()
    assert not one.events(ev.MemberTimerFired)
    one.clock.move(500)
    one.group.poll_in_background()
    assert one.events(ev.MemberTimerFired) == [ev.MemberTimerFired(TimerKind.SESSION, now_ms + 900)]


def test_after_a_long_pause_each_timer_fires_once() -> None:
    one = Scripted()
    now_ms = one.clock.now_ms()
    one.do(*(do.SetMemberTimer(kind, now_ms + 10) for kind in TimerKind))
    one.clock.move(3_600_000)
    one.group.poll()
    assert {event.kind for event in one.events(ev.MemberTimerFired)} == set(TimerKind)
    assert len(one.events(ev.MemberTimerFired)) == len(TimerKind)


@pytest.mark.parametrize("kind", [TimerKind.AUTO_COMMIT, TimerKind.CLOSE])
def test_the_heartbeat_thread_is_not_woken_for_what_only_the_program_can_do(kind: TimerKind) -> None:
    one = Scripted()
    one.do(do.SetMemberTimer(kind, one.clock.now_ms() + 100))
    assert one.group.background_deadline_ms() is None
    assert one.group.time_to_next_poll_ms() == 100


def test_a_heartbeat_of_the_heartbeat_thread_leaves_at_its_time() -> None:
    one = stable()
    due_ms = one.machine.heartbeat.next_heartbeat_ms
    one.clock.move(due_ms - one.clock.now_ms())
    one.cluster.advance()
    one.group.poll_in_background()
    one.clock.move(10)
    one.cluster.advance()
    assert one.cluster.sent(HEARTBEAT.key), "not only with the next poll"


def test_the_heartbeat_thread_sends_at_once_what_an_answer_has_caused() -> None:
    one = SimulatedConsumer()
    one.subscribe()
    one.poll(50)
    one.work(400)
    one.work(10)
    assert "joined" not in one.events
    one.group.poll_in_background()
    assert "joined" in one.events
    one.clock.move(10)
    one.cluster.advance()
    assert one.cluster.sent(SYNC_GROUP.key)


def test_the_heartbeat_thread_polls_while_a_request_is_in_flight() -> None:
    one = Scripted()
    one.machine.pending_commands.in_flight[1] = object()  # type: ignore[assignment]
    retry_ms = one.machine.config.retry_backoff_ms
    assert one.group.background_deadline_ms() == one.clock.now_ms() + retry_ms


# --- the program's thread ---------------------------------------------------------------------------------------------


def test_positions_and_callbacks_wait_for_the_program_and_keep_their_order() -> None:
    one = Scripted()
    one.assign(T[0], T[1], offset=5)
    one.do(Drain((T[0],)), CollectPositions(), invoke(1, Callback.REVOKED, T[0]))
    one.group.poll_in_background()
    assert one.group.has_commands
    assert one.group.time_to_next_poll_ms() == 0
    assert one.subscriptions.is_fetchable(T[0])
    assert not one.callbacks.calls
    seen: list[bool] = []
    one.callbacks.during = lambda: seen.append(one.subscriptions.is_fetchable(T[0]))
    one.group.poll()
    assert not one.group.has_commands
    assert seen == [False], "no record is returned once it is drained"
    (collected,) = one.events(ev.OffsetsCollected)
    assert {tp: at.offset for tp, at in collected.offsets.items()} == {T[0]: 5, T[1]: 5}
    order = [type(event) for event in one.machine.events if isinstance(event, ev.OffsetsCollected | ev.CallbackDone)]
    assert order == [ev.OffsetsCollected, ev.CallbackDone]
    assert one.subscriptions.assigned_partitions() == {T[1]}


def test_partitions_that_are_not_assigned_any_more_can_be_drained() -> None:
    one = Scripted()
    one.assign(T[0])
    one.do(Drain((T[0], T[1])))
    one.group.poll()
    assert not one.subscriptions.is_fetchable(T[0])


def test_new_partitions_are_assigned_before_the_callback_which_may_seek() -> None:
    one = Scripted()
    one.assign(T[0])
    seen: list[set[TopicPartition]] = []
    one.callbacks.during = lambda: seen.append(one.subscriptions.assigned_partitions())
    one.do(invoke(1, Callback.ASSIGNED, T[1]), do.StartPartitions(frozenset({T[1]}), 1))
    one.group.poll()
    assert seen == [{T[0], T[1]}]


@pytest.mark.parametrize("callback", [Callback.REVOKED, Callback.LOST])
def test_partitions_are_kept_during_their_callback_which_may_commit(callback: Callback) -> None:
    one = Scripted()
    one.assign(T[0], T[1])
    seen: list[set[TopicPartition]] = []
    one.callbacks.during = lambda: seen.append(one.subscriptions.assigned_partitions())
    one.do(invoke(1, callback, T[1]))
    one.group.poll()
    assert seen == [{T[0], T[1]}]
    assert one.subscriptions.assigned_partitions() == {T[0]}
    assert one.callbacks.calls == [(callback, {T[1]})]


@pytest.mark.parametrize("callback", list(Callback))
def test_the_error_of_a_callback_is_passed_to_the_machine(callback: Callback, caplog: pytest.LogCaptureFixture) -> None:
    one = Scripted()
    one.assign(T[0])
    error = ValueError("of the program")

    def fail() -> None:
        raise error

    one.callbacks.during = fail
    one.do(invoke(9, callback, T[0]))
    one.group.poll()
    assert one.events(ev.CallbackDone) == [ev.CallbackDone(9, error=error)]
    assert one.subscriptions.assigned_partitions() == (set() if callback is not Callback.ASSIGNED else {T[0]})
    assert "User provided listener failed on invocation of onPartitions" in caplog.text


@pytest.mark.parametrize("error", [WakeupException("wakeup"), KeyboardInterrupt()])
def test_a_callback_that_is_interrupted_has_returned_for_the_machine(error: BaseException) -> None:
    """The machine waits for the answer; without it the member would never rebalance again."""
    one = Scripted()
    one.assign(T[0], T[1])

    def interrupt() -> None:
        one.callbacks.during = lambda: None
        raise error

    one.callbacks.during = interrupt
    one.do(invoke(1, Callback.REVOKED, T[0]), invoke(2, Callback.LOST, T[1]))
    with pytest.raises(type(error)):
        one.group.poll()
    assert one.events(ev.CallbackDone) == [ev.CallbackDone(1)]
    assert one.subscriptions.assigned_partitions() == {T[1]}
    one.group.poll()
    assert [callback for callback, _ in one.callbacks.calls] == [Callback.REVOKED, Callback.LOST]


def test_a_callback_that_calls_the_consumer_is_not_interrupted_by_the_next_callback() -> None:
    one = Scripted()
    one.assign(T[0])
    one.callbacks.during = one.group.run_commands
    one.do(invoke(1, Callback.ASSIGNED, T[1]), invoke(2, Callback.REVOKED, T[1]))
    one.group.poll()
    answers = [event.number for event in one.events(ev.CallbackDone)]
    assert answers == [1, 2]


def test_the_time_of_callbacks_is_measured() -> None:
    one = Scripted()
    one.assign(T[0])
    one.callbacks.during = lambda: one.clock.move(70)
    one.do(invoke(1, Callback.REVOKED, T[0]))
    one.group.poll()
    assert one.group.metrics.callbacks[Callback.REVOKED].highest == 70


# --- errors -----------------------------------------------------------------------------------------------------------


def test_an_error_is_raised_once_by_the_next_call_and_a_fatal_one_by_every_call() -> None:
    one = Scripted()
    first, second, last = GroupAuthorizationException("1"), GroupAuthorizationException("2"), UsageError("3")
    one.do(do.Raise(first, is_fatal=False), do.Raise(second, is_fatal=False))
    assert one.group.has_commands
    for expected in (first, second):
        with pytest.raises(GroupAuthorizationException) as raised:
            one.group.poll()
        assert raised.value is expected
    one.group.poll()
    one.do(do.Raise(last, is_fatal=True))
    for _ in range(3):
        with pytest.raises(UsageError) as fatal:
            one.group.poll()
        assert fatal.value is last


def test_callbacks_run_before_an_error_is_raised() -> None:
    one = Scripted()
    one.assign(T[0])
    one.do(do.Raise(UsageError("fenced"), is_fatal=True), invoke(1, Callback.LOST, T[0]))
    with pytest.raises(UsageError):
        one.group.poll()
    assert one.callbacks.calls == [(Callback.LOST, {T[0]})]


def test_the_errors_of_the_heartbeat_thread_are_one_error_for_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    """A program that works for a minute does not get the same error in each of its next hundred calls."""
    one = Scripted()
    error = TopicAuthorizationException("t")

    def fail() -> None:
        raise error

    monkeypatch.setattr(one.metadata, "maybe_throw_any_exception", fail)
    for _ in range(100):
        one.group.poll_in_background()
    monkeypatch.undo()
    with pytest.raises(TopicAuthorizationException):
        one.group.poll()
    one.group.poll()


def test_an_error_of_the_heartbeat_thread_ends_the_wait_of_the_program(monkeypatch: pytest.MonkeyPatch) -> None:
    one = Scripted()

    def fail() -> None:
        one.network._is_woken = False
        one.client._poller_waits = True  # the program's poll has begun meanwhile
        raise TopicAuthorizationException("t")

    monkeypatch.setattr(one.metadata, "maybe_throw_any_exception", fail)
    one.group.poll_in_background()
    assert one.network._is_woken


def test_the_end_of_the_heartbeat_thread_is_raised_by_every_poll() -> None:
    one = Scripted()
    cause = ZeroDivisionError()
    one.group._on_thread_error("test-heartbeat", cause)
    for _ in range(2):
        with pytest.raises(InternalError, match="test-heartbeat ended with ZeroDivisionError") as raised:
            one.group.poll()
        assert raised.value.__cause__ is cause


@pytest.mark.parametrize(
    "command", [do.Raise(UsageError(""), is_fatal=False), do.Raise(UsageError(""), is_fatal=True), CollectPositions()]
)
def test_what_the_program_must_do_ends_its_wait_for_the_network(command: do.Command) -> None:
    one = Scripted()
    one.client._poller_waits = True
    one.do(command)
    assert one.network._is_woken


# --- offsets ----------------------------------------------------------------------------------------------------------


def commit_request(*offsets: int) -> OffsetCommitRequest:
    rows = [OffsetCommitPartition(partition_index=index, committed_offset=at) for index, at in enumerate(offsets)]
    return OffsetCommitRequest(
        group_id="g",
        generation_id_or_member_epoch=1,
        member_id="m",
        topics=[OffsetCommitTopic(name="t", partitions=rows)],
    )


def commit_response(*errors: int) -> OffsetCommitResponse:
    rows = [OffsetCommitPartitionResponse(partition_index=index, error_code=code) for index, code in enumerate(errors)]
    return OffsetCommitResponse(topics=[OffsetCommitTopicResponse(name="t", partitions=rows)])


def offsets_of(*offsets: int) -> dict[TopicPartition, OffsetAndMetadata]:
    return {T[index]: OffsetAndMetadata(at) for index, at in enumerate(offsets)}


def test_a_commit_of_nothing_is_done() -> None:
    one = Scripted()
    one.group.commit_offsets_sync({}, Timer(one.clock, 100))
    assert not one.events(ev.CommitAsked)


def test_a_commit_ends_with_the_command_of_the_machine() -> None:
    one = Scripted()
    one.machine.script.append([do.CommitDone(-1, None, {})])
    one.group.commit_offsets_sync(offsets_of(5), Timer(one.clock, 100))
    (asked,) = one.events(ev.CommitAsked)
    assert (asked.number, asked.retried, asked.timeout_ms) == (-1, True, 100)
    assert {tp: at.offset for tp, at in asked.offsets.items()} == {T[0]: 5}
    assert not one.group._calls


@pytest.mark.parametrize(
    "done",
    [
        do.CommitDone(-1, TopicAuthorizationException("t"), {}),
        do.CommitDone(-1, None, {T[0]: TopicAuthorizationException("t")}),
    ],
)
def test_a_commit_raises_its_error_or_that_of_a_partition(done: do.CommitDone) -> None:
    one = Scripted()
    one.machine.script.append([done])
    with pytest.raises(TopicAuthorizationException):
        one.group.commit_offsets_sync(offsets_of(5), Timer(one.clock, 100))


def test_a_commit_without_an_answer_raises_after_its_time() -> None:
    one = Scripted()
    started_ms = one.clock.now_ms()
    with pytest.raises(TimeoutException, match="700ms"):
        one.group.commit_offsets_sync(offsets_of(5), Timer(one.clock, 700))
    assert one.clock.now_ms() - started_ms == 700


def test_the_callback_of_a_commit_is_called_by_a_later_call_of_the_program() -> None:
    one = Scripted()
    results: list[Any] = []
    error = CommitFailedException("gone")
    one.machine.script.append([do.CommitDone(-1, error, {})])
    one.group.commit_offsets_async(offsets_of(5), lambda offsets, raised: results.append((dict(offsets), raised)))
    one.group.poll_in_background()
    assert not results
    one.group.poll()
    assert results == [(offsets_of(5), error)]
    one.group.poll()
    assert len(results) == 1


def test_interceptors_get_what_the_coordinator_has_accepted() -> None:
    interceptor = NotedInterceptor()
    one = Scripted(interceptor)
    one.cluster.prepared[OFFSET_COMMIT.key].append(commit_response(0, 29))
    one.do(do.ConnectCoordinator(COORDINATOR), do.Send(1, BROKER, OFFSET_COMMIT.key, commit_request(3, 4), 5_000))
    one.poll_network()
    assert not interceptor.committed, "they are code of the program"
    one.group.poll()
    assert interceptor.committed == [{T[0]: 3}]


def test_a_look_up_of_committed_offsets_ends_with_the_command_of_the_machine() -> None:
    one = Scripted()
    call = one.group.ask_committed_offsets([T[0], T[1]])
    (asked,) = one.events(ev.FetchAsked)
    assert asked.partitions == {T[0], T[1]}
    assert not one.group.wait_for_committed_offsets(call, Timer(one.clock, 300))
    one.do(do.FetchDone(asked.number, {T[0]: ev.Offset(5), T[1]: None}))
    assert one.group.wait_for_committed_offsets(call, Timer(one.clock, 300))
    assert call.offsets == {T[0]: ev.Offset(5), T[1]: None}
    one.do(do.FetchDone(asked.number, {}))  # no call waits for it any more


# --- metadata ---------------------------------------------------------------------------------------------------------


def test_the_machine_gets_each_new_state_of_the_metadata_once() -> None:
    one = Scripted()
    one.metadata.request_update()
    one.poll_network()
    one.group.poll()
    one.group.poll()
    one.group.poll_in_background()
    assert one.events(ev.MetadataUpdated) == [ev.MetadataUpdated({"t": 4}, frozenset({"t"}))]
    one.cluster.topics["t"] = 5
    one.metadata.request_update_for_new_topics()
    one.poll_network()
    one.group.poll_in_background()
    assert one.events(ev.MetadataUpdated)[1:] == [ev.MetadataUpdated({"t": 5}, frozenset({"t"}))]


def test_a_topic_of_the_group_is_requested_and_what_is_known_is_reported_at_once() -> None:
    one = Scripted()
    one.cluster.topics["u"] = 2
    one.metadata.request_update()
    one.poll_network()
    one.group.poll()
    one.machine.events.clear()
    one.do(do.NeedMetadata(frozenset({"t", "u"})))
    assert one.events(ev.MetadataUpdated) == [ev.MetadataUpdated({"t": 4}, frozenset({"t"}))]
    assert one.metadata.update_requested
    one.poll_network()
    one.group.poll_in_background()
    assert one.events(ev.MetadataUpdated)[1:] == [ev.MetadataUpdated({"t": 4, "u": 2}, frozenset({"t", "u"}))]


def test_a_topic_without_metadata_counts_as_missing_only_after_an_update() -> None:
    one = Scripted()
    one.metadata.request_update()
    one.poll_network()
    one.do(do.NeedMetadata(frozenset({"t", "gone"})))
    assert one.events(ev.MetadataUpdated) == [ev.MetadataUpdated({"t": 4}, frozenset({"t"}))]
    one.poll_network()
    one.group.poll()
    assert one.events(ev.MetadataUpdated)[1:] == [ev.MetadataUpdated({"t": 4}, frozenset({"t", "gone"}))]


def test_metadata_without_a_subscription_is_not_reported() -> None:
    one = Scripted()
    one.subscriptions.unsubscribe()
    one.metadata.request_update()
    one.poll_network()
    one.do(do.NeedMetadata(None), do.NeedMetadata(frozenset({"t"})))
    one.group.poll()
    assert not one.events(ev.MetadataUpdated)


def test_an_event_of_the_machine_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "zkconsumer.member")
    one = Scripted()
    one.do(do.LogMemberEvent("rejoin-requested", (("reason", "why"),), "Request joining group due to: why"))
    assert "rejoin-requested: Request joining group due to: why reason='why'" in caplog.text


# --- waits ------------------------------------------------------------------------------------------------------------


def stable(**settings: Any) -> SimulatedConsumer:
    """A member with all partitions, that has read some records."""
    one = SimulatedConsumer(**settings)
    for tp in T:
        one.cluster.ends[tp] = 20
    one.join()
    one.poll_until(lambda: len(one.positions()) == 4 and len(one.program.returned) == 4)
    return one


def test_a_commit_that_waits_does_not_poll_in_a_busy_loop() -> None:
    one = stable()
    one.cluster.is_silent = True
    polls, started_ms = one.network.polls, one.clock.now_ms()
    with pytest.raises(TimeoutException):
        one.kafka.commit_sync(timeout_ms=3_000)
    assert one.clock.now_ms() - started_ms == 3_000
    assert one.network.polls - polls < 80, "about one in 100 ms, and one for each deadline"


def test_a_commit_is_over_in_time_however_the_coordinator_fails() -> None:
    """No coordinator; one that is silent; one that refuses with a retriable error until the end."""
    for fail in (
        lambda one: one.network.stop_broker(),
        lambda one: setattr(one.cluster, "is_silent", True),
        lambda one: one.cluster.prepared[OFFSET_COMMIT.key].extend(commit_response(14) for _ in range(1000)),
    ):
        one = stable()
        fail(one)
        started_ms = one.clock.now_ms()
        with pytest.raises(TimeoutException):
            one.kafka.commit_sync(timeout_ms=2_500)
        assert one.clock.now_ms() - started_ms <= 2_500


def test_a_full_queue_of_commits_is_not_called_a_time_out() -> None:
    one = Scripted()
    error = RetriableCommitFailedException("1000 commits are waiting already")
    one.machine.script.append([do.CommitDone(-1, error, {})])
    with pytest.raises(RetriableCommitFailedException):
        one.group.commit_offsets_sync(offsets_of(5), Timer(one.clock, 100))


def test_a_commit_is_retried_until_it_is_accepted() -> None:
    one = stable()
    one.network.stop_broker()
    one.cluster.after(1_200, one.network.start_broker)
    one.kafka.commit_sync()
    assert {tp: one.cluster.committed(tp) for tp in T} == one.positions()


def test_wakeup_ends_the_wait_for_a_commit_which_goes_on() -> None:
    one = stable()
    one.cluster.delays[OFFSET_COMMIT.key] = 500
    one.cluster.after(100, one.kafka.wakeup)
    with pytest.raises(WakeupException):
        one.kafka.commit_sync()
    one.poll_until(lambda: one.cluster.committed(T[0]) > 0)


def test_automatic_commits_have_the_positions_of_the_last_poll_and_wait_for_the_program() -> None:
    one = stable()
    one.cluster.commits.clear()
    returned = dict(one.program.returned)
    one.run_background(5_000)
    assert not one.cluster.commits, "the program has not processed what it got"
    one.poll(0)
    one.poll(50)
    assert one.cluster.commits[0].offsets == returned


def test_heartbeats_go_on_between_two_polls_and_during_a_callback() -> None:
    one = stable()
    before = len(one.cluster.sent(HEARTBEAT.key))
    one.run_background(5_000)
    assert 4 <= len(one.cluster.sent(HEARTBEAT.key)) - before <= 6
    one.program.during = lambda name, partitions: one.run_background(5_000)
    one.rival()
    before = len(one.cluster.sent(HEARTBEAT.key))
    one.poll_until(lambda: one.program.names()[-1] == "revoked")
    assert len(one.cluster.sent(HEARTBEAT.key)) - before >= 4


# --- a paused process -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("paused_ms", [SESSION_MS + 1_000, POLL_INTERVAL_MS + 1_000, 3_600_000])
@pytest.mark.parametrize("is_cooperative", [False, True])
@pytest.mark.parametrize("is_background_first", [False, True])
def test_after_a_pause_longer_than_the_session_the_partitions_are_lost(
    paused_ms: int, is_cooperative: bool, is_background_first: bool
) -> None:
    """Another member has them by now: nothing is committed any more, and this one joins again."""
    one = stable(is_cooperative=is_cooperative)
    one.poll_until(lambda: all(one.cluster.committed(tp) > 0 for tp in T))
    one.poll(10)
    old = one.member_id
    rival = one.rival()
    one.clock.move(paused_ms)
    one.cluster.advance()
    assert rival.owned == set(T)
    accepted = [commit for commit in one.cluster.commits if commit.is_accepted]
    if is_background_first:
        one.run_background(500)
    one.poll_until(lambda: one.is_idle and one.member_id != old)
    assert "lost" in one.program.names()
    assert "revoked" not in one.program.names()
    late = [commit for commit in one.cluster.commits if commit.is_accepted and commit.member == old]
    assert late == accepted, "no commit of the old member was accepted after the pause"
    one.check_commits()


def test_a_pause_longer_than_max_poll_interval_alone_does_not_lose_the_partitions() -> None:
    """The session lasts longer; the program polls as soon as it runs again, so it is alive."""
    one = stable(session_timeout_ms=40_000, max_poll_interval_ms=10_000)
    old = one.member_id
    one.clock.move(15_000)
    one.poll_until(lambda: one.is_idle)
    one.poll(2_000)
    assert one.member_id == old
    assert one.program.names() == ["assigned"]


def test_a_program_that_works_longer_than_max_poll_interval_leaves_and_joins_again() -> None:
    one = stable(session_timeout_ms=40_000, max_poll_interval_ms=10_000)
    old = one.member_id
    one.run_background(11_000)
    assert one.cluster.sent(LEAVE_GROUP.key)
    assert old not in one.cluster.members()
    with pytest.raises(CommitFailedException):
        one.kafka.commit_sync()
    one.poll_until(lambda: one.is_idle)
    assert one.program.names() == ["assigned", "lost", "assigned"]


def test_max_poll_interval_counts_from_a_call_that_was_not_reported() -> None:
    """A member that has nothing to do sees only one call in ``CALL_REPORT_MS``."""
    one = stable(session_timeout_ms=40_000, max_poll_interval_ms=10_000)
    one.poll(CALL_REPORT_MS)
    one.clock.move(CALL_REPORT_MS)
    one.kafka.poll(0)
    one.clock.move(CALL_REPORT_MS - 1)
    one.kafka.poll(0)
    one.run_background(9_990)
    assert not one.cluster.sent(LEAVE_GROUP.key)
    one.run_background(200)
    assert len(one.cluster.sent(LEAVE_GROUP.key)) == 1


def test_a_member_that_is_paused_over_the_rebalance_deadline_joins_as_a_new_one() -> None:
    """The coordinator has waited for this member's JoinGroup in vain."""
    one = stable(session_timeout_ms=40_000, max_poll_interval_ms=10_000)
    rival = one.rival(rebalance_ms=10_000, session_ms=40_000)
    old = one.member_id
    one.program.during = lambda name, partitions: one.clock.move(12_000) if name == "revoked" else None
    one.poll_until(lambda: "revoked" in one.program.names())
    one.program.during = lambda name, partitions: None
    one.poll_until(lambda: one.is_idle and rival.is_in_group)
    assert one.member_id != old, "the coordinator has removed the member"
    assert one.program.names() == ["assigned", "revoked", "assigned"]
    one.check_commits()


# --- leaving ----------------------------------------------------------------------------------------------------------


def test_unsubscribe_commits_calls_the_listener_and_leaves() -> None:
    one = stable()
    returned = dict(one.program.returned)
    one.kafka.unsubscribe()
    assert one.program.names() == ["assigned", "revoked"]
    assert {tp: one.cluster.committed(tp) for tp in T} == returned
    one.clock.move(10)
    one.cluster.advance()
    assert one.cluster.members() == []


def test_unsubscribe_raises_the_error_of_the_listener_after_the_member_has_left() -> None:
    one = stable()

    def fail(name: str, partitions: frozenset[TopicPartition]) -> None:
        raise ValueError(name)

    one.program.during = fail
    with pytest.raises(RebalanceCallbackFailed) as raised:
        one.kafka.unsubscribe()
    assert isinstance(raised.value.__cause__, ValueError)
    assert one.kafka.subscription() == frozenset()
    one.clock.move(10)
    one.cluster.advance()
    assert one.cluster.members() == []
    one.program.during = lambda name, partitions: None
    one.join()


def test_unsubscribe_inside_a_callback_does_not_wait_for_that_callback() -> None:
    one = SimulatedConsumer()
    started: list[int] = []

    def during(name: str, partitions: frozenset[TopicPartition]) -> None:
        if name == "assigned":
            started.append(one.clock.now_ms())
            one.kafka.unsubscribe()
            started.append(one.clock.now_ms())

    one.program.during = during
    one.subscribe()
    with pytest.raises(UsageError, match="not subscribed"):
        one.poll_until(lambda: False)
    assert started[1] - started[0] < 100
    assert one.machine.exit is Exit.NONE
    assert one.program.names() == ["assigned", "revoked"]
    one.program.during = lambda name, partitions: None
    one.join()


def test_unsubscribe_gives_up_in_time_when_the_coordinator_is_unreachable() -> None:
    one = stable()
    one.cluster.is_silent = True
    started_ms = one.clock.now_ms()
    one.kafka.unsubscribe()
    assert one.clock.now_ms() - started_ms <= API_MS
    assert one.kafka.assignment() == frozenset()
    one.cluster.is_silent = False
    one.join()


def test_an_error_of_the_network_does_not_keep_unsubscribe_from_leaving(monkeypatch: pytest.MonkeyPatch) -> None:
    one = stable()
    errors = [TopicAuthorizationException("t")]

    def fail_once() -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(one.kafka._metadata, "maybe_throw_any_exception", fail_once)
    with pytest.raises(TopicAuthorizationException):
        one.kafka.unsubscribe()
    assert one.machine.exit is Exit.NONE
    assert not one.program.owned
    assert one.kafka.assignment() == frozenset()
    one.join()


STAGES: dict[str, Callable[[SimulatedConsumer], None]] = {}


def stage(prepare: Callable[[SimulatedConsumer], None]) -> Callable[[SimulatedConsumer], None]:
    """A state of the member in which the coordinator fails and the consumer is closed."""
    STAGES[prepare.__name__] = prepare
    return prepare


def _is_silent_from(one: SimulatedConsumer, *kinds: int) -> None:
    one.cluster.delays |= dict.fromkeys(kinds, 10_000_000)


@stage
def looking_for_the_coordinator(one: SimulatedConsumer) -> None:
    _is_silent_from(one, FIND_COORDINATOR.key)
    one.subscribe()
    one.poll(100)


@stage
def joining(one: SimulatedConsumer) -> None:
    _is_silent_from(one, JOIN_GROUP.key)
    one.subscribe()
    one.poll(400)


@stage
def syncing(one: SimulatedConsumer) -> None:
    _is_silent_from(one, SYNC_GROUP.key)
    one.subscribe()
    one.poll(400)


@stage
def stable_member(one: SimulatedConsumer) -> None:
    one.join()
    one.poll_until(lambda: len(one.program.returned) == 4)


@stage
def committing_before_a_rebalance(one: SimulatedConsumer) -> None:
    stable_member(one)
    _is_silent_from(one, OFFSET_COMMIT.key)
    one.rival()
    one.poll_until(lambda: one.machine.revocation is not None)
    one.poll(200)
    assert one.machine.revocation is not None
    assert one.machine.revocation.step is RevocationStep.COMMITTING


@stage
def about_to_collect_positions(one: SimulatedConsumer) -> None:
    """The heartbeat thread has found the rebalance; the program has not polled since."""
    stable_member(one)
    one.rival()
    one.run_background(2 * HEARTBEAT_MS)
    assert one.machine.revocation is not None
    assert one.machine.revocation.step is RevocationStep.COLLECTING


@stage
def rejoining(one: SimulatedConsumer) -> None:
    stable_member(one)
    _is_silent_from(one, JOIN_GROUP.key)
    one.rival()
    one.poll_until(lambda: len(one.cluster.sent(JOIN_GROUP.key)) > 2)


@stage
def assigned_but_not_called(one: SimulatedConsumer) -> None:
    """The heartbeat thread has joined; the program has not polled since."""
    one.subscribe()
    one.poll(50)
    one.run_background(600)
    assert one.machine.assigned
    assert not one.program.calls


@stage
def revoking_after_a_rebalance(one: SimulatedConsumer) -> None:
    """Cooperative: the partitions that go to another member are committed."""
    stable_member(one)
    one.rival()
    one.poll_until(lambda: len(one.cluster.sent(SYNC_GROUP.key)) > 1)
    _is_silent_from(one, OFFSET_COMMIT.key)
    one.poll(200)


@pytest.mark.parametrize("timeout_ms", [0, 1, 500, 4_000])
@pytest.mark.parametrize("how", ["silent", "down"])
@pytest.mark.parametrize("is_cooperative", [False, True])
@pytest.mark.parametrize("state", list(STAGES))
def test_close_ends_in_time_with_an_unreachable_coordinator(
    state: str, is_cooperative: bool, how: str, timeout_ms: int
) -> None:
    """And the listener is called for all partitions, so the program can release what belongs to them."""
    one = SimulatedConsumer(is_cooperative=is_cooperative)
    for tp in T:
        one.cluster.ends[tp] = 20
    STAGES[state](one)
    if how == "silent":
        one.cluster.is_silent = True
    else:
        one.network.stop_broker()
    started_ms = one.clock.now_ms()
    one.kafka.close(timeout_ms)
    assert one.clock.now_ms() - started_ms <= timeout_ms
    one.check_end()


def assigned_by_the_program() -> SimulatedConsumer:
    one = SimulatedConsumer()
    one.cluster.ends[T[0]] = 3
    one.kafka.assign([T[0]])
    while one.kafka.position(T[0]) < 3:
        one.kafka.poll(100)
    return one


def test_close_commits_the_partitions_of_assign() -> None:
    one = assigned_by_the_program()
    one.kafka.close()
    assert one.cluster.committed(T[0]) == 3


@pytest.mark.parametrize("how", ["silent", "down"])
def test_close_logs_that_it_could_not_commit_and_ends_in_time(how: str, caplog: pytest.LogCaptureFixture) -> None:
    one = assigned_by_the_program()
    if how == "silent":
        one.cluster.is_silent = True
    else:
        one.network.stop_broker()
    started_ms = one.clock.now_ms()
    one.kafka.close(800)
    assert one.clock.now_ms() - started_ms <= 800
    assert "revocation-commit-failed: Synchronous auto-commit of offsets {t-0=OffsetAndMetadata" in caplog.text
    assert one.machine.exit is Exit.STOPPED


def test_the_machine_gets_the_time_that_is_left_for_its_close() -> None:
    one = Scripted()
    timer = Timer(one.clock, 1_000)
    one.clock.move(300)
    one.machine.script.append([do.MemberStopped()])
    one.group.close(timer)
    assert one.events(ev.Closed) == [ev.Closed(leave=True, timeout_ms=700)]


def test_close_raises_the_first_error_and_does_everything_else() -> None:
    one = stable()

    def fail(name: str, partitions: frozenset[TopicPartition]) -> None:
        raise ValueError(name)

    one.program.during = fail
    with pytest.raises(RebalanceCallbackFailed):
        one.kafka.close()
    one.check_end()


def test_close_goes_on_after_errors_of_the_network(monkeypatch: pytest.MonkeyPatch) -> None:
    one = stable()
    errors = [TopicAuthorizationException("second"), GroupAuthorizationException("first")]

    def fail_twice() -> None:
        if errors:
            raise errors.pop()

    monkeypatch.setattr(one.kafka._metadata, "maybe_throw_any_exception", fail_twice)
    with pytest.raises(GroupAuthorizationException, match="first"):
        one.kafka.close()
    one.check_end()
    assert not errors


def test_close_is_over_in_time_though_each_poll_of_the_network_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    one = stable()
    one.cluster.is_silent = True

    def fail() -> None:
        raise TopicAuthorizationException("t")

    monkeypatch.setattr(one.kafka._metadata, "maybe_throw_any_exception", fail)
    started_ms = one.clock.now_ms()
    with pytest.raises(TopicAuthorizationException):
        one.kafka.close(2_000)
    assert one.clock.now_ms() - started_ms == 2_000
    one.check_end()


def test_an_interrupted_close_ends_the_heartbeat_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    one = stable()
    ended: list[int] = []
    monkeypatch.setattr(one.group._heartbeat_thread, "close", ended.append)

    def interrupt(name: str, partitions: frozenset[TopicPartition]) -> None:
        raise KeyboardInterrupt

    one.program.during = interrupt
    with pytest.raises(KeyboardInterrupt):
        one.kafka.close()
    assert ended


def test_commits_after_close_fail() -> None:
    one = stable()
    one.kafka.close()
    call = one.group.ask_committed_offsets([T[0]])
    assert call.is_done
    assert call.error is not None


def test_the_automatic_commit_waits_for_its_interval() -> None:
    one = stable()
    assert has_timer(one, TimerKind.AUTO_COMMIT)
    assert one.group.time_to_next_poll_ms() <= 2_000
