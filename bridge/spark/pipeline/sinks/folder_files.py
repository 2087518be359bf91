"""Small files that the driver writes in the folder of a table, complete or not at all."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

from bridge.spark.pipeline.sinks.folder_store import FolderStore
from bridge.spark.pipeline.sinks.parquet_manifest import FOLDER


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
