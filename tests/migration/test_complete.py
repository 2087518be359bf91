"""The end of a migration: first the phase, then the fences; and a new plan over fences that are still there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from bridge.migration.control.control_znode import ControlZnode
from bridge.migration.control.phases import Phase
from bridge.migration.errors import StalePlanError
from bridge.migration.fences.late_acls import read_late_acls
from bridge.migration.plan.decisions import Decisions, ExistingOffsetPolicy
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_checks import next_command
from bridge.migration.steps.complete import complete_steps
from tests.migration.acl_fixtures import MALLORY, OPERATOR, PROTECTED, lists_below, log_in, protected_ground
from tests.migration.kill_cases import GROUP, KillScenario
from tests.migration.migration_write_faults import DECISIONS, EXPECTED, Cuts, Lab, lab
from tests.migration.operator_shell import Shell, shell
from tests.migration.step_write_faults import How, Killed
from zkconsumer.errors import PreconditionFailed
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import OPEN_ACL, PERM_ALL, PERM_READ, Acl, Create, StoreError
from zkconsumer.zk.store import submit_and_wait

__all__ = ["lab", "shell"]

T0 = TopicPartition("t", 0)
ROOT = paths.group_root(GROUP)
KEEPS_KAFKA = replace(DECISIONS, existing=ExistingOffsetPolicy.KEEP_TARGET)
NAMED = (Acl(PERM_ALL, "world", "anyone"), Acl(PERM_READ, "ip", "10.0.0.1"))
"""A list that is not the one of new nodes: once the fence is there, only the saved lists have it."""


def completed(lab: Lab, tmp_path: Path, decisions: Decisions = DECISIONS, **how: bool) -> tuple[str, MigrationPlan]:
    """A group that was moved and completed; its offsets znode of t has a list of its own."""
    group = lab.new_group()
    lab.zookeeper.set_acl(paths.offsets_of_topic(group, "t"), NAMED)
    plan = lab.plan(group, decisions, name="m0")
    with lab.process() as session:
        lab.apply(session, plan)
    complete(lab, plan, tmp_path, **how)
    return group, plan


def complete(
    lab: Lab, plan: MigrationPlan, tmp_path: Path, cuts: Cuts | None = None, *, remove_fences: bool = False
) -> list[str]:
    """The reports."""
    with lab.process(cuts) as session:
        moving = lab.moving(session, plan)
        steps = complete_steps(moving, tmp_path / plan.group, remove_fences=remove_fences)
        return lab.carry_out(moving, steps)


def claims(lab: Lab, group: str) -> tuple[bool, bool]:
    """An old member starts: whether it is registered, and whether it owns a partition."""
    old = FakeZkStore(lab.zookeeper)
    old.start(1_000)
    tries = [Create(f"{paths.ids(group)}/old", b"{}", ephemeral=True),
             Create(paths.owner(group, T0), b"old-0", ephemeral=True)]  # fmt: skip
    registered, owns = (not isinstance(one, StoreError) for one in submit_and_wait(old, tries, 1_000))
    old.close(1_000)
    return registered, owns


def test_an_old_member_that_starts_after_complete_claims_nothing_until_the_fences_are_lifted(
    lab: Lab, tmp_path: Path
) -> None:
    group, plan = completed(lab, tmp_path)
    assert lab.stands(group) == ("completed", "kafka")
    assert claims(lab, group) == (False, False)
    complete(lab, plan, tmp_path, remove_fences=True)
    assert claims(lab, group) == (True, True)


def test_owner_fences_alone_keep_an_old_member_out_after_complete(lab: Lab, tmp_path: Path) -> None:
    group, plan = completed(lab, tmp_path, replace(DECISIONS, acl_fence=False))
    assert claims(lab, group) == (True, False)
    complete(lab, plan, tmp_path, remove_fences=True)
    assert claims(lab, group) == (True, True)


def test_the_phase_is_written_before_the_first_fence_is_removed(lab: Lab, tmp_path: Path) -> None:
    group = lab.new_group()
    plan = lab.plan(group, DECISIONS)
    with lab.process() as session:
        lab.apply(session, plan)
    seen = len(lab.history.moments[group])
    complete(lab, plan, tmp_path, remove_fences=True)
    moments = [moment for moment in lab.history.moments[group][seen:] if moment.control is not None]
    phases = [(moment.control.phase, moment.fences) for moment in moments if moment.control is not None]
    assert phases[0] == ("completed", 3)
    assert {fences for phase, fences in phases if phase == "switched"} <= {3}
    assert phases[-1] == ("completed", 0)


# --- a new plan over fences that are still there ----------------------------------------------------------------


def test_a_new_plan_has_the_lists_from_before_the_fences_and_names_their_migration(lab: Lab, tmp_path: Path) -> None:
    group, first = completed(lab, tmp_path)
    made = lab.plan(group, KEEPS_KAFKA, name="m1")
    assert made.snapshot.fences_migration_id == first.migration_id
    assert made.snapshot.acls == first.snapshot.acls
    assert made.snapshot.acls[paths.offsets_of_topic(group, "t")] == NAMED
    [said] = [words for words in made.warnings if "has moved to Kafka already" in words]
    assert "its fences are still there, and apply takes them over" in said


def test_a_plan_over_removed_fences_reports_that_there_are_none(lab: Lab, tmp_path: Path) -> None:
    group, _ = completed(lab, tmp_path, remove_fences=True)
    made = lab.plan(group, KEEPS_KAFKA, name="m1")
    assert made.snapshot.fences_migration_id == ""
    assert any("no fence is there" in words for words in made.warnings)


def test_a_second_migration_takes_the_fences_over_and_rollback_restores_the_first_lists(
    lab: Lab, tmp_path: Path
) -> None:
    """The rollback from a completed migration: offsets committed to Kafka since are written to ZooKeeper."""
    group, first = completed(lab, tmp_path, remove_fences=True)
    before = {path: acl for path, (_, acl) in lab.nodes(group).items()}
    group, first = completed(lab, tmp_path)
    assert lab.commit_first(group, 0, 33) == 0
    second = lab.plan(group, KEEPS_KAFKA, name="m1")
    with lab.process() as session:
        lab.apply(session, second)
    assert lab.stands(group) == ("switched", "kafka")
    assert lab.kafka(group)[T0][0] == 33
    assert claims(lab, group) == (False, False)
    with lab.process() as session:
        lab.rollback(session, second)
    assert lab.stands(group) == ("undone", "zookeeper")
    assert lab.offsets(group) == EXPECTED | {T0: 33}
    after = {path: acl for path, (_, acl) in lab.nodes(group).items()}
    new = paths.offset(group, TopicPartition("t", 2)).removeprefix(paths.group_root(group))
    assert after.pop(new) == frozenset(OPEN_ACL)
    assert after == before
    assert claims(lab, group) == (True, True)
    assert first.migration_id != second.migration_id


@pytest.mark.parametrize("how", ["behind", pytest.param("lost", marks=pytest.mark.nightly)])
def test_the_saved_lists_survive_a_kill_at_any_write_of_the_second_migration(
    lab: Lab, tmp_path: Path, how: How
) -> None:
    """Also between the end of the old plan and the first byte of the new one."""
    (tmp_path / "again").mkdir()
    at, between = 1, 0
    while True:
        group, first = completed(lab, tmp_path)
        second = lab.plan(group, KEEPS_KAFKA, name="m1")
        cuts = Cuts(at, how)
        try:
            with lab.process(cuts) as session:
                lab.apply(session, second)
        except Killed:
            pass
        with lab.process() as session:
            late = read_late_acls(ControlZnode(session, group, second.migration_id))
        control = lab.control(group)
        assert control is not None
        if control.migration_id == second.migration_id:
            between += 1
            assert late.items() >= first.snapshot.acls.items(), f"write {at}"
        with lab.process() as session:
            lab.apply(session, second)
        complete(lab, second, tmp_path / "again", remove_fences=True)
        assert lab.zookeeper.tree._nodes[paths.offsets_of_topic(group, "t")].acl == NAMED
        if not cuts.was_reached:
            break
        at += 1
    assert between > 10


@pytest.mark.parametrize(
    ("option", "words"),
    [("--no-acl-fence", "this plan changes no lists"), ("--strategy=dual", "dual keeps the members running")],
)
def test_a_plan_that_cannot_take_the_fences_over_names_the_command_that_removes_them(
    lab: Lab, shell: Shell, tmp_path: Path, option: str, words: str
) -> None:
    group, _ = completed(lab, tmp_path)
    refusal, code = left_fences_refused(shell, tmp_path, group, option)
    assert (code, words in refusal) == (4, True)
    lift = next_command(refusal)
    assert lift.startswith(f"zkconsumer migrate complete {group} --remove-fences")
    done = shell(*lift.split()[2:], "--execute", "--confirm", group)
    assert done.exit_code == 0, done.stderr
    assert claims(lab, group) == (True, True)


def test_deleted_saved_lists_refuse_the_new_plan(lab: Lab, shell: Shell, tmp_path: Path) -> None:
    group, _ = completed(lab, tmp_path)
    lab.zookeeper.remove(paths.control_child(group, "plan-0000"))
    refusal, code = left_fences_refused(shell, tmp_path, group)
    assert (code, "before the fence are not known" in refusal) == (4, True)


def left_fences_refused(shell: Shell, tmp_path: Path, group: str, *more: str) -> tuple[str, int]:
    """The plan's refusal for fences that it cannot take over, and its exit code."""
    done = shell("plan", group, "-f", tmp_path / "new.plan", "--existing=keep-target", "-o", "json", *more)
    [refusal] = [words for words in json.loads(done.stdout)["refusals"] if words.startswith("the fences of migration")]
    return refusal, done.exit_code


