"""The shared state of all nodes of one process: topics, waiting fetches, settings; and operations on all nodes.

For the broker's thread alone.  It also has the tasks of Kafka's controller, as far as they exist here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from bridge.broker.config import BrokerConfig, BrokerConfigEntry
from bridge.broker.coordinator_runtime import CoordinatorRuntime, CoordinatorStateMachine
from bridge.broker.delayed_fetch import DelayedFetchPurgatory
from bridge.broker.disk_errors import DiskErrorLogger
from bridge.broker.node import BrokerNode
from bridge.broker.timers import Scheduler
from bridge.broker.topic_store import OFFSETS_TOPIC, BrokerPartition, BrokerTopic, NewTopic, TopicStore
from bridge.coordinator.api_request import AclOperation, ApiRequest, Authorizer, LegacyOffsetStore
from bridge.coordinator.config import GroupCoordinatorConfig
from zkconsumer.errors import UsageError
from zkconsumer.types import BrokerAddress


def allow_all(principal: str, operation: AclOperation, resource: str, name: str) -> bool:
    """A development broker allows everything unless it has another authorizer."""
    return True


class BrokerCluster:
    """``machine(node id)`` makes the group coordinator of a node; ``on_topics_changed`` is called when topics are
    created or deleted.

    ``group_rows``: the settings of the groups, for DescribeConfigs.
    """

    def __init__(
        self,
        topics: TopicStore,
        config: BrokerConfig,
        *,
        group_config: GroupCoordinatorConfig,
        group_rows: Sequence[BrokerConfigEntry],
        new_coordinator: Callable[[int], CoordinatorStateMachine],
        scheduler: Scheduler,
        authorizer: Authorizer = allow_all,
        offsets_in_zookeeper: LegacyOffsetStore | None = None,
    ) -> None:
        self.topics = topics
        self.config = config
        self.group_config = group_config
        self.group_config_entries = group_rows
        self.scheduler = scheduler
        self.authorizer = authorizer
        self.legacy_offset_store = offsets_in_zookeeper
        self.fetch_purgatory = DelayedFetchPurgatory(scheduler)
        self.disk_errors = DiskErrorLogger(topics.folder)
        self.on_topics_changed: Callable[[], None] = lambda: None
        self.is_topic_registered: Callable[[str], bool] = lambda topic: True
        """Whether a topic is in ZooKeeper; true for each topic if the broker has no ZooKeeper."""
        self.on_group_response: Callable[[ApiRequest, Any, Any], None] = lambda call, body, answer: None
        """Called before each response of a group coordinator is sent, with the call, its body and the response."""
        self.offsets_topic_partitions = group_config.offsets_topic_partitions
        self.stopped_nodes: set[int] = set()
        """Nodes that clients cannot reach; their partitions have no leader as long as they are here."""
        self.nodes = {
            node_id: BrokerNode(
                node_id,
                release,
                self,
                CoordinatorRuntime(
                    node_id, new_coordinator(node_id), topics, scheduler, self.fetch_purgatory.on_append
                ),
            )
            for node_id, release in topics.releases.items()
        }

    @property
    def controller_id(self) -> int:
        """The node that clients use as the controller; every node accepts the requests."""
        return min(self.nodes.keys() - self.stopped_nodes, default=-1)

    def start(self) -> None:
        """Load the groups of an existing log."""
        offsets = self.topics.get(OFFSETS_TOPIC)
        if offsets is not None:
            self._elect_all(offsets)

    def shut_down(self) -> None:
        """Answer waiting requests with error 15: the coordinators stop."""
        for node in self.nodes.values():
            node.coordinator_runtime.shut_down()

    def close(self) -> None:
        """Close the files, and unlock the directory."""
        self.topics.close()

    def address(self, node_id: int, listener: str) -> BrokerAddress | None:
        """The address of a node for clients of this listener; None: there is none, or no such node."""
        node = None if node_id in self.stopped_nodes else self.nodes.get(node_id)
        return None if node is None else node.addresses.get(listener)

    def addresses(self, listener: str) -> list[BrokerAddress]:
        """All nodes."""
        return [found for node_id in sorted(self.nodes) if (found := self.address(node_id, listener)) is not None]

    def create_topic(
        self, name: str, partitions: int, replication_factor: int = 1, config: Mapping[str, str] | None = None
    ) -> BrokerTopic:
        """Create a topic that does not exist.  ``OSError``."""
        [topic] = self.create_topics(
            [NewTopic(name, self.topics.assign_replicas(partitions, replication_factor), config or {})]
        )
        return topic

    def create_topics(self, new: Sequence[NewTopic]) -> list[BrokerTopic]:
        """Create topics that do not exist.  ``OSError``: none was created."""
        topics = self.topics.create(new) if new else []
        if topics:
            self.on_topics_changed()
        return topics

    def add_partitions(self, topic: BrokerTopic, replicas: Sequence[tuple[int, ...]]) -> None:
        """Add partitions to a topic: one for each list of nodes.  ``OSError``: none was added."""
        self.topics.add_partitions(topic, replicas)
        self.on_topics_changed()

    def create_offsets_topic(self) -> None:
        """``__consumer_offsets``, which the first FindCoordinator request creates (0.8.2 and later)."""
        replication_factor = min(self.config.offsets_topic_replication_factor, len(self.nodes))
        config = {"cleanup.policy": "compact"}
        self._elect_all(self.create_topic(OFFSETS_TOPIC, self.offsets_topic_partitions, replication_factor, config))

    def delete_topics(self, topics: Sequence[BrokerTopic]) -> None:
        """Delete topics and the groups' offsets for them; visits every group once.  ``OSError``: none was deleted."""
        if not topics:
            return
        self.topics.delete(topics)
        for topic in topics:
            for partition in topic.partitions:
                self.fetch_purgatory.on_partition_changed(topic.name, partition.index)
        for node in self.nodes.values():
            node.coordinator_runtime.topics_deleted(frozenset(topic.name for topic in topics))
        self.on_topics_changed()

    def move_coordinator(self, partition: int, node_id: int | None, loading_ms: int = 0) -> None:
        """Make another node (None: no node) the leader of a partition of the offsets topic.

        The old one answers 16 from now on; the new one answers 14 for ``loading_ms``, while it reads the log.  While
        there is no leader, FindCoordinator answers 15.  ``UsageError``: the partition or the node does not exist.
        """
        if node_id is not None and node_id not in self.nodes:
            raise UsageError(f"there is no node {node_id}; there are {', '.join(map(str, sorted(self.nodes)))}")
        if self.topics.get(OFFSETS_TOPIC) is None:
            self.create_offsets_topic()
        led = self.topics.partition(OFFSETS_TOPIC, partition)
        if led is None:
            raise UsageError(f"{OFFSETS_TOPIC} has {self.offsets_topic_partitions} partitions, and none is {partition}")
        self._change_offsets_leader(led, -1 if node_id is None else node_id, loading_ms)

    def move_leader(self, topic: str, partition: int, node_id: int | None) -> None:
        """Make another node (None: no node) the leader of a partition.

        ``UsageError``: the partition or the node does not exist.
        """
        if topic == OFFSETS_TOPIC:
            self.move_coordinator(partition, node_id)
            return
        led = self.topics.partition(topic, partition)
        if led is None:
            raise UsageError(f"there is no partition {topic}/{partition}")
        if node_id is not None and node_id not in self.nodes:
            raise UsageError(f"there is no node {node_id}; there are {', '.join(map(str, self.nodes))}")
        self.topics.set_leader(led, -1 if node_id is None else node_id)
        self.fetch_purgatory.on_partition_changed(topic, partition)
        self.on_topics_changed()

    def _change_offsets_leader(self, led: BrokerPartition, leader: int, loading_ms: int) -> None:
        before = self.nodes.get(led.leader)
        self.topics.set_leader(led, leader)
        if before is not None:
            before.coordinator_runtime.resign(led.index, led.leader_epoch)
        after = self.nodes.get(leader)
        if after is not None:
            after.coordinator_runtime.elect(led.index, led.leader_epoch, loading_ms)
        self.fetch_purgatory.on_partition_changed(led.topic, led.index)
        self.on_topics_changed()

    def _elect_all(self, offsets: BrokerTopic) -> None:
        for partition in offsets.partitions:
            node = self.nodes.get(partition.leader)
            if node is not None:
                node.coordinator_runtime.elect(partition.index, partition.leader_epoch)
