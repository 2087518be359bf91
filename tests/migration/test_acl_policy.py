"""Which logins may read and write the nodes of a migration: only one login migrates a group with access lists."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.migration.control.acl_policy import RunAclPolicy, format_acl, group_logins, matches_login
from bridge.migration.control.control_acls import check_control_acls
from bridge.migration.control.control_layout import (
    ABORT_CHILD,
    MEMBERS_CHILD,
    accepted_piece_name,
    acl_piece_name,
    plan_piece_name,
)
from bridge.migration.control.control_pieces import DamagedPiecesError, pack, unpack
from bridge.migration.control.control_steps import AcquireLock, AdvancePhase, CreateControlZnode, request_abort
from bridge.migration.control.phases import Phase
from bridge.migration.errors import PartiallyDoneError, VerificationError
from bridge.migration.fences.fence_acl_steps import SetFenceAcls
from bridge.migration.fences.fence_acls import FENCE_ACL_USER, fence_acl_entry, is_fence
from bridge.migration.fences.late_acls import SCHEMA, read_late_acls
from bridge.migration.inspect.migration_status import read_migration_status
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_file import plan_to_bytes
from bridge.migration.plan.plan_json import digest_of_plan
from bridge.migration.steps.step import MigrationStep
from bridge.migration.steps.znode_archive import read_archive
from tests.migration.acl_fixtures import (
    ALICE,
    CONTROL,
    MALLORY,
    OPERATOR,
    PROTECTED,
    WORLD_READS,
    acl_of,
    all_of,
    ask,
    auth_of,
    hash_of,
    lists_below,
    log_in,
    may,
    open_node,
    protect,
    protected_ground,
    resume,
)
from tests.migration.dual_kill_cases import DualKillScenario
from tests.migration.kill_cases import GROUP, PARTITIONS, PLAIN, STORED, T0, KillScenario
from tests.migration.migrating_spark_query import ids_of, move, move_back, query_of, records
from tests.migration.migration_write_faults import DECISIONS, EXPECTED, Lab, lab
from tests.migration.step_write_faults import carry_out
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import (
    OPEN_ACL,
    PERM_ADMIN,
    PERM_ALL,
    PERM_CREATE,
    PERM_DELETE,
    PERM_READ,
    PERM_WRITE,
    Acl,
    Create,
    Delete,
    Get,
    GetAcl,
    NoAuth,
    SetAcl,
    SetData,
    ZnodeData,
)
from zkconsumer.zk.zk_security import SECURE_ACL, SaslDigestMd5Login, SaslGssapiLogin

__all__ = ["lab"]

ROOT = paths.group_root(GROUP)
OFFSET_0 = paths.offset(GROUP, T0)
OTHERS = (None, ALICE, MALLORY)


@pytest.fixture
def ground(tmp_path: Path) -> KillScenario:
    return protected_ground(tmp_path)


def begun(ground: KillScenario, phase: Phase = Phase.VERIFIED) -> MigrationPlan:
    plan = ground.plan_it("copy")
    with ground.process() as session:
        ground.apply(session, plan, **({} if phase is Phase.SWITCHED else {"stop_after": phase}))
    return plan


def forged(plan: MigrationPlan, target: int = 48, stored: int | None = None) -> bytes:
    """The plan with another start of the first partition; ``stored``: and with that as what ZooKeeper had."""
    seen = dict(plan.snapshot.partitions)
    if stored is not None:
        seen[T0] = replace(seen[T0], stored=stored)
    rows = tuple(
        replace(row, target=target, stored=row.stored if stored is None else stored) if row.tp == T0 else row
        for row in plan.partitions
    )
    anew = replace(plan, partitions=rows, snapshot=replace(plan.snapshot, partitions=seen))
    return plan_to_bytes(replace(anew, digest=digest_of_plan(anew)))


# --- what others can read and write -----------------------------------------------------------------------------


@pytest.mark.parametrize("phase", [Phase.FENCED, Phase.VERIFIED, Phase.SWITCHED])
def test_no_hash_of_a_password_is_in_a_node_that_others_may_read(ground: KillScenario, phase: Phase) -> None:
    begun(ground, phase)
    plan = f"{CONTROL}/{plan_piece_name(0)}"
    with ground.process() as session:
        node = session.get(plan)
    assert node is not None
    assert hash_of(ALICE).encode() in unpack([node.data]), "the plan holds access lists"
    for login in OTHERS:
        assert ask(ground, login, Get(plan), GetAcl(plan)) == [NoAuth(plan)] * 2
        for path in ground.zookeeper.tree.dump():
            [node] = ask(ground, login, Get(path))
            if isinstance(node, ZnodeData):
                try:
                    text = unpack([node.data])
                except DamagedPiecesError:
                    text = node.data
                assert hash_of(ALICE).encode() not in text, path
                assert hash_of(OPERATOR).encode() not in text, path


@pytest.mark.parametrize("login", OTHERS)
@pytest.mark.parametrize("phase", [Phase.FENCED, Phase.SWITCHED])
def test_others_change_nothing_of_a_migration(ground: KillScenario, login: object, phase: Phase) -> None:
    begun(ground, phase)
    below = [path for path in ground.zookeeper.tree.dump() if f"{path}/".startswith(f"{CONTROL}/")]
    for path in below:
        if path.rpartition("/")[2] != ABORT_CHILD:
            assert not may(ground, login, SetData(path, b"x")), path
        assert not may(ground, login, SetAcl(path, OPEN_ACL)), path
        assert not may(ground, login, Delete(path)), path
    for name in (plan_piece_name(1), accepted_piece_name(0), acl_piece_name(0), "journal", "run", "leave", "fence"):
        assert not may(ground, login, Create(f"{CONTROL}/{name}", b"x")), name
    for parent in paths.parents(CONTROL):
        assert not may(ground, login, SetAcl(parent, OPEN_ACL)), parent
        assert not may(ground, login, Create(f"{parent}/other")), parent
    for tp in PARTITIONS:
        fence = paths.owner(GROUP, tp)
        for request in (SetData(fence, b"x"), Delete(fence), Delete(f"{fence}/fenced"), Create(f"{fence}/x")):
            assert not may(ground, login, request), request


def test_the_fence_gives_no_login_more_than_before_and_the_world_never_the_right_to_administer(
    ground: KillScenario,
) -> None:
    hidden = (all_of(ALICE), all_of(OPERATOR))
    ground.zookeeper.set_acl(OFFSET_0, hidden)
    before = lists_below(ground, ROOT)
    plan = begun(ground, Phase.FENCED)
    mark = fence_acl_entry(plan.migration_id)
    for path, acl in lists_below(ground, ROOT).items():
        if path not in before or path == ROOT:
            continue
        assert acl == {
            all_of(OPERATOR), mark, *(one._replace(perms=PERM_READ) for one in before[path]),
        }, path  # fmt: skip
        for login in OTHERS:
            assert not may(ground, login, SetAcl(path, OPEN_ACL)), path
            assert not may(ground, login, SetData(path, b"1")), path
    assert ask(ground, None, Get(OFFSET_0)) == [NoAuth(OFFSET_0)], "what the world could not read it cannot read now"
    assert not may(ground, None, Create(f"{paths.ids(GROUP)}/old", b"x", ephemeral=True))
    with ground.process() as session:
        ground.back(session, plan)
    after = lists_below(ground, ROOT)
    assert after == {path: before[path] for path in after}


def test_members_that_leave_may_delete_their_claims_with_the_login_that_they_have(ground: KillScenario) -> None:
    """An old member that is stopped during the move; the world might not delete before, and may not now."""
    plan = ground.plan_it("copy")
    owners = paths.owners_of_topic(GROUP, "t")
    with ground.process() as session:
        authority = ground.moving(session, plan).control_znode
        steps: list[MigrationStep] = [
            CreateControlZnode(authority, "copy"), AcquireLock(authority, "me"), AdvancePhase(authority, Phase.FENCING),
        ]  # fmt: skip
        carry_out(authority, [*steps, SetFenceAcls(authority, ("t",), plan.snapshot.acls, members_may_delete=True)])
        [leaving, reading] = [
            next(one.perms for one in acl_of(ground, owners) if one.id == who) for who in (hash_of(ALICE), "anyone")
        ]
        assert (leaving, reading) == (PERM_READ | PERM_DELETE, PERM_READ)
        carry_out(authority, [SetFenceAcls(authority, ("t",), plan.snapshot.acls, members_may_delete=False)])
        assert {one.perms for one in acl_of(ground, owners)} == {PERM_READ, PERM_ALL}


def test_a_migration_and_its_rollback_restore_the_access_lists(ground: KillScenario) -> None:
    before = lists_below(ground, ROOT)
    plan = begun(ground, Phase.SWITCHED)
    ground.modern(dict.fromkeys(PARTITIONS, 30))
    with ground.process() as session:
        ground.back(session, plan)
    assert ground.stands(GROUP) == ("undone", "zookeeper")
    after = lists_below(ground, ROOT)
    assert {path: acl for path, acl in after.items() if path in before} == {
        path: acl for path, acl in before.items() if path in after
    }
    new = {path: acl for path, acl in after.items() if path not in before}
    assert new == {paths.offset(GROUP, tp): set(PROTECTED) for tp in PARTITIONS if tp not in STORED}, (
        "an offset that came with the way back is as those of the members are"
    )


def test_the_archive_of_a_protected_group_has_no_open_node_and_is_the_operators_alone(ground: KillScenario) -> None:
    """Also nodes that were made for the fence: ``restore`` creates nodes with the lists of the archive."""
    begun(ground, Phase.SWITCHED)
    tp = TopicPartition("t", 7)
    fence = (all_of(OPERATOR), fence_acl_entry("mg"), WORLD_READS)
    assert may(ground, OPERATOR, Create(paths.offset(GROUP, tp), b"1", acl=fence)), "it came after the plan was made"
    with ground.process() as session:
        ground.complete(session)
    file = ground.folder / "znodes"
    below = {node.path: set(node.acl) for node in read_archive(file).nodes if "/offsets" in node.path}
    assert paths.offset(GROUP, tp) in below
    assert all(acl == set(PROTECTED) for acl in below.values())
    assert file.stat().st_mode & 0o777 == 0o600


def test_without_the_access_list_fence_restored_offsets_have_the_list_of_the_group(tmp_path: Path) -> None:
    ground = KillScenario(tmp_path, PLAIN)
    protect(ground.zookeeper)
    log_in(ground, OPERATOR, ground.folder)
    plan = begun(ground, Phase.SWITCHED)
    assert plan.snapshot.acls == {}
    ground.modern(dict.fromkeys(PARTITIONS, 30))
    with ground.process() as session:
        ground.back(session, plan)
    assert acl_of(ground, paths.offset(GROUP, PARTITIONS[2])) == set(PROTECTED)


# --- forged plans, forged lists ---------------------------------------------------------------------------------


def test_an_unprotected_group_stays_as_open_as_it_was(tmp_path: Path) -> None:
    ground = KillScenario(tmp_path)
    begun(ground, Phase.FENCED)
    assert lists_below(ground, CONTROL).keys() >= {CONTROL, f"{CONTROL}/{plan_piece_name(0)}"}
    assert all(acl == set(OPEN_ACL) for acl in lists_below(ground, "/zkconsumer").values())
    assert all(FENCE_ACL_USER not in one.id for acl in lists_below(ground, ROOT).values() for one in acl)


@pytest.mark.parametrize("phase", [Phase.FENCED, Phase.COPIED, Phase.VERIFIED])
def test_accepted_starts_that_do_not_follow_from_the_plan_are_refused(tmp_path: Path, phase: Phase) -> None:
    ground = KillScenario(tmp_path)
    plan = begun(ground, phase)
    before = ground.stored()
    assert may(ground, None, Create(f"{CONTROL}/{accepted_piece_name(0)}", pack(forged(plan))[0])), "it is open"
    with ground.process() as session, pytest.raises(PreconditionFailed, match="contains 48 for t/0, and") as no:
        resume(ground, session)
    assert f"{CONTROL}/accepted-0000" in str(no.value)
    assert (ground.stored(), ground.control(GROUP).phase) == (before, phase.value)  # type: ignore[union-attr]


@pytest.mark.parametrize("phase", [Phase.FENCED, Phase.COPIED, Phase.VERIFIED])
def test_accepted_offsets_that_are_not_in_zookeeper_are_refused(tmp_path: Path, phase: Phase) -> None:
    """The decisions of the plan give 48 for ZooKeeper's value in the forged plan."""
    ground = KillScenario(tmp_path)
    plan = begun(ground, phase)
    before = ground.stored()
    assert may(ground, None, Create(f"{CONTROL}/{accepted_piece_name(0)}", pack(forged(plan, 48, 48))[0]))
    with ground.process() as session, pytest.raises(PartiallyDoneError, match=r"ZooKeeper had 48 .* and has 10"):
        resume(ground, session)
    assert (ground.stored(), ground.control(GROUP).phase) == (before, phase.value)  # type: ignore[union-attr]


