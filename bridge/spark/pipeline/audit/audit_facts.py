"""What an audit has read of the logs, the group, the checkpoint and the sink.  Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from bridge.spark.decode.offset_ranges import SkipOffsets
from bridge.spark.pipeline.audit.entry_counts import OffsetCounts
from bridge.spark.pipeline.audit.lineage_totals import BatchGroup, LineageTotals
from bridge.spark.pipeline.lineage import BatchLineage
from zkconsumer.types import TopicPartition


@dataclass(frozen=True, slots=True)
class LogSpan:
    """The offsets that a log has: [start, end)."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class MissingLog:
    """There is no such partition: its topic was deleted, or does not exist yet."""


@dataclass(frozen=True, slots=True)
class UnknownLog:
    """The log could not be read, and why."""

    problem: str


PartitionLog = LogSpan | MissingLog | UnknownLog


@dataclass(frozen=True, slots=True)
class QueryClaim:
    """Offsets that a batch of the pipeline's query has claimed in the group.  ``batch``: as the source counts."""

    batch: int
    first: int
    end: int


@dataclass(frozen=True, slots=True)
class AuditedGroup:
    """The group.  ``offsets``: the next offset of each partition that has one.  ``owners``: of the partitions now.

    ``claims``: the newest claims of the pipeline's query.  ``problem``: why nothing of this is known; else empty.
    """

    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    claims: Mapping[TopicPartition, QueryClaim] = field(default_factory=dict)
    problem: str = ""


@dataclass(frozen=True, slots=True)
class PlannedBatch:
    """A batch in the checkpoint that Spark has begun and not finished; ``ranges``: what it was to read."""

    batch: int
    ranges: Mapping[TopicPartition, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class AuditedCheckpoint:
    """The checkpoint.  ``query``: the id of Spark's query; None: the pipeline has never started.

    ``done``: the newest batch that is finished; None: none.  ``positions``: its planned end.  ``pending``: batches that
    were begun.  ``problem``: why nothing of this is known; else empty.
    """

    query: str | None = None
    done: int | None = None
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)
    pending: Sequence[PlannedBatch] = ()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class CountedGroup:
    """``counts``: what the log has in the ranges of ``group``.  ``problem``: why some was not read; else empty."""

    group: BatchGroup
    counts: Mapping[TopicPartition, OffsetCounts]
    problem: str = ""


@dataclass(frozen=True, slots=True)
class StoredRows:
    """What the sink has.  ``rows``: counted there; None: it cannot be counted.

    ``missing``: one line for each place that has fewer rows than its lineage.  ``remark``: what cannot be checked.
    ``problem``: why the sink could not be read; else empty.
    """

    rows: int | None = None
    missing: tuple[str, ...] = ()
    missing_rows: int = 0
    remark: str = ""
    problem: str = ""


@dataclass(frozen=True, slots=True)
class AuditFacts:
    """Everything that was read.  ``dead_letter_rows``: key -> dead letters in their own sink; None: not readable."""

    totals: LineageTotals
    reserved: Sequence[BatchLineage]
    logs: Mapping[TopicPartition, PartitionLog]
    group: AuditedGroup
    checkpoint: AuditedCheckpoint
    skip_offsets: SkipOffsets
    counted: Sequence[CountedGroup]
    rows: StoredRows
    dead_letters: StoredRows
    dead_letter_rows: Mapping[tuple[str, int], int] | None
