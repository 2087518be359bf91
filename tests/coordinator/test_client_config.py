"""The settings of a member of a coordinator's group."""

from __future__ import annotations

import pickle

import pytest

from bridge import CoordinatorConsumerConfig
from bridge.client.supported_settings import NO_EFFECT, OTHER_MEANING, SAME_MEANING, settings_without_effect
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.config import SETTINGS as OLD
from zkconsumer.errors import InvalidConfigException, ZkTimeoutException
from zkconsumer.kafka.group.group_member_config import GROUP_SETTINGS, GroupMemberConfig
from zkconsumer.testing.fake_zookeeper import FakeZkStore, FakeZooKeeper
from zkconsumer.zk.zk_security import NO_SECURITY


def test_the_defaults_are_kafkas_of_3_x() -> None:
    config = GroupMemberConfig({"group.id": "g"})
    assert {key: value for key, value in config.values.items() if key != "group.id"} == {
        "group.instance.id": None,
        "client.rack": None,
        "session.timeout.ms": 45_000,
        "heartbeat.interval.ms": 3000,
        "max.poll.interval.ms": 300_000,
        "request.timeout.ms": 30_000,
        "default.api.timeout.ms": 60_000,
        "retry.backoff.ms": 100,
        "retry.backoff.max.ms": 1000,
        "enable.auto.commit": True,
        "auto.commit.interval.ms": 5000,
    }
    assert config.is_dynamic_member
    assert config.join_group_timeout_ms == 305_000


def test_values_are_taken_as_text_too() -> None:
    config = GroupMemberConfig({"group.id": "g", "session.timeout.ms": " 10000 ", "enable.auto.commit": "false"})
    assert config.session_timeout_ms == 10_000
    assert config.enable_auto_commit is False


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "group.id is missing"),
        ({"group.id": ""}, "group.id"),
        ({"group.id": "g", "heartbeat.interval.ms": 45_000}, "must be less than session.timeout.ms=45000"),
        ({"group.id": "g", "session.timeout.ms": 3000}, "heartbeat.interval.ms=3000"),
        ({"group.id": "g", "session.timeout.ms": "soon"}, "session.timeout.ms=soon"),
        ({"group.id": "g", "max.poll.interval.ms": 0}, "max.poll.interval.ms=0"),
        ({"group.id": "g", "group.instance.id": ".."}, "group.instance.id=.."),
        ({"group.id": "g", "group.instance.id": "a b"}, "group.instance.id=a b"),
        ({"group.id": "g", "group.instance.id": "a" * 250}, "the maximum is 249"),
        ({"group.id": "g", "zookeeper.connect": "x"}, "zookeeper.connect is not known"),
    ],
)
def test_what_cannot_be_is_refused_by_its_key(given: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidConfigException) as caught:
        GroupMemberConfig(given)
    assert words in str(caught.value)


def test_all_problems_are_told_at_once() -> None:
    with pytest.raises(InvalidConfigException) as caught:
        GroupMemberConfig({"session.timeout.ms": -1, "request.timeout.ms": "x"})
    assert "3 problems" in str(caught.value)


def test_every_setting_has_an_attribute_of_its_name() -> None:
    for key, setting in GROUP_SETTINGS.items():
        assert setting.attribute == key.replace(".", "_")


class NoAnswer(FakeZkStore):
    """A ZooKeeper that does not answer."""

    def __init__(self, connect: str, session_timeout_ms: int) -> None:
        super().__init__(FakeZooKeeper(), "", session_timeout_ms, NO_SECURITY.login)

    def start(self, timeout_ms: int) -> None:
        raise ZkTimeoutException("no answer")


# --- the old consumer's settings ----------------------------------------------------------------------------------

NEEDED = {"group.id": "g", "bootstrap.servers": "b:9092"}


def test_a_coordinators_member_needs_brokers_and_no_zookeeper() -> None:
    config = CoordinatorConsumerConfig.from_properties(NEEDED)
    assert config.bootstrap_servers == "b:9092"
    assert config.values["zookeeper.connect"] is None
    assert CoordinatorConsumerConfig(group_id="g", bootstrap_servers="b:9092") == config
    assert config.with_overrides({"auto.offset.reset": "smallest"}).values["zookeeper.connect"] is None
    assert pickle.loads(pickle.dumps(config)) == config
    with pytest.raises(InvalidConfigException, match=r"bootstrap\.servers is missing"):
        CoordinatorConsumerConfig.from_properties({"group.id": "g", "zookeeper.connect": "zk:2181"})


def test_a_zookeeper_that_stands_there_is_read_as_ever() -> None:
    given = {**NEEDED, "zookeeper.connect": "zk:2181/kafka"}
    made, old = CoordinatorConsumerConfig.from_properties(given), ConsumerConfig.from_properties(given)
    assert {key: made.values[key] for key in OLD} == dict(old.values)
    with pytest.raises(InvalidConfigException, match=r"zookeeper\.connect=zk:x"):
        CoordinatorConsumerConfig.from_properties({**NEEDED, "zookeeper.connect": "zk:x"})


def test_a_member_that_zookeeper_keeps_needs_it_as_ever() -> None:
    with pytest.raises(InvalidConfigException, match=r"zookeeper\.connect is missing"):
        ConsumerConfig.from_properties(NEEDED)
    with pytest.raises(InvalidConfigException, match="create a ConsumerConfig for a member of a ZooKeeper group"):
        ZookeeperConsumerConnector(CoordinatorConsumerConfig.from_properties(NEEDED))


def test_a_member_that_zookeeper_keeps_names_what_only_a_coordinators_group_has(
    caplog: pytest.LogCaptureFixture,
) -> None:
    given = {**NEEDED, "zookeeper.connect": "zk:2181", "session.timeout.ms": 9_000, "max.poll.records": 5}
    config = CoordinatorConsumerConfig({**given, "bootstrap.servers": "localhost:9092"})
    with pytest.raises(ZkTimeoutException, match="no answer"):
        ZookeeperConsumerConnector(config.with_overrides({"zookeeper.connection.timeout.ms": 1}), store=NoAnswer)
    lines = {line.split()[1]: line for line in caplog.messages if line.startswith("setting-ignored ")}
    assert lines.keys() == {"key=session.timeout.ms", "key=max.poll.records"}
    assert "this is a ZooKeeper group" in lines["key=session.timeout.ms"]
    strategy = config.with_overrides({"partition.assignment.strategy": "sticky"})
    with pytest.raises(InvalidConfigException, match="a ZooKeeper group has only range and roundrobin"):
        ZookeeperConsumerConnector(strategy, store=NoAnswer)


def test_every_old_setting_is_taken_or_not() -> None:
    assert sorted([*SAME_MEANING, *OTHER_MEANING, *NO_EFFECT]) == sorted(OLD)


def test_what_is_set_in_vain_is_named_but_not_how_zookeeper_is_reached() -> None:
    given = {**NEEDED, "zookeeper.connect": "zk:2181", "zookeeper.auth": "digest:/f", "release.settle.ms": 5}
    given |= {"zookeeper.session.timeout.ms": 6000, "auto.offset.reset": "smallest"}
    named = settings_without_effect(ConsumerConfig.from_properties(given))
    assert named.keys() == {"release.settle.ms", "zookeeper.session.timeout.ms"}
    assert "session.timeout.ms of the group replaces it" in named["zookeeper.session.timeout.ms"]
