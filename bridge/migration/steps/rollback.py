"""``rollback``: the steps back to ZooKeeper, by phase.

    before switched   restore offsets that a client deleted · undoing · the placeholder leaves · delete owner fences ·
                      restore access lists · trigger a rebalance · undone
    after it          check permissions · Spark queries are requested to leave · the coordinator group is empty ·
                      returning · this run's login gets the nodes · no member is registered · owner fences · the
                      placeholder joins · Kafka -> ZooKeeper · compared · returned (the authority moves) · confirmed ·
                      record those offsets (``returned``) · the placeholder leaves · delete owner fences · restore
                      access lists · trigger a rebalance · undone
    returned, but     the coordinator group is empty · the placeholder joins · Kafka -> ZooKeeper · compared ·
    not confirmed     confirmed · ...

The steps are derived from the present phase, so that a repeated run is the same as one that was never interrupted.
Offsets of topics and partitions that were created meanwhile are copied too.

With ``dual`` the members continue to run, and take the group back themselves (``bridge.migration.dual``); no rebalance
has to be triggered then.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_acls import CheckControlAcls
from bridge.migration.control.control_steps import AcquireLock, AdvancePhase
from bridge.migration.control.phases import Phase
from bridge.migration.dual.dual_rollback import dual_return_steps, has_non_acknowledging_members, has_registered_members
from bridge.migration.dual.member_steps import WaitForAcknowledgements
from bridge.migration.errors import PartiallyDoneError
from bridge.migration.fences.fence_acl_rules import acl_of_new_offsets
from bridge.migration.fences.fence_acl_steps import RestoreAcls, SetFenceAcls
from bridge.migration.fences.fence_acls import is_fence
from bridge.migration.fences.fence_checks import WaitForMembersToLeave
from bridge.migration.fences.fence_permissions import CheckAclPermissions, CheckPermissions, fenced_levels
from bridge.migration.fences.fence_record import parse_fence_record
from bridge.migration.fences.fence_removal import RemoveOwnerFences
from bridge.migration.fences.late_acls import acls_before_fence
from bridge.migration.fences.owner_fences import CreateLateOwnerFences, owner_fence_steps
from bridge.migration.fences.owner_nodes import read_owner_nodes
from bridge.migration.fences.rebalance_trigger import TriggerRebalance, WaitForOffsetProgress
from bridge.migration.inspect.cluster_ids import CheckClusterIds
from bridge.migration.offsets.offset_copy_steps import COPY_PHASES, CopyToZooKeeper
from bridge.migration.offsets.offset_verification import VerifyReturnedOffsets
from bridge.migration.offsets.restored_offsets import RestoreDeletedOffsets
from bridge.migration.offsets.returned_offsets import StoreReturnedOffsets
from bridge.migration.placeholder.placeholder_steps import (
    EnsureSessionTimeouts,
    JoinPlaceholder,
    RemovePlaceholder,
    RequestMembersToLeave,
    WaitForEmptyCoordinatorGroup,
)
from bridge.migration.steps.authority_steps import ConfirmAuthorityMove, authority_move_steps, confirm_switch_steps
from bridge.migration.steps.migration_context import AppendJournal
from bridge.migration.steps.step import CheckingStep, StepDone, StepRefused, StepStatus
from zkconsumer.admin.log_ranges import LogRange, log_ranges
from zkconsumer.errors import InternalError, PreconditionFailed

if TYPE_CHECKING:
    from collections.abc import Mapping

    from bridge.migration.control.control_znode import ControlZnode
    from bridge.migration.fences.fence_acls import AccessList
    from bridge.migration.plan.decisions import OffsetConvention
    from bridge.migration.steps.migration_context import MigrationContext
    from bridge.migration.steps.step import MigrationStep
    from zkconsumer.types import TopicPartition

_AFTER_SWITCH = (Phase.SWITCHED, Phase.RETURNING)


@dataclass(frozen=True, slots=True)
class RollbackOptions:
    """``has_plan`` False: the plan was not stored completely, because the first run was interrupted while it wrote it.

    ``report``: receives a sentence about members that must be restarted.  ``progress_timeout_ms``: how long to wait
    until the offsets of old members change.
    """

    report: Callable[[str], None]
    progress_timeout_ms: int
    has_plan: bool = True


def rollback_steps(moving: MigrationContext, options: RollbackOptions) -> Iterator[MigrationStep]:
    """The steps from the present phase on.  Each is executed before the next is generated."""
    authority, phase = moving.control_znode, moving.phase
    if phase is Phase.COMPLETED:
        raise PreconditionFailed(
            f"migration {authority.migration_id} of group {moving.group} is completed and cannot be rolled back. "
            "A second migration that keeps Kafka's offsets can be rolled back: stop the new members, then "
            f"zkconsumer migrate plan {moving.group} --existing keep-target; then apply that plan, and roll back. Or "
            f"old members continue with another group.id, with offsets of: zkconsumer offsets export {moving.group}"
        )
    if phase is None or phase is Phase.UNDONE:
        return
    yield CheckControlAcls(authority.session, moving.group)
    yield CheckClusterIds(moving)
    if phase in (*_AFTER_SWITCH, Phase.RETURNED) and not has_registered_members(moving):
        yield EnsureSessionTimeouts(moving.placeholder, moving.session)
    if phase is Phase.SWITCHED:
        # Checked while new members still read: a rollback that stops half-way would block them.
        before: Mapping[str, AccessList] = {}
        if moving.plan.uses_acl_fence:
            before = acls_before_fence(authority, moving.plan.snapshot.acls)
            yield CheckAclPermissions(authority.session, moving.group, moving.topics)
        yield CheckPermissions(authority.session, moving.znodes, before)
    yield AcquireLock(authority, moving.caller, expected_phase=phase)
    is_dual = moving.plan.strategy == "dual"
    if phase in _AFTER_SWITCH and has_registered_members(moving):
        yield from dual_return_steps(moving)
    elif phase in _AFTER_SWITCH:
        yield from confirm_switch_steps(moving)
        yield from _return_steps(moving)
    elif phase is Phase.RETURNED:
        if not moving.is_confirmed:
            yield from _confirm_return_steps(moving)
    else:
        if phase in COPY_PHASES and options.has_plan and not is_dual:  # with dual the members store
            yield RestoreDeletedOffsets(
                moving.stores, moving.plan.snapshot.partitions, acl_of_new_offsets(authority, moving.plan)
            )
        yield AdvancePhase(authority, Phase.UNDOING)
    if phase in (*_AFTER_SWITCH, Phase.RETURNED) and not is_dual:
        yield StoreReturnedOffsets(moving)
    yield RemovePlaceholder(moving.placeholder)
    if is_dual and phase in (*_AFTER_SWITCH, Phase.RETURNED):
        # By then members have committed over their earlier offsets, now with provenance.
        yield WaitForAcknowledgements(authority, moving.stores, Phase.RETURNED)
        yield StoreReturnedOffsets(moving)
    if options.has_plan:
        yield RemoveOwnerFences(authority, moving.parents_to_keep)
        if moving.plan.uses_acl_fence:
            yield RestoreAcls(authority, moving.topics, moving.plan.snapshot.acls)
    else:
        yield CheckNoFences(authority)
    if is_dual and not has_non_acknowledging_members(moving):
        yield AdvancePhase(authority, Phase.UNDONE)
        yield WaitForAcknowledgements(authority, moving.stores, Phase.UNDONE)
        return
    yield TriggerRebalance(authority)
    yield AdvancePhase(authority, Phase.UNDONE)
    yield WaitForOffsetProgress(authority, lambda: _log_ends(moving), options.report, options.progress_timeout_ms)


def _return_steps(moving: MigrationContext) -> Iterator[MigrationStep]:
    authority, plan, stores = moving.control_znode, moving.plan, moving.stores
    convention, acl_fence = _convention_of(moving), plan.uses_acl_fence
    if moving.phase is Phase.SWITCHED:
        yield RequestMembersToLeave(authority)
    yield WaitForEmptyCoordinatorGroup(moving.placeholder)
    yield AdvancePhase(authority, Phase.RETURNING)
    yield AppendJournal(moving, "rollback", {"seat": moving.placeholder.name})
    if acl_fence:
        yield SetFenceAcls(authority, moving.topics, plan.snapshot.acls, members_may_delete=False)
    yield WaitForMembersToLeave(authority)
    # A client may have deleted fences since the switch, and each must name this epoch.
    yield from owner_fence_steps(authority, plan.snapshot.partitions)
    yield CreateLateOwnerFences(authority, frozenset(plan.snapshot.partitions))
    yield JoinPlaceholder(moving.placeholder, had_placeholder=False)
    yield CopyToZooKeeper(stores, convention, acl_of_new_offsets(authority, moving.plan))
    yield VerifyReturnedOffsets(stores, convention)
    yield from authority_move_steps(moving, Phase.RETURNED)


def _confirm_return_steps(moving: MigrationContext) -> Iterator[MigrationStep]:
    """``returned`` was written; commits of other clients to Kafka before that may be missing in ZooKeeper."""
    authority, stores, acl_fence = moving.control_znode, moving.stores, moving.plan.uses_acl_fence
    yield WaitForEmptyCoordinatorGroup(moving.placeholder)
    if acl_fence:
        yield SetFenceAcls(authority, moving.topics, moving.plan.snapshot.acls, members_may_delete=False)
    yield WaitForMembersToLeave(authority)
    yield JoinPlaceholder(moving.placeholder, had_placeholder=False)
    convention = _convention_of(moving)
    acl = acl_of_new_offsets(authority, moving.plan)
    yield CopyToZooKeeper(stores, convention, acl, Phase.RETURNED)
    yield VerifyReturnedOffsets(stores, convention, Phase.RETURNED)
    yield ConfirmAuthorityMove(authority, moving.placeholder, Phase.RETURNED)


def _convention_of(moving: MigrationContext) -> OffsetConvention:
    convention = moving.plan.convention
    if convention is None:
        raise InternalError(f"migration {moving.plan.migration_id} was switched without an offset convention")
    return convention


@dataclass(frozen=True, slots=True)
class CheckNoFences(CheckingStep):
    """Without a plan the state before a fence is unknown; so there must be no fences."""

    control_znode: ControlZnode

    name = "no fences exist"

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return ["check that there are no fences, because the plan was not stored completely"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        session, group = self.control_znode.session, self.control_znode.group
        marks = [
            tp for tp, node in read_owner_nodes(session, group).items() if parse_fence_record(node.data) is not None
        ]
        paths_ = [path for level in fenced_levels(session, group, []) for path in level]
        lists = [path for path, acl in session.get_acls(paths_).items() if acl is not None and is_fence(acl)]
        if not marks and not lists:
            return StepDone()
        return StepRefused(
            PartiallyDoneError(
                f"group {group} has fences ({len(marks)} owner nodes, {len(lists)} access lists), and the plan, which "
                "contains the state before them, is damaged: another client writes beside the control znode. Restore "
                f"the plan from its file: zkconsumer migrate rollback {group} --plan {group}.plan --execute"
            )
        )


def _log_ends(moving: MigrationContext) -> Mapping[TopicPartition, int]:
    found = log_ranges(moving.session.brokers, list(moving.plan.snapshot.partitions))
    return {tp: one.latest for tp, one in found.items() if isinstance(one, LogRange)}
