"""One Kafka cluster as an executor knows it: connections and leaders, kept over tasks and batches.

    task --lent--> Clusters ---> Cluster ---> one connection a broker, who leads which partition
         <-------- back; closed when the task failed

Spark lets a Python worker live on after a task, so the next task of the same query finds its connections open and its
leaders known.  A cluster is lent to one reader at a time: two that read at once in one process have one each.
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

from zkconsumer.admin.brokers import Brokers
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka.connection import Connect, Connection
from zkconsumer.kafka.metadata import MAY_FORBID_CREATION_FROM, Leaders, fetch_leaders
from zkconsumer.kafka.security import BrokerSecurity, SecureConnect
from zkconsumer.kafka.versions import ApiRanges
from zkconsumer.types import BrokerAddress, TopicPartition
from zkconsumer.wire.schemas import METADATA

LEADERS_AGE_MAX_MS = 300_000
"""How long a leader is believed without being asked for (``metadata.max.age.ms`` of the Java clients)."""

LEADERS_KEPT_MAX = 100_000
"""Partitions whose leaders are remembered; beyond, all are forgotten and asked for again."""

CLUSTERS_KEPT_MAX = 4
"""Clusters that a worker keeps open while nobody reads from them."""

KERNEL_DECIDES = 0
"""The receive buffer: Linux lets it grow to some megabytes, so that an answer arrives while another is decoded."""


class Cluster:
    """Connections to the brokers of one cluster.  One thread."""

    def __init__(self, find: Callable[[], Sequence[BrokerAddress]], connect: Connect, client_id: str, clock: Clock):
        wide: Connect = partial(connect, receive_buffer_bytes=KERNEL_DECIDES)
        self._brokers = Brokers(find, wide, clock, client_id=client_id)
        self._clock = clock
        self._leaders: dict[TopicPartition, tuple[BrokerAddress, int]] = {}

    def leader(self, tp: TopicPartition) -> BrokerAddress:
        """Who leads it, from memory or from any broker.  Raises ``BrokerUnreachable`` when nobody does."""
        known = self._leaders.get(tp)
        if known is not None and self._clock.now_ms() - known[1] < LEADERS_AGE_MAX_MS:
            return known[0]
        leaders = self._ask_for(tp.topic)
        if len(self._leaders) + len(leaders.partitions) > LEADERS_KEPT_MAX:
            self._leaders.clear()
        now_ms = self._clock.now_ms()
        self._leaders.update({led: (broker, now_ms) for led, broker in leaders.with_leader.items() if led.topic == tp.topic})
        leader = leaders.partitions.get(tp)
        if isinstance(leader, BrokerAddress):
            return leader
        self._leaders.pop(tp, None)
        if leader is None:
            why = leaders.topic_errors.get(tp.topic)
            raise BrokerUnreachable(
                f"{tp}: the brokers know no such partition{f' ({why})' if why else ''}. Was the topic deleted?"
            )
        raise BrokerUnreachable(f"{tp}: no broker leads it ({leader}). Start the brokers that hold its replicas")

    def _ask_for(self, topic: str) -> Leaders:
        """Brokers before 0.11 may create a topic that they are asked for: those are asked for all that there are."""

        def question(connection: Connection, ranges: ApiRanges, timeout_ms: int) -> Leaders:
            may_forbid = ranges.pick(METADATA) >= MAY_FORBID_CREATION_FROM
            return fetch_leaders(connection, ranges, [topic] if may_forbid else None, timeout_ms)

        return self._brokers.execute_on_any(question)

    def forget_leader(self, tp: TopicPartition) -> None:
        """The next question for a leader of this partition goes to a broker."""
        self._leaders.pop(tp, None)

    def connection_to(self, broker: BrokerAddress) -> tuple[Connection, ApiRanges]:
        """A connection that holds, and what the broker speaks; see ``Brokers.at`` for the errors."""
        return self._brokers.connection_to(broker.host, broker.port)

    def drop(self, broker: BrokerAddress) -> None:
        """End the connection to a broker: what is still on its way there is read by nobody."""
        self._brokers.disconnect(broker.host, broker.port)

    def close(self) -> None:
        """End every connection."""
        self._brokers.close()


@dataclass(frozen=True, slots=True)
class Address:
    """How a cluster is found and spoken to; two that are equal may share connections.  Shows no secret."""

    brokers: tuple[BrokerAddress, ...]
    security: BrokerSecurity
    client_id: str

    def open(self, clock: Clock = SYSTEM_CLOCK) -> Cluster:
        """Nothing is connected yet.  Raises ``InvalidConfigException`` for certificates that cannot be read here."""
        return Cluster(lambda: self.brokers, SecureConnect(self.security, clock), self.client_id, clock)


class _Kept(NamedTuple):
    address: Address
    cluster: Cluster


class Clusters:
    """The clusters that nobody reads from now, the least recently used first.  Any thread."""

    def __init__(self, open_: Callable[[Address], Cluster] = Address.open, kept_max: int = CLUSTERS_KEPT_MAX) -> None:
        self._open = open_
        self._kept_max = kept_max
        self._lock = threading.Lock()
        self._pid = os.getpid()
        self._kept: deque[_Kept] = deque()

    @contextmanager
    def borrow(self, address: Address) -> Iterator[Cluster]:
        """A cluster for one reader alone.  It is kept afterwards, unless the reader ended by an error."""
        cluster = self._take(address) or self._open(address)
        try:
            yield cluster
        except GeneratorExit:
            # A reader that was left half-way has dropped the connection on which it waited for an answer.
            self._return(address, cluster)
            raise
        except BaseException:
            cluster.close()
            raise
        self._return(address, cluster)

    def close(self) -> None:
        """End all that is kept."""
        with self._lock:
            kept, self._kept = self._kept, deque()
        for each in kept:
            each.cluster.close()

    def _take(self, address: Address) -> Cluster | None:
        with self._lock:
            if self._pid != os.getpid():
                # Another process reads from these connections; here they are only let go of.
                self._kept.clear()
                self._pid = os.getpid()
            for kept in reversed(self._kept):
                if kept.address == address:
                    self._kept.remove(kept)
                    return kept.cluster
        return None

    def _return(self, address: Address, cluster: Cluster) -> None:
        with self._lock:
            self._kept.append(_Kept(address, cluster))
            too_many = self._kept.popleft() if len(self._kept) > self._kept_max else None
        if too_many is not None:
            too_many.cluster.close()


CLUSTERS = Clusters()
"""Those of this worker."""
