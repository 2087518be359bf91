"""The threads that read: what is shared, what goes on when something fails, what ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from bridge.web import cluster_watcher
from bridge.web.cluster_watcher import GROUPS_MAX, ClusterWatcher, TooManyGroups
from bridge.web.group_feed import DOCTOR, GROUP, HISTORY, MOVE, STATES, GroupFeed
from tests.in_memory_fixtures import wait_until
from tests.web_fixtures import dependencies_of
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.admin.broker_client import BrokerClient
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.testing.sandbox.waiting import pause_ms
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import ZnodeData


class Sessions:
    """Opens sessions, and fails while ``is_down``."""

    def __init__(self, world: FakeEnvironment) -> None:
        self.world = world
        self.is_down = False
        self.opened: list[Any] = []

    def __call__(self) -> AdminSession:
        if self.is_down:
            raise ZkTimeoutException("ZooKeeper does not answer")
        self.opened.append(threading.current_thread().name)
        return AdminSession.open(ADDRESS, None, dependencies_of(self.world))


@pytest.fixture
def sessions(world: FakeEnvironment) -> Sessions:
    world.create_topic("clicks", 2)
    for group in ("g1", "g2"):
        world.zookeeper.ensure(paths.ids(group))
        for partition in range(2):
            world.cluster.append("clicks", partition, [b"x"] * 5)
            world.zookeeper.ensure(paths.offset(group, TopicPartition("clicks", partition)), b"2")
    return Sessions(world)


@pytest.fixture
def watch(sessions: Sessions, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], ClusterWatcher]]:
    monkeypatch.setattr(cluster_watcher, "GROUP_INTERVAL_MS", 20)
    monkeypatch.setattr(cluster_watcher, "MOVE_INTERVAL_MS", 20)
    made: list[ClusterWatcher] = []

    def make() -> ClusterWatcher:
        made.append(ClusterWatcher(sessions, lambda: None))
        return made[-1]

    yield make
    for watcher in made:
        watcher.close()


def revision(feed: GroupFeed, name: str) -> int:
    message = feed.published().get(name)
    return 0 if message is None else message.revision


def test_nothing_is_read_without_a_viewer(watch: Callable[[], ClusterWatcher], sessions: Sessions) -> None:
    watch()
    pause_ms(100)
    assert sessions.opened == []


def test_all_viewers_of_a_group_share_its_reads(watch: Callable[[], ClusterWatcher], sessions: Sessions) -> None:
    watcher = watch()
    feeds = {id(watcher.show_group("g1")) for _ in range(10)}
    assert len(feeds) == 1
    feed = watcher.show_group("g1")
    wait_until(lambda: feed.state(GROUP).document and feed.state(MOVE).document, "the group was read")
    assert sorted(sessions.opened) == ["zkconsumer-web-group", "zkconsumer-web-move"]
    assert feed.state(DOCTOR).document is None, "no viewer shows the evidence"


def test_what_was_read_stays_when_zookeeper_does_not_answer(
    watch: Callable[[], ClusterWatcher], sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    watcher = watch()
    feed = watcher.show_group("g1")
    wait_until(lambda: feed.state(GROUP).document, "the group was read")
    known = feed.state(GROUP).document

    def silent(*_: object, **__: object) -> Any:
        raise ZkTimeoutException("ZooKeeper did not answer")

    with monkeypatch.context() as patch:
        patch.setattr(AdminSession, "request", silent)
        wait_until(lambda: feed.state(GROUP).error, "the read failed")
        state = feed.state(GROUP)
        assert state.document == known
        assert state.failed_since_ms is not None
        assert state.read_at_ms is not None
    wait_until(lambda: not feed.state(GROUP).error, "the group is read again")
    texts = feed.published()["events"].full().decode()
    assert "the group cannot be read: ZooKeeper did not answer" in texts
    assert "the group can be read again" in texts


def test_opening_a_session_is_tried_again(watch: Callable[[], ClusterWatcher], sessions: Sessions) -> None:
    sessions.is_down = True
    feed = watch().show_group("g1")
    wait_until(lambda: feed.state(GROUP).error == "ZooKeeper does not answer", "the error is shown")
    sessions.is_down = False
    wait_until(lambda: feed.state(GROUP).document, "the group was read")


def test_one_broker_that_fails_does_not_empty_the_page(watch: Callable[[], ClusterWatcher], sessions: Sessions) -> None:
    feed = watch().show_group("g1")
    wait_until(lambda: feed.state(GROUP).document, "the group was read")
    sessions.world.cluster.stop_broker(sessions.world.cluster.addresses[0].broker_id)

    def partly_unknown() -> Any:
        document = feed.state(GROUP).document
        return document is not None and document["not_known"] and document

    wait_until(partly_unknown, "a part is not known")
    rows = partly_unknown()["rows"]
    assert len(rows) == 2
    assert {row["current_offset"] for row in rows} == {2}
    assert not feed.state(GROUP).error


def test_an_internal_error_is_shown_and_the_thread_goes_on(
    watch: Callable[[], ClusterWatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object) -> Any:
        raise ValueError("a defect")

    with monkeypatch.context() as patch:
        patch.setattr(cluster_watcher, "read_group_report", broken)
        feed = watch().show_group("g1")
        wait_until(lambda: feed.state(GROUP).error == "internal error: ValueError: a defect", "the error is shown")
    wait_until(lambda: feed.state(GROUP).document, "the group is read again")


def test_a_group_that_is_deleted_is_not_shown_any_more(watch: Callable[[], ClusterWatcher], sessions: Sessions) -> None:
    feed = watch().show_group("g1")
    wait_until(lambda: feed.state(GROUP).document, "the group was read")
    offsets = [paths.offset("g1", TopicPartition("clicks", number)) for number in range(2)]
    topic = offsets[0].rpartition("/")[0]
    for path in (*offsets, topic, paths.offsets("g1"), paths.ids("g1"), paths.group_root("g1")):
        sessions.world.zookeeper.remove(path)
    wait_until(lambda: feed.state(GROUP).is_absent, "the group is gone")
    assert feed.published()[GROUP].full() == b'event: group\ndata: {"document":null}\n\n'


def test_the_number_of_groups_is_bounded(watch: Callable[[], ClusterWatcher]) -> None:
    watcher = watch()
    for number in range(GROUPS_MAX):
        watcher.show_group(f"group-{number}")
    with pytest.raises(TooManyGroups):
        watcher.show_group("one more")
    watcher.show_group("group-0")


def test_a_group_without_viewers_is_dropped_after_a_while(
    watch: Callable[[], ClusterWatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_watcher, "WANTED_MS", 1)
    watcher = watch()
    feed = watcher.show_group("g1")
    wait_until(lambda: feed.state(GROUP).document, "the group was read")
    watcher.hide_group("g1")
    pause_ms(20)
    watcher.show_group("g2")
    assert watcher.show_group("g1") is not feed


def test_a_group_is_sent_only_when_it_changes(watch: Callable[[], ClusterWatcher], sessions: Sessions) -> None:
    for partition in range(2):  # it has read everything, so no lag in seconds grows
        sessions.world.zookeeper.ensure(paths.offset("g1", TopicPartition("clicks", partition)), b"10")
    feed = watch().show_group("g1")
    wait_until(lambda: revision(feed, HISTORY) > 5, "it was read five times")
    before = revision(feed, GROUP)
    wait_until(lambda: revision(feed, HISTORY) > 15, "it was read ten times more")
    assert revision(feed, GROUP) == before
    assert revision(feed, STATES) > 15
    sessions.world.cluster.append("clicks", 0, [b"y"])
    wait_until(lambda: revision(feed, GROUP) > before, "the new end is sent")
    patch = feed.published()[GROUP].patch
    assert patch is not None
    assert patch.startswith(b"event: group-patch\n")
    assert patch.count(b'"log_end_offset"') == 1


def test_the_list_is_shown_before_the_lags_are_known(
    watch: Callable[[], ClusterWatcher], monkeypatch: pytest.MonkeyPatch
) -> None:
    brokers = threading.Event()
    leaders = BrokerClient.leaders

    def slow(self: BrokerClient, topics: Any) -> Any:
        if threading.current_thread().name == "zkconsumer-web-list" and topics is not None:
            assert brokers.wait(30)
        return leaders(self, topics)

    monkeypatch.setattr(BrokerClient, "leaders", slow)
    watcher = watch()
    watcher.show_list(1)
    wait_until(lambda: watcher.list_messages().get("list"), "the list is shown")
    assert b'"lag":null' in watcher.list_messages()["list"].full()
    brokers.set()
    wait_until(lambda: watcher.list_messages()["list"].revision == 2, "the lags are shown")
    assert b'"known":16' in watcher.list_messages()["list"].full()


def test_the_list_reads_each_offset_once(
    watch: Callable[[], ClusterWatcher], sessions: Sessions, monkeypatch: pytest.MonkeyPatch
) -> None:
    read: list[str] = []
    get_many = AdminSession.get_many

    def counted(session: AdminSession, wanted: Iterable[str]) -> dict[str, ZnodeData]:
        paths_ = list(wanted)
        read.extend(path for path in paths_ if path.startswith(paths.offsets("g1")))
        return get_many(session, paths_)

    monkeypatch.setattr(AdminSession, "get_many", counted)
    watcher = watch()
    watcher.want_list()
    wait_until(lambda: getattr(watcher.list_messages().get("list"), "revision", 0) == 2, "the lags are shown")
    assert sorted(read) == [paths.offset("g1", TopicPartition("clicks", number)) for number in range(2)]
