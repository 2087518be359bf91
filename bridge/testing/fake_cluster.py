"""A Kafka cluster without servers, for tests: real bytes, logs in memory, and injected faults.

    cluster = FakeCluster(brokers=2, release="1.1.1")
    cluster.create_topic("clicks", partitions=4)
    cluster.append("clicks", 0, [b"a", b"b"])
    connection = cluster.connect(*cluster.address(1)[1:])      # a Connection; ``cluster.connect`` is a ``Connect``

No port is open: a connection made by ``connect`` passes its frames to the broker in the caller's own thread,
through the same codec and the same connection code as over a socket.  ``serve`` opens real ports on 127.0.0.1
for programs that need them.

What is emulated: Produce, Fetch (long poll, limits, at least one message from version 3, conversion to older formats,
sessions), ListOffsets, Metadata, ApiVersions, the offsets of groups and their coordinators, in the versions of a
release; leaders and coordinators that move, brokers that stop, logs that lose their start or end.  What is not:
replication (the high watermark is the end), members of modern groups, transactions, authorisation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple

from bridge.testing.fake_broker import FakeBroker
from bridge.testing.fake_faults import ActiveFault, Fault
from bridge.testing.fake_groups import FakeCommittedOffset, FakeCoordinatorGroup, Znodes, coordinator_of
from bridge.testing.fake_log import FakeLog
from bridge.testing.fake_releases import NEWEST, release_named
from bridge.testing.fake_security import FakeSecurity, SecuredTransport
from bridge.testing.fake_state import ClusterState, FakePartition, RecordedRequest
from bridge.testing.fake_transport import HOST, MemoryTransport, TcpServer
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import UsageError
from zkconsumer.kafka.broker_connection import CONNECT_TIMEOUT_MS, RECEIVE_BUFFER_BYTES, BlockingConnection, Connection
from zkconsumer.kafka.fetch_session_cache import FETCH_SESSION_SLOTS as FETCH_SESSIONS_MAX
from zkconsumer.kafka.transport import Transport
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.schemas import Api

CLUSTER_ID = "zkconsumer-fake-cluster"
CREATE_TIME = 0
NO_TIMESTAMP = -1


class AppendedRange(NamedTuple):
    """The offsets that records got, both ends included."""

    first: int
    last: int


class FakeCluster:
    """``brokers``: how many, with ids from 0, or a list of ids.  ``release``: of all of them, or by id.

    ``auto_create_partitions``: how many partitions an automatically created topic gets; 0: no automatic creation.
    ``zookeeper``: the store of commits of version 0, such as a ``FakeZooKeeper``; None: the cluster's own store.
    ``security``: the login and TLS for clients in memory; it may be changed between connections; ``serve`` has none.
    ``fetch_sessions_max``: the number of fetch session slots of a broker.  Every method may be called from any
    thread.
    """

    def __init__(
        self,
        brokers: int | Sequence[int] = 1,
        *,
        release: str | Mapping[int, str] = NEWEST,
        auto_create_partitions: int = 0,
        zookeeper: Znodes | None = None,
        clock: Clock = SYSTEM_CLOCK,
        security: FakeSecurity | None = None,
        fetch_sessions_max: int = FETCH_SESSIONS_MAX,
    ) -> None:
        self.security = security
        ids = list(range(brokers)) if isinstance(brokers, int) else list(brokers)
        self._state = ClusterState(clock, auto_create_partitions, CLUSTER_ID)
        if zookeeper is not None:
            self._state.znodes = zookeeper
        self._brokers: dict[int, FakeBroker] = {}
        self._servers: dict[int, TcpServer] = {}
        self._is_serving = False
        self._deaths: list[tuple[str, BaseException]] = []
        for broker_id in ids:
            named = release if isinstance(release, str) else release[broker_id]
            self._brokers[broker_id] = FakeBroker(self._state, broker_id, release_named(named), fetch_sessions_max)
            self._state.magics[broker_id] = self._brokers[broker_id].release.magic
            # A host name and a port that do not exist, so that no real server is ever reached by mistake.
            self._state.addresses[broker_id] = BrokerAddress(broker_id, f"broker-{broker_id}.fake.invalid", 9092)
            self._state.running_brokers.add(broker_id)

    # --- reaching the brokers ---

    def connect(
        self,
        host: str,
        port: int,
        *,
        client_id: str = "",
        connect_timeout_ms: int = CONNECT_TIMEOUT_MS,
        receive_buffer_bytes: int = RECEIVE_BUFFER_BYTES,
    ) -> Connection:
        """A ``ConnectionFactory``: a connection in memory to the broker with this address, without TLS and SASL."""
        return BlockingConnection(
            host,
            port,
            client_id=client_id,
            connect_timeout_ms=connect_timeout_ms,
            receive_buffer_bytes=receive_buffer_bytes,
            transport=self.transport,
            clock=self._state.clock,
        )

    def transport(self, host: str, port: int, receive_buffer_bytes: int, clock: Clock) -> Transport:
        """Replaces the socket to the broker with this address."""
        below = MemoryTransport(self._state, lambda: self._listening(host, port), clock)
        return below if self.security is None else SecuredTransport(below, self.security, clock)

    def address(self, broker_id: int) -> BrokerAddress:
        """The address of a broker for ``connect``, and during ``serve`` for TCP."""
        with self._state.changed:
            return self._state.addresses[broker_id]

    @property
    def addresses(self) -> list[BrokerAddress]:
        """Of all brokers, stopped ones too, by id."""
        with self._state.changed:
            return [self._state.addresses[broker_id] for broker_id in sorted(self._state.addresses)]

    @contextmanager
    def serve(self) -> Iterator[FakeCluster]:
        """Listen on 127.0.0.1, a free port for each broker; meanwhile addresses and metadata contain these ports."""
        with self._state.changed:
            before = dict(self._state.addresses)
        try:
            self._is_serving = True
            for broker_id in self._brokers:
                self._listen(broker_id, port=0)
            yield self
        finally:
            self._is_serving = False
            ended = [self._servers.pop(broker_id).stop() for broker_id in list(self._servers)]
            with self._state.changed:
                self._state.addresses.update(before)
        assert all(ended), "a thread of the fake brokers did not end in time"
        if self._deaths:
            name, error = self._deaths[0]
            raise RuntimeError(f"thread {name} of the fake brokers died") from error

    def stop_broker(self, broker_id: int) -> None:
        """Kill a broker: its connections break, new ones are refused, its partitions have no leader."""
        with self._changing():
            self._state.running_brokers.discard(self._known(broker_id))
            self._brokers[broker_id].fetch_sessions.drop_all()
        server = self._servers.pop(broker_id, None)
        if server is not None:
            server.stop()

    def drop_fetch_sessions(self, broker_id: int) -> None:
        """Make a broker delete its fetch sessions, as when it needs their slots for others."""
        with self._changing():
            self._brokers[self._known(broker_id)].fetch_sessions.drop_all()

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker again, with its logs and its address."""
        with self._changing():
            self._state.running_brokers.add(self._known(broker_id))
            port = self._state.addresses[broker_id].port
        if self._is_serving and broker_id not in self._servers:
            self._listen(broker_id, port)

    # --- topics ---

    def create_topic(self, topic: str, partitions: int = 1, *, leaders: Mapping[int, int | None] | None = None) -> None:
        """Create a topic.  ``leaders``: partition → broker id or None; the others are assigned round-robin."""
        if topic in self._state.topics:
            raise UsageError(f"topic {topic} exists already; add_partitions lets it grow")
        self.add_partitions(topic, partitions)
        for partition, leader in (leaders or {}).items():
            self.move_leader(topic, partition, leader)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic up to this number."""
        with self._changing():
            self._state.add_partitions(topic, partitions)

    def delete_topic(self, topic: str) -> None:
        """Remove a topic with its records."""
        with self._changing():
            del self._state.topics[topic]

    def move_leader(self, topic: str, partition: int, leader: int | None) -> None:
        """Make another broker the leader, in a new epoch; None: no leader."""
        with self._changing():
            moved = self._partition(topic, partition)
            moved.leader = None if leader is None else self._known(leader)
            moved.log.leader_epoch += 1
            if leader is not None and leader not in moved.replicas:
                moved.replicas.append(leader)

    # --- logs ---

    def append(
        self,
        topic: str,
        partition: int,
        values: Sequence[bytes | None],
        *,
        keys: Sequence[bytes | None] | None = None,
        timestamp_ms: int | None = None,
        headers: tuple[tuple[str, bytes | None], ...] = (),
        codec: int = compression.NONE,
    ) -> AppendedRange:
        """Append records at the end, as one batch; ``codec`` as in ``zkconsumer.wire.compression``.

        ``timestamp_ms`` None: now.  Headers need a log in format 2 (releases from 0.11), zstd too.
        """
        if not values:
            raise UsageError("a batch without records has no offsets; append at least one value")
        with self._changing():
            log = self._partition(topic, partition).log
            now_ms = self._state.clock.wall_ms() if timestamp_ms is None else timestamp_ms
            timestamp, kind = (NO_TIMESTAMP, NO_TIMESTAMP) if log.magic == 0 else (now_ms, CREATE_TIME)
            first = log.end
            records = [
                Record(first + at, timestamp, kind, key, value, headers)
                for at, (key, value) in enumerate(zip(keys or [None] * len(values), values, strict=True))
            ]
            log.append(records, codec)
            return AppendedRange(first, log.end - 1)

    def append_records(
        self, topic: str, partition: int, records: Iterable[Record], codec: int = 0, magic: int | None = None
    ) -> None:
        """Append one batch at offsets of its own, with gaps as compaction leaves them, also in an older format."""
        with self._changing():
            self._partition(topic, partition).log.append(records, codec, magic)

    def append_raw(self, topic: str, partition: int, data: bytes, next_offset: int) -> None:
        """Append bytes unchanged, even damaged ones; afterwards the log ends at ``next_offset``."""
        with self._changing():
            self._partition(topic, partition).log.append_raw(data, next_offset)

    def log_start(self, topic: str, partition: int) -> int:
        """The first offset that can be read."""
        return self._read(topic, partition, lambda log: log.start)

    def log_end(self, topic: str, partition: int) -> int:
        """The offset that the next record will get."""
        return self._read(topic, partition, lambda log: log.end)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete records below ``offset``, like retention; readers at such an offset get error 1."""
        with self._changing():
            self._partition(topic, partition).log.delete_before(offset)

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Truncate the log at ``offset``, like an unclean election; readers beyond it get error 1."""
        with self._changing():
            self._partition(topic, partition).log.truncate(offset)

    # --- groups ---

    def coordinator(self, group: str) -> int | None:
        """The broker that coordinates the group; None: it is stopped."""
        with self._state.changed:
            return coordinator_of(self._state, group)

    def move_coordinator(self, group: str, broker_id: int) -> None:
        """Make another broker the coordinator of the group; the old one answers error 16 from now on."""
        with self._changing():
            self._group(group).moved_to = self._known(broker_id)

    def set_coordinator_members(self, group: str, are_there: bool) -> None:
        """Add or remove consumers of the coordinator group: while there are any, commits get error 25."""
        with self._changing():
            self._group(group).has_members = are_there

    def committed(self, group: str) -> dict[TopicPartition, FakeCommittedOffset]:
        """The group's offsets in Kafka's own store."""
        with self._state.changed:
            return dict(self._state.groups[group].offsets) if group in self._state.groups else {}

    def commit(self, group: str, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Store an offset in Kafka's own store, like another client."""
        with self._changing():
            self._group(group).offsets[TopicPartition(topic, partition)] = FakeCommittedOffset(offset, metadata)

    # --- faults and what was seen ---

    def inject(
        self, fault: Fault, *, api: Api[Any, Any] | None = None, broker_id: int | None = None, times: int | None = 1
    ) -> ActiveFault:
        """Activate a fault for the next requests (``times`` None: until lifted) of an API to a broker.

        A fault of one partition applies to requests with the partition; earlier faults apply first.
        """
        with self._changing():
            injected = ActiveFault(fault, api, broker_id, times)
            self._state.faults.append(injected)
            return injected

    def lift(self, injected: ActiveFault) -> None:
        """Deactivate a fault; requests that it holds are answered."""
        with self._changing():
            injected.lift()
            self._state.faults = [other for other in self._state.faults if other is not injected]

    @property
    def requests(self) -> list[RecordedRequest]:
        """The requests that brokers could read, oldest first (the newest ten thousand)."""
        with self._state.changed:
            return list(self._state.requests)

    def wait_for_request(self, matches: Callable[[RecordedRequest], bool], timeout_ms: int) -> RecordedRequest:
        """The first matching request, now or within the timeout; ``TimeoutError`` otherwise."""
        deadline_ms = self._state.clock.now_ms() + timeout_ms
        with self._state.changed:
            while True:
                for seen in self._state.requests:
                    if matches(seen):
                        return seen
                left_ms = deadline_ms - self._state.clock.now_ms()
                if left_ms <= 0:
                    raise TimeoutError(f"no such request within {timeout_ms} ms")
                self._state.changed.wait(left_ms / 1000)

    def wake_waiting_requests(self) -> None:
        """Make waiting requests check the clock again, after a manual clock was moved."""
        with self._changing():
            pass

    # --- inside ---

    @contextmanager
    def _changing(self) -> Iterator[None]:
        with self._state.changed:
            try:
                yield
            finally:
                self._state.changed.notify_all()

    def _known(self, broker_id: int) -> int:
        if broker_id not in self._brokers:
            raise UsageError(f"there is no broker {broker_id}; there are {sorted(self._brokers)}")
        return broker_id

    def _group(self, group: str) -> FakeCoordinatorGroup:
        return self._state.groups.setdefault(group, FakeCoordinatorGroup())

    def _partition(self, topic: str, partition: int) -> FakePartition:
        found = self._state.partition(TopicPartition(topic, partition))
        if found is None:
            raise UsageError(f"there is no partition {topic}/{partition}; create_topic and add_partitions make them")
        return found

    def _read(self, topic: str, partition: int, what: Callable[[FakeLog], int]) -> int:
        with self._state.changed:
            return what(self._partition(topic, partition).log)

    def _listening(self, host: str, port: int) -> FakeBroker | None:
        """Called with the lock held."""
        for address in self._state.addresses.values():
            if address[1:] == (host, port) and address.broker_id in self._state.running_brokers:
                return self._brokers[address.broker_id]
        return None

    def _listen(self, broker_id: int, port: int) -> None:
        def died(name: str, error: BaseException) -> None:
            self._deaths.append((name, error))

        server = TcpServer(self._state, self._brokers[broker_id], port, died)
        self._servers[broker_id] = server
        with self._changing():
            self._state.addresses[broker_id] = BrokerAddress(broker_id, HOST, server.port)
