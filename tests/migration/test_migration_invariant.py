"""Each clause of the invariant is broken once: the run stops before the step, and the error names the clause.

The rows are written down here a second time.  So a clause that is removed from the tables is missed here.
"""

from __future__ import annotations

from dataclasses import fields, replace
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.migration.control.control_layout import initial_control, next_control
from bridge.migration.control.control_pieces import StorePlan
from bridge.migration.control.control_steps import AcquireLock, AdvancePhase, CreateControlZnode
from bridge.migration.control.control_znode import VersionedControl
from bridge.migration.control.phases import Phase, Strategy, authority_of
from bridge.migration.dual.dual_rollback import CopyOrphanedToZooKeeper
from bridge.migration.dual.member_steps import WaitForAcknowledgements, WaitForFullOwnership
from bridge.migration.dual.store_comparison import CompareStores
from bridge.migration.errors import MigrationInvariantError
from bridge.migration.fences.fence_acl_steps import RestoreAcls, SetFenceAcls
from bridge.migration.fences.fence_checks import CheckFences, WaitForMembersToLeave, WaitForOwnershipRelease
from bridge.migration.fences.fence_removal import RemoveOwnerFences
from bridge.migration.fences.owner_fences import CreateLateOwnerFences, CreateOwnerFences
from bridge.migration.fences.post_switch_fences import FenceUnownedPartitions
from bridge.migration.fences.rebalance_trigger import TriggerRebalance
from bridge.migration.offsets.offset_copy_steps import CopyToKafka, CopyToZooKeeper
from bridge.migration.offsets.offset_verification import VerifyCopiedOffsets, VerifyReturnedOffsets
from bridge.migration.offsets.returned_offsets import StoreReturnedOffsets
from bridge.migration.placeholder.placeholder_steps import (
    JoinPlaceholder,
    RemovePlaceholder,
    WaitForEmptyCoordinatorGroup,
)
from bridge.migration.plan.plan_file import plan_to_bytes
from bridge.migration.steps.authority_steps import CheckForeignCommits, ConfirmAuthorityMove, MoveAuthority
from bridge.migration.steps.copy_strategy import CopyOptions, copy_steps
from bridge.migration.steps.cut_over_hooks import AFTER_CUT_OVER, BEFORE_CUT_OVER, RunHooks
from bridge.migration.steps.drift_steps import AcceptDrift
from bridge.migration.steps.migration_context import AppendJournal
from bridge.migration.steps.migration_invariant import PHASE_NEEDS, STEP_NEEDS, MigrationInvariant
from bridge.migration.steps.rollback import CheckNoFences, RollbackOptions, rollback_steps
from bridge.migration.steps.znode_archive import WriteArchive
from tests.migration.migration_write_faults import DECISIONS, Lab, lab

__all__ = ["lab"]


def step_of(kind: Any, **given: Any) -> Any:
    """A step of this class with only these fields, for a check that uses its class and its name."""
    made = object.__new__(kind)
    for one in fields(kind):
        object.__setattr__(made, one.name, given.get(one.name))
    return made


class Run:
    """One run of a migration whose state the tests set."""

    def __init__(self, strategy: Strategy, phase: Phase, *, is_confirmed: bool = True) -> None:
        control = replace(initial_control("m", strategy, None), phase=phase.value, authority=authority_of(phase))
        self.znode = SimpleNamespace(
            migration_id="m", last_seen=VersionedControl(replace(control, is_confirmed=is_confirmed), 1), has_lock=True
        )
        self.placeholder = SimpleNamespace(joined=None)
        context: Any = SimpleNamespace(
            control_znode=self.znode,
            placeholder=self.placeholder,
            plan=SimpleNamespace(uses_acl_fence=strategy == "copy"),
            group="g",
        )
        self.invariant = MigrationInvariant(context)

    @property
    def phase(self) -> Phase:
        return self.znode.last_seen.phase

    def step(self, kind: type, **given: Any) -> Any:
        """A step of this class in the current phase; with ``SetFenceAcls`` the one that completes the fence."""
        return step_of(kind, **{"control_znode": self.znode, "phase": self.phase, **given})

    def done(self, *kinds: type) -> Run:
        """The checks of these steps find them done."""
        for kind in kinds:
            if kind is JoinPlaceholder:
                self.placeholder.joined = object()
            if kind is RemovePlaceholder:
                self.placeholder.joined = None
            self.invariant.check_after(self.step(kind))
        return self

    def control(self, **changes: Any) -> None:
        """The control znode that the run reads next."""
        held = self.znode.last_seen
        self.znode.last_seen = VersionedControl(replace(held.control, **changes), held.version + 1)

    def write(self, phase: Phase, /, *, step: type = AdvancePhase, **changes: Any) -> None:
        """A step writes the phase, with these fields wrong."""
        made = self.step(step, phase=phase)
        self.invariant._executing = made
        held = self.znode.last_seen
        is_confirmed = step is not MoveAuthority
        control = replace(next_control(held.control, phase, is_confirmed=is_confirmed), **changes)
        self.znode.last_seen = VersionedControl(control, held.version + 1)
        self.invariant.check_after(made)


