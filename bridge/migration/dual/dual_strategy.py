"""``dual``: the members migrate while they run; each phase in the control znode is their next task.

    planned    check permissions · no other member in the coordinator group · control znode · lock · plan ·
               offsets that no member copies, to Kafka
    armed      members join the coordinator group, with a protocol that no other client has
    ready      all are members of it
    locked     members take the coordinator's assignment, and read a partition while they own it in ZooKeeper too;
               each commit goes to ZooKeeper, then to Kafka
    copied     each goes to Kafka, then to ZooKeeper · hooks before the cut-over · compared again · all members there
    switched   the authority moves in one conditional write · ownership is released, and fenced · hooks after it

One write of the control znode begins a phase, and with it a task of the members.  The next phase begins when every
registered member has acknowledged this one by name, and both groups are in the state that it requires.  Until
``switched`` ZooKeeper has the authority, whichever process dies; the steps are derived from the current phase.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_acls import CheckControlAcls, CheckLoginOfProtectedGroup
from bridge.migration.control.control_pieces import StorePlan
from bridge.migration.control.control_steps import AcquireLock, AdvancePhase, CreateControlZnode
from bridge.migration.control.phases import FORWARD, Phase
from bridge.migration.dual.member_steps import (
    WaitForAcknowledgements,
    WaitForForeignOwnersToRelease,
    WaitForFullOwnership,
    WaitForScalaConsumersToLeave,
)
from bridge.migration.dual.orphaned_partitions import CheckOrphanedOffsets, read_orphaned_copies
from bridge.migration.dual.store_comparison import CompareStores
from bridge.migration.fences.fence_permissions import CheckPermissions
from bridge.migration.fences.post_switch_fences import FenceUnownedPartitions
from bridge.migration.inspect.cluster_ids import CheckClusterIds
from bridge.migration.placeholder.placeholder_steps import (
    JoinPlaceholder,
    RemovePlaceholder,
    WaitForEmptyCoordinatorGroup,
)
from bridge.migration.steps.cut_over_hooks import AFTER_CUT_OVER, BEFORE_CUT_OVER, hook_steps
from bridge.migration.steps.drift_steps import CheckStartOffsets
from bridge.migration.steps.migration_context import AppendJournal, copy_to_kafka_step

if TYPE_CHECKING:
    from pathlib import Path

    from bridge.migration.steps.migration_context import MigrationContext
    from bridge.migration.steps.step import MigrationStep

STOP_AFTER_PHASES = (Phase.ARMED, Phase.READY, Phase.LOCKED, Phase.COPIED)
"""The values of ``--stop-after``: members stay in such a phase until a run advances it."""


@dataclass(frozen=True, slots=True)
class DualOptions:
    """The operator's options for one run.

    ``plan_text``: the bytes of the original plan.  ``stop_after``: the run ends when every member acts by that phase
    and the conditions of the phase are met.
    """

    plan_text: bytes
    hooks_dir: Path | None = None
    stop_after: Phase | None = None


def dual_steps(moving: MigrationContext, options: DualOptions) -> Iterator[MigrationStep]:
    """The steps from the present phase on, up to ``stop_after`` if it is given.

    Each is executed before the next is generated.
    """
    authority = moving.control_znode
    yield CheckControlAcls(authority.session, moving.group)
    yield CheckClusterIds(moving)
    if moving.phase is None:
        yield CheckPermissions(authority.session, moving.znodes)
        yield CheckLoginOfProtectedGroup(authority.session, moving.group, {})
        yield WaitForScalaConsumersToLeave(authority)
        yield WaitForEmptyCoordinatorGroup(moving.placeholder)
        yield CheckOrphanedOffsets(moving)
    yield CreateControlZnode(authority, "dual", moving.plan.snapshot)
    if moving.phase is Phase.COMPLETED:
        return
    yield AcquireLock(authority, moving.caller)
    reached = moving.phase or Phase.PLANNED
    if reached is not Phase.SWITCHED:
        yield StorePlan(authority, options.plan_text)
        yield AppendJournal(moving, "apply", {"plan": moving.plan.digest})
    way = FORWARD["dual"][:-1]
    for phase in way[way.index(reached) :]:
        if phase is not reached:
            yield AdvancePhase(authority, phase)
        yield from _phase_steps(moving, phase)
        if phase is options.stop_after:
            return
        if phase is Phase.COPIED:
            yield from _pre_switch_steps(moving, options)
    yield from hook_steps(moving, options.hooks_dir, AFTER_CUT_OVER)


def _phase_steps(moving: MigrationContext, phase: Phase) -> Iterator[MigrationStep]:
    authority, stores = moving.control_znode, moving.stores
    yield WaitForAcknowledgements(authority, stores, phase)
    match phase:
        case Phase.PLANNED:
            copies = read_orphaned_copies(moving)
            if copies:
                yield JoinPlaceholder(moving.placeholder, had_placeholder=False)
                yield CheckStartOffsets(moving, copies)
                yield copy_to_kafka_step(moving, copies, Phase.PLANNED)
            yield RemovePlaceholder(moving.placeholder)
        case Phase.LOCKED | Phase.COPIED:
            yield WaitForFullOwnership(authority, stores, phase)
            yield CompareStores(moving, phase)
        case Phase.SWITCHED:
            yield FenceUnownedPartitions(authority, moving.topics)
            yield WaitForForeignOwnersToRelease(authority)
            yield FenceUnownedPartitions(authority, moving.topics)


def _pre_switch_steps(moving: MigrationContext, options: DualOptions) -> Iterator[MigrationStep]:
    yield from hook_steps(moving, options.hooks_dir, BEFORE_CUT_OVER)
    if options.hooks_dir is not None:
        # The hooks take time: check the members and both stores once more.
        yield from _phase_steps(moving, Phase.COPIED)
    # The comparison takes time too, and a member that registered meanwhile has not acknowledged.
    yield WaitForAcknowledgements(moving.control_znode, moving.stores, Phase.COPIED)
