"""``copy``: the old members stop, both sides are fenced, offsets are copied and compared, the authority moves.

    planned    control znode · lock · plan stored beside it
    fencing    no member is registered · access lists · no partition has an owner · owner fences ·
               placeholder member
    fenced     all fences exist · offsets as planned, or drift accepted · committed to Kafka with provenance
    copied     read back and compared by value, ZooKeeper's unchanged
    verified   hooks before the cut-over · all checks again, the placeholder member last
    switched   the authority moves in one conditional write · the placeholder confirms it and leaves · hooks after it

Each phase ends with one write of the control znode.  The steps are derived from the present phase when they are
requested, so a repeated run is the same as one that was never interrupted: after ``fenced`` it joins the placeholder
member again and compares everything before it writes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_acls import CheckControlAcls, CheckLoginOfProtectedGroup
from bridge.migration.control.control_pieces import StorePlan
from bridge.migration.control.control_steps import AcquireLock, AdvancePhase, CheckNoOtherMigration, CreateControlZnode
from bridge.migration.control.control_znode import ControlZnode
from bridge.migration.control.phases import Phase
from bridge.migration.fences.fence_acl_rules import blocks_group_logins
from bridge.migration.fences.fence_acl_steps import SetFenceAcls
from bridge.migration.fences.fence_checks import CheckFences, WaitForMembersToLeave, WaitForOwnershipRelease
from bridge.migration.fences.fence_permissions import CheckAclPermissions, CheckPermissions
from bridge.migration.fences.inherited_fences import StoreInheritedAcls
from bridge.migration.fences.owner_fences import CreateLateOwnerFences, owner_fence_steps
from bridge.migration.inspect.cluster_ids import CheckClusterIds
from bridge.migration.offsets.offset_copies import copies_of
from bridge.migration.offsets.offset_verification import VerifyCopiedOffsets
from bridge.migration.placeholder.placeholder_steps import (
    EnsureSessionTimeouts,
    JoinPlaceholder,
    RemovePlaceholder,
    WaitForEmptyCoordinatorGroup,
)
from bridge.migration.steps.authority_steps import authority_move_steps, confirm_switch_steps
from bridge.migration.steps.cut_over_hooks import AFTER_CUT_OVER, BEFORE_CUT_OVER, hook_steps
from bridge.migration.steps.drift_steps import AcceptDrift, CheckPlanCurrent
from bridge.migration.steps.migration_context import AppendJournal, copy_to_kafka_step
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.migration.steps.migration_context import MigrationContext
    from bridge.migration.steps.step import MigrationStep


@dataclass(frozen=True, slots=True)
class CopyOptions:
    """The operator's options for one run.

    ``plan_text``: the bytes of the original plan, which remain beside the control znode.  ``stop_after``: the run ends
    when that phase has.
    """

    plan_text: bytes
    accept_drift: bool = False
    hooks_dir: Path | None = None
    stop_after: Phase | None = None


def copy_steps(moving: MigrationContext, options: CopyOptions) -> Iterator[MigrationStep]:
    """The steps from the present phase on, up to ``stop_after`` if it is given.

    Each is executed before the next is generated.
    """
    for step in _all_steps(moving, options):
        if options.stop_after is not None and moving.has_reached(options.stop_after):
            return
        yield step
        if options.stop_after is not None and isinstance(step, AdvancePhase) and step.phase is options.stop_after:
            return  # a dry run, which reaches no phase, ends here too


def _all_steps(moving: MigrationContext, options: CopyOptions) -> Iterator[MigrationStep]:
    authority, acl_fence = moving.control_znode, moving.plan.uses_acl_fence
    begin, ended = CreateControlZnode(authority, "copy", moving.plan.snapshot), _completed_migration(moving)
    yield CheckControlAcls(authority.session, moving.group)
    yield CheckClusterIds(moving)
    if not moving.has_reached(Phase.SWITCHED):
        yield EnsureSessionTimeouts(moving.placeholder, moving.session)
    if moving.phase is None:
        yield CheckNoOtherMigration(
            begin
        )  # its placeholder would cause a wait, and its fences would be reported as missing permissions
        if acl_fence:
            yield CheckAclPermissions(authority.session, moving.group, moving.topics)
        yield CheckPermissions(authority.session, moving.znodes, moving.plan.snapshot.acls if ended else {})
        yield CheckLoginOfProtectedGroup(authority.session, moving.group, moving.plan.snapshot.acls)
        yield WaitForEmptyCoordinatorGroup(moving.placeholder)
        yield CheckPlanCurrent(moving, options.accept_drift)
        if ended:
            yield AcquireLock(ended, moving.caller)
            yield StoreInheritedAcls(ended, moving.plan.snapshot.acls)
    yield begin
    yield AcquireLock(authority, moving.caller)
    if not moving.has_reached(Phase.SWITCHED):
        yield StorePlan(authority, options.plan_text)
        yield AppendJournal(moving, "apply", {"plan": moving.plan.digest, "seat": moving.placeholder.name})
        had_placeholder = moving.has_reached(Phase.FENCED)
        if had_placeholder:
            yield JoinPlaceholder(moving.placeholder, had_placeholder=True)
        else:
            yield from _fencing_steps(moving)
        yield from _copying_steps(moving, options, had_placeholder=had_placeholder)
    else:
        yield from confirm_switch_steps(moving, accept_drift=options.accept_drift)
    yield RemovePlaceholder(moving.placeholder)
    yield from hook_steps(moving, options.hooks_dir, AFTER_CUT_OVER)


def _completed_migration(moving: MigrationContext) -> ControlZnode | None:
    """The completed migration whose fences this one takes over; None: there is none."""
    seen = moving.plan.snapshot
    return ControlZnode(moving.session, moving.group, seen.fences_migration_id) if seen.fences_migration_id else None


def _fencing_steps(moving: MigrationContext) -> Iterator[MigrationStep]:
    authority, plan = moving.control_znode, moving.plan
    acl_fence, planned = plan.uses_acl_fence, plan.snapshot.acls
    yield AdvancePhase(authority, Phase.FENCING)
    yield WaitForMembersToLeave(authority)
    if acl_fence:
        yield SetFenceAcls(authority, moving.topics, planned, members_may_delete=True)
    yield WaitForOwnershipRelease(authority, acl_fence and blocks_group_logins(authority, planned))
    if acl_fence:
        yield SetFenceAcls(authority, moving.topics, planned, members_may_delete=False)
    yield from owner_fence_steps(authority, plan.snapshot.partitions)
    yield CreateLateOwnerFences(authority, frozenset(plan.snapshot.partitions))
    yield JoinPlaceholder(moving.placeholder, had_placeholder=False)
    yield AdvancePhase(authority, Phase.FENCED)


def _copying_steps(moving: MigrationContext, options: CopyOptions, *, had_placeholder: bool) -> Iterator[MigrationStep]:
    authority, stores = moving.control_znode, moving.stores
    yield _check_fences(moving)
    yield AcceptDrift(moving, options.accept_drift, had_placeholder)
    copies = copies_of(moving.plan)
    known = frozenset(moving.plan.snapshot.partitions)
    yield copy_to_kafka_step(moving, copies)
    yield AdvancePhase(authority, Phase.COPIED)
    yield VerifyCopiedOffsets(stores, copies, known)
    yield AdvancePhase(authority, Phase.VERIFIED)
    yield from hook_steps(moving, options.hooks_dir, BEFORE_CUT_OVER)
    if options.hooks_dir is not None:
        # The hooks take time: check everything once more.
        yield VerifyCopiedOffsets(stores, copies, known)
    yield _check_fences(moving)
    yield from authority_move_steps(moving, Phase.SWITCHED)


def _check_fences(moving: MigrationContext) -> CheckFences:
    kept = f"the plan beside {paths.control(moving.group)}"
    return CheckFences(moving.control_znode, tuple(moving.plan.snapshot.partitions), kept)
