"""Tools on worlds in memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest
from click.testing import CliRunner, Result

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.cli.main import main
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create
from zkconsumer.zk.store import submit_and_wait

RunTool = Callable[..., Result]


def doors(world: FakeEnvironment, clock: Clock = SYSTEM_CLOCK) -> AdminDependencies:
    """How a tool reaches this world."""
    return AdminDependencies(store=world.store, connect=world.cluster.connect, clock=clock)


def run_at(world: FakeEnvironment, clock: Clock, *words: str) -> Result:
    """``zkconsumer <words>`` against this world, at the time of this clock."""
    return CliRunner().invoke(main, [*words, "--zookeeper", ADDRESS], obj=doors(world, clock))


def put(world: FakeEnvironment, stored: Mapping[int, int | bytes], group: str = "g1", topic: str = "clicks") -> None:
    """A group's offsets in ZooKeeper: partition -> offset, or whatever the znode holds."""
    for partition, offset in stored.items():
        data = offset if isinstance(offset, bytes) else b"%d" % offset
        world.zookeeper.ensure(paths.offset(group, TopicPartition(topic, partition)), data)


def join(world: FakeEnvironment, consumer: str = "a", group: str = "g1") -> None:
    """A member that is registered, in a session of its own."""
    store = FakeZkStore(world.zookeeper)
    store.start(1_000)
    world.zookeeper.ensure(paths.ids(group))
    submit_and_wait(store, [Create(paths.registration(group, f"{group}_{consumer}"), b"{}", ephemeral=True)], 1_000)


def fill_clicks(world: FakeEnvironment) -> None:
    """clicks: three partitions of 100 records, those of partition 0 from 10 on; g1 stands at 42, 50 and nowhere."""
    world.create_topic("clicks", 3)
    for partition in range(3):
        world.cluster.append("clicks", partition, [b"x"] * 100, timestamp_ms=1_000)
    world.cluster.delete_before("clicks", 0, 10)
    put(world, {0: 42, 1: 50})


@pytest.fixture
def admin(world: FakeEnvironment) -> Iterator[AdminSession]:
    """A tool's session in the world of the test."""
    with AdminSession.open(ADDRESS, None, doors(world)) as session:
        yield session


@pytest.fixture
def tool(world: FakeEnvironment) -> RunTool:
    """Runs ``zkconsumer <words>`` against the world of the test."""

    def run(*words: str) -> Result:
        return run_at(world, SYSTEM_CLOCK, *words)

    return run
