"""A broker with groups and a fake ZooKeeper, a tool's session on both, and a network that can be cut at every write."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

from bridge.broker.emulated_releases import EMULATED_RELEASES as RELEASES_PLAYED
from bridge.migration.offsets.offset_copy_steps import OffsetStores
from bridge.migration.placeholder.placeholder_member import PlaceholderMember
from bridge.testing import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS
from tests.migration.step_write_faults import Cut, CutStore, Killed, RunningAuthority
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.coordinator_client import CoordinatorRetryPolicy
from zkconsumer.base.threads import live_threads
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka import version_negotiation
from zkconsumer.kafka.broker_connection import BlockingConnection, Connection
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import JOIN_GROUP, LEAVE_GROUP, OFFSET_COMMIT, SYNC_GROUP, Api
from zkconsumer.wire.schemas.join_group import JoinGroupRequest, JoinGroupResponse
from zkconsumer.wire.schemas.offset_commit import (
    OffsetCommitPartitionResponse,
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitTopicResponse,
)
from zkconsumer.zk import paths
from zkconsumer.zk.znode_formats import ControlRecord, format_control

GROUP = "g"
MIGRATION = "m-1"
DYNAMIC = "-dynamic"
RELEASES = [*RELEASES_PLAYED, f"2.8.2{DYNAMIC}", f"4.1.1{DYNAMIC}"]
"""Of brokers that have a coordinator.  ``-dynamic``: it refuses static members (error 35), as one does whose
``inter.broker.protocol.version`` is older than 2.3, and gives member ids in two steps (KIP-394)."""
FAILURES = [(number, where) for number in range(9) for where in ("before", "behind")]
"""More writes than a placeholder ever makes, and where each of them may fail."""

WRITES = (JOIN_GROUP, SYNC_GROUP, LEAVE_GROUP, OFFSET_COMMIT)


@dataclass
class Network:
    """The faults between the migration run and the brokers.

    ``cut``: the number of the write (from 0) at which the process dies, and whether ``before`` it is sent or
    ``behind`` it (executed, no answer received).  ``drop``: the same, but only the connection breaks.  ``is_away``:
    no broker answers any more.  ``refuses_static``: see ``RELEASES``.  ``commits_max``: offsets in one commit; more are
    answered with ``too_much``.  ``writes``: the sent requests; ``on_write`` is called before.
    """

    cut: tuple[int, str] | None = None
    drop: tuple[int, str] | None = None
    is_away: bool = False
    writes: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)
    refuses_static: bool = False
    commits_max: int = 1_000_000
    too_much: int = 28
    on_write: Callable[[str], None] = lambda name: None

    def connect(self, host: str, port: int, **how: Any) -> Connection:
        return NetworkConnection(self, host, port, **how)


class NetworkConnection(BlockingConnection):
    """A connection on this network."""

    def __init__(self, network: Network, host: str, port: int, **how: Any) -> None:
        super().__init__(host, port, **how)
        self._network = network

    def request(self, api: Api[Any, Any], version: int, body: Any, timeout_ms: int, **how: Any) -> Any:
        network = self._network
        network.asked.append(api.name)
        if network.refuses_static and isinstance(body, JoinGroupRequest) and body.group_instance_id is not None:
            return JoinGroupResponse(error_code=35)
        if api not in WRITES:
            return super().request(api, version, body, timeout_ms, **how)
        network.on_write(api.name)
        number = len(network.writes)
        network.writes.append(api.name)
        self._fail(number, "before")
        if (
            isinstance(body, OffsetCommitRequest)
            and sum(len(one.partitions) for one in body.topics) > network.commits_max
        ):
            return refused(body, network.too_much)
        answer = super().request(api, version, body, timeout_ms, **how)
        self._fail(number, "behind")
        return answer

    def send(self, api: Api[Any, Any], version: int, body: Any, timeout_ms: int, **how: Any) -> Any:
        if self._network.is_away:
            raise BrokerUnreachable(f"{self}: nobody is there")
        return super().send(api, version, body, timeout_ms, **how)

    def _fail(self, number: int, where: str) -> None:
        if self._network.cut == (number, where):
            raise Killed
        if self._network.drop == (number, where):
            raise BrokerUnreachable(f"{self}: the connection broke")


def refused(body: OffsetCommitRequest, code: int) -> OffsetCommitResponse:
    """The answer to a commit that refuses every partition."""
    rows = {
        topic.name: [
            OffsetCommitPartitionResponse(partition_index=one.partition_index, error_code=code)
            for one in topic.partitions
        ]
        for topic in body.topics
    }
    return OffsetCommitResponse(topics=[OffsetCommitTopicResponse(name=name, partitions=rows[name]) for name in rows])


@dataclass
class PlaceholderFixture:
    """What a test has in hand.  ``pauses`` are not waited for; the clock moves instead."""

    broker: EmbeddedBroker
    zookeeper: FakeZooKeeper
    clock: ManualClock
    release: str
    has_static: bool
    pauses: list[int] = field(default_factory=list)
    on_pause: Callable[[], None] = lambda: None

    @contextmanager
    def process(self, network: Network | None = None, cut: Cut | None = None) -> Iterator[AdminSession]:
        """A process of the migrator, until it ends or is killed: at a write to Kafka, or (``cut``) to ZooKeeper."""

        def store(connect: str, timeout_ms: int) -> CutStore:
            made = CutStore(self.zookeeper, "", timeout_ms, None)
            made.cut = cut or Cut()
            return made

        network = network or Network()
        network.refuses_static = not self.has_static
        doors = AdminDependencies(store, network.connect, self.clock)
        with AdminSession.open(ADDRESS, None, doors) as session:
            yield session

    def seat(self, session: AdminSession, migration_id: str = MIGRATION, group: str = GROUP) -> PlaceholderMember:
        return PlaceholderMember(
            session,
            group,
            migration_id,
            ["t"],
            pause=self.pause,
            patience=CoordinatorRetryPolicy(min_duration_ms=60_000),
        )

    def control(self, phase: str, epoch: int = 3, migration_id: str = MIGRATION) -> None:
        """The control znode contains it; its version grows."""
        authority = "kafka" if phase in ("switched", "returning") else "zookeeper"
        data = format_control(ControlRecord(migration_id, epoch, phase, authority, "copy"))  # type: ignore[arg-type]
        self.zookeeper.ensure(paths.control(GROUP), data)

    def offsets(self, stored: Mapping[str, int | bytes]) -> None:
        """Offset znodes, ``topic-partition`` -> contents."""
        for name, offset in stored.items():
            topic, _, number = name.rpartition("-")
            data = offset if isinstance(offset, bytes) else b"%d" % offset
            self.zookeeper.ensure(paths.offset(GROUP, TopicPartition(topic, int(number))), data)

    def stores(self, session: AdminSession) -> OffsetStores:
        patience = CoordinatorRetryPolicy(min_duration_ms=60_000)
        return OffsetStores(
            RunningAuthority(session, GROUP, MIGRATION), self.seat(session), pause=self.pause, patience=patience
        )  # fmt: skip

    def pause(self, ms: int) -> None:
        assert len(self.pauses) < 1_000, "it waits for ever"
        self.pauses.append(ms)
        self.clock.move(ms)
        self.on_pause()


MakePlaceholderFixture = Callable[..., PlaceholderFixture]


@pytest.fixture
def make_env(monkeypatch: pytest.MonkeyPatch) -> Iterator[MakePlaceholderFixture]:
    """Makes brokers with a ZooKeeper; at the end nothing runs any more."""
    monkeypatch.setattr(version_negotiation, "NO_RESPONSE_MS", 20)  # what a broker of 0.9 costs each process
    before = live_threads()
    with ExitStack() as stack:

        def make(release: str = "3.9.1", *, partitions: int = 4, nodes: int = 1, **how: Any) -> PlaceholderFixture:
            has_static = not release.endswith(DYNAMIC)
            release = release.removesuffix(DYNAMIC)
            zookeeper = FakeZooKeeper(delivery="thread")
            stack.callback(zookeeper.stop)
            store = lambda connect, timeout_ms: FakeZkStore(zookeeper, "", timeout_ms, None)  # noqa: E731
            properties = {"offsets.topic.num.partitions": "2", **how.pop("properties", {})}
            made = EmbeddedBroker(
                release=release, nodes=nodes, properties=properties, zookeeper=ADDRESS, zk_store=store, **how
            )
            broker = stack.enter_context(made)
            broker.create_topic("t", partitions)
            return PlaceholderFixture(broker, zookeeper, ManualClock(), release, has_static)

        yield make
    assert live_threads() == before


@pytest.fixture
def env(make_env: MakePlaceholderFixture) -> PlaceholderFixture:
    """The newest broker that supports all clients."""
    return make_env()
