"""A plan is carried out with the servers that it was made with, and with no other ones of the same topics."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from bridge.migration.errors import StalePlanError, WaitTimeoutError
from bridge.migration.inspect.cluster_ids import read_cluster_ids, read_kafka_cluster_id
from bridge.migration.inspect.group_snapshot import ClusterIds
from bridge.migration.plan.plan_file import plan_from_bytes, plan_to_bytes, read_plan_file
from bridge.testing import EmbeddedBroker
from bridge.testing.fake_cluster import CLUSTER_ID, FakeCluster
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors
from tests.migration.group_snapshots import partition, plan, rich_plan
from tests.migration.migration_write_faults import DECISIONS, Lab, lab
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.broker_client import SEARCH_TIMEOUT_MS
from zkconsumer.cli.main import main
from zkconsumer.errors import BrokerUnreachable, PreconditionFailed
from zkconsumer.kafka.broker_connection import Connection
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.manual_clock import ManualClock
from zkconsumer.zk import paths
from zkconsumer.zk.requests import PERM_ALL, PERM_READ, Acl
from zkconsumer.zk.zk_security import DigestLogin

__all__ = ["lab"]

KAFKA, ZOOKEEPER = "brokers of cluster", "ZooKeeper of cluster"


def id_is(lab: Lab, data: bytes | None) -> None:
    lab.zookeeper.remove(paths.CLUSTER_ID)
    if data is not None:
        lab.zookeeper.ensure(paths.CLUSTER_ID, data)


@pytest.fixture
def named(lab: Lab) -> Iterator[Lab]:
    """With brokers' id in ZooKeeper."""
    lab.zookeeper.ensure(paths.CLUSTER_ID, b'{"version":"1","id":"here"}')
    yield lab
    id_is(lab, None)


def test_a_plan_contains_the_cluster_ids(named: Lab) -> None:
    made = named.plan(named.new_group(), DECISIONS)
    assert made.snapshot.clusters.zookeeper == "here"
    assert len(made.snapshot.clusters.kafka) == 22, "the broker's own"
    assert plan_from_bytes(plan_to_bytes(made)) == made


def test_a_plan_of_a_release_that_did_not_ask_is_read_as_before() -> None:
    old = plan(partition(0, 42), decisions=DECISIONS)
    assert b"_cluster" not in plan_to_bytes(old)
    assert old.digest == "d763a3b11e076b5d790bfb033ca0941c7690950cf4210044d696d374e0c1ae3f"
    assert plan_from_bytes(plan_to_bytes(old)).snapshot.clusters == ClusterIds()
    assert b'"kafka_cluster":"kafka-id","zookeeper_cluster":"zookeeper-id"' in plan_to_bytes(rich_plan())


@pytest.mark.parametrize(
    ("data", "found"),
    [(b'{"version":"1","id":"there"}', "of there"), (b"\xff", "without an id"), (None, "without an id")],
)
def test_another_zookeeper_is_refused_and_nothing_is_changed(named: Lab, data: bytes | None, found: str) -> None:
    made = named.plan(named.new_group(), DECISIONS)
    id_is(named, data)
    with named.process() as session:
        with pytest.raises(StalePlanError, match=f"{ZOOKEEPER} here, and these are {found}\\. Give the serv") as it:
            named.apply(session, made)
        assert it.value.exit_code == 4
    assert named.control(made.group) is None


def test_an_unreadable_id_is_unknown(named: Lab) -> None:
    named.zookeeper.set_acl(paths.CLUSTER_ID, (Acl(PERM_ALL & ~PERM_READ, "world", "anyone"),))
    assert named.plan(named.new_group(), DECISIONS).snapshot.clusters.zookeeper == ""


def test_cluster_ids_that_a_plan_does_not_contain_are_not_checked(named: Lab) -> None:
    made = named.plan(named.new_group(), DECISIONS)
    made = replace(made, snapshot=replace(made.snapshot, clusters=ClusterIds()))
    with named.process() as session:
        named.apply(session, made)
    assert named.stands(made.group) == ("switched", "kafka")


