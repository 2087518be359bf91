"""The network of a member: its own connections to the coordinator, separate from those that fetch, on its own thread.

    control thread --Send, Connect, Disconnect--> queue --> this thread --+-- the coordinator: pipelined, in order
                   <--Responded, Failed, Disconnected, with the time -----+-- the coordinator: JoinGroup alone
                                                                          +-- any broker: one request at a time

A broker reads the next request of a connection only when it has answered the one before, and it answers JoinGroup when
all members have joined.  So JoinGroup has a connection of its own, which is closed after its answer: commits,
heartbeats and LeaveGroup do not wait for it.  (Java's consumer, 3.x, has one connection for all of them, and a member
of a cooperative group that keeps its partitions cannot commit before JoinGroup is answered.)

Every request is answered once, by ``Responded`` or ``RequestFailed``.  When one of the connections breaks, both are
closed: requests in flight fail, then ``Disconnected`` follows.  When they are closed on command, nothing follows.
"""

from __future__ import annotations

import queue
import threading
from collections import deque
from dataclasses import KW_ONLY, dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from bridge.client.group_api_versions import with_group_apis
from zkconsumer.base.threads import StopSignal, WorkerThread, spawn
from zkconsumer.errors import AuthenticationException, ConnectorClosed, UnavailableError, UsageError
from zkconsumer.kafka.bootstrap_client import NoBrokerAvailableError
from zkconsumer.kafka.broker_connection import BROKER_ERRORS
from zkconsumer.kafka.group.commands import ConnectCoordinator, DisconnectCoordinator, Send
from zkconsumer.kafka.group.errors import UnsupportedVersionException
from zkconsumer.kafka.group.events import CoordinatorNode, Disconnected, Failure, RequestFailed, Responded
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.kafka.version_negotiation import negotiate
from zkconsumer.wire.schemas import APIS, JOIN_GROUP

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.base.threads import OnThreadError
    from zkconsumer.kafka.bootstrap_client import BootstrapClient
    from zkconsumer.kafka.broker_connection import Connection, PendingRequest
    from zkconsumer.kafka.broker_connection import ConnectionFactory as MakeConnection

ANSWER_POLL_MS = 25
"""How long the thread waits for an answer before it checks for other requests, or answers on the other connection: a
JoinGroup is answered only when all members have joined."""

IDLE_WAIT_MS = 1_000
CONNECT_TIMEOUT_MS = 10_000


class NetworkCallback(Protocol):
    """Receives answers; on the network's thread."""

    def __call__(self, event: Responded | RequestFailed | Disconnected, sent: Send | None, sent_at_ms: int) -> None:
        """``sent`` is the request; None with ``Disconnected``."""


@dataclass(frozen=True, slots=True)
class _InFlightRequest:
    send: Send
    pending: PendingRequest[Any]
    sent_at_ms: int
    until_ms: int


@dataclass(slots=True)
class _PipelinedConnection:
    """One connection.  ``asked``: requests without an answer, in the order in which they were sent."""

    connection: Connection
    asked: deque[_InFlightRequest] = field(default_factory=deque)


@dataclass(slots=True)
class _CoordinatorChannel:
    """The connections to one coordinator.  ``ranges`` None: its API versions are not known yet.

    ``joining``: open while a JoinGroup has no answer.  ``is_closed_on_command``: it was closed on command, so no
    ``Disconnected`` follows.
    """

    node: CoordinatorNode
    main: _PipelinedConnection
    joining: _PipelinedConnection | None = None
    ranges: SupportedVersions | None = None
    is_closed_on_command: bool = False

    @property
    def conversations(self) -> list[_PipelinedConnection]:
        """All open connections."""
        joining = self.joining  # read once: the thread may close it while another thread reads it
        return [self.main] if joining is None else [self.main, joining]

    @property
    def asked(self) -> list[_InFlightRequest]:
        """All unanswered requests, in the order in which they were sent."""
        return sorted((one for talk in self.conversations for one in talk.asked), key=lambda one: one.send.request)

    def close(self) -> None:
        """Close both connections, from any thread."""
        for talk in self.conversations:
            talk.connection.close()