def test_the_command_reports_that_the_fences_stay_and_removes_them_later(
    lab: Lab, shell: Shell, tmp_path: Path
) -> None:
    group, file = shell.planned()
    assert shell("apply", file, "--execute").exit_code == 0
    first = shell("complete", group, "--archive", tmp_path / "archive", "--execute", typed=f"{group}\n")
    assert "After that, no rollback is possible. Type the group's name" in first.stderr
    assert "The fences remain, and no old member can acquire a partition." in first.stderr
    assert claims(lab, group) == (False, False)
    assert shell("complete", group, "--execute", "--confirm", group).exit_code == 0
    assert claims(lab, group) == (False, False)
    steps = json.loads(shell("status", group, "-o", "json").stdout)["next_steps"]
    lift = next(step for step in steps if "--remove-fences" in step)
    assert shell(*lift.split()[2:]).exit_code == 3, "without --execute nothing is changed"
    refused = shell(*lift.split()[2:], "--execute", typed="another\n")
    assert (refused.exit_code, claims(lab, group)) == (2, (False, False))
    assert "Old members that start after that read again from the offsets of the cut-over." in refused.stderr
    assert shell(*lift.split()[2:], "--execute", "--confirm", group).exit_code == 0
    assert claims(lab, group) == (True, True)
    last = json.loads(shell("status", group, "-o", "json").stdout)
    assert not any("--remove-fences" in step for step in last["next_steps"])


