"""``FolderReservations``: the ranges that backfills and replays have reserved in a table that is a folder.

A reservation is created if absent, as a batch is.  Two reservations at once: each is written first and checked against
the others after that, so of two that overlap one is withdrawn at least, perhaps both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

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

Committed: TypeAlias = Callable[[str, int], BatchLineage | None]
Lineages: TypeAlias = Callable[[], Iterator[BatchLineage]]


@dataclass(frozen=True, slots=True)
class FolderReservations:
    """The reservations of a sink with the folder ``store``; ``committed`` and ``lineages``: its methods."""

    store: FolderStore
    committed: Committed
    lineages: Lineages

    def all(self) -> Iterator[BatchLineage]:
        """The reservations that are not committed, sorted by key."""
        for query, batch in batch_keys(self.store, RESERVATIONS):
            try:
                reserved = read_lineage_file(self.store, batch_path(RESERVATIONS, query, batch))
            except FileNotFoundError:
                continue  # it was released, or committed, after the folder was listed
            if self.committed(query, batch) is None:  # else a crash came between the commit and the removal
                yield reserved

    def reserve(self, wanted: BatchLineage, positions: Mapping[TopicPartition, int]) -> None:
        """As ``Sink.reserve``."""
        stored = self.committed(*wanted.key) or next((r for r in self.all() if r.key == wanted.key), None)
        if stored is not None:
            require_same_ranges(stored, wanted)
            return
        check_reservation(wanted, list(self.lineages()), list(self.all()), positions)
        path = batch_path(RESERVATIONS, *wanted.key)
        if not create_file(self.store, path, to_json(wanted).encode()):
            require_same_ranges(read_lineage_file(self.store, path), wanted)
        try:
            check_reservation(wanted, list(self.lineages()), list(self.all()), positions)
        except LineageConflictError:
            self.release(*wanted.key)
            raise

    def release(self, query: str, batch: int) -> None:
        """Removes the reservation, if there is one."""
        self.store.remove(batch_path(RESERVATIONS, query, batch))


def read_lineage_file(store: FolderStore, path: str) -> BatchLineage:
    """The lineage in a file.  Raises ``FileNotFoundError`` and ``InvalidLineageError``."""
    return from_json(store.read(path).decode("utf-8", "replace"), store.uri(path))
