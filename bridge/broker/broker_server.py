"""The development broker inside a process: one thread with one event loop for all nodes and connections.

    start   check the settings, lock the directory, read the logs, bind the ports: before it returns, or it raises
    call    run something on the broker's thread and wait for the result
    stop    close the ports and the connections, unlock the directory

No other thread touches the broker's objects, so they need no lock.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from bridge.broker.acceptor import Acceptor, DescriptorShortageLogger
from bridge.broker.broker_cluster import BrokerCluster
from bridge.broker.client_connection import ClientConnection
from bridge.broker.cluster_builder import build_cluster
from bridge.broker.ports import ListeningPort, bind_ports, close_ports
from bridge.broker.receive_buffer import RequestMemoryBudget
from bridge.broker.sasl_server_authenticator import SaslServerAuthenticator
from bridge.broker.server_settings import BrokerServerSettings
from bridge.broker.timers import LoopScheduler
from bridge.broker.zookeeper_registration import SESSION_TIMEOUT_MS, ZooKeeperRegistration
from zkconsumer.base.threads import StopSignal, WorkerThread, spawn
from zkconsumer.errors import InternalError, PreconditionFailed, UnavailableError, UsageError
from zkconsumer.types import BrokerAddress
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.store import ZkStore

T = TypeVar("T")

CONNECTION_CHECK_INTERVAL_MS = 1_000
TLS_HANDSHAKE_S = 10.0
CALL_TIMEOUT_MS = 30_000
STOP_TIMEOUT_MS = 10_000
SHUTDOWN_FLUSH_S = 0.5
"""How long responses in progress may take when the broker stops."""

_log = logging.getLogger(__name__)


class BrokerServer:
    """Started once and stopped once.  ``start`` raises ``UsageError`` and similar errors for invalid settings.

    ``PreconditionFailed``: a port or the directory is in use, or a log is damaged.
    """

    def __init__(self, settings: BrokerServerSettings, zk_store: Callable[[str, int], ZkStore] = KazooStore) -> None:
        self.settings = settings
        self._new_zk_store = zk_store
        self._zookeeper: ZooKeeperRegistration | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._worker: WorkerThread | None = None
        self._cluster: BrokerCluster | None = None
        self._ports: list[ListeningPort] = []
        self._connections: set[ClientConnection] = set()
        self._thread_error: BaseException | None = None
        self._is_ready = threading.Event()
        self._is_serving = False
        self._tls: ssl.SSLContext | None = None

    @property
    def cluster(self) -> BrokerCluster:
        """The argument of ``call``'s action; only on the broker's thread.  ``UsageError``: it was never started."""
        if self._cluster is None:
            raise UsageError("start the broker first: with EmbeddedBroker() as broker, or start()")
        return self._cluster

    @property
    def is_alive(self) -> bool:
        """Whether it runs."""
        return self._worker is not None and self._worker.is_alive

    def addresses(self, listener: str | None = None) -> list[BrokerAddress]:
        """The addresses of the nodes at a listener, by default the first one."""
        return self.cluster.addresses(self.settings.listeners[0].name if listener is None else listener)

    def start(self) -> None:
        """Start, or raise an error; a broker that did not start has released everything."""
        if self.is_alive:
            raise UsageError("the broker runs already")
        self.settings.check()
        loop = asyncio.new_event_loop()
        try:
            self._build(loop)
        except BaseException:
            self._release_resources()
            loop.close()
            raise
        self._loop = loop
        self._worker = spawn("broker", self._run, self._on_thread_death, wake=self._wake)
        self._is_ready.wait(CALL_TIMEOUT_MS / 1000)
        if not self._is_serving:
            self._worker.stop(STOP_TIMEOUT_MS)
        self._check_alive()
        if self._zookeeper is not None:
            try:
                self._zookeeper.open()
            except BaseException:
                self.stop()
                raise

    def call(self, action: Callable[[BrokerCluster], T], timeout_ms: int = CALL_TIMEOUT_MS) -> T:
        """Run this on the broker's thread, and raise its exceptions here; ``UnavailableError``: no result in time."""
        self._check_alive()
        assert self._loop is not None, "the broker was started"
        done = threading.Event()
        box: list[T] = []
        errors: list[BaseException] = []

        def run() -> None:
            try:
                box.append(action(self.cluster))
            except Exception as error:  # noqa: BLE001 (the waiting thread raises it)
                errors.append(error)
            done.set()

        self._loop.call_soon_threadsafe(run)
        if not done.wait(timeout_ms / 1000):
            raise UnavailableError(f"the broker's thread did not run it within {timeout_ms} ms")
        if errors:
            raise errors[0]
        return box[0]

    def ensure_topic(self, name: str, partitions: int) -> None:
        """Create a topic unless it exists.  ``PreconditionFailed``: it has another number of partitions."""

        def make(cluster: BrokerCluster) -> None:
            found = cluster.topics.get(name)
            if found is None:
                cluster.create_topic(name, partitions)
            elif len(found.partitions) != partitions:
                raise PreconditionFailed(
                    f"there is a topic {name} already, with {len(found.partitions)} partitions and not {partitions}: "
                    "use that number, or another directory"
                )

        self.call(make)

    def stop(self, timeout_ms: int = STOP_TIMEOUT_MS) -> None:
        """Stop the broker; a second call does nothing."""
        if self._worker is None:
            return
        if self._zookeeper is not None:
            self._zookeeper.close()
        if not self._worker.stop(timeout_ms):
            raise UnavailableError(f"the broker did not stop within {timeout_ms} ms")

    # --- before the thread --------------------------------------------------------------------------------------

    def _build(self, loop: asyncio.AbstractEventLoop) -> None:
        settings = self.settings
        self._tls = None if settings.tls is None else settings.tls.context()
        cluster = self._cluster = build_cluster(settings, LoopScheduler(loop))
        if settings.zookeeper is not None:
            store = self._new_zk_store(settings.zookeeper, SESSION_TIMEOUT_MS)
            registration = ZooKeeperRegistration(
                store, cluster, settings.listeners, lambda action: _run_on_loop(loop, action)
            )
            cluster.legacy_offset_store = registration.offsets
            self._zookeeper = registration
            cluster.on_topics_changed = registration.write_topics
            cluster.is_topic_registered = registration.is_topic_registered
        self._ports = bind_ports(cluster.nodes.values(), settings.listeners)

    def _release_resources(self) -> None:
        close_ports(self._ports)
        if self._cluster is not None:
            self._cluster.close()

    # --- the thread ---------------------------------------------------------------------------------------------

    def _run(self, stop: StopSignal) -> None:
        assert self._loop is not None, "made before the thread"
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve(stop))
        finally:
            self._release_resources()
            self._loop.close()
            self._is_ready.set()

    async def _serve(self, stop: StopSignal) -> None:
        loop = asyncio.get_running_loop()
        self._stopping = asyncio.Event()
        budget = RequestMemoryBudget(self.cluster.config.queued_max_request_bytes)
        shortage = DescriptorShortageLogger()
        acceptors = [self._acceptor(port, budget, shortage) for port in self._ports]
        for acceptor in acceptors:
            acceptor.start()
        self.cluster.start()
        self._is_serving = True
        self._is_ready.set()
        while not stop.is_set():
            self._check_connections()
            shortage.check_recovered(loop.time())
            try:
                await asyncio.wait_for(self._stopping.wait(), CONNECTION_CHECK_INTERVAL_MS / 1000)
            except TimeoutError:
                continue
        for acceptor in acceptors:
            acceptor.close()
        self.cluster.shut_down()
        for connection in list(self._connections):
            connection.close()
        deadline = loop.time() + SHUTDOWN_FLUSH_S
        while self._connections and loop.time() < deadline:
            await asyncio.sleep(0.01)
        for connection in list(self._connections):
            connection.abort()
        await asyncio.sleep(0)

    def _acceptor(
        self, port: ListeningPort, budget: RequestMemoryBudget, shortage: DescriptorShortageLogger
    ) -> Acceptor:
        listener = port.listener
        users = self.settings.users if listener.has_sasl else None
        return Acceptor(
            port.socket,
            lambda: ClientConnection(
                port.node, listener.name, SaslServerAuthenticator(users), budget, self._connections
            ),
            lambda: len(self._connections),
            shortage=shortage,
            tls=self._tls if listener.has_tls else None,
            tls_handshake_s=TLS_HANDSHAKE_S,
        )

    def _check_connections(self) -> None:
        now_ms = self.cluster.scheduler.now_ms()
        for connection in list(self._connections):
            connection.check_timeouts(now_ms, self.cluster.config.connections_max_idle_ms)

    def _wake(self) -> None:
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(lambda: self._stopping.set())

    def _on_thread_death(self, name: str, error: BaseException) -> None:
        self._thread_error = error
        _log.error("thread-died name=%s", name, exc_info=error)

    def _check_alive(self) -> None:
        if not self.is_alive:
            if self._thread_error is not None:
                raise InternalError(f"the broker's thread has died: {self._thread_error!r}") from self._thread_error
            raise UnavailableError("the broker does not run")


def _run_on_loop(loop: asyncio.AbstractEventLoop, action: Callable[[], None]) -> None:
    """Run this on the broker's thread, unless the thread has ended."""
    with suppress(RuntimeError):
        loop.call_soon_threadsafe(action)
