"""What is to be done to a group's offsets, partition by partition, before anything is done.  Pure.

A plan holds one row a partition and store.  A row that cannot be carried out says why, and then nothing of the plan is.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.admin.offset_targets import ResetTarget, resolve_target
from zkconsumer.errors import UsageError
from zkconsumer.types import TopicPartition
from zkconsumer.zk.znode_formats import INT64_MAX

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from zkconsumer.admin.log_ranges import LogRange
    from zkconsumer.admin.offset_files import OffsetFile
    from zkconsumer.admin.offset_lines import OffsetFileConvention, OffsetStoreName

REJECTIONS_SHOWN_MAX = 10
PARTITIONS_NAMED_MAX = 5
"""Reasons that a text lists, and partitions that a sentence names."""


@dataclass(frozen=True, slots=True)
class PlannedOffset:
    """One partition in one store.  ``new`` None: to be deleted.  ``refusal``: why it cannot be done."""

    tp: TopicPartition
    store: OffsetStoreName
    current: int | None
    new: int | None
    log: LogRange | str | None = None
    remark: str = ""
    rejection_reason: str = ""

    @property
    def is_change(self) -> bool:
        """Whether anything has to be written."""
        return self.new is None or self.current != self.new


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """Everything that is to be done to one group, sorted by store and partition."""

    group: str
    rows: Sequence[PlannedOffset]
    remarks: Sequence[str] = field(default_factory=tuple)

    @property
    def changes(self) -> list[PlannedOffset]:
        """The rows that have to be written."""
        return [row for row in self.rows if row.is_change]

    @property
    def rejected(self) -> list[PlannedOffset]:
        """The rows that cannot be carried out."""
        return [row for row in self.rows if row.rejection_reason]

    def rejection_lines(self) -> list[str]:
        """Which rows cannot be carried out, and why; a line a reason, not too many."""
        by_reason: dict[str, list[TopicPartition]] = {}
        for row in self.rejected:
            by_reason.setdefault(row.rejection_reason, []).append(row.tp)
        lines = [f"{partitions_text(tps)}: {why}" for why, tps in list(by_reason.items())[:REJECTIONS_SHOWN_MAX]]
        more = len(by_reason) - len(lines)
        return [*lines, *([f"and {more} more reasons"] if more else [])]


CurrentOffsets: TypeAlias = "Mapping[OffsetStoreName, Mapping[TopicPartition, int | None]]"
"""Store → what each partition has there; None: a znode that holds no offset."""


def offsets_of_group(
    file: OffsetFile, group: str | None, convention: OffsetFileConvention | None
) -> tuple[dict[str, dict[TopicPartition, int]], list[str]]:
    """Group → the *next* offsets that a file means, and what a person should know.

    ``group``: take this one only; needed where the file names none.  ``convention`` None: what the file says, else
    ``next``.  Raises ``UsageError``.
    """
    if convention is not None and file.convention is not None and convention != file.convention:
        raise UsageError(f"the file says that its offsets mean {file.convention!r}, --offset-convention {convention!r}")
    shift = 1 if (convention or file.convention) == "last" else 0
    remarks = [f"the file has the last offset that was read: the next one is written, {shift} more"] if shift else []
    if not file.groups and group is None:
        raise UsageError("the file names no group: say which one with --group")
    if group is not None and file.groups and group not in file.groups:
        raise UsageError(f"the file has no offsets of group {group}; it has those of {', '.join(file.groups[:10])}")
    found: dict[str, dict[TopicPartition, int]] = {}
    left_out = 0
    for each in file.offsets:
        named = each.group or group
        assert named is not None, "a file without groups needs one"
        if group is not None and named != group:
            left_out += 1
            continue
        if each.offset > INT64_MAX - shift:
            raise UsageError(f"line {each.line}: there is no offset after {each.offset}")
        found.setdefault(named, {})[each.tp] = each.offset + shift
    if left_out:
        remarks.append(f"{left_out} offsets of other groups in the file are left out")
    return found, remarks


def plan_import(
    group: str,
    offsets: Mapping[TopicPartition, int],
    stores: Sequence[OffsetStoreName],
    current: CurrentOffsets,
    logs: Mapping[TopicPartition, LogRange | str],
    *,
    allow_out_of_range: bool,
) -> OffsetPlan:
    """Write what a file has.  What lies outside the log, or cannot be compared with it, is refused unless allowed."""
    rows = []
    for store in stores:
        for tp in sorted(offsets):
            problem = _out_of_range_reason(offsets[tp], logs[tp])
            was = current[store].get(tp)
            is_refused = problem and not allow_out_of_range and was != offsets[tp]
            remark, refusal = ("", problem) if is_refused else (problem, "")
            rows.append(PlannedOffset(tp, store, was, offsets[tp], logs[tp], remark, refusal))
    return OffsetPlan(group, rows)


def _out_of_range_reason(offset: int, log: LogRange | str) -> str:
    if isinstance(log, str):
        return f"its log cannot be looked at: {log}"
    if offset < log.earliest:
        return f"{offset} is before the start of the log ({log.earliest})"
    if offset > log.latest:
        return f"{offset} is beyond the end of the log ({log.latest})"
    return ""


def plan_set(
    group: str,
    target: ResetTarget,
    partitions: Iterable[TopicPartition],
    stores: Sequence[OffsetStoreName],
    current: CurrentOffsets,
    logs: Mapping[TopicPartition, LogRange | str],
) -> OffsetPlan:
    """Set each partition to where ``target`` says.  With both stores, from where the group would start: the larger."""
    rows = []
    resolved = {tp: resolve_target(target, tp, _start(tp, stores, current), logs[tp]) for tp in sorted(set(partitions))}
    for store in stores:
        for tp, new in resolved.items():
            was = current[store].get(tp)
            if isinstance(new, str):
                rows.append(PlannedOffset(tp, store, was, was, logs[tp], rejection_reason=new))
            else:
                rows.append(PlannedOffset(tp, store, was, new.offset, logs[tp], new.remark))
    return OffsetPlan(group, rows)


def _start(tp: TopicPartition, stores: Sequence[OffsetStoreName], current: CurrentOffsets) -> int | None:
    known = [offset for store in stores if (offset := current[store].get(tp)) is not None]
    return max(known, default=None)


def plan_delete(group: str, stores: Sequence[OffsetStoreName], current: CurrentOffsets) -> OffsetPlan:
    """Delete what is stored."""
    rows = [PlannedOffset(tp, store, current[store][tp], None) for store in stores for tp in sorted(current[store])]
    return OffsetPlan(group, rows)


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """The first few of these, each once, and how many more there are."""
    different = list(dict.fromkeys(partitions))
    more = len(different) - PARTITIONS_NAMED_MAX
    return ", ".join(map(str, different[:PARTITIONS_NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def higher_in_other_store(plan: OffsetPlan, other: Mapping[TopicPartition, int | None]) -> list[TopicPartition]:
    """The partitions whose *other* store has more than is to be written.

    Original members with ``offsets.storage=kafka`` and ``dual.commit.enabled=true`` start from the larger of the two
    (0.8.2 to 1.1), so lowering one store alone does nothing to them.
    """
    return [
        row.tp
        for row in plan.rows
        if row.new is not None and (found := other.get(row.tp)) is not None and found > row.new
    ]