MAKES: dict[str, type] = {
    "the plan is stored": StorePlan,
    "the journal has an entry": AppendJournal,
    "no member is registered": WaitForMembersToLeave,
    "no partition has an owner": WaitForOwnershipRelease,
    "access lists of the fence": SetFenceAcls,
    "every partition has an owner fence": CreateLateOwnerFences,
    "all fences were found": CheckFences,
    "the placeholder member is in": JoinPlaceholder,
    "the placeholder member has left": RemovePlaceholder,
    "the coordinator group is empty": WaitForEmptyCoordinatorGroup,
    "the offsets are those of the plan": AcceptDrift,
    "committed to Kafka": CopyToKafka,
    "every offset was compared": VerifyCopiedOffsets,
    "in the group before the move": CheckForeignCommits,
    "has acknowledged this phase;|has acknowledged this phase \\(": WaitForAcknowledgements,
    "owned in both stores": WaitForFullOwnership,
    "both stores agreed": CompareStores,
    "archived": WriteArchive,
    "are recorded": StoreReturnedOffsets,
    "no owner fence exists": RemoveOwnerFences,
    "before the fence": RestoreAcls,
}
"""What the error says -> the step that makes it true."""

PLAN, JOURNAL, MEMBERS, RELEASED = StorePlan, AppendJournal, WaitForMembersToLeave, WaitForOwnershipRelease
ACLS, OWNERS, FENCES, JOIN, LEAVE = SetFenceAcls, CreateLateOwnerFences, CheckFences, JoinPlaceholder, RemovePlaceholder
COPY, EQUAL, EMPTY, DRIFT = CopyToKafka, VerifyCopiedOffsets, WaitForEmptyCoordinatorGroup, AcceptDrift
ACK, OWN, AGREE = WaitForAcknowledgements, WaitForFullOwnership, CompareStores
ARCHIVE, RECORD, UNFENCE, RESTORE, PROVEN = (
    WriteArchive, StoreReturnedOffsets, RemoveOwnerFences, RestoreAcls, CheckForeignCommits,
)  # fmt: skip

PHASES: list[tuple[Strategy, type, Phase, Phase, list[type]]] = [
    ("copy", AdvancePhase, Phase.PLANNED, Phase.FENCING, [PLAN, JOURNAL]),
    ("copy", AdvancePhase, Phase.FENCING, Phase.FENCED, [MEMBERS, RELEASED, ACLS, OWNERS, JOIN]),
    ("copy", AdvancePhase, Phase.FENCED, Phase.COPIED, [FENCES, JOIN, COPY]),
    ("copy", AdvancePhase, Phase.COPIED, Phase.VERIFIED, [JOIN, EQUAL]),
    ("copy", MoveAuthority, Phase.VERIFIED, Phase.SWITCHED, [FENCES, JOIN, COPY, EQUAL]),
    ("copy", AdvancePhase, Phase.SWITCHED, Phase.COMPLETED, [LEAVE, ARCHIVE]),
    ("copy", AdvancePhase, Phase.SWITCHED, Phase.RETURNING, [EMPTY]),
    ("copy", MoveAuthority, Phase.RETURNING, Phase.RETURNED, [JOURNAL, MEMBERS, ACLS, OWNERS, JOIN, EQUAL]),
    ("dual", MoveAuthority, Phase.RETURNING, Phase.RETURNED, [JOURNAL, MEMBERS, OWNERS, JOIN, EQUAL]),
    ("copy", AdvancePhase, Phase.RETURNED, Phase.UNDONE, [RECORD, LEAVE, UNFENCE, RESTORE]),
    ("copy", AdvancePhase, Phase.UNDOING, Phase.UNDONE, [LEAVE, UNFENCE, RESTORE]),
    ("dual", AdvancePhase, Phase.PLANNED, Phase.ARMED, [PLAN, JOURNAL, ACK, LEAVE]),
    ("dual", AdvancePhase, Phase.ARMED, Phase.READY, [ACK]),
    ("dual", AdvancePhase, Phase.READY, Phase.LOCKED, [ACK]),
    ("dual", AdvancePhase, Phase.LOCKED, Phase.COPIED, [ACK, OWN, AGREE]),
    ("dual", AdvancePhase, Phase.COPIED, Phase.SWITCHED, [OWN, AGREE, ACK]),
    ("dual", AdvancePhase, Phase.SWITCHED, Phase.COMPLETED, [LEAVE, ACK, ARCHIVE]),
    ("dual", AdvancePhase, Phase.RETURNING, Phase.RETURNED, [JOURNAL, LEAVE, UNFENCE, OWN, AGREE, ACK]),
    ("dual", AdvancePhase, Phase.RETURNED, Phase.UNDONE, [LEAVE, ACK, RECORD, UNFENCE]),
    ("dual", AdvancePhase, Phase.UNDOING, Phase.UNDONE, [LEAVE, UNFENCE]),
]

