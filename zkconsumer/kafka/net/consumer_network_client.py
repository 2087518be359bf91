"""``ConsumerNetworkClient``: the network client for the threads of a consumer, as ``ConsumerNetworkClient`` of Kafka.

The user's thread and the heartbeat thread use it at the same time.

    send --> unsent (by node) --poll, when the node is ready--> NetworkClient --> response --> pending completions
                |                                                                                     |
                '-- the node failed, or the request expired ----------------------------------------->|
                                                                       fired outside of the lock: RequestFuture

- ``send`` never blocks: it stores the request.  Only ``poll`` and its variants use the network; one thread at a time,
  under ``_lock``, which is fair (``FairLock``), so a thread that polls in a loop does not keep the other out.
- A request ends in one of the threads that poll, not necessarily the one that waits for it.  So a thread looks at its
  condition under the lock before it waits, and a thread that has fired completions wakes up the one that polls.
- Completions are queued under the lock and fired without it.  So a listener may send requests, and take other locks.
- What happens when an answer is lost: the network client ends the request by its time-out (``DisconnectException``); an
  unsent request expires after its own time-out (``TimeoutException``), or fails with its node.
- ``wakeup`` sets a flag; the ``poll`` that sees it after its wait raises ``WakeupException``, once.  Before that it has
  queued the completions, so no response is lost.

Invariants: ``_poller_waits`` is True only while a thread is inside ``poll`` with the lock, from before it looks at the
unsent requests until its wait is over; a thread that adds work and sees False may rely on the next ``poll`` to see the
work.  ``is_wakeup_requested`` is reset only by the exception.  A future in ``_pending_completions`` is not done.

Differences from Kafka 3.0:

- A request that another thread sends while this one waits is tried first, and does not fail because of the last
  connection of its node.  In Kafka it fails at once, so a node that failed once would never be connected again by two
  threads of which one sends and the other polls.
- ``send`` wakes up a poll only if there is one, since each wake-up makes the next poll return early.
- A poll looks at the flag of ``wakeup`` also before it waits: in Kafka a poll of the heartbeat thread may take the
  wake-up of the network client, and the user's thread then waits for its whole time-out.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from dataclasses import dataclass
from typing import Any, Protocol

from zkconsumer.base.clock import Clock
from zkconsumer.base.fair_lock import FairLock
from zkconsumer.base.timer import FOREVER_MS, Timer
from zkconsumer.errors import AuthenticationException, DisconnectException, TimeoutException, WakeupException
from zkconsumer.kafka.metadata.node import Node
from zkconsumer.kafka.net.client_request import (
    ClientRequest,
    ClientResponse,
    RequestBuilder,
    RequestCompletionHandler,
)
from zkconsumer.kafka.net.request_future import RequestFuture
from zkconsumer.kafka.supported_versions import SupportedVersions

log = logging.getLogger("zkconsumer.kafka")

MAX_POLL_TIMEOUT_MS = 5_000
"""The longest wait of one poll, whatever the settings are."""


class KafkaClient(Protocol):
    """The part of ``NetworkClient`` that is used here."""

    def new_client_request(
        self,
        node_id: int,
        builder: RequestBuilder,
        created_ms: int,
        *,
        expects_response: bool = True,
        request_timeout_ms: int | None = None,
        callback: RequestCompletionHandler | None = None,
    ) -> ClientRequest: ...

    def ready(self, node: Node, now_ms: int) -> bool: ...

    def send(self, request: ClientRequest, now_ms: int) -> None: ...

    def poll(self, timeout_ms: int, now_ms: int) -> list[ClientResponse]: ...

    def receive_more(self, now_ms: int) -> bool: ...

    def wakeup(self) -> None: ...

    def disconnect(self, node_id: int) -> None: ...

    def close(self) -> None: ...

    def least_loaded_node(self, now_ms: int) -> Node | None: ...

    def has_ready_nodes(self, now_ms: int) -> bool: ...

    def connection_failed(self, node: Node) -> bool: ...

    def connection_delay_ms(self, node: Node, now_ms: int) -> int: ...

    def poll_delay_ms(self, node: Node, now_ms: int) -> int: ...

    def authentication_error(self, node: Node) -> AuthenticationException | None: ...

    def supported_versions(self, node: Node) -> SupportedVersions | None: ...

    def in_flight_request_count(self, node_id: int | None = None) -> int: ...

    def has_in_flight_requests(self, node_id: int | None = None) -> bool: ...


class ConsumerClusterMetadata(Protocol):
    """The part of the cluster metadata that is used here."""

    @property
    def update_version(self) -> int:
        """How many updates there were."""

    @property
    def update_requested(self) -> bool:
        """Whether an update was requested and has not arrived."""

    def request_update(self) -> int:
        """Request an update as soon as possible; returns the present ``update_version``."""

    def time_to_next_update(self, now_ms: int) -> int:
        """How long until an update is due, in ms."""

    def maybe_throw_any_exception(self) -> None:
        """Raise the error that the user's thread must see, once: a failed login, an invalid or forbidden topic."""


