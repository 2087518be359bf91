"""``admin.groups``: what is read of a group, and what each node is taken for."""

from __future__ import annotations

import json

import pytest

from bridge.testing.fake_environment import FakeEnvironment
from tests.in_memory_fixtures import MakeConnector, take
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.zookeeper_group import host_of_id, read_group
from zkconsumer.errors import BrokerUnreachable, InvalidNameError
from zkconsumer.testing.fake_zookeeper import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk.requests import ConnectionLost, Create
from zkconsumer.zk.store import submit_and_wait

SCALA = "g1_host-1416246370000-55ddbc44"


def scala_member(
    world: FakeEnvironment, consumer: str, subscription: object, owns: tuple[str, ...] = ()
) -> FakeZkStore:
    """The nodes that an original member has, in a session of their own."""
    store = FakeZkStore(world.zookeeper)
    store.start(1_000)
    data = json.dumps({"version": 1, "subscription": subscription, "pattern": "static", "timestamp": "1"}).encode()
    group = consumer.partition("_")[0]
    for folder in ("ids", *(f"owners/{at.partition('/')[0]}" for at in owns)):
        world.zookeeper.ensure(f"/consumers/{group}/{folder}")
    submit_and_wait(store, [Create(f"/consumers/{group}/ids/{consumer}", data, ephemeral=True)], 1_000)
    for at in owns:
        submit_and_wait(
            store, [Create(f"/consumers/{group}/owners/{at}", f"{consumer}-0".encode(), ephemeral=True)], 1_000
        )
    return store


def test_a_group_that_is_not_there_is_none(admin: AdminSession) -> None:
    assert read_group(admin, "nobody") is None


def test_a_name_that_is_no_group_is_refused(admin: AdminSession) -> None:
    with pytest.raises(InvalidNameError):
        read_group(admin, "../x")


def test_members_of_ours_and_of_the_original_are_told_apart(
    world: FakeEnvironment, admin: AdminSession, connect: MakeConnector
) -> None:
    world.create_topic("clicks", 4)
    scala_member(world, SCALA, {"clicks": 1}, ("clicks/0", "clicks/1"))
    world.cluster.append("clicks", 2, [b"x"])
    ours = connect(consumer_id="zz")
    [stream] = ours.create_message_streams({"clicks": 1})["clicks"]
    take(stream, 1)
    ours.commit_offsets()
    state = read_group(admin, "g1")
    assert state is not None
    assert {name: member.kind for name, member in state.members.items()} == {SCALA: "scala", "g1_zz": "zkconsumer"}
    assert {str(tp): node.kind for tp, node in state.owners.items()} == {
        "clicks/0": "scala", "clicks/1": "scala", "clicks/2": "zkconsumer", "clicks/3": "zkconsumer",
    }  # fmt: skip
    assert state.offsets[TopicPartition("clicks", 2)].offset == 1
    assert state.members[SCALA].host == "host"
    assert state.members["g1_zz"].host is None
    assert state.members["g1_zz"].threads == {"clicks": 1}
    assert state.owners[TopicPartition("clicks", 2)].stat.ephemeral_owner == state.members["g1_zz"].session_id
    assert (state.is_active, state.authority) == (True, "zookeeper")


def test_a_group_that_only_ever_committed_has_its_topics(world: FakeEnvironment, admin: AdminSession) -> None:
    world.zookeeper.ensure("/consumers/g1/offsets/gone/3", b"42")
    world.zookeeper.ensure("/consumers/g1/offsets/gone/4", b"forty")
    world.zookeeper.ensure("/consumers/g1/offsets/gone/5", b"-1")
    world.zookeeper.ensure("/consumers/g1/offsets/gone/x", b"1")
    state = read_group(admin, "g1")
    assert state is not None
    assert [node.offset for node in state.offsets.values()] == [42, None, None]
    assert [bool(node.problem) for node in state.offsets.values()] == [False, True, False]
    assert (state.group_topics, state.missing_topics) == (["gone"], ["gone"])
    assert state.unexpected_nodes == ("/consumers/g1/offsets/gone/x",)
    assert not state.is_active


