"""``LineageArchive``: the lineages of a Delta table, each in a file of its own, copied from the commits of its log.

    <table>/_zkconsumer/batches/<query>/<batch>.json     the lineage of a batch, as it is in the batch's commit
    <table>/_zkconsumer/archived/<version>               empty: all lineages up to this commit have a file

Why there are copies.  Delta removes commits from the log after ``delta.logRetentionDuration`` (30 days by default), and
a table has 100,000 of them soon.  With the copies the lineage of a batch is one file to read, whatever the table's log
has; and ``update`` reads only the commits after the newest marker: one for each batch.

The commit decides, a copy never does: it is made after the commit, by whatever process sees the commit first, and all
copies of a batch are equal.  If a process ends between commit and copy, the next ``update`` makes the copy.  A marker
is created after the files of all its batches.  Markers of two processes: the highest counts, and each is true.

What is not known.  If no pipeline has run for longer than the log's retention after such an end, the commit is gone
before it is copied.  The snapshot of the table still has the batch (``txn``), so Delta does not commit it again: see
``DeltaSink``.

The files of a batch, and its commit, are made durable before they are copied: a copy must not survive a loss of power
that the commit does not survive.

One instance is used by one thread at a time.  ``_next``: no commit below it has a lineage without a file; None before
the first ``update``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count

from bridge.spark.pipeline.lineage import BatchLineage, to_json
from bridge.spark.pipeline.sinks.delta_commits import (
    LOG_FOLDER,
    DeltaBatch,
    commit_path,
    commit_versions,
    parse_commit,
)
from bridge.spark.pipeline.sinks.folder_files import batch_lineage, batch_lineages, create_file
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.parquet_manifest import BATCHES, FOLDER, batch_path

ARCHIVED = f"{FOLDER}/archived"


class LineageArchive:
    """``store``: the folder of the table."""

    def __init__(self, store: FolderStore) -> None:
        self._store = store
        self._next: int | None = None

    def update(self) -> None:
        """Copies the lineages of the commits since the last call; of the first call: since the newest marker."""
        first = self._first_version() if self._next is None else self._next
        end = first
        for version, found in self._commits(first):
            if found is not None:
                self._copy(found, version)
            end = version + 1
        if end > first:
            self._mark(end - 1)
        self._next = end

    def not_copied(self) -> list[BatchLineage]:
        """The lineages of commits after the newest marker; changes nothing.  Some may have a file already."""
        return [found.lineage for _, found in self._commits(self._first_version()) if found is not None]

    def lineage(self, query: str, batch: int) -> BatchLineage | None:
        """The lineage of a batch whose commit was there at the last ``update``."""
        return batch_lineage(self._store, query, batch)

    def lineages(self) -> Iterator[BatchLineage]:
        """All of them, sorted by key."""
        return batch_lineages(self._store)

    def _first_version(self) -> int:
        """The first commit after the newest marker that the log has, or will have."""
        after_marker = max((int(name) for name in self._store.names(ARCHIVED) if name.isdecimal()), default=-1) + 1
        versions = commit_versions(self._store.names(LOG_FOLDER))
        return next((version for version in versions if version >= after_marker), after_marker)

    def _commits(self, first: int) -> Iterator[tuple[int, DeltaBatch | None]]:
        """The commits from ``first`` on, with their batches."""
        for version in count(first):
            try:
                data = self._store.read(commit_path(version))
            except FileNotFoundError:
                return
            yield version, parse_commit(data, self._store.uri(commit_path(version)))

    def _copy(self, found: DeltaBatch, version: int) -> None:
        for path in (*found.files, commit_path(version)):
            with suppress(FileNotFoundError):  # OPTIMIZE and VACUUM, or the clean-up of the log, have removed it
                self._store.sync([path])
        create_file(self._store, batch_path(BATCHES, *found.lineage.key), to_json(found.lineage).encode())

    def _mark(self, version: int) -> None:
        create_file(self._store, f"{ARCHIVED}/{version:020}", b"")
        for name in self._store.names(ARCHIVED):
            if name.isdecimal() and int(name) < version:
                self._store.remove(f"{ARCHIVED}/{name}")