STEPS: list[tuple[Strategy, type | str, Phase, list[type]]] = [
    *(("copy", CopyToKafka, phase, [JOURNAL, FENCES, JOIN, DRIFT])
      for phase in (Phase.FENCED, Phase.COPIED, Phase.VERIFIED)),
    ("copy", BEFORE_CUT_OVER, Phase.VERIFIED, [JOIN, FENCES, EQUAL]),
    ("copy", AFTER_CUT_OVER, Phase.SWITCHED, [LEAVE]),
    ("copy", WriteArchive, Phase.SWITCHED, [LEAVE]),
    ("copy", CreateOwnerFences, Phase.FENCING, [MEMBERS, RELEASED]),
    ("copy", CreateOwnerFences, Phase.RETURNING, [MEMBERS]),
    ("copy", SetFenceAcls, Phase.FENCING, [JOURNAL, MEMBERS]),
    ("copy", SetFenceAcls, Phase.RETURNING, [JOURNAL]),
    ("copy", SetFenceAcls, Phase.RETURNED, [EMPTY]),
    ("copy", CopyToZooKeeper, Phase.RETURNING, [JOURNAL, OWNERS, MEMBERS, ACLS, JOIN]),
    ("copy", CopyToZooKeeper, Phase.RETURNED, [MEMBERS, ACLS, JOIN]),
    ("copy", ConfirmAuthorityMove, Phase.SWITCHED, [PROVEN]),
    ("copy", ConfirmAuthorityMove, Phase.RETURNED, [JOIN, PROVEN]),
    ("copy", RestoreAcls, Phase.UNDOING, [LEAVE, UNFENCE]),
    ("copy", RestoreAcls, Phase.RETURNED, [LEAVE, UNFENCE, RECORD]),
    ("copy", RestoreAcls, Phase.COMPLETED, [UNFENCE]),
    ("copy", TriggerRebalance, Phase.UNDOING, [LEAVE, UNFENCE, RESTORE]),
    ("copy", TriggerRebalance, Phase.RETURNED, [LEAVE, UNFENCE, RESTORE, RECORD]),
    ("copy", RemoveOwnerFences, Phase.UNDOING, [LEAVE]),
    ("copy", RemoveOwnerFences, Phase.RETURNED, [LEAVE, RECORD]),
    ("dual", CopyToKafka, Phase.PLANNED, [JOURNAL, ACK, JOIN]),
    ("dual", BEFORE_CUT_OVER, Phase.COPIED, [ACK, OWN, AGREE]),
    ("dual", FenceUnownedPartitions, Phase.SWITCHED, [ACK]),
    ("dual", AFTER_CUT_OVER, Phase.SWITCHED, [ACK]),
    ("dual", WriteArchive, Phase.SWITCHED, [LEAVE, ACK]),
    ("dual", CopyOrphanedToZooKeeper, Phase.RETURNING, [JOURNAL, ACK, OWN]),
    ("dual", RemoveOwnerFences, Phase.RETURNING, [JOURNAL, LEAVE]),
]  # fmt: skip


def words_of(kind: type) -> str:
    return next(words for words, made_by in MAKES.items() if made_by is kind)


def executed(run: Run, kind: type | str) -> None:
    is_hook = isinstance(kind, str)
    run.invariant.check_before(run.step(RunHooks, event=kind) if is_hook else run.step(kind))  # type: ignore[arg-type]