class PollCondition(Protocol):
    """What a caller of ``poll`` waits for; a ``RequestFuture`` is one."""

    def should_block(self) -> bool:
        """Whether the caller still waits.  Called with the lock of the client: take no other lock here."""


@dataclass(slots=True, eq=False)
class FutureCompletion:
    """The end of a request, until it is passed to its future outside of the lock.

    ``future``: None afterwards, as ``response``.  A response refers to its request, and that to this object: without
    it, a cycle would keep the bytes of each response until Python's garbage collector runs.
    """

    pending: deque[FutureCompletion]
    future: RequestFuture[ClientResponse] | None
    response: ClientResponse | None = None
    error: Exception | None = None

    def on_complete(self, response: ClientResponse) -> None:
        """The request ended; called with the lock."""
        self.response = response
        self.pending.append(self)

    def on_failure(self, error: Exception) -> None:
        """The request was not sent; called with the lock."""
        self.error = error
        self.pending.append(self)

    def fire(self) -> None:
        """End the future; once: a request is sent and answered twice if an exception of a signal handler has ended the
        call that sent it."""
        future, response = self.future, self.response
        if future is None:
            return
        if self.error is not None:
            future.raise_(self.error)
        else:
            assert response is not None, "a completion is pending when it has an error or a response"
            if response.authentication_error is not None:
                future.raise_(response.authentication_error)
            elif response.was_disconnected:
                why = "was closed, since a request was late" if response.timed_out else "ended"
                future.raise_(DisconnectException(f"{response.request}: the connection {why} before the response"))
            elif response.version_mismatch is not None:
                future.raise_(response.version_mismatch)
            else:
                future.complete(response)
        self.future = self.response = None


@dataclass(slots=True, eq=False)
class UnsentRequest:
    """A request that waits for its node.

    ``is_tried``: ``try_send`` has seen it, and so has tried to connect to its node.
    """

    request: ClientRequest
    completion: FutureCompletion
    is_tried: bool = False


