"""``FolderReservations``: the ranges that backfills and replays have reserved in a table that is a folder.

A reservation is a file of its own, created if absent.  Two reservations at once: each is written first and checked
against the others after that, so of two that overlap one is withdrawn at least, perhaps both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from bridge.spark.pipeline.lineage import (
    BatchLineage,
    LineageConflictError,
    check_reservation,
    from_json,
    require_same_ranges,
    to_json,
)
from bridge.spark.pipeline.sinks.folder_files import batch_keys, create_file
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.parquet_manifest import RESERVATIONS, batch_path
from zkconsumer.types import TopicPartition


class FolderReservations:
    """``committed`` and ``lineages``: of the sink whose table is in the folder ``store``."""

    def __init__(
        self,
        store: FolderStore,
        committed: Callable[[str, int], BatchLineage | None],
        lineages: Callable[[], Iterator[BatchLineage]],
    ) -> None:
        self._store = store
        self._committed = committed
        self._lineages = lineages

    def all(self) -> Iterator[BatchLineage]:
        """As ``Sink.reservations``."""
        for query, batch in batch_keys(self._store, RESERVATIONS):
            path = batch_path(RESERVATIONS, query, batch)
            try:
                reserved = from_json(self._store.read(path).decode("utf-8", "replace"), self._store.uri(path))
            except FileNotFoundError:
                continue  # it was released, or committed, after the folder was listed
            if self._committed(query, batch) is None:  # else a crash came between the commit and the removal
                yield reserved

    def reserve(self, wanted: BatchLineage, positions: Mapping[TopicPartition, int]) -> None:
        """As ``Sink.reserve``."""
        stored = self._committed(*wanted.key) or next((each for each in self.all() if each.key == wanted.key), None)
        if stored is not None:
            require_same_ranges(stored, wanted)
            return
        check_reservation(wanted, list(self._lineages()), list(self.all()), positions)
        path = batch_path(RESERVATIONS, *wanted.key)
        if not create_file(self._store, path, to_json(wanted).encode()):
            require_same_ranges(from_json(self._store.read(path).decode("utf-8", "replace"), path), wanted)
        try:
            check_reservation(wanted, list(self._lineages()), list(self.all()), positions)
        except LineageConflictError:
            self.release(*wanted.key)
            raise

    def release(self, query: str, batch: int) -> None:
        """As ``Sink.release``; also the end of a reservation whose batch is committed."""
        self._store.remove(batch_path(RESERVATIONS, query, batch))
