"""The shared state of the brokers of a fake cluster: topics, logs, leaders, faults, and its lock."""

from __future__ import annotations

import hashlib
import threading
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from bridge.testing.fake_faults import ActiveFault
from bridge.testing.fake_groups import FakeCoordinatorGroup, Znodes, ZnodesInMemory
from bridge.testing.fake_log import FakeLog
from zkconsumer.base.clock import Clock
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import Api
from zkconsumer.wire.schemas.fetch import FetchTopic

REQUESTS_KEPT = 10_000
"""How many requests a cluster remembers for ``FakeCluster.requests``."""


@dataclass(slots=True)
class FakePartition:
    """``leader`` None: there is no leader."""

    log: FakeLog
    leader: int | None
    replicas: list[int]


@dataclass(frozen=True, slots=True)
class RecordedRequest:
    """A request that a broker could read.

    ``asked``: the partitions of a Fetch, including those that its session has from earlier requests.
    """

    broker_id: int
    api: Api[Any, Any]
    version: int
    client_id: str | None
    body: Any
    asked: Sequence[FetchTopic] = ()


@dataclass(slots=True)
class ClusterState:
    """Read and change all of this under ``changed``, which is notified after each change."""

    clock: Clock
    auto_create_partitions: int
    cluster_id: str
    changed: threading.Condition = field(default_factory=threading.Condition)
    addresses: dict[int, BrokerAddress] = field(default_factory=dict)
    running_brokers: set[int] = field(default_factory=set)
    magics: dict[int, int] = field(default_factory=dict)
    topics: dict[str, list[FakePartition]] = field(default_factory=dict)
    groups: dict[str, FakeCoordinatorGroup] = field(default_factory=dict)
    znodes: Znodes = field(default_factory=ZnodesInMemory)
    faults: list[ActiveFault] = field(default_factory=list)
    requests: deque[RecordedRequest] = field(default_factory=lambda: deque(maxlen=REQUESTS_KEPT))

    def partition(self, tp: TopicPartition) -> FakePartition | None:
        """The partition, if it exists."""
        partitions = self.topics.get(tp.topic, [])
        return partitions[tp.partition] if 0 <= tp.partition < len(partitions) else None

    def add_partitions(self, topic: str, partitions: int) -> None:
        """Create a topic or add partitions; leaders and replicas are assigned round-robin."""
        rows = self.topics.setdefault(topic, [])
        ids = sorted(self.addresses)
        while len(rows) < partitions:
            leader = ids[len(rows) % len(ids)]
            rows.append(FakePartition(FakeLog(self.magics[leader]), leader, [leader]))

    def leader_of(self, partition: FakePartition) -> int | None:
        """The leader, if it is alive."""
        return partition.leader if partition.leader in self.running_brokers else None


def topic_id(topic: str) -> bytes:
    """A topic's id: the same for the same name in every cluster."""
    return hashlib.sha256(topic.encode()).digest()[:16]
