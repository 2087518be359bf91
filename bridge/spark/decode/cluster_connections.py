"""An executor's connections to Kafka clusters and their known leaders, kept over tasks and batches.

    task --borrow--> ClusterConnectionPool ---> ClusterConnections ---> one connection a broker, partition leaders
         <-------- return; closed when the task failed

Spark keeps a Python worker after a task, so the next task of the same query finds open connections and known leaders.
One reader at a time uses a cluster's connections: two concurrent readers in one process have one each.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from zkconsumer.admin.broker_client import BrokerClient
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.broker_connection import Connection, ConnectionFactory
from zkconsumer.kafka.broker_security import BrokerSecurity, SecureConnectionFactory
from zkconsumer.kafka.metadata_client import NO_AUTO_CREATION_FROM, LeaderMetadata, fetch_leaders
from zkconsumer.kafka.supported_versions import SupportedVersions
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import METADATA

LEADERS_AGE_MAX_MS = 300_000
"""The maximum age of a cached leader (``metadata.max.age.ms`` of the Java clients)."""

CACHED_LEADERS_MAX = 100_000
"""The maximum number of partitions with cached leaders; beyond it, all are forgotten and requested again."""

POOLED_CLUSTERS_MAX = 4
"""The maximum number of clusters whose connections a worker keeps open without a reader."""

KERNEL_SIZED_BUFFER = 0
"""The receive buffer: Linux lets it grow to some megabytes, so that an answer arrives while another one is decoded."""


class ClusterConnections:
    """Connections to the brokers of one cluster.  One thread."""

    def __init__(
        self, find: Callable[[], Sequence[BrokerAddress]], connect: ConnectionFactory, client_id: str, clock: Clock
    ):
        wide: ConnectionFactory = partial(connect, receive_buffer_bytes=KERNEL_SIZED_BUFFER)
        self._brokers = BrokerClient(find, wide, clock, client_id=client_id)
        self._clock = clock
        self._leaders: dict[TopicPartition, tuple[BrokerAddress, int]] = {}

    def leader(self, tp: TopicPartition) -> BrokerAddress:
        """The leader of the partition, from the cache or from any broker.  Raises ``BrokerUnreachable`` without one."""
        known = self._leaders.get(tp)
        if known is not None and self._clock.now_ms() - known[1] < LEADERS_AGE_MAX_MS:
            return known[0]
        leaders = self.topic_metadata(tp.topic)
        if len(self._leaders) + len(leaders.partitions) > CACHED_LEADERS_MAX:
            self._leaders.clear()
        now_ms = self._clock.now_ms()
        self._leaders.update(
            {led: (broker, now_ms) for led, broker in leaders.with_leader.items() if led.topic == tp.topic}
        )
        leader = leaders.partitions.get(tp)
        if isinstance(leader, BrokerAddress):
            return leader
        self._leaders.pop(tp, None)
        if leader is None:
            why = leaders.topic_errors.get(tp.topic)
            raise BrokerUnreachable(
                f"{tp}: this partition does not exist at the brokers{f' ({why})' if why else ''}. Was the topic "
                "deleted?"
            )
        raise BrokerUnreachable(f"{tp}: it has no leader ({leader}). Start the brokers with its replicas")

    def topic_metadata(self, topic: str) -> LeaderMetadata:
        """The leaders of a topic, from any broker; the request creates no topic.

        Brokers before 0.11 may create a requested topic: those are asked for all topics.  Raises ``BrokerUnreachable``
        when none answers.
        """

        def question(connection: Connection, ranges: SupportedVersions, timeout_ms: int) -> LeaderMetadata:
            may_forbid = ranges.pick(METADATA) >= NO_AUTO_CREATION_FROM
            return fetch_leaders(connection, ranges, [topic] if may_forbid else None, timeout_ms)

        return self._brokers.execute_on_any(question)

    def forget_leader(self, tp: TopicPartition) -> None:
        """The next call of ``leader`` for this partition sends a request to a broker."""
        self._leaders.pop(tp, None)

    def connection_to(self, broker: BrokerAddress) -> tuple[Connection, SupportedVersions]:
        """An open connection, and the versions that the broker supports; see ``BrokerClient.at`` for the errors."""
        return self._brokers.connection_to(broker.host, broker.port)

    def drop(self, broker: BrokerAddress) -> None:
        """Close the connection to a broker: answers in flight are lost."""
        self._brokers.disconnect(broker.host, broker.port)

    def close(self) -> None:
        """Close every connection."""
        self._brokers.close()


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """How to find and connect to a cluster; two equal ones may use the same connections.  Shows no secret."""

    brokers: tuple[BrokerAddress, ...]
    security: BrokerSecurity
    client_id: str

    def open(self, clock: Clock = SYSTEM_CLOCK) -> ClusterConnections:
        """Opens no connection yet.  Raises ``InvalidConfigException`` for certificates that cannot be read here."""
        return ClusterConnections(
            lambda: self.brokers, SecureConnectionFactory(self.security, clock), self.client_id, clock
        )


class _PooledConnections(NamedTuple):
    address: ClusterAddress
    cluster: ClusterConnections


class ClusterConnectionPool:
    """The connections without a reader, the least recently used first.  Any thread."""

    def __init__(
        self,
        open_: Callable[[ClusterAddress], ClusterConnections] = ClusterAddress.open,
        kept_max: int = POOLED_CLUSTERS_MAX,
    ) -> None:
        self._open = open_
        self._kept_max = kept_max
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._kept: deque[_PooledConnections] = deque()

    @contextmanager
    def borrow(self, address: ClusterAddress) -> Iterator[ClusterConnections]:
        """The connections for one reader.  They are kept afterwards, unless the reader ended by an error."""
        cluster = self._take(address) or self._open(address)
        try:
            yield cluster
        except GeneratorExit:
            # A reader that ended early has closed the connection on which it waited for an answer.
            self._return(address, cluster)
            raise
        except BaseException:
            cluster.close()
            raise
        self._return(address, cluster)

    def close(self) -> None:
        """Close all kept connections."""
        with self._lock:
            kept, self._kept = self._kept, deque()
        for each in kept:
            each.cluster.close()

    def _take(self, address: ClusterAddress) -> ClusterConnections | None:
        with self._lock:
            if self._pid != os.getpid():
                # The parent process reads from these connections; this fork only drops its references.
                self._kept.clear()
                self._pid = os.getpid()
            for kept in reversed(self._kept):
                if kept.address == address:
                    self._kept.remove(kept)
                    return kept.cluster
        return None

    def _return(self, address: ClusterAddress, cluster: ClusterConnections) -> None:
        with self._lock:
            self._kept.append(_PooledConnections(address, cluster))
            too_many = self._kept.popleft() if len(self._kept) > self._kept_max else None
        if too_many is not None:
            too_many.cluster.close()


CONNECTION_POOL = ClusterConnectionPool()
"""The pool of this worker."""
