"""The network client of a consumer's two threads, as ConsumerNetworkClientTest of Kafka requires it."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any

import pytest

from tests.fake_client_requests import NumberedRequests
from zkconsumer.base.timer import FOREVER_MS, Timer
from zkconsumer.errors import (
    AuthenticationException,
    DisconnectException,
    InvalidTopicException,
    KafkaException,
    TimeoutException,
    TopicAuthorizationException,
    UnsupportedVersionException,
    WakeupException,
)
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import ClientRequest, ClientResponse, RequestBuilder
from zkconsumer.kafka.net.consumer_network_client import MAX_POLL_TIMEOUT_MS, ConsumerNetworkClient
from zkconsumer.kafka.net.request_future import RequestFuture
from zkconsumer.kafka.supported_versions import ASSUMED_FOR_0_9, SupportedVersions
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.wire.schemas import HEARTBEAT
from zkconsumer.wire.schemas.heartbeat import HeartbeatRequest, HeartbeatResponse

NODE = Node(0, "localhost", 1969)
RETRY_MS, REQUEST_MS = 100, 1000
HEARTBEAT_BUILDER = RequestBuilder(HEARTBEAT, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"))
OK = HeartbeatResponse(error_code=0)
JOIN_S = 30


class FakeKafkaClient(NumberedRequests):
    """A ``KafkaClient`` without a network.  ``prepared`` answers a request as soon as it is sent."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.prepared: deque[Any] = deque()
        self.in_flight: deque[ClientRequest] = deque()
        self.completed: deque[ClientResponse] = deque()
        self.unready_until_ms = 0
        self.failed_until_ms = 0
        self.error: AuthenticationException | None = None
        self.delay_ms = FOREVER_MS
        self.ready_calls = 0
        self.polls: list[int] = []
        self.receives_more = False
        self.in_flight_count: int | None = None
        self.is_closed = False
        self.blocks = False
        self.woken = threading.Semaphore(0)
        self.blocked = threading.Semaphore(0)

    def ready(self, node: Node, now_ms: int) -> bool:
        self.ready_calls += 1
        return now_ms >= self.unready_until_ms and now_ms >= self.failed_until_ms

    def send(self, request: ClientRequest, now_ms: int) -> None:
        if self.prepared:
            self.completed.append(ClientResponse(request, now_ms, 1, self.prepared.popleft()))
        else:
            self.in_flight.append(request)

    def respond(self, body: Any) -> None:
        """Answer the oldest request in flight at the next poll."""
        request = self.in_flight.popleft()
        self.completed.append(ClientResponse(request, self.clock.now_ms(), 1, body))

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        self.polls.append(timeout_ms)
        if self.blocks and timeout_ms > 0 and not self.completed:
            self.blocked.release()
            assert self.woken.acquire(timeout=JOIN_S), "nothing has ended this poll"
        done = list(self.completed)
        self.completed.clear()
        for response in done:
            response.on_complete()
        return done

    def wakeup(self) -> None:
        self.woken.release()

    def disconnect(self, node_id: int) -> None:
        while self.in_flight:
            request = self.in_flight.popleft()
            self.completed.append(ClientResponse(request, self.clock.now_ms(), 1, was_disconnected=True))

    def close(self) -> None:
        self.is_closed = True

    def least_loaded_node(self, now_ms: int) -> Node | None:
        return NODE

    def receive_more(self, now_ms: int) -> bool:
        return self.receives_more

    def has_ready_nodes(self, now_ms: int) -> bool:
        return now_ms >= self.unready_until_ms

    def connection_failed(self, node: Node) -> bool:
        return self.clock.now_ms() < self.failed_until_ms

    def connection_delay_ms(self, node: Node, now_ms: int) -> int:
        return max(0, self.failed_until_ms - now_ms)

    def poll_delay_ms(self, node: Node, now_ms: int) -> int:
        return self.delay_ms

    def authentication_error(self, node: Node) -> AuthenticationException | None:
        return self.error

    def supported_versions(self, node: Node) -> SupportedVersions | None:
        return ASSUMED_FOR_0_9

    def in_flight_request_count(self, node_id: int | None = None) -> int:
        return len(self.in_flight) + len(self.completed) if self.in_flight_count is None else self.in_flight_count

    def has_in_flight_requests(self, node_id: int | None = None) -> bool:
        return self.in_flight_request_count() > 0


