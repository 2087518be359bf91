"""``plan_backfill``: the batches of a backfill or of a replacement, those that are reserved and new ones.  Pure.

    requested ranges --- covered by a lineage (a backfill) ---> left to write --- reserved by this id ---> new batches

The sink keeps the plan: a batch is a reservation under the id of the command (``backfill_bounds``), and a batch that is
committed is a lineage.  So a repetition continues with the reservations that are left, and adds what is neither
reserved nor covered; it needs no file of its own.  A number is never used twice.

A replacement that is complete may be asked for again (the pipeline file was corrected once more): it gets a new number
after its id.  One that has reservations continues.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.lineage import (
    BatchCounts,
    BatchLineage,
    PartitionRanges,
    partition_ranges,
    remaining_ranges,
    uncovered,
)
from zkconsumer.types import TopicPartition

RESERVED = "reserved"
"""The attempt of a lineage that is only a reservation."""


@dataclass(frozen=True, slots=True)
class BackfillCommand:
    """``query``: the id.  ``kind``: ``backfill`` or ``replace``.  ``now_ms``: since 1970."""

    query: str
    kind: str
    pipeline: str
    ranges: PartitionRanges
    batch_offsets_max: int
    now_ms: int


@dataclass(frozen=True, slots=True)
class BackfillPlan:
    """``pending``: batches of an earlier run that are reserved and not written.  ``new``: to be reserved first.
    ``covered``: how many offsets of the request are in the sink already."""

    pending: tuple[BatchLineage, ...]
    new: tuple[BatchLineage, ...]
    covered: int

    @property
    def batches(self) -> tuple[BatchLineage, ...]:
        """All batches to write, in their order."""
        return *self.pending, *self.new


def plan_backfill(
    command: BackfillCommand, lineages: Collection[BatchLineage], reservations: Collection[BatchLineage]
) -> BackfillPlan:
    """The batches to write.  ``lineages``, ``reservations``: all of the sink."""
    pending = [each for each in reservations if each.query == command.query]
    own = [each for each in lineages if each.query == command.query]
    if command.kind == "backfill":
        left = uncovered(command.ranges, lineages)
    else:
        left = remaining_ranges(command.ranges, (each.ranges for each in own))
    covered = count_offsets(command.ranges) - count_offsets(left)
    left = remaining_ranges(left, (each.ranges for each in pending))
    first = max((each.batch for each in (*own, *pending)), default=-1) + 1
    new = [
        BatchLineage(
            command.query, number, command.kind, command.pipeline, "snapshot", RESERVED, command.now_ms, ranges,
            BatchCounts(),
        )
        for number, ranges in enumerate(split_ranges(left, command.batch_offsets_max), first)
    ]  # fmt: skip
    return BackfillPlan(tuple(pending), tuple(new), covered)


def replacement_id(prefix: str, lineages: Iterable[BatchLineage], reservations: Iterable[BatchLineage]) -> str:
    """The id of the replacement that is not complete; else a new one."""

    def number_of(lineage: BatchLineage) -> int:
        digits = lineage.query.removeprefix(prefix)
        return int(digits) if lineage.query.startswith(prefix) and digits.isdecimal() else 0

    if (pending := max(map(number_of, reservations), default=0)) > 0:
        return f"{prefix}{pending}"
    return f"{prefix}{max(map(number_of, lineages), default=0) + 1}"


def split_ranges(ranges: PartitionRanges, offsets_max: int) -> Iterator[PartitionRanges]:
    """Batches of at most ``offsets_max`` offsets, each with one range of a partition at most, from low offsets to high
    ones of all partitions at the same time."""
    assert offsets_max >= 1, offsets_max
    left = {tp: list(reversed(pairs)) for tp, pairs in ranges.items()}
    while left:
        batch: dict[TopicPartition, tuple[tuple[int, int], ...]] = {}
        room = offsets_max
        for position, tp in enumerate(sorted(left)):
            if not room:
                break
            share = -(-room // (len(left) - position))  # what other partitions do not use is there for the later ones
            first, end = left[tp].pop()
            cut = min(end, first + share)
            batch[tp] = ((first, cut),)
            room -= cut - first
            if cut < end:
                left[tp].append((cut, end))
        left = {tp: pairs for tp, pairs in left.items() if pairs}
        yield batch


def below_positions(ranges: PartitionRanges, positions: dict[TopicPartition, int]) -> PartitionRanges:
    """The offsets that the live query does not read any more."""
    return partition_ranges(
        OffsetRange(tp, first, min(end, positions.get(tp, end))) for tp, pairs in ranges.items() for first, end in pairs
    )


def count_offsets(ranges: PartitionRanges) -> int:
    """The number of offsets."""
    return sum(end - first for pairs in ranges.values() for first, end in pairs)
