"""What must hold between two steps of a migration, and the check of it in production.

Two stores cannot change in one transaction, so the safety of a migration is the order of its steps.  The generators
(``copy_steps``, ``dual_steps``, ``rollback_steps``, ``complete_steps``) produce that order.  This module states it a
second time, as tables, and ``ApplyExecutor`` compares each step with them before and after its execution:

    PHASE_NEEDS     (strategy, phase, next phase) -> the facts that must hold when the next phase is written
    STEP_NEEDS      (strategy, step) -> the phases in which the step may be executed, and the facts that it needs there
    _check_control  what must hold for the control znode itself: authority, order of phases, epoch, confirmation

A *fact* is what the check of a step has found in the stores since the steps began (``_FACTS``), until a later step may
have changed it (``_ENDED_BY``).  Facts of an earlier attempt or run never count: each attempt reads everything again.

No request is sent and no partition is read: the inputs are the class of the step, the control znode as the run last
read it, whether the run has the lock, and whether the placeholder member has joined.  A violation is a bug of this
project or a change by hand, not a change by another client: for those the steps have better errors, which are raised
first, because the check of a step precedes ``check_before``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from bridge.migration.control.control_layout import PHASES_WITH_NEW_EPOCH, phase_of, strategy_of
from bridge.migration.control.control_pieces import StorePlan
from bridge.migration.control.control_steps import AcquireLock, AdvancePhase, CreateControlZnode
from bridge.migration.control.phases import Phase, Strategy, authority_of, next_phases
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
from bridge.migration.steps.authority_steps import CheckForeignCommits, ConfirmAuthorityMove, MoveAuthority
from bridge.migration.steps.cut_over_hooks import AFTER_CUT_OVER, BEFORE_CUT_OVER, RunHooks
from bridge.migration.steps.drift_steps import AcceptDrift
from bridge.migration.steps.migration_context import AppendJournal
from bridge.migration.steps.rollback import CheckNoFences
from bridge.migration.steps.znode_archive import WriteArchive

if TYPE_CHECKING:
    from bridge.migration.control.control_znode import ControlZnode
    from bridge.migration.steps.migration_context import MigrationContext
    from bridge.migration.steps.step import MigrationStep
    from zkconsumer.zk.znode_formats import ControlRecord


class Fact(Enum):
    """What holds since the step that has found or made it; the value is the text of the error."""

    PLAN_STORED = "the plan is stored beside the control znode"
    JOURNALED = "the journal has an entry of this run"
    MEMBERS_LEFT = "no member is registered in ZooKeeper"
    OWNERSHIP_RELEASED = "no partition has an owner"
    ACLS_FENCED = "the access lists of the fence are set"
    OWNERS_FENCED = "every partition has an owner fence"
    FENCES_CHECKED = "all fences were found, and no hook ran since"
    PLACEHOLDER_JOINED = "the placeholder member is in the coordinator group"
    PLACEHOLDER_LEFT = "the placeholder member has left the coordinator group"
    GROUP_EMPTY = "the coordinator group is empty"
    PLAN_CURRENT = "the offsets are those of the plan, or their drift was accepted"
    OFFSETS_COPIED = "every offset is committed to Kafka"
    OFFSETS_COMPARED = "every offset was compared, with this placeholder member, and no hook or write followed"
    MOVE_PROVEN = "this placeholder member was in the group before the move, or the stores were compared after it"
    ACKNOWLEDGED = "every member has acknowledged this phase"
    OWNED = "every partition is owned in both stores, as this phase requires"
    STORES_COMPARED = "both stores agreed in this phase, and no hook or write followed"
    ACKNOWLEDGED_LAST = "every member has acknowledged this phase after the last comparison"
    ARCHIVED = "the znodes of the group are archived"
    RETURNED_RECORDED = "the offsets that were written to ZooKeeper are recorded"
    FENCES_REMOVED = "no owner fence exists"
    ACLS_RESTORED = "the access lists are those from before the fence"


_ACL_FACTS = frozenset({Fact.ACLS_FENCED, Fact.ACLS_RESTORED})
"""Facts that no step makes for a plan without the fence of access lists."""

_FACTS: Mapping[type, tuple[Fact, ...]] = {
    StorePlan: (Fact.PLAN_STORED,),
    AppendJournal: (Fact.JOURNALED,),
    WaitForMembersToLeave: (Fact.MEMBERS_LEFT,),
    WaitForOwnershipRelease: (Fact.OWNERSHIP_RELEASED,),
    CreateLateOwnerFences: (Fact.OWNERS_FENCED,),
    CheckFences: (Fact.FENCES_CHECKED,),
    JoinPlaceholder: (Fact.PLACEHOLDER_JOINED,),
    RemovePlaceholder: (Fact.PLACEHOLDER_LEFT,),
    WaitForEmptyCoordinatorGroup: (Fact.GROUP_EMPTY,),
    AcceptDrift: (Fact.PLAN_CURRENT,),
    CopyToKafka: (Fact.OFFSETS_COPIED,),
    VerifyCopiedOffsets: (Fact.OFFSETS_COMPARED,),
    VerifyReturnedOffsets: (Fact.OFFSETS_COMPARED,),
    CheckForeignCommits: (Fact.MOVE_PROVEN,),
    WaitForAcknowledgements: (Fact.ACKNOWLEDGED,),
    WaitForFullOwnership: (Fact.OWNED,),
    CompareStores: (Fact.STORES_COMPARED,),
    WriteArchive: (Fact.ARCHIVED,),
    StoreReturnedOffsets: (Fact.RETURNED_RECORDED,),
    RemoveOwnerFences: (Fact.FENCES_REMOVED,),
    RestoreAcls: (Fact.ACLS_RESTORED,),
    CheckNoFences: (Fact.FENCES_REMOVED, Fact.ACLS_RESTORED),
}
"""Step -> the facts when its check finds it done; ``_new_facts`` has those that depend on more than the class."""

_OF_ONE_PHASE = frozenset({Fact.ACKNOWLEDGED, Fact.OWNED, Fact.STORES_COMPARED, Fact.ACKNOWLEDGED_LAST})
"""What members do for one phase counts only in that phase."""

_COMPARISONS = frozenset({Fact.OFFSETS_COMPARED, Fact.STORES_COMPARED, Fact.ACKNOWLEDGED_LAST})
"""What a later write makes outdated."""

_ENDED_BY: Mapping[type, frozenset[Fact]] = {
    JoinPlaceholder: frozenset({Fact.PLACEHOLDER_LEFT, Fact.MOVE_PROVEN, Fact.OFFSETS_COMPARED}),
    RemovePlaceholder: frozenset({Fact.PLACEHOLDER_JOINED, Fact.MOVE_PROVEN, Fact.OFFSETS_COMPARED}),
    CopyToKafka: _COMPARISONS,
    CopyToZooKeeper: _COMPARISONS | {Fact.MOVE_PROVEN},
    CopyOrphanedToZooKeeper: _COMPARISONS,
    RunHooks: _COMPARISONS | _OF_ONE_PHASE | {Fact.FENCES_CHECKED},
    AdvancePhase: _OF_ONE_PHASE,
    MoveAuthority: _OF_ONE_PHASE,
}
"""Step -> the facts that may not hold any more once it is executed.  Hooks take minutes and may do anything."""

Needs: TypeAlias = tuple[Fact, ...]

PHASE_NEEDS: Mapping[tuple[Strategy, Phase, Phase], Needs] = {
    ("copy", Phase.PLANNED, Phase.FENCING): (Fact.PLAN_STORED, Fact.JOURNALED),
    ("copy", Phase.FENCING, Phase.FENCED): (
        Fact.MEMBERS_LEFT, Fact.OWNERSHIP_RELEASED, Fact.ACLS_FENCED, Fact.OWNERS_FENCED, Fact.PLACEHOLDER_JOINED,
    ),
    ("copy", Phase.FENCED, Phase.COPIED): (Fact.FENCES_CHECKED, Fact.PLACEHOLDER_JOINED, Fact.OFFSETS_COPIED),
    ("copy", Phase.COPIED, Phase.VERIFIED): (Fact.PLACEHOLDER_JOINED, Fact.OFFSETS_COMPARED),
    ("copy", Phase.VERIFIED, Phase.SWITCHED): (
        Fact.FENCES_CHECKED, Fact.PLACEHOLDER_JOINED, Fact.OFFSETS_COPIED, Fact.OFFSETS_COMPARED,
    ),
    ("copy", Phase.SWITCHED, Phase.COMPLETED): (Fact.PLACEHOLDER_LEFT, Fact.ARCHIVED),
    ("copy", Phase.SWITCHED, Phase.RETURNING): (Fact.GROUP_EMPTY,),
    ("copy", Phase.RETURNING, Phase.RETURNED): (
        Fact.JOURNALED, Fact.MEMBERS_LEFT, Fact.ACLS_FENCED, Fact.OWNERS_FENCED, Fact.PLACEHOLDER_JOINED,
        Fact.OFFSETS_COMPARED,
    ),
    ("copy", Phase.RETURNED, Phase.UNDONE): (
        Fact.RETURNED_RECORDED, Fact.PLACEHOLDER_LEFT, Fact.FENCES_REMOVED, Fact.ACLS_RESTORED,
    ),
    ("copy", Phase.UNDOING, Phase.UNDONE): (Fact.PLACEHOLDER_LEFT, Fact.FENCES_REMOVED, Fact.ACLS_RESTORED),
    ("dual", Phase.PLANNED, Phase.ARMED): (
        Fact.PLAN_STORED, Fact.JOURNALED, Fact.ACKNOWLEDGED, Fact.PLACEHOLDER_LEFT,
    ),
    ("dual", Phase.ARMED, Phase.READY): (Fact.ACKNOWLEDGED,),
    ("dual", Phase.READY, Phase.LOCKED): (Fact.ACKNOWLEDGED,),
    ("dual", Phase.LOCKED, Phase.COPIED): (Fact.ACKNOWLEDGED, Fact.OWNED, Fact.STORES_COMPARED),
    ("dual", Phase.COPIED, Phase.SWITCHED): (Fact.OWNED, Fact.STORES_COMPARED, Fact.ACKNOWLEDGED_LAST),
    ("dual", Phase.SWITCHED, Phase.COMPLETED): (Fact.PLACEHOLDER_LEFT, Fact.ACKNOWLEDGED, Fact.ARCHIVED),
    ("dual", Phase.RETURNING, Phase.RETURNED): (
        Fact.JOURNALED, Fact.PLACEHOLDER_LEFT, Fact.FENCES_REMOVED, Fact.OWNED, Fact.STORES_COMPARED,
        Fact.ACKNOWLEDGED_LAST,
    ),
    ("dual", Phase.RETURNED, Phase.UNDONE): (
        Fact.PLACEHOLDER_LEFT, Fact.ACKNOWLEDGED, Fact.RETURNED_RECORDED, Fact.FENCES_REMOVED,
    ),
    ("dual", Phase.UNDOING, Phase.UNDONE): (Fact.PLACEHOLDER_LEFT, Fact.FENCES_REMOVED),
}  # fmt: skip
"""A pair of phases without an entry needs only the lock: ``undoing`` may follow any phase in which ZooKeeper has the
authority, and with ``dual`` the members move ``returning`` themselves.  ``MoveAuthority`` uses the rows of ``copy``
with both strategies: it moves a group without members."""

_COPYING: Needs = (Fact.JOURNALED, Fact.FENCES_CHECKED, Fact.PLACEHOLDER_JOINED, Fact.PLAN_CURRENT)
_BEFORE_HOOK: Needs = (Fact.PLACEHOLDER_JOINED, Fact.FENCES_CHECKED, Fact.OFFSETS_COMPARED)
_RETURN_FENCED: Needs = (Fact.MEMBERS_LEFT, Fact.ACLS_FENCED, Fact.PLACEHOLDER_JOINED)
_UNFENCED: Needs = (Fact.PLACEHOLDER_LEFT, Fact.FENCES_REMOVED, Fact.ACLS_RESTORED)
_BACK_TO_ZOOKEEPER: Mapping[type | str, Mapping[Phase, Needs]] = {
    CreateOwnerFences: {
        Phase.FENCING: (Fact.MEMBERS_LEFT, Fact.OWNERSHIP_RELEASED),
        Phase.RETURNING: (Fact.MEMBERS_LEFT,),
    },
    SetFenceAcls: {
        Phase.FENCING: (Fact.JOURNALED, Fact.MEMBERS_LEFT),
        Phase.RETURNING: (Fact.JOURNALED,),
        Phase.RETURNED: (Fact.GROUP_EMPTY,),
    },
    CopyToZooKeeper: {
        Phase.RETURNING: (Fact.JOURNALED, Fact.OWNERS_FENCED, *_RETURN_FENCED),
        Phase.RETURNED: _RETURN_FENCED,
    },
    ConfirmAuthorityMove: {
        Phase.SWITCHED: (Fact.MOVE_PROVEN,),
        Phase.RETURNED: (Fact.MOVE_PROVEN, Fact.PLACEHOLDER_JOINED),
    },
    RestoreAcls: {
        Phase.UNDOING: (Fact.PLACEHOLDER_LEFT, Fact.FENCES_REMOVED),
        Phase.RETURNED: (Fact.PLACEHOLDER_LEFT, Fact.FENCES_REMOVED, Fact.RETURNED_RECORDED),
        Phase.COMPLETED: (Fact.FENCES_REMOVED,),
    },
    TriggerRebalance: {Phase.UNDOING: _UNFENCED, Phase.RETURNED: (*_UNFENCED, Fact.RETURNED_RECORDED)},
}  # fmt: skip
_FENCE_REMOVAL: Mapping[Phase, Needs] = {
    Phase.UNDOING: (Fact.PLACEHOLDER_LEFT,),
    Phase.RETURNED: (Fact.PLACEHOLDER_LEFT, Fact.RETURNED_RECORDED),
    Phase.COMPLETED: (),
}
_COPY_STEPS: Mapping[type | str, Mapping[Phase, Needs]] = {
    CopyToKafka: dict.fromkeys((Phase.FENCED, Phase.COPIED, Phase.VERIFIED), _COPYING),
    BEFORE_CUT_OVER: {Phase.VERIFIED: _BEFORE_HOOK},
    AFTER_CUT_OVER: {Phase.SWITCHED: (Fact.PLACEHOLDER_LEFT,)},
    WriteArchive: {Phase.SWITCHED: (Fact.PLACEHOLDER_LEFT,)},
    RemoveOwnerFences: _FENCE_REMOVAL,
    **_BACK_TO_ZOOKEEPER,
}
_DUAL_STEPS: Mapping[type | str, Mapping[Phase, Needs]] = {
    CopyToKafka: {Phase.PLANNED: (Fact.JOURNALED, Fact.ACKNOWLEDGED, Fact.PLACEHOLDER_JOINED)},
    BEFORE_CUT_OVER: {Phase.COPIED: (Fact.ACKNOWLEDGED, Fact.OWNED, Fact.STORES_COMPARED)},
    FenceUnownedPartitions: {Phase.SWITCHED: (Fact.ACKNOWLEDGED,)},
    AFTER_CUT_OVER: {Phase.SWITCHED: (Fact.ACKNOWLEDGED,)},
    WriteArchive: {Phase.SWITCHED: (Fact.PLACEHOLDER_LEFT, Fact.ACKNOWLEDGED)},
    CopyOrphanedToZooKeeper: {Phase.RETURNING: (Fact.JOURNALED, Fact.ACKNOWLEDGED, Fact.OWNED)},
    RemoveOwnerFences: {Phase.RETURNING: (Fact.JOURNALED, Fact.PLACEHOLDER_LEFT), **_FENCE_REMOVAL},
    **_BACK_TO_ZOOKEEPER,
}
STEP_NEEDS: Mapping[Strategy, Mapping[type | str, Mapping[Phase, Needs]]] = {"copy": _COPY_STEPS, "dual": _DUAL_STEPS}
"""A step that is listed must not be executed in another phase; hooks are listed by their event.  Steps that are not
listed need the lock if they change something, and nothing else."""

_WHILE_UNCONFIRMED = (AppendJournal, SetFenceAcls, JoinPlaceholder, CopyToZooKeeper, ConfirmAuthorityMove)
"""The only steps with an effect while a move of the authority is not confirmed: they compare and confirm."""


@dataclass(slots=True)
class MigrationInvariant:
    """Checks one run.  Both checks raise ``MigrationInvariantError``; neither sends a request."""

    context: MigrationContext
    _facts: set[Fact] = field(default_factory=set)
    """What the steps of this attempt have found, and no later step may have changed."""
    _lock: ControlZnode | None = None
    """The migration whose ``AcquireLock`` this attempt has passed; for a moment the completed one whose fences a second
    migration takes over.  None: this attempt has no lock."""
    _before: ControlRecord | None = None
    """The control znode at the last check with the lock.  No other process changes it while the lock exists, so every
    difference was written by the step between the two checks.  None exactly as long as ``_lock`` is, or when the
    control znode is of another migration."""
    _epoch_max: int = 0
    """The greatest epoch of this migration that the run has read.  It survives ``restart``."""
    _executing: MigrationStep | None = None
    """The step between its ``check_before`` and its ``check_after``; None: no step was executed since."""

    def restart(self) -> None:
        """See ``StepInvariant``."""
        self._facts.clear()
        self._lock = self._before = self._executing = None

    def check_before(self, step: MigrationStep) -> None:
        """See ``StepInvariant``."""
        kind: type | str = step.event if isinstance(step, RunHooks) else type(step)
        self._check_state(step, None)
        has_effect = step.changes or isinstance(step, RunHooks | WriteArchive)
        if has_effect and not isinstance(step, CreateControlZnode) and self._lock is None:
            raise self._error(step, "a step that changes something needs the lock")
        control = self._control()
        if control is not None:
            phase = phase_of(control)
            if has_effect and not control.is_confirmed and not isinstance(step, _WHILE_UNCONFIRMED):
                raise self._error(step, f"{phase.value} is not confirmed, and only steps that confirm it may follow")
            rows = STEP_NEEDS[strategy_of(control)].get(kind)
            if rows is not None and phase not in rows:
                raise self._error(step, f"the step must not be executed in phase {phase.value}")
            if rows is not None:
                self._require(step, rows[phase])
            if isinstance(step, AdvancePhase | MoveAuthority):
                strategy = "copy" if isinstance(step, MoveAuthority) else strategy_of(control)
                self._require(step, PHASE_NEEDS.get((strategy, phase, step.phase), ()))
        self._facts -= _ENDED_BY.get(type(step), frozenset())
        self._executing = step

    def check_after(self, step: MigrationStep) -> None:
        """See ``StepInvariant``."""
        if isinstance(step, AcquireLock):
            self._lock = step.control_znode
        self._check_state(step, step if step is self._executing else None)
        self._facts |= self._new_facts(step)
        self._executing = None

    def _new_facts(self, step: MigrationStep) -> set[Fact]:
        control = self._control()
        phase = None if control is None else phase_of(control)
        if isinstance(step, WaitForAcknowledgements | WaitForFullOwnership | CompareStores) and step.phase is not phase:
            return set()
        found = set(_FACTS.get(type(step), ()))
        if isinstance(step, SetFenceAcls) and not step.members_may_delete:
            found.add(Fact.ACLS_FENCED)
        if isinstance(step, WaitForAcknowledgements) and Fact.STORES_COMPARED in self._facts:
            found.add(Fact.ACKNOWLEDGED_LAST)
        if step is self._executing and isinstance(step, MoveAuthority):
            found.add(Fact.MOVE_PROVEN)  # the move of an earlier attempt was made with another placeholder member
        if isinstance(step, VerifyReturnedOffsets) and phase is Phase.RETURNED:
            found.add(Fact.MOVE_PROVEN)
        return found

    def _control(self) -> ControlRecord | None:
        """The control znode as last read; None: it is not of this migration, and the steps have errors for that."""
        seen = self.context.control_znode.last_seen
        return None if seen is None or seen.control.migration_id != self.context.control_znode.migration_id else (
            seen.control
        )  # fmt: skip

    def _require(self, step: MigrationStep, needs: Needs) -> None:
        ignored = frozenset[Fact]() if self.context.plan.uses_acl_fence else _ACL_FACTS
        missing = [fact.value for fact in needs if fact not in self._facts and fact not in ignored]
        if missing:
            raise self._error(step, f"it is not known that {'; that '.join(missing)}")

    def _check_state(self, step: MigrationStep, writer: MigrationStep | None) -> None:
        """``writer``: the step that was executed since the last check; None: none was."""
        if self._lock is not None and not self._lock.has_lock:
            raise self._error(step, "the run continued without the lock")
        if Fact.PLACEHOLDER_JOINED in self._facts and not isinstance(writer, RemovePlaceholder) and (
            self.context.placeholder.joined is None
        ):  # fmt: skip
            raise self._error(step, "the run continued without its placeholder member")
        control = self._control()
        if control is not None:
            problem = self._control_problem(control, writer)
            if problem:
                raise self._error(step, problem)
            self._epoch_max = control.epoch
        self._before = None if self._lock is None else control

    def _control_problem(self, control: ControlRecord, writer: MigrationStep | None) -> str:
        """Why the control znode contradicts its phase, or cannot follow the one of the last check; empty: it is
        correct."""
        phase, before = phase_of(control), self._before
        if control.authority != authority_of(phase):
            return f"{control.authority} has the authority in phase {phase.value}"
        if control.epoch < self._epoch_max:
            return f"the epoch fell from {self._epoch_max} to {control.epoch}"
        if before is None or before == control:
            return ""
        if before.phase == control.phase:
            if isinstance(writer, ConfirmAuthorityMove) and control.is_confirmed and before.epoch == control.epoch:
                return ""
            return "the control znode changed, and no step has written it"
        if not isinstance(writer, AdvancePhase | MoveAuthority) or writer.phase is not phase:
            return f"the phase changed from {before.phase} to {phase.value}, and no step has written it"
        if phase not in next_phases(strategy_of(before), phase_of(before)):
            return f"{phase.value} followed {before.phase}"
        if control.epoch != before.epoch + (phase in PHASES_WITH_NEW_EPOCH):
            return f"{phase.value} began with epoch {control.epoch} after epoch {before.epoch}"
        if control.authority != before.authority and not self._is_permitted_move(control, writer):
            return f"the authority moved to {control.authority} by a write that no heartbeat or member confirms"
        return ""

    @staticmethod
    def _is_permitted_move(control: ControlRecord, writer: AdvancePhase | MoveAuthority) -> bool:
        """Without members the write is confirmed by a later heartbeat; with ``dual`` the members have confirmed it."""
        if isinstance(writer, MoveAuthority):
            return not control.is_confirmed
        return control.strategy == "dual"

    def _error(self, step: MigrationStep, problem: str) -> MigrationInvariantError:
        moving, control = self.context, self._control()
        state = "no control znode of this migration"
        if control is not None:
            state = f"phase {control.phase}, epoch {control.epoch}, authority {control.authority}, " + (
                "confirmed" if control.is_confirmed else "not confirmed"
            )
        at = "after" if self._executing is step else "before"
        return MigrationInvariantError(
            f"{at} step {step.name!r} of migration {moving.control_znode.migration_id}: {problem} ({state}). The run "
            "stopped there and changed nothing more; the completed steps and the fences remain. This is a bug, or a "
            "person changed the control znode: report this text, all output of the run, and the output of: zkconsumer "
            f"migrate status {moving.group} --output json. Change no node by hand before that"
        )
