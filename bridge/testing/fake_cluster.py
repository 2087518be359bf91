"""A Kafka cluster without servers, for tests: real bytes, logs in memory, and injected faults.

    cluster = FakeCluster(brokers=2, release="1.1.1")
    cluster.create_topic("clicks", partitions=4)
    cluster.append("clicks", 0, [b"a", b"b"])
    connection = cluster.connect(*cluster.address(1)[1:])      # a Connection; ``cluster.connect`` is a ``Connect``

No port is open: a connection made by ``connect`` passes its frames to the broker in the caller's own thread,
through the same codec and the same connection code as over a socket.  ``serve`` opens real ports on 127.0.0.1
for programs that need them.

The brokers are the nodes of the development broker (``bridge.broker``, with the group coordinator of
``bridge.coordinator``) on the clock of the test and without a thread of their own: a request is processed in the
thread of the client, with the lock of the cluster, and so are timers that are due.  So the same requests give the same
answers in the same order.  Each broker has a release, from 0.8.1.1 on.  Leaders and coordinators move, brokers stop,
logs lose their start or end.  There is no replication (the high watermark is the end) and no transaction.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import count
from typing import Any, NamedTuple, Unpack

from bridge.broker.broker_cluster import BrokerCluster
from bridge.broker.catalogue import MemoryCatalogueStore
from bridge.broker.config import BrokerConfig, group_config_entries
from bridge.broker.fetch_session_cache import FETCH_SESSION_SLOTS as FETCH_SESSIONS_MAX
from bridge.broker.fetch_session_cache import FetchSessionCache
from bridge.broker.log.segment_files import OpenFiles, SyncPolicy
from bridge.broker.topic_store import OFFSETS_TOPIC, BrokerPartition, NewTopic, TopicStore
from bridge.coordinator.behaviour import OLDEST_RELEASE, behaviour_of
from bridge.coordinator.config import GroupCoordinatorConfig
from bridge.coordinator.group_coordinator import GroupCoordinator
from bridge.coordinator.partitioning import partition_for
from bridge.coordinator.release_features import BrokerRelease
from bridge.testing.fake_broker import LISTENER, FakeBroker
from bridge.testing.fake_coordinator_client import (
    FOR_EVER_MS,
    MEMBER_CLIENT_ID,
    FakeCommittedOffset,
    FakeCoordinatorClient,
)
from bridge.testing.fake_faults import ActiveFault, Fault
from bridge.testing.fake_log import FakeLog
from bridge.testing.fake_releases import NEWEST, release_named
from bridge.testing.fake_security import FakeSecurity, SecuredTransport
from bridge.testing.fake_state import (
    CallerScheduler,
    ClusterState,
    RecordedRequest,
    ZnodeOffsetStore,
    Znodes,
    ZnodesInMemory,
)
from bridge.testing.fake_transport import HOST, MemoryTransport, TcpServer
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import UsageError
from zkconsumer.kafka.broker_connection import BlockingConnection, Connection, ConnectionOptions
from zkconsumer.kafka.transport import Transport
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire import compression
from zkconsumer.wire.entries import Record
from zkconsumer.wire.schemas import Api

CLUSTER_ID = "zkconsumer-fake-cluster"
GROUP_CONFIG = GroupCoordinatorConfig(
    group_min_session_timeout_ms=0,
    group_max_session_timeout_ms=FOR_EVER_MS,
    group_initial_rebalance_delay_ms=0,
    offsets_retention_minutes=FOR_EVER_MS // 60_000,
)
"""Groups rebalance at once, and nothing expires."""

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
        releases = {
            broker_id: release_named(release if isinstance(release, str) else release[broker_id]) for broker_id in ids
        }
        scheduler = CallerScheduler(clock)
        self._cluster = _engine(releases, auto_create_partitions, scheduler)
        self._cluster.legacy_offset_store = ZnodeOffsetStore(ZnodesInMemory() if zookeeper is None else zookeeper)
        self._state = ClusterState(clock, scheduler, self._cluster, self._use_groups)
        self._brokers = {broker_id: FakeBroker(self._state, node) for broker_id, node in self._cluster.nodes.items()}
        self._servers: dict[int, TcpServer] = {}
        self._is_serving = False
        self._deaths: list[tuple[str, BaseException]] = []
        for broker_id, node in self._cluster.nodes.items():
            node.fetch_sessions = FetchSessionCache(clock.now_ms, fetch_sessions_max)
            # A host name and a port that do not exist, so that no real server is ever reached by mistake.
            node.addresses[LISTENER] = BrokerAddress(broker_id, f"broker-{broker_id}.fake.invalid", 9092)

    # --- reaching the brokers ---

    def connect(self, host: str, port: int, **options: Unpack[ConnectionOptions]) -> Connection:
        """A ``ConnectionFactory``: a connection in memory to the broker with this address, without TLS and SASL."""
        return BlockingConnection(host, port, transport=self.transport, clock=self._state.clock, **options)

    def transport(self, host: str, port: int, receive_buffer_bytes: int, clock: Clock) -> Transport:
        """Replaces the socket to the broker with this address."""
        below = MemoryTransport(self._state, lambda: self._listening(host, port), clock)
        return below if self.security is None else SecuredTransport(below, self.security, clock)

    def address(self, broker_id: int) -> BrokerAddress:
        """The address of a broker for ``connect``, and during ``serve`` for TCP."""
        with self._state.changed:
            return self._brokers[broker_id].node.addresses[LISTENER]

    @property
    def addresses(self) -> list[BrokerAddress]:
        """Of all brokers, stopped ones too, by id."""
        with self._state.changed:
            return [self._brokers[broker_id].node.addresses[LISTENER] for broker_id in sorted(self._brokers)]

    @contextmanager
    def serve(self) -> Iterator[FakeCluster]:
        """Listen on 127.0.0.1, a free port for each broker; meanwhile addresses and metadata contain these ports."""
        before = self.addresses
        try:
            self._is_serving = True
            for broker_id in self._brokers:
                self._listen(broker_id, port=0)
            yield self
        finally:
            self._is_serving = False
            ended = [self._servers.pop(broker_id).stop() for broker_id in list(self._servers)]
            with self._state.changed:
                for address in before:
                    self._brokers[address.broker_id].node.addresses[LISTENER] = address
        assert all(ended), "a thread of the fake brokers did not end in time"
        if self._deaths:
            name, error = self._deaths[0]
            raise RuntimeError(f"thread {name} of the fake brokers died") from error

    def stop_broker(self, broker_id: int) -> None:
        """Kill a broker: its connections break, new ones are refused, its partitions have no leader."""
        with self._changing():
            self._cluster.stopped_nodes.add(self._known(broker_id))
            self._brokers[broker_id].node.fetch_sessions.drop_all()
        server = self._servers.pop(broker_id, None)
        if server is not None:
            server.stop()

    def drop_fetch_sessions(self, broker_id: int) -> None:
        """Make a broker delete its fetch sessions, as when it needs their slots for others."""
        with self._changing():
            self._brokers[self._known(broker_id)].node.fetch_sessions.drop_all()

    def start_broker(self, broker_id: int) -> None:
        """Start a stopped broker again, with its logs and its address."""
        with self._changing():
            self._cluster.stopped_nodes.discard(self._known(broker_id))
            port = self._brokers[broker_id].node.addresses[LISTENER].port
        if self._is_serving and broker_id not in self._servers:
            self._listen(broker_id, port)

    # --- topics ---

    def create_topic(self, topic: str, partitions: int = 1, *, leaders: Mapping[int, int | None] | None = None) -> None:
        """Create a topic.  ``leaders``: partition → broker id or None; the others are assigned round-robin."""
        with self._changing():
            if self._cluster.topics.get(topic) is not None:
                raise UsageError(f"topic {topic} exists already; add_partitions lets it grow")
            if topic == OFFSETS_TOPIC:
                self._create_offsets_topic(partitions)
            else:
                self._cluster.create_topics([NewTopic(topic, self._replicas(0, partitions), {})])
        for partition, leader in (leaders or {}).items():
            self.move_leader(topic, partition, leader)

    def set_auto_creation(self, partitions: int) -> None:
        """From now on a request that names a missing topic creates it with so many partitions; 0: it does not."""
        with self._changing():
            self._cluster.config = _broker_config(partitions)

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Add partitions to a topic up to this number."""
        with self._changing():
            found = self._cluster.topics.get(topic)
            if found is None:
                raise UsageError(f"there is no topic {topic}; create_topic makes it")
            self._cluster.add_partitions(found, self._replicas(len(found.partitions), partitions))

    def delete_topic(self, topic: str) -> None:
        """Remove a topic with its records."""
        with self._changing():
            found = self._cluster.topics.get(topic)
            if found is None:
                raise UsageError(f"there is no topic {topic}")
            self._cluster.delete_topics([found])

    def move_leader(self, topic: str, partition: int, leader: int | None) -> None:
        """Make another broker the leader, in a new epoch; None: no leader."""
        with self._changing():
            self._partition(topic, partition)
            self._cluster.move_leader(topic, partition, None if leader is None else self._known(leader))

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
        with self._writing(topic, partition) as log:
            now_ms = self._state.clock.wall_ms() if timestamp_ms is None else timestamp_ms
            has_timestamps = log.settings.validation_rules.magic > 0
            timestamp, kind = (now_ms, CREATE_TIME) if has_timestamps else (NO_TIMESTAMP, NO_TIMESTAMP)
            first = log.end
            records = [
                Record(first + at, timestamp, kind, key, value, headers)
                for at, (key, value) in enumerate(zip(keys or [None] * len(values), values, strict=True))
            ]
            log.append_at(records, codec, self._state.scheduler.now_ms())
            return AppendedRange(first, log.end - 1)

    def append_records(
        self, topic: str, partition: int, records: Iterable[Record], codec: int = 0, magic: int | None = None
    ) -> None:
        """Append one batch at offsets of its own, with gaps as compaction leaves them, also in an older format."""
        with self._writing(topic, partition) as log:
            log.append_at(records, codec, self._state.scheduler.now_ms(), magic)

    def append_raw(self, topic: str, partition: int, data: bytes, next_offset: int) -> None:
        """Append bytes unchanged, even damaged ones; afterwards the log ends at ``next_offset``."""
        with self._writing(topic, partition) as log:
            log.append_raw(data, next_offset, self._state.scheduler.now_ms())

    def log_start(self, topic: str, partition: int) -> int:
        """The first offset that can be read."""
        return self._read(topic, partition, lambda log: log.start)

    def log_end(self, topic: str, partition: int) -> int:
        """The offset that the next record will get."""
        return self._read(topic, partition, lambda log: log.end)

    def delete_before(self, topic: str, partition: int, offset: int) -> None:
        """Delete records below ``offset``, like retention; readers at such an offset get error 1."""
        with self._writing(topic, partition) as log:
            log.delete_before(offset)

    def truncate(self, topic: str, partition: int, offset: int) -> None:
        """Truncate the log at ``offset``, like an unclean election; readers beyond it get error 1."""
        with self._writing(topic, partition) as log:
            log.truncate(offset)

    # --- groups ---

    def coordinator(self, group: str) -> int | None:
        """The broker that coordinates the group; None: it is stopped."""
        with self._state.changed:
            leader = self._coordinator_partition(group).leader
            return None if leader < 0 or leader in self._cluster.stopped_nodes else leader

    def move_coordinator(self, group: str, broker_id: int) -> None:
        """Make another broker the coordinator of the group, and of others whose offsets are in the same partition.

        The old one answers error 16 from now on.
        """
        with self._changing():
            led = self._coordinator_partition(group)
            if led.leader != self._known(broker_id):
                self._cluster.move_coordinator(led.index, broker_id)

    def set_coordinator_members(self, group: str, are_there: bool, *, client_id: str = MEMBER_CLIENT_ID) -> None:
        """Let a consumer join the coordinator group, or leave it: while there is one, commits get error 25.

        It subscribes to every topic, and never expires.  Releases before 0.9 have no members.
        """
        with self._changing():
            client = self._coordinator_client(group)
            if not are_there:
                client.leave(group)
            elif client.node.release.supports_group_members and not client.has_members(group):
                client.join(group, client_id)

    def committed(self, group: str) -> dict[TopicPartition, FakeCommittedOffset]:
        """The group's offsets in Kafka's own store."""
        with self._state.changed:
            return self._coordinator_client(group).committed(group)

    def commit(self, group: str, topic: str, partition: int, offset: int, metadata: str = "") -> None:
        """Store an offset in Kafka's own store, like another client; also while the group has members."""
        with self._changing():
            self._coordinator_client(group).commit(group, TopicPartition(topic, partition), offset, metadata)

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
                self._state.scheduler.run_due()
            finally:
                self._state.changed.notify_all()

    def _known(self, broker_id: int) -> int:
        if broker_id not in self._brokers:
            raise UsageError(f"there is no broker {broker_id}; there are {sorted(self._brokers)}")
        return broker_id

    def _replicas(self, before: int, partitions: int) -> list[tuple[int, ...]]:
        """The leaders of new partitions, round-robin."""
        ids = sorted(self._brokers)
        return [(ids[at % len(ids)],) for at in range(before, partitions)]

    def _use_groups(self) -> None:
        """With the lock held: create the topic of the coordinators."""
        if self._cluster.topics.get(OFFSETS_TOPIC) is None:
            self._create_offsets_topic(self._cluster.group_config.offsets_topic_partitions)

    def _create_offsets_topic(self, partitions: int) -> None:
        """With the lock held: the topic, and coordinators for so many partitions; no group exists before it."""
        for node in self._cluster.nodes.values():
            node.coordinator_runtime.machine = _new_coordinator(node.release, partitions)
        self._cluster.offsets_topic_partitions = partitions
        replicas = self._replicas(0, partitions)
        self._cluster.create_topics([NewTopic(OFFSETS_TOPIC, replicas, {"cleanup.policy": "compact"})])
        self._cluster.start()
        self._state.scheduler.run_due()

    def _coordinator_partition(self, group: str) -> BrokerPartition:
        self._use_groups()
        found = self._cluster.topics.partition(
            OFFSETS_TOPIC, partition_for(group, self._cluster.offsets_topic_partitions)
        )
        assert found is not None, "the topic of the coordinators exists, and has these partitions"
        return found

    def _coordinator_client(self, group: str) -> FakeCoordinatorClient:
        node = self._cluster.nodes[self._coordinator_partition(group).leader]
        return FakeCoordinatorClient(node, self._state.scheduler)

    def _partition(self, topic: str, partition: int) -> BrokerPartition:
        found = self._cluster.topics.partition(topic, partition)
        if found is None:
            raise UsageError(f"there is no partition {topic}/{partition}; create_topic and add_partitions make them")
        return found

    def _log(self, topic: str, partition: int) -> FakeLog:
        log = self._partition(topic, partition).log
        assert isinstance(log, FakeLog), "all logs of this cluster are of this kind"
        return log

    @contextmanager
    def _writing(self, topic: str, partition: int) -> Iterator[FakeLog]:
        """Change a log, and let the fetches that wait for it read again."""
        with self._changing():
            log = self._log(topic, partition)
            before = log.size
            yield log
            grown = log.size - before
            if grown > 0:
                self._cluster.fetch_purgatory.on_append(topic, partition, grown)
            else:
                self._cluster.fetch_purgatory.on_partition_changed(topic, partition)

    def _read(self, topic: str, partition: int, what: Callable[[FakeLog], int]) -> int:
        with self._state.changed:
            return what(self._log(topic, partition))

    def _listening(self, host: str, port: int) -> FakeBroker | None:
        """Called with the lock held."""
        for address in self._cluster.addresses(LISTENER):
            if address[1:] == (host, port):
                return self._brokers[address.broker_id]
        return None

    def _listen(self, broker_id: int, port: int) -> None:
        def died(name: str, error: BaseException) -> None:
            self._deaths.append((name, error))

        server = TcpServer(self._state, self._brokers[broker_id], port, died)
        self._servers[broker_id] = server
        with self._changing():
            self._brokers[broker_id].node.addresses[LISTENER] = BrokerAddress(broker_id, HOST, server.port)


