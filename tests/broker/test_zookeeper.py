"""The broker registers in ZooKeeper, and members of the old kind consume from it beside those of the new kind."""

from __future__ import annotations

import json
import time
from collections.abc import Callable

import pytest

from bridge.testing import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS
from tests.broker.broker_zookeeper_fixtures import Store, store, zookeeper
from tests.broker.raw_client import RawClient
from zkconsumer import ConsumerConfig, ZookeeperConsumerConnector
from zkconsumer.base.threads import spawn
from zkconsumer.errors import PreconditionFailed
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths

__all__ = ["store", "zookeeper"]

PATIENCE_S = 10


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not holds():
        assert time.monotonic() < deadline, "this did not happen in time"
        time.sleep(0.01)


def test_nodes_and_topics_stand_in_zookeeper_as_brokers_write_them(zookeeper: FakeZooKeeper, store: Store) -> None:
    with EmbeddedBroker(nodes=2, zookeeper=ADDRESS, zk_store=store) as broker:
        [one, two] = broker.addresses()
        node = json.loads(zookeeper.data("/brokers/ids/1") or b"")
        assert node.pop("timestamp").isdigit()
        assert node == {
            "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"},
            "endpoints": [f"PLAINTEXT://{two.host}:{two.port}"],
            "jmx_port": -1,
            "host": two.host,
            "port": two.port,
            "version": 4,
        }
        broker.create_topic("t", 2)
        until(lambda: zookeeper.data("/brokers/topics/t/partitions/1/state"))
        assert zookeeper.data("/brokers/topics/t") == b'{"version":1,"partitions":{"0":[0],"1":[1]}}'
        state = b'{"controller_epoch":1,"leader":%d,"version":1,"leader_epoch":%d,"isr":[%d]}'
        assert zookeeper.data("/brokers/topics/t/partitions/1/state") == state % (1, 0, 1)
        broker.move_leader("t", 1, 0)
        until(lambda: zookeeper.data("/brokers/topics/t/partitions/1/state") == state % (0, 1, 0))
        broker.delete_topic("t")
        until(lambda: zookeeper.data("/brokers/topics/t") is None)
    until(lambda: zookeeper.data("/brokers/ids/0") is None)
    assert one.broker_id == 0


def test_a_broker_of_0_9_writes_nodes_of_version_2(zookeeper: FakeZooKeeper, store: Store) -> None:
    with EmbeddedBroker(release="0.9.0.1", zookeeper=ADDRESS, zk_store=store):
        node = json.loads(zookeeper.data("/brokers/ids/0") or b"")
        assert node["version"] == 2
        assert "listener_security_protocol_map" not in node


def test_after_an_expired_session_the_nodes_register_again(zookeeper: FakeZooKeeper) -> None:
    made: list[FakeZkStore] = []

    def store(connect: str, timeout_ms: int) -> FakeZkStore:
        made.append(FakeZkStore(zookeeper, "", timeout_ms, None))
        return made[-1]

    with EmbeddedBroker(zookeeper=ADDRESS, zk_store=store) as broker:
        broker.create_topic("t")
        until(lambda: zookeeper.data("/brokers/topics/t/partitions/0/state"))
        before = made[0].session_id
        zookeeper.expire(made[0])
        until(lambda: made[0].session_id not in (None, before) and zookeeper.data("/brokers/ids/0"))


def test_an_id_that_is_taken_is_waited_for_and_then_refused(
    zookeeper: FakeZooKeeper, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bridge.broker import zookeeper_registration as module

    monkeypatch.setattr(module, "SESSION_TIMEOUT_MS", 300)
    monkeypatch.setattr(module, "CONNECT_TIMEOUT_MS", 300)
    with EmbeddedBroker(zookeeper=ADDRESS, zk_store=store):
        second = EmbeddedBroker(zookeeper=ADDRESS, zk_store=store)
        monkeypatch.setattr(module.ZooKeeperRegistration.open, "__defaults__", (300,))
        with pytest.raises(PreconditionFailed, match="broker id 0 is registered in ZooKeeper by another broker"):
            second.start()


def test_version_0_commits_and_fetches_go_to_zookeeper_and_no_coordinator_sees_them(
    zookeeper: FakeZooKeeper, store: Store
) -> None:
    path = paths.offset("g", TopicPartition("t", 0))
    with EmbeddedBroker(zookeeper=ADDRESS, zk_store=store) as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")
        assert talk.committed("g", "t", 0, version=0) == (-1, 3), "a missing node is error 3"
        assert talk.commit("g", "t", 0, 5, version=0) == 0
        assert zookeeper.data(path) == b"5"
        assert talk.commit("g", "t", 0, 6, version=0) == 0
        assert talk.committed("g", "t", 0, version=0) == (6, 0)
        assert talk.commit("g", "t", 1, 6, version=0) == 3
        assert talk.commit("g", "no-such", 0, 6, version=0) == 3
        assert talk.commit("../g", "t", 0, 6, version=0) == 24
        while talk.find_coordinator("g").error_code:
            pass
        until(lambda: talk.committed("g", "t", 0) == (-1, 0))


def test_without_zookeeper_version_0_is_refused_as_in_kraft() -> None:
    with EmbeddedBroker() as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")
        assert talk.commit("g", "t", 0, 5, version=0) == 35
        assert talk.committed("g", "t", 0, version=0) == (-1, 35)


@pytest.mark.parametrize("release", ["0.9.0.1", "1.1.1", "3.9.1"])
def test_our_connector_finds_the_broker_in_zookeeper_and_reads(
    release: str, zookeeper: FakeZooKeeper, store: Store
) -> None:
    with EmbeddedBroker(release=release, nodes=2, zookeeper=ADDRESS, zk_store=store) as broker:
        broker.create_topic("t", 2)
        until(lambda: zookeeper.data("/brokers/topics/t/partitions/1/state"))
        broker.append("t", 0, [b"a", b"b"])
        broker.append("t", 1, [b"c"])
        config = ConsumerConfig(group_id="g", zookeeper_connect=ADDRESS, auto_offset_reset="smallest")
        connector = ZookeeperConsumerConnector(config, store=store)
        try:
            [stream] = connector.create_message_streams({"t": 1})["t"]
            seen: list[bytes | None] = []

            def read(_: object) -> None:
                seen.extend(message.value for message in stream)

            spawn("reader", read, lambda *_: None)
            until(lambda: len(seen) == 3)
            connector.commit_offsets()
        finally:
            connector.shutdown()
        assert sorted(value or b"" for value in seen) == [b"a", b"b", b"c"]
        assert zookeeper.data(paths.offset("g", TopicPartition("t", 0))) == b"2"
