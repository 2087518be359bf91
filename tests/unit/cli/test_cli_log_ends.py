"""``zkconsumer log-ends`` on brokers in memory: the lines of GetOffsetShell, and words for what could not be told."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.testing.fake_faults import PartitionError
from tests.admin_fixtures import doors
from tests.in_memory_fixtures import MakeWorld
from zkconsumer.admin.admin_session import AdminDependencies
from zkconsumer.admin.broker_client import SEARCH_TIMEOUT_MS
from zkconsumer.cli.main import main
from zkconsumer.errors import BrokerUnreachable
from zkconsumer.kafka import version_negotiation
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import LIST_OFFSETS


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version_negotiation, "NO_RESPONSE_MS", 20)


@pytest.fixture
def world(make_world: MakeWorld) -> FakeEnvironment:
    """Three partitions on two brokers, with 0, 1 and 2 records."""
    made = make_world(brokers=2, release="1.1.1")
    made.create_topic("t", 3)
    for partition in range(3):
        if partition:
            made.cluster.append("t", partition, [b"x"] * partition)
    return made


def run(world: FakeEnvironment, *words: str) -> Result:
    return CliRunner().invoke(main, ["log-ends", *words], obj=doors(world))


def bootstrap(world: FakeEnvironment, broker_id: int = 0) -> tuple[str, str]:
    address = world.cluster.address(broker_id)
    return "--bootstrap-server", f"{address.host}:{address.port}"


def test_the_ends_and_the_beginnings(world: FakeEnvironment) -> None:
    world.cluster.delete_before("t", 2, 1)
    for how in (("--zookeeper", ADDRESS), bootstrap(world), bootstrap(world, 1)):
        done = run(world, "--topic", "t", *how)
        assert (done.exit_code, done.stdout, done.stderr) == (0, "t:0:0\nt:1:1\nt:2:2\n", "")
        done = run(world, "--topic", "t", "--time", "-2", *how)
        assert done.stdout == "t:0:0\nt:1:0\nt:2:1\n"


def test_a_time_that_means_nothing_is_refused(world: FakeEnvironment) -> None:
    done = run(world, "--topic", "t", "--time", "-3", *bootstrap(world))
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--time -3: give -1" in done.stderr


def test_some_partitions_and_several_offsets(world: FakeEnvironment) -> None:
    done = run(world, "--topic", "t", "--partitions", "2,1", "--offsets", "5", *bootstrap(world))
    assert done.stdout == "t:1:1,0\nt:2:2,0\n"


def test_a_time_before_any_segment_has_no_offset(world: FakeEnvironment) -> None:
    assert run(world, "--topic", "t", "--partitions", "1", "--time", "5", *bootstrap(world)).stdout == "t:1:\n"


@pytest.mark.parametrize("release", ["0.8.1.1", "0.8.2.2", "0.9.0.1", "4.1.1"])
def test_brokers_of_every_age(make_world: MakeWorld, release: str) -> None:
    world = make_world(release=release)
    world.create_topic("t", 1)
    world.cluster.append("t", 0, [b"x"])
    assert run(world, "--topic", "t", *bootstrap(world)).stdout == "t:0:1\n"


def test_a_config_file_says_where_the_brokers_are(world: FakeEnvironment, tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text(f"zookeeper.connect={ADDRESS}\n")
    assert run(world, "--topic", "t", "--config", str(file)).stdout == "t:0:0\nt:1:1\nt:2:2\n"
    file.write_text(f"zookeeper.connect=nowhere.invalid:1\nbootstrap.servers={bootstrap(world)[1]}\n")
    sessions = len(world.stores)
    assert run(world, "--topic", "t", "--config", str(file)).stdout == "t:0:0\nt:1:1\nt:2:2\n"
    assert run(world, "--topic", "t", "--config", str(file), *bootstrap(world)).exit_code == 0
    assert len(world.stores) == sessions, "ZooKeeper is not asked"


def test_what_could_not_be_told_is_said_and_the_rest_is_told(world: FakeEnvironment) -> None:
    world.cluster.inject(PartitionError(TopicPartition("t", 1), 6), api=LIST_OFFSETS, times=None)
    world.cluster.move_leader("t", 2, None)
    done = run(world, "--topic", "t", "--partitions", "0,1,2,7", *bootstrap(world))
    assert (done.exit_code, done.stdout) == (1, "t:0:0\n")
    assert "zkconsumer: partition 2 does not have a leader\n" in done.stderr
    assert "zkconsumer: partition 7 does not exist\n" in done.stderr
    assert "zkconsumer: partition 1: " in done.stderr
    assert "NOT_LEADER_OR_FOLLOWER (6)" in done.stderr


def test_a_leader_that_is_down_costs_its_partitions_only(world: FakeEnvironment) -> None:
    where = bootstrap(world, 0)
    world.cluster.stop_broker(1)
    done = run(world, "--topic", "t", *where)
    assert (done.exit_code, done.stdout) == (1, "t:0:0\nt:2:2\n")
    assert "partition 1 does not have a leader" in done.stderr


def test_a_seed_that_is_down_is_passed_over(world: FakeEnvironment) -> None:
    down, up = bootstrap(world, 1)[1], bootstrap(world, 0)[1]
    world.cluster.move_leader("t", 1, 0)
    world.cluster.stop_broker(1)
    assert run(world, "--topic", "t", "--bootstrap-server", f"{down},{up}").exit_code == 0
    done = run(world, "--topic", "t", "--bootstrap-server", down)
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"none of 1 brokers answers; the last one: {down}" in done.stderr


def test_of_many_seeds_that_swallow_packets_it_is_said_in_bounded_time(world: FakeEnvironment) -> None:
    clock = ManualClock()

    def swallows(*_: object, connect_timeout_ms: int, **__: object) -> Connection:
        clock.move(connect_timeout_ms)
        raise BrokerUnreachable("no answer to connect; the broker hangs")

    seeds = ",".join(f"gone-{number}:9092" for number in range(40))
    began_ms = clock.now_ms()
    words = ["log-ends", "--topic", "t", "--bootstrap-server", seeds]
    done = CliRunner().invoke(main, words, obj=AdminDependencies(world.store, swallows, clock))
    assert (done.exit_code, done.stdout) == (1, "")
    assert "none of the first 15 of 40 brokers answers; the last one: no answer to connect" in done.stderr
    assert clock.now_ms() - began_ms <= SEARCH_TIMEOUT_MS


def test_a_topic_that_does_not_exist(world: FakeEnvironment) -> None:
    done = run(world, "--topic", "nowhere", *bootstrap(world))
    assert done.exit_code == 1
    assert "there is no topic nowhere" in done.stderr
    assert "UNKNOWN_TOPIC_OR_PARTITION (3)" in done.stderr


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ((), "give the addresses of the brokers"),
        (("--bootstrap-server", "h:1", "--zookeeper", "z:1"), "give one of them"),
        (("--bootstrap-server", "h"), "'h' is not HOST:PORT"),
        (("--bootstrap-server", "h:1", "--partitions", "1,x"), "is not a list of numbers like 0,3,5"),
        (("--bootstrap-server", "h:1", "--offsets", "0"), "0 is not in the range"),
    ],
)
def test_a_call_that_cannot_be_meant_is_refused(world: FakeEnvironment, words: tuple[str, ...], told: str) -> None:
    done = run(world, "--topic", "t", *words)
    assert done.exit_code == 2
    assert told in done.stderr


def test_over_real_sockets_as_the_file_says(world: FakeEnvironment, tmp_path: Path) -> None:
    """Without doors of a test: the connections are those of security.protocol."""
    file = tmp_path / "consumer.properties"
    with world.cluster.serve():
        servers = bootstrap(world)[1]
        assert CliRunner().invoke(main, ["log-ends", "--topic", "t", "--bootstrap-server", servers]).exit_code == 0
        file.write_text("zookeeper.connect=nowhere.invalid:1\nsecurity.protocol=PLAINTEXT\n")
        words = ["log-ends", "--topic", "t", "--bootstrap-server", servers, "--config", str(file)]
        assert CliRunner().invoke(main, words).stdout == "t:0:0\nt:1:1\nt:2:2\n"
        file.write_text("zookeeper.connect=nowhere.invalid:1\nsecurity.protocol=SSL\n")
        done = CliRunner().invoke(main, words)
    assert done.exit_code == 1
    assert f"{servers}: the connection was closed in the middle of the TLS handshake" in done.stderr
