"""A tool's session: in which session a write is carried out, and how long other sessions may last."""

from __future__ import annotations

import pytest

from tests.fix_admin import doors
from tests.fix_world import MakeWorld
from zkconsumer.admin.session import READ_TRIES_MAX, AdminSession, Doors
from zkconsumer.errors import ZkTimeoutException
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.testing.world import ADDRESS, FakeWorld
from zkconsumer.zk.requests import Create, Exists, GetAcl, NoNode, SessionGone
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
