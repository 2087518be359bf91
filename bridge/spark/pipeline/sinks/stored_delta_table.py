"""``StoredDeltaTable``: what the folder of a Delta table has, read without Spark; changes nothing.

    lineages       their copies (``lineage_archive``), and the commits that are not copied yet
    reservations   their files
    snapshot       the live data files: the newest checkpoint of the log and the commits after it (``delta_snapshot``)

OPTIMIZE writes the same rows into other files, VACUUM removes files that are not live, and the clean-up of the log
removes commits whose lineages are copied and whose files a checkpoint has: none of them changes what is read here.  One
that runs between ``snapshot`` and ``file_rows`` removes files, so a caller that misses one reads the snapshot again.

Why the log is read here.  An audit needs the paths and numbers of rows of the live files, and the lineages in the
commits and in the folder ``_zkconsumer``.  The package ``deltalake`` (delta-rs 1.6.6, Apache License 2.0) reads the
tables of Delta 4.4, too, but its list of files does not have the rows that deletion vectors remove; it is 52 MB to
download and 142 MB installed, and does not read through a ``FolderStore``.  A session of Spark needs the release of
pyspark for Delta, its package and 10 s, and a status would start it each time.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import merge

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.spark.pipeline.lineage import BatchLineage
from bridge.spark.pipeline.sinks.delta_commits import LOG_FOLDER, commit_actions, commit_path
from bridge.spark.pipeline.sinks.delta_snapshot import (
    SIDECARS,
    DeltaLogError,
    LogSegment,
    TableSnapshot,
    log_segment,
)
from bridge.spark.pipeline.sinks.folder_files import batch_lineage, batch_lineages
from bridge.spark.pipeline.sinks.folder_reservations import FolderReservations
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.lineage_archive import LineageArchive

_COLUMNS = (
    "protocol", "sidecar.path", "add.path", "add.stats", "add.stats_parsed.numRecords", "add.deletionVector",
)  # fmt: skip
"""Columns of a checkpoint; not each one has all of them."""

READ_ROWS = 10_000
"""Actions of a checkpoint that are in memory as Python objects at once."""

READS_MAX = 3
"""How often the log is read while its clean-up removes files that were listed."""


class StoredDeltaTable:
    """``store``: the folder of the table, which need not exist."""

    def __init__(self, store: FolderStore) -> None:
        self._store = store

    def lineages(self) -> Iterator[BatchLineage]:
        """All batches, sorted by key.  Raises ``InvalidLineageError``."""
        # The commits first: what is copied after that is in both.
        new = sorted(LineageArchive(self._store).not_copied(), key=_key)
        previous = None
        for each in merge(batch_lineages(self._store), new, key=_key):
            if each.key != previous:
                yield each
            previous = each.key

    def reservations(self) -> Iterator[BatchLineage]:
        """As ``Sink.reservations``."""

        def committed(query: str, batch: int) -> BatchLineage | None:
            # Read for each one: the commit of a reservation may have come after the list of reservations.
            new = {each.key: each for each in LineageArchive(self._store).not_copied()}
            return new.get((query, batch)) or batch_lineage(self._store, query, batch)

        return FolderReservations(self._store, committed, _refuse).all()

    def snapshot(self) -> TableSnapshot | None:
        """The newest version; None: there is no table.  Raises ``DeltaLogError``, ``InvalidLineageError``."""
        for left in reversed(range(READS_MAX)):
            segment = log_segment(self._store.names(LOG_FOLDER), self._store.uri(LOG_FOLDER))
            if segment is None:
                return None
            try:
                return self._read(segment)
            except FileNotFoundError as error:
                if not left:
                    raise DeltaLogError(
                        f"{error}: the log changed while it was read, {READS_MAX} times; try again"
                    ) from error
        raise AssertionError("the last reading returns or raises")

    def file_rows(self, path: str) -> int:
        """The rows of a data file by its footer.  ``FileNotFoundError``; ``DamagedFileError``."""
        return self._store.parquet_rows(path)

    def _read(self, segment: LogSegment) -> TableSnapshot:
        snapshot = TableSnapshot(segment.version, self._store.uri(LOG_FOLDER))
        for name in segment.checkpoint:
            self._apply_file(f"{LOG_FOLDER}/{name}", snapshot)
        for name in snapshot.sidecars:
            self._apply_file(f"{SIDECARS}/{name}", snapshot)
        for version in segment.commits:
            self._apply_file(commit_path(version), snapshot)
        return snapshot

    def _apply_file(self, path: str, snapshot: TableSnapshot) -> None:
        data, where = self._store.read(path), self._store.uri(path)
        if path.endswith(".json"):
            for name, action in commit_actions(data, where):
                snapshot.apply(name, action)
            return
        try:
            for batch in pq.ParquetFile(pa.BufferReader(data)).iter_batches(READ_ROWS, columns=list(_COLUMNS)):
                for row in batch.to_pylist():
                    for name, action in row.items():
                        if action is not None:
                            snapshot.apply(name, action)
        except (pa.ArrowInvalid, OSError) as error:
            raise DeltaLogError(
                f"{where}: this is no complete parquet file ({error}); the operator must restore the log"
            ) from error


def _key(lineage: BatchLineage) -> tuple[str, int]:
    return lineage.key


def _refuse(_: BatchLineage) -> None:
    raise AssertionError("a table that is only read has no reservation released")
