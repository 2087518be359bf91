"""``complete``: ends a switched migration, and with ``--remove-fences`` lifts its fences.

    from switched     the archive is written and read back · completed
    --remove-fences     behind it, or in a later run: owner fences away · access lists as they were before

The phase comes first: while it is *switched*, an old member that starts must meet a fence, since its offsets are those
of the cut-over.  The fences stay unless ``remove_fences`` is given.  The plan and the saved access lists stay beside
the control znode, so a later run finds what the lists were before.  Each step looks at what is there, so a run after a
crash at any write goes on.

Of ``dual``, members act by ``switched`` before, and behind it by ``completed``: they are members like any others then.

The offset znodes stay either way, as they were at the cut-over; ``zkconsumer groups delete`` takes them away, and
``zkconsumer migrate restore`` brings back what the archive has.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from bridge.migration.control.control_acls import CheckControlAcls
from bridge.migration.control.control_steps import AcquireLock, AdvancePhase
from bridge.migration.control.phases import Phase
from bridge.migration.dual.member_steps import WaitForAcknowledgements
from bridge.migration.fences.fence_acl_steps import RestoreAcls
from bridge.migration.fences.fence_removal import RemoveOwnerFences
from bridge.migration.placeholder.placeholder_steps import RemovePlaceholder
from bridge.migration.steps.authority_steps import confirm_switch_steps
from bridge.migration.steps.step import StepDone
from bridge.migration.steps.znode_archive import WriteArchive
from zkconsumer.errors import PreconditionFailed

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.migration.steps.migration_context import MigrationContext
    from bridge.migration.steps.step import MigrationStep


def check_can_be_completed(group: str, migration_id: str, phase: Phase | None) -> None:
    """Raises ``PreconditionFailed`` in any phase but ``switched`` and ``completed``."""
    if phase not in (Phase.SWITCHED, Phase.COMPLETED):
        where = "has not begun" if phase is None else f"is in phase {phase.value}"
        raise PreconditionFailed(
            f"migration {migration_id} of group {group} {where}, and only one that is switched can be completed. To "
            f"see the next command: zkconsumer migrate status {group}"
        )


def complete_steps(moving: MigrationContext, archive: Path, *, remove_fences: bool) -> Iterator[MigrationStep]:
    """The steps from where the migration stands.  Each is carried out before the next is asked for."""
    authority, phase = moving.control_znode, moving.phase
    is_dual = moving.plan.strategy == "dual"
    if phase is not Phase.COMPLETED:
        check_can_be_completed(moving.group, authority.migration_id, phase)
        yield CheckControlAcls(authority.session, moving.group)
        yield AcquireLock(authority, moving.caller)
        yield from confirm_switch_steps(moving)
        yield RemovePlaceholder(moving.placeholder)
        if is_dual:
            yield WaitForAcknowledgements(authority, moving.stores, Phase.SWITCHED)
        yield WriteArchive(authority, moving.plan.snapshot.acls, archive)
        yield AdvancePhase(authority, Phase.COMPLETED)
    if is_dual:
        yield WaitForAcknowledgements(authority, moving.stores, Phase.COMPLETED)
    if remove_fences:
        yield from _fence_removal_steps(moving, holds_run=phase is not Phase.COMPLETED)


def _fence_removal_steps(moving: MigrationContext, *, holds_run: bool) -> Iterator[MigrationStep]:
    """``holds_run``: an earlier step of these took the run."""
    authority, plan = moving.control_znode, moving.plan
    steps: list[MigrationStep] = [RemoveOwnerFences(authority, moving.parents_to_keep)]
    if plan.uses_acl_fence:
        steps.append(RestoreAcls(authority, moving.topics, plan.snapshot.acls))
    if not holds_run:
        if all(isinstance(step.check(), StepDone) for step in steps):
            return
        yield CheckControlAcls(authority.session, moving.group)
        yield AcquireLock(authority, moving.caller)
    yield from steps
