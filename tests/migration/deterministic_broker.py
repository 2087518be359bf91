"""A broker without threads, sockets and time of its own: a call returns with its answer, and time passes only in waits.

    client --bytes--> ClientConnection --> the broker's nodes, as ``BrokerServer`` assembles them
       '-- waits for bytes --> the next timer of the broker is due, and the clock moves there

So whatever is run on it is the same each time, and a thousand migrations take as long as their code does.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Mapping
from functools import partial
from itertools import count
from typing import Any, TypeVar

from bridge.broker.broker_cluster import BrokerCluster
from bridge.broker.client_connection import ClientConnection
from bridge.broker.cluster_builder import build_cluster
from bridge.broker.emulated_releases import DEFAULT_RELEASE
from bridge.broker.listeners import read_listener
from bridge.broker.receive_buffer import RequestMemoryBudget
from bridge.broker.sasl_server_authenticator import SaslServerAuthenticator
from bridge.broker.server_settings import BrokerServerSettings
from bridge.broker.zookeeper_registration import SESSION_TIMEOUT_MS, ZooKeeperRegistration
from bridge.coordinator.group_coordinator import GroupCoordinator
from bridge.coordinator.group_metadata import GroupMetadata
from bridge.testing.embedded_broker import TEST_PROPERTIES
from bridge.testing.fake_environment import ADDRESS
from zkconsumer.base.clock import Clock
from zkconsumer.kafka.broker_connection import BlockingConnection, Connection
from zkconsumer.kafka.transport import fill_by_receiving
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.entries import Record

T = TypeVar("T")
PORT = 9092


class Timer:
    """What a ``Scheduler`` gives."""

    def __init__(self, action: Callable[[], None]) -> None:
        self.action: Callable[[], None] | None = action

    def cancel(self) -> None:
        self.action = None


class DeterministicScheduler:
    """A broker's ``Scheduler`` on a clock that a test moves."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self._numbers = count()
        self._timers: list[tuple[int, int, Timer]] = []

    def now_ms(self) -> int:
        return self.clock.wall_ms()

    def call_in(self, delay_ms: int, action: Callable[[], None]) -> Timer:
        timer = Timer(action)
        heapq.heappush(self._timers, (self.clock.now_ms() + delay_ms, next(self._numbers), timer))
        return timer

    def run(self, until_ms: int) -> bool:
        """The next timer that is due by then, if there is one; the clock moves there."""
        while self._timers and self._timers[0][0] <= until_ms:
            due_ms, _, timer = heapq.heappop(self._timers)
            if timer.action is not None:
                self.clock.move(max(0, due_ms - self.clock.now_ms()))
                timer.action()
                return True
        return False

    def catch_up(self) -> None:
        """Whatever is due by now."""
        while self.run(self.clock.now_ms()):
            pass


class Wire(asyncio.Transport):
    """The broker's end of a connection."""

    def __init__(self, who: str) -> None:
        super().__init__({"peername": (who, 0)})
        self.answers = bytearray()
        self.has_ended = False

    def write(self, data: Any) -> None:
        self.answers += data

    def close(self) -> None:
        self.has_ended = True

    abort = close

    def is_closing(self) -> bool:
        return self.has_ended

    def get_write_buffer_size(self) -> int:
        return 0

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass


class DeterministicTransport:
    """A client's end of a connection: a ``zkconsumer.kafka.transport.Transport``."""

    def __init__(
        self, broker: DeterministicBroker, who: str, host: str, port: int, buffer_bytes: int, clock: Clock
    ) -> None:
        self._broker = broker
        self._wire = Wire(who)
        self._connection: ClientConnection | None = None

    def open(self, deadline_ms: int) -> None:
        self._connection = self._broker.opened()
        self._connection.connection_made(self._wire)

    def send_all(self, data: bytes | memoryview, deadline_ms: int) -> None:
        assert self._connection is not None, "it was opened"
        self._broker.scheduler.catch_up()
        if self._wire.has_ended:
            raise ConnectionResetError("the broker ended the connection")
        self._connection.data_received(bytes(data))

    def receive_into(self, view: memoryview, deadline_ms: int) -> int:
        if not self.wait(deadline_ms):
            raise TimeoutError
        taken = bytes(self._wire.answers[: len(view)])
        view[: len(taken)] = taken
        del self._wire.answers[: len(taken)]
        return len(taken)

    def fill(self, view: memoryview, deadline_ms: int) -> int:
        return fill_by_receiving(self, view, deadline_ms)

    def wait(self, deadline_ms: int) -> bool:
        while not self._wire.answers and not self._wire.has_ended:
            if not self._broker.scheduler.run(deadline_ms):
                self._broker.clock.move(max(0, deadline_ms - self._broker.clock.now_ms()))
                return False
        return True

    def abort(self) -> None:
        self._wire.has_ended = True

    def release(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.connection_lost(None)


class DeterministicBroker:
    """One node, in memory, registered in a ``FakeZooKeeper(delivery="direct")``."""

    def __init__(
        self,
        zookeeper: FakeZooKeeper,
        clock: ManualClock,
        properties: Mapping[str, str],
        release: str = DEFAULT_RELEASE,
    ) -> None:
        self.clock = clock
        self.scheduler = DeterministicScheduler(clock)
        listener = read_listener("PLAINTEXT://still.invalid:0")
        settings = BrokerServerSettings(
            listeners=(listener,), release=release, properties={**TEST_PROPERTIES, **properties}, zookeeper=ADDRESS
        )
        self.cluster = build_cluster(settings, self.scheduler)
        self._node = self.cluster.nodes[0]
        self._node.addresses[listener.name] = BrokerAddress(0, listener.host, PORT)
        self._listener = listener.name
        self._budget = RequestMemoryBudget(self.cluster.config.queued_max_request_bytes)
        self._open: set[ClientConnection] = set()
        door = ZooKeeperRegistration(
            FakeZkStore(zookeeper, "", SESSION_TIMEOUT_MS), self.cluster, (listener,), lambda action: action()
        )
        self.cluster.legacy_offset_store = door.offsets
        self.cluster.on_topics_changed = door.write_topics
        self.cluster.start()
        door.open()

    def opened(self) -> ClientConnection:
        """The broker's side of a new connection."""
        return ClientConnection(self._node, self._listener, SaslServerAuthenticator(None), self._budget, self._open)

    def connect(self, who: str, kind: type[BlockingConnection] = BlockingConnection, **more: Any) -> Connection:
        """A connection of any client; the keyword arguments configure a ``kind`` of its own."""
        transport = partial(DeterministicTransport, self, who)
        return kind("still.invalid", PORT, transport=transport, clock=self.clock, **more)

    def addresses(self) -> list[BrokerAddress]:
        return self.cluster.addresses(self._listener)

    def call(self, action: Callable[[BrokerCluster], T]) -> T:
        return action(self.cluster)

    def group(self, group: str) -> GroupMetadata | None:
        """What the coordinator knows of a group."""
        machine = self._node.coordinator_runtime.machine
        assert isinstance(machine, GroupCoordinator), "it was assembled with one"
        return machine.manager.get_group(group)

    def create_topic(self, topic: str, partitions: int) -> None:
        self.cluster.create_topic(topic, partitions)

    def append(self, topic: str, partition: int, values: list[bytes]) -> None:
        found = self.cluster.topics.partition(topic, partition)
        assert found is not None, "the topic was made"
        now_ms = self.scheduler.now_ms()
        records = [Record(at, now_ms, 0, None, value) for at, value in enumerate(values)]
        found.log.append_records(records, found.leader_epoch, now_ms)