def test_a_plan_made_before_another_migration_was_completed_begins_nothing(lab: Lab, tmp_path: Path) -> None:
    group = lab.new_group()
    early, plan = lab.plan(group, DECISIONS, name="early"), lab.plan(group, DECISIONS, name="m0")
    with lab.process() as session:
        lab.apply(session, plan)
    complete(lab, plan, tmp_path)
    before = lab.zookeeper.tree.dump()
    ended = r"ended since this plan was made \(phase completed\)"
    with lab.process() as session, pytest.raises(StalePlanError, match=ended):
        lab.apply(session, early, accept_drift=True)
    assert lab.zookeeper.tree.dump() == before


def test_a_plan_over_fences_that_another_migration_took_over_and_lifted_is_stale(lab: Lab, tmp_path: Path) -> None:
    group, _ = completed(lab, tmp_path)
    stale, other = lab.plan(group, KEEPS_KAFKA, name="stale"), lab.plan(group, KEEPS_KAFKA, name="m1")
    with lab.process() as session:
        lab.apply(session, other, stop_after=Phase.FENCED)
        lab.rollback(session, other)
    before = lab.zookeeper.tree.dump()
    ended = r"ended since this plan was made \(phase undone\)"
    with lab.process() as session, pytest.raises(StalePlanError, match=ended):
        lab.apply(session, stale)
    assert lab.zookeeper.tree.dump() == before


# --- a group whose nodes have access lists ----------------------------------------------------------------------


def test_only_the_login_of_the_migration_lifts_the_fences_of_a_protected_group(tmp_path: Path) -> None:
    ground, before = protected_and_completed(tmp_path)
    fenced = lists_below(ground, ROOT)
    assert fenced != before
    log_in(ground, MALLORY, tmp_path)
    with ground.process() as session, pytest.raises(PreconditionFailed, match="belongs to digest:operator"):
        ground.complete(session, remove_fences=True)
    assert lists_below(ground, ROOT) == fenced
    log_in(ground, OPERATOR, tmp_path)
    with ground.process() as session:
        ground.complete(session, remove_fences=True)
    assert lists_below(ground, ROOT) == before


def test_a_second_migration_of_a_protected_group_restores_its_lists(tmp_path: Path) -> None:
    ground, before = protected_and_completed(tmp_path)
    second = ground.plan(GROUP, KEEPS_KAFKA, name="second")
    assert second.snapshot.fences_migration_id
    assert {frozenset(acl) for acl in second.snapshot.acls.values()} == {frozenset(PROTECTED)}
    with ground.process() as session:
        ground.apply(session, second)
    with ground.process() as session:
        ground.rollback(session, second)
    after = lists_below(ground, ROOT)
    assert {path: after[path] for path in before} == before
    assert all(acl == set(PROTECTED) for acl in after.values())


def protected_and_completed(folder: Path) -> tuple[KillScenario, dict[str, set[Acl]]]:
    """A protected group that was moved and completed with its fences, and its lists before that."""
    ground = protected_ground(folder)
    before = lists_below(ground, ROOT)
    made = ground.plan_it("copy")
    with ground.process() as session:
        ground.apply(session, made)
    with ground.process() as session:
        ground.complete(session)
    return ground, before
