"""``KazooStore`` in situations that need a real server: paused, killed, slow to restart, beside a dead one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.sandbox_fixtures import require_zookeeper
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.member.events import SessionConnected, SessionLost, SessionSuspended
from zkconsumer.testing.sandbox import Sandbox, ZooKeeperServer, wait_until
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import (
    ConnectionLost,
    Create,
    Exists,
    GetMany,
    Request,
    SessionEnded,
    Stat,
)
from zkconsumer.zk.store import submit_and_wait

pytestmark = pytest.mark.real

WAIT_MS = 30_000
SESSION_MS = 2_000


class Member:
    """A started store, and the events that it received."""

    def __init__(self, connect: str, session_timeout_ms: int = SESSION_MS) -> None:
        self.told: list[Any] = []
        self.store = KazooStore(connect, session_timeout_ms)
        self.store.listen(self.told.append)
        self.store.start(WAIT_MS)
        self.until(SessionConnected)
        self.told.clear()

    def until(self, kind: type) -> Any:
        def found() -> Any:
            return next((each for each in self.told if isinstance(each, kind)), None)

        return wait_until(found, f"{kind.__name__} in {self.told}", WAIT_MS)

    def ask(self, *requests: Request) -> list[Any]:
        return list(submit_and_wait(self.store, requests, WAIT_MS))


@pytest.fixture(params=["3.8", "3.4.6"])
def server(request: pytest.FixtureRequest) -> Iterator[ZooKeeperServer]:
    require_zookeeper(request.param)
    with Sandbox() as made:
        yield made.start_zookeeper(request.param)


@pytest.fixture
def member(server: ZooKeeperServer) -> Iterator[Member]:
    made = Member(server.connect_string())
    yield made
    made.store.close(WAIT_MS)


def test_many_nodes_are_read_in_one_packet_where_the_server_is_new_enough(
    server: ZooKeeperServer, member: Member
) -> None:
    before = member.store.packets_sent
    member.ask(GetMany(("/a", "/b", "/zookeeper")))
    assert member.store.server_version is not None
    assert member.store.packets_sent - before == (3 if server.version == "3.4.6" else 1)


def test_a_server_that_pauses_for_less_than_the_session_is_waited_for(server: ZooKeeperServer) -> None:
    member = Member(server.connect_string(), 10_000)
    server.pause()
    member.store.submit(None, [Exists("/")], member.told.append)
    resume_ms = SYSTEM_CLOCK.now_ms() + 1_500
    wait_until(lambda: SYSTEM_CLOCK.now_ms() >= resume_ms, "the pause", WAIT_MS)
    server.resume()
    [stat] = member.until(list)
    assert isinstance(stat, Stat)
    assert len(member.told) == 1
    member.store.close(WAIT_MS)


def test_a_server_that_pauses_is_left_while_it_is_asked_and_joined_again(
    server: ZooKeeperServer, member: Member
) -> None:
    session_id = member.store.session_id
    server.pause()
    began_ms = SYSTEM_CLOCK.now_ms()

    def ask_and_look() -> bool:
        member.store.submit(session_id, [Exists("/")], member.told.append)
        return SessionSuspended() in member.told

    wait_until(ask_and_look, "leaving the silent server", WAIT_MS, poll_ms=100)
    assert SYSTEM_CLOCK.now_ms() - began_ms < SESSION_MS
    server.resume()
    connected = member.until(SessionConnected)
    assert connected.is_new == (SessionLost(session_id or 0) in member.told)
    lists = [each for each in member.told if isinstance(each, list)]
    assert all(isinstance(each, Stat | ConnectionLost | SessionEnded) for [each] in lists)
    assert [ConnectionLost("/")] in lists


def test_a_killed_and_restarted_server_still_has_the_session(server: ZooKeeperServer, member: Member) -> None:
    member.ask(Create("/e", ephemeral=True))
    session_id = member.store.session_id
    server.kill()
    assert member.until(SessionSuspended)
    member.store.submit(session_id, [Exists("/e")], member.told.append)
    server.start()
    assert member.until(SessionConnected) == SessionConnected(session_id or 0, SESSION_MS, False)
    [stat] = member.until(list)
    assert stat.ephemeral_owner == session_id


def test_a_server_that_stays_away_is_closed_on_in_time(server: ZooKeeperServer, member: Member) -> None:
    server.kill()
    member.until(SessionSuspended)
    member.store.submit(None, [Exists("/")], member.told.append)
    began_ms = SYSTEM_CLOCK.now_ms()
    assert not member.store.close(2_000)
    assert SYSTEM_CLOCK.now_ms() - began_ms < 1_500
    assert member.told[-1] == [SessionEnded("/")]


def test_a_broken_connection_is_replaced_quickly(member: Member) -> None:
    for _ in range(5):
        member.told.clear()
        began_ms = SYSTEM_CLOCK.now_ms()
        member.store.bounce()
        member.until(SessionConnected)
        assert SYSTEM_CLOCK.now_ms() - began_ms < 1_000


def test_an_expired_session_is_replaced_quickly(member: Member) -> None:
    began_ms = SYSTEM_CLOCK.now_ms()
    member.store.expire(WAIT_MS)
    assert member.until(SessionConnected).is_new
    assert SYSTEM_CLOCK.now_ms() - began_ms < 2_000


def test_a_dead_server_in_the_list_is_passed_over(server: ZooKeeperServer) -> None:
    member = Member(f"127.0.0.1:1,{server.address},127.0.0.1:2")
    for _ in range(3):
        member.told.clear()
        member.store.bounce()
        member.until(SessionConnected)
    assert isinstance(member.ask(Exists("/"))[0], Stat)
    assert member.store.close(WAIT_MS)


def test_a_session_lives_on_without_requests(member: Member) -> None:
    end_ms = SYSTEM_CLOCK.now_ms() + 2 * SESSION_MS
    wait_until(lambda: SYSTEM_CLOCK.now_ms() >= end_ms, "two sessions' time", WAIT_MS)
    assert member.told == []
