"""The steps of a ``dual`` rollback, in which no member stops either.

    before switched   undoing: one write, since ZooKeeper kept the authority · members leave the coordinator group ·
                      fences are removed · undone
    after it          returning: fences are removed, members acquire the partitions that they read · each commit goes
                      to Kafka, then to ZooKeeper · the tool writes orphaned partitions · compared · all members still
                      there · returned (the authority moves) · members act by it, and Kafka's values have our
                      provenance · the values without it are recorded (``returned``) · trigger a rebalance · undone

Without members after the switch, no client acquires ownership or commits: the group is rolled back like one that was
copied (``rollback``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.control.control_steps import AdvancePhase
from bridge.migration.control.phases import Phase
from bridge.migration.dual.member_steps import WaitForAcknowledgements, WaitForFullOwnership, consumed_partitions
from bridge.migration.dual.participants import read_participants_by_id
from bridge.migration.dual.store_comparison import CompareStores, is_in_zookeeper
from bridge.migration.errors import PartiallyDoneError
from bridge.migration.fences.fence_acl_rules import acl_of_new_offsets
from bridge.migration.fences.fence_removal import RemoveOwnerFences
from bridge.migration.fences.owner_nodes import read_owner_nodes
from bridge.migration.offsets.offset_copies import pending_zookeeper_writes
from bridge.migration.placeholder.placeholder_steps import RemovePlaceholder
from bridge.migration.plan.decisions import OffsetConvention
from bridge.migration.steps.migration_context import AppendJournal
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus
from zkconsumer.admin.zookeeper_group import read_group
from zkconsumer.admin.zookeeper_offset_writes import registered_members
from zkconsumer.zk import paths

if TYPE_CHECKING:
    from bridge.migration.steps.migration_context import MigrationContext
    from bridge.migration.steps.step import MigrationStep
    from zkconsumer.admin.zookeeper_offset_writes import OffsetWrite


def has_registered_members(moving: MigrationContext) -> bool:
    """Whether members are registered that move the group back themselves."""
    return moving.plan.strategy == "dual" and bool(registered_members(moving.session, moving.group))


def has_non_acknowledging_members(moving: MigrationContext) -> bool:
    """Whether a member is registered that cannot migrate, and may have given up at a fence."""
    session, group = moving.session, moving.group
    followers = read_participants_by_id(session, group, lambda: read_owner_nodes(session, group))
    return any(one.acknowledgement is None for one in followers.values())


def dual_return_steps(moving: MigrationContext) -> Iterator[MigrationStep]:
    """From ``switched`` to ``returned``."""
    authority, stores = moving.control_znode, moving.stores
    yield AdvancePhase(authority, Phase.RETURNING)
    yield AppendJournal(moving, "rollback", {})
    # An earlier run may have found no member, before some registered.
    yield RemovePlaceholder(moving.placeholder)
    yield RemoveOwnerFences(authority, moving.parents_to_keep)
    yield WaitForAcknowledgements(authority, stores, Phase.RETURNING)
    yield WaitForFullOwnership(authority, stores, Phase.RETURNING)
    yield CopyOrphanedToZooKeeper(moving)
    yield CompareStores(moving, Phase.RETURNING)
    # The comparison takes time, and a member that registered meanwhile has not acknowledged.
    yield WaitForAcknowledgements(authority, stores, Phase.RETURNING)
    yield AdvancePhase(authority, Phase.RETURNED)


@dataclass(frozen=True, slots=True)
class CopyOrphanedToZooKeeper:
    """Copy Kafka's offsets of orphaned partitions to ZooKeeper; members write those of their own partitions."""

    context: MigrationContext

    name = "write Kafka's offsets of orphaned partitions to ZooKeeper"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return [
            f"write to {paths.offsets(self.context.group)} the committed offsets of partitions that no member reads now"
        ]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        held = self.context.control_znode.check_phase(Phase.RETURNING)
        if isinstance(held, StepRefused):
            return held
        return StepPending() if held is None or self._pending() else StepDone()

    def do(self) -> None:
        """See ``MigrationStep``.  Raises ``PartiallyDoneError`` when a write fails; Kafka still has the authority."""
        authority = self.context.control_znode
        held = authority.require_phase(Phase.RETURNING)
        acl = acl_of_new_offsets(authority, self.context.plan)
        stopped_by = authority.write_offsets(held, self._pending(), acl, allow_members=True)
        if stopped_by:
            raise PartiallyDoneError(
                f"only a part of the offsets of group {authority.group} is written to ZooKeeper, and Kafka still has "
                f"the authority: {stopped_by}. Remove the cause, then run the same command again"
            )

    def _pending(self) -> list[OffsetWrite]:
        moving = self.context
        state = read_group(moving.session, moving.group)
        owned = read_owner_nodes(moving.session, moving.group).keys()
        held = owned if state is None else owned | consumed_partitions(state)
        nodes = moving.stores.read_zookeeper()
        kafka = {
            tp: value
            for tp, value in moving.stores.read_kafka().items()
            if tp not in held
            and not is_in_zookeeper(value, nodes[tp].offset if tp in nodes else None, moving.control_znode.migration_id)
        }
        return pending_zookeeper_writes(kafka, nodes, OffsetConvention.NEXT)
