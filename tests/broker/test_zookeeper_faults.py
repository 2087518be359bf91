"""What ZooKeeper does to a broker that is registered there: answers that are lost, or come too late."""

from __future__ import annotations

import pytest

from bridge.broker import zookeeper_registration as door
from bridge.testing import EmbeddedBroker
from bridge.testing.fake_environment import ADDRESS
from tests.broker.broker_zookeeper_fixtures import Store, store, zookeeper
from tests.broker.raw_client import RawClient
from tests.broker.test_zookeeper import until
from zkconsumer.errors import PreconditionFailed
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create, GetMany, NoAuth, Request, SetData

__all__ = ["store", "zookeeper"]

AT = TopicPartition("t", 0)
PATH = paths.offset("g", AT)
UNKNOWN_SERVER_ERROR = -1
COORDINATOR_NOT_AVAILABLE = 15


def _reads_the_offset(request: Request) -> bool:
    return isinstance(request, GetMany) and PATH in request.paths


def test_an_offset_that_cannot_be_read_now_is_an_error_and_not_no_offset(
    zookeeper: FakeZooKeeper, store: Store
) -> None:
    """A member that is told that there is none begins where ``auto.offset.reset`` says: records lost, or all again."""
    with EmbeddedBroker(zookeeper=ADDRESS, zk_store=store) as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")
        assert talk.commit("g", "t", 0, 5, version=0) == 0
        zookeeper.fail_next(_reads_the_offset, NoAuth)
        assert talk.committed("g", "t", 0, version=0) == (-1, UNKNOWN_SERVER_ERROR)
        zookeeper.lose_connection_on_next(_reads_the_offset, is_done=False)
        assert talk.committed("g", "t", 0, version=0) == (-1, UNKNOWN_SERVER_ERROR)
        assert talk.committed("g", "t", 0, version=0) == (5, 0)
        zookeeper.ensure(PATH, b"no number")
        assert talk.committed("g", "t", 0, version=0) == (-1, UNKNOWN_SERVER_ERROR)


def test_zookeeper_that_is_silent_is_no_zookeeper_without_offsets(
    zookeeper: FakeZooKeeper, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    from bridge.broker import zookeeper_offsets

    with EmbeddedBroker(zookeeper=ADDRESS, zk_store=store) as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")
        assert talk.commit("g", "t", 0, 5, version=0) == 0
        monkeypatch.setattr(zookeeper_offsets, "ZOOKEEPER_TIMEOUT_MS", 50)
        zookeeper.hold("requests")
        assert talk.committed("g", "t", 0, version=0) == (-1, UNKNOWN_SERVER_ERROR)
        zookeeper.release("requests")


def test_a_coordinator_is_available_when_zookeeper_has_the_offsets_topic(
    zookeeper: FakeZooKeeper, store: Store
) -> None:
    """Up to Kafka 3.9 the topic is made there first; tools read no offsets before they find it."""
    with EmbeddedBroker(zookeeper=ADDRESS, zk_store=store) as broker, RawClient(broker.addresses()[0]) as talk:
        zookeeper.hold("requests")
        for _ in range(3):
            assert talk.find_coordinator("g", version=0).error_code == COORDINATOR_NOT_AVAILABLE
        zookeeper.release("requests")
        until(lambda: not talk.find_coordinator("g", version=0).error_code)
        assert zookeeper.data(paths.topic("__consumer_offsets")) is not None


def test_a_commit_that_another_one_was_faster_to_create_is_written_all_the_same(
    zookeeper: FakeZooKeeper, store: Store
) -> None:
    with EmbeddedBroker(zookeeper=ADDRESS, zk_store=store) as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")

        def somebody_else_creates_it(request: Request) -> bool:
            if isinstance(request, Create) and request.path == PATH and zookeeper.data(PATH) is None:
                zookeeper.ensure(PATH, b"3")
            return False

        zookeeper.lose_connection_on_next(somebody_else_creates_it, is_done=False)
        assert talk.commit("g", "t", 0, 5, version=0) == 0
        assert zookeeper.data(PATH) == b"5", "what was acknowledged is stored"


def test_a_commit_after_a_lost_race_that_is_not_written_either_is_refused(
    zookeeper: FakeZooKeeper, store: Store
) -> None:
    with EmbeddedBroker(zookeeper=ADDRESS, zk_store=store) as broker, RawClient(broker.addresses()[0]) as talk:
        broker.create_topic("t")

        def somebody_else_creates_it(request: Request) -> bool:
            if isinstance(request, Create) and request.path == PATH and zookeeper.data(PATH) is None:
                zookeeper.ensure(PATH, b"3")
                zookeeper.fail_next(lambda again: isinstance(again, SetData) and again.path == PATH, NoAuth)
            return False

        zookeeper.lose_connection_on_next(somebody_else_creates_it, is_done=False)
        assert talk.commit("g", "t", 0, 5, version=0) == UNKNOWN_SERVER_ERROR
        assert zookeeper.data(PATH) == b"3"


def test_a_registration_whose_answer_was_lost_is_known_again_as_ours(
    zookeeper: FakeZooKeeper, store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    ours = paths.broker(0)
    zookeeper.lose_connection_on_next(
        lambda request: isinstance(request, Create) and request.path == ours, is_done=True
    )
    with EmbeddedBroker(zookeeper=ADDRESS, zk_store=store) as broker:
        broker.create_topic("t")
        until(lambda: zookeeper.data("/brokers/topics/t/partitions/0/state"))
        assert zookeeper.data(ours)
    assert "broker-id-in-use" not in caplog.text


def test_who_may_not_register_is_told_so_and_not_that_another_broker_did(
    zookeeper: FakeZooKeeper, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(door, "SESSION_TIMEOUT_MS", 100)
    monkeypatch.setattr(door, "BROKER_ID_RETRY_MS", 10_000)
    monkeypatch.setattr(door.ZooKeeperRegistration.open, "__defaults__", (100,))
    zookeeper.fail_next(lambda request: isinstance(request, Create) and request.path == paths.broker(0), NoAuth)
    with pytest.raises(PreconditionFailed, match="broker id 0 could not be registered in ZooKeeper: NoAuth"):
        EmbeddedBroker(zookeeper=ADDRESS, zk_store=store).start()