class FakeClusterMetadata:
    """A ``ConsumerClusterMetadata`` whose error is raised once."""

    def __init__(self) -> None:
        self.update_version = 0
        self.update_requested = False
        self.due_ms = 1000
        self.error: Exception | None = None

    def request_update(self) -> int:
        self.update_requested = True
        return self.update_version

    def time_to_next_update(self, now_ms: int) -> int:
        return self.due_ms

    def maybe_throw_any_exception(self) -> None:
        error, self.error = self.error, None
        if error is not None:
            raise error


class Condition:
    """A ``PollCondition``."""

    def __init__(self, blocks: bool) -> None:
        self.blocks = blocks

    def should_block(self) -> bool:
        return self.blocks


class Consumer:
    """A client under test with what it uses."""

    def __init__(self) -> None:
        self.clock = ManualClock()
        self.kafka = FakeKafkaClient(self.clock)
        self.metadata = FakeClusterMetadata()
        self.client = ConsumerNetworkClient(
            self.kafka, self.metadata, self.clock, retry_backoff_ms=RETRY_MS, request_timeout_ms=REQUEST_MS
        )

    def timer(self, timeout_ms: int = 0) -> Timer:
        return Timer(self.clock, timeout_ms)

    def send(self, timeout_ms: int | None = None) -> RequestFuture[ClientResponse]:
        return self.client.send(NODE, HEARTBEAT_BUILDER, timeout_ms)

    def pending(self) -> tuple[int, int]:
        return self.client.pending_request_count(), self.client.pending_request_count(NODE)


@pytest.fixture
def consumer() -> Consumer:
    return Consumer()


