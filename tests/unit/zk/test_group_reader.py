"""Reading the group: what is read once and kept under a watch, and what must not be kept."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import ClassVar

import pytest

from tests.zk_procedure_fixtures import GROUP, ProcedureSession
from zkconsumer.member.group_view import GroupView, TopicSubscription
from zkconsumer.testing.fake_zookeeper import FakeZooKeeper
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.group_procedures import AwaitExternal, Procedure
from zkconsumer.zk.group_reader import GroupReader
from zkconsumer.zk.member_registration import Registration, format_registration
from zkconsumer.zk.requests import (
    Children,
    ConnectionLost,
    Exists,
    Get,
    GetMany,
    NoAuth,
    NoNode,
    Request,
    SessionEnded,
    StoreEvent,
    WatchFired,
)
from zkconsumer.zk.znode_formats import ControlRecord as ControlZnode
from zkconsumer.zk.znode_formats import format_control

TOPIC = "clicks"


class Reading:
    """A reader on a party's session; watches reach it as ``perform`` passes them on."""

    def __init__(self, party: ProcedureSession) -> None:
        self.party = party
        self.server = party.server
        self.reader = GroupReader(GROUP)
        self.fired: list[str] = []
        party.store.listen(self._told)

    def _told(self, event: StoreEvent) -> None:
        if isinstance(event, WatchFired):
            self.fired.append(event.path)
            self.reader.invalidate(event.path)

    def read(
        self,
        topics: Iterable[str] | TopicSubscription = (TOPIC,),
        between: Callable[[int], object] | None = None,
        *,
        whole_group: bool = False,
        with_owners: bool = False,
    ) -> GroupView:
        view = self.try_to_read(topics, between, whole_group=whole_group, with_owners=with_owners)
        assert isinstance(view, GroupView), view
        return view

    def try_to_read(
        self,
        topics: Iterable[str] | TopicSubscription = (TOPIC,),
        between: Callable[[int], object] | None = None,
        *,
        whole_group: bool = False,
        with_owners: bool = False,
    ) -> GroupView | str:
        own = topics if isinstance(topics, TopicSubscription) else TopicSubscription("static", dict.fromkeys(topics, 1))
        procedure = self.reader.read(own, whole_group=whole_group, with_owners=with_owners)
        return self.party.run(procedure, between)

    @property
    def requests(self) -> list[Request]:
        """What the last reading asked for."""
        return [request for requests in self.party.rounds for request in requests]


@pytest.fixture
def reading(party: ProcedureSession) -> Reading:
    return Reading(party)


def join(server: FakeZooKeeper, member: str, topics: dict[str, int] | None = None, pattern: str = "static") -> None:
    registration = Registration(pattern, topics or {TOPIC: 1}, "1")  # type: ignore[arg-type]
    server.ensure(paths.registration(GROUP, member), format_registration(registration))


def create_topic(server: FakeZooKeeper, topic: str, partitions: int) -> None:
    data = {"version": 1, "partitions": {str(number): [0] for number in range(partitions)}}
    server.ensure(paths.topic(topic), json.dumps(data).encode())


def move(server: FakeZooKeeper, authority: str) -> None:
    control = ControlZnode("m1", 1, "prepared", authority, "cut-over")  # type: ignore[arg-type]
    server.ensure(paths.control(GROUP), format_control(control))


# --- what a view holds ------------------------------------------------------------------------------------------


def test_a_view_holds_members_topics_and_what_is_missing(server: FakeZooKeeper, reading: Reading) -> None:
    join(server, "g1_a", {TOPIC: 2, "absent": 1})
    join(server, "g1_b")
    create_topic(server, TOPIC, 3)
    view = reading.read([TOPIC, "absent"])
    assert view.members == {
        "g1_a": TopicSubscription("static", {TOPIC: 2, "absent": 1}),
        "g1_b": TopicSubscription("static", {TOPIC: 1}),
    }
    assert view.partitions_by_topic == {TOPIC: (0, 1, 2)}
    assert view.missing_topics == {"absent"}
    assert (view.owners, view.control, view.all_topics, view.ignored_registrations) == (None, None, None, {})


def test_a_group_that_does_not_exist_has_no_members(reading: Reading) -> None:
    reading.server.remove(paths.ids(GROUP))
    assert reading.read().members == {}


