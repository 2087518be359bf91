"""Checks whether the group has changed since the plan: before the first change, and again after the fences are set.

before   no member is registered: offsets that differ make the plan stale (exit code 4, nothing was changed)
after    every start is computed again from the stores and the plan's decisions, and must equal the plan's;
         drift ends the run, or is accepted: planned again with the same decisions, and stored beside the plan
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bridge.migration.control.control_layout import accepted_piece_name
from bridge.migration.control.control_pieces import pack, store_child
from bridge.migration.errors import PartiallyDoneError, StalePlanError, VerificationError, missing_group_error
from bridge.migration.inspect.group_inspection import inspect_group
from bridge.migration.offsets.offset_copy_steps import COPY_PHASES
from bridge.migration.plan.plan_drift import PlanDifference, drift_lines, find_drift, unknown_broker_data
from bridge.migration.plan.plan_file import plan_to_bytes
from bridge.migration.plan.plan_json import digest_of_plan
from bridge.migration.plan.start_offsets import plan_partition, start_offset_error
from bridge.migration.steps.step import StepDone, StepPending, StepRefused, StepStatus, StepWaiting
from zkconsumer.admin.zookeeper_offset_writes import registered_members
from zkconsumer.errors import BrokerUnreachable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from bridge.migration.inspect.group_snapshot import GroupSnapshot, PartitionSnapshot
    from bridge.migration.offsets.offset_copies import OffsetCopy
    from bridge.migration.plan.migration_plan import MigrationPlan, PlannedPartition
    from bridge.migration.steps.migration_context import MigrationContext
    from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class CheckPlanCurrent:
    """Nothing has changed since the plan was made, as far as that is possible: registered members continue to commit.

    ``accept_drift``: changes are checked after the fences are set.
    """

    context: MigrationContext
    accept_drift: bool

    name = "the plan is current"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return ["check that the offsets are those of the plan"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        session, group, plan = self.context.session, self.context.group, self.context.plan
        if self.accept_drift or registered_members(session, group):
            return StepDone()
        seen = inspect_group(session, group, with_acls=False)
        if seen is None:
            return StepRefused(missing_group_error(group))
        unknown = unknown_broker_data(seen)
        if unknown:
            return StepWaiting(f"brokers to return {unknown}")
        # A topic without stored offsets belongs to the group only as long as a member subscribes to it.
        there = replace(plan, partitions=tuple(row for row in plan.partitions if row.tp in seen.partitions))
        found = find_drift(there, seen)
        if not found:
            return StepDone()
        return StepRefused(
            StalePlanError(
                f"group {group} has changed since the plan was made:{_drift_list(found)}\nPlan again (zkconsumer "
                f"migrate plan {group}), or give --accept-drift to copy the current offsets, with the plan's decisions"
            )
        )

    def do(self) -> None:
        """There is nothing to do."""


@dataclass(frozen=True, slots=True)
class AcceptDrift:
    """After the fences are set: the group equals the effective plan, or the differences were accepted and stored.

    ``had_placeholder``: an earlier run joined the placeholder member, so another client's value in Kafka is an
    interference.
    """

    context: MigrationContext
    accept: bool
    had_placeholder: bool

    name = "the offsets are those of the plan"
    changes = True

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return ["read the offsets again: " + ("changes are planned again" if self.accept else "changes stop the run")]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        if not self.context.stores.is_in_phase(*COPY_PHASES):
            return StepPending()
        seen, found = self._read_drift()
        unknown = unknown_broker_data(seen)
        if unknown:
            return StepWaiting(f"brokers to return {unknown}")
        altered = self._altered_error(seen, found)
        if altered:
            return StepRefused(altered)
        if not found:
            return StepDone()
        if self.context.placeholder.joined is not None:
            try:
                # Raises when the placeholder member was lost: then another client interfered; the plan is not old.
                self.context.placeholder.heartbeat()
            except (VerificationError, PartiallyDoneError) as error:
                return StepRefused(error)
        if self.accept:
            return (
                StepPending() if not self._refused_rows(seen, found) else StepRefused(self._replan_error(seen, found))
            )
        group = self.context.group
        foreign = [one.tp for one in found if self._is_foreign(seen, one.tp)]
        if foreign and self.had_placeholder:
            return StepRefused(
                VerificationError(
                    f"another client committed to Kafka during the migration of group {group}:{_drift_list(found)}\n"
                    "None of these offsets was overwritten. Find and stop that client; then roll back, or give "
                    "--accept-drift to use the current offsets with the plan's decisions"
                )
            )
        return StepRefused(
            PartiallyDoneError(
                f"group {group} has changed since the plan was made:{_drift_list(found)}\nNo such offset was written "
                "to Kafka. Check each one; then continue with: zkconsumer migrate apply --resume "
                f"{group} --execute --accept-drift. Or roll back: zkconsumer migrate rollback {group} --execute"
            )
        )

    def do(self) -> None:
        """See ``MigrationStep``."""
        seen, found = self._read_drift()
        unknown = unknown_broker_data(seen)
        if unknown:
            raise BrokerUnreachable(f"brokers do not return {unknown}")
        accepted = self._replanned(seen, found)
        for number, piece in enumerate(pack(plan_to_bytes(accepted))):
            store_child(self.context.control_znode, accepted_piece_name(number), piece, *COPY_PHASES)
        self.context.plan = accepted

    def _read_drift(self) -> tuple[GroupSnapshot, list[PlanDifference]]:
        self.context.placeholder.heartbeat_if_due()
        group = self.context.group
        seen = inspect_group(self.context.session, group, with_acls=False)
        if seen is None:
            raise PartiallyDoneError(
                f"/consumers/{group} was deleted. Roll back: zkconsumer migrate rollback {group} --execute"
            )
        return seen, find_drift(self.context.plan, seen)

    def _altered_error(self, seen: GroupSnapshot, found: list[PlanDifference]) -> VerificationError | None:
        drifted = {one.tp for one in found}
        return altered_plan_error(
            self.context.plan, seen, [row for row in self.context.plan.partitions if row.tp not in drifted]
        )

    def _is_foreign(self, seen: GroupSnapshot, tp: TopicPartition) -> bool:
        now, before = seen.partitions.get(tp), self.context.plan.snapshot.partitions.get(tp)
        value = None if now is None else now.kafka
        if value is None or value == (None if before is None else before.kafka):
            return False
        return value.provenance is None or not value.provenance.is_of_migration(self.context.plan.migration_id)

    def _replanned(self, seen: GroupSnapshot, found: list[PlanDifference]) -> MigrationPlan:
        plan = self.context.plan
        moved = {one.tp for one in found}
        rows: list[PlannedPartition] = [row for row in plan.partitions if row.tp not in moved]
        partitions: dict[TopicPartition, PartitionSnapshot] = {row.tp: plan.snapshot.partitions[row.tp] for row in rows}
        for tp in sorted(moved & seen.partitions.keys()):
            now = without_own_commit(plan, seen.partitions[tp])
            partitions[tp] = now
            rows.append(plan_partition(now, plan.convention, plan.decisions))
        rows.sort(key=lambda row: row.tp)
        ordered = {tp: partitions[tp] for tp in sorted(partitions)}
        anew = replace(plan, snapshot=replace(plan.snapshot, partitions=ordered), partitions=tuple(rows), digest="")
        return replace(anew, digest=digest_of_plan(anew))

    def _refused_rows(self, seen: GroupSnapshot, found: list[PlanDifference]) -> list[PlannedPartition]:
        return [row for row in self._replanned(seen, found).partitions if row.refusal]

    def _replan_error(self, seen: GroupSnapshot, found: list[PlanDifference]) -> PartiallyDoneError:
        rows = self._refused_rows(seen, found)
        shown = "".join(f"\n  {row.tp}: {row.refusal}" for row in rows[:20])
        more = f"\n  and {len(rows) - 20} more" if len(rows) > 20 else ""
        return PartiallyDoneError(
            f"the plan's decisions cannot accept these changes:{shown}{more}\nRoll back, and plan again: "
            f"zkconsumer migrate rollback {self.context.group} --execute"
        )


@dataclass(frozen=True, slots=True)
class CheckStartOffsets:
    """With ``dual``: the offsets that the tool commits, for partitions that no member copies, follow from the plan."""

    context: MigrationContext
    copies: Sequence[OffsetCopy]

    name = "the start offsets follow from the decisions"
    changes = False

    def describe(self) -> list[str]:
        """See ``MigrationStep``."""
        return ["compute each start offset again from the current offsets and the plan's decisions"]

    def check(self) -> StepStatus:
        """See ``MigrationStep``."""
        plan, group = self.context.plan, self.context.group
        seen = inspect_group(self.context.session, group, with_acls=False)
        if seen is None:
            return StepDone()  # nothing is left to copy
        unknown = unknown_broker_data(seen)
        if unknown:
            return StepWaiting(f"brokers to return {unknown}")
        planned_for = {copy.tp: (copy.offset, copy.version) for copy in self.copies}
        rows = [
            row
            for row in plan.partitions
            if row.tp in seen.partitions and planned_for.get(row.tp) == (row.target, row.version)
        ]
        wrong = altered_plan_error(plan, seen, rows)
        return StepRefused(wrong) if wrong else StepDone()

    def do(self) -> None:
        """There is nothing to do."""


def altered_plan_error(
    plan: MigrationPlan, seen: GroupSnapshot, rows: Sequence[PlannedPartition]
) -> VerificationError | None:
    """The error if the starts of these rows do not follow from the plan's decisions and the stores."""
    why = {row.tp: start_offset_error(row, without_own_commit(plan, seen.partitions[row.tp]), plan) for row in rows}
    wrong = [PlanDifference(tp, words) for tp, words in why.items() if words]
    if not wrong:
        return None
    return VerificationError(
        f"the plan of group {plan.group} was altered, or made by another release: its start offsets do not follow from "
        f"its decisions and the current offsets:{_drift_list(wrong)}\nThis run wrote nothing to Kafka. Roll back, and "
        f"plan again: zkconsumer migrate rollback {plan.group} --execute"
    )


def without_own_commit(plan: MigrationPlan, now: PartitionSnapshot) -> PartitionSnapshot:
    """Replace a value that this migration wrote to Kafka, which is no position, with the value from before it.

    For a value that is unchanged since the plan, use what the plan contains about it.
    """
    whose = None if now.kafka is None else now.kafka.provenance
    before = plan.snapshot.partitions.get(now.tp)
    kafka = None if before is None else before.kafka
    if now.kafka != kafka and (whose is None or not whose.is_of_migration(plan.migration_id)):
        return now
    return replace(now, kafka=kafka, is_returned=before is not None and before.is_returned)


def _drift_list(found: list[PlanDifference]) -> str:
    return "".join(f"\n  {line}" for line in drift_lines(found))
