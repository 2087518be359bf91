"""A broker inside the test process: it runs from the return of ``start`` to the return of ``stop``.

with EmbeddedBroker(nodes=3) as broker:
    broker.create_topic("clicks", partitions=4)
    ...                                            # any client: bootstrap.servers = broker.bootstrap
    broker.move_coordinator("my group", 2)
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from bridge.broker.broker_cluster import BrokerCluster, allow_all
from bridge.broker.broker_server import BrokerServer
from bridge.broker.config import read_topic_config
from bridge.broker.emulated_releases import DEFAULT_RELEASE
from bridge.broker.listeners import BrokerListener, bootstrap_servers, read_listener
from bridge.broker.log.segment_files import SyncPolicy
from bridge.broker.server_settings import BrokerServerSettings, TlsFiles
from bridge.broker.topic_store import OFFSETS_TOPIC, PARTITIONS_MAX, BrokerPartition, is_valid_topic_name
from bridge.coordinator.api_request import ApiRequest, Authorizer
from bridge.coordinator.partitioning import partition_for
from zkconsumer.errors import UsageError
from zkconsumer.types import BrokerAddress
from zkconsumer.wire.entries import Record
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.store import ZkStore

T = TypeVar("T")

TEST_PROPERTIES = {"group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"}
"""Settings for tests: groups rebalance at once, and members may expire soon."""


class EmbeddedBroker:
    """One process's broker of one or several nodes, in memory unless ``data`` names a directory.

    ``release``: the Kafka release to emulate (``--emulate``).  ``listeners``: ``PROTOCOL://HOST:PORT``; port 0 is any
    free port.  ``properties``: Kafka's keys of ``server.properties``; the defaults are ``TEST_PROPERTIES``.
    ``zookeeper``: where to register; ``zk_store`` makes the session there (a fake environment has its own).
    ``authorizer``: the permissions.  ``start`` raises as ``BrokerServer.start`` does.
    """

    def __init__(
        self,
        *,
        release: str = DEFAULT_RELEASE,
        nodes: int = 1,
        data_dir: Path | str | None = None,
        sync: SyncPolicy = SyncPolicy.SYSTEM,
        listeners: Iterable[str] = ("PLAINTEXT://127.0.0.1:0",),
        properties: Mapping[str, str] | None = None,
        users: Mapping[str, str] | None = None,
        tls: TlsFiles | None = None,
        zookeeper: str | None = None,
        zk_store: Callable[[str, int], ZkStore] = KazooStore,
        authorizer: Authorizer = allow_all,
    ) -> None:
        if isinstance(listeners, str):
            raise UsageError(f"listeners is a list of them: [{listeners!r}]")
        read: tuple[BrokerListener, ...] = tuple(map(read_listener, listeners))
        self._server = BrokerServer(
            BrokerServerSettings(
                release=release,
                nodes=nodes,
                listeners=read,
                data=None if data_dir is None else Path(data_dir),
                sync=sync,
                properties={**TEST_PROPERTIES, **(properties or {})},
                users=users or {},
                tls=tls,
                zookeeper=zookeeper,
                authorizer=authorizer,
            ),
            zk_store,
        )

    def start(self) -> Self:
        """Listen, and serve requests."""
        self._server.start()
        return self

    def stop(self) -> None:
        """Release everything; a second call does nothing."""
        self._server.stop()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def addresses(self, listener: str | None = None) -> list[BrokerAddress]:
        """The addresses of the nodes at a listener, by default the first one."""
        return self._server.addresses(listener)

    @property
    def bootstrap(self) -> str:
        """The nodes in the form of ``bootstrap.servers``."""
        return bootstrap_servers(self.addresses())

    def run_on_broker_thread(self, action: Callable[[BrokerCluster], T]) -> T:
        """Run something on the broker's thread, for operations without a method here."""
        return self._server.call(action)

    def on_group_response(self, on_group_answer: Callable[[ApiRequest, Any, Any], None]) -> None:
        """From now on call this on the broker's thread before each response of a group coordinator is sent, with
        the call, its body, and the response (``HistoryRecorder.kafka_callback`` makes one).
        """

        def listen(cluster: BrokerCluster) -> None:
            cluster.on_group_response = on_group_answer

        self.run_on_broker_thread(listen)

    def create_topic(self, topic: str, partitions: int = 1, config: Mapping[str, str] | None = None) -> None:
        """Create a topic.  ``UsageError``: it exists, or its name or a setting is invalid."""
        if not is_valid_topic_name(topic):
            raise UsageError(f"{topic!r}: a topic's name has 1 to 249 of the characters a-z A-Z 0-9 . _ -")
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise UsageError(f"{partitions} partitions; a topic has 1 to {PARTITIONS_MAX}")

        settings = read_topic_config(config or {}).to_properties()

        def create(cluster: BrokerCluster) -> None:
            if cluster.topics.get(topic) is not None:
                raise UsageError(f"there is a topic {topic} already")
            cluster.create_topic(topic, partitions, config=settings)

        self.run_on_broker_thread(create)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic with its records.  ``UsageError``: it does not exist."""

        def delete(cluster: BrokerCluster) -> None:
            found = cluster.topics.get(topic)
            if found is None:
                raise UsageError(f"there is no topic {topic}")
            cluster.delete_topics([found])

        self.run_on_broker_thread(delete)

    def append(self, topic: str, partition: int, values: Iterable[bytes]) -> int:
        """Store records without keys; returns the end of the log.  Waiting readers are woken.

        ``UsageError``: the partition does not exist, a value is not ``bytes``, or the topic is compacted: such a topic
        needs records with keys.
        """
        values = list(values)
        for value in values:
            if not isinstance(value, bytes):
                raise UsageError(f"{value!r} is not a record: append takes a list of bytes, such as [b'a', b'b']")

        def append(cluster: BrokerCluster) -> int:
            found = _partition(cluster, topic, partition)
            if found.log.settings.validation_rules.is_compacted and values:
                raise UsageError(
                    f"topic {topic} is compacted, and every record of it needs a key (INVALID_RECORD): send it with a "
                    "producer, or remove cleanup.policy"
                )
            now_ms = cluster.scheduler.now_ms()
            records = [Record(at, now_ms, 0, None, value) for at, value in enumerate(values)]
            if records:
                before = found.log.size
                found.log.append_records(records, found.leader_epoch, now_ms)
                cluster.fetch_purgatory.on_append(topic, partition, found.log.size - before)
            return found.log.end

        return self.run_on_broker_thread(append)

    def log_end(self, topic: str, partition: int) -> int:
        """The offset that the next record will have."""
        return self.run_on_broker_thread(lambda cluster: _partition(cluster, topic, partition).log.end)

    def records(self, topic: str, partition: int) -> list[Record]:
        """All stored records."""
        return self.run_on_broker_thread(lambda cluster: list(_partition(cluster, topic, partition).log.records()))

    def offsets_partition(self, group: str) -> int:
        """The partition of ``__consumer_offsets`` of a group."""
        return self.run_on_broker_thread(lambda cluster: partition_for(group, cluster.offsets_topic_partitions))

    def coordinator(self, group: str) -> int | None:
        """The node that coordinates a group; None: there is none, or no client has asked for a coordinator yet."""

        def look(cluster: BrokerCluster) -> int | None:
            led = cluster.topics.partition(OFFSETS_TOPIC, partition_for(group, cluster.offsets_topic_partitions))
            return None if led is None or led.leader < 0 else led.leader

        return self.run_on_broker_thread(look)

    def move_coordinator(self, partition: int | str, node: int | None, *, loading_ms: int = 0) -> None:
        """Make another node the leader of a partition of ``__consumer_offsets``, or of that of a group; None: no
        leader.

        The old coordinator answers 16, the new one 14 for ``loading_ms``; without a leader, FindCoordinator answers
        15.  ``UsageError``: the partition or the node does not exist.
        """
        number = self.offsets_partition(partition) if isinstance(partition, str) else partition
        self.run_on_broker_thread(lambda cluster: cluster.move_coordinator(number, node, loading_ms))

    def move_leader(self, topic: str, partition: int, node: int) -> None:
        """Make another node the leader of a partition.  ``UsageError``: the partition or the node does not exist."""
        self.run_on_broker_thread(lambda cluster: cluster.move_leader(topic, partition, node))


def _partition(cluster: BrokerCluster, topic: str, partition: int) -> BrokerPartition:
    found = cluster.topics.partition(topic, partition)
    if found is None:
        raise UsageError(f"there is no partition {topic}/{partition}")
    return found