def test_decisions_of_an_accepted_plan_are_those_of_the_first_one(tmp_path: Path) -> None:
    ground = KillScenario(tmp_path)
    plan = begun(ground, Phase.FENCED)
    other = replace(plan, decisions=replace(plan.decisions, offsets={T0: 48}))
    data = forged(other)
    assert may(ground, None, Create(f"{CONTROL}/{accepted_piece_name(0)}", pack(data)[0]))
    with ground.process() as session, pytest.raises(PreconditionFailed, match="in more than offsets"):
        resume(ground, session)


def test_a_plan_whose_starts_do_not_follow_from_its_decisions_is_refused_after_the_fences(tmp_path: Path) -> None:
    ground = KillScenario(tmp_path)
    plan = begun(ground, Phase.FENCED)
    assert may(ground, None, SetData(f"{CONTROL}/{plan_piece_name(0)}", pack(forged(plan))[0]))
    with ground.process() as session, pytest.raises(VerificationError, match=r"t/0: the plan contains 48 \(cop") as no:
        resume(ground, session)
    assert "its decisions give 10 (copied)" in str(no.value)
    assert ground.stored() == {}


def test_drift_that_was_accepted_is_carried_out_by_the_next_run(ground: KillScenario) -> None:
    begun(ground, Phase.FENCED)
    assert may(ground, OPERATOR, SetData(OFFSET_0, b"12"))
    with ground.process() as session:
        resume(ground, session, accept_drift=True, stop_after=Phase.VERIFIED)
        assert acl_of(ground, f"{CONTROL}/{accepted_piece_name(0)}") == {all_of(OPERATOR)}
    with ground.process() as session:
        resume(ground, session)
    assert {tp: value[0] for tp, value in ground.stored().items()} == EXPECTED | {T0: 12}


