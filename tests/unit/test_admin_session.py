"""A tool's session: in which session a write is carried out, and how long other sessions may last."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import pytest

from tests.fix_admin import doors
from tests.fix_world import MakeWorld
from zkconsumer.admin.session import READ_TRIES_MAX, ROUND_READS_MAX, AdminSession, Doors
from zkconsumer.base.garbage import NEW_OBJECTS, seldom_searched
from zkconsumer.errors import MayNotRead, ZkTimeoutException
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.world import ADDRESS, FakeWorld
from zkconsumer.zk.requests import PERM_ALL, Acl, Create, Exists, GetAcl, NoNode, Request, Result, SessionGone
from zkconsumer.zk.store import ZkStore


def test_what_is_bound_to_a_session_is_not_done_in_the_next(world: FakeWorld, admin: AdminSession) -> None:
    """Nor is a read asked again there."""
    first = admin.session_id
    assert admin.ask([Create("/a"), Exists("/a")], first)[0] == "/a"
    world.zookeeper.expire(world.stores[0])
    assert admin.ask([Create("/b"), Exists("/b")], first) == [SessionGone("/b"), SessionGone("/b")]
    assert admin.ask([Create("/c"), Create("/d")]) == ["/c", "/d"]
    assert admin.session_id not in (first, None)
    assert world.zookeeper.data("/b") is None


def test_a_list_is_asked_again_when_the_connection_broke(world: FakeWorld, admin: AdminSession) -> None:
    world.zookeeper.lose_next(lambda request: isinstance(request, GetAcl), is_done=False)
    assert admin.ask([GetAcl("/none")]) == [NoNode("/none")]


def test_the_longest_session_is_what_the_server_grants(world: FakeWorld, admin: AdminSession) -> None:
    before = len(world.zookeeper.stores)
    assert admin.largest_session_timeout_ms() == 40_000
    assert len(world.zookeeper.stores) == before, "the session that asked has ended"


@pytest.mark.parametrize("silent", [READ_TRIES_MAX - 1, READ_TRIES_MAX])
def test_a_silent_server_is_passed_over_and_silence_ends(make_world: MakeWorld, silent: int) -> None:
    world = make_world()
    asked: list[FakeZkStore] = []

    class Silent(FakeZkStore):
        def start(self, timeout_ms: int) -> None:
            if len(asked) <= silent + 1:
                raise ZkTimeoutException("nobody there")
            super().start(timeout_ms)

    def store(connect: str, timeout_ms: int) -> ZkStore:
        kind = Silent if asked else FakeZkStore
        asked.append(kind(world.zookeeper, "", timeout_ms))
        return asked[-1]

    with AdminSession.open(ADDRESS, None, Doors(store=store, connect=doors(world).connect)) as session:
        if silent < READ_TRIES_MAX:
            assert session.largest_session_timeout_ms() == 40_000
        else:
            with pytest.raises(ZkTimeoutException):
                session.largest_session_timeout_ms()


def test_many_nodes_are_read_in_one_round_of_packets(world: FakeWorld, admin: AdminSession) -> None:
    """Ten packets of a thousand are on their way at once, so a server reads while what it read is taken apart."""
    [store] = world.stores
    rounds: list[int] = []
    submit = store.submit

    def counted(session_id: int | None, requests: Sequence[Request], done: Callable[[list[Result]], None]) -> None:
        rounds.append(len(requests))
        submit(session_id, requests, done)

    store.submit = counted  # type: ignore[method-assign]
    world.zookeeper.ensure("/a/1")
    assert list(admin.get_many(f"/a/{number}" for number in range(ROUND_READS_MAX + 1))) == ["/a/1"]
    assert rounds == [1, 1]


def test_every_node_that_may_not_be_read_is_named(world: FakeWorld, admin: AdminSession) -> None:
    for path in ("/a/1", "/a/2", "/a/3"):
        world.zookeeper.ensure(path)
    for path in ("/a/1", "/a/3"):
        world.zookeeper.set_acl(path, (Acl(PERM_ALL, "digest", "theirs:x"),))
    wanted = ["/a/1", "/a/2", "/a/3", "/a/4"]
    for ask in (admin.get_many, admin.children_of_many):
        with pytest.raises(MayNotRead, match=r"2 nodes \(NoAuth\):\n  /a/1\n  /a/3\nLog in as whom") as it:
            ask(wanted)
        assert it.value.exit_code == 4
    with pytest.raises(MayNotRead, match=r"1 node \(NoAuth\):\n  /a/1\n"):
        admin.get("/a/1")


def test_garbage_is_searched_as_before_when_a_large_command_has_ended() -> None:
    before = gc.get_threshold()
    with seldom_searched():
        assert gc.get_threshold()[0] == NEW_OBJECTS
    assert gc.get_threshold() == before
