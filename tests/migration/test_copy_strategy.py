"""A group migrates and returns: what each step finds, and what stops it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import takewhile
from pathlib import Path

import pytest

from bridge.migration.control.control_steps import request_abort
from bridge.migration.control.phases import Phase
from bridge.migration.errors import (
    HookFailedError,
    HookVetoError,
    PartiallyDoneError,
    StalePlanError,
    VerificationError,
    WaitTimeoutError,
)
from bridge.migration.fences.fence_checks import CheckFences
from bridge.migration.inspect.migration_status import read_migration_status
from bridge.migration.plan.decisions import Decisions, ExistingOffsetPolicy, OffsetConvention, OffsetFallback
from bridge.migration.plan.migration_plan import MigrationPlan
from bridge.migration.plan.plan_file import plan_to_bytes
from bridge.migration.steps.complete import complete_steps
from bridge.migration.steps.copy_strategy import CopyOptions, copy_steps
from bridge.migration.steps.migration_context import read_effective_plan
from bridge.migration.steps.rollback import RollbackOptions, rollback_steps
from bridge.migration.steps.step import MigrationStep, StepRunner
from bridge.migration.steps.step_executors import DryRunExecutor
from bridge.migration.steps.znode_archive import InvalidArchiveError, read_archive, restore_znodes
from tests.migration.migration_write_faults import DECISIONS, EXPECTED, STORED, Cuts, Lab, judge, lab
from zkconsumer.errors import PreconditionFailed
from zkconsumer.testing.fake_zk_store import FakeZkStore
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create
from zkconsumer.zk.store import submit_and_wait

__all__ = ["lab"]

T0 = TopicPartition("t", 0)


def moved(lab: Lab, decisions: Decisions = DECISIONS, **options: object) -> tuple[str, MigrationPlan]:
    group = lab.new_group()
    plan = lab.plan(group, decisions)
    with lab.process() as session:
        lab.apply(session, plan, **options)
    return group, plan


def registered(lab: Lab, group: str) -> FakeZkStore:
    """A member is registered in the old group until its store is closed."""
    store = FakeZkStore(lab.zookeeper)
    store.start(1_000)
    submit_and_wait(store, [Create(f"{paths.ids(group)}/c1", b"{}", ephemeral=True)], 1_000)
    return store


def explained(lab: Lab, plan: MigrationPlan, **options: object) -> DryRunExecutor:
    performer = DryRunExecutor()
    cuts = Cuts()
    with lab.process(cuts) as session:
        moving = lab.moving(session, plan)
        steps = copy_steps(moving, CopyOptions(plan_to_bytes(plan), **options))  # type: ignore[arg-type]
        StepRunner(performer, lab.clock, 1_000, "again", lambda: False).run_steps(steps)
    assert not cuts.seen, "a dry run writes nothing"
    return performer


def test_a_dry_run_shows_every_step_and_writes_nothing(lab: Lab) -> None:
    group = lab.new_group()
    plan = lab.plan(group, DECISIONS)
    performer = explained(lab, plan)
    assert performer.error is None
    planned = [one.name for one in performer.steps if one.status == "to do"]
    assert planned == [
        "control znode: planned",
        "acquire the lock",
        "store the plan",
        "journal: apply",
        "control znode: fencing",
        "access lists",
        "access lists: no member deletes owner nodes any more",
        "owner fences 1 of 1",
        "owner fences for late partitions",
        "join the placeholder member",
        "control znode: fenced",
        "all fences exist",
        "the offsets are those of the plan",
        "commit the offsets to Kafka",
        "control znode: copied",
        "read the offsets back from Kafka, and compare",
        "control znode: verified",
        "all fences exist",
        "control znode: switched",
        "confirm switched",
    ]
    member = registered(lab, group)
    waits = [one for one in explained(lab, plan).steps if one.status == "waits"]
    assert waits[0].lines == ["waits for c1 to leave: stop the old members"]
    assert all("waits for c1 to leave" in one.lines[0] for one in waits)
    member.close(1_000)
    with lab.process() as session:
        told = lab.apply(session, plan)
    done = [line.removesuffix(" …") for line in told]
    looks = {"owner fences for late partitions", "the offsets are those of the plan"}
    looks |= {"all fences exist", "read the offsets back from Kafka, and compare"}
    assert [name for name in done if name in planned] == [name for name in planned if name not in looks], (
        "what is done is what was said, in its order"
    )
    again = explained(lab, plan)
    assert not again.would_change
    assert {one.name: one.status for one in again.steps} == {
        "the control znode belongs to this run's login": "done",
        "these are the servers of the plan": "done",
        "control znode: planned": "done",
        "acquire the lock": "to do",
        "remove the placeholder member": "done",
    }


def test_members_are_waited_for_and_the_run_continues_when_they_have_left(lab: Lab) -> None:
    group = lab.new_group()
    plan = lab.plan(group, DECISIONS)
    member = registered(lab, group)
    with lab.process() as session:
        moving = lab.moving(session, plan)
        steps = copy_steps(moving, CopyOptions(plan_to_bytes(plan)))
        with pytest.raises(PartiallyDoneError, match="the --timeout ended, waiting for c1 to leave"):
            lab.carry_out(moving, steps, 5_000)
    assert lab.stands(group) == ("fencing", "zookeeper")
    pauses: list[int] = []

    def leave() -> None:
        pauses.append(1)
        if len(pauses) == 3:
            member.close(1_000)

    lab.on_pause = leave
    try:
        with lab.process() as session:
            told = lab.apply(session, plan)
    finally:
        lab.on_pause = lambda: None
    assert lab.stands(group) == ("switched", "kafka")
    assert any(line.startswith("every old member has left: waiting for c1 to leave") for line in told)
    assert "every old member has left: already done" in told


def test_a_plan_that_is_stale_before_anything_was_changed_is_refused(lab: Lab) -> None:
    group = lab.new_group()
    plan = lab.plan(group, DECISIONS)
    lab.zookeeper.ensure(paths.offset(group, T0), b"12")
    with (
        lab.process() as session,
        pytest.raises(StalePlanError, match=r"ZooKeeper had 10 \(version 0\) and has 12") as it,
    ):
        lab.apply(session, plan)
    assert it.value.exit_code == 4
    assert lab.control(group) is None, "nothing was changed"


def test_drift_after_the_fences_stops_the_run_until_it_is_accepted_and_is_stored(lab: Lab) -> None:
    group = lab.new_group()
    plan = lab.plan(group, DECISIONS)
    member = registered(lab, group)
    lab.on_pause = lambda: (lab.zookeeper.ensure(paths.offset(group, T0), b"12"), member.close(1_000))[1]
    try:
        with lab.process() as session, pytest.raises(PartiallyDoneError, match="--accept-drift") as it:
            lab.apply(session, plan)
    finally:
        lab.on_pause = lambda: None
    assert it.value.exit_code == 6
    assert lab.stands(group) == ("fenced", "zookeeper")
    assert lab.kafka(group) == {}
    with lab.process() as session:
        lab.apply(session, plan, accept_drift=True, stop_after=Phase.COPIED)
        assert read_effective_plan(session, group).targets == EXPECTED | {T0: 12}
    with lab.process() as session:
        moving = lab.moving(session, read_effective_plan(session, group))
        lab.carry_out(moving, copy_steps(moving, CopyOptions(plan_to_bytes(plan))))
    assert lab.stands(group) == ("switched", "kafka")
    assert {tp: offset for tp, (offset, _) in lab.kafka(group).items()} == EXPECTED | {T0: 12}


def test_accepted_drift_follows_the_decisions(lab: Lab) -> None:
    """A value of an application in Kafka stays where the plan keeps it, also in a repeated run."""
    decisions = Decisions(OffsetConvention.NEXT, OffsetFallback.EARLIEST, existing=ExistingOffsetPolicy.HIGHER)
    group = lab.new_group()
    assert lab.commit_first(group, 0, 30) == 0
    plan = lab.plan(group, decisions)
    assert plan.targets[T0] == 30
    with lab.process() as session:
        lab.apply(session, plan, stop_after=Phase.COPIED)
    with lab.process() as session:
        lab.apply(session, plan, accept_drift=True)
    assert lab.kafka(group)[T0][0] == 30


def test_a_foreign_value_after_the_placeholder_ended_is_found_and_not_overwritten(lab: Lab) -> None:
    group, plan = moved(lab, stop_after=Phase.COPIED)
    with lab.process() as session:
        lab.moving(session, plan).placeholder.leave()  # as when the session of a placeholder ends
    assert lab.commit_first(group, 0, 44) == 0
    with lab.process() as session, pytest.raises(VerificationError, match="Kafka had none and has 44") as it:
        lab.apply(session, plan)
    assert it.value.exit_code == 5
    assert lab.kafka(group)[T0] == (44, "")
    assert lab.stands(group) == ("copied", "zookeeper")


def test_a_placeholder_lost_after_the_last_comparison_stops_the_switch(lab: Lab) -> None:
    """The clock does not move here, so no heartbeat is due; and a foreign commit must not be ignored."""
    group = lab.new_group()
    plan = lab.plan(group, DECISIONS)
    with lab.process() as session, lab.process() as elsewhere:
        moving = lab.moving(session, plan)

        def steps() -> Iterator[MigrationStep]:
            for step in copy_steps(moving, CopyOptions(plan_to_bytes(plan))):
                if isinstance(step, CheckFences) and moving.phase is Phase.VERIFIED:
                    lab.moving(elsewhere, plan).placeholder.leave()  # as when the session of a placeholder ends
                    assert lab.commit_first(group, 0, 44) == 0
                yield step

        with pytest.raises(
            PartiallyDoneError,
            match=r"the placeholder member of group .* was removed .* the run compares every offset before",
        ) as it:
            lab.carry_out(moving, steps())
        assert it.value.exit_code == 6
    assert lab.stands(group) == ("verified", "zookeeper")
    with lab.process() as session, pytest.raises(VerificationError, match="Kafka had none and has 44"):
        lab.apply(session, plan)


def test_a_group_deleted_after_the_fence_is_reported_with_the_place_of_its_offsets(lab: Lab) -> None:
    # With access lists no client can.
    group, plan = moved(
        lab, Decisions(OffsetConvention.NEXT, OffsetFallback.EARLIEST, acl_fence=False), stop_after=Phase.FENCED
    )
    for path in sorted(lab.zookeeper.tree.dump(), reverse=True):
        if path == paths.group_root(group) or path.startswith(f"{paths.group_root(group)}/"):
            lab.zookeeper.remove(path)
    with lab.process() as session, pytest.raises(VerificationError, match="was deleted, as old tools do") as it:
        lab.apply(session, plan)
    assert paths.control(group) in str(it.value)
    with lab.process() as session:
        assert "restore deleted offsets …" in lab.rollback(session, plan)
    assert lab.stands(group) == ("undone", "zookeeper")
    assert lab.offsets(group) == STORED


def test_a_request_to_stop_ends_a_run_between_two_steps(lab: Lab) -> None:
    group = lab.new_group()
    plan = lab.plan(group, DECISIONS)
    member = registered(lab, group)

    def ask() -> None:
        lab.on_pause = lambda: None
        with lab.process() as other:
            assert "alice@host" in request_abort(other, group, "bob")
        member.close(1_000)

    lab.on_pause = ask
    with lab.process() as session, pytest.raises(PartiallyDoneError, match="by 'zkconsumer migrate abort'"):
        lab.apply(session, plan)
    assert lab.stands(group)[1] == "zookeeper"
    with lab.process() as session:
        lab.apply(session, plan)
    assert lab.stands(group) == ("switched", "kafka")


@pytest.mark.parametrize("phase", [Phase.FENCED, Phase.COPIED, Phase.VERIFIED])
def test_a_run_may_stop_after_a_phase_and_the_placeholder_stays(lab: Lab, phase: Phase) -> None:
    group, plan = moved(lab, stop_after=phase)
    assert lab.stands(group) == (phase.value, "zookeeper")
    assert lab.commit(group, 0, 1) in (22, 25)
    with lab.process() as session:
        found = read_migration_status(session, group)
    assert found.placeholder is not None
    assert found.fences == 3
    assert found.next_commands[0] == f"zkconsumer migrate apply --resume {group} --execute"
    with lab.process() as session:
        lab.apply(session, plan)
    assert lab.stands(group) == ("switched", "kafka")
    judge(lab.history.moments[group])


def test_without_the_access_list_fence_a_group_migrates_and_returns_too(lab: Lab) -> None:
    group = lab.new_group()
    before = lab.nodes(group)
    plan = lab.plan(group, Decisions(OffsetConvention.NEXT, OffsetFallback.EARLIEST, acl_fence=False))
    started = lab.clock.now_ms()
    with lab.process() as session:
        told = lab.apply(session, plan, stop_after=Phase.VERIFIED)
        longest = session.max_session_timeout_ms()
    assert lab.clock.now_ms() - started >= longest, "only then no member that left can write any more"
    assert not any(line.startswith("access lists") for line in told)
    with lab.process() as session:
        lab.rollback(session, plan)
    assert lab.nodes(group) == before


def test_a_rollback_waits_for_coordinator_members_and_changes_nothing_before_they_have_left(lab: Lab) -> None:
    group, plan = moved(lab)
    with lab.process() as session, lab.process() as modern:
        other = lab.moving(modern, replace(plan, migration_id="app"))
        other.placeholder.join()
        moving = lab.moving(session, plan)
        steps = rollback_steps(moving, RollbackOptions(lambda _: None, 1_000))
        with pytest.raises(PartiallyDoneError, match=r"the --timeout ended, waiting for .*app"):
            lab.carry_out(moving, steps, 3_000)
        assert lab.stands(group) == ("switched", "kafka")
        other.placeholder.leave()
    with lab.process() as session:
        lab.rollback(session, plan)
    assert lab.stands(group) == ("undone", "zookeeper")
    assert lab.offsets(group) == EXPECTED


def test_an_undone_migration_may_begin_again(lab: Lab) -> None:
    group, plan = moved(lab, stop_after=Phase.VERIFIED)
    with lab.process() as session:
        lab.rollback(session, plan)
    with lab.process() as session, pytest.raises(PreconditionFailed, match="make a new plan"):
        lab.apply(session, plan)
    again = lab.plan(group, DECISIONS, "second")
    with lab.process() as session:
        lab.apply(session, again)
    assert lab.stands(group) == ("switched", "kafka")


def test_a_plan_that_was_not_kept_whole_can_be_rolled_back(lab: Lab) -> None:
    group = lab.new_group()
    before = lab.nodes(group)
    plan = lab.plan(group, DECISIONS)
    with lab.process() as session:
        moving = lab.moving(session, plan)
        steps = copy_steps(moving, CopyOptions(plan_to_bytes(plan)))
        lab.carry_out(moving, takewhile(lambda step: step.name != "store the plan", steps))
    with lab.process() as session:
        moving = lab.moving(session, plan)
        lab.carry_out(moving, rollback_steps(moving, RollbackOptions(lambda _: None, 1_000, has_plan=False)))
    assert lab.stands(group) == ("undone", "zookeeper")
    assert lab.nodes(group) == before


def test_fences_without_a_plan_stay_and_are_reported(lab: Lab) -> None:
    group, plan = moved(lab, stop_after=Phase.FENCED)
    with lab.process() as session:
        moving = lab.moving(session, plan)
        steps = rollback_steps(moving, RollbackOptions(lambda _: None, 1_000, has_plan=False))
        with pytest.raises(PartiallyDoneError, match=r"has fences \(3 owner nodes, 7 access lists"):
            lab.carry_out(moving, steps)
    with lab.process() as session:
        lab.rollback(session, plan)
    assert lab.stands(group) == ("undone", "zookeeper")


def test_waiting_in_vain_before_the_first_change_changes_nothing(lab: Lab) -> None:
    group = lab.new_group()
    plan = lab.plan(group, DECISIONS)
    with lab.process() as session, lab.process() as modern:
        other = lab.moving(modern, replace(plan, migration_id="app"))
        other.placeholder.join()
        with pytest.raises(WaitTimeoutError) as it:
            moving = lab.moving(session, plan)
            lab.carry_out(moving, copy_steps(moving, CopyOptions(plan_to_bytes(plan))), 3_000)
        other.placeholder.leave()
    assert it.value.exit_code == 7
    assert lab.control(group) is None


# --- complete ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("remove_fences", [True, False])
def test_complete_keeps_the_znodes_in_a_file_and_lifts_the_fences(
    lab: Lab, tmp_path: Path, remove_fences: bool
) -> None:
    group = lab.new_group()
    before = lab.nodes(group)
    plan = lab.plan(group, DECISIONS)
    with lab.process() as session:
        lab.apply(session, plan)
    fenced = lab.nodes(group)
    file = tmp_path / "archive"
    with lab.process() as session:
        moving = lab.moving(session, plan)
        lab.carry_out(moving, complete_steps(moving, file, remove_fences=remove_fences))
    assert lab.stands(group) == ("completed", "kafka")
    assert lab.nodes(group) == (before if remove_fences else fenced)
    assert file.stat().st_mode & 0o777 == 0o600
    archive = read_archive(file)
    root = paths.group_root(group)
    data = {node.path.removeprefix(root): node.data.replace(group.encode(), b"G") for node in archive.nodes}
    assert data == {path: data for path, (data, _) in fenced.items()}
    with lab.process() as session:
        moving = lab.moving(session, plan)
        assert lab.carry_out(moving, complete_steps(moving, file, remove_fences=remove_fences)) == []
        with pytest.raises(PreconditionFailed, match="cannot be rolled back"):
            list(rollback_steps(moving, RollbackOptions(lambda _: None, 1)))


def test_only_a_switched_migration_is_completed(lab: Lab, tmp_path: Path) -> None:
    _, plan = moved(lab, stop_after=Phase.VERIFIED)
    with lab.process() as session, pytest.raises(PreconditionFailed, match="only one that is switched"):
        list(complete_steps(lab.moving(session, plan), tmp_path / "archive", remove_fences=True))


def test_an_archive_puts_missing_nodes_back_and_changes_none(lab: Lab, tmp_path: Path) -> None:
    group, plan = moved(lab)
    file = tmp_path / "archive"
    with lab.process() as session:
        moving = lab.moving(session, plan)
        lab.carry_out(moving, complete_steps(moving, file, remove_fences=True))
    lab.zookeeper.remove(paths.offset(group, T0))
    lab.zookeeper.ensure(paths.offset(group, TopicPartition("t", 1)), b"21")
    archive = read_archive(file)
    with lab.process() as session:
        assert restore_znodes(session, archive) == [paths.offset(group, T0)]
        assert restore_znodes(session, archive) == []
    assert lab.offsets(group) == {T0: 10, TopicPartition("t", 1): 21}
    for change in (b"x", b"{}", b'{"sha256":"00"}'):
        broken = tmp_path / "broken"
        broken.write_bytes(file.read_bytes() + change)
        with pytest.raises(InvalidArchiveError):
            read_archive(broken)
    with pytest.raises(InvalidArchiveError, match="cannot be read"):
        read_archive(tmp_path / "none")


# --- hooks ------------------------------------------------------------------------------------------------------


def hook(folder: Path, name: str, script: str) -> None:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)


def test_programs_run_around_the_cut_over_in_the_order_of_their_names(lab: Lab, tmp_path: Path) -> None:
    folder, out = tmp_path / "hooks", tmp_path / "out"
    for name in ("before-cut-over-2", "before-cut-over-1", "after-cut-over"):
        said = '"$ZKCONSUMER_GROUP $ZKCONSUMER_PHASE $ZKCONSUMER_AUTHORITY $ZKCONSUMER_PARTITIONS"'
        hook(folder, f"zkconsumer-on-{name}", f"echo {name} {said} >> {out}")
    (folder / "README").write_text("no hook")
    group, _ = moved(lab, hooks_dir=folder)
    assert out.read_text().splitlines() == [
        f"before-cut-over-1 {group} verified zookeeper 3",
        f"before-cut-over-2 {group} verified zookeeper 3",
        f"after-cut-over {group} switched kafka 3",
    ]


def test_a_program_may_veto_and_the_next_run_asks_it_again(lab: Lab, tmp_path: Path) -> None:
    folder = tmp_path / "hooks"
    hook(folder, "zkconsumer-on-before-cut-over", "exit 3")
    group = lab.new_group()
    plan = lab.plan(group, DECISIONS)
    with lab.process() as session, pytest.raises(HookVetoError, match="ended with 3") as it:
        lab.apply(session, plan, hooks_dir=folder)
    assert it.value.exit_code == 6
    assert lab.stands(group) == ("verified", "zookeeper")
    hook(folder, "zkconsumer-on-before-cut-over", "exit 0")
    hook(folder, "zkconsumer-on-after-cut-over", "exit 9")
    with lab.process() as session, pytest.raises(HookFailedError, match="ended with 9") as failed:
        lab.apply(session, plan, hooks_dir=folder)
    assert failed.value.exit_code == 6
    assert lab.stands(group) == ("switched", "kafka")
    assert lab.commit(group, 0, 11) == 0, "the seat was left"


def test_a_program_that_takes_too_long_or_cannot_run_is_reported(tmp_path: Path) -> None:
    from bridge.migration.steps.cut_over_hooks import find_hooks, run_hook_program

    beats: list[int] = []
    hook(tmp_path, "zkconsumer-on-x", "sleep 60")
    words = run_hook_program(tmp_path / "zkconsumer-on-x", {}, 0.6, lambda: beats.append(1))
    assert words == "did not end within 0.6 s"
    assert beats, "the seat beats meanwhile"
    (tmp_path / "zkconsumer-on-x").chmod(0o644)
    with pytest.raises(PreconditionFailed, match="make it executable"):
        find_hooks(tmp_path, "zkconsumer-on-x")
    with pytest.raises(PreconditionFailed, match="cannot be read"):
        find_hooks(tmp_path / "none", "zkconsumer-on-x")
    assert find_hooks(None, "zkconsumer-on-x") == []