def test_on_its_way_a_migration_is_not_carried_on_with_other_brokers(lab: Lab) -> None:
    """Nor back: what another cluster has for the group would become its offsets."""
    made = lab.plan(lab.new_group(), DECISIONS)
    ours = made.snapshot.clusters.kafka
    with lab.process() as session:
        lab.apply(session, made)
    elsewhere = replace(made, snapshot=replace(made.snapshot, clusters=ClusterIds("elsewhere")))
    for carry_out in (lab.apply, lab.rollback):
        with lab.process() as session:
            with pytest.raises(PreconditionFailed, match=f"{KAFKA} elsewhere, and these are of {ours}") as it:
                carry_out(session, elsewhere)
            assert not isinstance(it.value, StalePlanError), "a new plan is no way out here"
    assert lab.stands(made.group) == ("switched", "kafka")
    with lab.process() as session:
        lab.rollback(session, made)
    assert lab.stands(made.group) == ("undone", "zookeeper")


def test_brokers_that_do_not_answer_are_no_other_cluster(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    made = lab.plan(lab.new_group(), DECISIONS)
    with lab.process() as session, monkeypatch.context() as patched:
        patched.setattr(session.brokers, "execute_on_any", _away)
        with pytest.raises(WaitTimeoutError, match="nobody answers; nothing was changed"):
            lab.apply(session, made)
    assert lab.control(made.group) is None


def _away(*_: object, **__: object) -> None:
    raise BrokerUnreachable("nobody answers")


def test_brokers_of_which_none_is_registered_are_no_other_cluster(lab: Lab) -> None:
    """A broker that goes down takes its znode along: the plan is not held against servers that are not there."""
    made = lab.plan(lab.new_group(), DECISIONS)
    with lab.process() as session:
        registered = paths.broker(session.brokers.all()[0].broker_id)
    data = lab.zookeeper.data(registered)
    assert data is not None
    lab.zookeeper.remove(registered)
    try:
        with lab.process() as session, pytest.raises(WaitTimeoutError, match="start one"):
            lab.apply(session, made)
        assert lab.control(made.group) is None
    finally:
        lab.zookeeper.ensure(registered, data)


def test_the_first_broker_with_an_id_returns_it() -> None:
    with FakeEnvironment(2) as world:
        world.cluster = FakeCluster(2, release={0: "0.8.2.2", 1: "3.9.1"}, zookeeper=world.zookeeper)
        with AdminSession.open(ADDRESS, None, doors(world)) as session:
            assert read_kafka_cluster_id(session) == CLUSTER_ID
        world.cluster.stop_broker(1)
        with AdminSession.open(ADDRESS, None, doors(world)) as session:
            with pytest.raises(BrokerUnreachable, match=r"^1 of 2 brokers did not answer.*start the broker"):
                read_kafka_cluster_id(session)
            assert read_cluster_ids(session).kafka == ""


def test_of_many_brokers_that_swallow_packets_the_cluster_is_asked_in_bounded_time() -> None:
    clock = ManualClock()

    def swallows(*_: object, connect_timeout_ms: int, **__: object) -> Connection:
        clock.move(connect_timeout_ms)
        raise BrokerUnreachable("no answer to connect; the broker hangs")

    with (
        FakeEnvironment(100) as world,
        AdminSession.open(ADDRESS, None, AdminDependencies(world.store, swallows, clock)) as session,
    ):
        began_ms = clock.now_ms()
        with pytest.raises(BrokerUnreachable, match="none of the first 15 of 100 brokers answers; the last"):
            read_kafka_cluster_id(session)
        assert clock.now_ms() - began_ms <= SEARCH_TIMEOUT_MS


def test_the_command_refuses_a_plan_of_another_cluster(tmp_path: Path, lab: Lab) -> None:
    """Two clusters with a topic of the same name, and one ZooKeeper."""
    group, file = lab.new_group(), tmp_path / "p.json"

    def run(broker: EmbeddedBroker, *words: str) -> Result:
        doors = AdminDependencies(
            store=lambda _, ms: FakeZkStore(lab.zookeeper, "", ms, DigestLogin("operator", "secret"))
        )
        where = ("--zookeeper", ADDRESS, "--bootstrap-server", broker.bootstrap)
        return CliRunner().invoke(main, ["migrate", *words, *where], obj=doors)

    with EmbeddedBroker() as other:
        other.create_topic("t", 3)
        for number in range(3):
            other.append("t", number, [b"x"] * 50)
        words = ("--offset-convention", "next", "--missing", "earliest")
        assert run(lab.broker, "plan", group, "-f", str(file), *words).exit_code == 0
        planned = read_plan_file(file).snapshot.clusters.kafka
        for execute in ((), ("--execute",)):
            done = run(other, "apply", str(file), *execute)
            assert done.exit_code == 4
            assert f"{KAFKA} {planned}, and these are of " in done.stdout + done.stderr
        assert lab.control(group) is None
        assert run(lab.broker, "apply", str(file), "--execute").exit_code == 0
