"""A plan: what was seen, what was decided, and what every partition will start from in Kafka.  Values only; pure.

``targets.make_plan`` makes one, ``plan_file`` writes and reads it, ``drift`` says how the group differs from it.
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

    ``target``: the next offset, as it is to stand in Kafka; None with a ``refusal``, or while the plan's convention is
    not known.  ``why`` in a few words: ``copied``, ``last + 1``, ``missing: earliest``, ``decided`` ...
    """

    tp: TopicPartition
    stored: int | None
    version: int
    target: int | None
    why: str
    refusal: str = ""


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """Everything that ``apply`` needs, so that it decides nothing itself.

    ``digest`` (SHA-256, hex, over everything else) is what two operators compare, and what the file is checked by.
    ``refusals`` are sentences about the whole group, each with what to do; with one of them, or one of a partition, the
    plan can be looked at and not applied.  ``warnings`` stop nothing.  ``convention`` is None, beside a refusal, where
    there is neither evidence nor a decision.
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
        """Whether nothing refuses."""
        return not self.refusals and not any(row.refusal for row in self.partitions)

    @property
    def uses_acl_fence(self) -> bool:
        """Whether access lists keep old members out: never where members stay, whose own writes they would refuse."""
        return self.strategy == "copy" and self.decisions.acl_fence

    @property
    def offsets_retention_ms(self) -> int:
        """How long brokers before 2.1 are to keep the copied offsets, from their commit on."""
        return effective_retention_ms(self.snapshot, self.decisions)

    @property
    def targets(self) -> dict[TopicPartition, int]:
        """Partition -> next offset, of those that have one."""
        return {row.tp: row.target for row in self.partitions if row.target is not None}