def test_fences_bad_registrations_and_filters_are_read_and_not_judged(
    world: FakeEnvironment, admin: AdminSession
) -> None:
    world.create_topic("clicks", 1)
    world.create_topic("views", 2)
    zookeeper = world.zookeeper
    zookeeper.ensure("/consumers/g1/owners/clicks/0", b"m1")
    zookeeper.ensure("/consumers/g1/ids/g1_bad", b"clicks")
    good = {"version": 1, "subscription": {"v.*": 3}, "pattern": "white_list", "timestamp": "1"}
    zookeeper.ensure("/consumers/g1/ids/g1_good", json.dumps(good).encode())
    wrong = good | {"subscription": {"(": 1}}
    zookeeper.ensure("/consumers/g1/ids/g1_wrong", json.dumps(wrong).encode())
    zookeeper.ensure("/zkconsumer/groups/g1", b"{}")
    state = read_group(admin, "g1")
    assert state is not None
    assert state.owners[TopicPartition("clicks", 0)].kind == "persistent"
    assert "no release accepts it" in state.members["g1_bad"].problem
    assert "no Java compiles" in state.members["g1_wrong"].problem
    assert state.members["g1_good"].threads == {"views": 3}
    assert (state.authority, state.control_version) == ("?", 0)
    assert "control znode" in state.control_problem


def test_only_the_topics_that_are_asked_for_are_read(world: FakeEnvironment, admin: AdminSession) -> None:
    for topic in ("a", "b"):
        world.create_topic(topic, 1)
        world.zookeeper.ensure(f"/consumers/g1/offsets/{topic}/0", b"1")
    state = read_group(admin, "g1", ["b"])
    assert state is not None
    assert [tp.topic for tp in state.offsets] == ["b"]
    assert list(state.topics) == ["b"]


@pytest.mark.parametrize(
    ("group", "consumer", "host"),
    [
        ("g", "g_h-1416246370000-55ddbc44", "h"),
        ("a_b", "a_b_my-host.x_y-1416246370000-5", "my-host.x_y"),
        ("g", "g_consumer1", None),
        ("g", "other_h-1416246370000-55ddbc44", None),
    ],
)
def test_the_host_stands_in_a_generated_id(group: str, consumer: str, host: str | None) -> None:
    assert host_of_id(group, consumer) == host


def test_a_read_that_the_connection_took_with_it_is_asked_again(world: FakeEnvironment, admin: AdminSession) -> None:
    world.zookeeper.ensure("/consumers/g1/offsets")
    world.zookeeper.lose_connection_on_next(lambda request: True, is_done=False)
    assert read_group(admin, "g1") is not None


def test_a_write_that_the_connection_took_with_it_is_not_repeated(world: FakeEnvironment, admin: AdminSession) -> None:
    world.zookeeper.lose_connection_on_next(lambda request: True, is_done=False)
    assert admin.request([Create("/made")]) == [ConnectionLost("/made")]
    assert world.zookeeper.data("/made") is None


def test_leaders_are_asked_of_any_broker_that_answers(world: FakeEnvironment, admin: AdminSession) -> None:
    world.create_topic("clicks", 2)
    assert len(admin.brokers.leaders(["clicks"]).with_leader) == 2
    assert admin.brokers.leaders([]).with_leader == {}


def test_without_brokers_the_sentence_says_where_they_are_looked_for(
    world: FakeEnvironment, admin: AdminSession
) -> None:
    for address in world.cluster.addresses:
        world.zookeeper.remove(f"/brokers/ids/{address.broker_id}")
    with pytest.raises(BrokerUnreachable, match="/brokers/ids"):
        admin.brokers.leaders(["clicks"])
