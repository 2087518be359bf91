"""The shared state of a fake cluster: the broker's engine, the faults, the requests, and the lock of all of them."""

from __future__ import annotations

import heapq
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol

from bridge.testing.fake_faults import ActiveFault
from zkconsumer.errors import MalformedZnode
from zkconsumer.kafka.error_codes import UNKNOWN_SERVER_ERROR
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import Api
from zkconsumer.wire.schemas.fetch import FetchTopic
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import parse_offset

if TYPE_CHECKING:
    from bridge.broker.broker_cluster import BrokerCluster
    from bridge.coordinator.api_request import ZooKeeperOffset
    from zkconsumer.base.clock import Clock

REQUESTS_KEPT = 10_000
"""How many requests a cluster remembers for ``FakeCluster.requests``."""


@dataclass(slots=True, order=True)
class DueCall:
    """A ``ScheduledCall``."""

    due_ms: int
    number: int
    action: Callable[[], None] | None = field(compare=False)

    def cancel(self) -> None:
        self.action = None


class CallerScheduler:
    """The engine's ``Scheduler`` on the clock of a test.

    It has no thread: whoever looks at the cluster runs the calls that are due (``run_due``), with the lock held.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._wall_ahead_ms = clock.wall_ms() - clock.now_ms()
        self._calls: list[DueCall] = []
        self._numbers = count()

    def now_ms(self) -> int:
        return self._clock.now_ms() + self._wall_ahead_ms

    def call_in(self, delay_ms: int, action: Callable[[], None]) -> DueCall:
        call = DueCall(self._clock.now_ms() + delay_ms, next(self._numbers), action)
        heapq.heappush(self._calls, call)
        return call

    def run_due(self) -> None:
        """Run the calls whose time has come, in their order, and those that these schedule for now."""
        while (due_ms := self.next_due_ms) is not None and due_ms <= self._clock.now_ms():
            action = heapq.heappop(self._calls).action
            assert action is not None, "next_due_ms removes cancelled calls"
            action()

    @property
    def next_due_ms(self) -> int | None:
        """When the next call is due, by the clock; None: there is none."""
        while self._calls and self._calls[0].action is None:
            heapq.heappop(self._calls)
        return self._calls[0].due_ms if self._calls else None


class Znodes(Protocol):
    """The part of a ZooKeeper that brokers need for offsets of version 0, such as ``FakeZooKeeper``."""

    def data(self, path: str) -> bytes | None:
        """The data of a node, None if it does not exist."""

    def ensure(self, path: str, data: bytes = b"") -> None:
        """Create a node and its parents, or set its data."""


class ZnodesInMemory:
    """For a cluster without a ZooKeeper."""

    def __init__(self) -> None:
        self._nodes: dict[str, bytes] = {}

    def data(self, path: str) -> bytes | None:
        return self._nodes.get(path)

    def ensure(self, path: str, data: bytes = b"") -> None:
        self._nodes[path] = data


class ZnodeOffsetStore:
    """A ``LegacyOffsetStore`` that answers at once."""

    def __init__(self, znodes: Znodes) -> None:
        self._znodes = znodes

    def commit(
        self, group: str, offsets: Mapping[TopicPartition, int], done: Callable[[dict[TopicPartition, int]], None]
    ) -> None:
        for tp, offset in offsets.items():
            self._znodes.ensure(paths.offset(group, tp), b"%d" % offset)
        done(dict.fromkeys(offsets, 0))

    def fetch(
        self,
        group: str,
        partitions: Iterable[TopicPartition],
        done: Callable[[dict[TopicPartition, ZooKeeperOffset]], None],
    ) -> None:
        done({tp: self._read(paths.offset(group, tp)) for tp in partitions})

    def _read(self, path: str) -> ZooKeeperOffset:
        data = self._znodes.data(path)
        try:
            return None if data is None else parse_offset(data)
        except MalformedZnode:
            return UNKNOWN_SERVER_ERROR


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
    """Read and change all of this under ``changed``, which is notified after each change.

    ``use_groups`` creates the topic of the coordinators, if it does not exist.
    """

    clock: Clock
    scheduler: CallerScheduler
    cluster: BrokerCluster
    use_groups: Callable[[], None]
    changed: threading.Condition = field(default_factory=threading.Condition)
    faults: list[ActiveFault] = field(default_factory=list)
    requests: deque[RecordedRequest] = field(default_factory=lambda: deque(maxlen=REQUESTS_KEPT))
