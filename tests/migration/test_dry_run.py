"""A dry run looks at every step and changes nothing: so none may need what a step before it would have done."""

from __future__ import annotations

import pytest

from bridge.migration.control.control_pieces import StorePlan
from bridge.migration.control.control_steps import AcquireLock, AdvancePhase, CreateControlZnode
from bridge.migration.control.control_znode import ControlZnode
from bridge.migration.control.phases import Phase
from bridge.migration.fences.fence_acl_steps import RestoreAcls
from bridge.migration.fences.fence_checks import CheckFences, WaitForMembersToLeave, WaitForOwnershipRelease
from bridge.migration.fences.fence_permissions import CheckAclPermissions
from bridge.migration.fences.fence_removal import RemoveOwnerFences
from bridge.migration.fences.rebalance_trigger import TriggerRebalance
from bridge.migration.steps.step import MigrationStep, StepDone, StepPending, StepRefused, StepRunner, StepWaiting
from tests.migration.fence_fixtures import FENCING, PLANNED, TOPICS, UNDOING, fence_all, lists_of, moved, stood
from tests.migration.step_write_faults import GROUP, WHO, Group
from zkconsumer.errors import ZkConsumerError
from zkconsumer.types import TopicPartition
from zkconsumer.zk import paths
from zkconsumer.zk.requests import Create
from zkconsumer.zk.store import submit_and_wait


class Explain:
    """Shows what would be done."""

    rechecks_steps = False

    def __init__(self) -> None:
        self.said: list[str] = []

    def execute(self, step: MigrationStep) -> None:
        assert step.describe()
        self.said.append(f"do {step.name}")

    def on_already_done(self, step: MigrationStep) -> None:
        self.said.append(f"done {step.name}")

    def on_waiting(self, step: MigrationStep, waiting: StepWaiting, left_ms: int) -> bool:
        self.said.append(f"wait for {waiting.waits_for}")
        return False

    def on_refused(self, step: MigrationStep, error: ZkConsumerError) -> None:
        self.said.append(f"refused {step.name}")


def forward(authority: ControlZnode) -> list[MigrationStep]:
    planned = lists_of(stood())
    return [
        CheckAclPermissions(authority.session, GROUP, TOPICS),
        CreateControlZnode(authority, "copy"),
        AcquireLock(authority, WHO),
        StorePlan(authority, b"plan"),
        AdvancePhase(authority, Phase.FENCING),
        WaitForMembersToLeave(authority),
        WaitForOwnershipRelease(authority, acl_fence=True),
        *fence_all(authority, planned),
        AdvancePhase(authority, Phase.FENCED),
        CheckFences(authority, PLANNED, "plan.json"),
        *(AdvancePhase(authority, phase) for phase in (Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED, Phase.COMPLETED)),
    ]


def back(authority: ControlZnode) -> list[MigrationStep]:
    planned = lists_of(stood())
    return [
        AdvancePhase(authority, Phase.UNDOING),
        RemoveOwnerFences(authority, planned),
        RestoreAcls(authority, TOPICS, planned),
        TriggerRebalance(authority),
        AdvancePhase(authority, Phase.UNDONE),
    ]


def explained(group: Group, steps: str) -> list[str]:
    before = group.state()
    explain = Explain()
    with group.process() as authority:
        run = StepRunner(explain, group.clock, 1_000, "again", authority.is_abort_requested)
        run.run_steps(forward(authority) if steps == "forward" else back(authority))
    assert group.state() == before
    return explain.said


def live(group: Group) -> Group:
    store = group.member()
    submit_and_wait(store, [
        Create(paths.registration(GROUP, "g1_a-1"), b"{}", ephemeral=True),
        Create(paths.owner(GROUP, TopicPartition("clicks", 0)), b"g1_a-1-0", ephemeral=True),
    ], 1_000)  # fmt: skip
    return group


def test_a_live_group_is_explained_from_the_first_step_to_the_last() -> None:
    said = explained(live(stood()), "forward")
    assert said == [
        "done the right to change the access lists",
        "do control znode: planned",
        "do acquire the lock",
        "do store the plan",
        "do control znode: fencing",
        "wait for g1_a-1 to leave: stop the old members",
        "wait for the owner nodes of clicks/0 to end",
        "wait for g1_a-1 to leave (1 registered)",
        "wait for g1_a-1 to leave (1 registered)",
        "do owner fences 1 of 1",
        "do owner fences for late partitions",
        "do control znode: fenced",
        "do all fences exist",
        *(f"do control znode: {phase}" for phase in ("copied", "verified", "switched", "completed")),
    ]


@pytest.mark.parametrize("ended", ["undone", "completed"])
def test_behind_a_migration_that_has_ended_the_next_is_explained_the_same(ended: str) -> None:
    way = (Phase.FENCED, Phase.COPIED, Phase.VERIFIED, Phase.SWITCHED, Phase.COMPLETED)
    group = moved(*((*UNDOING, Phase.UNDONE) if ended == "undone" else (*FENCING, *way)), migration="m0")
    group.zookeeper.ensure(paths.control_child(GROUP, "plan-0000"), b"of m0")
    assert explained(live(group), "forward") == explained(live(stood()), "forward")


def test_the_rollback_is_explained_before_it_begins() -> None:
    group = moved(*FENCING)
    with group.process() as authority:
        for step in fence_all(authority, lists_of(stood()))[2:]:
            step.do()
    assert explained(group, "back") == [
        "do control znode: undoing", "do lift the owner fences", "done restore the access lists",
        "do trigger a rebalance of the old members", "do control znode: undone",
    ]  # fmt: skip


def test_every_step_that_changes_something_refuses_another_migration() -> None:
    group = moved(*FENCING, migration="m0")
    with group.process() as authority:
        steps = [*forward(authority), *back(authority)]
        for step in steps:
            standing = step.check()
            if step.changes or isinstance(step, CheckFences):
                assert isinstance(standing, StepRefused), step.name
                assert "m0" in str(standing.error)
            else:
                assert isinstance(standing, StepDone | StepPending | StepRefused)


def test_a_step_that_was_checked_too_early_is_not_done() -> None:
    """A step that a dry run shows as to do is refused when a client executes it too early."""
    group = moved()
    group.topic("clicks", 4)
    before = group.state()
    with group.process() as authority:
        late = [*fence_all(authority, lists_of(stood())), CheckFences(authority, PLANNED, "x"), *back(authority)[1:]]
        late += [AdvancePhase(authority, Phase.COPIED), AdvancePhase(authority, Phase.UNDONE)]
        for step in late:
            with pytest.raises(ZkConsumerError, match="in phase planned"):
                step.do()
    assert group.state() == before
