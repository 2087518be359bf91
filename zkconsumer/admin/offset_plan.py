"""The changes to a group's offsets, for each partition, before any of them is made.  Pure.

A plan has one row for each partition and store.  If one row cannot be executed, it has a reason, and no row of the plan
is executed.
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
    """One partition in one store.  ``new`` None: delete it.  ``rejection_reason``: why the row cannot be executed."""

    tp: TopicPartition
    store: OffsetStoreName
    current: int | None
    new: int | None
    log: LogRange | str | None = None
    remark: str = ""
    rejection_reason: str = ""

    @property
    def is_change(self) -> bool:
        """Whether the stored offset changes."""
        return self.new is None or self.current != self.new


@dataclass(frozen=True, slots=True)
class OffsetPlan:
    """All changes to one group, sorted by store and partition."""

    group: str
    rows: Sequence[PlannedOffset]
    remarks: Sequence[str] = field(default_factory=tuple)

    @property
    def changes(self) -> list[PlannedOffset]:
        """The rows that must be written."""
        return [row for row in self.rows if row.is_change]

    @property
    def rejected(self) -> list[PlannedOffset]:
        """The rows that cannot be executed."""
        return [row for row in self.rows if row.rejection_reason]

    def rejection_lines(self) -> list[str]:
        """The rows that cannot be executed, and why; one line for each reason, up to a limit."""
        by_reason: dict[str, list[TopicPartition]] = {}
        for row in self.rejected:
            by_reason.setdefault(row.rejection_reason, []).append(row.tp)
        lines = [f"{partitions_text(tps)}: {why}" for why, tps in list(by_reason.items())[:REJECTIONS_SHOWN_MAX]]
        more = len(by_reason) - len(lines)
        return [*lines, *([f"and {more} more reasons"] if more else [])]


CurrentOffsets: TypeAlias = "Mapping[OffsetStoreName, Mapping[TopicPartition, int | None]]"
"""Store → the offset of each partition there; None: the znode does not contain an offset."""


def offsets_of_group(
    file: OffsetFile, group: str | None, convention: OffsetFileConvention | None
) -> tuple[dict[str, dict[TopicPartition, int]], list[str]]:
    """Group → the *next* offsets that a file contains, and remarks for the user.

    ``group``: only this one; required if the file names none.  ``convention`` None: the one of the file, else
    ``next``.  Raises ``UsageError``.
    """
    if convention is not None and file.convention is not None and convention != file.convention:
        raise UsageError(
            f"the file has the offset convention {file.convention!r}, but --offset-convention is {convention!r}"
        )
    shift = 1 if (convention or file.convention) == "last" else 0
    remarks = [f"the file has the last offset read: the next one is written, which is {shift} more"] if shift else []
    if not file.groups and group is None:
        raise UsageError("the file names no group: give --group")
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
        remarks.append(f"{left_out} offsets of other groups in the file are ignored")
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
    """Write the offsets of a file.  Offsets outside the log, or whose log is unknown, are rejected unless allowed."""
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
        return f"its log range is unknown: {log}"
    if offset < log.earliest:
        return f"{offset} is before the start of the log ({log.earliest})"
    if offset > log.latest:
        return f"{offset} is beyond the end of the log ({log.latest})"
    return ""


def plan_set(
    group: str,
    target: ResetTarget,
    partitions: Iterable[TopicPartition],
    *,
    stores: Sequence[OffsetStoreName],
    current: CurrentOffsets,
    logs: Mapping[TopicPartition, LogRange | str],
) -> OffsetPlan:
    """Set each partition to ``target``.

    With both stores the present offset is the larger one, where the group starts.
    """
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
    """Delete the stored offsets."""
    rows = [PlannedOffset(tp, store, current[store][tp], None) for store in stores for tp in sorted(current[store])]
    return OffsetPlan(group, rows)


def partitions_text(partitions: Iterable[TopicPartition]) -> str:
    """The first few of these, each once, and the number of the others."""
    different = list(dict.fromkeys(partitions))
    more = len(different) - PARTITIONS_NAMED_MAX
    return ", ".join(map(str, different[:PARTITIONS_NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def higher_in_other_store(plan: OffsetPlan, other: Mapping[TopicPartition, int | None]) -> list[TopicPartition]:
    """The partitions with a larger offset in the *other* store than the planned one.

    Scala consumers with ``offsets.storage=kafka`` and ``dual.commit.enabled=true`` start from the larger of the two
    (0.8.2 to 1.1), so lowering the offset in only one store has no effect on them.
    """
    return [
        row.tp
        for row in plan.rows
        if row.new is not None and (found := other.get(row.tp)) is not None and found > row.new
    ]