def test_a_registration_that_no_release_accepts_is_left_out_with_its_reason(
    server: FakeZooKeeper, reading: Reading
) -> None:
    join(server, "g1_a")
    server.ensure(paths.registration(GROUP, "g1_poison"), b"[[[[")
    view = reading.read()
    assert list(view.members) == ["g1_a"]
    assert list(view.ignored_registrations) == ["g1_poison"]


def test_a_topic_znode_that_nobody_can_read_is_a_topic_without_partitions(
    server: FakeZooKeeper, reading: Reading
) -> None:
    """It stops neither the other topics nor this program."""
    create_topic(server, TOPIC, 2)
    server.ensure(paths.topic("poison"), b'{"partitions":{"x":1}}')
    view = reading.read([TOPIC, "poison"])
    assert view.partitions_by_topic == {TOPIC: (0, 1), "poison": ()}


def test_the_whole_group_brings_the_topics_of_others_and_names_that_cannot_be_topics_are_passed_over(
    server: FakeZooKeeper, reading: Reading
) -> None:
    join(server, "g1_a", {"other": 1, "../escape": 1})
    create_topic(server, "other", 1)
    create_topic(server, TOPIC, 2)
    assert reading.read().partitions_by_topic == {TOPIC: (0, 1)}
    assert reading.read(whole_group=True).partitions_by_topic == {TOPIC: (0, 1), "other": (0,)}


def test_a_filter_in_the_group_brings_every_topic(server: FakeZooKeeper, reading: Reading) -> None:
    join(server, "g1_a", {".*": 1}, "white_list")
    create_topic(server, TOPIC, 1)
    create_topic(server, "other", 1)
    view = reading.read(whole_group=True)
    assert view.all_topics is not None
    assert set(view.all_topics) == {TOPIC, "other"}
    create_topic(server, "third", 1)
    view = reading.read(whole_group=True)
    assert view.all_topics is not None
    assert set(view.all_topics) == {TOPIC, "other", "third"}


def test_a_filter_before_there_is_any_broker_sees_the_first_topic(server: FakeZooKeeper, reading: Reading) -> None:
    join(server, "g1_a", {".*": 1}, "white_list")
    assert reading.read((), whole_group=True).all_topics == ()
    create_topic(server, TOPIC, 1)
    assert paths.BROKER_TOPICS in reading.fired
    assert reading.read((), whole_group=True).partitions_by_topic == {TOPIC: (0,)}


def test_owners_come_when_they_are_asked_for(server: FakeZooKeeper, reading: Reading, other: ProcedureSession) -> None:
    create_topic(server, TOPIC, 3)
    assert reading.read(with_owners=True).owners == {}
    other.claim(TopicPartition(TOPIC, 1), thread="g1_b-0")
    server.ensure(f"{paths.owners_of_topic(GROUP, TOPIC)}/not-a-number", b"x")
    assert reading.read(with_owners=True).owners == {TopicPartition(TOPIC, 1): "g1_b-0"}


# --- thrift -----------------------------------------------------------------------------------------------------


def test_what_cannot_have_changed_is_read_once(server: FakeZooKeeper, reading: Reading) -> None:
    for number in range(16):
        join(server, f"g1_{number}")
    create_topic(server, TOPIC, 512)
    first = reading.read()
    assert len(reading.requests) == 1 + 16 + 1 + 1
    assert reading.read() == first
    assert len(reading.requests) == 1
    join(server, "g1_new")
    assert len(reading.read().members) == 17
    assert len(reading.requests) == 2


@pytest.mark.parametrize("what", ["registration", "topic", "control", "topic that comes", "control that comes"])
def test_what_a_watch_fired_for_is_read_again(what: str, server: FakeZooKeeper, reading: Reading) -> None:
    join(server, "g1_a")
    if what != "topic that comes":
        create_topic(server, TOPIC, 1)
    if what != "control that comes":
        move(server, "zookeeper")
    reading.read()
    match what:
        case "registration":
            join(server, "g1_a", {TOPIC: 7})
        case "topic" | "topic that comes":
            create_topic(server, TOPIC, 5)
        case _:
            move(server, "kafka")
    view = reading.read()
    if what == "registration":
        assert view.members["g1_a"].topics == {TOPIC: 7}
    elif "topic" in what:
        assert view.partitions_by_topic == {TOPIC: (0, 1, 2, 3, 4)}
    else:
        assert view.control is not None
        assert view.control.authority == "kafka"


