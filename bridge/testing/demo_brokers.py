"""The brokers of ``zkconsumer demo`` if the bridge is installed: two nodes of the embedded broker.

Named by the entry point ``zkconsumer.demo_brokers``; implements ``zkconsumer.cli.demo.DemoCluster``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from bridge.testing.embedded_broker import EmbeddedBroker
from zkconsumer.zk.store import ZkStore


class DemoBrokers:
    """Started when it is created; registered in the ZooKeeper of the sessions that ``zk_store`` makes."""

    description = "A ZooKeeper in memory, and two nodes of the embedded broker on this machine."

    def __init__(self, zookeeper: str, zk_store: Callable[[str, int], ZkStore]) -> None:
        self._broker = EmbeddedBroker(nodes=2, zookeeper=zookeeper, zk_store=zk_store).start()

    def create_topic(self, topic: str, partitions: int) -> None:
        """Create a topic; it is in ZooKeeper soon after."""
        self._broker.create_topic(topic, partitions)

    def append(self, topic: str, partition: int, values: Sequence[bytes]) -> None:
        """Store records."""
        self._broker.append(topic, partition, values)

    def stop(self) -> None:
        """Stop the broker."""
        self._broker.stop()