def test_saved_lists_that_others_may_have_written_are_not_restored(ground: KillScenario) -> None:
    plan = begun(ground, Phase.FENCED)
    piece = f"{CONTROL}/{acl_piece_name(0)}"
    assert ask(ground, None, Create(piece, b"x")) == [NoAuth(piece)]
    lists = {"schema": SCHEMA, "lists": {OFFSET_0: [[PERM_ALL, "world", "anyone"]]}}
    data = pack(json.dumps(lists).encode())[0]
    assert may(ground, OPERATOR, Create(piece, data, acl=OPEN_ACL)), "an earlier release did so"
    with ground.process() as session, pytest.raises(PreconditionFailed, match="acls-0000 has world:anyone:cdrwa"):
        ground.back(session, plan)
    assert not may(ground, None, SetData(OFFSET_0, b"1"))
    with (
        ground.process() as session,
        pytest.raises(VerificationError, match="other than digest user 'operator' may"),
    ):
        read_late_acls(ground.moving(session, plan).control_znode)


# --- logins ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("login", "words"),
    [(MALLORY, "digest user 'mallory'"), (replace(OPERATOR, password="new"), "digest user 'operator'"),
     (ALICE, "digest user 'alice'"), (None, r"no login of its own")],
)  # fmt: skip
@pytest.mark.parametrize("phase", [Phase.FENCED, Phase.SWITCHED])
def test_a_run_with_another_login_is_refused_before_it_changes_anything(
    ground: KillScenario, login: object, words: str, phase: Phase
) -> None:
    plan = begun(ground, phase)
    before = ground.zookeeper.tree.dump(), lists_below(ground, "/")
    log_in(ground, login, ground.folder)  # type: ignore[arg-type]
    for act in ("apply", "rollback", "complete", "look"):
        with ground.process() as session, pytest.raises(PreconditionFailed) as no:
            match act:
                case "look":
                    check_control_acls(session, GROUP)
                case "apply":
                    ground.apply(session, plan)
                case "rollback":
                    ground.back(session, plan)
                case "complete":
                    ground.complete(session)
        assert f"{CONTROL} belongs to digest:operator:..., and this run has " in str(no.value)
        assert words in str(no.value)
        assert not any(hash_of(one).partition(":")[2] in str(no.value) for one in (ALICE, OPERATOR, MALLORY))
    assert (ground.zookeeper.tree.dump(), lists_below(ground, "/")) == before