@pytest.mark.parametrize(("strategy", "kind", "phase", "after", "needs"), PHASES)
def test_a_phase_begins_only_when_all_that_it_needs_is_known(
    strategy: Strategy, kind: type, phase: Phase, after: Phase, needs: list[type]
) -> None:
    complete = Run(strategy, phase).done(AcquireLock, *needs)
    complete.invariant.check_before(complete.step(kind, phase=after))
    for missing in needs:
        run = Run(strategy, phase).done(AcquireLock, *(one for one in needs if one is not missing))
        with pytest.raises(MigrationInvariantError, match=words_of(missing) if missing is not ACK else "acknowledged"):
            run.invariant.check_before(run.step(kind, phase=after))


@pytest.mark.parametrize(("strategy", "kind", "phase", "needs"), STEPS)
def test_a_step_is_executed_only_when_all_that_it_needs_is_known(
    strategy: Strategy, kind: type | str, phase: Phase, needs: list[type]
) -> None:
    executed(Run(strategy, phase).done(AcquireLock, *needs), kind)
    for missing in needs:
        run = Run(strategy, phase).done(AcquireLock, *(one for one in needs if one is not missing))
        with pytest.raises(MigrationInvariantError, match=words_of(missing)):
            executed(run, kind)


@pytest.mark.parametrize("strategy", ["copy", "dual"])
def test_a_step_of_the_tables_is_not_executed_in_another_phase(strategy: Strategy) -> None:
    for kind, rows in STEP_NEEDS[strategy].items():
        for phase in Phase:
            if phase not in rows:
                run = Run(strategy, phase).done(AcquireLock)
                with pytest.raises(MigrationInvariantError, match=f"must not be executed in phase {phase.value}"):
                    executed(run, kind)


def test_every_row_of_the_tables_is_broken_here() -> None:
    moved_by_members = {(strategy, phase, after) for strategy, _, phase, after, _ in PHASES}
    assert set(PHASE_NEEDS) == moved_by_members
    alike = {(kind, phase) for _, kind, phase, _ in STEPS}
    rows = {(kind, at) for steps in STEP_NEEDS.values() for kind, held in steps.items() for at in held if held[at]}
    assert rows == alike


def test_a_step_that_changes_something_needs_the_lock() -> None:
    run = Run("copy", Phase.PLANNED)
    run.invariant.check_before(run.step(CreateControlZnode))
    for kind in (StorePlan, AppendJournal, RemovePlaceholder):
        with pytest.raises(MigrationInvariantError, match="needs the lock"):
            run.invariant.check_before(run.step(kind))


def test_a_run_does_not_continue_without_the_lock_or_the_placeholder_member() -> None:
    run = Run("copy", Phase.FENCED).done(AcquireLock)
    run.znode.has_lock = False
    with pytest.raises(MigrationInvariantError, match="continued without the lock"):
        run.done(CheckFences)
    run = Run("copy", Phase.FENCED).done(AcquireLock, JoinPlaceholder)
    run.placeholder.joined = None
    with pytest.raises(MigrationInvariantError, match="continued without its placeholder member"):
        run.done(CheckFences)


def test_facts_of_an_earlier_attempt_do_not_count() -> None:
    run = Run("copy", Phase.COPIED).done(AcquireLock, JOIN, EQUAL)
    run.invariant.restart()
    run.done(AcquireLock)
    with pytest.raises(MigrationInvariantError, match=r"the placeholder member is in .* every offset was compared"):
        run.invariant.check_before(run.step(AdvancePhase, phase=Phase.VERIFIED))


@pytest.mark.parametrize("kind", [COPY, JOIN, RunHooks])
def test_a_comparison_does_not_count_after_a_write_a_join_or_a_hook(kind: type) -> None:
    run = Run("copy", Phase.VERIFIED).done(AcquireLock, JOURNAL, DRIFT, FENCES, JOIN, COPY, EQUAL)
    run.invariant.check_before(run.step(kind, event=BEFORE_CUT_OVER) if kind is RunHooks else run.step(kind))
    run.done(kind)
    with pytest.raises(MigrationInvariantError, match="every offset was compared"):
        run.invariant.check_before(run.step(MoveAuthority, phase=Phase.SWITCHED))


def test_the_fences_are_checked_again_after_a_hook() -> None:
    run = Run("copy", Phase.VERIFIED).done(AcquireLock, JOURNAL, DRIFT, FENCES, JOIN, COPY, EQUAL)
    executed(run, BEFORE_CUT_OVER)
    run.done(EQUAL)
    with pytest.raises(MigrationInvariantError, match="all fences were found"):
        run.invariant.check_before(run.step(MoveAuthority, phase=Phase.SWITCHED))


