"""``ParquetSink``: parquet files of a folder; a batch is visible through its manifest, which exists once.

One attempt of a batch (``parquet_manifest`` has all paths):

    write    1  create the attempt's file, empty              attempts/<attempt>.json
             2  Spark's writer, in the executors              attempts/<attempt>/message_day=.../part-*
             3  the driver lists the files, and reads the number of rows from their footers
    commit   4  the batch has a manifest already: compare ranges, discard the attempt
             5  fill the attempt's file with the manifest     (only if the file exists)
             6  move each file to its final name              message_day=.../<query>-<batch>-<attempt>-<n>.parquet
             7  sync files and folders
             8  publish the attempt's file as the manifest    batches/<query>/<batch>.json (only if it does not exist)
             9  remove the attempt's file and folder

Step 8 is the commit: one atomic step for rows, ranges and counts.  A reader goes by manifests (``parquet_table``) and
never sees a file of steps 2 to 7.

What a driver does that was stopped (SIGSTOP) or cut off and continues later, while a second driver (B) went on:

    before 1, 2 or 3      writes files that no manifest has; step 4 finds the batch of B, and they are removed
    before 5, 6 or 7      moves files that no manifest has; step 8 fails because B's manifest exists; they are removed
    before 8              the same
    after 8               this driver's batch is the committed one; B's step 8 failed, or B found the batch
    and next batches      their ranges come from the checkpoint, which the two share; other ranges are an error

If B has removed leftovers meanwhile (``remove_leftovers``), the batch is committed, or the attempt was old.  Removal:

             a  rename <attempt>.json to <attempt>.dead       from here on steps 5 and 8 of the attempt fail
             b  remove the attempt's folder                   from here on step 6 fails
             c  read <attempt>.dead, read the batch's manifest
             d  remove the files that <attempt>.dead lists, unless the manifest is of this attempt (step 8 was before a)
             e  remove <attempt>.dead

Step 6 comes after 5, so in step c the list has every file that was moved.  The attempt's file is created only in step 1
(``fill`` opens an existing file), so a driver that continues cannot undo step a.  A crash between the steps of the
removal leaves the .dead file, and the next removal continues.  An attempt's folder without a file is of a removed
attempt, since the folder is created after the file.

If the answer of step 8 is lost, the driver finds its own attempt in the manifest: it is committed.

A reservation of a backfill is a file of its own (``folder_reservations``).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from bridge.spark.pipeline.lineage import BatchAttempt, BatchLineage, require_same_ranges
from bridge.spark.pipeline.pipeline_spec import ParquetTarget
from bridge.spark.pipeline.sinks.folder_files import batch_keys, create_file
from bridge.spark.pipeline.sinks.folder_reservations import FolderReservations
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.parquet_manifest import (
    ATTEMPTS,
    BATCHES,
    DEAD,
    FILLED,
    SCHEMA_FILE,
    TIME_FOLDER_COLUMNS,
    BatchManifest,
    ManifestFile,
    batch_path,
    data_path,
    format_manifest,
    parse_manifest,
    parse_staging_name,
    schema_problems,
    staging_folder,
    stored_schema,
)
from bridge.spark.pipeline.sinks.parquet_writing import WriteFiles, write_parquet_files
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
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType


class ParquetSink:
    """A ``Sink`` of parquet files.  ``store``: the folder of the table."""

    def __init__(
        self, store: FolderStore, target: ParquetTarget, write_files: WriteFiles = write_parquet_files
    ) -> None:
        self._store = store
        self._target = target
        self._write_files = write_files
        self._reservations = FolderReservations(store, self.committed, self._add_empty)

    @property
    def needs_message_time(self) -> bool:
        return TIME_FOLDER_COLUMNS[self._target.partition_by_time] is not None

    @property
    def needs_message_place(self) -> bool:
        return False

    def check(self, schema: StructType) -> list[str]:
        if (problem := self._store.access_problem()) is not None:
            return [problem]
        table = read_stored_schema(self._store)
        return list(schema_problems(stored_schema(schema.jsonValue()), table, self._target.partition_by_time))

    def prepare(self, schema: StructType) -> None:
        stored = stored_schema(schema.jsonValue())
        if problems := self.check(schema):
            raise PreconditionFailed("\n".join(problems))
        if read_stored_schema(self._store) is None:
            # Another driver may do the same: then its schema is the table's, and is compared.
            create_file(self._store, SCHEMA_FILE, json.dumps(stored, indent=1).encode())
            if problems := self.check(schema):
                raise PreconditionFailed("\n".join(problems))

    def rejections(self, schema: StructType) -> tuple[RowRejection, ...]:
        return ()

    def committed(self, query: str, batch: int) -> BatchLineage | None:
        manifest = read_manifest(self._store, query, batch)
        return None if manifest is None else manifest.lineage

    def write(self, frame: DataFrame, attempt: BatchAttempt) -> StagedBatch[StagedFiles]:
        self._store.create_empty(staging_folder(attempt) + FILLED)
        return write_staged_files(self._store, self._write_files, frame, self._target, attempt)

    def commit(self, staged: StagedBatch[StagedFiles], lineage: BatchLineage) -> CommitOutcome:
        check_staged(staged, lineage)
        attempt, store = staged.attempt, self._store
        folder = staging_folder(attempt)
        moves = [
            (f"{folder}/{each.path}", ManifestFile(data_path(attempt, each.path, number), each.rows, each.size_bytes))
            for number, each in enumerate(staged.content)
        ]
        manifest = BatchManifest(lineage, tuple(file for _, file in moves))
        if self.committed(*attempt.key) is None:
            try:
                store.fill(folder + FILLED, format_manifest(manifest))
                for source, file in moves:
                    store.move(source, file.path)
                store.sync([file.path for _, file in moves])
                store.publish(folder + FILLED, batch_path(BATCHES, *attempt.key))
            except FileExistsError:
                pass  # another attempt was first, or this one, and the answer was lost
            except FileNotFoundError as error:
                if self.committed(*attempt.key) is None:
                    raise AttemptRemovedError(
                        f"attempt {attempt.attempt} of {lineage.name} was removed as a leftover before its commit; "
                        "start the query again, the batch gets a new attempt"
                    ) from error
        stored = self.committed(*attempt.key)
        assert stored is not None, "a batch that was published is there"
        is_ours = stored.attempt == attempt.attempt
        self._discard(attempt, () if is_ours else manifest.files)
        if is_ours:
            self._reservations.end(*attempt.key)
            return CommitOutcome.COMMITTED
        require_same_ranges(stored, lineage)
        return CommitOutcome.ALREADY_COMMITTED

    def manifests(self) -> Iterator[BatchManifest]:
        """The manifests of all committed batches, sorted by key."""
        return read_manifests(self._store)

    def footer_rows(self, path: str) -> int:
        """The rows of a file of a manifest, by its footer.  ``FileNotFoundError``; ``DamagedFileError``."""
        return self._store.parquet_rows(path)

    def lineages(self) -> Iterator[BatchLineage]:
        return (manifest.lineage for manifest in read_manifests(self._store))

    def reservations(self) -> Iterator[BatchLineage]:
        return self._reservations.all()

    def reserve(self, wanted: BatchLineage, positions: Mapping[TopicPartition, int]) -> None:
        self._reservations.reserve(wanted, positions)

    def release(self, query: str, batch: int) -> None:
        self._reservations.release(query, batch)

    def commit_without_rows(self, lineage: BatchLineage) -> BatchLineage:
        self._add_empty(lineage)
        stored = self.committed(*lineage.key)
        assert stored is not None, "a batch that was published is there"
        return stored

    def _add_empty(self, lineage: BatchLineage) -> None:
        create_file(self._store, batch_path(BATCHES, *lineage.key), format_manifest(BatchManifest(lineage, ())))

    def remove_leftovers(self, now_ms: int, age_ms: int = LEFTOVER_AGE_MS) -> int:
        removed = 0
        names = self._store.names(ATTEMPTS)
        attempts = {found[0] for name in names if (found := parse_staging_name(name)) is not None}
        for attempt in sorted(attempts, key=staging_folder):
            removed += self._remove_if_dead(attempt, now_ms - age_ms)
        return removed

    def _remove_if_dead(self, attempt: BatchAttempt, oldest_ms: int) -> bool:
        folder = staging_folder(attempt)
        is_live = self.committed(*attempt.key) is None and attempt.started_ms >= oldest_ms
        if is_live:
            return False
        with suppress(FileNotFoundError):  # an earlier removal renamed it, or it is a folder without a file
            self._store.move(folder + FILLED, folder + DEAD)
        if not self._store.remove_tree(folder):
            return False  # a task still writes; the next removal continues
        try:
            data = self._store.read(folder + DEAD)
        except FileNotFoundError:
            return True  # another process removed it at the same time, or it was a folder without a file
        stored = self.committed(*attempt.key)
        if data and (stored is None or stored.attempt != attempt.attempt):
            for file in _listed_files(data):
                self._store.remove(file.path)
        self._store.remove(folder + DEAD)
        return True

    def _discard(self, attempt: BatchAttempt, files: StagedFiles) -> None:
        """Removes what an ended attempt of this driver has left.  ``files``: final paths, none of a committed batch."""
        folder = staging_folder(attempt)
        self._store.remove_tree(folder)
        for file in files:
            self._store.remove(file.path)
        self._store.remove(folder + FILLED)


# --- what readers use, too ----------------------------------------------------------------------------------------


def read_stored_schema(store: FolderStore) -> dict[str, Any] | None:
    """The schema of the table as JSON of a ``StructType``; None: the table has no schema yet."""
    try:
        schema = json.loads(store.read(SCHEMA_FILE))
    except FileNotFoundError:
        return None
    except ValueError as error:
        raise PreconditionFailed(
            f"{store.uri(SCHEMA_FILE)}: this is not JSON ({error}); the operator must restore the schema of the table"
        ) from error
    assert isinstance(schema, dict), "the schema of a table is an object"
    return schema


def read_manifest(store: FolderStore, query: str, batch: int) -> BatchManifest | None:
    """The manifest of a batch, if it is committed."""
    path = batch_path(BATCHES, query, batch)
    try:
        manifest = parse_manifest(store.read(path), store.uri(path))
    except FileNotFoundError:
        return None
    assert manifest.lineage.key == (query, batch), f"{path} has the manifest of {manifest.lineage.name}"
    return manifest


def read_manifests(store: FolderStore) -> Iterator[BatchManifest]:
    """The manifests of all committed batches, sorted by key."""
    for query, batch in batch_keys(store, BATCHES):
        manifest = read_manifest(store, query, batch)
        assert manifest is not None, "a manifest is never removed"
        yield manifest


def _listed_files(data: bytes) -> StagedFiles:
    """The files of a removed attempt.  Nothing was moved if the list is not complete."""
    try:
        return parse_manifest(data, "a removed attempt").files
    except PreconditionFailed:
        return ()