def test_everything_is_read_again_after_the_connection_broke(server: FakeZooKeeper, reading: Reading) -> None:
    join(server, "g1_a")
    create_topic(server, TOPIC, 1)
    reading.read()
    reading.reader.clear()
    reading.read()
    assert len(reading.requests) == 4


def test_a_member_that_goes_is_forgotten_and_read_anew_when_it_comes_back(
    server: FakeZooKeeper, reading: Reading
) -> None:
    join(server, "g1_a")
    join(server, "g1_b")
    reading.read()
    server.remove(paths.registration(GROUP, "g1_b"))
    assert list(reading.read().members) == ["g1_a"]
    join(server, "g1_b", {TOPIC: 9})
    assert reading.read().members["g1_b"].topics == {TOPIC: 9}


# --- changes in the middle --------------------------------------------------------------------------------------

CHANGES: dict[str, Callable[[FakeZooKeeper], object]] = {
    "a registration": lambda server: join(server, "g1_a", {TOPIC: 7}),
    "a topic": lambda server: create_topic(server, TOPIC, 5),
    "a topic that comes": lambda server: create_topic(server, "absent", 5),
    "the control znode": lambda server: move(server, "kafka"),
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
@pytest.mark.parametrize("step", range(14))
def test_a_change_in_the_middle_of_a_reading_is_seen_by_the_next_one(
    step: int, change: Callable[[FakeZooKeeper], object]
) -> None:
    """The watch may fire before the answers of its round come: they belong together and are delivered together."""
    server = FakeZooKeeper(delivery="pump")
    for path in (paths.ids(GROUP), paths.control(GROUP)):
        server.ensure(path)
    join(server, "g1_a")
    join(server, "g1_b")
    create_topic(server, TOPIC, 1)
    create_topic(server, "z-last", 1)
    move(server, "zookeeper")
    party = Pumped(server)
    reading = Reading(party)
    topics = [TOPIC, "absent", "z-last"]
    before = Reading(Pumped(server)).read(topics)
    party.act_at = (step, lambda: change(server))
    first = reading.read(topics)
    if party.act_at is not None:
        change(server)
        server.pump()
        party.act_at = None
    after = Reading(Pumped(server)).read(topics)
    assert first in (before, after), "nothing that is there is missing in between"
    assert reading.read(topics) == after


class Pumped(ProcedureSession):
    """Takes one step of the server at a time, and acts once when so many were taken."""

    def __init__(self, server: FakeZooKeeper) -> None:
        super().__init__(server)
        server.pump()
        self.act_at: tuple[int, Callable[[], object]] | None = None
        self._steps = 0

    def ask(self, requests: list[Request], session_id: int | None) -> list[object]:  # type: ignore[override]
        box: list[list[object]] = []
        self.store.submit(session_id, requests, lambda results: box.append(list(results)))
        while not box:
            if self.act_at is not None and self._steps == self.act_at[0]:
                act, self.act_at = self.act_at[1], None
                act()
            assert self.server.pump(1)
            self._steps += 1
        return box[0]


def test_a_topic_that_comes_between_two_looks_is_not_missed(server: FakeZooKeeper, reading: Reading) -> None:
    """The first look says that it is missing; the second, which is to leave a watch, that it is there."""

    def between(_: int) -> None:
        if reading.requests[-1] == Exists(paths.topic(TOPIC), watch=True):
            create_topic(server, TOPIC, 2)

    assert reading.read(between=between).partitions_by_topic == {TOPIC: (0, 1)}
    create_topic(server, TOPIC, 3)
    assert reading.read().partitions_by_topic == {TOPIC: (0, 1, 2)}


def test_a_topic_that_comes_and_goes_again_and_again_is_given_up_on(server: FakeZooKeeper, reading: Reading) -> None:
    def between(_: int) -> None:
        match reading.requests[-1]:
            case Exists(path) if path == paths.topic(TOPIC):
                create_topic(server, TOPIC, 2)
            case Get(path) if path == paths.topic(TOPIC):
                server.remove(paths.topic(TOPIC))

    assert reading.try_to_read(between=between) == f"{paths.topic(TOPIC)} is created and deleted repeatedly"


def test_a_member_that_goes_while_it_is_read_is_no_member(server: FakeZooKeeper, reading: Reading) -> None:
    join(server, "g1_a")
    join(server, "g1_b")

    def between(number: int) -> None:
        if number == 2:
            server.remove(paths.registration(GROUP, "g1_b"))

    assert list(reading.read(between=between).members) == ["g1_a"]


def test_a_reading_in_which_the_connection_broke_gives_nothing(server: FakeZooKeeper, reading: Reading) -> None:
    """Half of what it had read is forgotten: members would be missing in its view."""
    join(server, "g1_a")

    def between(number: int) -> None:
        if number == 3:
            reading.reader.clear()

    assert reading.try_to_read(between=between) == "the connection broke while the group was read"
    assert list(reading.read().members) == ["g1_a"]


@pytest.mark.parametrize("kind", [ConnectionLost, NoAuth])
@pytest.mark.parametrize("number", range(6))
def test_an_error_at_any_request_is_a_reason_and_the_next_reading_is_whole(
    number: int, kind: type[ConnectionLost | NoAuth], server: FakeZooKeeper, reading: Reading
) -> None:
    join(server, "g1_a")
    create_topic(server, TOPIC, 2)
    move(server, "zookeeper")
    seen: list[Request] = []

    def is_the_one(request: Request) -> bool:
        seen.append(request)
        return len(seen) == number + 1 and not isinstance(request, GetMany)

    server.fail_next(is_the_one, kind)
    first = reading.try_to_read([TOPIC, "absent"])
    assert isinstance(first, str)
    assert kind.__name__ in first
    view = reading.read([TOPIC, "absent"])
    assert view == Reading(ProcedureSession(server)).read([TOPIC, "absent"])


def test_a_member_without_a_node_any_more_does_not_fail_the_reading(server: FakeZooKeeper, reading: Reading) -> None:
    join(server, "g1_a")
    server.fail_next(lambda request: request == Get(paths.registration(GROUP, "g1_a"), watch=True), NoNode)
    assert reading.read().members == {}


# --- the control znode ------------------------------------------------------------------------------------------


def test_the_control_znode_comes_with_its_version(server: FakeZooKeeper, reading: Reading) -> None:
    move(server, "zookeeper")
    view = reading.read()
    assert (view.control, view.control_version) == (ControlZnode("m1", 1, "prepared", "zookeeper", "cut-over"), 0)
    move(server, "kafka")
    view = reading.read()
    assert (view.control, view.control_version) == (ControlZnode("m1", 1, "prepared", "kafka", "cut-over"), 1)


def test_a_control_znode_that_nobody_can_read_stops_the_reading(server: FakeZooKeeper, reading: Reading) -> None:
    """A program that cannot tell where the authority is must not write."""
    server.ensure(paths.control(GROUP), b"nonsense")
    view = reading.try_to_read()
    assert isinstance(view, str)
    assert "control znode" in view


def test_a_control_znode_that_changes_between_two_looks_leaves_a_watch(server: FakeZooKeeper, reading: Reading) -> None:
    move(server, "zookeeper")

    def between(_: int) -> None:
        if isinstance(reading.requests[-1], Get) and reading.requests[-1].path == paths.control(GROUP):
            move(server, "zookeeper")

    view = reading.read(between=between)
    assert view.control is not None
    assert view.control_version == 1
    reading.read()
    move(server, "kafka")
    control = reading.read().control
    assert control is not None
    assert control.authority == "kafka"


# --- filters ------------------------------------------------------------------------------------------------------

OURS = TopicSubscription("white_list", {"t.*": 1})


def test_under_range_a_filter_reads_the_list_and_the_topics_that_it_takes(
    server: FakeZooKeeper, reading: Reading
) -> None:
    join(server, "g1_a", {"t.*": 1}, "white_list")
    join(server, "g1_b", {"x.*": 1}, "white_list")
    for topic in ("t1", "t2", "x1"):
        create_topic(server, topic, 2)
    view = reading.read(OURS)
    assert view.partitions_by_topic == {"t1": (0, 1), "t2": (0, 1)}
    assert view.all_topics is not None
    assert sorted(view.all_topics) == ["t1", "t2", "x1"]
    assert paths.topic("x1") not in [request.path for request in reading.requests if isinstance(request, Get)]


def test_under_roundrobin_every_topic_that_some_filter_takes_is_read(server: FakeZooKeeper, reading: Reading) -> None:
    join(server, "g1_a", {"t.*": 1}, "white_list")
    join(server, "g1_b", {"[xy].*": 1}, "white_list")
    join(server, "g1_c", {"(a)\\1": 1}, "white_list")
    for topic in ("t1", "x1", "z1"):
        create_topic(server, topic, 1)
    assert set(reading.read(OURS, whole_group=True).partitions_by_topic) == {"t1", "x1"}


def test_under_range_the_filter_of_another_member_needs_no_list(server: FakeZooKeeper, reading: Reading) -> None:
    join(server, "g1_a")
    join(server, "g1_b", {".*": 1}, "white_list")
    create_topic(server, TOPIC, 2)
    assert reading.read().all_topics is None
    assert Children(paths.BROKER_TOPICS, watch=True) not in reading.requests


def test_what_no_topic_can_be_called_is_not_shown_to_any_filter(server: FakeZooKeeper, reading: Reading) -> None:
    create_topic(server, "t1", 1)
    for name in ("t" * 5_000, "t\u00e9", "t t"):
        server.ensure(f"{paths.BROKER_TOPICS}/{name}", b"{}")
    assert reading.read(OURS).all_topics == ("t1",)


def test_a_list_that_changes_is_read_again(server: FakeZooKeeper, reading: Reading) -> None:
    assert reading.read(OURS).partitions_by_topic == {}
    create_topic(server, "t1", 1)
    assert set(reading.read(OURS).partitions_by_topic) == {"t1"}
    server.remove(paths.topic("t1"))
    assert set(reading.read(OURS).partitions_by_topic) == set()


def test_a_view_tells_when_topics_were_created(server: FakeZooKeeper, reading: Reading) -> None:
    create_topic(server, "t1", 1)
    first = reading.read(OURS).topic_czxids["t1"]
    create_topic(server, "t1", 2)
    assert reading.read(OURS).topic_czxids["t1"] == first, "growth is no birth"
    server.remove(paths.topic("t1"))
    create_topic(server, "t1", 1)
    assert reading.read(OURS).topic_czxids["t1"] > first


# --- topics from elsewhere ----------------------------------------------------------------------------------------


class Slow:
    """A source of topics that waits for somebody else."""

    topic_czxids: ClassVar[dict[str, int]] = {}

    def read(self, topics: Iterable[str]) -> Procedure[dict[str, tuple[int, ...] | None]]:
        yield AwaitExternal(lambda done: None)
        return dict.fromkeys(topics, (0,))

    def read_all(self) -> Procedure[tuple[str, ...]]:
        yield AwaitExternal(lambda done: None)
        return ()

    def invalidate(self, path: str) -> None: ...

    def clear(self) -> None: ...


def test_a_reading_that_ends_in_the_middle_of_the_next_one_disturbs_nothing() -> None:
    """It waited for Kafka when its session ended; what fires now is kept for the end of the reading under way."""
    reader = GroupReader(GROUP, Slow())
    own = TopicSubscription("static", {TOPIC: 1})
    missing = NoNode(paths.ids(GROUP))
    late = reader.read(own, whole_group=False, with_owners=False)
    next(late)
    assert isinstance(late.send([missing]), AwaitExternal)
    reader.clear()
    now = reader.read(own, whole_group=False, with_owners=False)
    next(now)
    with pytest.raises(StopIteration) as ended:
        late.send([])
        late.send([SessionEnded(paths.control(GROUP))])
    assert isinstance(ended.value.value, str)
    assert isinstance(now.send([missing]), AwaitExternal)
    look_at_control = now.send([])
    reader.invalidate(paths.control(GROUP))
    with pytest.raises(StopIteration) as ended:
        now.send([None])
    assert isinstance(ended.value.value, GroupView)
    assert ended.value.value.partitions_by_topic == {TOPIC: (0,)}
    again = reader.read(own, whole_group=False, with_owners=False)
    next(again)
    again.send([missing])
    assert again.send([]) == look_at_control, "what fired in between is read again"