def _broker_config(auto_create_partitions: int) -> BrokerConfig:
    return BrokerConfig(
        num_partitions=max(1, auto_create_partitions), auto_create_topics_enable=auto_create_partitions > 0
    )


def _engine(
    releases: Mapping[int, BrokerRelease], auto_create_partitions: int, scheduler: CallerScheduler
) -> BrokerCluster:
    """The development broker's cluster, in memory, with settings for tests."""
    config = _broker_config(auto_create_partitions)
    numbers = count(1)
    topics = TopicStore(
        MemoryCatalogueStore(),
        None,
        OpenFiles(SyncPolicy.SYSTEM),
        config=config,
        releases=releases,
        new_cluster_id=CLUSTER_ID,
        random_bytes=lambda size: next(numbers).to_bytes(size, "big"),
        new_log=FakeLog,
    )
    return BrokerCluster(
        topics,
        config,
        group_config=GROUP_CONFIG,
        group_rows=group_config_entries(GROUP_CONFIG, GroupCoordinatorConfig()),
        new_coordinator=lambda node_id: _new_coordinator(releases[node_id], GROUP_CONFIG.offsets_topic_partitions),
        scheduler=scheduler,
    )


def _new_coordinator(release: BrokerRelease, partitions: int) -> GroupCoordinator:
    """Commits of 0.8.2, which has no members, are those of 0.9."""
    behaviour = behaviour_of(release.name if release.supports_group_members else OLDEST_RELEASE)
    numbers = count(1)
    config = replace(GROUP_CONFIG, offsets_topic_partitions=partitions)
    return GroupCoordinator(config, behaviour, lambda client_id: f"{client_id}-{next(numbers)}")