def test_a_protected_group_needs_a_login(ground: KillScenario) -> None:
    """Also where every client has the permissions that the steps need, with the access list fence and without it."""
    log_in(ground, None, ground.folder)
    for decisions, missing in ((ground.decisions, PERM_WRITE), (PLAIN, PERM_ADMIN)):
        protect(ground.zookeeper, (all_of(ALICE), Acl(PERM_ALL & ~missing, "world", "anyone")))
        ground.decisions = decisions
        plan = ground.plan_it("copy")
        with ground.process() as session, pytest.raises(PreconditionFailed, match="group g is protected: /cons") as no:
            ground.apply(session, plan)
        assert "--zookeeper-auth" in str(no.value)
        assert hash_of(ALICE) not in str(no.value)
    assert ground.control(GROUP) is None


def test_nodes_of_other_clients_are_refused_with_the_remedy_and_accepted_after_it(ground: KillScenario) -> None:
    top, groups = paths.parents(CONTROL)
    open_node(ground, top)
    open_node(ground, groups)
    plan = ground.plan_it("copy")
    with ground.process() as session, pytest.raises(PreconditionFailed) as no:
        ground.apply(session, plan)
    assert f"\n  {top} has world:anyone:cdrwa\n  {groups} has world:anyone:cdrwa\n" in str(no.value)
    assert f"\n  setAcl {top} auth::cdrwa,world:anyone:r\n" in str(no.value)
    assert not ground.zookeeper.tree.has_node(CONTROL)
    assert ask(ground, OPERATOR, *(SetAcl(path, SECURE_ACL) for path in (top, groups)))
    begun(ground, Phase.FENCED)
    assert acl_of(ground, CONTROL) == {all_of(OPERATOR), WORLD_READS}


