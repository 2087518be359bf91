"""The snapshot of a group: from znodes and brokers in memory, and from a broker with groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest

from bridge.migration.inspect.acl_inspection import has_permission
from bridge.migration.inspect.broker_inspection import inspect_brokers
from bridge.migration.inspect.group_inspection import inspect_group
from bridge.migration.inspect.group_snapshot import GroupSnapshot, LastLogEntry
from bridge.migration.inspect.log_end_inspection import SAMPLED_PARTITIONS_MAX
from bridge.migration.offsets.provenance import Provenance, format_provenance
from bridge.testing import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.testing.fake_faults import GroupError
from tests.admin_fixtures import doors, put
from zkconsumer.admin.admin_session import AdminDependencies, AdminSession
from zkconsumer.admin.coordinator_lookups import OFFSETS_TOPIC, discover_coordinator
from zkconsumer.errors import InvalidNameError
from zkconsumer.kafka.group_offsets import commit_offsets
from zkconsumer.kafka.offset_and_metadata import OffsetAndMetadata
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.wire.schemas import DESCRIBE_GROUPS
from zkconsumer.zk import paths
from zkconsumer.zk.requests import OPEN_ACL, PERM_ADMIN, PERM_ALL, PERM_READ, Acl, Create, CreateOp, Multi, SetOp
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.zk_security import DigestLogin, SaslDigestMd5Login, SaslGssapiLogin, ZkLogin, identities
from zkconsumer.zk.znode_formats import ControlRecord, Registration, format_control, format_registration

READ_ONLY = (Acl(PERM_READ, "world", "anyone"),)


def tp(partition: int = 0, topic: str = "clicks") -> TopicPartition:
    return TopicPartition(topic, partition)


def register(
    world: FakeEnvironment, name: str, owned: Mapping[int, int], pattern: str = "static", topic: str = "clicks"
) -> None:
    """A member with one thread; ``owned``: partition -> data version of the owner node (0 a Scala consumer's, 1
    ours).
    """
    store = FakeZkStore(world.zookeeper)
    store.start(1_000)
    data = format_registration(Registration(pattern, {topic: 1}, "1416246370000"))  # type: ignore[arg-type]
    world.zookeeper.ensure(paths.ids("g1"))
    world.zookeeper.ensure(paths.owners_of_topic("g1", "clicks"))
    submit_and_wait(store, [Create(paths.registration("g1", f"g1_{name}"), data, ephemeral=True)], 1_000)
    for number, version in owned.items():
        path, claim = paths.owner("g1", tp(number)), f"g1_{name}-0".encode()
        sets = [SetOp(path, claim)] * version
        [answer] = submit_and_wait(store, [Multi((CreateOp(path, claim, ephemeral=True), *sets))], 1_000)
        assert "Failed" not in type(answer).__name__


def look(admin: AdminSession, **how: bool) -> GroupSnapshot:
    seen = inspect_group(admin, "g1", **how)
    assert seen is not None
    return seen


@pytest.fixture
def clicks(world: FakeEnvironment) -> FakeEnvironment:
    """clicks: four partitions of 10 records; g1 has the offsets 4, 9, 10 and none."""
    world.create_topic("clicks", 4)
    for number in range(4):
        world.cluster.append("clicks", number, [b"x"] * 10, timestamp_ms=1_000)
    put(world, {0: 4, 1: 9, 2: 10})
    return world


def test_a_group_that_is_not_there(admin: AdminSession) -> None:
    assert inspect_group(admin, "g1") is None
    with pytest.raises(InvalidNameError):
        inspect_group(admin, "../g1")


def test_offsets_logs_and_the_last_entries(clicks: FakeEnvironment, admin: AdminSession) -> None:
    seen = look(admin)
    assert [(one.stored, one.version) for one in seen.partitions.values()] == [(4, 0), (9, 0), (10, 0), (None, -1)]
    assert [(one.log.earliest, one.log.latest) for one in seen.partitions.values() if not isinstance(one.log, str)] == [
        (0, 10)
    ] * 4
    assert [one.last_entry for one in seen.partitions.values()] == [None, LastLogEntry(True, 1_000), None, None]
    assert seen.partitions[tp(0)].written_ms > 1_000


def test_an_inspection_creates_no_topic(clicks: FakeEnvironment, admin: AdminSession) -> None:
    put(clicks, {0: 5}, topic="gone")
    look(admin)
    assert sorted(admin.brokers.leaders(None).topic_errors) == []
    assert {one.topic for one in admin.brokers.leaders(None).partitions} == {"clicks"}


def test_offsets_of_partitions_that_do_not_exist_are_named(clicks: FakeEnvironment, admin: AdminSession) -> None:
    put(clicks, {0: 5}, topic="gone")
    put(clicks, {7: 5})
    clicks.zookeeper.ensure("/consumers/g1/offsets/clicks/x", b"1")
    seen = look(admin)
    assert seen.missing_topics == ("gone",)
    assert seen.offsets_without_partition == (tp(7), tp(0, "gone"))
    assert seen.unexpected_nodes == ("/consumers/g1/offsets/clicks/x",)
    assert set(seen.partitions) == {tp(number) for number in range(4)}


@pytest.mark.parametrize("data", [b"", b"abc", b"1e3", b"9" * 30, "٣".encode(), b"\xff"])
def test_an_offset_znode_without_a_number(clicks: FakeEnvironment, admin: AdminSession, data: bytes) -> None:
    put(clicks, {0: data})
    one = look(admin).partitions[tp(0)]
    assert (one.stored, one.version) == (None, 1)
    assert " is no " in one.error


def test_a_negative_number_is_no_offset(clicks: FakeEnvironment, admin: AdminSession) -> None:
    put(clicks, {0: b"-1"})
    assert look(admin).partitions[tp(0)].stored is None


def test_an_offset_that_is_older_than_its_topic(clicks: FakeEnvironment, admin: AdminSession) -> None:
    put(clicks, {0: 1, 1: 2}, topic="views")
    clicks.create_topic("views", 2)
    put(clicks, {1: 3}, topic="views")
    seen = look(admin)
    assert [seen.partitions[tp(number, "views")].is_older_than_topic for number in range(2)] == [True, False]
    assert not any(seen.partitions[tp(number)].is_older_than_topic for number in range(3))


def test_a_topic_whose_znode_cannot_be_read(clicks: FakeEnvironment, admin: AdminSession) -> None:
    clicks.zookeeper.ensure(paths.topic("clicks"), b"not JSON")
    seen = look(admin)
    assert len(seen.partitions) == 3
    assert all("znode of topic clicks cannot be read" in str(one.log) for one in seen.partitions.values())


def test_a_partition_without_a_leader(clicks: FakeEnvironment, admin: AdminSession) -> None:
    clicks.cluster.move_leader("clicks", 0, None)
    assert "it has no leader" in str(look(admin).partitions[tp(0)].log)


# --- members and strategy ---------------------------------------------------------------------------------------


def test_owners_show_members_and_the_assignment_in_use(clicks: FakeEnvironment, admin: AdminSession) -> None:
    register(clicks, "a", {0: 0, 1: 0})
    register(clicks, "b", {2: 1, 3: 1})
    put(clicks, {2: 10})
    seen = look(admin)
    assert [(one.consumer_id, one.kind) for one in seen.members] == [("g1_a", "scala"), ("g1_b", "zkconsumer")]
    assert seen.assignment_in_use == "range"
    assert [one.is_written_by_owner for one in seen.partitions.values()] == [False, False, True, False]
    assert seen.partitions[tp(3)].owner is not None


@pytest.mark.parametrize(
    ("of_a", "of_b", "strategy"),
    [
        ({}, {}, "none"),
        ({0: 0, 2: 0}, {1: 0, 3: 0}, "roundrobin/0.8.2 or roundrobin/0.10.2 or roundrobin/1.0"),
        ({0: 0, 3: 0}, {1: 0, 2: 0}, "?"),
    ],
)
def test_the_assignment_is_recomputed(
    clicks: FakeEnvironment, admin: AdminSession, of_a: Mapping[int, int], of_b: Mapping[int, int], strategy: str
) -> None:
    register(clicks, "a", of_a)
    register(clicks, "b", of_b)
    assert look(admin).assignment_in_use == strategy


def test_a_filter_means_the_topics_of_now(clicks: FakeEnvironment, admin: AdminSession) -> None:
    clicks.create_topic("clicks2", 1)
    register(clicks, "a", {}, "white_list", "clicks.*")
    seen = look(admin)
    assert seen.topic_filters == ("white_list 'clicks.*'",)
    assert seen.topics == ["clicks", "clicks2"]
    assert seen.partitions[tp(0, "clicks2")].stored is None


def test_go_kafka_client_leaves_its_znode(clicks: FakeEnvironment, admin: AdminSession) -> None:
    assert look(admin).last_offset_clients == ()
    clicks.zookeeper.ensure("/consumers/g1/api/rebalance")
    assert look(admin).last_offset_clients == ("/consumers/g1/api/rebalance",)


def test_the_reason_why_the_coordinator_group_is_unknown_is_reported(
    clicks: FakeEnvironment, admin: AdminSession
) -> None:
    clicks.create_topic(OFFSETS_TOPIC)
    clicks.cluster.inject(GroupError("g1", 30), api=DESCRIBE_GROUPS)
    seen = look(admin)
    assert seen.coordinator_group is None
    assert seen.coordinator_group_error.startswith("its coordinator does not answer (")
    assert "GROUP_AUTHORIZATION_FAILED" in seen.coordinator_group_error


def test_a_control_znode(clicks: FakeEnvironment, admin: AdminSession) -> None:
    control = ControlRecord("m0", 3, "fenced", "zookeeper", "copy")
    clicks.zookeeper.ensure(paths.control("g1"), format_control(control))
    seen = look(admin)
    assert (seen.control, seen.control_version, seen.control_error) == (control, 0, "")
    clicks.zookeeper.ensure(paths.control("g1"), b"{")
    assert look(admin).control_error


# --- rights -----------------------------------------------------------------------------------------------------


def test_the_lists_of_every_node_that_a_fence_changes(clicks: FakeEnvironment, admin: AdminSession) -> None:
    register(clicks, "a", {0: 0})
    clicks.zookeeper.set_acl("/consumers/g1/offsets/clicks", READ_ONLY)
    seen = look(admin, with_acls=False)
    assert (seen.acls, seen.acls_without_admin) == ({}, ())
    clicks.zookeeper.set_acl("/consumers/g1/offsets/clicks/1", (Acl(PERM_READ | PERM_ADMIN, "world", "anyone"),))
    seen = look(admin)
    below = ("ids", "owners", "offsets", "owners/clicks", "offsets/clicks", *(f"offsets/clicks/{n}" for n in range(3)))
    assert sorted(seen.acls) == sorted(f"/consumers/g1/{name}" for name in below)
    assert seen.acls["/consumers/g1/offsets/clicks/0"] == OPEN_ACL
    assert seen.acls_without_admin == ("/consumers/g1/offsets/clicks",)


@pytest.mark.parametrize(
    ("acl", "login", "is_ours"),
    [
        (OPEN_ACL, None, True),
        (READ_ONLY, None, False),
        ((Acl(PERM_ALL, "digest", "us:x"), *READ_ONLY), DigestLogin("us", "secret"), False),
        ((Acl(PERM_ALL, *sorted(identities(DigestLogin("us", "secret")))[0]),), DigestLogin("us", "secret"), True),
        ((Acl(PERM_ALL, *sorted(identities(DigestLogin("us", "secret")))[0]),), DigestLogin("us", "other"), False),
        (READ_ONLY, DigestLogin("super", "secret"), True),
        ((Acl(PERM_ALL, "sasl", "kafka"),), SaslDigestMd5Login("kafka", "x"), True),
        ((Acl(PERM_ALL, "sasl", "kafka"),), SaslDigestMd5Login("other", "x"), False),
        ((Acl(PERM_ALL, "sasl", "kafka"),), SaslGssapiLogin(), True),
        ((Acl(PERM_ALL, "sasl", "kafka"),), None, False),
        ((Acl(PERM_ALL, "ip", "10.0.0.0/8"),), None, True),
        ((Acl(PERM_ALL & ~PERM_ADMIN, "world", "anyone"),), None, False),
        ((), None, False),
    ],
)
def test_whether_a_list_is_ours_to_change(acl: tuple[Acl, ...], login: ZkLogin | None, is_ours: bool) -> None:
    assert has_permission(acl, login, PERM_ADMIN) is is_ours


# --- how much is asked ------------------------------------------------------------------------------------------


def test_a_large_group_costs_one_question_a_node_for_lists_and_few_for_the_rest(
    world: FakeEnvironment, admin: AdminSession
) -> None:
    topics, each = 4, 500
    for number in range(topics):
        world.create_topic(f"t{number}", each)
        put(world, dict.fromkeys(range(each), 1), topic=f"t{number}")
        for partition in range(0, each, 5):
            world.cluster.append(f"t{number}", partition, [b"x", b"x"], timestamp_ms=1_000)
    [store] = world.stores
    before, asked = store.packets_sent, len(world.cluster.requests)
    seen = look(admin, with_acls=False)
    assert len(seen.partitions) == topics * each
    assert store.packets_sent - before < 40
    assert len(world.cluster.requests) - asked < 40
    assert sum(one.last_entry is not None for one in seen.partitions.values()) == SAMPLED_PARTITIONS_MAX


# --- a broker with groups ---------------------------------------------------------------------------------------


@pytest.fixture
def zookeeper() -> Iterator[FakeZooKeeper]:
    made = FakeZooKeeper(delivery="thread")
    yield made
    made.stop()


def on_a_broker(zookeeper: FakeZooKeeper, broker: EmbeddedBroker) -> AdminSession:
    """A session with the broker; clicks has two partitions of five records, and g1 is at 3 in both."""
    broker.create_topic("clicks", 2)
    for number in range(2):
        broker.append("clicks", number, [b"x"] * 5)
        zookeeper.ensure(paths.offset("g1", tp(number)), b"3")
    return AdminSession.open(
        ADDRESS, None, AdminDependencies(store=lambda _, ms: FakeZkStore(zookeeper, "", ms)), broker.bootstrap
    )


def commit(session: AdminSession, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
    """As a client that is no member."""
    [broker] = session.brokers.all()
    discover_coordinator(session.brokers, "g1")
    answers = session.brokers.execute(broker, lambda connection, ranges: commit_offsets(
        connection, ranges, "g1", offsets=offsets, timeout_ms=5_000
    ))  # fmt: skip
    assert {error.code for error in answers.values()} == {0}


@pytest.mark.parametrize(
    ("release", "words", "retention_ms", "by_commit"),
    [("0.9.0.1", "0.9", None, True), ("1.1.1", "from 1.1.1 on, before 2.0.1", 86_400_000, True),
     ("3.9.1", "from 3.9.1 on, before 4.1.1", 604_800_000, False), ("4.1.1", "from 4.1.1 on", 604_800_000, False)],
)  # fmt: skip
def test_the_release_of_a_broker_and_its_offset_retention(
    zookeeper: FakeZooKeeper, release: str, words: str, retention_ms: int | None, by_commit: bool
) -> None:
    with EmbeddedBroker(release=release) as broker, on_a_broker(zookeeper, broker) as session:
        brokers, kept_ms, counts_by_commit = inspect_brokers(session)
        assert [(one.supports_groups, one.release) for one in brokers] == [(True, words)]
        assert kept_ms == retention_ms
        assert counts_by_commit is by_commit


def test_a_broker_without_groups_and_one_that_is_away() -> None:
    with FakeEnvironment(2, release="0.8.2.2") as world, AdminSession.open(ADDRESS, None, doors(world)) as admin:
        brokers, kept_ms, _ = inspect_brokers(admin)
        assert [one.supports_groups for one in brokers] == [False, False]
        assert kept_ms is None
        world.zookeeper.ensure(paths.broker(9), b'{"host":"nowhere.invalid","port":1,"version":1,"jmx_port":-1}')
        assert [one.supports_groups for one in inspect_brokers(admin)[0]] == [False, False, None]


def test_kafkas_offsets_and_their_provenance(zookeeper: FakeZooKeeper) -> None:
    with EmbeddedBroker(release="2.8.2") as broker, on_a_broker(zookeeper, broker) as session:
        seen = look(session)
        assert seen.coordinator_group is not None
        assert seen.coordinator_group.state == "Dead"
        assert [one.kafka for one in seen.partitions.values()] == [None, None]
        ours = Provenance("m0", 2, 0)
        commit(session, {tp(0): OffsetAndMetadata(4, "app"), tp(1): OffsetAndMetadata(5, format_provenance(ours))})
        seen = look(session)
        first, second = (one.kafka for one in seen.partitions.values())
        assert first is not None
        assert second is not None
        assert (first.offset, first.provenance) == (4, None)
        assert (second.offset, second.provenance) == (5, ours)
        assert seen.legacy_kafka_commits == "", "nobody is in the old group"


def test_old_members_that_store_in_kafka_leave_values_of_no_member(zookeeper: FakeZooKeeper) -> None:
    with EmbeddedBroker(release="1.1.1") as broker, on_a_broker(zookeeper, broker) as session:
        zookeeper.ensure(f"{paths.ids('g1')}/g1_a", format_registration(Registration("static", {"clicks": 1}, "1")))
        assert look(session).legacy_kafka_commits == ""
        commit(session, {tp(0): OffsetAndMetadata(4), tp(1): OffsetAndMetadata(3)})
        assert look(session).legacy_kafka_commits == (
            "Kafka has 2 offsets that no member of a coordinator group committed, 1 of them ahead of ZooKeeper "
            "(clicks/0: 3 there, 4 in Kafka)"
        )
