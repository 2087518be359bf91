"""A plan: the snapshot of a group, the decisions, and the start of every partition in Kafka.  Values only; pure.

``start_offsets.make_plan`` makes one, ``plan_file`` writes and reads it, ``plan_drift`` finds the differences to the
present group.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from bridge.migration.plan.offset_retention import effective_retention_ms

if TYPE_CHECKING:
    from bridge.migration.control.phases import Strategy
    from bridge.migration.inspect.group_snapshot import GroupSnapshot
    from bridge.migration.plan.decisions import Decisions, OffsetConvention
    from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class PlannedPartition:
    """One partition.

    ``target``: the next offset for Kafka; None with a ``refusal``, or while the plan's convention is not known.
    ``why``: a short reason: ``copied``, ``last + 1``, ``missing: earliest``, ``decided`` ...
    """

    tp: TopicPartition
    stored: int | None
    version: int
    target: int | None
    why: str
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """Everything that ``apply`` needs, so that it makes no decision itself.

    ``digest``: SHA-256, hex, over everything else.  Two operators compare it, and the file is checked by it.
    ``refusals``: sentences about the whole group, each with what to do.  With one of them, or one of a partition, the
    plan can be read but not applied.  ``warnings`` do not prevent that.  ``convention`` is None, beside a refusal,
    where there is neither evidence nor a decision.
    """

    migration_id: str
    group: str
    strategy: Strategy
    made_at_ms: int
    snapshot: GroupSnapshot
    decisions: Decisions
    convention: OffsetConvention | None
    convention_evidence: str
    partitions: tuple[PlannedPartition, ...]
    refusals: tuple[str, ...] = ()
    warnings: tuple[str, ...] = ()
    digest: str = ""

    @property
    def can_be_applied(self) -> bool:
        """Whether there is no refusal."""
        return not self.refusals and not any(row.refusal for row in self.partitions)

    @property
    def uses_acl_fence(self) -> bool:
        """Whether access lists block old members; never with ``dual``, where they would reject the members' writes."""
        return self.strategy == "copy" and self.decisions.acl_fence

    @property
    def offsets_retention_ms(self) -> int:
        """How long brokers before 2.1 are to keep the copied offsets, counted from their commit."""
        return effective_retention_ms(self.snapshot, self.decisions)

    @property
    def targets(self) -> dict[TopicPartition, int]:
        """Partition -> next offset, of the partitions that have one."""
        return {row.tp: row.target for row in self.partitions if row.target is not None}
