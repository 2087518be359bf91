"""The differences (drift) between a group and its plan.  Pure.

Members that leave, owner nodes that are deleted and logs that grow are normal, and no drift.  Drift is:
an offset that was changed, created or deleted in either store; a partition that was created or deleted; a target that
the log does not contain any more.  A value that this migration itself wrote to Kafka is no drift.  Data that brokers do
not return now (``unknown_broker_data``) may be drift or not: the migration waits for them.

``--accept-drift`` uses the present group, with the plan's decisions (``steps.drift_steps.AcceptDrift``).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.admin.text_format import list_text
from zkconsumer.admin.zookeeper_offset_writes import NO_ZNODE_VERSION

if TYPE_CHECKING:
    from bridge.migration.inspect.group_snapshot import CommittedOffset, GroupSnapshot, PartitionSnapshot
    from bridge.migration.plan.migration_plan import MigrationPlan, PlannedPartition
    from zkconsumer.types import TopicPartition

LINES_MAX = 20
"""Differences that are shown one by one."""


@dataclass(frozen=True, slots=True)
class PlanDifference:
    """One partition that differs from the plan; ``text`` describes the difference."""

    tp: TopicPartition
    text: str

    def __str__(self) -> str:
        return f"{self.tp}: {self.text}"


def find_drift(plan: MigrationPlan, seen: GroupSnapshot) -> list[PlanDifference]:
    """Every difference, in the order of partitions."""
    planned = {row.tp: row for row in plan.partitions}
    found: list[PlanDifference] = []
    for tp in sorted(planned.keys() | seen.partitions.keys()):
        row, now = planned.get(tp), seen.partitions.get(tp)
        if row is None:
            found.append(PlanDifference(tp, "it was created after the plan"))
        elif now is None:
            found.append(PlanDifference(tp, "it does not exist any more"))
        else:
            found += [PlanDifference(tp, words) for words in _differences(plan, row, now)]
    return found


def unknown_broker_data(seen: GroupSnapshot) -> str:
    """What brokers did not return, as text; empty when they returned everything."""
    if seen.kafka_error:
        return f"what Kafka has stored for group {seen.group}: {seen.kafka_error}"
    unknown = [one for one in seen.partitions.values() if isinstance(one.log, str)]
    if not unknown:
        return ""
    return f"the logs of {list_text([one.tp for one in unknown])}: {unknown[0].log or 'no broker was asked'}"


def drift_lines(differences: list[PlanDifference]) -> list[str]:
    """For a person: the first ``LINES_MAX``, and how many more."""
    more = len(differences) - LINES_MAX
    return [*map(str, differences[:LINES_MAX]), *([f"and {more} more"] if more > 0 else [])]


def _differences(plan: MigrationPlan, row: PlannedPartition, now: PartitionSnapshot) -> Iterator[str]:
    if (row.stored, row.version) != (now.stored, now.version):
        yield (
            f"ZooKeeper had {_stored(row.stored, row.version)} and has {_stored(now.stored, now.version)}"
            f"{_moved_back_text(row, now)}"
        )
    before = plan.snapshot.partitions[row.tp].kafka
    if now.kafka != before and not _is_of_migration(plan, now.kafka):
        yield f"Kafka had {_value(before)} and has {_value(now.kafka)}"
    if row.target is not None and isinstance(now.log, LogRange) and not now.log.contains(row.target):
        yield f"the planned {row.target} is not in the log any more ({_range(now.log)})"


def _moved_back_text(row: PlannedPartition, now: PartitionSnapshot) -> str:
    """What to do about an offset that moved back: accepting it means that records are read twice."""
    if row.stored is None or now.stored is None or row.target is None or now.stored >= row.stored:
        return ""
    return (
        ": it went back, as when a process resumes from a long pause and writes its old offset. To start at "
        f"{row.target} nevertheless, make a new plan with --offset {row.tp.topic}:{row.tp.partition}={row.target}"
    )


def _is_of_migration(plan: MigrationPlan, value: CommittedOffset | None) -> bool:
    """Whether this migration wrote it."""
    return value is not None and value.provenance is not None and value.provenance.is_of_migration(plan.migration_id)


def _stored(offset: int | None, version: int) -> str:
    if version == NO_ZNODE_VERSION:
        return "no offset"
    return f"{'no number' if offset is None else offset} (version {version})"


def _value(value: CommittedOffset | None) -> str:
    return "none" if value is None else str(value.offset)


def _range(log: LogRange) -> str:
    return f"{log.earliest} to {log.latest}"
