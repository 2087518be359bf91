"""The permissions that the steps need, checked before any change: in the plan, and again by the run."""

from __future__ import annotations

import pytest

from bridge.migration.control.control_acls import CheckLoginOfProtectedGroup
from bridge.migration.fences.fence_login import GENERATED_USER
from bridge.migration.fences.fence_permissions import CheckPermissions
from bridge.migration.inspect.group_inspection import inspect_group
from bridge.migration.inspect.required_permissions import GroupZnodes
from bridge.migration.plan.decisions import Decisions
from bridge.migration.plan.plan_checks import next_command
from bridge.migration.plan.plan_file import plan_to_bytes
from bridge.migration.steps.copy_strategy import CopyOptions, copy_steps
from bridge.migration.steps.step import StepDone, StepRefused
from tests.migration.dual_members import DualLab, dual
from tests.migration.group_snapshots import plan
from tests.migration.migration_write_faults import DECISIONS, Cuts, Lab, lab
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import PERM_ADMIN, PERM_ALL, PERM_CREATE, PERM_DELETE, PERM_READ, PERM_WRITE, Acl
from zkconsumer.zk.zk_security import DigestLogin

__all__ = ["dual", "lab"]

T = [TopicPartition("t", number) for number in range(2)]
MAKE = PERM_CREATE | PERM_DELETE


def nodes(*, acl_fence: bool) -> GroupZnodes:
    return GroupZnodes("g", ["t"], T, acl_fence)


def below(*names: str) -> set[str]:
    return {f"/consumers/g/{name}" for name in names}


@pytest.mark.parametrize(
    ("acl_fence", "there", "needed"),
    [
        (True, {"/", *below("ids", "owners", "offsets")}, {"/consumers/g/ids": MAKE, "/": PERM_CREATE}),
        (
            True,
            {"/", "/zkconsumer", "/consumers/g", *below("owners", "offsets")},
            {"/consumers/g": MAKE, "/zkconsumer": PERM_CREATE},
        ),
        (
            True,
            {"/", "/zkconsumer", "/zkconsumer/groups", "/zkconsumer/groups/g", *below("ids", "owners", "offsets")},
            {"/consumers/g/ids": MAKE, "/zkconsumer/groups/g": MAKE | PERM_WRITE},
        ),
        (
            False,
            below("ids", "owners", "offsets", "owners/t", "offsets/t", "offsets/t/0"),
            {
                "/consumers/g/ids": MAKE,
                "/consumers/g/owners/t": MAKE,
                "/consumers/g/offsets/t": PERM_CREATE,
            },
        ),
        (
            False,
            below("ids", "owners", "offsets"),
            {"/consumers/g/ids": MAKE, "/consumers/g/owners": MAKE, "/consumers/g/offsets": PERM_CREATE},
        ),
    ],
)  # fmt: skip
def test_the_permissions_on_existing_nodes(acl_fence: bool, there: set[str], needed: dict[str, int]) -> None:
    assert nodes(acl_fence=acl_fence).required_perms(there) == needed
    assert there.issubset({*nodes(acl_fence=acl_fence).all_paths, *nodes(acl_fence=acl_fence).written}), (
        "each is looked at"
    )
    assert nodes(acl_fence=acl_fence).written == ([] if acl_fence else [f"/consumers/g/offsets/t/{n}" for n in (0, 1)])


def world_but(perms: int) -> tuple[Acl, ...]:
    return (Acl(PERM_ALL & ~perms, "world", "anyone"), Acl(PERM_ALL, "digest", "theirs:x"))


def test_a_plan_names_the_nodes_and_is_not_applied(lab: Lab) -> None:
    group = lab.new_group()
    lab.zookeeper.set_acl(paths.ids(group), world_but(PERM_DELETE))
    lab.zookeeper.set_acl("/", world_but(PERM_CREATE))
    try:
        with lab.process() as session:
            seen = inspect_group(session, group, with_rights=True)
            plain = inspect_group(session, group)
    finally:
        lab.zookeeper.set_acl("/", (Acl(PERM_ALL, "world", "anyone"),))
    assert seen is not None
    assert plain is not None
    assert (seen.acls_without_admin, plain.missing_permissions) == ((), ()), "what is not asked costs nothing"
    assert seen.missing_permissions == ("/ (create)", f"{paths.ids(group)} (delete)")


def test_the_refusal() -> None:
    lacking = tuple(f"/consumers/g1/owners/t{number} (create, delete)" for number in range(30))
    [refusal] = plan(missing_permissions=lacking).refusals
    assert "permissions that this login lacks on 30 nodes: /consumers/g1/owners/t0 (create, delete), " in refusal
    assert "t19 (create, delete) and 10 more. Log in as a user" in refusal
    assert next_command(refusal) == "zkconsumer migrate plan g1"


