"""The offsets that no member migrates: of partitions that no member reads, and of those without an offset.

One rule: a member migrates the offset of each partition that it reads and that has one, whatever the plan contains.
The command commits all other offsets as planned, while the coordinator group is still empty and no other client can
commit.  A member that commits later correctly overwrites them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.dual.member_steps import consumed_partitions
from bridge.migration.errors import StalePlanError, missing_group_error
from bridge.migration.offsets.offset_copies import OffsetCopy, copies_of
from bridge.migration.plan.plan_drift import PlanDifference, drift_lines
from bridge.migration.steps.step import StepDone, StepRefused, StepStatus
from zkconsumer.admin.zookeeper_group import read_group
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from bridge.migration.plan.migration_plan import MigrationPlan
    from bridge.migration.steps.migration_context import MigrationContext
    from zkconsumer.admin.zookeeper_group import ZooKeeperGroup


def orphaned_copies(plan: MigrationPlan, state: ZooKeeperGroup) -> list[OffsetCopy]:
    """The offsets of a plan that no member copies, for this state of the group."""
    read = consumed_partitions(state)
    stored = {tp for tp, node in state.offsets.items() if node.offset is not None}
    return [copy for copy in copies_of(plan) if copy.tp not in read or copy.tp not in stored]


def read_orphaned_copies(moving: MigrationContext) -> list[OffsetCopy]:
    """The same, read now; empty once the group does not exist.

    A partition that a member read when the plan was made, and that no member reads now, is copied with the offset that
    the member left: a Spark query that alone reads a topic has left by now.
    """
    state = read_group(moving.session, moving.group)
    if state is None:
        return []
    copies = {copy.tp: copy for copy in orphaned_copies(moving.plan, state)}
    for tp, (offset, version) in _abandoned_offsets(moving.plan, state).items():
        seen = moving.plan.snapshot.partitions.get(tp)
        copy = copies.get(tp) or OffsetCopy(tp, 0, kafka_before=None if seen is None else seen.kafka)
        copies[tp] = copy._replace(offset=offset, stored=offset, version=version)
    return [copies[tp] for tp in sorted(copies)]


def _abandoned_offsets(plan: MigrationPlan, state: ZooKeeperGroup) -> dict[TopicPartition, tuple[int, int]]:
    """Offset and version of the znode, where a member read when the plan was made, and no member reads now."""
    read = consumed_partitions(state)
    topics = {topic for one in plan.snapshot.members for topic in one.topics if topic in state.topics}
    there = {TopicPartition(topic, number) for topic in topics for number in state.topics[topic].partitions}
    nodes = {tp: node for tp, node in state.offsets.items() if tp in there - read}
    return {tp: (node.offset, node.stat.version) for tp, node in nodes.items() if node.offset is not None}


@dataclass(frozen=True, slots=True)
class CheckOrphanedOffsets:
    """Checks, before anything is changed, that the offsets which no member copies equal the plan's."""

    context: MigrationContext

    name = "orphaned partitions are as planned"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return ["check that the offsets that no member migrates are those of the plan"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        moving = self.context
        state = read_group(moving.session, moving.group)
        if state is None:
            return StepRefused(missing_group_error(moving.group))
        found: list[PlanDifference] = []
        for copy in orphaned_copies(moving.plan, state):
            node = state.offsets.get(copy.tp)
            version, offset = (NO_ZNODE_VERSION, None) if node is None else (node.stat.version, node.offset)
            if (version, offset) != (copy.version, copy.stored):
                now = "no offset" if offset is None else f"{offset} (version {version})"
                before = "no offset" if copy.stored is None else f"{copy.stored} (version {copy.version})"
                found.append(
                    PlanDifference(copy.tp, f"ZooKeeper had {before} and has {now}, and no member migrates it")
                )
        if not found:
            return StepDone()
        lines = "".join(f"\n  {line}" for line in drift_lines(found))
        return StepRefused(
            StalePlanError(
                f"group {moving.group} has changed since the plan was made:{lines}\nPlan again: zkconsumer migrate "
                f"plan {moving.group} --strategy dual"
            )
        )

    def do(self) -> None:
        """There is nothing to do."""
