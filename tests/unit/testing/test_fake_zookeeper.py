"""What the fake ZooKeeper lets a test do; that it is like the real one is for tests/conformance to show."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from zkconsumer.errors import ChrootMissing, InvalidNameError, ZkTimeoutException
from zkconsumer.member.events import SessionConnected, SessionLost, SessionSuspended
from zkconsumer.testing.fake_zookeeper import FakeZkStore, FakeZooKeeper
from zkconsumer.zk.requests import (
    Acl,
    BadVersion,
    CheckOp,
    Children,
    ConnectionLost,
    Create,
    CreateOp,
    Exists,
    Get,
    GetMany,
    Multi,
    MultiFailed,
    NoAuth,
    NodeExists,
    NoNode,
    Request,
    Result,
    SessionEnded,
    SetData,
    Stat,
    StoreEvent,
    WatchFired,
    ZnodeData,
)
from zkconsumer.zk.store import ZkStore, submit_and_wait


class Member:
    """A started store with everything that it was told, in order."""

    def __init__(self, server: FakeZooKeeper, chroot: str = "") -> None:
        self.told: list[Any] = []
        self.store = FakeZkStore(server, chroot)
        self.store.listen(self.told.append)
        self.store.start(1_000)
        server.pump()
        self.told.clear()

    def ask(self, *requests: Request, session_id: int | None = None) -> list[list[Result]]:
        """Submit; gives the list that the results will be put in."""
        box: list[list[Result]] = []

        def done(results: list[Result]) -> None:
            box.append(results)
            self.told.append(results)

        self.store.submit(session_id, requests, done)
        return box


def is_a(kind: type[Request]) -> Any:
    return lambda request: isinstance(request, kind)


def test_the_fake_is_a_store() -> None:
    store: ZkStore = FakeZkStore(FakeZooKeeper())
    assert store.session_id is None
    assert store.negotiated_timeout_ms == 0


def test_start_gives_a_new_session_with_the_negotiated_timeout() -> None:
    server = FakeZooKeeper(session_timeout_min_ms=4_000)
    told: list[StoreEvent] = []
    store = FakeZkStore(server, session_timeout_ms=1_000)
    store.listen(told.append)
    store.start(1_000)
    assert store.session_id is not None
    assert told == [SessionConnected(store.session_id, 4_000, True)]
    assert store.negotiated_timeout_ms == 4_000


def test_start_without_a_server_times_out() -> None:
    server = FakeZooKeeper()
    server.is_up = False
    with pytest.raises(ZkTimeoutException):
        FakeZkStore(server).start(1_000)


def test_start_without_the_chroot_says_so() -> None:
    server = FakeZooKeeper()
    with pytest.raises(ChrootMissing, match="/kafka"):
        FakeZkStore(server, "/kafka").start(1_000)
    server.ensure("/kafka")
    FakeZkStore(server, "/kafka").start(1_000)


def test_paths_are_below_the_chroot_in_requests_results_and_events() -> None:
    server = FakeZooKeeper()
    server.ensure("/a/b")
    member = Member(server, "/a/b")
    [results] = member.ask(Create("/c"), Get("/d"), Children("/", watch=True), Create("/e"))
    assert results[0] == "/c"
    assert results[1] == NoNode("/d")
    assert server.data("/a/b/c") == b""
    assert member.told[-2:] == [WatchFired("/", "children"), results]


def test_a_path_that_cannot_be_one_is_refused_before_anything_is_sent() -> None:
    member = Member(FakeZooKeeper())
    for path in ("", "a", "/a/", "//a", "/a/../b", "/.", "/a\x00", "/\ud800"):
        with pytest.raises(InvalidNameError):
            member.store.submit(None, [Create("/x"), Get(path)], member.told.append)
    assert member.store.packets_sent == 0


def test_a_direct_fake_answers_before_submit_returns() -> None:
    assert Member(FakeZooKeeper()).ask(Exists("/x")) == [[None]]


def test_a_batch_of_nothing_is_answered_too() -> None:
    assert Member(FakeZooKeeper()).ask() == [[]]


def test_what_a_callback_submits_is_done_after_it_returns() -> None:
    member = Member(FakeZooKeeper())
    order: list[str] = []

    def first(_: list[Result]) -> None:
        member.store.submit(None, [Exists("/x")], lambda _: order.append("second"))
        order.append("first")

    member.store.submit(None, [Exists("/x")], first)
    assert order == ["first", "second"]


def test_a_pumped_fake_does_nothing_by_itself() -> None:
    server = FakeZooKeeper(delivery="pump")
    member = Member(server)
    box = member.ask(Create("/x"))
    assert server.data("/x") is None
    assert server.pump(1) == 1
    assert server.data("/x") == b""
    assert box == []
    assert server.pump() == 1
    assert box == [["/x"]]


def test_a_threaded_fake_delivers_on_its_own_thread() -> None:
    server = FakeZooKeeper(delivery="thread")
    store = FakeZkStore(server)
    store.start(1_000)
    threads: list[str] = []
    settled = threading.Event()

    def done(_: list[Result]) -> None:
        threads.append(threading.current_thread().name)
        settled.set()

    store.submit(None, [Exists("/x")], done)
    assert settled.wait(10)
    assert threads == ["fake-zookeeper"]
    assert submit_and_wait(store, [Exists("/x")], 10_000) == [None]
    assert store.close(1_000)
    server.stop()


def test_a_callback_that_raises_does_not_stop_a_threaded_fake(caplog: pytest.LogCaptureFixture) -> None:
    server = FakeZooKeeper(delivery="thread")
    store = FakeZkStore(server)
    store.start(1_000)

    def bad(_: list[Result]) -> None:
        raise LookupError("of the test")

    store.submit(None, [Exists("/x")], bad)
    assert submit_and_wait(store, [Exists("/x")], 10_000) == [None]
    assert "of the test" in caplog.text
    server.stop()


def test_a_disconnect_drops_watches_and_keeps_the_session_and_its_ephemerals() -> None:
    server = FakeZooKeeper()
    member, other = Member(server), Member(server)
    member.ask(Create("/mine", ephemeral=True), Exists("/x", watch=True))
    session_id = member.store.session_id
    member.told.clear()
    server.disconnect(member.store)
    other.ask(Create("/x"))
    server.reconnect(member.store)
    assert member.told == [SessionSuspended(), SessionConnected(session_id or 0, 6_000, False)]
    assert server.data("/mine") == b""


def test_what_is_submitted_while_suspended_waits_for_the_connection() -> None:
    server = FakeZooKeeper()
    member = Member(server)
    server.disconnect(member.store)
    box = member.ask(Create("/x"), session_id=member.store.session_id)
    assert box == []
    server.reconnect(member.store)
    assert box == [["/x"]]


def test_what_waits_for_a_session_that_ended_is_never_executed() -> None:
    server = FakeZooKeeper()
    member = Member(server)
    old = member.store.session_id
    server.disconnect(member.store)
    box = member.ask(Create("/x"), session_id=old)
    anyone = member.ask(Create("/y"))
    server.expire(member.store)
    server.reconnect(member.store)
    assert box == [[SessionEnded("/x")]]
    assert anyone == [["/y"]]
    assert server.data("/x") is None
    assert member.told[1:3] == [SessionLost(old or 0), [SessionEnded("/x")]]


def test_a_request_for_another_session_is_not_sent() -> None:
    server = FakeZooKeeper()
    member = Member(server)
    old = member.store.session_id
    server.expire(member.store)
    sent = member.store.packets_sent
    [results] = member.ask(Create("/x"), GetMany(("/a", "/b")), session_id=old)
    assert results == [SessionEnded("/x"), [SessionEnded("/a"), SessionEnded("/b")]]
    assert member.store.packets_sent == sent


def test_an_expired_session_takes_its_ephemerals_and_the_others_see_them_go() -> None:
    server = FakeZooKeeper()
    member, other = Member(server), Member(server)
    member.ask(Create("/mine", ephemeral=True), Create("/all"))
    other.ask(Exists("/mine", watch=True))
    other.told.clear()
    member.told.clear()
    old = member.store.session_id
    server.expire(member.store)
    new = member.store.session_id
    assert other.told == [WatchFired("/mine", "deleted")]
    assert member.told == [SessionSuspended(), SessionLost(old or 0), SessionConnected(new or 0, 6_000, True)]
    assert old != new
    assert server.data("/all") == b""


def test_a_session_that_expires_behind_a_broken_connection_is_learnt_of_at_the_reconnect() -> None:
    server = FakeZooKeeper()
    member = Member(server)
    server.disconnect(member.store)
    server.expire(member.store)
    assert member.told == [SessionSuspended()]
    server.reconnect(member.store)
    assert [type(each) for each in member.told] == [SessionSuspended, SessionLost, SessionConnected]


def test_held_answers_are_executed_and_not_delivered() -> None:
    server = FakeZooKeeper()
    member = Member(server)
    server.hold("answers", member.store)
    box = member.ask(Create("/x"))
    assert server.data("/x") == b""
    assert box == []
    server.release("answers", member.store)
    assert box == [["/x"]]


def test_a_session_that_expires_between_a_claim_and_its_answer_leaves_the_outcome_unknown() -> None:
    server = FakeZooKeeper()
    member = Member(server)
    server.hold("answers", member.store)
    box = member.ask(Create("/claim", ephemeral=True))
    server.expire(member.store)
    assert box == [[ConnectionLost("/claim")]]
    assert server.data("/claim") is None


def test_held_requests_are_not_executed() -> None:
    server = FakeZooKeeper()
    member, other = Member(server), Member(server)
    server.hold("requests", member.store)
    box = member.ask(Create("/x"))
    assert other.ask(Create("/x")) == [["/x"]]
    server.release("requests", member.store)
    assert box == [[NodeExists("/x")]]


def test_held_watch_events_come_late_or_never() -> None:
    server = FakeZooKeeper()
    member = Member(server)
    for drop in (False, True):
        member.ask(Exists("/x", watch=True))
        member.told.clear()
        server.hold("events")
        server.ensure("/x", b"%d" % drop)
        member.ask(Exists("/y"))
        assert member.told == [[None]]
        server.release("events", drop=drop)
        assert len(member.told) == (1 if drop else 2)


@pytest.mark.parametrize("is_done", [True, False])
def test_a_lost_request_answers_unknown_whether_it_was_done_or_not(is_done: bool) -> None:
    server = FakeZooKeeper()
    member = Member(server)
    server.lose_connection_on_next(is_a(Create), is_done=is_done)
    member.ask(Create("/x"), Exists("/x"), Create("/y"))
    assert member.told == [
        [ConnectionLost("/x"), ConnectionLost("/x"), ConnectionLost("/y")],
        SessionSuspended(),
        SessionConnected(member.store.session_id or 0, 6_000, False),
    ]
    assert (server.data("/x") is not None) == is_done
    assert server.data("/y") is None


def test_a_lost_request_can_leave_the_store_suspended() -> None:
    server = FakeZooKeeper()
    member = Member(server)
    server.lose_connection_on_next(is_a(Exists), is_done=False, reconnects=False)
    member.ask(Exists("/x"))
    assert member.told == [[ConnectionLost("/x")], SessionSuspended()]


def test_a_refused_request_is_answered_with_the_error_and_not_done() -> None:
    server = FakeZooKeeper()
    member = Member(server)
    server.fail_next(is_a(SetData), NoAuth, store=member.store)
    server.ensure("/x")
    assert member.ask(SetData("/x", b"1"), SetData("/x", b"2"))[0][0] == NoAuth("/x")
    assert server.data("/x") == b"2"


def test_an_access_control_list_refuses_what_zookeeper_checks() -> None:
    server = FakeZooKeeper()
    server.ensure("/x", b"1")
    server.set_acl("/x", (Acl(1, "world", "anyone"),))
    [results] = Member(server).ask(Get("/x"), SetData("/x", b"2"), Create("/x/y"))
    assert isinstance(results[0], ZnodeData)
    assert results[1:] == [NoAuth("/x"), NoAuth("/x/y")]


def test_a_multi_that_fails_leaves_every_version_and_counter_alone() -> None:
    server = FakeZooKeeper()
    server.ensure("/p/x", b"1")
    member = Member(server)
    before = member.ask(Get("/p/x"), Get("/p"))[0]
    failed = member.ask(
        Multi((CreateOp("/p/y"), CreateOp("/p/y/z"), CheckOp("/p/x", 7))),
    )
    assert failed == [[MultiFailed("/p/x", 2, BadVersion("/p/x"))]]
    assert member.ask(Get("/p/x"), Get("/p"))[0] == before


def test_get_many_counts_one_packet_where_the_server_can_and_one_a_path_where_not() -> None:
    for has_multi_read, packets in ((True, 1), (False, 3)):
        member = Member(FakeZooKeeper(has_multi_read=has_multi_read))
        member.ask(GetMany(("/a", "/b", "/c")))
        assert member.store.packets_sent == packets


def test_a_packet_that_no_server_takes_ends_the_connection() -> None:
    server = FakeZooKeeper()
    member = Member(server)
    assert member.ask(Create("/x", b"x" * 1_100_000)) == [[ConnectionLost("/x")]]
    assert server.data("/x") is None


def test_close_ends_the_session_and_settles_what_is_under_way() -> None:
    server = FakeZooKeeper()
    member, other = Member(server), Member(server)
    member.ask(Create("/mine", ephemeral=True))
    other.ask(Exists("/mine", watch=True))
    server.hold("requests", member.store)
    waiting = member.ask(Create("/x"))
    server.hold("answers", member.store)
    assert member.store.close(1_000)
    assert waiting == [[SessionEnded("/x")]]
    assert server.data("/mine") is None
    assert other.told[-1] == WatchFired("/mine", "deleted")
    assert member.store.session_id is None
    assert member.ask(Exists("/x")) == [[SessionEnded("/x")]]
    assert member.store.close(1_000)
    assert not any(isinstance(each, SessionLost) for each in member.told)


def test_close_while_suspended_leaves_the_ephemerals_to_the_session_timeout() -> None:
    server = FakeZooKeeper()
    member = Member(server)
    member.ask(Create("/mine", ephemeral=True))
    session = member.store.session_id
    server.disconnect(member.store)
    assert not member.store.close(1_000)
    assert server.data("/mine") == b""
    assert session is not None
    server.end_session(session)
    assert server.data("/mine") is None


def test_children_come_in_no_useful_order() -> None:
    server = FakeZooKeeper()
    for number in range(20):
        server.ensure(f"/p/{number:02}")
    children = Member(server).ask(Children("/p"))[0][0]
    assert not isinstance(children, Stat)
    assert children.names != sorted(children.names)  # type: ignore[union-attr]
    assert sorted(children.names) == [f"{number:02}" for number in range(20)]  # type: ignore[union-attr]


def test_closed_stores_and_ended_sessions_are_forgotten() -> None:
    server = FakeZooKeeper()
    for _ in range(5):
        member = Member(server)
        server.expire(member.store)
        member.store.close(1_000)
        assert member.ask(Exists("/x")) == [[SessionEnded("/x")]]
    assert server.stores == []
    assert server._sessions == {}


def test_closing_a_store_that_never_started_leaves_nothing() -> None:
    assert FakeZkStore(FakeZooKeeper()).close(1_000)