@pytest.mark.parametrize("acl_fence", [True, False])
def test_a_run_without_the_permissions_changes_nothing(lab: Lab, acl_fence: bool) -> None:
    group = lab.new_group()
    made = lab.plan(group, Decisions(DECISIONS.convention, DECISIONS.missing, acl_fence=acl_fence))
    # With ADMIN the run owns the lists of the fence; without it the list of the topic does not change.
    lab.zookeeper.set_acl(paths.owners_of_topic(group, "t"), (Acl(PERM_READ | PERM_ADMIN, "world", "anyone"),))
    with lab.process() as session:
        if acl_fence:
            lab.apply(session, made)
            return
        with pytest.raises(PreconditionFailed, match=r"1 node: \S+/owners/t \(create, delete\)\. Log in") as it:
            lab.apply(session, made)
        assert it.value.exit_code == 4
    assert lab.control(group) is None


def test_a_dual_run_without_the_permissions_changes_nothing(dual: DualLab) -> None:
    crowd = dual.crowd(is_loaded=False)
    made, cuts = dual.dual_plan(crowd), Cuts()
    dual.zookeeper.set_acl(paths.owners_of_topic(crowd.group, "t"), (Acl(PERM_READ | PERM_ADMIN, "world", "anyone"),))
    with dual.process(cuts) as session:
        with pytest.raises(PreconditionFailed, match=r"1 node: \S+/owners/t \(create, delete\)\. Log in") as it:
            dual.move(session, made)
        assert it.value.exit_code == 4
    assert dual.control(crowd.group) is None
    assert not cuts.seen


@pytest.mark.parametrize("lacking", ["offsets/t", "ids"])
def test_a_rollback_checks_the_permissions_while_coordinator_members_still_read(lab: Lab, lacking: str) -> None:
    group = lab.new_group()
    made = lab.plan(group, Decisions(DECISIONS.convention, DECISIONS.missing, acl_fence=False))
    with lab.process() as session:
        lab.apply(session, made)
    path = f"{paths.group_root(group)}/{lacking}"
    lab.zookeeper.set_acl(path, world_but(PERM_CREATE))
    cuts = Cuts()
    with lab.process(cuts) as session:
        with pytest.raises(PreconditionFailed, match=rf"1 node: {path} \(create\)\. Log in") as it:
            lab.rollback(session, made)
        assert it.value.exit_code == 4
    assert lab.stands(group) == ("switched", "kafka")
    assert not cuts.seen
    lab.zookeeper.set_acl(path, (Acl(PERM_ALL, "world", "anyone"),))
    with lab.process() as session:
        lab.rollback(session, made)
    assert lab.stands(group) == ("undone", "zookeeper")


@pytest.mark.parametrize("is_late", [False, True])
def test_with_a_fence_the_restored_lists_count(lab: Lab, is_late: bool) -> None:
    """The lists in the plan, and those when the fence was set; the run that set it had the permissions."""
    group = lab.new_group()
    ids = paths.ids(group)
    without = world_but(PERM_DELETE)[:1]  # a list that names a login belongs to a protected group
    if not is_late:
        lab.zookeeper.set_acl(ids, without)
    made = lab.plan(group, DECISIONS)
    lab.zookeeper.set_acl(ids, without)
    with lab.process() as session:
        moving = lab.moving(session, made)
        steps = copy_steps(moving, CopyOptions(plan_to_bytes(made)))
        unchecked = (step for step in steps if not isinstance(step, CheckPermissions | CheckLoginOfProtectedGroup))
        lab.carry_out(moving, unchecked)
    with lab.process() as session, pytest.raises(PreconditionFailed, match=rf"1 node: {ids} \(delete\)\. Log in"):
        lab.rollback(session, made)
    assert lab.stands(group) == ("switched", "kafka")


def test_a_group_that_never_had_a_member_is_rolled_back_too(lab: Lab) -> None:
    """A tool made its offsets: ``ids`` is created for the fence, and deleted with it, so its list blocks no client."""
    group = lab.new_group()
    for path in (paths.ids(group), paths.owners_of_topic(group, "t"), paths.owners(group)):
        lab.zookeeper.remove(path)
    lab.login = DigestLogin(GENERATED_USER, "first")
    made = lab.plan(group, DECISIONS)
    with lab.process() as session:
        lab.apply(session, made)
    assert lab.zookeeper.data(paths.ids(group)) is not None, "made for the fence"
    lab.login = DigestLogin(GENERATED_USER, "second")
    with lab.process() as session:
        lab.rollback(session, made)
    assert lab.stands(group) == ("undone", "zookeeper")


def test_the_check_detects_a_lost_permission(lab: Lab) -> None:
    group = lab.new_group()
    with lab.process() as session:
        step = CheckPermissions(session, GroupZnodes(group, ["t"], [], True))
        assert step.check() == StepDone()
        lab.zookeeper.set_acl(paths.ids(group), world_but(PERM_CREATE))
        assert isinstance(step.check(), StepRefused)
        assert step.describe()
