"""Transports to a fake broker: in memory, or through TCP on 127.0.0.1."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable
from itertools import count

from bridge.testing.fake_broker import FakeBroker, FakeBrokerConnection
from bridge.testing.fake_state import ClusterState
from zkconsumer.base.clock import Clock
from zkconsumer.base.threads import OnThreadError, StopSignal, WorkerThread, spawn
from zkconsumer.kafka.transport import fill_by_receiving

HOST = "127.0.0.1"
PIECE_BYTES = 256 * 1024
LISTEN_BACKLOG = 64
STOP_TIMEOUT_MS = 5_000


class MemoryTransport:
    """A ``zkconsumer.kafka.transport.Transport`` to a broker in memory; long polls wait in the caller's thread."""

    def __init__(self, state: ClusterState, find: Callable[[], FakeBroker | None], clock: Clock) -> None:
        self._state = state
        self._find = find
        self._clock = clock
        self._session: FakeBrokerConnection | None = None
        self._is_aborted = False

    def open(self, deadline_ms: int) -> None:
        with self._state.changed:
            self._refuse_if_aborted()
            broker = self._find()
            if broker is None:
                raise ConnectionRefusedError("no broker of the fake cluster listens there")
            self._session = FakeBrokerConnection(self._state, broker)

    def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None:
        with self._state.changed:
            session = self._opened()
            session.receive(bytes(data))

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        with self._state.changed:
            if not self._ready(deadline_ms):
                raise TimeoutError
            data = self._opened().take(len(view))
            view[: len(data)] = data
            return len(data)

    def fill(self, view: memoryview, deadline_ms: int) -> int:
        return fill_by_receiving(self, view, deadline_ms)

    def wait(self, deadline_ms: int) -> bool:
        with self._state.changed:
            return self._ready(deadline_ms)

    def _ready(self, deadline_ms: int) -> bool:
        """Wait for output or the end; with the lock held."""
        while True:
            session = self._opened()
            session.advance()
            if session.has_output or session.has_ended:
                return True
            if self._clock.now_ms() >= deadline_ms:
                return False
            session.wait(deadline_ms)

    def abort(self) -> None:
        with self._state.changed:
            self._is_aborted = True
            self._state.changed.notify_all()

    def release(self) -> None:
        with self._state.changed:
            session, self._session = self._session, None
            if session is not None:
                session.disconnect()

    def _opened(self) -> FakeBrokerConnection:
        self._refuse_if_aborted()
        if self._session is None:
            raise ConnectionAbortedError("the transport is not open")
        return self._session

    def _refuse_if_aborted(self) -> None:
        if self._is_aborted:
            raise ConnectionAbortedError("the transport was aborted")


class TcpServer:
    """One broker's port: a thread that accepts, and one for each client."""

    def __init__(self, state: ClusterState, broker: FakeBroker, port: int, on_thread_error: OnThreadError) -> None:
        self._state = state
        self._broker = broker
        self._on_thread_error = on_thread_error
        self._name = f"fake-broker-{broker.broker_id}"
        self._listener = socket.create_server((HOST, port), backlog=LISTEN_BACKLOG)
        self.port: int = self._listener.getsockname()[1]
        self._clients: list[WorkerThread] = []
        self._numbers = count()
        self._acceptor = spawn(f"{self._name}-accept", self._accept, on_thread_error, wake=self._knock)

    def stop(self) -> bool:
        """Stop listening and end every connection; False: a thread did not end in time."""
        ended = self._acceptor.stop(STOP_TIMEOUT_MS)
        self._listener.close()
        for client in self._clients:
            client.request_stop()
        joined = [client.join(STOP_TIMEOUT_MS) for client in self._clients]
        return ended and all(joined)

    def _knock(self) -> None:
        """Wake the accepting thread: on every system a connection ends ``accept``, and nothing else does."""
        with contextlib.suppress(OSError):
            socket.create_connection((HOST, self.port), STOP_TIMEOUT_MS / 1000).close()

    def _accept(self, stop: StopSignal) -> None:
        while True:
            client, _ = self._listener.accept()
            if stop.is_set():
                client.close()
                return
            conversation = FakeTcpConnection(self._state, self._broker, client)
            self._clients = [worker for worker in self._clients if worker.is_alive]
            name = f"{self._name}-client-{next(self._numbers)}"
            self._clients.append(spawn(name, conversation.run, self._on_thread_error, wake=conversation.wake))


class FakeTcpConnection:
    """One client's socket, served until either side ends it."""

    def __init__(self, state: ClusterState, broker: FakeBroker, client: socket.socket) -> None:
        self._state = state
        self._client = client
        self._session = FakeBrokerConnection(state, broker)
        client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def run(self, stop: StopSignal) -> None:
        # An error on the client's socket ends this connection, and nothing else.
        with self._client, contextlib.suppress(OSError):
            while not stop.is_set() and not self._session.has_ended:
                data = self._client.recv(PIECE_BYTES)
                if not data:
                    break
                self._serve(data, stop)
        with self._state.changed:
            self._session.disconnect()

    def _serve(self, data: bytes, stop: StopSignal) -> None:
        """Pass the bytes to the broker, and send all its output."""
        with self._state.changed:
            self._session.receive(data)
        while not stop.is_set():
            with self._state.changed:
                self._session.advance()
                reply = self._session.take(PIECE_BYTES)
                if not reply:
                    if not self._session.has_pending_request:
                        return
                    self._session.wait(None)
            if reply:
                self._client.sendall(reply)

    def wake(self) -> None:
        """Break a blocked receive or send, and a wait for records."""
        with contextlib.suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)
        with self._state.changed:
            self._state.changed.notify_all()
