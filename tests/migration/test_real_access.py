"""A group with access lists is moved and taken back by one digest login, on a real ZooKeeper with a real broker."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.migration.control.control_layout import (
    ABORT_CHILD,
    MEMBERS_CHILD,
    accepted_piece_name,
    acl_piece_name,
    plan_piece_name,
)
from bridge.migration.fences.fence_acls import is_fence_acl_entry
from bridge.migration.inspect.acl_inspection import unwritable
from tests.migration.acl_fixtures import ALICE, MALLORY, OPERATOR, WORLD_READS, all_of, hash_of, login_file
from tests.migration.real_group import RealGroup
from tests.sandbox_fixtures import Clusters
from zkconsumer.admin.admin_session import AdminSession
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.kazoo_store import KazooStore
from zkconsumer.zk.requests import (
    OPEN_ACL,
    PERM_WRITE,
    Acl,
    Create,
    Delete,
    Get,
    GetAcl,
    NoAuth,
    Request,
    Result,
    SetAcl,
    SetData,
    Stat,
    StoreError,
)
from zkconsumer.zk.store import submit_and_wait
from zkconsumer.zk.zk_security import ZkLogin, ZkSecurity

pytestmark = [pytest.mark.real, pytest.mark.timeout(200)]

PARTITIONS = 2
CONNECT_MS = 30_000
SERVERS = [("3.9.1", "3.8"), pytest.param(("1.1.1", "3.4.6"), marks=pytest.mark.nightly)]


class Protected(RealGroup):
    """A group without members, below a chroot of its own, since the parents of control znodes are shared."""

    @property
    def connect(self) -> str:
        return f"{self.sandbox.zookeeper_connect.partition('/')[0]}/own-{self.group}"

    @property
    def where(self) -> tuple[str, ...]:
        return ("--zookeeper", self.connect, "--bootstrap-server", self.sandbox.bootstrap)

    def ask(self, login: ZkLogin | None, *requests: Request, connect: str | None = None) -> list[Result]:
        store = KazooStore(connect or self.connect, CONNECT_MS, security=ZkSecurity(login=login))
        store.listen(lambda _: None)
        store.start(CONNECT_MS)
        try:
            return list(submit_and_wait(store, requests, CONNECT_MS))
        finally:
            store.close(CONNECT_MS)

    def make(self) -> None:
        """The nodes, as members of alice's left them, with an operator added."""
        [servers, chroot] = self.connect.split("/")
        made = self.ask(None, Create(f"/{chroot}"), connect=servers)
        assert made == [f"/{chroot}"]
        acl = (all_of(ALICE), all_of(OPERATOR), WORLD_READS)
        group = self.group
        below = [paths.ids(group), paths.owners(group), paths.owners_of_topic(group, self.topic), paths.offsets(group)]
        below.append(paths.offsets_of_topic(group, self.topic))
        requests = [Create("/consumers"), Create(paths.group_root(group)), *(Create(path, acl=acl) for path in below)]
        requests += [Create(path, b"0", acl=acl) for path in self.offsets]
        assert not [one for one in self.ask(ALICE, *requests) if isinstance(one, StoreError)]

    @property
    def offsets(self) -> list[str]:
        return [paths.offset(self.group, TopicPartition(self.topic, number)) for number in range(PARTITIONS)]

    def lists(self) -> dict[str, set[Acl]]:
        """Of the nodes that were there at first."""
        group = self.group
        wanted = [paths.ids(group), paths.owners(group), paths.offsets(group), *self.offsets]
        found = self.ask(OPERATOR, *map(GetAcl, wanted))
        assert all(isinstance(acl, tuple) for acl in found)
        return {path: set(acl) for path, acl in zip(wanted, found, strict=True) if isinstance(acl, tuple)}


@pytest.fixture(params=SERVERS, ids="-zookeeper-".join)
def moving(
    request: pytest.FixtureRequest, clusters: Clusters, names: tuple[str, str], tmp_path: Path
) -> Iterator[Protected]:
    group, topic = names
    made = Protected(clusters.get(*request.param), group, topic, PARTITIONS, tmp_path)
    made.make()
    yield made
    made.close()


