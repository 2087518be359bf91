"""``FolderReservations``: the ranges that backfills and replays have reserved in a table that is a folder.

A reservation is a file of its own, created if absent.  Two reservations at once: each is written first and checked
against the others after that, so of two that overlap one is withdrawn at least, perhaps both.

A reservation that is released leaves a lineage without offsets under its key, which a batch of that key would have.  So
a process that was stopped, and continues after the release, cannot commit its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TypeAlias

from bridge.spark.pipeline.lineage import (
    BatchLineage,
    LineageConflictError,
    abandoned,
    check_reservation,
    require_same_ranges,
    to_json,
)
from bridge.spark.pipeline.sinks.folder_files import batch_keys, create_file, read_lineage_file
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.parquet_manifest import BATCHES, RESERVATIONS, batch_path
from zkconsumer.types import TopicPartition

Committed: TypeAlias = Callable[[str, int], BatchLineage | None]
AddEmpty: TypeAlias = Callable[[BatchLineage], None]


class FolderReservations:
    """The reservations of a sink with the folder ``store``.

    ``committed``: the sink's method.  ``add_empty``: commits a lineage without rows, unless the batch is there.

    Invariant: ``_known`` has lineages of committed batches, which neither change nor are removed.
    """

    def __init__(self, store: FolderStore, committed: Committed, add_empty: AddEmpty) -> None:
        self._store = store
        self._committed = committed
        self._add_empty = add_empty
        self._known: dict[tuple[str, int], BatchLineage] = {}

    def all(self) -> Iterator[BatchLineage]:
        """As ``Sink.reservations``."""
        for query, batch in batch_keys(self._store, RESERVATIONS):
            try:
                reserved = read_lineage_file(self._store, batch_path(RESERVATIONS, query, batch))
            except FileNotFoundError:
                continue  # it was released, or committed, after the folder was listed
            if self._committed(query, batch) is None:  # else a crash came between the commit and the removal
                yield reserved

    def reserve(self, wanted: BatchLineage, positions: Mapping[TopicPartition, int]) -> None:
        """As ``Sink.reserve``."""
        if (stored := self._committed(*wanted.key)) is not None:
            require_same_ranges(stored, wanted)
            return
        path = batch_path(RESERVATIONS, *wanted.key)
        stored = next((each for each in self.all() if each.key == wanted.key), None)
        is_ours = False
        if stored is None:
            check_reservation(wanted, self._lineages(), list(self.all()), positions)
            is_ours = create_file(self._store, path, to_json(wanted).encode())
            if not is_ours:
                try:
                    stored = read_lineage_file(self._store, path)
                except FileNotFoundError:  # it was released, committed or withdrawn after our file was refused
                    self.reserve(wanted, positions)
                    return
        if stored is not None:
            require_same_ranges(stored, wanted)
        # Also of one that exists: the process that created it may have ended before this check.
        try:
            check_reservation(wanted, self._lineages(), list(self.all()), positions)
        except LineageConflictError:
            if is_ours:  # else another process may write its rows now
                self._store.remove(path)
            raise

    def release(self, query: str, batch: int) -> None:
        """As ``Sink.release``."""
        reserved = next((each for each in self.all() if each.key == (query, batch)), None)
        if reserved is not None:
            self._add_empty(abandoned(reserved))  # or the batch was committed meanwhile
            self.end(query, batch)

    def end(self, query: str, batch: int) -> None:
        """The batch is committed: its reservation is not needed any more."""
        self._store.remove(batch_path(RESERVATIONS, query, batch))

    def _lineages(self) -> list[BatchLineage]:
        """All lineages; each is read once."""
        for key in batch_keys(self._store, BATCHES):
            if key not in self._known and (lineage := self._committed(*key)) is not None:
                self._known[key] = lineage
        return list(self._known.values())