def test_members_acknowledge_again_after_a_comparison_and_in_each_phase() -> None:
    run = Run("dual", Phase.COPIED).done(AcquireLock, ACK, OWN, AGREE)
    with pytest.raises(MigrationInvariantError, match="after the last comparison"):
        run.invariant.check_before(run.step(AdvancePhase, phase=Phase.SWITCHED))
    run = Run("dual", Phase.ARMED).done(AcquireLock, ACK)
    run.invariant.check_before(run.step(AdvancePhase, phase=Phase.READY))
    run.write(Phase.READY)
    with pytest.raises(MigrationInvariantError, match="has acknowledged this phase"):
        run.invariant.check_before(run.step(AdvancePhase, phase=Phase.LOCKED))
    run.invariant.check_after(run.step(ACK, phase=Phase.ARMED))  # of the phase before
    with pytest.raises(MigrationInvariantError, match="has acknowledged this phase"):
        run.invariant.check_before(run.step(AdvancePhase, phase=Phase.LOCKED))


def test_only_steps_that_confirm_a_move_follow_it() -> None:
    for kind in (RemovePlaceholder, RemoveOwnerFences, RestoreAcls, StoreReturnedOffsets, TriggerRebalance):
        run = Run("copy", Phase.RETURNED, is_confirmed=False).done(AcquireLock, LEAVE, RECORD, UNFENCE, RESTORE)
        with pytest.raises(MigrationInvariantError, match="returned is not confirmed"):
            run.invariant.check_before(run.step(kind))
    for what in (AFTER_CUT_OVER, WriteArchive):
        run = Run("copy", Phase.SWITCHED, is_confirmed=False).done(AcquireLock, LEAVE)
        with pytest.raises(MigrationInvariantError, match="switched is not confirmed"):
            executed(run, what)


def test_a_move_is_proven_by_the_write_of_this_attempt_or_a_comparison_after_it() -> None:
    run = Run("copy", Phase.VERIFIED).done(AcquireLock, FENCES, JOIN, COPY, EQUAL)
    run.invariant.check_before(run.step(MoveAuthority, phase=Phase.SWITCHED))
    run.write(Phase.SWITCHED, step=MoveAuthority)
    executed(run, ConfirmAuthorityMove)
    found = Run("copy", Phase.SWITCHED, is_confirmed=False).done(AcquireLock, JOIN)
    found.invariant.check_after(found.step(MoveAuthority, phase=Phase.SWITCHED))  # written by an earlier attempt
    with pytest.raises(MigrationInvariantError, match="in the group before the move"):
        executed(found, ConfirmAuthorityMove)
    returned = Run("copy", Phase.RETURNED, is_confirmed=False).done(AcquireLock, JOIN, VerifyReturnedOffsets)
    executed(returned, ConfirmAuthorityMove)
    for kind in (CopyToZooKeeper, JoinPlaceholder):
        late = Run("copy", Phase.RETURNED, is_confirmed=False)
        late.done(AcquireLock, MEMBERS, ACLS, JOIN, VerifyReturnedOffsets)
        executed(late, kind)
        late.done(kind)
        with pytest.raises(MigrationInvariantError, match="in the group before the move"):
            executed(late, ConfirmAuthorityMove)


def test_the_phase_defines_the_authority() -> None:
    run = Run("copy", Phase.FENCED).done(AcquireLock)
    run.control(authority="kafka")
    with pytest.raises(MigrationInvariantError, match="kafka has the authority in phase fenced"):
        run.done(CheckFences)


def test_the_epoch_never_falls_also_in_a_later_attempt() -> None:
    run = Run("copy", Phase.FENCED)
    run.control(epoch=5)
    run.done(AcquireLock)
    run.invariant.restart()
    run.control(epoch=4)
    with pytest.raises(MigrationInvariantError, match="the epoch fell from 5 to 4"):
        run.done(AcquireLock)


def test_the_control_znode_changes_only_by_the_step_that_writes_it() -> None:
    run = Run("copy", Phase.FENCED).done(AcquireLock)
    run.control(epoch=9)
    with pytest.raises(MigrationInvariantError, match="the control znode changed, and no step has written it"):
        run.done(CheckFences)
    run = Run("copy", Phase.FENCED).done(AcquireLock)
    run.control(phase="copied")
    with pytest.raises(MigrationInvariantError, match="changed from fenced to copied, and no step has written it"):
        run.done(CheckFences)


