"""``BatchWriter``: what a pipeline does with one micro-batch, in ``foreachBatch``.

    frame --decode--> --classify--> written rows ----------------------> sink: write (staged, not visible)
                          |   counted on the way (observe)
                          '-- dead rows, only if there are some: the batch is read again --> dead letters: write, commit
                                                                         sink: commit (rows, ranges and counts at once)

Theory of operation.  The key of a batch is (Spark's query id, batch id).  After a crash Spark calls this again with the
same key for the same offsets, so each step may have been done before:

    before the sink's commit     the rows of the dead attempt are not visible; a new attempt writes all again
    dead letters are committed   their sink has the key already, so they are not written again; their records stay dead
    the batch is committed       nothing is written, if the ranges are the same; other ranges are an error

Dead letters are committed before the rows, so a batch that is in the sink has all its dead letters.  A batch whose dead
letters are committed and whose rows are not is repeated by the next start of the query.

A batch without dead letters takes its key there, too (see ``dead_letters``): a driver that was stopped and continues
after its successor meets the key when it commits its dead letters, also if the successor had none.

Between the two starts the operator may correct the file, or register a schema, and then other records are good.  The
invariant:

    committed dead letters decide which records of the batch have no row: each attempt after them leaves out exactly
    these records, and a further dead letter fails it

Otherwise a record would be a row and a dead letter, or neither.  The records are written by a replay.  Dead letters in
a topic cannot be read back: there only more of them than before fail the attempt, and a record that became good has a
row and a message.

Whether records cannot be read (``onCorruptRecord``) depends on the bytes that a fetch gave, so two passes over a batch
may differ: a broker repairs its log, or another replica leads.  Until the first commit nothing of an attempt is
visible, and a new attempt decides anew.  The invariant:

    the first pass of an attempt decides which offsets are corrupt; every later pass of the attempt, and, once the dead
    letters are committed, every later attempt of the batch, passes over exactly these offsets and no other

The decision is in the lineage of the dead letters and of the rows (``corrupt``).  A pass that follows it leaves out the
records of these offsets even if they can be read now; other offsets that cannot be read fail the batch.

The ranges are not those that the rows show but those that the source has written to ``batchRangesPath`` before it read
them; so they are taken after the rows were written.  The second reading of a batch has the same ranges.

A topic has its rows when the sink's commit has sent them, so a crash before the end of the commit sends them again; so
it is with dead letters in a topic.

A driver that was stopped in the middle of a batch and continues later meets the commit of its successor: see ``Sink``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from pyspark.sql import Column, DataFrame, Observation
from pyspark.sql import functions as sf
from pyspark.sql.types import StructType

from bridge.spark.decode.offset_ranges import OnCorruptRecord
from bridge.spark.group_membership import CommitMode
from bridge.spark.pipeline.corrupt_rows import (
    CorruptRows,
    DecidedRange,
    dead_letters_of,
    decided_of,
    offset_count,
    ranges_of,
)
from bridge.spark.pipeline.dead_letters import DEAD_LETTER_COLUMNS
from bridge.spark.pipeline.decode.decoded_frame import decode
from bridge.spark.pipeline.decode.reserved_columns import DEAD_ERROR, DEAD_STAGE, PAYLOAD_COLUMNS, source_column
from bridge.spark.pipeline.lineage import (
    BatchAttempt,
    BatchCounts,
    BatchLineage,
    LineageConflictError,
    partition_ranges,
    require_same_corrupt_offsets,
    require_same_ranges,
)
from bridge.spark.pipeline.pipeline_rules import SOURCE_COLUMNS
from bridge.spark.pipeline.sinks.row_rejection import RowRejection
from bridge.spark.pipeline.sinks.sink import MESSAGE_PLACE_COLUMN, MESSAGE_TIME_COLUMN, CommitOutcome, Sink
from bridge.spark.pipeline.task_errors import errors_of_tasks
from bridge.spark.pipeline.transform import (
    TransformPlan,
    classify,
    dead_rows,
    is_row_error,
    outcome_counts,
    written_rows,
)
from bridge.spark.source.batch_ranges_file import StreamBatchRanges
from zkconsumer.errors import PreconditionFailed, UsageError

if TYPE_CHECKING:
    from bridge.spark.pipeline.decode.decode_plan import DecodePlan
    from bridge.spark.pipeline.replay.letter_choice import LetterPlace

SINK_STAGE = "sink"
"""The stage of a dead letter whose row the sink cannot store."""

DEAD_LETTERS_SHOWN = 3

AFTER_WRITE, AFTER_DEAD_LETTERS, AFTER_COMMIT = "after-write", "after-dead-letters", "after-commit"
"""The points of a batch for ``BatchParts.reached``."""

_PLACE = ("topic", "partition", "offset")

_REJECTED = "_dead_sink_reason"
_COUNT_OF_REJECTED = "rejected"

WallClock: TypeAlias = Callable[[], int]
"""ms since 1970."""

LetterPlaces: TypeAlias = Callable[[str, int], "Sequence[LetterPlace] | None"]


class DeadLettersRejectedError(UsageError):
    """A batch has dead letters, and the pipeline has no place for them: the operator must correct the file."""


class MoreDeadLettersError(PreconditionFailed):
    """Dead letters of a batch are committed, and a further attempt has others; undo the change of file or schema."""


@dataclass(frozen=True, slots=True)
class BatchParts:
    """What a ``BatchWriter`` uses.

    ``dead_letters``: None: a dead letter fails the query.  ``query_id``: the id of Spark's query.  ``ranges``: those of
    the newest batch that the source has read.  ``new_attempt``: a text that no other attempt has.  ``reached``: called
    with a point of the batch and its id.  ``on_corrupt``: if it is not ``FAIL``, frames have the column ``corrupt``.
    ``add_skipped``: the batch has skipped so many more offsets.  ``letter_places``: of a query and a batch, the places
    of the dead letters in their table; None: they cannot be read back.
    ``kind``: of the lineages, see ``BatchLineage``.
    """

    pipeline: str
    decoding: DecodePlan
    transform: TransformPlan
    sink: Sink[Any]
    dead_letters: Sink[Any] | None
    query_id: Callable[[], str]
    ranges: Callable[[], StreamBatchRanges | None]
    wall_ms: WallClock
    new_attempt: Callable[[], str]
    reached: Callable[[str, int], None] = lambda _point, _batch: None
    on_corrupt: OnCorruptRecord = OnCorruptRecord.FAIL
    add_skipped: Callable[[StreamBatchRanges, int], None] = lambda _ranges, _offsets: None
    kind: str = "batch"
    letter_places: LetterPlaces = lambda _query, _batch: None


@dataclass(frozen=True, slots=True)
class WrittenBatch:
    """``lineage`` of a batch that is in the sink; ``is_repeated``: it was there before."""

    lineage: BatchLineage
    is_repeated: bool


class BatchWriter:
    """A function for ``foreachBatch``; ``on_batch`` is called with each batch that is in the sink.

    ``error``: the exception of the batch that failed; Spark's own exception has only its text.  An error of this
    project that a task ended with is raised as such (``task_errors``).
    """

    def __init__(self, parts: BatchParts, on_batch: Callable[[WrittenBatch], None] = lambda _batch: None) -> None:
        self._parts = parts
        self._on_batch = on_batch
        self.error: Exception | None = None

    def __call__(self, frame: DataFrame, batch: int) -> None:
        try:
            with errors_of_tasks():
                self._process(frame, batch)
        except Exception as error:
            self.error = error
            raise

    def _process(self, frame: DataFrame, batch: int) -> None:
        parts = self._parts
        query = parts.query_id()
        stored = parts.sink.committed(query, batch)
        if stored is not None:
            self._on_batch(self._repeated(frame, stored))
            return
        try:
            written = self._write(frame, self._attempt(query, batch), checks_rows=False)
        except Exception as error:
            if not is_row_error(error):
                raise
            # An expression has no result for some record: find these records, and write the others.
            written = self._write(frame, self._attempt(query, batch), checks_rows=True)
        if written is None:
            return
        parts.reached(AFTER_COMMIT, batch)
        self._on_batch(written)

    def _attempt(self, query: str, batch: int) -> BatchAttempt:
        return BatchAttempt(query, batch, self._parts.new_attempt(), self._parts.wall_ms())

    # --- a batch that is in the sink --------------------------------------------------------------------------------

    def _repeated(self, frame: DataFrame, stored: BatchLineage) -> WrittenBatch:
        """The sink has the batch; its ranges must be those that Spark repeats."""
        frame.select("offset").limit(1).collect()  # the source plans the batch, and writes its ranges
        require_same_ranges(stored, replace(stored, ranges=partition_ranges(self._ranges().ranges)))
        return WrittenBatch(stored, is_repeated=True)

    def _ranges(self) -> StreamBatchRanges:
        found = self._parts.ranges()
        if found is None:
            raise PreconditionFailed(
                "the source has not written the ranges of the batch (batchRangesPath); the folder was removed while "
                "the pipeline was running: start it again"
            )
        return found

    # --- a batch that is not there ----------------------------------------------------------------------------------

    def _write(self, frame: DataFrame, attempt: BatchAttempt, *, checks_rows: bool) -> WrittenBatch | None:
        """None: the batch has no ranges, and nothing was committed.

        The first batch of a query has none if the query owns no partition yet: Spark runs a first batch also when the
        source has planned nothing.
        """
        parts = self._parts
        letters = None if parts.dead_letters is None else parts.dead_letters.committed(*attempt.key)
        counted = Observation()
        corrupt_rows = CorruptRows(frame, None if letters is None else decided_of(letters.corrupt))
        places = None if letters is None else self._letter_places(letters)
        records = without_places(corrupt_rows.records, places or ())
        decoded = decode(records, parts.decoding, with_payloads=False)
        classified = classify(decoded, parts.transform, checks_rows=checks_rows).observe(counted, *outcome_counts())
        rows, rejected = self._rows_to_write(classified)
        staged = parts.sink.write(rows, attempt)
        parts.reached(AFTER_WRITE, attempt.batch)
        counts = counted.get
        dead = counts["dead"] + (0 if rejected is None else rejected.get[_COUNT_OF_REJECTED])
        if not (staged.rows or dead or counts["filtered"]) and parts.ranges() is None:
            return None
        found = self._ranges()
        corrupt = corrupt_rows.found()
        skipped = 0
        if letters is not None:
            fetched = len(corrupt) if parts.on_corrupt is OnCorruptRecord.DEAD_LETTER else 0
            if dead > (letters.counts.rows - fetched if places is None else 0):
                raise MoreDeadLettersError(self._more_dead_letters(records, attempt, letters, checks_rows=checks_rows))
            dead = letters.counts.rows
        elif parts.on_corrupt is OnCorruptRecord.DEAD_LETTER:
            dead += len(corrupt)
        if parts.on_corrupt is OnCorruptRecord.SKIP:
            skipped = offset_count(corrupt)
        lineage = BatchLineage(
            query=attempt.query,
            batch=attempt.batch,
            kind=parts.kind,
            pipeline=parts.pipeline,
            mode="claim" if found.commit_mode == CommitMode.CLAIM.value else "snapshot",
            attempt=attempt.attempt,
            created_ms=parts.wall_ms(),
            ranges=partition_ranges(found.ranges),
            counts=BatchCounts(staged.rows, dead, counts["filtered"], found.skipped_offsets + skipped),
            corrupt=ranges_of(corrupt),
        )
        if letters is not None:
            require_same_ranges(letters, lineage)
        elif not dead:
            self._commit_no_dead_letters(lineage)
        if dead:
            self._write_dead_letters(frame, attempt, lineage, corrupt, checks_rows=checks_rows)
            parts.reached(AFTER_DEAD_LETTERS, attempt.batch)
        if skipped:  # after the last pass over the batch: with each pass the source writes the ranges again
            parts.add_skipped(found, skipped)
        outcome = parts.sink.commit(staged, lineage)
        return WrittenBatch(lineage, is_repeated=outcome is CommitOutcome.ALREADY_COMMITTED)

    def _rows_to_write(self, classified: DataFrame) -> tuple[DataFrame, Observation | None]:
        """The rows for the sink, and the number of those that it cannot store."""
        parts = self._parts
        time, place = source_column("timestamp"), [source_column(name) for name in _PLACE]
        kept = [time] if parts.sink.needs_message_time else []
        kept += place if parts.sink.needs_message_place else []
        rows = written_rows(classified, parts.transform, kept=kept)
        rejections = parts.sink.rejections(_schema_without(rows, kept))
        rejected = None
        if rejections:
            rejected = Observation()
            rows = rows.withColumn(_REJECTED, rejection_reason(rejections))
            rows = rows.observe(rejected, sf.count_if(sf.col(_REJECTED).isNotNull()).alias(_COUNT_OF_REJECTED))
            rows = rows.filter(sf.col(_REJECTED).isNull()).drop(_REJECTED)
        if parts.sink.needs_message_place:
            rows = rows.withColumn(MESSAGE_PLACE_COLUMN, sf.concat_ws("/", *place)).drop(*place)
        return rows.withColumnRenamed(time, MESSAGE_TIME_COLUMN), rejected

    # --- dead letters -----------------------------------------------------------------------------------------------

    def _write_dead_letters(
        self,
        frame: DataFrame,
        attempt: BatchAttempt,
        lineage: BatchLineage,
        corrupt: tuple[DecidedRange, ...],
        *,
        checks_rows: bool,
    ) -> None:
        parts = self._parts
        corrupt_rows = CorruptRows(frame, corrupt)
        letters = self._dead_letters(corrupt_rows.records, attempt, checks_rows=checks_rows)
        if corrupt and parts.on_corrupt is OnCorruptRecord.DEAD_LETTER:
            fetched = _as_dead_letters(dead_letters_of(frame, corrupt), attempt)
            letters = letters.unionByName(fetched)
        if parts.dead_letters is None:
            raise DeadLettersRejectedError(_no_place_for(letters, lineage))
        stored = parts.dead_letters.committed(*attempt.key)
        if stored is not None:
            _require_same_letters(stored, lineage)
            return
        if parts.dead_letters.needs_message_time:
            letters = letters.withColumn(MESSAGE_TIME_COLUMN, sf.col("timestamp"))
        own = replace(attempt, attempt=parts.new_attempt())  # both sinks may be in one schema
        staged = parts.dead_letters.write(letters, own)
        corrupt_rows.found()
        if staged.rows != lineage.counts.dead_letters:
            raise PreconditionFailed(
                f"{lineage.name} had {lineage.counts.dead_letters} dead letters, and {staged.rows} when it was read "
                "again; nothing was committed. A schema was registered or deleted meanwhile, or the topic was changed: "
                "repeat the command, the batch is read again"
            )
        outcome = parts.dead_letters.commit(
            staged, replace(lineage, attempt=own.attempt, counts=BatchCounts(rows=staged.rows))
        )  # fmt: skip
        if outcome is CommitOutcome.ALREADY_COMMITTED:
            stored = parts.dead_letters.committed(*attempt.key)
            assert stored is not None, "another attempt has committed it"
            _require_same_letters(stored, lineage)

    def _commit_no_dead_letters(self, lineage: BatchLineage) -> None:
        """Takes the key of a batch that has none."""
        parts = self._parts
        if parts.dead_letters is not None:
            own = replace(lineage, attempt=parts.new_attempt(), counts=BatchCounts())  # both may be in one schema
            _require_same_letters(parts.dead_letters.commit_without_rows(own), lineage)

    def _letter_places(self, letters: BatchLineage) -> Sequence[LetterPlace] | None:
        """The places of committed dead letters; None: they cannot be read back."""
        return self._parts.letter_places(*letters.key) if letters.counts.rows else ()

    def _more_dead_letters(
        self, records: DataFrame, attempt: BatchAttempt, letters: BatchLineage, *, checks_rows: bool
    ) -> str:
        """The error for an attempt that has further dead letters.  ``records``: without the committed ones."""
        found = self._dead_letters(records, attempt, checks_rows=checks_rows)
        return (
            f"{letters.name}: the {letters.counts.rows} dead letters of an earlier attempt are committed, and this one "
            f"has others; no more was written: {_shown(found)}. The operator must undo what was changed since in the "
            "file or in the schema registry, and repeat the command; when the batch is written, change it again"
        )

    def _dead_letters(self, records: DataFrame, attempt: BatchAttempt, *, checks_rows: bool) -> DataFrame:
        parts = self._parts
        classified = classify(decode(records, parts.decoding), parts.transform, checks_rows=checks_rows)
        kept = [source_column(name) for name in (*SOURCE_COLUMNS, *PAYLOAD_COLUMNS)]
        found = dead_rows(classified).select(*kept, DEAD_STAGE, DEAD_ERROR)
        rejections = parts.sink.rejections(written_rows(classified, parts.transform).schema)
        if rejections:
            rows = written_rows(classified, parts.transform, kept=kept).withColumn(
                _REJECTED, rejection_reason(rejections)
            )
            found = found.unionByName(
                rows.filter(sf.col(_REJECTED).isNotNull()).select(
                    *kept, sf.lit(SINK_STAGE).alias(DEAD_STAGE), sf.col(_REJECTED).alias(DEAD_ERROR)
                )
            )
        named = {source_column(name): name for name in (*SOURCE_COLUMNS, *PAYLOAD_COLUMNS)}
        letters = found.withColumnsRenamed(named | {DEAD_STAGE: "stage", DEAD_ERROR: "error"})
        return _as_dead_letters(letters, attempt)


def _as_dead_letters(rows: DataFrame, attempt: BatchAttempt) -> DataFrame:
    """All columns of dead letters; null where the row has none."""
    missing = {name: sf.lit(None) for name in DEAD_LETTER_COLUMNS if name not in rows.columns}
    added = {
        "time": sf.timestamp_millis(sf.lit(attempt.started_ms)),
        "query": sf.lit(attempt.query),
        "batch": sf.lit(attempt.batch),
    }
    columns = rows.withColumns(missing | added)
    return columns.select(*(sf.col(name).cast(kind).alias(name) for name, kind in DEAD_LETTER_COLUMNS.items()))


def rejection_reason(rejections: tuple[RowRejection, ...]) -> Column:
    """Why the sink cannot store a row; null: it can."""
    return sf.coalesce(*(sf.when(sf.expr(each.condition), sf.lit(each.reason)) for each in rejections))


def _schema_without(rows: DataFrame, names: list[str]) -> StructType:
    return StructType([field for field in rows.schema.fields if field.name not in names])


def _require_same_letters(stored: BatchLineage, attempted: BatchLineage) -> None:
    """Raises ``LineageConflictError`` if the committed dead letters are not those of this attempt.

    ``stored``: of the dead letters.  ``attempted``: of the rows.
    """
    require_same_ranges(stored, attempted)
    require_same_corrupt_offsets(stored, attempted)
    if stored.counts.rows != attempted.counts.dead_letters:
        raise LineageConflictError(
            f"{stored.name} has {stored.counts.rows} dead letters of attempt {stored.attempt}, and this attempt has "
            f"{attempted.counts.dead_letters}. No row was written. Two drivers have run this batch; start the pipeline "
            "again: it follows the dead letters that are committed"
        )


def without_places(records: DataFrame, places: Sequence[LetterPlace]) -> DataFrame:
    """The records that are at none of these places."""
    if not places:
        return records
    rows = [(each.tp.topic, each.tp.partition, each.offset) for each in places]
    found = records.sparkSession.createDataFrame(rows, "topic string, partition int, offset bigint")
    return records.join(sf.broadcast(found), list(_PLACE), "left_anti")


def _shown(letters: DataFrame) -> str:
    """Some dead letters, for an error."""
    shown = letters.select(*_PLACE, "stage", "error").limit(DEAD_LETTERS_SHOWN).collect()
    return "; ".join(
        f"{row.topic}/{row.partition} offset {row.offset}, stage {row.stage}: {row.error}" for row in shown
    )


def _no_place_for(letters: DataFrame, lineage: BatchLineage) -> str:
    return (
        f"{lineage.name}: {lineage.counts.dead_letters} records cannot be written, and the pipeline has no place for "
        f"dead letters; nothing of the batch was written: {_shown(letters)}. The operator must correct [decode] or "
        "[transform], or give [dead-letters] a format"
    )
