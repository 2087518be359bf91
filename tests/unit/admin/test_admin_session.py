"""A tool's session: in which session a write is carried out, and how long other sessions may last."""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence

import pytest

from bridge.testing.fake_environment import ADDRESS, FakeEnvironment
from tests.admin_fixtures import doors
from tests.in_memory_fixtures import MakeWorld
from zkconsumer.admin.admin_session import (
    CACHED_ACL_DATA_BYTES_MAX,
    READ_TRIES_MAX,
    ROUND_READS_MAX,
    AdminDependencies,
    AdminSession,
)
from zkconsumer.base.gc_tuning import GC_THRESHOLD, infrequent_gc
from zkconsumer.errors import ZkReadNotAuthorized, ZkTimeoutException
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.zk.requests import (
    OPEN_ACL,
    PERM_ADMIN,
    PERM_ALL,
    PERM_READ,
    Acl,
    Create,
    CreateOp,
    DeleteOp,
    Exists,
    GetAcl,
    GetMany,
    GetManyAcls,
    Multi,
    MultiOk,
    NoNode,
    Request,
    Result,
    SessionEnded,
    SetAcl,
    Stat,
)
from zkconsumer.zk.store import ZkStore


def test_what_is_bound_to_a_session_is_not_done_in_the_next(world: FakeEnvironment, admin: AdminSession) -> None:
    """Nor is a read asked again there."""
    first = admin.session_id
    assert admin.request([Create("/a"), Exists("/a")], first)[0] == "/a"
    world.zookeeper.expire(world.stores[0])
    assert admin.request([Create("/b"), Exists("/b")], first) == [SessionEnded("/b"), SessionEnded("/b")]
    assert admin.request([Create("/c"), Create("/d")]) == ["/c", "/d"]
    assert admin.session_id not in (first, None)
    assert world.zookeeper.data("/b") is None


def test_a_list_is_asked_again_when_the_connection_broke(world: FakeEnvironment, admin: AdminSession) -> None:
    world.zookeeper.lose_connection_on_next(lambda request: isinstance(request, GetAcl), is_done=False)
    assert admin.request([GetAcl("/none")]) == [NoNode("/none")]


def test_the_longest_session_is_what_the_server_grants(world: FakeEnvironment, admin: AdminSession) -> None:
    before = len(world.zookeeper.stores)
    assert admin.max_session_timeout_ms() == 40_000
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

    with AdminSession.open(ADDRESS, None, AdminDependencies(store=store, connect=doors(world).connect)) as session:
        if silent < READ_TRIES_MAX:
            assert session.max_session_timeout_ms() == 40_000
        else:
            with pytest.raises(ZkTimeoutException):
                session.max_session_timeout_ms()


def test_many_nodes_are_read_in_one_round_of_packets(world: FakeEnvironment, admin: AdminSession) -> None:
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


def answered(world: FakeEnvironment) -> Callable[[], list[tuple[type[Request], int]]]:
    """What the tool's session was asked since the last call: kinds of requests, and how many packets they were."""
    store = world.stores[-1]
    asked: list[tuple[type[Request], int]] = []
    answer = store._answer

    def counted(request: Request) -> Result:
        asked.append((type(request), store._packets(request)))
        return answer(request)

    store._answer = counted  # type: ignore[method-assign]

    def since() -> list[tuple[type[Request], int]]:
        found = asked.copy()
        asked.clear()
        return found

    return since


THEIRS = (Acl(PERM_ALL, "digest", "theirs:x"), Acl(PERM_READ, "world", "anyone"))


def test_a_list_that_was_not_changed_is_not_asked_for_again(world: FakeEnvironment, admin: AdminSession) -> None:
    paths = [f"/a/{number}" for number in range(5)]
    for path in paths:
        world.zookeeper.ensure(path, b"1")
    since = answered(world)
    assert admin.get_acls([*paths, "/a/none"]) == dict.fromkeys(paths, OPEN_ACL)
    assert since() == [(GetManyAcls, 6)]
    world.zookeeper.ensure("/a/0", b"other data")
    world.zookeeper.set_acl("/a/1", THEIRS)
    world.zookeeper.remove("/a/2")
    world.zookeeper.remove("/a/3")
    world.zookeeper.ensure("/a/3", b"1")
    world.zookeeper.set_acl("/a/3", THEIRS)
    expected = {"/a/0": OPEN_ACL, "/a/1": THEIRS, "/a/3": THEIRS, "/a/4": OPEN_ACL}
    found = admin.get_acls([*paths, "/a/none"])
    assert (found, list(found)) == (expected, list(expected))
    assert since() == [(GetMany, 1), (GetManyAcls, 4)], "whatever is changed, gone or new"
    assert admin.get_acls(paths) == expected
    assert since() == [(GetMany, 1), (GetManyAcls, 1)]


