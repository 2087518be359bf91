"""``complete``: ends a switched migration, and with ``--remove-fences`` removes its fences.

    from switched     write the archive and read it back · completed
    --remove-fences     after it, or in a later run: delete owner fences · restore access lists

The phase is written first: in phase *switched* a fence must block an old member that starts, since its offsets are
those of the cut-over.  The fences remain unless ``remove_fences`` is given.  The plan and the saved access lists remain
beside the control znode, so a later run finds the lists from before the fence.  Each step checks the state of the
stores, so a run after a crash at any write continues.

With ``dual``, members act by ``switched`` before it, and by ``completed`` after it: they are ordinary members then.

The offset znodes remain in both cases, as they were at the cut-over; ``zkconsumer groups delete`` deletes them, and
``zkconsumer migrate restore`` restores them from the archive.
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
    """The steps from the present phase on.  Each is executed before the next is generated."""
    authority, phase = moving.control_znode, moving.phase
    is_dual = moving.plan.strategy == "dual"
    if phase is not Phase.COMPLETED:
        check_can_be_completed(moving.group, authority.migration_id, phase)
        yield CheckControlAcls(authority.session, moving.group)
        yield AcquireLock(authority, moving.caller, expected_phase=phase)
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
    """``holds_run``: an earlier step of these acquired the lock."""
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
