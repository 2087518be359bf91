"""One node of the broker: an id, its addresses, its group coordinator, and the handlers of its requests.

All nodes of a process share the topics and their logs.  A node answers for the partitions that it leads, like a broker
of a real cluster, so clients must find and follow the leaders.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Any

from bridge.broker import apis
from bridge.broker.coordinator_runtime import CoordinatorRuntime
from bridge.broker.fetch_session_cache import FetchSessionCache
from bridge.broker.topic_store import OFFSETS_TOPIC, BrokerPartition
from bridge.coordinator.api_request import AclOperation, ApiRequest, ResponseCallback
from bridge.coordinator.kafka_apis import KafkaApis
from zkconsumer.kafka.error_codes import (
    FENCED_LEADER_EPOCH,
    GROUP_AUTHORIZATION_FAILED,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    TOPIC_AUTHORIZATION_FAILED,
    UNKNOWN_LEADER_EPOCH,
    UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode,
)
from zkconsumer.types import BrokerAddress, TopicPartition

if TYPE_CHECKING:
    from bridge.broker.broker_cluster import BrokerCluster
    from bridge.coordinator.api_request import LegacyOffsetStore
    from bridge.coordinator.release_features import BrokerRelease

UNKNOWN_EPOCH = -1

_log = logging.getLogger(__name__)


class BrokerNode:
    """``addresses``: listener → the advertised address.  ``release``: the one that this node emulates."""

    def __init__(
        self, node_id: int, release: BrokerRelease, cluster: BrokerCluster, groups: CoordinatorRuntime
    ) -> None:
        self.node_id = node_id
        self.release = release
        self.cluster = cluster
        self.coordinator_runtime = groups
        self.addresses: dict[str, BrokerAddress] = {}
        self.fetch_sessions = FetchSessionCache(cluster.scheduler.now_ms)
        self.kafka_apis = KafkaApis(self, apis.api_handlers(self))

    def is_authorized(self, call: ApiRequest, operation: AclOperation, topic: str) -> bool:
        """Whether the client may do this with a topic."""
        return self.topic_error(call, operation, topic) is NONE

    def partition_or_error(
        self, call: ApiRequest, topic: str, index: int, epoch: int = UNKNOWN_EPOCH
    ) -> BrokerPartition | ErrorCode:
        """The partition, if this node leads it in the epoch of the client's request."""
        injected = call.injected.partitions.get(TopicPartition(topic, index))
        if injected is not None:
            return injected
        partition = self.cluster.topics.partition(topic, index)
        if partition is None:
            return UNKNOWN_TOPIC_OR_PARTITION
        if partition.leader != self.node_id:
            return NOT_LEADER_OR_FOLLOWER
        if epoch != UNKNOWN_EPOCH and epoch < partition.leader_epoch:
            return FENCED_LEADER_EPOCH
        if epoch != UNKNOWN_EPOCH and epoch > partition.leader_epoch:
            return UNKNOWN_LEADER_EPOCH
        return partition

    # --- for KafkaApis ------------------------------------------------------------------------------------------

    def partition_count(self, topic: str) -> int | None:
        """How many partitions a topic has; None: it does not exist."""
        found = self.cluster.topics.get(topic)
        return None if found is None else len(found.partitions)

    def ensure_offsets_topic(self) -> int | None:
        """How many partitions the offsets topic has; None: it is being created now.

        A topic counts as created when it is in ZooKeeper, as in Kafka up to 3.9: tools check there before they read
        offsets.
        """
        count = self.partition_count(OFFSETS_TOPIC)
        if count is None:
            try:
                self.cluster.create_offsets_topic()
            except OSError as error:
                _log.error("offsets-topic-creation-failed error=%s", error)
        return count if self.cluster.is_topic_registered(OFFSETS_TOPIC) else None

    def coordinator_address(self, partition: int, listener: str) -> BrokerAddress | None:
        """The leader of a partition of the offsets topic."""
        led = self.cluster.topics.partition(OFFSETS_TOPIC, partition)
        return None if led is None else self.cluster.address(led.leader, listener)

    def submit_to_coordinator(self, call: ApiRequest, body: Any, reply: ResponseCallback) -> None:
        """Submit a request to this node's coordinator."""

        def answer(found: Any) -> None:
            self.cluster.on_group_response(call, body, found)
            reply(found)

        self.coordinator_runtime.submit(call, body, answer)

    @property
    def legacy_offset_store(self) -> LegacyOffsetStore | None:
        """None: there is no ZooKeeper."""
        return self.cluster.legacy_offset_store

    @property
    def offset_metadata_max_chars(self) -> int:
        """See ``BrokerServices``."""
        return self.cluster.group_config.offset_metadata_max_chars

    def group_error(self, call: ApiRequest, operation: AclOperation, group: str) -> ErrorCode:
        """See ``BrokerServices``."""
        if group in call.injected.groups:
            return call.injected.groups[group]
        is_allowed = self.cluster.authorizer(call.principal, operation, "group", group)
        return NONE if is_allowed else GROUP_AUTHORIZATION_FAILED

    def topic_error(self, call: ApiRequest, operation: AclOperation, topic: str) -> ErrorCode:
        """See ``BrokerServices``."""
        if topic in call.injected.topics:
            return call.injected.topics[topic]
        is_allowed = self.cluster.authorizer(call.principal, operation, "topic", topic)
        return NONE if is_allowed else TOPIC_AUTHORIZATION_FAILED
