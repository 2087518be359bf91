"""The network of a member: its own connections to the coordinator, separate from those that fetch, on its own thread.

    control thread --Send, Connect, Disconnect--> CoordinatorRequests --> the network client
                   <--Responded, Failed, Disconnected, with the time ------- this thread polls it

The thread polls, and finds out when the connection to the coordinator breaks while no request is in flight.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from zkconsumer.base.threads import StopSignal, WorkerThread, spawn
from zkconsumer.base.timer import Timer
from zkconsumer.errors import UnavailableError
from zkconsumer.kafka.coordinator_requests import CoordinatorRequests
from zkconsumer.kafka.group.commands import ConnectCoordinator, DisconnectCoordinator, Send
from zkconsumer.kafka.group.events import Disconnected, Failure, RequestFailed, Responded
from zkconsumer.kafka.metadata.node import Node

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.base.threads import OnThreadError
    from zkconsumer.kafka.net.client_request import ClientResponse
    from zkconsumer.kafka.net.consumer_network_client import ConsumerNetworkClient
    from zkconsumer.kafka.net.metadata_updater import ManualMetadataUpdater
    from zkconsumer.types import BrokerAddress

POLL_MS = 1_000
"""The longest wait of one poll: how soon a connection that broke while it was idle is noticed."""


class NetworkCallback(Protocol):
    """Receives answers; on the network's thread."""

    def __call__(self, event: Responded | RequestFailed | Disconnected, sent: Send | None, sent_at_ms: int) -> None:
        """``sent`` is the request; None with ``Disconnected``."""


class Network:
    """``execute`` may be called from any thread, and never waits for the network.

    ``nodes``: of ``client``; they are set to the result of ``find_brokers`` before each request to any broker.
    """

    def __init__(
        self,
        name: str,
        client: ConsumerNetworkClient,
        nodes: ManualMetadataUpdater,
        find_brokers: Callable[[], Sequence[BrokerAddress]],
        *,
        clock: Clock,
        on_answer: NetworkCallback,
        on_thread_error: OnThreadError,
    ) -> None:
        self._name = name
        self._client = client
        self._nodes = nodes
        self._find_brokers = find_brokers
        self._clock = clock
        self._on_answer = on_answer
        self._on_thread_error = on_thread_error
        self._requests = CoordinatorRequests(client, clock, self._answered)
        self._to_any_broker: deque[Send] = deque()
        self._coordinator: int | None = None
        """The broker id of the coordinator whose connection is checked."""
        self._worker: WorkerThread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._worker = spawn(
            f"{self._name}-coordinator", self._run, self._on_thread_error, wake=self._client.wake_up_poller
        )

    def execute(self, command: Send | ConnectCoordinator | DisconnectCoordinator) -> None:
        """Execute the command soon."""
        match command:
            case Send(node=None):
                self._to_any_broker.append(command)
                self._client.wake_up_poller()
                return
            case ConnectCoordinator(node):
                self._coordinator = node.id
            case DisconnectCoordinator():
                self._coordinator = None
            case _:
                pass
        self._requests.execute(command)

    def ask_to_stop(self) -> None:
        """End the thread soon; no more answers follow."""
        if self._worker is not None:
            self._worker.request_stop()

    def join(self, timeout_ms: int) -> bool:
        """Wait for its end; False: it still runs."""
        return self._worker is None or self._worker.join(timeout_ms)

    # --- the thread ---------------------------------------------------------------------------------------------

    def _run(self, stop: StopSignal) -> None:
        try:
            while not stop.is_set():
                while self._to_any_broker:
                    self._send_to_any_broker(self._to_any_broker.popleft())
                self._client.poll(Timer(self._clock, POLL_MS), _UnlessWork(self._to_any_broker, stop))
                self._check_connection()
        finally:
            self._client.close()

    def _send_to_any_broker(self, command: Send) -> None:
        try:
            brokers = self._find_brokers()
        except UnavailableError:
            self._on_answer(RequestFailed(command.request, Failure.NO_BROKER), command, self._clock.now_ms())
            return
        # An address whose broker is not known yet gets a number of its own, as a bootstrap address.
        self._nodes.set_nodes(
            [
                Node(broker.broker_id if broker.broker_id >= 0 else -1 - number, broker.host, broker.port)
                for number, broker in enumerate(brokers)
            ]
        )
        self._requests.execute(command)

    def _check_connection(self) -> None:
        coordinator = self._coordinator
        lost = None if coordinator is None else self._requests.lost_connection(coordinator)
        if lost is not None:
            self._coordinator = None
            self._on_answer(lost, None, self._clock.now_ms())

    def _answered(
        self, event: Responded | RequestFailed, command: Send, _: ClientResponse | None, sent_ms: int
    ) -> None:
        self._on_answer(event, command, sent_ms)


class _UnlessWork:
    """``PollCondition``: a poll does not wait if the thread has something else to do."""

    def __init__(self, waiting: deque[Send], stop: StopSignal) -> None:
        self._waiting = waiting
        self._stop = stop

    def should_block(self) -> bool:
        return not self._waiting and not self._stop.is_set()
