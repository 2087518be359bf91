"""The same cases on the fake ZooKeeper and on real servers: the servers must give the answers of the fake."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import pytest

from tests.sandbox_fixtures import require_zookeeper
from zkconsumer.errors import ChrootMissing, ZkTimeoutException
from zkconsumer.member.events import SessionConnected, SessionLost, SessionSuspended
from zkconsumer.testing.fake_zookeeper import FakeZkStore, FakeZooKeeper
from zkconsumer.testing.sandbox import Sandbox, ZooKeeperServer, wait_until
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import (
    OPEN_ACL,
    Acl,
    BadVersion,
    CheckOp,
    ChildNames,
    Children,
    ConnectionLost,
    Create,
    CreateOp,
    Delete,
    DeleteOp,
    Exists,
    Get,
    GetAcl,
    GetMany,
    GetManyAcls,
    ManyAclsResult,
    Multi,
    MultiFailed,
    MultiOk,
    NoAuth,
    NodeExists,
    NoNode,
    NotEmpty,
    OtherError,
    Request,
    SessionEnded,
    SetAcl,
    SetData,
    SetOp,
    Stat,
    WatchFired,
    ZnodeData,
)
from zkconsumer.zk.store import ZkStore, submit_and_wait
from zkconsumer.zk.zk_security import SECURE_ACL, DigestLogin, ZkLogin, ZkSecurity

TIMEOUT_MS = 20_000
_chroots = itertools.count()


class Member:
    """A started store, and everything that it received, in order: events, and the results of ``send``."""

    def __init__(self, store: ZkStore) -> None:
        self.store = store
        self.told: list[Any] = []
        store.listen(self.told.append)
        store.start(TIMEOUT_MS)
        self.heard(1)
        self.first = self.told.pop()

    def ask(self, *requests: Request) -> list[Any]:
        return list(submit_and_wait(self.store, requests, TIMEOUT_MS))

    def send(self, *requests: Request, session_id: int | None = None) -> None:
        self.store.submit(session_id, requests, self.told.append)

    def heard(self, count: int) -> list[Any]:
        """What was received, once there is this much; a read after it shows that nothing else is in flight."""
        wait_until(lambda: len(self.told) >= count, f"{count} of {self.told}", TIMEOUT_MS)
        return self.told


class World(Protocol):
    """A ZooKeeper, fake or real, with a chroot for this test.

    ``is_lenient``: an old server, which reports to every client whether a node exists.
    """

    is_lenient: bool

    def store(self, timeout_ms: int = 6_000, chroot: str | None = None, login: ZkLogin | None = None) -> Any: ...

    def bounce(self, store: Any) -> None: ...

    def expire(self, store: Any) -> None: ...


class FakeWorld:
    is_lenient = False

    def __init__(self) -> None:
        self.server = FakeZooKeeper(session_timeout_min_ms=2_000, session_timeout_max_ms=20_000)
        self.server.ensure("/conformance/chroot")

    def store(self, timeout_ms: int = 6_000, chroot: str | None = None, login: ZkLogin | None = None) -> FakeZkStore:
        return FakeZkStore(self.server, "/conformance/chroot" if chroot is None else chroot, timeout_ms, login)

    def bounce(self, store: FakeZkStore) -> None:
        self.server.disconnect(store)
        self.server.reconnect(store)

    def expire(self, store: FakeZkStore) -> None:
        self.server.expire(store)


class RealWorld:
    def __init__(self, server: ZooKeeperServer) -> None:
        self.server = server
        self.is_lenient = server.version == "3.4.6"
        self.chroot = f"/conformance/chroot-{next(_chroots)}"
        self.stores: list[KazooStore] = []
        server.admin().ensure_path(self.chroot)

    def store(self, timeout_ms: int = 6_000, chroot: str | None = None, login: ZkLogin | None = None) -> KazooStore:
        connect = self.server.connect_string(self.chroot if chroot is None else chroot)
        made = KazooStore(connect, timeout_ms, security=ZkSecurity(login))
        self.stores.append(made)
        return made

    def bounce(self, store: KazooStore) -> None:
        store.bounce()

    def expire(self, store: KazooStore) -> None:
        store.expire(TIMEOUT_MS)


@pytest.fixture(scope="module")
def servers() -> Iterator[Callable[[str], ZooKeeperServer]]:
    boxes: dict[str, Sandbox] = {}
    running: dict[str, ZooKeeperServer] = {}

    def server(version: str) -> ZooKeeperServer:
        if version not in running:
            require_zookeeper(version)
            boxes[version] = Sandbox().__enter__()
            running[version] = boxes[version].start_zookeeper(version)
        return running[version]

    yield server
    for box in boxes.values():
        box.__exit__(None, None, None)


@pytest.fixture(
    params=["fake", pytest.param("3.8", marks=pytest.mark.real), pytest.param("3.4.6", marks=pytest.mark.real)]
)
def world(request: pytest.FixtureRequest, servers: Callable[[str], ZooKeeperServer]) -> Iterator[World]:
    if request.param == "fake":
        yield FakeWorld()
        return
    real = RealWorld(servers(request.param))
    yield real
    for store in real.stores:
        store.close(TIMEOUT_MS)


@pytest.fixture
def member(world: World) -> Member:
    return Member(world.store())


@pytest.fixture
def other(world: World) -> Member:
    return Member(world.store())


# --- one request ------------------------------------------------------------------------------------------------


def test_a_node_is_created_read_changed_and_deleted(member: Member) -> None:
    made, node, stat, after, gone, missing = member.ask(
        Create("/a", b"1"), Get("/a"), SetData("/a", b"22"), Exists("/a"), Delete("/a"), Exists("/a")
    )
    assert made == "/a"
    assert isinstance(node, ZnodeData)
    assert node.data == b"1"
    assert (node.stat.version, node.stat.cversion, node.stat.ephemeral_owner) == (0, 0, 0)
    assert (node.stat.data_length, node.stat.num_children) == (1, 0)
    assert node.stat.czxid == node.stat.mzxid == node.stat.pzxid > 0
    assert node.stat.ctime_ms == node.stat.mtime_ms > 0
    assert isinstance(stat, Stat)
    assert (stat.version, stat.data_length, stat.czxid) == (1, 2, node.stat.czxid)
    assert stat.mzxid > stat.czxid == stat.pzxid
    assert after == stat
    assert gone is None
    assert missing is None


def test_a_child_counts_in_its_parents_stat_and_changes_nothing_else_of_it(member: Member) -> None:
    member.ask(Create("/p"))
    before, _, made, _, gone = member.ask(Exists("/p"), Create("/p/a"), Exists("/p"), Delete("/p/a"), Exists("/p"))
    assert (before.cversion, made.cversion, gone.cversion) == (0, 1, 2)
    assert (before.num_children, made.num_children, gone.num_children) == (0, 1, 0)
    assert before.pzxid < made.pzxid < gone.pzxid
    assert gone._replace(cversion=0, pzxid=before.pzxid) == before


def test_children_are_names_with_the_parents_stat(member: Member) -> None:
    member.ask(Create("/p"), Create("/p/b"), Create("/p/a"))
    children, parent = member.ask(Children("/p"), Exists("/p"))
    assert isinstance(children, ChildNames)
    assert sorted(children.names) == ["a", "b"]
    assert children.stat == parent


def test_the_root_of_the_chroot_is_a_node_like_any(member: Member) -> None:
    assert member.ask(Create("/a"), Children("/"))[1].names == ["a"]
    assert isinstance(member.ask(Get("/"))[0], ZnodeData)
    assert isinstance(member.ask(SetData("/", b"x"))[0], Stat)
    assert member.ask(Create("/"))[0] == NodeExists("/")


def test_a_missing_node_is_no_node(member: Member) -> None:
    results = member.ask(
        Get("/a"), Exists("/a"), Children("/a"), SetData("/a", b""), Delete("/a"), Delete("/a/b"), Create("/a/b")
    )
    assert results == [
        NoNode("/a"), None, NoNode("/a"), NoNode("/a"), NoNode("/a"), NoNode("/a/b"), NoNode("/a/b")
    ]  # fmt: skip


def test_a_failed_request_has_its_reason(member: Member) -> None:
    member.ask(Create("/a"), Create("/a/b"), Create("/e", ephemeral=True))
    assert member.ask(
        Create("/a"), SetData("/a", b"", 7), Delete("/a", 7), Delete("/a"), Delete("/a", 0), Create("/e/x")
    ) == [
        NodeExists("/a"),
        BadVersion("/a"),
        BadVersion("/a"),
        NotEmpty("/a"),
        NotEmpty("/a"),
        OtherError("/e/x", "NoChildrenForEphemerals", -108),
    ]


def test_an_access_control_list_is_checked_before_a_version(world: World, member: Member) -> None:
    member.ask(Create("/a"), Create("/a/r", b"1", acl=(Acl(1, "world", "anyone"),)))
    assert isinstance(member.ask(Get("/a/r"))[0], ZnodeData)
    assert member.ask(SetData("/a/r", b"", 7), Create("/a/r/x")) == [NoAuth("/a/r"), NoAuth("/a/r/x")]
    assert member.ask(Delete("/a/r/x")) == [NoNode("/a/r/x") if world.is_lenient else NoAuth("/a/r/x")]
    assert member.ask(Delete("/a/r"))[0] is None, "deleting is the parent's right"


def test_without_the_right_to_read_one_can_still_write(world: World, member: Member) -> None:
    member.ask(Create("/w", b"1", acl=(Acl(2 | 4 | 8, "world", "anyone"),)), Create("/w/x"))
    read, children, stat, many, written, deleted, checked = member.ask(
        Get("/w"),
        Children("/w"),
        Exists("/w"),
        GetMany(("/w",)),
        SetData("/w", b"2"),
        Delete("/w/x"),
        Multi((CheckOp("/w", 1),)),
    )
    assert (read, children, many, deleted) == (NoAuth("/w"), NoAuth("/w"), [NoAuth("/w")], None)
    assert isinstance(stat, Stat) if world.is_lenient else stat == NoAuth("/w")
    assert isinstance(written, Stat)
    assert checked == MultiFailed("/w", 0, NoAuth("/w"))


ALICE, ALICE_WRONG = DigestLogin("alice", "secret"), DigestLogin("alice", "Secret")
ALICE_HASHED = "alice:aYXlLOpEooaV1cRAvUL1fp9Qt7E="


def test_auth_in_an_access_list_is_the_login_that_creates_the_node(world: World) -> None:
    alice, again, wrong, nobody = (Member(world.store(login=login)) for login in (ALICE, ALICE, ALICE_WRONG, None))
    made = alice.ask(Create("/s", b"1", acl=SECURE_ACL), Create("/s/x", acl=SECURE_ACL), GetAcl("/s"))
    assert made[:2] == ["/s", "/s/x"]
    assert set(made[2]) == {Acl(31, "digest", ALICE_HASHED), Acl(1, "world", "anyone")}
    assert isinstance(again.ask(SetData("/s", b"2"))[0], Stat)
    for other in (wrong, nobody):
        assert isinstance(other.ask(Get("/s"))[0], ZnodeData), "reading is for all"
        refused = other.ask(SetData("/s", b"3"), Create("/s/y"), Delete("/s/x"))
        assert refused == [NoAuth("/s"), NoAuth("/s/y"), NoAuth("/s/x")]
        [multi] = other.ask(Multi((CheckOp("/s"), CreateOp("/s/y"), SetOp("/s", b""))))
        assert multi == MultiFailed("/s/y", 1, NoAuth("/s/y"))
    assert again.ask(Delete("/s/x"), Delete("/s")) == [None, None]


def test_only_administrators_receive_the_hash_of_a_password(world: World, member: Member) -> None:
    alice = Member(world.store(login=ALICE))
    alice.ask(Create("/s", acl=SECURE_ACL))
    told = {entry.id for entry in member.ask(GetAcl("/s"))[0] if entry.scheme == "digest"}
    assert told == {ALICE_HASHED if world.is_lenient else "alice:x"}


def test_an_access_list_without_read_permission_is_not_read_either(world: World, member: Member) -> None:
    alice = Member(world.store(login=ALICE))
    alice.ask(Create("/h", acl=(Acl(31, "auth", ""),)))
    assert member.ask(GetAcl("/none")) == [NoNode("/none")]
    [told] = member.ask(GetAcl("/h"))
    assert isinstance(told, tuple) if world.is_lenient else told == NoAuth("/h")
    assert alice.ask(GetAcl("/h")) == [(Acl(31, "digest", ALICE_HASHED),)]


def test_without_a_login_auth_matches_no_login(member: Member) -> None:
    invalid = OtherError("/s", "InvalidAcl", -114)
    assert member.ask(Create("/s", acl=SECURE_ACL)) == [invalid]
    assert member.ask(Create("/none/s", acl=SECURE_ACL))[0] == OtherError("/none/s", "InvalidAcl", -114)
    assert member.ask(Multi((CreateOp("/o"), CreateOp("/s", acl=SECURE_ACL)))) == [MultiFailed("/s", 1, invalid)]


READ_AND_ADMIN = Acl(1 | 16, "world", "anyone")
NEVER = 2**31 - 1


def test_a_login_with_admin_can_change_an_access_list(world: World, member: Member) -> None:
    alice = Member(world.store(login=ALICE))
    member.ask(Create("/l", b"1"), Create("/l/x"))
    before, changed, after = alice.ask(Get("/l"), SetAcl("/l", (Acl(31, "auth", ""), READ_AND_ADMIN)), Get("/l"))
    assert changed == before.stat._replace(aversion=before.stat.aversion + 1)
    assert (after.data, after.stat) == (before.data, changed)
    assert set(alice.ask(GetAcl("/l"))[0]) == {Acl(31, "digest", ALICE_HASHED), READ_AND_ADMIN}
    assert member.ask(SetData("/l", b"2"), Create("/l/y"), Delete("/l/x")) == [
        NoAuth("/l"), NoAuth("/l/y"), NoAuth("/l/x")
    ]  # fmt: skip
    assert isinstance(member.ask(SetAcl("/l", (Acl(31, "world", "anyone"),)))[0], Stat), "taken back by world's right"
    assert member.ask(Delete("/l/x"), GetAcl("/l")) == [None, (Acl(31, "world", "anyone"),)]


def test_a_login_without_admin_changes_no_list(world: World, member: Member) -> None:
    alice = Member(world.store(login=ALICE))
    alice.ask(Create("/l", acl=SECURE_ACL))
    open_to_all = (Acl(31, "world", "anyone"),)
    refused = member.ask(SetAcl("/l", open_to_all), SetAcl("/l", open_to_all, NEVER), SetAcl("/none", open_to_all))
    assert refused == [NoAuth("/l"), NoAuth("/l"), NoNode("/none")]
    assert set(alice.ask(GetAcl("/l"))[0]) == {Acl(31, "digest", ALICE_HASHED), Acl(1, "world", "anyone")}


def test_the_permission_is_checked_before_the_version_of_the_list(world: World, member: Member) -> None:
    """So an impossible version shows whether we have the permission, and changes nothing."""
    member.ask(Create("/l"))
    only_read = (READ_AND_ADMIN,)
    assert member.ask(SetAcl("/l", only_read, NEVER)) == [BadVersion("/l")]
    assert member.ask(SetAcl("/l", only_read, 1)) == [BadVersion("/l")]
    assert isinstance(member.ask(SetAcl("/l", only_read, 0))[0], Stat)
    assert member.ask(SetAcl("/l", only_read, 0), SetAcl("/l", only_read, NEVER)) == [BadVersion("/l")] * 2
    assert isinstance(member.ask(SetAcl("/l", only_read, 1))[0], Stat)


def test_an_access_list_that_no_login_could_match_is_refused_first(member: Member) -> None:
    """Auth without a login matches no login."""
    invalid = OtherError("/none", "InvalidAcl", -114)
    assert member.ask(SetAcl("/none", (Acl(31, "auth", ""),)), SetAcl("/none", ())) == [invalid, invalid]


def test_a_stat_counts_the_changes_of_the_list_and_a_new_node_starts_at_zero(member: Member) -> None:
    """So an unchanged ``aversion`` of an unchanged ``czxid`` shows that the list is the one that was read."""
    member.ask(Create("/l", b"1"))
    [[first]] = [read.found for read in member.ask(GetManyAcls(("/l",)))]
    assert (first.acl, first.stat.aversion) == (OPEN_ACL, 0)
    for number in range(1, 4):
        member.ask(SetAcl("/l", (READ_AND_ADMIN,)))
        [read], [node] = member.ask(GetManyAcls(("/l",)))[0].found, member.ask(GetMany(("/l",)))[0]
        assert (read.acl, read.stat) == ((READ_AND_ADMIN,), node.stat)
        assert (node.stat.aversion, node.stat.czxid) == (number, first.stat.czxid)
    member.ask(SetAcl("/l", OPEN_ACL), SetData("/l", b"2"))
    [changed] = member.ask(Get("/l"))
    assert changed.stat.aversion == 4, "data has a version of its own"
    assert isinstance(member.ask(Multi((DeleteOp("/l"), CreateOp("/l", b"1"))))[0], MultiOk)
    [anew] = member.ask(Get("/l"))
    assert anew.stat.aversion == 0
    assert anew.stat.czxid > first.stat.czxid


def test_many_access_lists_are_read_one_after_the_other(world: World, member: Member) -> None:
    alice = Member(world.store(login=ALICE))
    names = tuple(f"/l{number}" for number in range(500))
    member.ask(*map(Create, names))
    alice.ask(Create("/h", acl=(Acl(31, "auth", ""),)))
    [read] = member.ask(GetManyAcls((*names, "/none", "/h")))
    assert [one.acl for one in read.found[:500]] == [OPEN_ACL] * 500
    assert read.found[500] == NoNode("/none")
    if not world.is_lenient:
        assert read.found[501] == NoAuth("/h")
    assert member.ask(GetManyAcls(())) == [ManyAclsResult([])]


def test_many_access_lists_are_changed_one_after_the_other(member: Member) -> None:
    names = [f"/l{number}" for number in range(500)]
    member.ask(*map(Create, names))
    assert all(isinstance(each, Stat) for each in member.ask(*(SetAcl(name, (READ_AND_ADMIN,)) for name in names)))
    assert member.ask(*map(GetAcl, names)) == [(READ_AND_ADMIN,)] * 500


def test_a_child_created_and_deleted_in_one_multi_fires_the_watch_of_its_parent(member: Member, other: Member) -> None:
    """And no client ever sees it."""
    member.ask(Create("/p"), Create("/p/a"))
    other.ask(Children("/p", watch=True))
    assert isinstance(member.ask(Multi((CreateOp("/p/nudge"), DeleteOp("/p/nudge"))))[0], MultiOk)
    assert other.heard(1) == [WatchFired("/p", "children")]
    assert other.ask(Children("/p"))[0].names == ["a"]


def test_many_nodes_are_read_in_the_order_of_the_paths(member: Member) -> None:
    member.ask(Create("/a", b"1"), Create("/b", b"2"))
    [many, none] = member.ask(GetMany(("/b", "/x", "/a", "/b")), GetMany(()))
    assert [getattr(each, "data", each) for each in many] == [b"2", NoNode("/x"), b"1", b"2"]
    assert none == []


def test_more_nodes_than_one_packet_takes_are_read_too(member: Member) -> None:
    member.ask(*(Create(f"/n{number}", b"%d" % number) for number in range(2_500)))
    paths = tuple(f"/n{number}" for number in reversed(range(2_501)))
    [many] = member.ask(GetMany(paths))
    assert many[0] == NoNode("/n2500")
    assert [node.data for node in many[1:]] == [b"%d" % number for number in reversed(range(2_500))]


def test_long_answers_are_read_in_smaller_parts(member: Member) -> None:
    member.ask(*(Create(f"/n{number}", b"x" * 100_000) for number in range(30)))
    paths = tuple(f"/n{number}" for number in range(30))
    for _ in range(2):
        [many] = member.ask(GetMany(paths))
        assert [len(node.data) for node in many] == [100_000] * 30


def test_names_and_data_are_any_text_and_any_bytes(member: Member) -> None:
    data = bytes(range(256))
    made, node, children = member.ask(Create("/é 😀%2e".replace("😀", "日"), data), Get("/é 日%2e"), Children("/"))
    assert made == "/é 日%2e"
    assert node.data == data
    assert children.names == ["é 日%2e"]


def test_results_come_in_the_order_of_the_requests_however_many(member: Member) -> None:
    member.ask(Create("/a"))
    results = member.ask(*(SetData("/a", b"%d" % number) for number in range(500)), Get("/a"))
    assert [stat.version for stat in results[:-1]] == list(range(1, 501))
    assert results[-1].data == b"499"


def test_batches_settle_in_the_order_in_which_they_were_submitted(member: Member) -> None:
    for number in range(50):
        member.send(Create(f"/{number}"))
    assert member.heard(50) == [[f"/{number}"] for number in range(50)]


# --- multi ------------------------------------------------------------------------------------------------------


def test_a_multi_does_all_in_one_transaction(member: Member) -> None:
    member.ask(Create("/a", b"1"), Create("/b"))
    [done] = member.ask(
        Multi((CreateOp("/c", b"x"), SetOp("/a", b"2", 0), DeleteOp("/b", 0), CheckOp("/a", 1), CheckOp("/c")))
    )
    assert isinstance(done, MultiOk)
    made, stat, *rest = done.results
    assert (made, rest) == ("/c", [None, None, None])
    assert isinstance(stat, Stat)
    new, old, gone = member.ask(Exists("/c"), Exists("/a"), Exists("/b"))
    assert new.czxid == old.mzxid == stat.mzxid
    assert gone is None


def test_a_claim_is_a_node_of_our_session_with_version_one(member: Member) -> None:
    [done] = member.ask(Multi((CreateOp("/claim", b"me", ephemeral=True), SetOp("/claim", b"me", 0))))
    stat = done.results[1]
    assert (stat.version, stat.ephemeral_owner) == (1, member.store.session_id)
    assert stat.czxid == stat.mzxid
    assert member.ask(Get("/claim"))[0] == ZnodeData(b"me", stat)


def test_ownership_moves_to_another_thread_in_one_multi(member: Member) -> None:
    member.ask(Multi((CreateOp("/claim", b"1", ephemeral=True), SetOp("/claim", b"1", 0))))
    [done] = member.ask(
        Multi((DeleteOp("/claim", 1), CreateOp("/claim", b"2", ephemeral=True), SetOp("/claim", b"2", 0)))
    )
    assert done.results[2].version == 1
    assert member.ask(Get("/claim"))[0].data == b"2"


@pytest.mark.parametrize(
    ("ops", "failed", "error"),
    [
        ((CreateOp("/c"), CreateOp("/a")), 1, NodeExists("/a")),
        ((CreateOp("/c"), CreateOp("/c/d"), CreateOp("/c/d")), 2, NodeExists("/c/d")),
        ((SetOp("/a", b"2"), CheckOp("/a", 0), CreateOp("/c")), 1, BadVersion("/a")),
        ((DeleteOp("/a"), CheckOp("/a")), 1, NoNode("/a")),
        ((CheckOp("/x"), CreateOp("/c")), 0, NoNode("/x")),
        ((CreateOp("/x/y"), CreateOp("/c")), 0, NoNode("/x/y")),
        ((CreateOp("/a/b"), DeleteOp("/a")), 1, NotEmpty("/a")),
        ((SetOp("/r", b""), CreateOp("/c")), 0, NoAuth("/r")),
        ((DeleteOp("/a", 3),), 0, BadVersion("/a")),
    ],
)
def test_a_failed_multi_changes_nothing_and_names_the_operation(
    member: Member, ops: Any, failed: int, error: Any
) -> None:
    member.ask(Create("/a", b"1"), Create("/r", acl=(Acl(1, "world", "anyone"),)))
    before = member.ask(Get("/"), Get("/a"), Exists("/r"))
    assert member.ask(Multi(ops)) == [MultiFailed(error.path, failed, error)]
    assert member.ask(Get("/"), Get("/a"), Exists("/r")) == before
    assert member.ask(Exists("/c")) == [None]


def test_a_multi_of_nothing_is_done(member: Member) -> None:
    assert member.ask(Multi(())) == [MultiOk(())]


def test_a_multi_of_a_thousand_operations_is_done(member: Member) -> None:
    [done] = member.ask(Multi(tuple(CreateOp(f"/n{number}") for number in range(1_000))))
    assert isinstance(done, MultiOk)
    assert member.ask(Exists("/"))[0].num_children == 1_000


# --- watches ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("before", "watch", "change", "event"),
    [
        ((), Exists("/a", watch=True), Create("/a"), WatchFired("/a", "created")),
        ((Create("/a"),), Exists("/a", watch=True), SetData("/a", b""), WatchFired("/a", "data")),
        ((Create("/a"),), Exists("/a", watch=True), Delete("/a"), WatchFired("/a", "deleted")),
        ((Create("/a"),), Get("/a", watch=True), SetData("/a", b""), WatchFired("/a", "data")),
        ((Create("/a"),), Get("/a", watch=True), Delete("/a"), WatchFired("/a", "deleted")),
        ((Create("/a"),), Children("/a", watch=True), Create("/a/b"), WatchFired("/a", "children")),
        ((Create("/a"), Create("/a/b")), Children("/a", watch=True), Delete("/a/b"), WatchFired("/a", "children")),
        ((Create("/a"),), Children("/a", watch=True), Delete("/a"), WatchFired("/a", "deleted")),
        ((), Children("/", watch=True), Create("/a"), WatchFired("/", "children")),
        ((Create("/a"),), Get("/a", watch=True), Multi((SetOp("/a", b""),)), WatchFired("/a", "data")),
        ((Create("/a"),), Children("/a", watch=True), Multi((CreateOp("/a/b"),)), WatchFired("/a", "children")),
    ],
)
def test_a_watch_fires_once(
    member: Member, other: Member, before: Any, watch: Request, change: Request, event: WatchFired
) -> None:
    member.ask(*before, watch)
    other.ask(change)
    assert member.heard(1) == [event]
    other.ask(Create("/a"), SetData("/a", b""), Create("/a/b"), Delete("/a/b"), Delete("/a"))
    member.ask(Exists("/"))
    assert member.told == [event]


@pytest.mark.parametrize(
    ("before", "watch", "change"),
    [
        ((), Get("/a", watch=True), Create("/a")),
        ((), Children("/a", watch=True), Create("/a")),
        ((Create("/a"),), Children("/a", watch=True), SetData("/a", b"")),
        ((Create("/a"),), Exists("/a", watch=True), Create("/a/b")),
        ((Create("/a"),), Get("/a", watch=True), SetData("/a", b"", 7)),
        ((Create("/a"),), Get("/a", watch=True), Multi((SetOp("/a", b""), CheckOp("/x")))),
        ((Create("/a"), Create("/a/b")), Children("/a", watch=True), SetData("/a/b", b"")),
        ((Create("/a"), Create("/a/b")), Children("/a", watch=True), Create("/a/b/c")),
    ],
)
def test_a_watch_does_not_fire_for_other_changes(
    member: Member, other: Member, before: Any, watch: Request, change: Request
) -> None:
    member.ask(*before, watch)
    other.ask(change)
    member.ask(Exists("/"))
    assert member.told == []


def test_the_deletion_of_a_node_that_is_watched_twice_is_reported_once(member: Member, other: Member) -> None:
    member.ask(Create("/a"), Get("/a", watch=True), Exists("/a", watch=True), Children("/a", watch=True))
    other.ask(Delete("/a"))
    member.ask(Exists("/"))
    assert member.told == [WatchFired("/a", "deleted")]


def test_a_node_and_its_parent_are_reported_in_this_order(member: Member, other: Member) -> None:
    member.ask(Create("/a"), Children("/", watch=True), Exists("/a", watch=True), Exists("/b", watch=True))
    other.ask(Delete("/a"))
    assert member.heard(2) == [WatchFired("/a", "deleted"), WatchFired("/", "children")]
    member.ask(Children("/", watch=True))
    other.ask(Create("/b"))
    assert member.heard(4)[2:] == [WatchFired("/b", "created"), WatchFired("/", "children")]


def test_our_own_changes_fire_watches_too_before_their_answer(member: Member) -> None:
    member.ask(Exists("/a", watch=True))
    member.send(Create("/a"))
    assert member.heard(2) == [WatchFired("/a", "created"), ["/a"]]


def test_an_event_comes_before_the_answer_that_shows_the_change(member: Member, other: Member) -> None:
    member.ask(Create("/a"))
    for number in range(1, 30):
        member.ask(Get("/a", watch=True))
        member.told.clear()
        other.store.submit(None, [SetData("/a", b"")], lambda _: None)
        while True:
            seen = member.ask(Exists("/a"))[0].version
            if seen == number:
                break
        assert member.told == [WatchFired("/a", "data")]


# --- sessions ---------------------------------------------------------------------------------------------------


def test_the_first_event_is_a_new_session_with_the_granted_timeout(world: World) -> None:
    for asked_ms, granted_ms in ((6_000, 6_000), (100, 2_000), (3_600_000, 20_000)):
        member = Member(world.store(asked_ms))
        assert member.first == SessionConnected(member.store.session_id or 0, granted_ms, True)
        assert member.store.negotiated_timeout_ms == granted_ms


def test_an_ephemeral_node_names_its_session_and_ends_with_it(member: Member, other: Member) -> None:
    """ZKEphemeralTest."""
    member.ask(Create("/e", ephemeral=True))
    owner = member.store.session_id
    assert other.ask(Exists("/e", watch=True), Children("/", watch=True))[0].ephemeral_owner == owner
    assert member.store.close(TIMEOUT_MS)
    assert other.heard(2) == [WatchFired("/e", "deleted"), WatchFired("/", "children")]
    assert other.ask(Exists("/e")) == [None]


def test_a_closed_store_answers_session_gone_and_calls_no_watch(member: Member) -> None:
    old = member.store.session_id
    assert member.store.close(TIMEOUT_MS)
    assert member.store.session_id is None
    member.send(Exists("/a"), session_id=old)
    assert member.ask(Exists("/a"), GetMany(("/a", "/b"))) == [
        SessionEnded("/a"), [SessionEnded("/a"), SessionEnded("/b")]
    ]  # fmt: skip
    assert member.told == [[SessionEnded("/a")]]
    assert member.store.close(TIMEOUT_MS)


def test_a_broken_connection_keeps_the_session_and_drops_the_watches(
    world: World, member: Member, other: Member
) -> None:
    member.ask(Create("/e", ephemeral=True), Exists("/a", watch=True), Children("/", watch=True))
    session_id = member.store.session_id
    world.bounce(member.store)
    assert member.heard(2) == [SessionSuspended(), SessionConnected(session_id or 0, 6_000, False)]
    other.ask(Create("/a"))
    assert member.ask(Exists("/e"))[0].ephemeral_owner == session_id
    assert len(member.told) == 2


def test_an_expired_session_is_lost_and_a_new_one_comes(world: World, member: Member, other: Member) -> None:
    member.ask(Create("/e", ephemeral=True), Create("/p"))
    other.ask(Exists("/e", watch=True))
    old = member.store.session_id or 0
    world.expire(member.store)
    assert other.heard(1) == [WatchFired("/e", "deleted")]
    told = member.heard(3)
    new = member.store.session_id or 0
    assert told == [SessionSuspended(), SessionLost(old), SessionConnected(new, 6_000, True)]
    assert new not in (0, old)
    member.send(Create("/late"), session_id=old)
    assert member.heard(4)[3] == [SessionEnded("/late")]
    member.send(Create("/new", ephemeral=True), session_id=new)
    assert member.heard(5)[4] == ["/new"]
    assert member.ask(Exists("/late")) == [None]


def test_a_packet_that_is_too_long_ends_the_connection_and_is_not_done(member: Member) -> None:
    member.send(Create("/a"), Create("/long", b"x" * 1_100_000), Create("/b"))
    results, suspended, connected = member.heard(3)
    assert results[1:] == [ConnectionLost("/long"), ConnectionLost("/b")]
    assert (suspended, connected.is_new) == (SessionSuspended(), False)
    assert member.ask(Exists("/long"), Exists("/b")) == [None, None]


def test_a_mebibyte_less_the_frame_is_taken(member: Member) -> None:
    data = b"x" * (1024 * 1024 - 300)
    assert member.ask(Create("/long", data), Get("/long"))[1].data == data


def test_a_chroot_that_does_not_exist_is_missing(world: World) -> None:
    with pytest.raises(ChrootMissing, match="/conformance/nothing"):
        world.store(chroot="/conformance/nothing").start(TIMEOUT_MS)


def test_without_a_chroot_the_root_is_the_servers(world: World) -> None:
    member = Member(world.store(chroot=""))
    assert "conformance" in member.ask(Children("/"))[0].names


def test_a_server_that_is_not_there_is_named(world: World) -> None:
    if isinstance(world, FakeWorld):
        world.server.is_up = False
        store: Any = world.store()
    else:
        store = KazooStore("127.0.0.1:1", 6_000)
    with pytest.raises(ZkTimeoutException, match=r"within 500 ms"):
        store.start(500)