class UnsentRequests:
    """The unsent requests by node, in the order of ``send``.  Any thread may call any method."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self.by_node: dict[Node, deque[UnsentRequest]] = {}
        """Changed only here; no entry is empty."""

    def put(self, node: Node, request: UnsentRequest) -> None:
        """Append a request."""
        with self._mutex:
            self.by_node.setdefault(node, deque()).append(request)

    def nodes(self) -> list[Node]:
        """The nodes that have unsent requests."""
        with self._mutex:
            return list(self.by_node)

    def first(self, node: Node) -> UnsentRequest | None:
        """The oldest request of a node."""
        with self._mutex:
            requests = self.by_node.get(node)
            return requests[0] if requests else None

    def remove_first(self, node: Node) -> None:
        """Remove the oldest request of a node, which must have one."""
        with self._mutex:
            self.by_node[node].popleft()
            if not self.by_node[node]:
                del self.by_node[node]

    def remove(self, node: Node) -> list[UnsentRequest]:
        """Remove and return all requests of a node."""
        with self._mutex:
            return list(self.by_node.pop(node, ()))

    def mark_tried(self, node: Node) -> None:
        """``try_send`` looks at the requests of this node."""
        with self._mutex:
            for request in self.by_node.get(node, ()):
                request.is_tried = True

    def remove_tried(self, node: Node) -> list[UnsentRequest]:
        """Remove and return the requests of a node that were tried."""
        with self._mutex:
            requests = self.by_node.pop(node, deque())
            new = deque(each for each in requests if not each.is_tried)
            if new:
                self.by_node[node] = new
            return [each for each in requests if each.is_tried]

    def remove_expired(self, now_ms: int) -> list[UnsentRequest]:
        """Remove and return the requests that have waited for longer than their time-out."""
        expired: list[UnsentRequest] = []
        with self._mutex:
            for node, requests in list(self.by_node.items()):
                while requests and now_ms - requests[0].request.created_ms > requests[0].request.request_timeout_ms:
                    expired.append(requests.popleft())
                if not requests:
                    del self.by_node[node]
        return expired

    def count(self, node: Node | None = None) -> int:
        """How many requests a node has, or all nodes."""
        with self._mutex:
            return sum(map(len, self.by_node.values())) if node is None else len(self.by_node.get(node, ()))


class ConsumerNetworkClient:
    """See the module.  All methods may be called from any thread; times are ms.

    ``max_poll_timeout_ms``: the longest wait of one poll, which is at most ``MAX_POLL_TIMEOUT_MS``; a consumer passes
    its heartbeat interval.
    """

    def __init__(
        self,
        client: KafkaClient,
        metadata: ConsumerClusterMetadata,
        clock: Clock,
        *,
        retry_backoff_ms: int,
        request_timeout_ms: int,
        max_poll_timeout_ms: int = MAX_POLL_TIMEOUT_MS,
    ) -> None:
        self._client = client
        self._metadata = metadata
        self._clock = clock
        self._retry_backoff_ms = retry_backoff_ms
        self._request_timeout_ms = request_timeout_ms
        self._max_poll_timeout_ms = min(max_poll_timeout_ms, MAX_POLL_TIMEOUT_MS)
        self.unsent = UnsentRequests()
        self._lock = FairLock()
        self._pending_completions: deque[FutureCompletion] = deque()
        self._pending_disconnects: deque[Node] = deque()
        self._poller_waits = False
        self.is_wakeup_requested = False
        """``wakeup`` was called, and no poll has raised since then."""
        self._are_wakeups_disabled = False

    @property
    def default_request_timeout_ms(self) -> int:
        """The time-out of requests that have none of their own."""
        return self._request_timeout_ms

    # --- requests ---------------------------------------------------------------------------------------------------

    def send(
        self, node: Node, builder: RequestBuilder, request_timeout_ms: int | None = None
    ) -> RequestFuture[ClientResponse]:
        """Send a request as soon as a poll finds the node ready.

        The future fails with ``DisconnectException``, ``TimeoutException`` (not sent in time),
        ``AuthenticationException`` or ``UnsupportedVersionException``.
        """
        future: RequestFuture[ClientResponse] = RequestFuture()
        completion = FutureCompletion(self._pending_completions, future)
        timeout_ms = self._request_timeout_ms if request_timeout_ms is None else request_timeout_ms
        request = self._client.new_client_request(
            node.id, builder, self._clock.now_ms(), request_timeout_ms=timeout_ms, callback=completion.on_complete
        )
        self.unsent.put(node, UnsentRequest(request, completion))
        self.wake_up_poller()
        return future

    def pending_request_count(self, node: Node | None = None) -> int:
        """How many requests to a node, or to all, are unsent or in flight."""
        self.wake_up_poller()
        self.wake_up_poller()
        with self._lock:
            return self.unsent.count(node) + self._client.in_flight_request_count(None if node is None else node.id)

    def has_pending_requests(self, node: Node | None = None) -> bool:
        """Whether any request to a node, or to any, is unsent or in flight."""
        if self.unsent.count(node):
            return True
        with self._lock:
            return self._client.has_in_flight_requests(None if node is None else node.id)

    def await_pending_requests(self, node: Node, timer: Timer) -> bool:
        """Poll until no request to the node is pending; returns whether that is so before the timer expires."""
        while self.has_pending_requests(node) and not timer.is_expired:
            self.poll(timer)
        return not self.has_pending_requests(node)

    # --- polls ------------------------------------------------------------------------------------------------------

    def poll_future(self, future: RequestFuture[Any], timer: Timer | None = None) -> bool:
        """Poll until the future is done or the timer expires (None: no limit); returns whether it is done."""
        timer = Timer(self._clock, FOREVER_MS) if timer is None else timer
        while True:
            self.poll(timer, future)
            if future.is_done or timer.is_expired:
                return future.is_done

    def poll(self, timer: Timer, condition: PollCondition | None = None, *, is_wakeup_disabled: bool = False) -> None:
        """Send what can be sent, and process what arrives; wait at most until the timer expires.

        It waits only while ``condition`` holds, if there is one, and no completion is pending.  Raises
        ``WakeupException`` after ``wakeup``, unless disabled, and the errors of the metadata.
        """
        self._fire_pending_completions()
        with self._lock:
            self._poller_waits = True
            try:
                self._poll(timer, condition, is_wakeup_disabled=is_wakeup_disabled)
            finally:
                self._poller_waits = False
            if self.unsent.by_node:
                # Before the next ready(), which begins another connection and so ends the failed state.
                self._check_disconnects(timer.now_ms)
            if not is_wakeup_disabled:
                # After the disconnects, so that their completions are fired by the next poll.
                self.maybe_trigger_wakeup()
            if self.unsent.by_node:
                self.try_send(timer.now_ms)
                self._fail_expired_requests(timer.now_ms)
        self._fire_pending_completions()
        self._metadata.maybe_throw_any_exception()

    def poll_no_wakeup(self) -> None:
        """Poll without waiting, and without ``WakeupException``."""
        self.poll(Timer(self._clock, 0), is_wakeup_disabled=True)

    def transmit_sends(self, now_ms: int) -> None:
        """If requests are pending, send and receive what is possible now, without waiting.

        Raises nothing: no completion is fired, and no wake-up and no error seen.
        """
        with self._lock:
            if self.unsent.by_node:
                self.try_send(now_ms)
            if not self._client.receive_more(now_ms) and self._client.has_in_flight_requests():
                self._client.poll(0, now_ms)

    def await_metadata_update(self, timer: Timer) -> bool:
        """Request an update of the metadata, and poll until it has arrived; False: the timer expired before."""
        version = self._metadata.request_update()
        while True:
            self.poll(timer)
            if self._metadata.update_version != version or timer.is_expired:
                return self._metadata.update_version > version

    def ensure_fresh_metadata(self, timer: Timer) -> bool:
        """If an update of the metadata is requested or due, wait for it; False: the timer expired before."""
        if self._metadata.update_requested or self._metadata.time_to_next_update(timer.now_ms) == 0:
            return self.await_metadata_update(timer)
        return True

    def try_send(self, now_ms: int) -> int:
        """Send the unsent requests of ready nodes, with the lock; returns how long the next poll may wait for it."""
        delay_ms = self._max_poll_timeout_ms
        for node in self.unsent.nodes():
            self.unsent.mark_tried(node)
            delay_ms = min(delay_ms, self._client.poll_delay_ms(node, now_ms))
            while (unsent := self.unsent.first(node)) is not None and self._client.ready(node, now_ms):
                self._client.send(unsent.request, now_ms)
                self.unsent.remove_first(node)
        return delay_ms

    # --- wake-ups ---------------------------------------------------------------------------------------------------

    def wakeup(self) -> None:
        """Make the poll of another thread, or else the next one, raise ``WakeupException``."""
        log.debug("wakeup-requested")
        self.is_wakeup_requested = True
        self._client.wakeup()

    def wake_up_poller(self) -> None:
        """Let the poll of another thread return early, if there is one: it has something to do, or this thread must use
        the client."""
        if self._poller_waits:
            self._client.wakeup()

    def disable_wakeups(self) -> None:
        """Never raise ``WakeupException`` again: the consumer closes."""
        self._are_wakeups_disabled = True

    def maybe_trigger_wakeup(self) -> None:
        """Raise ``WakeupException`` if ``wakeup`` was called and wake-ups are not disabled."""
        if self.is_wakeup_requested and not self._are_wakeups_disabled:
            self.is_wakeup_requested = False
            raise WakeupException("wakeup() was called")

    # --- nodes ------------------------------------------------------------------------------------------------------

    def least_loaded_node(self) -> Node | None:
        """The node with the fewest requests in flight; None: no node can be used now."""
        with self._lock:
            return self._client.least_loaded_node(self._clock.now_ms())

    def has_ready_nodes(self, now_ms: int) -> bool:
        """Whether any connection is ready and not throttled."""
        with self._lock:
            return self._client.has_ready_nodes(now_ms)

    def supported_versions(self, node: Node) -> SupportedVersions | None:
        """The versions of the node; None: it is not ready now.  Unlike the other methods it never waits for a poll."""
        return self._client.supported_versions(node)

    def is_unavailable(self, node: Node) -> bool:
        """Whether the node is disconnected, and its back-off is not over."""
        self.wake_up_poller()
        with self._lock:
            return (
                self._client.connection_failed(node)
                and self._client.connection_delay_ms(node, self._clock.now_ms()) > 0
            )

    def maybe_throw_auth_failure(self, node: Node) -> None:
        """Raise the ``AuthenticationException`` of the node, if its last login failed."""
        self.wake_up_poller()
        with self._lock:
            error = self._client.authentication_error(node)
        if error is not None:
            raise error

    def try_connect(self, node: Node) -> None:
        """Connect to the node if that is possible now; this ends its failed state.  For a request use ``send``."""
        self.wake_up_poller()
        with self._lock:
            self._client.ready(node, self._clock.now_ms())

    def disconnect_async(self, node: Node) -> None:
        """Let the next poll close the connection to the node; its requests fail with ``DisconnectException``."""
        self._pending_disconnects.append(node)
        self.wake_up_poller()

    def close(self, *, is_forked: bool = False) -> None:
        """Close all connections; futures that are not done stay so.

        ``is_forked``: this is a child process.  A thread of the parent may have had the lock at the fork, and nothing
        releases it here.
        """
        if is_forked:
            self._client.close()
            return
        with self._lock:
            self._client.close()

    # --- inside -----------------------------------------------------------------------------------------------------

    def _poll(self, timer: Timer, condition: PollCondition | None, *, is_wakeup_disabled: bool) -> None:
        self._handle_pending_disconnects()
        timeout_ms = min(self.try_send(timer.now_ms), timer.remaining_ms)
        is_woken = self.is_wakeup_requested and not (is_wakeup_disabled or self._are_wakeups_disabled)
        if is_woken or self._pending_completions or (condition is not None and not condition.should_block()):
            timeout_ms = 0
        elif self._client.in_flight_request_count() == 0:
            # Nothing will arrive, and something may become possible, such as another look-up of the coordinator.
            timeout_ms = min(timeout_ms, self._retry_backoff_ms)
        self._client.poll(timeout_ms, timer.now_ms)
        timer.update()

    def _fire_pending_completions(self) -> None:
        has_fired = False
        while self._pending_completions:
            try:
                completion = self._pending_completions.popleft()
            except IndexError:
                break
            completion.fire()
            has_fired = True
        if has_fired:
            # Another thread may wait for one of these futures.
            self.wake_up_poller()

    def _handle_pending_disconnects(self) -> None:
        while self._pending_disconnects:
            node = self._pending_disconnects.popleft()
            for unsent in self.unsent.remove(node):
                unsent.completion.on_failure(DisconnectException(f"{unsent.request}: the connection was closed"))
            self._client.disconnect(node.id)

    def _check_disconnects(self, now_ms: int) -> None:
        """Fail the unsent requests of failed nodes; the network client fails those in flight."""
        for node in self.unsent.nodes():
            if self._client.connection_failed(node):
                error = self._client.authentication_error(node)
                for unsent in self.unsent.remove_tried(node):
                    unsent.completion.on_complete(
                        ClientResponse(unsent.request, now_ms, was_disconnected=True, authentication_error=error)
                    )

    def _fail_expired_requests(self, now_ms: int) -> None:
        for unsent in self.unsent.remove_expired(now_ms):
            timeout_ms = unsent.request.request_timeout_ms
            unsent.completion.on_failure(TimeoutException(f"{unsent.request}: it was not sent within {timeout_ms} ms"))
