"""``LineageTotals``: the batches of a sink, merged as they are read, so that 100,000 of them need little memory.  Pure.

Theory of operation.  ``add`` is called with each committed lineage, in the order of the sink (query, then batch).  For
each partition the covered offsets are one ``OffsetSet``.  A batch closes if its offsets are its rows, dead letters,
filtered and skipped records; nothing more is kept of it.  Another one has offsets without a record, or has lost some:
it becomes part of a ``BatchGroup``, whose ranges are counted in the log later.  Groups of neighbouring batches are
merged when there are more than ``GROUPS_MAX``: then the place of a lost record is known less exactly, and one record
that compaction has removed since from a batch hides one that is lost in its neighbour.

What must be seen while the batches pass by:

    an offset that two lineages have      ``doubles``: it is in the sink twice
    a batch id that is missing            ``gaps``; the hole between its neighbours is in ``PartitionCoverage.suspects``
    more records than offsets             ``surplus``: some of them are in the sink twice

A replay covers nothing: it turns dead letters into rows, and is counted apart.  So is a replacement, whose commit has
deleted the rows that the sink had of its offsets; how many these were is not stored.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.audit.offset_set import OffsetSet
from bridge.spark.pipeline.lineage import BatchCounts, BatchLineage, PartitionRanges, partition_ranges
from zkconsumer.types import TopicPartition

GROUPS_MAX = 1_000
"""More groups are merged to half of them."""

NAMED_MAX = 100
"""How many doubles and gaps are kept with their place; the number of all is exact."""


@dataclass(frozen=True, slots=True)
class BatchGroup:
    """Batches with more offsets than ``counted``: rows, dead letters, filtered and skipped."""

    first_name: str
    last_name: str
    batches: int
    ranges: PartitionRanges
    offsets: int
    counted: int

    @property
    def missing(self) -> int:
        """Offsets that became nothing."""
        return self.offsets - self.counted

    @property
    def name(self) -> str:
        return self.first_name if self.batches == 1 else f"{self.first_name} to {self.last_name}"


@dataclass(frozen=True, slots=True)
class BatchGap:
    """Batches [first, end) of a query that are not in the sink although later ones are."""

    query: str
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class LastBatch:
    """The newest batch of a query in the sink."""

    batch: int
    created_ms: int
    counts: BatchCounts


@dataclass(slots=True)
class PartitionCoverage:
    """``covered``: the offsets in batches and backfills.  ``suspects``: holes beside a missing batch.

    ``last``: the query, the batch and the end of the newest range.  ``has_claims``: a batch with ``claim`` read here.
    """

    covered: OffsetSet = field(default_factory=OffsetSet)
    suspects: OffsetSet = field(default_factory=OffsetSet)
    last: tuple[str, int, int] | None = None
    has_claims: bool = False


class LineageTotals:
    """What an audit keeps of the committed lineages."""

    def __init__(self) -> None:
        self.partitions: dict[TopicPartition, PartitionCoverage] = {}
        self.groups: list[BatchGroup] = []
        self.doubles: list[tuple[str, OffsetRange]] = []
        self.doubled_offsets = 0
        self.surplus: list[tuple[str, int]] = []
        self.surplus_records = 0
        self.gaps: list[BatchGap] = []
        self.missing_batches = 0
        self.counts = BatchCounts()
        self.replays = BatchCounts()
        self.offsets = 0
        self.batches = self.backfills = self.replayed = self.replacements = 0
        self.replaced_offsets = 0
        self.dead_letters: dict[tuple[str, int], int] = {}
        """Key -> dead letters, of the batches that have some."""
        self.last: dict[str, LastBatch] = {}
        """Query -> its newest batch."""
        self._gap_before: dict[str, int] = {}
        """Query -> the batch after its last gap; a hole before that batch is a suspect."""

    @property
    def newest(self) -> tuple[str, LastBatch] | None:
        """The batch that was committed last."""
        return max(self.last.items(), key=lambda each: each[1].created_ms, default=None)

    def add(self, lineage: BatchLineage) -> None:
        """One more lineage, in the order of (query, batch)."""
        if lineage.counts.dead_letters:
            self.dead_letters[lineage.key] = lineage.counts.dead_letters
        if lineage.kind == "replay":
            self.replayed += 1
            self.replays += lineage.counts
            return
        if lineage.kind == "replace":
            self.replacements += 1
            self.replaced_offsets += lineage.offsets
            self._compare(lineage)
            return
        self.counts += lineage.counts
        self.offsets += lineage.offsets
        if lineage.kind == "batch":
            self.batches += 1
            self._count_batch(lineage)
        else:
            self.backfills += 1
        for tp, pairs in lineage.ranges.items():
            self._cover(lineage, tp, pairs)
        self._compare(lineage)

    def _compare(self, lineage: BatchLineage) -> None:
        """Whether the counts of a batch are its offsets."""
        counted = _counted(lineage.counts)
        if counted > lineage.offsets:
            self.surplus_records += counted - lineage.offsets
            if len(self.surplus) < NAMED_MAX:
                self.surplus.append((lineage.name, counted - lineage.offsets))
        elif counted < lineage.offsets:
            name = lineage.name
            self.groups.append(BatchGroup(name, name, 1, lineage.ranges, lineage.offsets, counted))
            if len(self.groups) > GROUPS_MAX:
                self.groups = list(_halved(self.groups))

    def _count_batch(self, lineage: BatchLineage) -> None:
        query, batch = lineage.key
        known = self.last.get(query)
        expected = 0 if known is None else known.batch + 1
        assert batch >= expected, f"{lineage.name} follows batch {expected - 1}: lineages are sorted"
        if batch > expected:
            self.missing_batches += batch - expected
            self._gap_before[query] = batch
            if len(self.gaps) < NAMED_MAX:
                self.gaps.append(BatchGap(query, expected, batch))
        self.last[query] = LastBatch(batch, lineage.created_ms, lineage.counts)

    def _cover(self, lineage: BatchLineage, tp: TopicPartition, pairs: Iterable[tuple[int, int]]) -> None:
        known = self.partitions.setdefault(tp, PartitionCoverage())
        known.has_claims |= lineage.mode == "claim"
        for first, end in pairs:
            for start, last in known.covered.common(first, end):
                self.doubled_offsets += last - start
                if len(self.doubles) < NAMED_MAX:
                    self.doubles.append((lineage.name, OffsetRange(tp, start, last)))
            known.covered.add(first, end)
            if lineage.kind == "batch":
                query, batch = lineage.key
                if known.last is not None and known.last[0] == query:
                    _, last_batch, last_end = known.last
                    if last_batch < self._gap_before.get(query, -1):
                        known.suspects.add(last_end, first)
                known.last = query, batch, end


def _counted(counts: BatchCounts) -> int:
    return counts.rows + counts.dead_letters + counts.filtered + counts.skipped_offsets


def _halved(groups: list[BatchGroup]) -> Iterable[BatchGroup]:
    for at in range(0, len(groups), 2):
        one, *others = groups[at : at + 2]
        yield one if not others else _merged(one, others[0])


def _merged(one: BatchGroup, other: BatchGroup) -> BatchGroup:
    pairs = ((tp, pair) for each in (one, other) for tp, pairs in each.ranges.items() for pair in pairs)
    ranges = partition_ranges(OffsetRange(tp, first, end) for tp, (first, end) in pairs)
    return BatchGroup(
        one.first_name,
        other.last_name,
        one.batches + other.batches,
        ranges,
        one.offsets + other.offsets,
        one.counted + other.counted,
    )
