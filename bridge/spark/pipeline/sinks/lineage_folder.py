"""``LineageFolder``: the lineages of a sink that cannot store them itself, one file for each batch.

    <folder>/_zkconsumer/batches/<query>/<batch>.json          the lineage, as ``lineage.to_json``
    <folder>/_zkconsumer/reservations/<query>/<batch>.json     reserved ranges of a backfill or replay

A file is created complete, and only if there is none: the first attempt of a batch is the one that counts.  It is never
changed or removed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bridge.spark.pipeline.lineage import BatchLineage, to_json
from bridge.spark.pipeline.sinks.folder_files import batch_lineage, batch_lineages, create_file
from bridge.spark.pipeline.sinks.folder_reservations import FolderReservations
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.parquet_manifest import BATCHES, batch_path
from zkconsumer.types import TopicPartition


class LineageFolder:
    """``store``: the folder, which need not exist."""

    def __init__(self, store: FolderStore) -> None:
        self._store = store
        self._reservations = FolderReservations(store, self.committed, self._create)

    def access_problem(self) -> str | None:
        """Why this process cannot write here, or None; changes nothing."""
        return self._store.access_problem()

    def committed(self, query: str, batch: int) -> BatchLineage | None:
        """The lineage of a batch that was added.  Raises ``InvalidLineageError``."""
        return batch_lineage(self._store, query, batch)

    def add(self, lineage: BatchLineage) -> BatchLineage:
        """Stores the lineage, unless the batch has one; returns the one that is stored.  Ends a reservation."""
        self._create(lineage)
        stored = self.committed(*lineage.key)
        assert stored is not None, "a lineage that was added is there"
        self._reservations.end(*lineage.key)
        return stored

    def _create(self, lineage: BatchLineage) -> None:
        create_file(self._store, batch_path(BATCHES, *lineage.key), to_json(lineage).encode())

    def lineages(self) -> Iterator[BatchLineage]:
        """All lineages, sorted by key."""
        return batch_lineages(self._store)

    def reservations(self) -> Iterator[BatchLineage]:
        """As ``Sink.reservations``."""
        return self._reservations.all()

    def reserve(self, wanted: BatchLineage, positions: Mapping[TopicPartition, int]) -> None:
        """As ``Sink.reserve``."""
        self._reservations.reserve(wanted, positions)

    def release(self, query: str, batch: int) -> None:
        """As ``Sink.release``."""
        self._reservations.release(query, batch)