def started(work: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def joined(*threads: threading.Thread) -> None:
    for thread in threads:
        thread.join(JOIN_S)
        assert not thread.is_alive()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + JOIN_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


# --- requests -------------------------------------------------------------------------------------------------------


def test_a_request_is_pending_until_its_response_arrives(consumer: Consumer) -> None:
    consumer.kafka.prepared.append(OK)
    future = consumer.send()
    assert consumer.pending() == (1, 1)
    assert not future.is_done
    assert consumer.client.poll_future(future)
    assert future.succeeded
    assert future.value.body is OK
    assert consumer.pending() == (0, 0)


def test_requests_within_the_backoff_after_a_failed_login_fail_with_its_error(consumer: Consumer) -> None:
    error = AuthenticationException("bad password")
    consumer.kafka.error, consumer.kafka.failed_until_ms = error, consumer.clock.now_ms() + 300
    first = consumer.send()
    consumer.client.poll_future(first)
    assert first.exception is error
    consumer.clock.move(30)
    second = consumer.send()
    consumer.client.poll_future(second)
    assert second.exception is error
    with pytest.raises(AuthenticationException, match="bad password"):
        consumer.client.maybe_throw_auth_failure(NODE)


def test_several_requests_of_a_node_are_awaited_together(consumer: Consumer) -> None:
    consumer.kafka.prepared += [OK, OK]
    futures = [consumer.send(), consumer.send()]
    assert consumer.pending() == (2, 2)
    assert consumer.client.await_pending_requests(NODE, consumer.timer(FOREVER_MS))
    assert all(future.succeeded for future in futures)


def test_the_wait_for_pending_requests_ends_with_its_timer(consumer: Consumer) -> None:
    consumer.send()
    consumer.client.poll_no_wakeup()
    timer = consumer.timer(10)
    consumer.clock.move(10)
    timer.update()
    assert not consumer.client.await_pending_requests(NODE, timer)


def test_a_disconnect_fails_unsent_requests(consumer: Consumer) -> None:
    consumer.kafka.unready_until_ms = FOREVER_MS
    future = consumer.send()
    assert consumer.client.has_pending_requests(NODE)
    assert not consumer.kafka.has_in_flight_requests()
    consumer.client.disconnect_async(NODE)
    consumer.client.poll_no_wakeup()
    assert isinstance(future.exception, DisconnectException)
    assert not consumer.client.has_pending_requests()


def test_a_disconnect_fails_requests_in_flight(consumer: Consumer) -> None:
    future = consumer.send()
    consumer.client.poll_no_wakeup()
    assert consumer.client.has_pending_requests(NODE)
    assert consumer.kafka.has_in_flight_requests()
    consumer.client.disconnect_async(NODE)
    consumer.client.poll_no_wakeup()
    assert isinstance(future.exception, DisconnectException)
    assert future.is_retriable


def test_a_request_that_cannot_be_sent_in_time_fails(consumer: Consumer) -> None:
    consumer.kafka.unready_until_ms = consumer.clock.now_ms() + 1000
    future = consumer.send(500)
    consumer.client.poll_no_wakeup()
    assert consumer.client.has_pending_requests()
    assert not consumer.kafka.has_in_flight_requests()
    consumer.clock.move(500)
    consumer.client.poll_no_wakeup()
    assert not future.is_done
    consumer.clock.move(1)
    consumer.client.poll_no_wakeup()
    assert not consumer.client.has_pending_requests()
    assert isinstance(future.exception, TimeoutException)


def test_unsent_requests_expire_in_their_order_or_fail_with_their_node(consumer: Consumer) -> None:
    consumer.kafka.unready_until_ms = FOREVER_MS
    first = consumer.send(10)
    assert consumer.pending() == (1, 1)
    consumer.clock.move(11)
    second = consumer.send(10)
    assert consumer.pending() == (2, 2)
    consumer.client.poll(consumer.timer())
    assert first.failed
    assert not second.is_done
    assert consumer.pending() == (1, 1)

    consumer.kafka.unready_until_ms = 0
    consumer.kafka.prepared.append(OK)
    consumer.client.poll_future(second)
    assert second.value.body is OK

    consumer.kafka.unready_until_ms = FOREVER_MS
    third = consumer.send(10)
    assert consumer.pending() == (1, 1)
    consumer.kafka.failed_until_ms = consumer.clock.now_ms() + 1
    consumer.client.poll(consumer.timer())
    assert isinstance(third.exception, DisconnectException)
    assert consumer.pending() == (0, 0)


def test_requests_are_sent_while_their_node_is_ready(consumer: Consumer) -> None:
    consumer.send()
    consumer.send()
    consumer.kafka.unready_until_ms = FOREVER_MS
    consumer.client.try_send(consumer.clock.now_ms())
    assert consumer.kafka.ready_calls == 1, "a node that is not ready is asked once"
    assert len(consumer.kafka.in_flight) == 0
    assert consumer.pending() == (2, 2)
    consumer.kafka.unready_until_ms = consumer.kafka.ready_calls = 0
    consumer.client.try_send(consumer.clock.now_ms())
    assert consumer.kafka.ready_calls == 2
    assert len(consumer.kafka.in_flight) == 2
    assert consumer.pending() == (2, 2)


def test_a_request_without_a_common_version_fails_with_that_error(consumer: Consumer) -> None:
    future = consumer.send()
    consumer.client.poll_no_wakeup()
    request = consumer.kafka.in_flight.popleft()
    error = UnsupportedVersionException("old")
    consumer.kafka.completed.append(ClientResponse(request, 0, version_mismatch=error))
    consumer.client.poll_no_wakeup()
    assert future.exception is error


def test_requests_are_transmitted_without_firing_anything(consumer: Consumer) -> None:
    consumer.kafka.prepared.append(OK)
    consumer.metadata.error = KafkaException("metadata")
    future = consumer.send()
    consumer.client.wakeup()
    consumer.client.transmit_sends(consumer.clock.now_ms())
    assert not future.is_done
    with pytest.raises(WakeupException):
        consumer.client.poll(consumer.timer())
    assert future.succeeded


def test_nothing_is_transmitted_without_a_pending_request(consumer: Consumer) -> None:
    consumer.client.transmit_sends(consumer.clock.now_ms())
    assert consumer.kafka.polls == []


def test_only_bytes_are_received_while_a_response_arrives(consumer: Consumer) -> None:
    consumer.send()
    consumer.client.transmit_sends(consumer.clock.now_ms())
    assert (len(consumer.kafka.in_flight), consumer.kafka.polls) == (1, [0])
    consumer.kafka.receives_more = True
    consumer.client.transmit_sends(consumer.clock.now_ms())
    assert consumer.kafka.polls == [0]
    consumer.kafka.receives_more = False
    consumer.client.transmit_sends(consumer.clock.now_ms())
    assert consumer.kafka.polls == [0, 0]
    consumer.kafka.receives_more = True
    consumer.send()
    consumer.client.transmit_sends(consumer.clock.now_ms())
    assert len(consumer.kafka.in_flight) == 2, "a new request is sent at once"


# --- waits ----------------------------------------------------------------------------------------------------------


def test_a_poll_does_not_wait_when_its_condition_is_satisfied(consumer: Consumer) -> None:
    consumer.client.poll(consumer.timer(FOREVER_MS), Condition(False))
    assert consumer.kafka.polls == [0]


def test_a_poll_waits_until_its_timer_while_its_condition_is_not_satisfied(consumer: Consumer) -> None:
    consumer.kafka.in_flight_count = 1
    consumer.client.poll(consumer.timer(4000), Condition(True))
    consumer.client.poll(consumer.timer(FOREVER_MS), Condition(True))
    assert consumer.kafka.polls == [4000, MAX_POLL_TIMEOUT_MS]


def test_a_poll_waits_for_the_retry_backoff_when_nothing_is_in_flight(consumer: Consumer) -> None:
    consumer.client.poll(consumer.timer(FOREVER_MS), Condition(True))
    assert consumer.kafka.polls == [RETRY_MS]


def test_a_poll_waits_no_longer_than_an_unsent_request_must(consumer: Consumer) -> None:
    consumer.kafka.unready_until_ms = FOREVER_MS
    consumer.kafka.in_flight_count = 1
    consumer.kafka.delay_ms = 30
    consumer.send()
    consumer.client.poll(consumer.timer(4000))
    assert consumer.kafka.polls == [30]


def test_a_wakeup_is_raised_once_and_loses_no_response(consumer: Consumer) -> None:
    future = consumer.send()
    consumer.client.wakeup()
    with pytest.raises(WakeupException):
        consumer.client.poll(consumer.timer())
    consumer.kafka.respond(OK)
    consumer.client.poll_future(future)
    assert future.succeeded


def test_a_poll_without_wakeups_leaves_the_wakeup_to_the_next_one(consumer: Consumer) -> None:
    consumer.client.wakeup()
    consumer.client.poll_no_wakeup()
    with pytest.raises(WakeupException):
        consumer.client.poll(consumer.timer())


def test_a_wakeup_that_another_poll_has_taken_from_the_network_ends_the_wait_nevertheless(consumer: Consumer) -> None:
    consumer.kafka.in_flight_count = 1
    consumer.client.wakeup()
    consumer.client.poll(consumer.timer(4000), is_wakeup_disabled=True)
    with pytest.raises(WakeupException):
        consumer.client.poll(consumer.timer(4000))
    assert consumer.kafka.polls == [4000, 0]


def test_disabled_wakeups_are_never_raised(consumer: Consumer) -> None:
    consumer.client.disable_wakeups()
    consumer.client.wakeup()
    consumer.client.poll(consumer.timer())
    consumer.client.maybe_trigger_wakeup()


# --- errors of the metadata -----------------------------------------------------------------------------------------


def check_metadata_error(consumer: Consumer, error: Exception) -> None:
    consumer.metadata.error = error
    with pytest.raises(type(error)) as caught:
        consumer.client.poll(consumer.timer())
    assert caught.value is error
    consumer.client.poll(consumer.timer())


def test_a_failed_login_of_the_metadata_is_raised_once(consumer: Consumer) -> None:
    check_metadata_error(consumer, AuthenticationException("bad password"))


def test_an_invalid_topic_of_the_metadata_is_raised(consumer: Consumer) -> None:
    check_metadata_error(consumer, InvalidTopicException("a b"))


def test_a_forbidden_topic_of_the_metadata_is_raised(consumer: Consumer) -> None:
    check_metadata_error(consumer, TopicAuthorizationException("clicks"))


def test_any_fatal_error_of_the_metadata_is_raised(consumer: Consumer) -> None:
    check_metadata_error(consumer, KafkaException("metadata"))


def test_the_wait_for_metadata_ends_with_its_timer(consumer: Consumer) -> None:
    timer = consumer.timer(10)
    consumer.clock.move(10)
    assert not consumer.client.await_metadata_update(timer)
    assert consumer.metadata.update_requested


def test_the_wait_for_metadata_ends_with_the_update(consumer: Consumer) -> None:
    def update(timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        consumer.metadata.update_version += 1
        return []

    consumer.kafka.poll = update  # type: ignore[method-assign]
    assert consumer.client.await_metadata_update(consumer.timer(FOREVER_MS))


def test_fresh_metadata_are_not_awaited(consumer: Consumer) -> None:
    assert consumer.client.ensure_fresh_metadata(consumer.timer())
    assert consumer.kafka.polls == []
    consumer.metadata.due_ms = 0
    assert not consumer.client.ensure_fresh_metadata(consumer.timer())
    assert consumer.kafka.polls != []


# --- nodes ----------------------------------------------------------------------------------------------------------


def test_a_node_is_unavailable_during_its_backoff(consumer: Consumer) -> None:
    assert not consumer.client.is_unavailable(NODE)
    consumer.kafka.failed_until_ms = consumer.clock.now_ms() + 50
    assert consumer.client.is_unavailable(NODE)
    consumer.clock.move(50)
    assert not consumer.client.is_unavailable(NODE)
    consumer.client.try_connect(NODE)
    assert consumer.kafka.ready_calls == 1
    assert consumer.client.least_loaded_node() == NODE
    assert consumer.client.has_ready_nodes(consumer.clock.now_ms())
    assert consumer.client.default_request_timeout_ms == REQUEST_MS
    assert consumer.client.supported_versions(NODE) is ASSUMED_FOR_0_9
    consumer.client.close()
    assert consumer.kafka.is_closed


# --- two threads ----------------------------------------------------------------------------------------------------


def test_a_disconnect_of_another_thread_wakes_up_the_poll(consumer: Consumer) -> None:
    consumer.kafka.unready_until_ms = FOREVER_MS
    consumer.kafka.blocks = True
    future = consumer.send()
    poller = started(lambda: consumer.client.poll_future(future))
    assert consumer.kafka.blocked.acquire(timeout=JOIN_S)
    consumer.kafka.blocks = False
    consumer.client.disconnect_async(NODE)
    joined(poller)
    assert isinstance(future.exception, DisconnectException)


def test_a_request_of_another_thread_wakes_up_the_poll(consumer: Consumer) -> None:
    consumer.kafka.blocks = True
    poller = started(lambda: consumer.client.poll(consumer.timer(FOREVER_MS)))
    assert consumer.kafka.blocked.acquire(timeout=JOIN_S)
    consumer.kafka.prepared.append(OK)
    future = consumer.send()
    joined(poller)
    consumer.kafka.blocks = False
    consumer.client.poll_no_wakeup()
    assert future.succeeded


def test_a_request_of_another_thread_is_tried_before_it_fails_with_its_node(consumer: Consumer) -> None:
    """The failed state of a node ends only when a poll asks for the node, which it does for unsent requests."""
    consumer.kafka.blocks = True
    consumer.kafka.failed_until_ms = consumer.clock.now_ms() + 50
    thread = started(lambda: consumer.client.poll(consumer.timer(60_000)))
    assert consumer.kafka.blocked.acquire(timeout=JOIN_S)
    future = consumer.send()
    thread.join(JOIN_S)
    assert not future.is_done
    assert consumer.kafka.ready_calls == 1
    consumer.kafka.blocks = False
    consumer.client.poll(consumer.timer())
    assert isinstance(future.exception, DisconnectException), "tried, and the node is still in its back-off"


def test_a_request_without_a_poll_of_another_thread_wakes_nothing(consumer: Consumer) -> None:
    consumer.send()
    assert not consumer.kafka.woken.acquire(blocking=False)


def test_a_future_that_another_thread_completes_ends_the_wait_for_it(consumer: Consumer) -> None:
    """One thread waits in the network; a second one waits for the lock, and then must not wait for its response."""
    future = consumer.send()
    consumer.client.poll_no_wakeup()
    consumer.kafka.blocks = True
    first = started(lambda: consumer.client.poll(consumer.timer(FOREVER_MS)))
    assert consumer.kafka.blocked.acquire(timeout=JOIN_S)
    second = started(lambda: consumer.client.poll_future(future))
    wait_until(consumer.client._lock.has_waiting_threads)
    consumer.kafka.respond(OK)
    consumer.kafka.wakeup()
    joined(first, second)
    assert future.succeeded


def test_a_response_is_freed_with_its_last_user(consumer: Consumer) -> None:
    """A response of many megabytes must not wait for the garbage collector."""

    class Body:
        pass

    body = Body()
    freed = weakref.ref(body)
    consumer.kafka.prepared.append(body)
    del body
    gc.disable()
    try:
        future = consumer.send()
        consumer.client.poll_future(future)
        assert future.value.body is freed() is not None
        del future
        assert freed() is None
    finally:
        gc.enable()


def test_completions_are_fired_without_the_lock(consumer: Consumer) -> None:
    consumer.kafka.prepared.append(OK)
    future = consumer.send()
    seen: list[int] = []

    def listen(_: ClientResponse) -> None:
        other = started(lambda: seen.append(consumer.client.pending_request_count()))
        other.join(JOIN_S)

    future.add_listener(listen)
    consumer.client.poll_future(future)
    assert seen == [0], "another thread got the lock meanwhile"


def test_a_listener_may_send_the_next_request(consumer: Consumer) -> None:
    consumer.kafka.prepared += [OK, OK]
    following: list[RequestFuture[ClientResponse]] = []
    future = consumer.send()
    future.add_listener(lambda _: following.append(consumer.send()))
    consumer.client.poll_future(future)
    consumer.client.poll_future(following[0])
    assert following[0].succeeded


def test_a_thread_that_polls_in_a_loop_does_not_keep_the_heartbeat_thread_out(consumer: Consumer) -> None:
    order: list[int] = []

    def poll_in_a_loop() -> None:
        while len(order) < 20:
            consumer.client.poll_no_wakeup()

    def slow_poll(timeout_ms: int, now_ms: int) -> list[ClientResponse]:
        order.append(threading.get_ident())
        wait_until(lambda: len(order) >= 20 or consumer.client._lock.has_waiting_threads())
        return []

    consumer.kafka.poll = slow_poll  # type: ignore[method-assign]
    joined(started(poll_in_a_loop), started(poll_in_a_loop))
    assert len(set(order)) == 2
    assert all(one != next_one for one, next_one in itertools.pairwise(order[:20])), "they take turns"