def test_the_control_znode_of_a_migration_before_that_was_open_is_refused(ground: KillScenario) -> None:
    open_first = KillScenario(ground.folder)
    plan = open_first.plan_it("copy")
    with open_first.process() as session:
        open_first.apply(session, plan, stop_after=Phase.VERIFIED)
        open_first.back(session, plan)
    protect(open_first.zookeeper)
    log_in(open_first, OPERATOR, open_first.folder)
    anew = replace(open_first.plan_it("copy"), migration_id="m2")
    anew = replace(anew, digest=digest_of_plan(replace(anew, digest="")))
    with open_first.process() as session, pytest.raises(PreconditionFailed) as no:
        open_first.apply(session, anew)
    assert f"\n  {CONTROL} has world:anyone:cdrwa\n" in str(no.value)
    assert f"\n  setAcl {CONTROL}/plan-0000 auth::cdrwa" in str(no.value)
    for line in str(no.value).splitlines():
        if line.startswith("  setAcl "):
            path, has = line.split()[1:]
            acl = SECURE_ACL if "world" in has else SECURE_ACL[:1]
            assert ask(open_first, OPERATOR, SetAcl(path, acl))
    with open_first.process() as session:
        open_first.apply(session, anew, stop_after=Phase.FENCED)
    assert acl_of(open_first, f"{CONTROL}/{plan_piece_name(0)}") == {all_of(OPERATOR)}


def test_groups_of_two_logins_share_the_parents_that_an_administrator_opened_to_both(ground: KillScenario) -> None:
    """CREATE below the parents is what an administrator gives, login by login; the world has none."""
    begun(ground, Phase.FENCED)
    other = paths.control("h")
    groups = other.rpartition("/")[0]
    assert ask(ground, MALLORY, Create(other)) == [NoAuth(other)]
    may_begin = all_of(MALLORY)._replace(perms=PERM_CREATE | PERM_DELETE)
    for path in paths.parents(other):
        assert may(ground, OPERATOR, SetAcl(path, (*SECURE_ACL, may_begin)))
    assert may(ground, MALLORY, Create(other, acl=SECURE_ACL))
    with ground.process() as session:
        check_control_acls(session, GROUP)
    log_in(ground, MALLORY, ground.folder)
    with ground.process() as session:
        check_control_acls(session, "h")
    assert not may(ground, None, Create(f"{groups}/k"))


# --- the group's own login --------------------------------------------------------------------------------------