def test_the_server_names_offsets_that_we_may_not_write_and_nothing_is_written(moving: Protected) -> None:
    """Also for a list that names an address: only the server can decide whether it is ours."""
    [ours, theirs] = moving.offsets
    addresses = (Acl(PERM_WRITE, "ip", "192.0.2.7"), WORLD_READS)
    lists = {ours: (all_of(ALICE), WORLD_READS), theirs: addresses}
    for path, acl in lists.items():
        [changed] = moving.ask(OPERATOR, SetAcl(path, acl))
        assert isinstance(changed, Stat), changed
    stored = moving.ask(OPERATOR, *map(Get, moving.offsets))
    for login, refused in ((ALICE, [theirs]), (MALLORY, [ours, theirs])):
        with AdminSession.open(moving.connect, login_file(moving.folder, login)) as session:
            assert unwritable(session, [*moving.offsets, f"{ours}0000"]) == refused
    assert moving.ask(OPERATOR, *map(Get, moving.offsets)) == stored


def test_one_login_migrates_a_protected_group_and_no_other_client_reads_or_changes_anything(moving: Protected) -> None:
    folder, group, control = moving.folder, moving.group, paths.control(moving.group)
    operator = ("--config", login_file(folder, OPERATOR))
    before = moving.lists()
    bare = moving.migrate("plan", group, "-f", folder / "bare", "--offset-convention", "next", expect=4)
    assert "use a login that the lists" in bare.stderr
    plan = moving.plan("--offset-convention", "next", *map(str, operator))
    moving.migrate("apply", plan, "--execute", "--stop-after", "verified", *operator)

    # The fence: no login has more than before, and only the operator may administer.
    for path, acl in moving.lists().items():
        assert {entry for entry in acl if not is_fence_acl_entry(entry)} == {
            all_of(OPERATOR), Acl(1, "digest", hash_of(ALICE)), Acl(1, "digest", hash_of(OPERATOR)), WORLD_READS,
        }, path  # fmt: skip
        assert sum(map(is_fence_acl_entry, acl)) == 1
    kept = f"{control}/{plan_piece_name(0)}"
    for login in (None, MALLORY, ALICE):
        assert moving.ask(login, Get(kept)) == [NoAuth(kept)]
        requests: list[Request] = [
            *(
                Create(f"{control}/{name}", b"x")
                for name in (accepted_piece_name(0), acl_piece_name(0), plan_piece_name(1), "leave")
            ),
            *(SetData(path, b"x") for path in (control, kept, f"{control}/journal", moving.offsets[0])),
            *(SetAcl(path, OPEN_ACL) for path in (control, kept, paths.ids(group), moving.offsets[0])),
            *(Delete(path) for path in (control, kept, f"{control}/journal")),
            *(Create(f"{parent}/other") for parent in paths.parents(control)),
            Create(f"{paths.ids(group)}/old", b"x", ephemeral=True),
        ]
        answers = moving.ask(login, *requests)
        assert [type(one) for one in answers] == [NoAuth] * len(requests), answers
        member = f"{control}/{MEMBERS_CHILD}/c1"
        [made, asked] = moving.ask(
            login, Create(member, b"{}", ephemeral=True), SetData(f"{control}/{ABORT_CHILD}", b"")
        )
        assert [isinstance(made, NoAuth), isinstance(asked, NoAuth)] == [login is not ALICE] * 2

    # The login with which it continues.
    mallory = ("--config", login_file(folder, MALLORY))
    for words in (("apply", *moving.kept), ("rollback", group)):
        refused = moving.migrate(*words, "--execute", *mallory, expect=4)
        assert f"{control} belongs to digest:operator:..., and this run has digest user 'mallory'" in refused.stderr
        bare = moving.migrate(*words, "--execute", expect=4)
        assert "this run has no login of its own" in bare.stderr
    blind = moving.migrate("apply", "--resume", group, "--execute", *operator, expect=4)
    assert blind.stderr.count("confirm it: ") == 1
    moving.migrate("apply", *moving.kept, "--execute", *operator)
    assert moving.status(*operator)["phase"] == "switched"
    # Every client may read the phase; without a login the plan, and so the copied offsets, cannot be read.
    stranger = moving.status(expect=1)
    assert stranger["phase"] == "switched"
    [unread] = stranger["not_known"]
    assert kept in unread, unread

    # Back, with every list as it was.
    moving.migrate("rollback", group, "--execute", *operator)
    assert moving.status()["phase"] == "undone"
    assert moving.lists() == before
