"""Runs a replay: decodes dead letters again, writes those that are good now, and leaves the others.

    replay(prepared, request, …)   -> ReplayReport

    places --LetterChoice--> open letters --batches of N--> decode, transform --> still dead: nothing is changed
                                                                  '--> good: reserve, write, commit (kind ``replay``)

Theory of operation.  The lineage of a replayed batch has the offsets that were written or filtered, in the commit of
the rows; by it the next replay leaves these letters out, and the table of dead letters is never changed.  The offsets
must be known before they are reserved, so each batch is read twice: to find the good records, and to write them.

    killed before the commit      the reservation is left; the next replay of the pipeline releases it and begins again
    killed after the commit       the lineage is there
    two replays at the same time  the second one releases the reservation of the first, whose commit then is an error

A replacement (``backfill --replace``) that commits between the reading of the lineages and the reservation may have
written rows of the same offsets: that is checked after the reservation, which excludes further ones.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as sf

from bridge.spark.decode.offset_ranges import OffsetRange
from bridge.spark.pipeline.backfill.backfill_bounds import ID_DIGITS
from bridge.spark.pipeline.backfill.backfill_plan import RESERVED
from bridge.spark.pipeline.backfill.backfill_run import AFTER_RESERVATION, Reached, write_reserved
from bridge.spark.pipeline.batch_writer import SINK_STAGE, WrittenBatch, rejection_reason
from bridge.spark.pipeline.decode.decoded_frame import decode
from bridge.spark.pipeline.decode.reserved_columns import DEAD_ERROR, DEAD_STAGE, OUTCOME, source_column
from bridge.spark.pipeline.lineage import (
    BatchCounts,
    BatchLineage,
    LineageConflictError,
    PartitionRanges,
    common_ranges,
    partition_ranges,
)
from bridge.spark.pipeline.pipeline_query import PreparedPipeline, prepare_targets, spark_failures
from bridge.spark.pipeline.replay.dead_letter_reader import DeadLetterReader, open_dead_letters
from bridge.spark.pipeline.replay.letter_choice import LetterChoice, LetterKey, LetterPlace, LetterState
from bridge.spark.pipeline.sinks.sink import Sink
from bridge.spark.pipeline.transform import DEAD, classify, written_rows
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

SHOWN_MAX = 10
"""How many letters that are still dead the report has."""

Place = tuple[TopicPartition, int]
"""A partition and an offset."""


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """``stage``: of the letters, None: all.  ``since_ms``: when they were written at the earliest, since 1970; None:
    all.  ``batch_letters_max``: letters of one batch."""

    stage: str | None
    since_ms: int | None
    batch_letters_max: int


@dataclass(slots=True)
class ReplayReport:
    """What a replay has done.

    ``rows``, ``filtered``: records that are good now.  ``still_dead``: records that failed again; ``shown``: some of
    them, with stage and error.  ``others``: letters that were left out, by the reason.
    """

    query: str
    batches: int = 0
    rows: int = 0
    filtered: int = 0
    still_dead: int = 0
    shown: list[tuple[str, str]] = field(default_factory=list)
    others: Counter[LetterState] = field(default_factory=Counter)

    def add(self, written: WrittenBatch) -> None:
        """Count a batch that is in the table."""
        self.batches += 1
        self.rows += written.lineage.counts.rows
        self.filtered += written.lineage.counts.filtered

    def sorted_others(self) -> list[tuple[LetterState, int]]:
        """``others`` in the order of the states."""
        return [(state, self.others[state]) for state in LetterState if self.others[state]]

    def add_dead(self, dead: dict[Place, str]) -> None:
        """Count records that failed again."""
        self.still_dead += len(dead)
        room = SHOWN_MAX - len(self.shown)
        self.shown += [(f"{tp} offset {offset}", error) for (tp, offset), error in sorted(dead.items())[:room]]


def replay_id(pipeline: str) -> str:
    """The id of all replays of a pipeline."""
    return f"replay-{sha256(json.dumps(pipeline).encode()).hexdigest()[:ID_DIGITS]}"


def replay(
    prepared: PreparedPipeline,
    request: ReplayRequest,
    wall_ms: Callable[[], int],
    *,
    on_batch: Callable[[WrittenBatch], None] = lambda _batch: None,
    reached: Reached = lambda _point, _batch: None,
) -> ReplayReport:
    """Replays the dead letters of a pipeline.

    Raises ``UsageError`` if there is no table of dead letters; ``LineageConflictError`` if another process has written
    or reserved the same records meanwhile; ``PipelineFailedError`` if Spark fails: the same command continues.
    """
    spec, sink = prepared.spec, prepared.sink
    prepare_targets(prepared, wall_ms())
    letters = open_dead_letters(spec, prepared.spark)
    assert prepared.dead_letters is not None, "there is a table of dead letters"
    query = replay_id(spec.name)
    release_reservations(sink, query)
    lineages = list(sink.lineages())
    report = ReplayReport(query)

    def counted(written: WrittenBatch) -> None:
        report.add(written)
        on_batch(written)

    with spark_failures(spec.name):
        choice = LetterChoice(lineages, letter_counts(prepared.dead_letters), request.stage, request.since_ms)
        number = max((each.batch for each in lineages if each.query == query), default=-1) + 1
        for batch in _batches(choice, letters, report, request.batch_letters_max):
            dead = find_dead(prepared, letters.records(batch), batch)
            report.add_dead(dead)
            good = [each for each in batch if (each.tp, each.offset) not in dead]
            if not good:
                continue
            reserved = BatchLineage(
                query, number, "replay", spec.name, "snapshot", RESERVED, wall_ms(), _ranges(good), BatchCounts()
            )
            reserve_replay(sink, reserved, lineages)
            reached(AFTER_RESERVATION, number)
            write_reserved(
                prepared, sink, letters.records(good), reserved, wall_ms, skipped_offsets=0, dead_letters=None,
                on_batch=counted, reached=reached,
            )  # fmt: skip
            number += 1
    return report


def release_reservations(sink: Sink[Any], query: str) -> None:
    """What a replay that was killed has reserved is free again; its late commit is an error."""
    for each in [each for each in sink.reservations() if each.query == query]:
        sink.release(*each.key)


def reserve_replay(sink: Sink[Any], reserved: BatchLineage, seen: Sequence[BatchLineage]) -> None:
    """Reserves the records.  ``seen``: the lineages by which the letters were chosen.

    Raises ``LineageConflictError`` if a replacement of some of these offsets was committed since.
    """
    sink.reserve(reserved, {})
    known = {each.key for each in seen}
    for each in sink.lineages():
        if each.kind == "replace" and each.key not in known and common_ranges(reserved.ranges, each.ranges):
            sink.release(*reserved.key)
            raise LineageConflictError(
                f"{each.name} has written some of these records meanwhile; nothing of this batch was written. Repeat "
                "the replay"
            )


def letter_counts(dead_letters: Sink[Any]) -> dict[LetterKey, int]:
    """The number of dead letters of each batch."""
    return {each.key: each.counts.rows for each in dead_letters.lineages()}


def find_dead(prepared: PreparedPipeline, records: DataFrame, letters: Sequence[LetterPlace]) -> dict[Place, str]:
    """The records that are dead letters still, with stage and error."""
    names = [source_column(name) for name in ("topic", "partition", "offset")]
    decoded = decode(records, prepared.decoding, with_payloads=False)
    classified = classify(decoded, prepared.transform, checks_rows=True)
    outcomes = classified.select(*names, OUTCOME, DEAD_STAGE, DEAD_ERROR).collect()
    if Counter(_place(row) for row in outcomes) != Counter((each.tp, each.offset) for each in letters):
        raise PreconditionFailed(
            f"the table of dead letters has {len(outcomes)} records for {len(letters)} letters, or others; nothing of "
            "this batch was written. Another program has changed it: repeat the replay"
        )
    dead = {_place(row): f"{row[DEAD_STAGE]}: {row[DEAD_ERROR]}" for row in outcomes if row[OUTCOME] == DEAD}
    rejections = prepared.sink.rejections(written_rows(classified, prepared.transform).schema)
    if rejections:
        reason = rejection_reason(rejections).alias("reason")
        rows = written_rows(classified, prepared.transform, kept=names).select(*names, reason)
        refused = rows.filter(sf.col("reason").isNotNull()).collect()
        dead |= {_place(row): f"{SINK_STAGE}: {row.reason}" for row in refused}
    return dead


def _batches(
    choice: LetterChoice, letters: DeadLetterReader, report: ReplayReport, letters_max: int
) -> Iterator[list[LetterPlace]]:
    """The letters to replay; counts the others."""
    batch: list[LetterPlace] = []
    for judged in choice.judge(letters.places()):
        if judged.state is not LetterState.OPEN:
            report.others[judged.state] += 1
            continue
        batch.append(judged.letter)
        if len(batch) == letters_max:
            yield batch
            batch = []
    if batch:
        yield batch


def _ranges(letters: Sequence[LetterPlace]) -> PartitionRanges:
    return partition_ranges(OffsetRange(each.tp, each.offset, each.offset + 1) for each in letters)


def _place(row: Any) -> Place:
    topic, partition, offset = (row[source_column(name)] for name in ("topic", "partition", "offset"))
    return TopicPartition(topic, partition), offset