def test_a_node_of_the_same_version_of_its_list_that_was_made_anew_is_asked_for(
    world: FakeEnvironment, admin: AdminSession
) -> None:
    world.zookeeper.ensure("/a", b"1")
    assert admin.get_acls(["/a"]) == {"/a": OPEN_ACL}
    [made] = admin.request([Multi((DeleteOp("/a"), CreateOp("/a", b"1", acl=THEIRS)))])
    assert isinstance(made, MultiOk)
    assert admin.get_acls(["/a"]) == {"/a": THEIRS}


def test_the_list_of_a_node_that_may_not_be_read_any_more_is_asked_for(
    world: FakeEnvironment, admin: AdminSession
) -> None:
    world.zookeeper.ensure("/a", b"1")
    assert admin.get_acls(["/a"]) == {"/a": OPEN_ACL}
    world.zookeeper.set_acl("/a", (Acl(PERM_ALL, "digest", "theirs:x"),))
    assert admin.get_acls(["/a"]) == {"/a": None}
    may_administer = (Acl(PERM_ADMIN, "world", "anyone"),)
    world.zookeeper.set_acl("/a", may_administer)
    assert admin.get_acls(["/a"]) == {"/a": may_administer}
    world.zookeeper.set_acl("/a", OPEN_ACL)
    assert admin.get_acls(["/a"]) == {"/a": OPEN_ACL}


def test_a_list_that_we_changed_is_asked_for_at_once(world: FakeEnvironment, admin: AdminSession) -> None:
    world.zookeeper.ensure("/a", b"1")
    assert admin.get_acls(["/a"]) == {"/a": OPEN_ACL}
    since = answered(world)
    assert isinstance(admin.request([SetAcl("/a", THEIRS)])[0], Stat)
    assert admin.get_acls(["/a"]) == {"/a": THEIRS}
    assert since() == [(SetAcl, 1), (GetManyAcls, 1)]


def test_the_data_of_a_node_is_not_read_for_its_list_when_it_is_long(
    world: FakeEnvironment, admin: AdminSession
) -> None:
    """A plan is many nodes of half a megabyte."""
    world.zookeeper.ensure("/a", b"x" * (CACHED_ACL_DATA_BYTES_MAX + 1))
    since = answered(world)
    for _ in range(2):
        assert admin.get_acls(["/a"]) == {"/a": OPEN_ACL}
    assert since() == [(GetManyAcls, 1)] * 2


def test_another_session_of_the_tool_asks_for_every_list(world: FakeEnvironment, admin: AdminSession) -> None:
    """It may have another login, which sees other parts of a list."""
    world.zookeeper.ensure("/a", b"1")
    assert admin.get_acls(["/a"]) == {"/a": OPEN_ACL}
    admin.reopen(30_000)
    since = answered(world)
    assert admin.get_acls(["/a"]) == {"/a": OPEN_ACL}
    assert since() == [(GetManyAcls, 1)]


@pytest.mark.parametrize("lost", [GetManyAcls, GetMany])
def test_lists_are_asked_for_again_when_the_connection_broke(
    world: FakeEnvironment, admin: AdminSession, lost: type[Request]
) -> None:
    world.zookeeper.ensure("/a", b"1")
    world.zookeeper.lose_connection_on_next(lambda request: isinstance(request, lost), is_done=False)
    for _ in range(2):
        assert admin.get_acls(["/a", "/none"]) == {"/a": OPEN_ACL}
    assert not world.zookeeper._faults


def test_lists_that_stay_unknown_are_no_rights(world: FakeEnvironment, admin: AdminSession) -> None:
    world.zookeeper.ensure("/a", b"1")
    for _ in range(READ_TRIES_MAX):
        world.zookeeper.lose_connection_on_next(lambda request: isinstance(request, GetManyAcls), is_done=False)
    with pytest.raises(ZkTimeoutException, match="did not answer for /a"):
        admin.get_acls(["/a"])


def test_every_node_that_may_not_be_read_is_named(world: FakeEnvironment, admin: AdminSession) -> None:
    for path in ("/a/1", "/a/2", "/a/3"):
        world.zookeeper.ensure(path)
    for path in ("/a/1", "/a/3"):
        world.zookeeper.set_acl(path, (Acl(PERM_ALL, "digest", "theirs:x"),))
    wanted = ["/a/1", "/a/2", "/a/3", "/a/4"]
    for ask in (admin.get_many, admin.children_of_many):
        with pytest.raises(ZkReadNotAuthorized, match=r"2 nodes \(NoAuth\):\n  /a/1\n  /a/3\nUse a login that") as it:
            ask(wanted)
        assert it.value.exit_code == 4
    with pytest.raises(ZkReadNotAuthorized, match=r"1 node \(NoAuth\):\n  /a/1\n"):
        admin.get("/a/1")


def test_garbage_is_searched_as_before_when_a_large_command_has_ended() -> None:
    before = gc.get_threshold()
    with infrequent_gc():
        assert gc.get_threshold()[0] == GC_THRESHOLD
    assert gc.get_threshold() == before
