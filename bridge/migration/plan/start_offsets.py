"""Makes a plan from a snapshot and the decisions: where every partition starts in Kafka and why, or why not.  Pure.

Each refusal names the option that decides it.  The rules for one partition, in this order:

    offsets named by the operator   used as they are, if the log contains them
    Kafka's value                   of an application, and different from ZooKeeper's: ``existing`` decides; without a
                                    decision, a value that the last rollback wrote to ZooKeeper does not count
    the stored value                ``convention`` gives its meaning; if there is none, ``missing`` decides
    the log                         an offset outside it: ``out_of_range`` decides

With ``dual`` each member copies the offset that is stored in ZooKeeper.  So a partition that a member reads is refused
if the rules give another start.

A value that a migration wrote to Kafka is no position of an application, and is overwritten.  A log without records has
one end, so ``missing`` decides nothing there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from bridge.migration.plan.decisions import ExistingOffsetPolicy, OffsetConvention, OffsetFallback
from bridge.migration.plan.migration_plan import MigrationPlan, PlannedPartition
from bridge.migration.plan.offset_convention import find_convention_evidence
from bridge.migration.plan.plan_checks import PlanInput, plan_refusals, plan_warnings
from bridge.migration.plan.plan_json import digest_of_plan
from zkconsumer.admin.log_ranges import LogRange
from zkconsumer.admin.text_format import count_text
from zkconsumer.zk.znode_formats import INT64_MAX

if TYPE_CHECKING:
    from bridge.migration.control.phases import Strategy
    from bridge.migration.inspect.group_snapshot import GroupSnapshot, PartitionSnapshot
    from bridge.migration.plan.decisions import Decisions

REASON_EMPTY_LOG = "missing: the log is empty"
DECIDED_BY_OPERATOR = "decided by the operator"
_REASONS_BY_LOG = ("missing: ", "out of range: ")
"""The beginnings of the reasons of starts that are the start or the end of the log."""
REASON_UNKNOWN_CONVENTION = "depends on --offset-convention"


def make_plan(
    seen: GroupSnapshot, decisions: Decisions, *, migration_id: str, strategy: Strategy, made_at_ms: int
) -> MigrationPlan:
    """The plan for a snapshot of a group; with refusals, if the group cannot be migrated."""
    evidence = find_convention_evidence(seen)
    case = PlanInput(seen, decisions, strategy, evidence)
    words = evidence.text if decisions.convention is None else f"{DECIDED_BY_OPERATOR} (seen: {evidence.text})"
    plan = MigrationPlan(
        migration_id=migration_id,
        group=seen.group,
        strategy=strategy,
        made_at_ms=made_at_ms,
        snapshot=seen,
        decisions=decisions,
        convention=case.convention,
        convention_evidence=words,
        partitions=tuple(_row(seen, one, case.convention, decisions, strategy) for one in seen.partitions.values()),
        refusals=tuple(plan_refusals(case)),
        warnings=tuple(plan_warnings(case)),
    )
    return replace(plan, digest=digest_of_plan(plan))


# --- one partition ----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _StartOffset:
    """A next offset and its origin; or, with ``refusal``, why there is none."""

    offset: int | None
    why: str
    refusal: str = ""


def plan_partition(
    seen: PartitionSnapshot, convention: OffsetConvention | None, decisions: Decisions
) -> PlannedPartition:
    """The start of one partition."""
    start = _start(seen, convention, decisions)
    return PlannedPartition(seen.tp, seen.stored, seen.version, start.offset, start.why, start.refusal)


def start_offset_error(row: PlannedPartition, now: PartitionSnapshot, plan: MigrationPlan) -> str:
    """Why a row of a plan does not follow from the plan's decisions and the present stores; empty when it does.

    ``now``: with Kafka's value from before this migration.  A start that the log decided (``missing``,
    ``out_of_range``) moves with the log: it must be inside the log, and skip nothing that the decisions would not skip.
    """
    if row.target is None or isinstance(now.log, str):
        return ""
    fresh = plan_partition(now, plan.convention, plan.decisions)
    if fresh.target == row.target:
        return ""
    latest = now.log.earliest if fresh.target is None else fresh.target
    if row.why.startswith(_REASONS_BY_LOG) and now.log.earliest <= row.target <= latest:
        return ""
    found = fresh.refusal if fresh.target is None else f"{fresh.target} ({fresh.why})"
    return f"the plan contains {row.target} ({row.why}), and its decisions give {found}"


def _row(
    seen: GroupSnapshot,
    one: PartitionSnapshot,
    convention: OffsetConvention | None,
    decisions: Decisions,
    strategy: Strategy,
) -> PlannedPartition:
    """The start of one partition; with ``dual`` refused if a member reads it and the start is not the stored offset."""
    row = plan_partition(one, convention, decisions)
    if strategy == "copy" or row.refusal or not any(one.tp.topic in member.topics for member in seen.members):
        return row
    problem = ""
    if one.error:
        problem = f"its znode contains no offset, {one.error}, so the member that owns it does not read it"
    elif row.target is not None and one.stored is not None and row.target != one.stored:
        problem = f"its member carries {one.stored} over, and {row.target} was decided ({row.why})"
    if not problem:
        return row
    instead = "set the offset first, while the group is stopped ('zkconsumer offsets set'), or move by copying"
    return replace(row, target=None, why="", refusal=f"{problem}: {instead}")


def _start(seen: PartitionSnapshot, convention: OffsetConvention | None, decisions: Decisions) -> _StartOffset:
    log = seen.log
    if isinstance(log, str):
        return _StartOffset(None, "", f"its log cannot be looked at: {log or 'nobody was asked'}")
    decided = decisions.offsets.get(seen.tp)
    if decided is not None:
        problem = _out_of_range_text(decided, log)
        if problem:
            return _StartOffset(None, "", f"--offset: {problem}")
        stored = _start_of_zookeeper(seen, log, convention, decisions) if _has_value(seen, decisions) else None
        return _StartOffset(
            decided, "decided" + _cost(decided, "ZooKeeper's", None if stored is None else stored.offset)
        )
    chosen = _choose_store(seen, log, convention, decisions)
    if chosen.offset is None:
        return chosen
    problem = _out_of_range_text(chosen.offset, log)
    if not problem:
        return chosen
    return _fallback_start(decisions.out_of_range, log, "out of range", f"{problem} (--out-of-range)")


def _choose_store(
    seen: PartitionSnapshot, log: LogRange, convention: OffsetConvention | None, decisions: Decisions
) -> _StartOffset:
    """Select ZooKeeper's or Kafka's value, before the log is checked."""
    ours = _start_of_zookeeper(seen, log, convention, decisions)
    if seen.kafka is None or seen.kafka.provenance is not None:
        return ours
    theirs = _StartOffset(seen.kafka.offset, "kept: Kafka's")
    has_value = _has_value(seen, decisions)
    if has_value and (ours.offset is None or ours.offset == theirs.offset):
        return ours
    source = ours.offset if has_value else None
    instead_of_ours = replace(theirs, why=theirs.why + _cost(seen.kafka.offset, "ZooKeeper's", source))
    instead_of_theirs = replace(ours, why=ours.why + _cost(ours.offset, "Kafka's", seen.kafka.offset))
    match decisions.existing:
        case ExistingOffsetPolicy.KEEP_SOURCE:
            return instead_of_theirs
        case ExistingOffsetPolicy.KEEP_TARGET:
            return instead_of_ours
        case ExistingOffsetPolicy.HIGHER:
            return instead_of_ours if source is None or seen.kafka.offset > source else instead_of_theirs
    if seen.is_returned and has_value:
        return replace(ours, why=ours.why + _since_return(ours.offset, seen.kafka.offset))
    own = f"{ours.offset} as the next one" if has_value else "none"
    return _StartOffset(
        None, "", f"ZooKeeper has {own}, and an application stored {seen.kafka.offset} in Kafka (--existing)"
    )


def _cost(target: int | None, whose: str, other: int | None) -> str:
    """The cost of this start compared with the other store's next offset: records read again, or skipped."""
    if target is None or other is None or target == other:
        return ""
    what = "read again" if target < other else "passed over"
    return f" ({whose} next is {other}: {count_text(abs(target - other), 'record')} {what})"


