"""Checks that a plan that was accepted with its drift follows from the first plan.  Pure.

The first plan is the operator's file, or its digest was confirmed.  The accepted plan is read from ZooKeeper, and is
used only if it follows from the first: everything except the offsets is the same, and each start is what the decisions
of the first plan give for the offsets that the accepted plan contains.  Whether the stores still have those offsets is
checked after the fences are set (``drift_steps.AcceptDrift``).
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from bridge.migration.plan.start_offsets import plan_partition

if TYPE_CHECKING:
    from bridge.migration.plan.migration_plan import MigrationPlan


def accepted_plan_error(first: MigrationPlan, accepted: MigrationPlan) -> str:
    """Why it does not follow, as text; empty when it does."""
    seen = replace(accepted.snapshot, partitions=first.snapshot.partitions)
    if replace(accepted, snapshot=seen, partitions=first.partitions, digest=first.digest) != first:
        return "it differs from the first plan in more than offsets"
    before = {row.tp: row for row in first.partitions}
    for row in accepted.partitions:
        now = accepted.snapshot.partitions[row.tp]
        if row == before.get(row.tp) and now == first.snapshot.partitions[row.tp]:
            continue
        seen_first = first.snapshot.partitions.get(row.tp)
        if now.is_returned and (seen_first is None or (now.kafka, True) != (seen_first.kafka, seen_first.is_returned)):
            return f"it contains an offset of {row.tp} that a rollback left in Kafka, and the first plan does not"
        fresh = plan_partition(now, first.convention, first.decisions)
        if fresh != row:
            start = fresh.refusal if fresh.target is None else str(fresh.target)
            return f"it contains {row.target} for {row.tp}, and the decisions of the first plan give {start}"
    return ""
