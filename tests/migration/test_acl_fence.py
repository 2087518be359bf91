"""Access lists as a fence: no member registers, acquires or commits, and every list is restored."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path

import pytest

from bridge.migration.control.control_layout import acl_piece_name
from bridge.migration.control.control_pieces import pack
from bridge.migration.control.control_steps import AcquireLock
from bridge.migration.control.phases import Phase
from bridge.migration.errors import PartiallyDoneError, VerificationError
from bridge.migration.fences import late_acls
from bridge.migration.fences.fence_acl_steps import RestoreAcls, SetFenceAcls
from bridge.migration.fences.fence_acls import READ_AND_DELETE, READ_ONLY, AccessList, is_fence
from bridge.migration.fences.fence_login import GENERATED_USER, fence_security, open_fence_session
from bridge.migration.fences.fence_permissions import (
    CheckAclPermissions,
    CheckPermissions,
    fenced_levels,
    paths_without_admin,
)
from bridge.migration.fences.fence_removal import RemoveOwnerFences
from bridge.migration.fences.late_acls import read_late_acls, store_late_acls
from bridge.migration.inspect.acl_inspection import unwritable
from bridge.migration.inspect.required_permissions import GroupZnodes
from bridge.migration.steps.step import StepDone, StepPending, StepWaiting
from tests.migration.fence_fixtures import (
    FENCING,
    TOPICS,
    UNDOING,
    acls,
    fence_all,
    is_open,
    lift_all,
    lists_of,
    moved,
    run_of,
    stood,
    to,
)
from tests.migration.step_write_faults import ADDRESS, GROUP, WHO, Cut, Group, Killed, at_every_cut, carry_out
from zkconsumer.admin.admin_session import AdminDependencies, tools_config
from zkconsumer.config import ConsumerConfig
from zkconsumer.errors import InvalidConfigException, PreconditionFailed, UsageError, ZkTimeoutException
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    OPEN_ACL,
    PERM_ALL,
    PERM_READ,
    Acl,
    ConnectionLost,
    Create,
    Delete,
    Exists,
    GetAcl,
    Multi,
    NoAuth,
    NoNode,
    Request,
    SetAcl,
    SetData,
)
from zkconsumer.zk.store import ZkStore, submit_and_wait
from zkconsumer.zk.zk_security import DigestLogin, SaslDigestMd5Login, ZkSecurity

IDS = paths.ids(GROUP)
OFFSET_0 = paths.offset(GROUP, TopicPartition("clicks", 0))
NODES = {
    IDS, paths.owners(GROUP), paths.offsets(GROUP), OFFSET_0, paths.offset(GROUP, TopicPartition("clicks", 1)),
    *(make(GROUP, topic) for make in (paths.owners_of_topic, paths.offsets_of_topic) for topic in TOPICS),
}  # fmt: skip
READABLE = Acl(PERM_READ, "world", "anyone")


def ask(group: Group, *requests: Request) -> list[object]:
    """As a client without a login: every Scala consumer."""
    return list(submit_and_wait(group.member(), requests, 1_000))


def fenced(group: Group | None = None) -> Group:
    """Fenced by a process that has ended."""
    group = group or moved(*FENCING)
    with group.process() as authority:
        run_of(lambda one: fence_all(one, PLAIN))(authority)
    return group


PLAIN = lists_of(stood())


# --- the fence --------------------------------------------------------------------------------------------------


def test_lists_are_set_and_may_be_cut_off_anywhere() -> None:
    at_every_cut(lambda: moved(*FENCING), run_of(lambda authority: [acls(authority, PLAIN)]), writes_min=10)


def test_everything_is_fenced_and_may_be_cut_off_anywhere() -> None:
    at_every_cut(lambda: moved(*FENCING), run_of(lambda authority: fence_all(authority, PLAIN)), writes_min=13)


def test_the_parents_are_fenced_too_and_created_where_a_topic_has_none() -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        carry_out(authority, [AcquireLock(authority, WHO), acls(authority, PLAIN)])
        [us] = authority.own_acl_entries()
        lists = lists_of(group)
        assert set(lists) == NODES
        for path, acl in lists.items():
            is_owners = path.startswith(f"{paths.owners(GROUP)}/")
            assert set(acl) == {us, READ_AND_DELETE if is_owners else READ_ONLY}, path
        carry_out(authority, [acls(authority, PLAIN, members_leave=False)])
        assert all(set(acl) == {us, READ_ONLY} for acl in lists_of(group).values())
        assert acls(authority, PLAIN).check() == StepDone(), "stricter is good enough"


def test_nodes_that_are_taken_over_permit_no_delete_again() -> None:
    group = moved(*FENCING)
    group.login = DigestLogin(GENERATED_USER, "first")
    fenced(group)
    group.login = DigestLogin(GENERATED_USER, "second")
    with group.process() as authority:
        carry_out(authority, [AcquireLock(authority, WHO), acls(authority, PLAIN)])
        [us] = authority.own_acl_entries()
        assert all(set(acl) == {us, READ_ONLY} for path, acl in lists_of(group).items() if path in NODES)


def test_lists_that_the_connection_took_are_set_again() -> None:
    """No run ends a step with half of a level, though each level is asked for in one go."""
    group = moved(*FENCING)
    group.zookeeper.lose_connection_on_next(
        lambda request: isinstance(request, SetAcl) and request.path == OFFSET_0, is_done=False
    )
    with group.process() as authority:
        run_of(lambda one: [acls(one, PLAIN)])(authority)
    assert {path for path, acl in lists_of(group).items() if is_fence(acl)} == NODES


def test_a_server_without_multi_read_is_fenced_and_opened_the_same() -> None:
    """ZooKeeper 3.4 and 3.5."""
    group = stood()
    group.zookeeper.has_multi_read = False
    moved(*FENCING, group=group)
    with group.process() as authority:
        run_of(lambda one: fence_all(one, PLAIN))(authority)
        assert sum(map(is_fence, lists_of(group).values())) == len(NODES)
        carry_out(authority, [to(authority, Phase.UNDOING), *lift_all(authority, PLAIN)])
    assert lists_of(group) == PLAIN


def test_no_member_registers_acquires_or_commits_and_a_zombie_writes_no_offset() -> None:
    group = fenced()
    tp = TopicPartition("views", 0)
    for request in (
        Create(paths.registration(GROUP, "g1_a"), b"{}", ephemeral=True),
        Create(paths.owners_of_topic(GROUP, "new")),
        Create(paths.owner(GROUP, TopicPartition("views", 7)), b"me", ephemeral=True),
        SetData(OFFSET_0, b"7"),
        Create(paths.offset(GROUP, tp), b"7"),
        Create(paths.offsets_of_topic(GROUP, "new")),
        Delete(OFFSET_0),
        Delete(paths.owner(GROUP, tp)),
        Delete(IDS + "/x"),
    ):
        assert ask(group, request) == [NoAuth(request.path)], request


def test_while_members_leave_they_may_delete_their_claims() -> None:
    group = moved(*FENCING)
    path = paths.owner(GROUP, TopicPartition("clicks", 0))
    leaving = group.member()
    assert submit_and_wait(leaving, [Create(path, b"me", ephemeral=True)], 1_000) == [path]
    with group.process() as authority:
        carry_out(authority, [AcquireLock(authority, WHO), acls(authority, PLAIN)])
        assert submit_and_wait(leaving, [Delete(path), Create(path, b"me", ephemeral=True)], 1_000) == [
            None,
            NoAuth(path),
        ]


# --- only without members ---------------------------------------------------------------------------------------


def test_a_member_is_waited_for_by_name() -> None:
    group = moved(*FENCING)
    ask(group, Create(paths.registration(GROUP, "g1_a-1"), b"{}", ephemeral=True))
    with group.process() as authority:
        assert acls(authority, PLAIN).check() == StepWaiting("g1_a-1 to leave (1 registered)")


def test_a_member_that_registers_between_read_and_write_is_named_and_can_continue() -> None:
    """Its claims and offsets are not fenced, or it would stop reading and keep them."""
    group = moved(*FENCING)
    with group.process() as authority:
        carry_out(authority, [AcquireLock(authority, WHO)])
        step = acls(authority, PLAIN)
        assert step.check() == StepPending()
        ask(group, Create(paths.registration(GROUP, "g1_late-1"), b"{}", ephemeral=True))
        with pytest.raises(PartiallyDoneError, match="g1_late-1 registered in group g1"):
            step.do()
    assert [path for path, acl in lists_of(group).items() if is_fence(acl)] == [IDS]


# --- rights -----------------------------------------------------------------------------------------------------


def test_nodes_that_are_anothers_are_all_named_before_anything_is_changed() -> None:
    """Exit code 4."""
    group = stood()
    locked = (Acl(PERM_ALL, "digest", "alice:hash"), READABLE)
    group.zookeeper.set_acl(OFFSET_0, locked)
    group.zookeeper.set_acl(paths.offsets_of_topic(GROUP, "clicks"), locked)
    group.zookeeper.set_acl(IDS, ())
    before = group.state()
    with group.process() as authority, pytest.raises(PreconditionFailed) as caught:
        carry_out(authority, [CheckAclPermissions(authority.session, GROUP, TOPICS)])
    assert str(caught.value).startswith("this login may not change the access lists of 3 nodes:\n  /consumers/g1/ids\n")
    assert f"\n  {OFFSET_0}\nGive the login that created them (--zookeeper-auth), or" in str(caught.value)
    assert group.state() == before
    assert all(node.aversion <= 1 for node in group.zookeeper.tree._nodes.values()), "asked without a change"


def test_nodes_of_our_own_login_may_be_changed_whatever_the_list_calls_us() -> None:
    group = stood()
    group.login = SaslDigestMd5Login("alice", "secret")
    group.zookeeper.set_acl(OFFSET_0, (Acl(PERM_ALL, "sasl", "alice"), READABLE))
    with group.process() as authority:
        step = CheckAclPermissions(authority.session, GROUP, TOPICS)
        assert step.check() == StepDone()
        assert step.describe()
        step.do()


def with_lists(group: Group, lists: dict[str, AccessList]) -> tuple[list[str], int]:
    """The nodes of these lists on which we lack the right to administer, and how often the server was asked."""
    for path, acl in lists.items():
        group.zookeeper.ensure(path)
        group.zookeeper.set_acl(path, acl)
    with group.process() as authority:
        found = authority.session.get_acls(lists)
        store = group.stores[-1]
        sent = store.packets_sent
        lacking = paths_without_admin(authority.session, found)
        asked = store.packets_sent - sent
    assert all(node.aversion <= 1 for node in group.zookeeper.tree._nodes.values()), "asked without a change"
    return lacking, asked


def test_the_server_is_asked_for_the_right_to_administer_once_for_each_list() -> None:
    """It decides by the list and our login alone."""
    group = Group()
    group.login = SaslDigestMd5Login("alice", "secret")
    ours, theirs = (Acl(PERM_ALL, "sasl", "alice"), READABLE), (Acl(PERM_ALL, "digest", "bob:hash"), READABLE)
    lists = {f"/x/{number}": (ours, theirs, OPEN_ACL)[number % 3] for number in range(300)}
    lacking, asked = with_lists(group, lists)
    assert lacking == sorted(path for path, acl in lists.items() if acl == theirs)
    assert asked == 2


def test_for_a_scheme_that_may_use_the_path_the_server_is_asked_about_each_node() -> None:
    lists = {f"/x/{number}": (Acl(PERM_ALL, "x509", "CN=a"), READABLE) for number in range(5)}
    assert with_lists(Group(), lists) == (sorted(lists), 5)


def test_a_deleted_node_shows_nothing_about_nodes_with_the_same_list() -> None:
    group = Group()
    locked = (Acl(PERM_ALL, "digest", "bob:hash"), READABLE)
    lists = {f"/x/{number}": locked for number in range(4)}
    group.zookeeper.fail_next(lambda request: isinstance(request, SetAcl) and request.path == "/x/0", NoNode)
    assert with_lists(group, lists) == (["/x/1", "/x/2", "/x/3"], 3)


def test_a_permission_without_an_answer_is_an_error() -> None:
    group = Group()
    group.zookeeper.fail_next(lambda request: isinstance(request, SetAcl), ConnectionLost)
    with pytest.raises(ZkTimeoutException, match="did not report whether we may change the list of /x"):
        with_lists(group, {"/x": (Acl(PERM_ALL, "digest", "bob:hash"), READABLE)})


@pytest.mark.parametrize("has_multi_read", [True, False])
def test_the_server_checks_the_right_to_write_a_hundred_offsets_in_one_packet(has_multi_read: bool) -> None:
    """And nothing is written.  A server without multiRead is sent one read a node before that."""
    group = stood()
    group.zookeeper.has_multi_read = has_multi_read
    partitions = [TopicPartition("clicks", number) for number in range(1_000)]
    for tp in partitions:
        group.offset(tp.topic, tp.partition)
    nodes = GroupZnodes(GROUP, TOPICS, partitions, acl_fence=False)
    with group.process() as authority:
        store, session = group.stores[-1], authority.session
        stored = {path: session.get(path) for path in nodes.written}
        before = store.packets_sent
        assert CheckPermissions(session, nodes).check() == StepDone()
        sent = store.packets_sent - before
        assert {path: session.get(path) for path in nodes.written} == stored
        group.zookeeper.set_acl(OFFSET_0, (READABLE,))
        named = rf"1 node: {OFFSET_0} \(write\)"
        with pytest.raises(PreconditionFailed, match=named):
            carry_out(authority, [CheckPermissions(session, nodes)])
    assert sent == len(nodes.all_paths) + (1 if has_multi_read else len(partitions)) + len(partitions) // 100


@pytest.mark.parametrize("has_multi_read", [True, False])
def test_the_first_read_of_many_access_lists_is_a_packet_a_node_and_the_next_a_few(has_multi_read: bool) -> None:
    """A server that cannot read many nodes at once is asked about each again."""
    group = stood()
    group.zookeeper.has_multi_read = has_multi_read
    for number in range(1_000):
        group.offset("clicks", number)
    with group.process() as authority:
        store, session = group.stores[-1], authority.session
        nodes = [path for level in fenced_levels(session, GROUP, TOPICS) for path in level]
        missing = len([path for path in nodes if not group.zookeeper.tree.has_node(path)])
        sent = [store.packets_sent]
        for _ in range(2):
            assert len(session.get_acls(nodes)) == len(nodes) - missing
            sent.append(store.packets_sent)
        assert CheckAclPermissions(session, GROUP, TOPICS).check() == StepDone()
        sent.append(store.packets_sent)
        group.zookeeper.set_acl(OFFSET_0, (READABLE,))
        assert session.get_acls(nodes)[OFFSET_0] == (READABLE,)
        sent.append(store.packets_sent)
    first, again, other, changed = (then - before for before, then in pairwise(sent))
    assert first == len(nodes)
    few = 1 if has_multi_read else len(nodes) - missing
    assert again == few + missing, "what is not there may be made at any moment"
    assert other <= few + missing + 10, "the names below the group"
    assert changed == few + missing + 1


def test_each_offset_that_we_may_not_write_is_named_and_one_that_went_meanwhile_is_not() -> None:
    group = stood()
    partitions = [TopicPartition("clicks", number) for number in range(250)]
    for tp in partitions:
        group.offset(tp.topic, tp.partition)
    offsets = [paths.offset(GROUP, tp) for tp in partitions]
    forbidden = [offsets[number] for number in (0, 3, 4, 99, 100, 249)]
    for path in forbidden:
        group.zookeeper.set_acl(path, (READABLE,))
    gone = offsets[7]
    with group.process() as authority:

        def deletes(request: object) -> bool:
            if isinstance(request, Multi) and group.zookeeper.tree.has_node(gone):
                group.zookeeper.remove(gone)
            return False

        group.zookeeper.fail_next(deletes, NoNode)
        assert sorted(unwritable(authority.session, [*offsets, f"{offsets[0]}0000"])) == sorted(forbidden)


@pytest.mark.parametrize(("times", "is_told"), [(2, True), (3, False)])
def test_a_lost_answer_about_writes_is_asked_for_again_three_times_at_most(times: int, is_told: bool) -> None:
    group = stood()
    offset = paths.offset(GROUP, TopicPartition("clicks", 0))
    with group.process() as authority:
        for _ in range(times):
            group.zookeeper.fail_next(lambda request: isinstance(request, Multi), ConnectionLost)
        if is_told:
            assert unwritable(authority.session, [offset]) == []
        else:
            with pytest.raises(
                ZkTimeoutException, match=f"did not report whether we may write {offset}: ConnectionLost"
            ):
                unwritable(authority.session, [offset])


def test_data_that_is_no_offset_is_checked_in_a_packet_of_its_own() -> None:
    group = stood()
    for number in range(3):
        group.offset("clicks", number)
    offsets = [paths.offset(GROUP, TopicPartition("clicks", number)) for number in range(3)]
    group.zookeeper.ensure(offsets[1], b"x" * 900_000)
    with group.process() as authority:
        store = group.stores[-1]
        sent = store.packets_sent
        assert unwritable(authority.session, offsets) == []
        assert store.packets_sent - sent == 3


def test_permissions_that_are_lost_after_the_check_are_named() -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        carry_out(authority, [AcquireLock(authority, WHO)])
        step = acls(authority, PLAIN)
        assert step.check() == StepPending()
        group.zookeeper.set_acl(OFFSET_0, (READABLE,))
        with pytest.raises(PartiallyDoneError, match=f"refused to change {OFFSET_0}: NoAuth"):
            step.do()
        with pytest.raises(PartiallyDoneError, match=f"may not change the access lists of 1 nodes:\n  {OFFSET_0}"):
            carry_out(authority, [step])


def test_a_session_without_a_login_can_fence_nothing() -> None:
    group = moved(*FENCING)
    group.login = None
    with group.process() as authority, pytest.raises(PartiallyDoneError, match="--zookeeper-auth, or --no-acl-fence"):
        run_of(lambda one: [acls(one, PLAIN)])(authority)


# --- whose lists ------------------------------------------------------------------------------------------------


def test_a_run_with_another_login_takes_the_nodes_back() -> None:
    """The login was a random one, and no process has it any more."""
    for at in range(1, 16):
        group = moved(*FENCING)
        group.login = DigestLogin(GENERATED_USER, "first")
        with pytest.raises(Killed), group.process(Cut(at, "before")) as authority:
            run_of(lambda one: [*fence_all(one, PLAIN), to(one, Phase.FENCED)])(authority)
        group.login = DigestLogin(GENERATED_USER, "second")
        with group.process() as authority:
            run_of(lambda one: fence_all(one, PLAIN))(authority)
            [us] = authority.own_acl_entries()
            assert all(us in acl for path, acl in lists_of(group).items() if path in NODES)
            carry_out(authority, [to(authority, Phase.UNDOING), *lift_all(authority, PLAIN)])
        assert lists_of(group) == PLAIN


def test_this_login_removes_the_fence_of_another_login() -> None:
    """The parents that the fence made are deleted below parents that the other login made."""
    group = moved(*FENCING)
    group.login = DigestLogin(GENERATED_USER, "first")
    fenced(group)
    group.login = DigestLogin(GENERATED_USER, "second")
    with group.process() as authority:
        run_of(lambda one: [to(one, Phase.UNDOING), *lift_all(one, PLAIN)])(authority)
    assert lists_of(group) == PLAIN


def test_in_a_rollback_the_offset_znodes_are_taken_over_for_writing() -> None:
    group = moved(*FENCING)
    group.login = DigestLogin(GENERATED_USER, "first")
    fenced(group)
    way = (Phase.FENCED, Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED, Phase.RETURNING)
    moved_on = [lambda one, phase=phase: to(one, phase) for phase in way]
    group.login = DigestLogin(GENERATED_USER, "second")
    with group.process() as authority:
        carry_out(authority, [AcquireLock(authority, WHO), *(make(authority) for make in moved_on)])
        assert authority.session.request([SetData(OFFSET_0, b"50")]) == [NoAuth(OFFSET_0)]
        carry_out(authority, [acls(authority, PLAIN, members_leave=False)])
        assert authority.session.request([SetData(OFFSET_0, b"50")]) != [NoAuth(OFFSET_0)]


@pytest.mark.parametrize("acl", [
    (), OPEN_ACL, (READABLE,), (READ_ONLY,), (Acl(PERM_ALL, "sasl", "kafka"), READABLE),
    (READ_ONLY, Acl(PERM_READ, "digest", "a:b")), (READ_ONLY, READ_AND_DELETE, Acl(PERM_ALL, "digest", "a:b")),
])  # fmt: skip
def test_lists_that_people_make_are_no_fence(acl: tuple[Acl, ...]) -> None:
    assert not is_fence(acl)


def test_a_fence_that_the_plan_saw_already_is_refused() -> None:
    """The lists from before are unknown."""
    group = moved(*FENCING)
    with group.process() as authority:
        left = {OFFSET_0: (Acl(PERM_ALL, "digest", "x:y"), READ_ONLY)}
        with pytest.raises(PreconditionFailed, match=r"clicks/0 and 0 more nodes already had the lists of a fence"):
            carry_out(authority, [acls(authority, left)])


# --- a stale run ------------------------------------------------------------------------------------------------


def test_a_stale_run_changes_no_list() -> None:
    """A server without multi: each write is conditional on the session that has the lock of the run."""
    group = moved(*FENCING)
    with group.process() as stale:
        carry_out(stale, [AcquireLock(stale, WHO)])
        store = group.stores[-1]
        session_id = stale.require_lock_session()
        group.zookeeper.expire(store)
        with group.process() as other:
            run_of(lambda one: [to(one, Phase.UNDOING), to(one, Phase.UNDONE)])(other)
        before = group.state()
        stale.session.request([SetAcl(IDS, (READABLE,))], session_id)
        with pytest.raises(PartiallyDoneError):
            acls(stale, PLAIN).do()
        with pytest.raises(PartiallyDoneError):
            carry_out(stale, [RestoreAcls(stale, TOPICS, PLAIN)])
        assert group.state() == before


def test_a_run_that_lost_its_session_in_the_middle_stops() -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        carry_out(authority, [AcquireLock(authority, WHO)])
        step = acls(authority, PLAIN)
        assert step.check() == StepPending()
        group.zookeeper.expire(group.stores[-1])
        with pytest.raises((PartiallyDoneError, UsageError)):
            step.do()
    assert not any(is_fence(acl) for acl in lists_of(group).values())


# --- what the plan did not see ----------------------------------------------------------------------------------


def odd() -> Group:
    """After the plan: a list was changed, an offset and a topic came."""
    group = moved(*FENCING)
    group.zookeeper.set_acl(OFFSET_0, (Acl(PERM_ALL, "digest", "alice:hash"), Acl(PERM_ALL, "world", "anyone")))
    group.offset("clicks", 2)
    group.offset("late", 0)
    group.zookeeper.ensure(f"{paths.offsets(GROUP)}/clicks/odd", b"x")
    return group


def test_nodes_created_after_the_plan_are_fenced_and_their_lists_restored() -> None:
    made = [path for path in PLAIN if "views" not in path]
    at_every_cut(
        odd, run_of(lambda one: [SetFenceAcls(one, (), {path: PLAIN[path] for path in made}, True)]), writes_min=16
    )
    group = odd()
    before = lists_of(group)
    with group.process() as authority:
        run_of(lambda one: fence_all(one, PLAIN))(authority)
        fences = {path for path, acl in lists_of(group).items() if is_fence(acl)}
        late = {f"{root}/late" for root in (paths.owners(GROUP), paths.offsets(GROUP))}
        came = {paths.offset(GROUP, TopicPartition("clicks", 2)), f"{paths.offsets(GROUP)}/clicks/odd"}
        assert fences == {*NODES, *late, *came, paths.offset(GROUP, TopicPartition("late", 0))}
        carry_out(authority, [to(authority, Phase.UNDOING), *lift_all(authority, PLAIN)])
    assert {path: set(acl) for path, acl in lists_of(group).items()} == {p: set(acl) for p, acl in before.items()}


def test_a_plan_without_complete_access_lists_locks_no_member_out(tmp_path: Path) -> None:
    """A session without ADMIN receives ``alice:x``; restored so, the list would belong to no login."""
    alice = DigestLogin("alice", "secret")
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("alice:secret")
    group = stood()
    group.login, group.auth = alice, f"digest:{secret}"
    moved(*FENCING, group=group)
    store = FakeZkStore(group.zookeeper, "", 6_000, alice)
    store.start(1_000)
    submit_and_wait(store, [SetAcl(OFFSET_0, (Acl(PERM_ALL, "auth", ""), READABLE))], 1_000)
    [told] = ask(group, GetAcl(OFFSET_0))
    assert told == (Acl(PERM_ALL, "digest", "alice:x"), READABLE)
    before = lists_of(group)
    planned = {**PLAIN, OFFSET_0: told}
    with group.process() as authority:
        run_of(lambda one: [*fence_all(one, planned), to(one, Phase.UNDOING), *lift_all(one, planned)])(authority)
    assert lists_of(group) == before


def test_a_node_with_a_login_that_came_after_the_plan_stops_a_run_without_one(tmp_path: Path) -> None:
    """Its list would be stored where every client may read it."""
    group = moved(*FENCING)
    group.zookeeper.set_acl(OFFSET_0, (Acl(PERM_ALL, "digest", "alice:hash"), Acl(PERM_ALL - 2, "world", "anyone")))
    with (
        group.process() as authority,
        pytest.raises(PartiallyDoneError, match=r"is protected: .*clicks/0 .*--zookeeper-auth"),
    ):
        run_of(lambda one: [acls(one, PLAIN)])(authority)
    assert not any(b"alice" in data for data, _ in group.state().values())


@pytest.mark.parametrize("path", ["/a", "/consumers/g1/offsets/é日", '/a"b\\'])
@pytest.mark.parametrize("acl", [(), OPEN_ACL, (Acl(31, "x509", 'CN="a"'), Acl(1, "sasl", "kafka/é@REALM"), READABLE)])
def test_access_lists_are_restored_from_their_pieces(path: str, acl: tuple[Acl, ...]) -> None:
    lists = {path: acl, "/other": (READABLE,)}
    [piece] = late_acls._pieces(lists)
    assert late_acls._parse(piece) == lists
    assert list(late_acls._pieces({})) == []


def test_many_lists_are_kept_in_pieces_each_whole_and_the_later_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_acls, "LISTS_MAX", 3)
    group = moved(*FENCING)
    many = {f"/n{number}": (READABLE,) for number in range(10)}
    with group.process() as authority:
        store_late_acls(authority, many)
        store_late_acls(authority, {"/n3": OPEN_ACL})
        assert read_late_acls(authority) == {**many, "/n3": OPEN_ACL}
        assert group.zookeeper.data(paths.control_child(GROUP, acl_piece_name(4))) is not None


@pytest.mark.parametrize("data", [
    b"", b"x", pack(b"[]")[0], pack(b"{}")[0], pack(b'{"schema":"zkconsumer.migration.acls/2","lists":{}}')[0],
    pack(json.dumps({"schema": late_acls.SCHEMA, "lists": {"/a": [["1", "a", "b"]]}}).encode())[0],
])  # fmt: skip
def test_damaged_lists_are_reported_and_nothing_is_restored(data: bytes) -> None:
    group = fenced()
    group.zookeeper.ensure(paths.control_child(GROUP, acl_piece_name(0)), data)
    with group.process() as authority:
        carry_out(authority, [AcquireLock(authority, WHO), to(authority, Phase.UNDOING)])
        before = group.state()
        with pytest.raises(VerificationError, match=r"acls-0000 is damaged.*manually"):
            carry_out(authority, [RestoreAcls(authority, TOPICS, PLAIN)])
    assert group.state() == before


# --- back -------------------------------------------------------------------------------------------------------


def test_every_list_is_restored_and_may_be_interrupted_anywhere() -> None:
    def make() -> Group:
        group = fenced()
        with group.process() as authority:
            carry_out(authority, [to(authority, Phase.UNDOING)])
        return group

    at_every_cut(make, run_of(lambda authority: lift_all(authority, PLAIN)), writes_min=11)
    group = make()
    with group.process() as authority:
        run_of(lambda one: lift_all(one, PLAIN))(authority)
    assert lists_of(group) == PLAIN
    assert all(is_open(acl) for _, acl in group.state().values())


def test_registering_is_possible_last() -> None:
    """So that a member that registers finds everything open."""
    group = fenced()
    with group.process() as authority:
        carry_out(
            authority, [AcquireLock(authority, WHO), to(authority, Phase.UNDOING), RemoveOwnerFences(authority, PLAIN)]
        )
    for at in range(2, 20):
        try:
            with group.process(Cut(at, "before")) as authority:
                run_of(lambda one: [RestoreAcls(one, TOPICS, PLAIN)])(authority)
        except Killed:
            pass
        still = {path for path, acl in lists_of(group).items() if is_fence(acl)}
        assert IDS in still or not still
    assert lists_of(group) == PLAIN


def test_an_access_list_that_another_client_changed_meanwhile_is_not_restored() -> None:
    group = fenced()
    mine = (Acl(PERM_ALL, "digest", "somebody:else"),)
    group.zookeeper.set_acl(OFFSET_0, mine)
    with group.process() as authority:
        run_of(lambda one: [to(one, Phase.UNDOING), *lift_all(one, PLAIN)])(authority)
    assert lists_of(group)[OFFSET_0] == mine


def test_a_node_created_for_the_fence_that_has_children_now_is_open() -> None:
    group = fenced()
    path = paths.offset(GROUP, TopicPartition("views", 0))
    with group.process() as authority:
        assert authority.session.request([Create(path, b"7")]) == [path]
        run_of(lambda one: [to(one, Phase.UNDOING), *lift_all(one, PLAIN)])(authority)
    lists = lists_of(group)
    assert lists[path] == lists[paths.offsets_of_topic(GROUP, "views")] == OPEN_ACL
    assert paths.owners_of_topic(GROUP, "views") not in lists


def test_a_group_without_any_nodes_is_fenced_and_undone_nevertheless() -> None:
    group = Group()
    group.topic("clicks", 3)
    group.topic("views", 1)
    moved(*FENCING, group=group)
    with group.process() as authority:
        run_of(lambda one: [acls(one, {}), to(one, Phase.UNDOING), *lift_all(one, {})])(authority)
    assert lists_of(group) == {}


def test_after_fenced_no_list_is_set_and_after_undone_none_is_restored() -> None:
    group = moved(*FENCING, Phase.FENCED)
    with group.process() as authority:
        assert acls(authority, PLAIN).check() == StepDone()
        assert acls(authority, PLAIN).describe() == [
            "change the access lists of 9 nodes, from /consumers/g1/ids: the world reads only"
        ]
    group = moved(*UNDOING, Phase.UNDONE)
    with group.process() as authority:
        assert RestoreAcls(authority, TOPICS, PLAIN).check() == StepDone()
        assert RemoveOwnerFences(authority, ()).check() == StepDone()
    group = fenced()
    with group.process() as authority:
        step = RestoreAcls(authority, TOPICS, PLAIN)
        assert step.describe() == ["restore the access lists of 9 nodes"]
        with pytest.raises(PartiallyDoneError, match="in phase fencing"):
            carry_out(authority, [AcquireLock(authority, WHO), step])


# --- logins ------------------------------------------------------------------------------------------------------


def config(**more: str) -> ConsumerConfig:
    return tools_config(ADDRESS, None, None, more)


def test_without_a_login_a_new_random_one_is_generated(tmp_path: Path) -> None:
    first, second = (fence_security(config(), acl_fence=True).login for _ in range(2))
    assert isinstance(first, DigestLogin)
    assert isinstance(second, DigestLogin)
    assert first.user == second.user == GENERATED_USER
    assert first.password != second.password
    assert len(first.password) >= 32
    assert first.password not in repr(first)
    assert fence_security(config(), acl_fence=False).login is None
    secret = tmp_path / "secret"
    secret.touch(0o600)
    secret.write_text("bob:secret")
    auth = {"zookeeper.auth": f"digest:{secret}"}
    assert fence_security(config(**auth), acl_fence=True).login == DigestLogin("bob", "secret")
    assert fence_security(config(**auth), acl_fence=False).login == DigestLogin("bob", "secret")


def test_the_flag_wins_over_the_file_and_a_session_is_opened_with_it(tmp_path: Path) -> None:
    group = moved(*FENCING)
    told: list[ZkSecurity] = []

    def store(connect: str, timeout_ms: int, *, security: ZkSecurity) -> ZkStore:
        told.append(security)
        return FakeZkStore(group.zookeeper, "", timeout_ms, security.login)

    for name in ("one", "two"):
        (tmp_path / name).touch(0o600)
        (tmp_path / name).write_text(f"{name}:secret")
    (tmp_path / "config").write_text(f"zookeeper.auth=digest:{tmp_path}/one\n")
    for flag, acl_fence, user in (
        (f"digest:{tmp_path}/two", True, "two"), (None, True, "one"), (None, False, "one"),
    ):  # fmt: skip
        with open_fence_session(
            ADDRESS, tmp_path / "config", AdminDependencies(store=store), zookeeper_auth=flag, acl_fence=acl_fence
        ) as session:
            assert session.request([Exists(IDS)]) != [None]
        login = told[-1].login
        assert isinstance(login, DigestLogin)
        assert login.user == user
    with open_fence_session(ADDRESS, None, AdminDependencies(store=store)) as session:
        assert session.request([Exists(IDS)]) != [None]
        assert session.max_session_timeout_ms() == 40_000
    assert isinstance(told[-1].login, DigestLogin)
    assert told[-1].login.user == GENERATED_USER
    with pytest.raises(InvalidConfigException, match=r"zookeeper\.auth"):
        open_fence_session(ADDRESS, None, AdminDependencies(store=store), zookeeper_auth="password")


def test_no_secret_is_in_any_node_or_text() -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        run_of(lambda one: fence_all(one, PLAIN))(authority)
    assert not any(b"secret" in data for data, _ in group.state().values())
    assert not any("secret" in entry.id for _, acl in group.state().values() for entry in acl)