def _since_return(target: int | None, returned: int) -> str:
    """The cost of this start if the last rollback copied Kafka's value to ZooKeeper: records that are read again."""
    if target is None:
        return ""
    again = f": {count_text(returned - target, 'record')} read again" if target < returned else ""
    return f" (Kafka's {returned} is from before the last way back{again})"


def _has_value(seen: PartitionSnapshot, decisions: Decisions) -> bool:
    return seen.stored is not None and (decisions.use_older or not seen.is_older_than_topic)


def _start_of_zookeeper(
    seen: PartitionSnapshot, log: LogRange, convention: OffsetConvention | None, decisions: Decisions
) -> _StartOffset:
    if not _has_value(seen, decisions):
        return _without_value(seen, log, decisions)
    assert seen.stored is not None, "it has a value"
    match convention:
        case OffsetConvention.NEXT:
            return _StartOffset(seen.stored, "copied")
        case OffsetConvention.LAST if seen.stored < INT64_MAX:
            return _StartOffset(seen.stored + 1, "last + 1")
        case OffsetConvention.LAST:
            return _StartOffset(None, "", f"{seen.stored} cannot be the number of a record (--offset)")
    return _StartOffset(None, REASON_UNKNOWN_CONVENTION)


def _without_value(seen: PartitionSnapshot, log: LogRange, decisions: Decisions) -> _StartOffset:
    if seen.stored is not None:
        reason = f"{seen.stored} was stored before its topic was created (--older-than-topic use, or --missing)"
    elif seen.error:
        reason = f"its znode holds no offset, {seen.error} (--missing)"
    else:
        reason = "no offset is stored (--missing)"
    if log.earliest == log.latest and not seen.error and seen.stored is None:
        return _StartOffset(log.latest, REASON_EMPTY_LOG)
    return _fallback_start(decisions.missing, log, "missing", reason)


def _fallback_start(fallback: OffsetFallback, log: LogRange, what: str, reason: str) -> _StartOffset:
    match fallback:
        case OffsetFallback.EARLIEST:
            return _StartOffset(log.earliest, f"{what}: earliest")
        case OffsetFallback.LATEST:
            return _StartOffset(log.latest, f"{what}: latest")
    return _StartOffset(None, "", reason)


def _out_of_range_text(offset: int, log: LogRange) -> str:
    if offset < log.earliest:
        return f"{offset} is before the start of the log ({log.earliest}), {log.earliest - offset} records are gone"
    if offset > log.latest:
        return f"{offset} is beyond the end of the log ({log.latest})"
    return ""