def test_the_login_of_the_group_asks_a_run_to_stop_and_acknowledges_and_writes_no_plan(ground: KillScenario) -> None:
    begun(ground, Phase.FENCED)
    for path, perms in ((MEMBERS_CHILD, PERM_READ | PERM_CREATE | PERM_DELETE), (ABORT_CHILD, PERM_READ | PERM_WRITE)):
        assert acl_of(ground, f"{CONTROL}/{path}") == {
            all_of(OPERATOR), WORLD_READS, all_of(ALICE)._replace(perms=perms), all_of(OPERATOR)._replace(perms=perms),
        }  # fmt: skip
    for login, is_member in ((ALICE, True), (None, False), (MALLORY, False)):
        member = f"{CONTROL}/{MEMBERS_CHILD}/c1"
        answers = ask(ground, login, Create(member, b"{}", ephemeral=True), Delete(member))
        assert [isinstance(one, NoAuth) for one in answers] == [not is_member] * 2, login
        assert may(ground, login, SetData(f"{CONTROL}/{ABORT_CHILD}", b"")) == is_member
        assert not may(ground, login, SetData(f"{CONTROL}/{plan_piece_name(0)}", b"x"))


def test_abort_is_asked_by_data_and_the_next_run_takes_it_away(ground: KillScenario) -> None:
    plan = begun(ground, Phase.FENCED)
    with ground.process() as session:
        moving = ground.moving(session, plan)
        ground.carry_out(moving, iter([AcquireLock(moving.control_znode, "me")]))
        assert not moving.control_znode.is_abort_requested()
        assert not read_migration_status(session, GROUP).abort_requested
        log_in(ground, ALICE, ground.folder)
        with ground.process() as other:
            assert "stops before its next step" in request_abort(other, GROUP, "alice")
        assert moving.control_znode.is_abort_requested()
        assert read_migration_status(session, GROUP).abort_requested
    log_in(ground, OPERATOR, ground.folder)
    with ground.process() as session:
        moving = ground.moving(session, plan)
        ground.carry_out(moving, iter([AcquireLock(moving.control_znode, "me")]))
        assert not moving.control_znode.is_abort_requested()
    log_in(ground, None, ground.folder)
    with ground.process() as session:
        with pytest.raises(PreconditionFailed, match="no run is active on group"):
            request_abort(session, GROUP, "anybody")
        assert read_migration_status(session, GROUP).has_stored_plan, "anybody may look at the status"


@pytest.mark.parametrize("end", ["switched", "undone"])
def test_members_with_a_login_of_the_group_migrate_and_return_without_a_stop(tmp_path: Path, end: str) -> None:
    class Protected(DualKillScenario):
        member_login = ALICE

    ground = Protected(tmp_path)
    owners = [path for path in lists_below(ground, ROOT) if path.startswith((f"{ROOT}/owners", f"{ROOT}/offsets"))]
    for path in owners:
        ground.zookeeper.set_acl(path, PROTECTED)
    log_in(ground, OPERATOR, ground.folder)
    plan = ground.plan_it("dual")
    with ground.process() as session:
        ground.move(session, plan)
        assert not may(ground, None, Create(f"{CONTROL}/{MEMBERS_CHILD}/forged", b"{}", ephemeral=True))
        assert not may(ground, ALICE, SetData(CONTROL, b"{}"))
    assert ground.stands(GROUP) == ("switched", "kafka")
    if end == "undone":
        with ground.process() as session:
            ground.back(session, plan)
    for _ in range(8):
        ground.on_pause()
    assert ground.stands(GROUP)[0] == end
    ground.people.close()


