"""``DeltaSink``: a Delta table; rows, ranges and counts of a batch are one commit of Delta.

    <table>/_delta_log/<version>.json                     commits; that of a batch has the lineage (``delta_commits``)
    <table>/_zkconsumer/attempts/<attempt>/part-*         the rows of an attempt, as parquet; no reader sees them
    <table>/_zkconsumer/batches/<query>/<batch>.json      copies of the lineages (``lineage_archive``)
    <table>/_zkconsumer/reservations/<query>/<batch>.json reserved ranges of a backfill or replay

One attempt of a batch:

    write    1  Spark's writer, in the executors              attempts/<attempt>/part-*
             2  the driver lists the files, and reads the number of rows from their footers
    commit   3  the batch is there already: compare ranges, discard the attempt
             4  append these files' rows to the table         one commit of Delta: rows, txn (query, batch), lineage
             5  copy the lineages of new commits
             6  remove the attempt's folder and the reservation

Step 4 is the commit.  Why rows are written twice: the lineage has the number of rows and of dead letters, Delta's
writer takes ``userMetadata`` before it counts them, and it has no public way to write files first and commit them
later.  (Its ``OptimisticTransaction`` has one, which is private, changes with each release, and commits files that
VACUUM may have removed meanwhile.)  The second writing has neither the source nor Python.

What makes a batch exactly-once, in step 4:

    Delta skips an append whose txn version is not above that of the table's snapshot, without an error
    two appends of one query at the same time conflict: the later one fails (ConcurrentTransactionException)

So after step 4, whether it failed or not, the log says whose commit the batch has.  Batches of one query are committed
in ascending order.  What a driver does that was stopped (SIGSTOP) or cut off and continues later, while a second driver
(B) went on:

    before 1 or 2         writes files that no program reads; step 3 finds the batch of B, and they are removed
    before or in 4        Delta skips the append, or fails it; step 5 finds the batch of B
    after 4               this driver's batch is the committed one; B's step 4 was skipped or failed, or B found it
    after 5               the same
    and next batches      their ranges come from the checkpoint, which the two share; other ranges are an error

If the answer of step 4 is lost, step 5 finds this driver's own attempt.

Leftovers: a folder of an attempt is removed if the batch is committed, or if it is old.  Step 4 reads the files by
name, so it fails if one was removed (``AttemptRemovedError``), and never commits a part of them.  What it has copied
into the table's folder when a driver ends is a file that no commit has: VACUUM of the operator removes it.  VACUUM and
OPTIMIZE do not touch ``_zkconsumer``, and change no lineage.

A replacement (a sink of ``replacing``) deletes the rows of its offsets in step 4, by Delta's ``replaceWhere``: in the
same commit.  Delta reads the table for it, so a batch of the live query that is committed meanwhile fails the commit of
the replacement, never that of the live query; the replacement tries again (``REPLACE_TRIES_MAX``).

When the snapshot of the table has the batch and no commit with its lineage is left (see ``lineage_archive``; or a user
has removed ``_zkconsumer``), its ranges are not known.  Then Delta skips the append, nothing is found, and the batch is
an error that the operator must resolve: to go on as if the ranges were equal could lose records.

Where two drivers may be.  Delta commits by a rename onto a free name.  On HDFS this is one atomic step.  On a local
file system Hadoop looks whether the name is free and then renames, so a driver that is stopped exactly between these
two could later replace a commit of another process.  Other file systems are refused (``folder_choice``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from bridge.spark.pipeline.lineage import (
    BatchAttempt,
    BatchLineage,
    LineageConflictError,
    require_same_ranges,
)
from bridge.spark.pipeline.pipeline_spec import DeltaTarget, ParquetTarget
from bridge.spark.pipeline.sinks.delta_commits import batch_options
from bridge.spark.pipeline.sinks.delta_place import store_place
from bridge.spark.pipeline.sinks.delta_table import AppendRows, DeltaTable, append_rows
from bridge.spark.pipeline.sinks.folder_reservations import FolderReservations
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.lineage_archive import LineageArchive
from bridge.spark.pipeline.sinks.parquet_manifest import ATTEMPTS, parse_staging_name, staging_folder
from bridge.spark.pipeline.sinks.parquet_writing import WriteFiles, literal_path, write_parquet_files
from bridge.spark.pipeline.sinks.replaced_rows import ReplacedRows, unknown_rows_text
from bridge.spark.pipeline.sinks.row_rejection import RowRejection
from bridge.spark.pipeline.sinks.sink import (
    LEFTOVER_AGE_MS,
    AttemptRemovedError,
    CommitOutcome,
    StagedBatch,
    check_staged,
)
from bridge.spark.pipeline.sinks.staged_files import StagedFiles, write_staged_files
from zkconsumer.errors import PreconditionFailed
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.types import StructType

STAGING_CODEC = "lz4"
"""The cheapest for the processor; the files live for one batch."""


REPLACE_TRIES_MAX = 20
"""How often the commit of a replacement is tried while batches of the live query are committed between its reading and
its commit; a batch of the live query reads nothing, so it does not fail."""


@dataclass(frozen=True, slots=True)
class StagedDeltaRows:
    """``schema``: of the rows; ``files``: below the staging folder, each with rows."""

    schema: StructType
    files: StagedFiles


class DeltaSink:
    """A ``Sink`` of a Delta table.

    ``_opened``: None until the table exists.
    """

    def __init__(
        self,
        spark: SparkSession,
        target: DeltaTarget,
        append: AppendRows = append_rows,
        write_files: WriteFiles = write_parquet_files,
        table: DeltaTable | None = None,
        replaced: ReplacedRows | None = None,
    ) -> None:
        self._spark = spark
        self._target = target
        self._append = append
        self._write_files = write_files
        self._table = table or DeltaTable(spark, target)
        self._replaced = replaced
        self._opened: tuple[FolderStore, LineageArchive, FolderReservations] | None = None

    def replacing(self, replaced: ReplacedRows) -> DeltaSink:
        """The same sink; the commit of a replacement deletes the rows of its offsets.

        Raises ``PreconditionFailed`` if the table has a row whose offset is not known.
        """
        if self._table.count(replaced.columns.condition_of_unknown()):
            raise PreconditionFailed(unknown_rows_text(self._table.name, replaced.columns))
        return DeltaSink(self._spark, self._target, self._append, self._write_files, self._table, replaced)

    @property
    def needs_message_time(self) -> bool:
        return False

    @property
    def needs_message_place(self) -> bool:
        return False

    def check(self, schema: StructType) -> list[str]:
        return list(self._table.problems(schema))

    def prepare(self, schema: StructType) -> None:
        if problems := self.check(schema):
            raise PreconditionFailed("\n".join(problems))
        if not self._table.exists():
            self._table.create(schema)
            # Another driver may have created it, with other columns.
            if problems := self.check(schema):
                raise PreconditionFailed("\n".join(problems))
        self._archive.update()
        store_place(self._target, self._store.uri(""), self._spark)

    def rejections(self, schema: StructType) -> tuple[RowRejection, ...]:
        return ()

    def committed(self, query: str, batch: int) -> BatchLineage | None:
        self._archive.update()
        return self._archive.lineage(query, batch)

    def write(self, frame: DataFrame, attempt: BatchAttempt) -> StagedBatch[StagedDeltaRows]:
        target = ParquetTarget(self._table.name, "none", STAGING_CODEC)
        staged = write_staged_files(self._store, self._write_files, frame, target, attempt)
        return StagedBatch(attempt, staged.rows, StagedDeltaRows(frame.schema, staged.content))

    def commit(self, staged: StagedBatch[StagedDeltaRows], lineage: BatchLineage) -> CommitOutcome:
        check_staged(staged, lineage)
        stored = self.committed(*lineage.key)
        if stored is None:
            stored = self._append_batch(staged, lineage)
        self._store.remove_tree(staging_folder(staged.attempt))
        if stored.attempt == lineage.attempt:
            self._reservations.end(*lineage.key)
            return CommitOutcome.COMMITTED
        require_same_ranges(stored, lineage)
        return CommitOutcome.ALREADY_COMMITTED

    def commit_without_rows(self, lineage: BatchLineage) -> BatchLineage:
        if (stored := self.committed(*lineage.key)) is not None:
            return stored
        failure = failure_of(lambda: self._add_empty(lineage))
        stored = self.committed(*lineage.key)
        if stored is None:
            raise failure or self._no_offsets_left(lineage)
        return stored

    def _append_batch(self, staged: StagedBatch[StagedDeltaRows], lineage: BatchLineage) -> BatchLineage:
        """Step 4; returns the lineage that the table has after it, of this attempt or of another one."""
        condition, deleted = self._replaced_rows(lineage)
        for left in reversed(range(REPLACE_TRIES_MAX)):
            options = batch_options(lineage, condition)
            failure = failure_of(partial(self._append_staged, staged, options))
            stored = self.committed(*lineage.key)
            if stored is not None:
                if self._replaced is not None and stored.attempt == lineage.attempt:
                    self._replaced.on_deleted(deleted)
                return stored
            if not condition or not left or not is_append_conflict(failure):
                break
        if failure is None:
            self._store.remove_tree(staging_folder(staged.attempt))
            raise self._no_offsets_left(lineage) from None
        if self._store.data_files(staging_folder(staged.attempt)) != _listing(staged.content.files):
            raise AttemptRemovedError(
                f"attempt {lineage.attempt} of {lineage.name} was removed as a leftover before its commit; start the "
                "query again, the batch gets a new attempt"
            ) from failure
        raise failure

    def _no_offsets_left(self, lineage: BatchLineage) -> LineageConflictError:
        return LineageConflictError(
            f"the table {self._table.name} has {lineage.name} already, or a later one, and no commit with its offsets "
            "is left: the log was cleaned up before a pipeline had read it, or the folder _zkconsumer of the table was "
            "removed. Nothing was written. The operator must restore the folder; or, after a look whether the table "
            "has the rows of the batch, start with a new checkpoint, which continues from the offsets of the group"
        )

    def _append_staged(self, staged: StagedBatch[StagedDeltaRows], options: Mapping[str, str]) -> None:
        self._append(self._staged_frame(staged), self._target, options)

    def _replaced_rows(self, lineage: BatchLineage) -> tuple[str, int]:
        """The condition of the rows that the commit of a replacement deletes, and their number; "": none."""
        if lineage.kind != "replace" or self._replaced is None:
            return "", 0  # the dead letters of a replacement are added, and none is deleted
        condition = self._replaced.columns.condition(lineage.ranges)
        return condition, self._table.count(condition)

    def _staged_frame(self, staged: StagedBatch[StagedDeltaRows]) -> DataFrame:
        """The rows of the attempt; exactly its files, so a file that was removed is an error."""
        schema, files = staged.content.schema, staged.content.files
        if not files:
            return self._spark.createDataFrame([], schema)
        folder = staging_folder(staged.attempt)
        reader = self._spark.read.schema(schema).options(ignoreMissingFiles="false", ignoreCorruptFiles="false")
        return reader.parquet(*(literal_path(self._store.uri(f"{folder}/{each.path}")) for each in files))

    def lineages(self) -> Iterator[BatchLineage]:
        self._archive.update()
        return self._archive.lineages()

    def reservations(self) -> Iterator[BatchLineage]:
        return self._reservations.all()

    def reserve(self, wanted: BatchLineage, positions: Mapping[TopicPartition, int]) -> None:
        self._reservations.reserve(wanted, positions)

    def release(self, query: str, batch: int) -> None:
        self._reservations.release(query, batch)

    def _add_empty(self, lineage: BatchLineage) -> None:
        rows = self._spark.createDataFrame([], self._table.schema)
        self._append(rows, self._target, batch_options(lineage))

    def remove_leftovers(self, now_ms: int, age_ms: int = LEFTOVER_AGE_MS) -> int:
        found = [parse_staging_name(name) for name in self._store.names(ATTEMPTS)]
        attempts = [each[0] for each in found if each is not None]
        return sum(self._remove_if_dead(attempt, now_ms - age_ms) for attempt in attempts)

    def _remove_if_dead(self, attempt: BatchAttempt, oldest_ms: int) -> bool:
        if attempt.started_ms >= oldest_ms and self.committed(*attempt.key) is None:
            return False
        return self._store.remove_tree(staging_folder(attempt))  # False: a task still writes

    # --- the folder of the table ------------------------------------------------------------------------------------

    def _open(self) -> tuple[FolderStore, LineageArchive, FolderReservations]:
        if self._opened is None:
            store = self._table.store
            reservations = FolderReservations(store, self.committed, self._add_empty)
            self._opened = store, LineageArchive(store), reservations
        return self._opened

    @property
    def _store(self) -> FolderStore:
        return self._open()[0]

    @property
    def _archive(self) -> LineageArchive:
        return self._open()[1]

    @property
    def _reservations(self) -> FolderReservations:
        return self._open()[2]


def failure_of(commit: Callable[[], None]) -> Exception | None:
    """The error of Spark in a commit, if there is one; the log of the table shows whether it was committed."""
    from py4j.protocol import Py4JError
    from pyspark.errors import PySparkException

    try:
        commit()
    except (PySparkException, Py4JError) as error:
        failure: Exception = error
        return failure
    return None


def is_append_conflict(error: Exception | None) -> bool:
    """Whether a commit failed only because another one has added rows since it began."""
    return error is not None and ("CONCURRENT_APPEND" in str(error) or "ConcurrentAppendException" in str(error))


def _listing(files: StagedFiles) -> list[tuple[str, int]]:
    """As ``FolderStore.data_files`` has it, of files with rows."""
    return [(each.path, each.size_bytes) for each in files]
