"""The watcher of topics: what its handler is told, and what it survives."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence

import pytest

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.in_memory_fixtures import MakeWorld, wait_until
from zkconsumer import javaapi
from zkconsumer.base.threads import live_threads
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Children, ConnectionLost
from zkconsumer.zk.topic_watcher import ZookeeperTopicEventWatcher

WATCHER = "topic-event-watcher"


class Told:
    """A handler that remembers what it was told."""

    def __init__(self) -> None:
        self.lists: list[Sequence[str]] = []
        self.threads: set[str] = set()
        self.raises: BaseException | None = None

    def handle_topic_event(self, all_topics: Sequence[str]) -> None:
        self.lists.append(all_topics)
        self.threads.add(threading.current_thread().name)
        if self.raises is not None:
            raise self.raises

    def handleTopicEvent(self, allTopics: Sequence[str]) -> None:  # noqa: N803
        self.handle_topic_event(allTopics)

    def wait_for(self, *topics: str) -> None:
        wait_until(lambda: self.lists and sorted(self.lists[-1]) == sorted(topics), f"it is told {topics}")


@pytest.fixture
def told() -> Told:
    return Told()


@pytest.fixture
def watcher(world: FakeEnvironment, told: Told) -> Iterator[ZookeeperTopicEventWatcher]:
    with ZookeeperTopicEventWatcher(ADDRESS, told, store=world.store) as made:
        yield made


def test_it_tells_what_is_there_and_what_comes_and_goes(
    world: FakeEnvironment, told: Told, watcher: ZookeeperTopicEventWatcher
) -> None:
    told.wait_for()
    world.create_topic("a")
    told.wait_for("a")
    world.create_topic("b")
    told.wait_for("a", "b")
    world.zookeeper.remove(paths.topic("a"))
    told.wait_for("b")
    assert told.threads == {WATCHER}


def test_a_topic_that_grows_is_no_event(
    world: FakeEnvironment, told: Told, watcher: ZookeeperTopicEventWatcher
) -> None:
    world.create_topic("a")
    told.wait_for("a")
    count = len(told.lists)
    world.create_topic("a", 5)
    world.create_topic("b")
    told.wait_for("a", "b")
    assert len(told.lists) == count + 1


def test_without_the_node_there_are_no_topics_until_it_comes(make_world: MakeWorld, told: Told) -> None:
    world = make_world()
    world.zookeeper.remove(paths.BROKER_TOPICS)
    with ZookeeperTopicEventWatcher(ADDRESS, told, store=world.store):
        told.wait_for()
        assert world.zookeeper.data(paths.BROKER_TOPICS) is None, "it writes nothing"
        world.zookeeper.ensure(paths.BROKER_TOPICS)
        world.create_topic("a")
        told.wait_for("a")


def test_what_the_handler_raises_is_logged_and_the_next_change_is_told(
    world: FakeEnvironment, told: Told, watcher: ZookeeperTopicEventWatcher, caplog: pytest.LogCaptureFixture
) -> None:
    told.raises = ValueError("no")
    world.create_topic("a")
    told.wait_for("a")
    world.create_topic("b")
    told.wait_for("a", "b")
    wait_until(lambda: caplog.text.count("topic-handler-raised") >= 2, "both are logged")


def test_it_survives_a_broken_connection_and_the_end_of_its_session(
    world: FakeEnvironment, told: Told, watcher: ZookeeperTopicEventWatcher
) -> None:
    [store] = world.stores
    told.wait_for()
    world.zookeeper.disconnect(store)
    world.create_topic("a")
    world.zookeeper.reconnect(store)
    told.wait_for("a")
    world.zookeeper.expire(store)
    world.create_topic("b")
    told.wait_for("a", "b")
    world.create_topic("c")
    told.wait_for("a", "b", "c")


def test_an_answer_that_is_lost_is_asked_for_again(
    world: FakeEnvironment, told: Told, watcher: ZookeeperTopicEventWatcher
) -> None:
    told.wait_for()
    world.zookeeper.fail_next(lambda request: isinstance(request, Children), ConnectionLost)
    world.create_topic("a")
    told.wait_for("a")


def test_a_shutdown_ends_the_thread_and_the_session_and_nothing_is_told_any_more(
    world: FakeEnvironment, told: Told, watcher: ZookeeperTopicEventWatcher
) -> None:
    told.wait_for()
    watcher.shutdown()
    watcher.shutdown()
    count = len(told.lists)
    world.create_topic("a")
    assert WATCHER not in live_threads()
    assert len(told.lists) == count
    assert world.stores[0].session_id is None


def test_a_handler_may_shut_its_watcher_down(world: FakeEnvironment) -> None:
    made: list[ZookeeperTopicEventWatcher] = []
    ready = threading.Event()

    class Once:
        def handle_topic_event(self, all_topics: Sequence[str]) -> None:
            assert ready.wait(10)
            made[0].shutdown()

    made.append(ZookeeperTopicEventWatcher(ADDRESS, Once(), store=world.store))
    ready.set()
    wait_until(lambda: WATCHER not in live_threads(), "the thread ends")


def test_a_zookeeper_that_is_not_there_is_one_error_and_leaves_no_thread(world: FakeEnvironment, told: Told) -> None:
    world.zookeeper.is_up = False
    with pytest.raises(ZkTimeoutException):
        ZookeeperTopicEventWatcher(ADDRESS, told, store=world.store, connection_timeout_ms=50)
    assert WATCHER not in live_threads()


def test_the_old_names_call_the_old_handler(world: FakeEnvironment, told: Told) -> None:
    world.create_topic("a")
    watcher = javaapi.ZookeeperTopicEventWatcher(ADDRESS, told, store=world.store)
    told.wait_for("a")
    watcher.shutdown()
