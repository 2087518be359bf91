"""Small files that the driver writes in the folder of a table, complete or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

from bridge.spark.pipeline.lineage import BatchLineage, from_json
from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.parquet_manifest import BATCHES, FOLDER, batch_path


def create_file(store: FolderStore, path: str, data: bytes) -> bool:
    """Creates a complete file; False: there is one already."""
    source = f"{FOLDER}/new/{uuid4().hex}"
    store.create_empty(source)
    try:
        store.fill(source, data)
        store.publish(source, path)
    except FileExistsError:
        return False
    finally:
        store.remove(source)
    return True


def batch_keys(store: FolderStore, folder: str) -> Iterator[tuple[str, int]]:
    """The keys whose file is in a folder of ``parquet_manifest.batch_path``, sorted."""
    for query in store.names(folder):
        numbers = [name.removesuffix(".json") for name in store.names(f"{folder}/{query}")]
        yield from ((query, number) for number in sorted(int(each) for each in numbers if each.isdecimal()))


def read_lineage_file(store: FolderStore, path: str) -> BatchLineage:
    """The lineage in a file.  Raises ``FileNotFoundError`` and ``InvalidLineageError``."""
    return from_json(store.read(path).decode("utf-8", "replace"), store.uri(path))


def batch_lineage(store: FolderStore, query: str, batch: int) -> BatchLineage | None:
    """The lineage of a batch in a folder that has lineages only; None: it has none of this batch."""
    path = batch_path(BATCHES, query, batch)
    try:
        lineage = read_lineage_file(store, path)
    except FileNotFoundError:
        return None
    assert lineage.key == (query, batch), f"{path} has the lineage of {lineage.name}"
    return lineage


def batch_lineages(store: FolderStore) -> Iterator[BatchLineage]:
    """All of them, sorted by key."""
    for query, batch in batch_keys(store, BATCHES):
        lineage = batch_lineage(store, query, batch)
        assert lineage is not None, "the lineage of a batch is never removed"
        yield lineage