def test_a_phase_is_written_in_its_order_with_its_epoch() -> None:
    run = Run("copy", Phase.FENCED).done(AcquireLock)
    with pytest.raises(MigrationInvariantError, match="the phase changed from fenced to verified, and no step"):
        run.write(Phase.COPIED, phase="verified")
    run = Run("copy", Phase.COPIED).done(AcquireLock)
    made = run.step(AdvancePhase, phase=Phase.FENCED)
    run.invariant._executing = made
    run.control(phase="fenced")
    with pytest.raises(MigrationInvariantError, match="fenced followed copied"):
        run.invariant.check_after(made)
    run = Run("copy", Phase.PLANNED).done(AcquireLock)
    with pytest.raises(MigrationInvariantError, match="fencing began with epoch 1 after epoch 1"):
        run.write(Phase.FENCING, epoch=1)


def test_the_authority_moves_unconfirmed_or_by_the_members() -> None:
    for step, is_confirmed in ((MoveAuthority, True), (AdvancePhase, True)):
        run = Run("copy", Phase.VERIFIED).done(AcquireLock)
        with pytest.raises(MigrationInvariantError, match="that no heartbeat or member confirms"):
            run.write(Phase.SWITCHED, step=step, is_confirmed=is_confirmed)
    Run("dual", Phase.COPIED).done(AcquireLock).write(Phase.SWITCHED)


def test_fences_that_are_known_not_to_exist_count_as_removed() -> None:
    run = Run("copy", Phase.UNDOING).done(AcquireLock, LEAVE, CheckNoFences)
    run.invariant.check_before(run.step(AdvancePhase, phase=Phase.UNDONE))


def test_the_error_says_what_to_report_and_that_nothing_more_was_changed() -> None:
    run = Run("copy", Phase.PLANNED).done(AcquireLock)
    with pytest.raises(MigrationInvariantError) as it:
        run.invariant.check_before(run.step(AdvancePhase, phase=Phase.FENCING))
    text = str(it.value)
    assert text.startswith(
        "before step 'control znode: fencing' of migration m: it is not known that the plan is stored"
    )
    assert "(phase planned, epoch 1, authority zookeeper, confirmed)" in text
    assert "changed nothing more" in text
    assert "report this text, all output of the run, and the output of: zkconsumer migrate status g" in text
    assert it.value.exit_code == 1


# --- with the steps of a real run -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("left_out", "stopped_before", "phase"),
    [
        (AcquireLock, "store the plan", "planned"),
        (AppendJournal, "control znode: fencing", "planned"),
        (WaitForMembersToLeave, "access lists", "fencing"),
        (JoinPlaceholder, "control znode: fenced", "fencing"),
        (CheckFences, "commit the offsets to Kafka", "fenced"),
        (CopyToKafka, "control znode: copied", "fenced"),
        (VerifyCopiedOffsets, "control znode: verified", "copied"),
        (ConfirmAuthorityMove, "remove the placeholder member", "switched"),
    ],
)
def test_a_run_that_leaves_a_step_out_stops_before_the_step_that_depends_on_it(
    lab: Lab, left_out: type, stopped_before: str, phase: str
) -> None:
    group = lab.new_group()
    plan = lab.plan(group, DECISIONS)
    with lab.process() as session:
        moving = lab.moving(session, plan)
        faulty = (
            step for step in copy_steps(moving, CopyOptions(plan_to_bytes(plan))) if not isinstance(step, left_out)
        )
        with pytest.raises(MigrationInvariantError, match=f"before step '{stopped_before}"):
            lab.carry_out(moving, faulty)
    assert lab.stands(group)[0] == phase
    with lab.process() as session:  # a run with all steps continues from there
        lab.apply(session, plan)
    assert lab.stands(group) == ("switched", "kafka")


def test_a_rollback_that_compares_nothing_does_not_move_the_authority(lab: Lab) -> None:
    group = lab.new_group()
    plan = lab.plan(group, DECISIONS)
    with lab.process() as session:
        lab.apply(session, plan)
    with lab.process() as session:
        moving = lab.moving(session, plan)
        steps = rollback_steps(moving, RollbackOptions(lambda _: None, 1_000))
        with pytest.raises(MigrationInvariantError, match="before step 'control znode: returned'"):
            lab.carry_out(moving, (step for step in steps if not isinstance(step, VerifyReturnedOffsets)))
    assert lab.stands(group) == ("returning", "kafka")