@dataclass(eq=False, repr=False)
class Network:
    """``execute`` may be called from any thread, and never blocks."""

    name: str
    client_id: str
    connect: MakeConnection
    _: KW_ONLY
    any_broker: BootstrapClient
    clock: Clock
    on_answer: NetworkCallback
    on_thread_error: OnThreadError

    def __post_init__(self) -> None:
        self._commands: queue.SimpleQueue[Send | ConnectCoordinator | DisconnectCoordinator | None] = (
            queue.SimpleQueue()
        )
        self._lock = threading.Lock()
        self._line: _CoordinatorChannel | None = None
        self._worker: WorkerThread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._worker = spawn(f"{self.name}-coordinator", self._run, self.on_thread_error, wake=self._wake)

    def execute(self, command: Send | ConnectCoordinator | DisconnectCoordinator) -> None:
        """Execute the command soon."""
        self._commands.put(command)
        if isinstance(command, DisconnectCoordinator):
            # Ends a blocking call of the thread now, and not when it is answered.
            self._close_line(command.node)

    def ask_to_stop(self) -> None:
        """End the thread soon; no more answers follow."""
        if self._worker is not None:
            self._worker.request_stop()

    def join(self, timeout_ms: int) -> bool:
        """Wait for its end; False: it still runs."""
        return self._worker is None or self._worker.join(timeout_ms)

    def _wake(self) -> None:
        self._commands.put(None)
        self.any_broker.interrupt()
        self._close_line(None)

    def _close_line(self, node: int | None) -> None:
        with self._lock:
            line = self._line
        if line is not None and node in (None, line.node.id):
            line.is_closed_on_command = True
            line.close()

    # --- the thread ---------------------------------------------------------------------------------------------

    def _run(self, stop: StopSignal) -> None:
        try:
            while not stop.is_set():
                match self._next():
                    case Send(node=None) as send:
                        self._ask_any(send, stop)
                    case Send() as send:
                        self._send(send)
                    case ConnectCoordinator(node):
                        self._end_line(None)
                        self._begin_line(node, stop)
                    case DisconnectCoordinator(number) if self._line is not None and self._line.node.id == number:
                        self._end_line(None)
                    case _:
                        pass
                self._receive()
        finally:
            self._close_line(None)

    def _next(self) -> Send | ConnectCoordinator | DisconnectCoordinator | None:
        is_waiting = self._line is not None and any(talk.asked for talk in self._line.conversations)
        try:
            return self._commands.get(timeout=0 if is_waiting else IDLE_WAIT_MS / 1000)
        except queue.Empty:
            return None

    def _begin_line(self, node: CoordinatorNode, stop: StopSignal) -> None:
        """The connection opens with the first request."""
        talk = self._open(node)
        with self._lock:
            self._line = _CoordinatorChannel(node, talk)
        if stop.is_set():  # it may have been set before a connection existed that could be closed
            talk.connection.close()

    def _open(self, node: CoordinatorNode) -> _PipelinedConnection:
        host, port = node.address.host, node.address.port
        return _PipelinedConnection(
            self.connect(host, port, client_id=self.client_id, connect_timeout_ms=CONNECT_TIMEOUT_MS)
        )

    def _talk_for(self, line: _CoordinatorChannel, send: Send) -> _PipelinedConnection:
        """The connection for a request."""
        if send.api_key != JOIN_GROUP.key:
            return line.main
        if line.joining is None:
            talk = self._open(line.node)
            with self._lock:
                line.joining = talk
            if line.is_closed_on_command:  # it was closed before this connection existed
                talk.connection.close()
        assert line.joining is not None, "it was opened"
        return line.joining

    def _end_line(self, failure: Failure | None) -> None:
        """Fail the requests in flight; with ``failure`` also report the coordinator as disconnected.

        Requests after their deadline fail with ``TIMED_OUT``, the others with ``DISCONNECTED``.
        """
        line, now_ms = self._line, self.clock.now_ms()
        if line is None:
            return
        with self._lock:
            self._line = None
        line.close()
        for asked in line.asked:
            is_late = failure is Failure.TIMED_OUT and asked.until_ms <= now_ms
            reason = Failure.TIMED_OUT if is_late else Failure.DISCONNECTED
            self.on_answer(RequestFailed(asked.send.request, reason), asked.send, asked.sent_at_ms)
        if failure is not None and not line.is_closed_on_command:
            self.on_answer(Disconnected(line.node.id), None, self.clock.now_ms())

    def _ask_any(self, send: Send, stop: StopSignal) -> None:
        api, sent_at_ms = APIS[send.api_key], self.clock.now_ms()

        def question(connection: Connection, ranges: SupportedVersions, timeout_ms: int) -> Any:
            return connection.request(api, ranges.pick(api, send.version_most), send.body, timeout_ms)

        answer: Responded | RequestFailed
        try:
            answer = Responded(
                send.request, self.any_broker.execute(question, stop.is_set, total_timeout_ms=send.timeout_ms)
            )
        except ConnectorClosed:
            return
        except UnavailableError as error:
            refused = error.authentication_error if isinstance(error, NoBrokerAvailableError) else None
            answer = RequestFailed(send.request, Failure.NO_BROKER, refused)
        self.on_answer(answer, send, sent_at_ms)

    def _send(self, send: Send) -> None:
        line, now_ms = self._line, self.clock.now_ms()
        if line is None or line.node.id != send.node:
            self.on_answer(RequestFailed(send.request, Failure.DISCONNECTED), send, now_ms)
            return
        api = APIS[send.api_key]
        try:
            if line.ranges is None:
                timeout_ms = min(CONNECT_TIMEOUT_MS, send.timeout_ms)
                ranges = negotiate(line.main.connection, timeout_ms)
                line.ranges = with_group_apis(line.main.connection, ranges, timeout_ms)
            version = line.ranges.pick(api, send.version_most)
        except UnsupportedVersionException as error:
            self.on_answer(RequestFailed(send.request, Failure.UNSUPPORTED, error), send, now_ms)
            self._end_line(Failure.DISCONNECTED)
            return
        except (*BROKER_ERRORS, ConnectorClosed) as error:
            if line.ranges is None:
                refused = error if isinstance(error, AuthenticationException) else None
                self.on_answer(RequestFailed(send.request, Failure.DISCONNECTED, refused), send, now_ms)
                self._end_line(Failure.DISCONNECTED)
            else:
                self.on_answer(RequestFailed(send.request, Failure.UNSUPPORTED), send, now_ms)
            return
        sent_at_ms = self.clock.now_ms()
        talk = self._talk_for(line, send)
        try:
            pending = talk.connection.send(api, version, send.body, send.timeout_ms)
        except (*BROKER_ERRORS, ConnectorClosed):
            self.on_answer(RequestFailed(send.request, Failure.DISCONNECTED), send, sent_at_ms)
            self._end_line(Failure.DISCONNECTED)
        except UsageError as error:
            words = f"{api.name} v{version}, the highest of {talk.connection.host}:{talk.connection.port}: {error}"
            self.on_answer(
                RequestFailed(send.request, Failure.UNSUPPORTED, UnsupportedVersionException(words)), send, sent_at_ms
            )
        else:
            talk.asked.append(_InFlightRequest(send, pending, sent_at_ms, sent_at_ms + send.timeout_ms))

    def _receive(self) -> None:
        """Process answers that have arrived, or arrive soon; fail requests after their deadline."""
        line = self._line
        if line is None:
            return
        now_ms = self.clock.now_ms()
        if any(asked.until_ms <= now_ms for talk in line.conversations for asked in talk.asked):
            # As in Kafka's NetworkClient: a broker that leaves one request without an answer is disconnected.
            self._end_line(Failure.TIMED_OUT)
            return
        wait_ms = ANSWER_POLL_MS
        try:
            for talk in line.conversations:
                if talk.asked:
                    self._answers(talk, wait_ms)
                    wait_ms = 0
        except (*BROKER_ERRORS, ConnectorClosed):
            self._end_line(Failure.DISCONNECTED)
            return
        if line.joining is not None and not line.joining.asked:
            line.joining.connection.close()
            with self._lock:
                line.joining = None

    def _answers(self, talk: _PipelinedConnection, wait_ms: int) -> None:
        """The answers that have arrived on this connection."""
        while talk.asked and talk.connection.has_response(wait_ms):
            asked = talk.asked[0]
            body = talk.connection.receive(asked.pending, max(1, asked.until_ms - self.clock.now_ms()))
            talk.asked.popleft()
            self.on_answer(Responded(asked.send.request, body, asked.pending.version), asked.send, asked.sent_at_ms)
            if not self._commands.empty():
                return