@pytest.mark.timeout(120)
def test_a_spark_query_with_the_login_of_the_group_claims_before_and_after_a_protected_move(
    lab: Lab, tmp_path: Path
) -> None:
    """``/zkconsumer/spark`` exists once a run has created ``/zkconsumer``, where then only its login creates nodes.

    The run has the login of the group, since nodes that a query creates name no other one.
    """
    group = lab.new_group()
    protect(lab.zookeeper, (all_of(ALICE), WORLD_READS), group)
    lab.zookeeper.set_acl(paths.ids(group), OPEN_ACL)  # as members leave it, with a login too
    log_in(lab, ALICE, tmp_path)
    with lab.process() as session:  # an earlier migration, before the query was there
        plan = lab.plan(group, DECISIONS, "first")
        lab.apply(session, plan, stop_after=Phase.FENCED)
        lab.rollback(session, plan)
    assert acl_of(lab, "/zkconsumer") == {all_of(ALICE), WORLD_READS}
    secured = {"zookeeper.set.acl": "true", "zookeeper.auth": auth_of(tmp_path, ALICE)}
    with query_of(lab, group, "claim", **secured) as query:
        query.login = ALICE
        engine = query.start()
        for _ in range(3):
            list(engine.trigger())
        before = len(query.rows)
        assert before, "it claims below /zkconsumer/spark"
        move(lab, query)
        assert lab.stands(group) == ("switched", "kafka")
        query.triggers_until(lambda: query.is_in_kafka() and len(query.rows) > before, "it goes on in Kafka")
        move_back(lab, query)
        assert lab.stands(group) == ("undone", "zookeeper")
        query.triggers_until(lambda: ids_of(lab, group) and len(query.rows) == 120, "it reads to the end")
        assert query.rows == records(lab, EXPECTED)
        list(engine.trigger())
        assert lab.offsets(group) == dict.fromkeys(EXPECTED, 50)
    lists = lists_below(lab, paths.group_root(group))
    assert {frozenset(acl) for path, acl in lists.items() if path.startswith(paths.offsets(group))} == {
        frozenset({all_of(ALICE), WORLD_READS})
    }


def test_a_run_with_the_login_of_the_members_reports_it_and_waits_for_the_longest_session(tmp_path: Path) -> None:
    """Its lists let a member in that wakes from a pause; that member has no session any more then."""
    ground = KillScenario(tmp_path)
    protect(ground.zookeeper, (all_of(ALICE), WORLD_READS))
    log_in(ground, ALICE, tmp_path)
    plan = ground.plan_it("copy")
    with ground.process() as session:
        authority = ground.moving(session, plan).control_znode
        [_, words] = SetFenceAcls(authority, ("t",), plan.snapshot.acls, members_may_delete=True).describe()
        assert "members of the group have the same login as this run (digest user 'alice')" in words
        began_ms = ground.clock.now_ms()
        ground.apply(session, plan, stop_after=Phase.FENCED)
    assert ground.clock.now_ms() - began_ms >= ground.zookeeper.timeout_range_ms[1]
    other = protected_ground(tmp_path)
    with other.process() as session:
        authority = other.moving(session, plan).control_znode
        assert len(SetFenceAcls(authority, ("t",), dict.fromkeys([OFFSET_0], PROTECTED), True).describe()) == 1


# --- the decisions ----------------------------------------------------------------------------------------------


def test_a_name_of_a_sasl_user_is_recognised_also_with_host_and_realm() -> None:
    bob = SaslDigestMd5Login("bob", "secret")
    for name, is_his in (("bob", True), ("bob/host@REALM", True), ("bob@REALM", True), ("bobby", False)):
        assert matches_login(Acl(PERM_ALL, "sasl", name), bob) is is_his
        assert matches_login(Acl(PERM_ALL, "sasl", name), SaslGssapiLogin("bob@OTHER")) is is_his
        assert matches_login(Acl(PERM_ALL, "sasl", name), SaslGssapiLogin())
    assert not matches_login(Acl(PERM_ALL, "digest", "bob:x"), bob)


def test_the_world_counts_as_a_member_only_where_every_node_permits_it() -> None:
    his = (all_of(ALICE), WORLD_READS)
    assert group_logins([OPEN_ACL, OPEN_ACL], []) == {("world", "anyone")}
    assert group_logins([his, OPEN_ACL], []) == {("digest", hash_of(ALICE))}
    assert group_logins([], [(all_of(ALICE)._replace(perms=PERM_READ), WORLD_READS)]) == {("digest", hash_of(ALICE))}


def test_texts_of_lists_and_logins_contain_no_hash() -> None:
    assert format_acl(PROTECTED) == "digest:alice:...:cdrwa,digest:operator:...:cdrwa,world:anyone:r"
    assert RunAclPolicy(OPERATOR).login_text == "digest user 'operator'"


def test_a_list_with_a_mark_is_a_fence_with_any_other_entries() -> None:
    """So a fence of a run with the login of the members is distinguished from their own lists."""
    own = (all_of(ALICE), WORLD_READS)
    assert not is_fence(own)
    assert is_fence((*own, fence_acl_entry("m1")))
    assert is_fence((*own, Acl(PERM_READ, "digest", f"{FENCE_ACL_USER}:x"))), "as a server shows it to others"
