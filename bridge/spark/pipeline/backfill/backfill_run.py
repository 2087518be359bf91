"""Runs a backfill or a replacement: reserves its batches, and writes one after the other.

    backfill(prepared, request, …)    bounds -> offsets -> plan -> reservations -> batches     BackfillReport
    abandon(sink, query)              releases what is reserved under an id                    AbandonReport

Theory of operation.  A batch is read by ``spark.read.format("zkconsumer")``, which joins no group and moves no offset,
and written as a batch of the live query is (``BatchWriter``), under the key (id, number) that is reserved.  What a run
does that is killed, and the next run of the same command:

    before a reservation         nothing is stored; the next run plans it
    after some reservations      the next run finds them by their id, and adds the others
    before the commit of a batch the batch is still reserved: the next run writes it as a new attempt
    after the commit             the batch is a lineage, so its offsets are covered

Two runs of the same command at the same time write the same batches; each is committed once.  The live query is never
asked and never waits: a backfill reads only offsets below the position of the live query (``live_query``).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import uuid4

from bridge.spark.decode.offset_ranges import OffsetRange, OnCorruptRecord, without_skipped
from bridge.spark.group_membership import CommitMode
from bridge.spark.offset_range_limits import (
    GroupOffsetRangeLimit,
    LatestOffsetRangeLimit,
    format_partition_list,
    nested,
)
from bridge.spark.option_table import BATCH_ONLY, STREAM_ONLY
from bridge.spark.options import SourceOptions, read_options
from bridge.spark.pipeline.backfill.backfill_bounds import BackfillBounds, backfill_id, replacement_prefix
from bridge.spark.pipeline.backfill.backfill_plan import (
    BackfillCommand,
    BackfillPlan,
    below_positions,
    plan_backfill,
    replacement_id,
)
from bridge.spark.pipeline.backfill.live_query import live_positions, read_live_query
from bridge.spark.pipeline.batch_writer import BatchParts, BatchWriter, WrittenBatch
from bridge.spark.pipeline.lineage import (
    ABANDONED,
    BatchCounts,
    BatchLineage,
    LineageConflictError,
    PartitionRanges,
    partition_ranges,
)
from bridge.spark.pipeline.option_keys import TOPIC_WAYS
from bridge.spark.pipeline.pipeline_query import PreparedPipeline, prepare_targets, spark_failures
from bridge.spark.pipeline.replay.dead_letter_reader import letter_places
from bridge.spark.pipeline.sinks.folder_choice import open_folder
from bridge.spark.pipeline.sinks.replaced_rows import ReplacedRows, offset_columns
from bridge.spark.pipeline.sinks.sink import Sink
from bridge.spark.pipeline.sinks.sink_choice import replacing
from bridge.spark.source.batch_ranges_file import StreamBatchRanges
from bridge.spark.source.batch_reader import batch_session, read_group_starts, resolve_batch, selected_partitions
from bridge.spark.source.datasource_registration import NAME
from zkconsumer.errors import PreconditionFailed, UsageError
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from zkconsumer.admin.admin_session import AdminSession

AFTER_RESERVATION = "after-reservation"
"""The point after each reservation, for ``reached``; those of ``batch_writer`` follow."""

_NOT_OF_A_BATCH = (
    *STREAM_ONLY, *BATCH_ONLY, "startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
)  # fmt: skip
"""Options of the file that a batch has its own values of, or that only a stream has."""

_OPTION_OF = {"startingOffsets": "--from", "endingOffsets": "--to"}

Reached = Callable[[str, int], None]
"""Called with a point of a batch and the number of the batch."""


@dataclass(frozen=True, slots=True)
class BackfillRequest:
    """``is_replacement``: rows of these offsets are deleted, and the offsets are read whether or not a batch has them.
    ``batch_offsets_max``: offsets of one batch."""

    bounds: BackfillBounds
    is_replacement: bool
    batch_offsets_max: int


@dataclass(slots=True)
class BackfillReport:
    """What a run has done.

    ``covered``: offsets of the bounds that were in the table before.  ``has_live_query``: a query has begun on the
    checkpoint.  ``repeated``: batches that another process had written meanwhile.  ``deleted_rows``: of a replacement.
    """

    query: str
    has_live_query: bool
    covered: int = 0
    batches: int = 0
    repeated: int = 0
    offsets: int = 0
    deleted_rows: int = 0
    counts: BatchCounts = field(default_factory=BatchCounts)

    def add(self, written: WrittenBatch) -> None:
        """Count a batch that is in the table."""
        if written.is_repeated:
            self.repeated += 1
            return
        self.batches += 1
        self.offsets += written.lineage.offsets
        self.counts += written.lineage.counts

    def add_deleted(self, rows: int) -> None:
        """Count rows that a replacement has deleted."""
        self.deleted_rows += rows


@dataclass(frozen=True, slots=True)
class AbandonReport:
    """What was released."""

    query: str
    batches: int
    offsets: int


def backfill(
    prepared: PreparedPipeline,
    request: BackfillRequest,
    wall_ms: Callable[[], int],
    *,
    on_batch: Callable[[WrittenBatch], None] = lambda _batch: None,
    reached: Reached = lambda _point, _batch: None,
) -> BackfillReport:
    """Reads the offsets into the table.

    Raises ``UsageError`` for bounds that the topics do not have; ``LineageConflictError`` if the live query has yet to
    read some of them, or they are reserved; ``PipelineFailedError`` if Spark fails: the same command continues.
    """
    spec, bounds = prepared.spec, request.bounds
    columns = None
    if request.is_replacement:
        replacing(prepared.sink)  # refuses a format before a server is asked
        columns = offset_columns(prepared.transform.select, prepared.decoding.plain_source_columns, spec.file)
    options = source_options(prepared)
    ranges, positions = _requested(prepared, options, bounds)
    prepare_targets(prepared, wall_ms())
    lineages, reservations = list(prepared.sink.lineages()), list(prepared.sink.reservations())
    query = backfill_id(spec.name, bounds)
    if request.is_replacement:
        query = replacement_id(replacement_prefix(spec.name, bounds), lineages, reservations)
    kind = "replace" if request.is_replacement else "backfill"
    plan = plan_backfill(
        BackfillCommand(query, kind, spec.name, ranges, request.batch_offsets_max, wall_ms()), lineages, reservations
    )
    report = BackfillReport(query, has_live_query=positions is not None, covered=plan.covered)
    sink = prepared.sink
    if columns is not None:
        sink = replacing(sink)(ReplacedRows(columns, report.add_deleted))

    def counted(written: WrittenBatch) -> None:
        report.add(written)
        on_batch(written)

    def write(reserved: BatchLineage) -> None:
        with spark_failures(spec.name):
            frame = read_ranges(prepared, reserved.ranges)
            write_reserved(
                prepared, sink, frame, reserved, wall_ms, skipped_offsets=_skipped(options, reserved.ranges),
                dead_letters=prepared.dead_letters, on_batch=counted, reached=reached, on_corrupt=prepared.on_corrupt,
            )  # fmt: skip

    write_plan(sink, plan, positions or {}, write, reached)
    return report


def write_plan(
    sink: Sink[Any],
    plan: BackfillPlan,
    positions: Mapping[TopicPartition, int],
    write: Callable[[BatchLineage], None],
    reached: Reached,
) -> None:
    """Reserves all batches, then writes each.  If one cannot be reserved, the new ones are released again."""
    for each in plan.pending:
        sink.reserve(each, positions)
    reserved: list[BatchLineage] = []
    for each in plan.new:
        try:
            sink.reserve(each, positions)
        except LineageConflictError:
            for earlier in reserved:
                sink.release(*earlier.key)
            raise
        reserved.append(each)
        reached(AFTER_RESERVATION, each.batch)
    for each in plan.batches:
        write(each)


def abandon(sink: Sink[Any], query: str) -> AbandonReport:
    """Releases all reservations of an id.  ``PreconditionFailed``: it has none; the text names those that have."""
    reservations = list(sink.reservations())
    own = [each for each in reservations if each.query == query]
    if not own:
        others = ", ".join(sorted({each.query for each in reservations})) or "there is no reservation"
        raise PreconditionFailed(f"{query} has no reservation; nothing was changed. Reserved are: {others}")
    for each in own:
        sink.release(*each.key)
    released = [each for each in own if _is_abandoned(sink.committed(*each.key))]
    return AbandonReport(query, len(released), sum(each.offsets for each in released))


def _is_abandoned(stored: BatchLineage | None) -> bool:
    return stored is not None and stored.attempt == ABANDONED


# --- which offsets ------------------------------------------------------------------------------------------------


def source_options(prepared: PreparedPipeline) -> SourceOptions:
    """The options of a batch of the pipeline, on the driver."""
    return read_options(_batch_options(prepared), is_stream=False)


def _batch_options(prepared: PreparedPipeline) -> dict[str, str]:
    return {name: value for name, value in prepared.options.items() if name not in _NOT_OF_A_BATCH}


def _requested(
    prepared: PreparedPipeline, options: SourceOptions, bounds: BackfillBounds
) -> tuple[PartitionRanges, dict[TopicPartition, int] | None]:
    """The offsets of the bounds, and what the live query has yet to read; None: there is no live query."""
    with batch_session(options, None) as session:
        known = selected_partitions(options, session)
        if foreign := sorted(set(bounds.partitions or ()) - set(known)):
            raise UsageError(
                f"this pipeline does not read {format_partition_list(foreign)}: correct --from and --to; it reads "
                f"{format_partition_list(known)}"
            )
        partitions = known if bounds.partitions is None else list(bounds.partitions)
        positions = _live_positions(prepared, options, session, partitions)
        limited = replace(
            options,
            starting_limit=bounds.start,
            ending_limit=bounds.end or LatestOffsetRangeLimit(),
            fail_on_late_timestamp=False,
        )
        with _options_of_the_command():
            found = resolve_batch(limited, session, partitions)
    ranges = partition_ranges(found.ranges.values())
    if bounds.end is None and positions is not None:
        ranges = below_positions(ranges, positions)
    return ranges, positions


def _live_positions(
    prepared: PreparedPipeline, options: SourceOptions, session: AdminSession, partitions: list[TopicPartition]
) -> dict[TopicPartition, int] | None:
    store = open_folder(prepared.spec.checkpoint.path, prepared.spark, allows_unsafe_commit=True)
    if read_live_query(store) is None:
        return None
    # The group's offsets first, then the checkpoint: see live_query.
    starts = read_group_starts(options, session, partitions).partitions
    group_offsets = {tp: start.offset for tp, start in starts.items() if start.offset >= 0}
    live = read_live_query(store)
    if live is None:
        raise PreconditionFailed(f"{store.uri('')}: the checkpoint was removed meanwhile; repeat the command")
    of_stream = read_options(prepared.options, is_stream=True)
    begins_at_group = isinstance(of_stream.starting_limit, GroupOffsetRangeLimit)
    return live_positions(live, group_offsets, partitions, begins_at_group=begins_at_group)


@contextmanager
def _options_of_the_command() -> Iterator[None]:
    """Errors about the bounds of a batch name the options of this command."""
    try:
        yield
    except (UsageError, PreconditionFailed) as error:
        text = re.sub(r"\b(startingOffsets|endingOffsets)\b", lambda found: _OPTION_OF[found[1]], str(error))
        raise type(error)(text) from error


def _skipped(options: SourceOptions, ranges: PartitionRanges) -> int:
    """The offsets that ``skipOffsets`` removes."""
    found = [
        without_skipped(OffsetRange(tp, first, end), options.skip_offsets)[1]
        for tp, pairs in ranges.items()
        for first, end in pairs
    ]
    return sum(each.end - each.first for some in found for each in some)


# --- one batch ----------------------------------------------------------------------------------------------------


def read_ranges(prepared: PreparedPipeline, ranges: PartitionRanges) -> DataFrame:
    """The records of these offsets, with the columns of the source; one range of each partition."""
    options = {name: value for name, value in _batch_options(prepared).items() if name not in TOPIC_WAYS}
    assigned: dict[str, list[int]] = {}
    for tp in ranges:
        assigned.setdefault(tp.topic, []).append(tp.partition)
    spans = {tp: pair for tp, [pair] in ranges.items()}
    return (
        prepared.spark.read.format(NAME)
        .options(**options)
        .option("assign", json.dumps(assigned))
        .option("startingOffsets", json.dumps(nested({tp: first for tp, (first, _) in spans.items()})))
        .option("endingOffsets", json.dumps(nested({tp: end for tp, (_, end) in spans.items()})))
        .load()
    )


def write_reserved(
    prepared: PreparedPipeline,
    sink: Sink[Any],
    frame: DataFrame,
    reserved: BatchLineage,
    wall_ms: Callable[[], int],
    *,
    skipped_offsets: int,
    dead_letters: Sink[Any] | None,
    on_batch: Callable[[WrittenBatch], None],
    reached: Reached,
    on_corrupt: OnCorruptRecord = OnCorruptRecord.FAIL,
) -> None:
    """Writes the records of a reserved batch, as the live query writes a batch.

    ``on_corrupt``: of frames of the source that have the column ``corrupt``.
    """
    found = StreamBatchRanges(
        prepared.options.get("group.id", ""),
        reserved.query,
        reserved.batch,
        CommitMode.NONE.value,
        tuple(OffsetRange(tp, first, end) for tp, pairs in reserved.ranges.items() for first, end in pairs),
        skipped_offsets,
    )
    parts = BatchParts(
        pipeline=prepared.spec.name,
        decoding=prepared.decoding,
        transform=prepared.transform,
        sink=sink,
        dead_letters=dead_letters,
        query_id=lambda: reserved.query,
        ranges=lambda: found,
        wall_ms=wall_ms,
        new_attempt=lambda: uuid4().hex,
        reached=reached,
        kind=reserved.kind,
        on_corrupt=on_corrupt,
        letter_places=partial(letter_places, prepared.spec, prepared.spark),
    )
    BatchWriter(parts, on_batch)(frame, reserved.batch)
