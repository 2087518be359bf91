"""A ZooKeeper and a Kafka cluster in memory, registered with each other, and connectors on them.

    world = FakeEnvironment(brokers=2)
    world.create_topic("clicks", partitions=4)
    connector = world.connector(group_id="g1")

Connectors use the same store Protocol and the same bytes as with real servers.
"""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any

from bridge.testing.fake_cluster import FakeCluster
from bridge.testing.fake_releases import NEWEST
from zkconsumer.config import ConsumerConfig
from zkconsumer.connector import ZookeeperConsumerConnector
from zkconsumer.testing.fake_zookeeper import FakeZkStore, FakeZooKeeper
from zkconsumer.types import Hooks, TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.kafka_znodes import parse_topic
from zkconsumer.zk.zk_security import NO_SECURITY, ZkSecurity, zk_security_of
from zkconsumer.zk.znode_formats import parse_offset, parse_owner

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.kafka.broker_connection import ConnectionFactory
    from zkconsumer.zk.store import ZkStore

ADDRESS = "fake.invalid:2181"
"""The ``zookeeper.connect`` of connectors made here; nothing listens there."""


class FakeEnvironment:
    """One ensemble, one cluster.  A context manager: its end closes the connectors and stops the delivery thread.

    ``connect``: how connectors reach brokers that are registered in its ZooKeeper but are not in this cluster.
    ``clock``: the times of znodes; None: fixed times, which grow by one with each write.
    """

    def __init__(
        self,
        brokers: int = 1,
        *,
        release: str = NEWEST,
        has_multi_read: bool = True,
        connect: ConnectionFactory | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.zookeeper = FakeZooKeeper(delivery="thread", has_multi_read=has_multi_read, clock=clock)
        self.cluster = FakeCluster(brokers, release=release, zookeeper=self.zookeeper)
        self.connect: ConnectionFactory = self.cluster.connect if connect is None else connect
        self.stores: list[FakeZkStore] = []
        self.connectors: list[ZookeeperConsumerConnector] = []
        for address in self.cluster.addresses:
            node: dict[str, Any] = {"jmx_port": -1, "timestamp": "0", "version": 1}
            node |= {"host": address.host, "port": address.port}
            if release.startswith("0.9"):
                node |= {"version": 2, "endpoints": [f"PLAINTEXT://{address.host}:{address.port}"]}
            self.zookeeper.ensure(paths.broker(address.broker_id), json.dumps(node).encode())
        self.zookeeper.ensure(paths.BROKER_TOPICS)
        self.zookeeper.ensure(paths.CONSUMERS)

    def __enter__(self) -> FakeEnvironment:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Close every connector made here, the newest first, and stop the delivery thread."""
        for connector in reversed(self.connectors):
            connector.close()
        self.zookeeper.stop()

    def create_topic(self, topic: str, partitions: int = 1) -> None:
        """Create a topic at the brokers and in ZooKeeper; a later call with more partitions adds them."""
        known = parse_topic(self.zookeeper.data(paths.topic(topic)) or b"").partitions
        if known:
            self.cluster.add_partitions(topic, partitions)
        else:
            self.cluster.create_topic(topic, partitions)
        brokers = [address.broker_id for address in self.cluster.addresses]
        replicas = {str(p): [brokers[p % len(brokers)]] for p in range(partitions)}
        self.zookeeper.ensure(paths.topic(topic), json.dumps({"version": 1, "partitions": replicas}).encode())

    def store(self, connect: str, session_timeout_ms: int, *, security: ZkSecurity = NO_SECURITY) -> ZkStore:
        """A session's store; pass this as ``store`` to ``ZookeeperConsumerConnector``."""
        chroot = connect.partition("/")[2]
        store = FakeZkStore(self.zookeeper, f"/{chroot}" if chroot else "", session_timeout_ms, security.login)
        self.stores.append(store)
        return store

    def connector(self, *, hooks: Hooks | None = None, **settings: Any) -> ZookeeperConsumerConnector:
        """A connector in this environment; ``settings`` as for ``ConsumerConfig``."""
        config = ConsumerConfig(**({"group_id": "g1", "zookeeper_connect": ADDRESS} | settings))
        store = partial(self.store, security=zk_security_of(config))
        connector = ZookeeperConsumerConnector(config, store=store, connect=self.connect, hooks=hooks)
        self.connectors.append(connector)
        return connector

    def store_of(self, connector: ZookeeperConsumerConnector) -> FakeZkStore:
        """The store of a connector made here, to disconnect or expire it."""
        return next(store for store in self.stores if store is connector.store)

    def kill(self, connector: ZookeeperConsumerConnector) -> None:
        """Like kill -9 and the session timeout: it reads and sends nothing any more, and its ephemeral nodes are
        deleted.

        The connector must still be closed to end its threads; it can do nothing any more.
        """
        connector.end_streams()
        self.zookeeper.expire(self.store_of(connector), reconnects=False)

    def owners(self, group: str, topic: str) -> dict[int, str]:
        """The owners: partition -> thread id."""
        return {
            number: parse_owner(data)
            for number in self._partitions(topic)
            if (data := self.zookeeper.data(paths.owner(group, TopicPartition(topic, number)))) is not None
        }

    def offsets(self, group: str, topic: str) -> dict[int, int]:
        """The stored offsets: partition -> the next offset to consume."""
        return {
            number: parse_offset(data)
            for number in self._partitions(topic)
            if (data := self.zookeeper.data(paths.offset(group, TopicPartition(topic, number)))) is not None
        }

    def _partitions(self, topic: str) -> tuple[int, ...]:
        return parse_topic(self.zookeeper.data(paths.topic(topic)) or b"").partitions
