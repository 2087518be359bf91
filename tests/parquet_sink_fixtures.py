"""A table of parquet files without Spark: the files are written by pyarrow, and a driver ends where a test says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.parquet as pq

from bridge.spark.pipeline.lineage import BatchAttempt
from bridge.spark.pipeline.pipeline_spec import ParquetTarget
from bridge.spark.pipeline.sinks.folder_store import FolderStore, LocalFolderStore
from bridge.spark.pipeline.sinks.parquet_sink import ParquetSink
from bridge.spark.pipeline.sinks.parquet_table import committed_files

NOW_MS = 1_790_000_000_000


def write_files(frame: Any, uri: str, target: ParquetTarget, attempt: BatchAttempt) -> int:
    """As Spark does: two files in folders of time, and files that readers ignore."""
    folder = Path(urlsplit(uri).path, "message_day=2026-11-27")
    folder.mkdir(parents=True)
    (folder / ".part-0.crc").write_text("x")
    for number in range(2):
        pq.write_table(pa.table({"a": frame[number::2]}), folder / f"part-{number}.parquet")
    return len(frame)


def open_sink(path: Path, store: Any = None) -> ParquetSink:
    """As a driver does at its start."""
    return ParquetSink(store or LocalFolderStore(str(path)), ParquetTarget(str(path), "day", "snappy"), write_files)


def values(path: Path) -> list[int]:
    files = committed_files(LocalFolderStore(str(path)))
    return sorted(value for file in files for value in pq.ParquetFile(urlsplit(file).path).read()["a"].to_pylist())


class Crash(Exception):
    """The end of a driver."""


class InterruptedStore:
    """A store that calls ``action`` before call number ``number`` of one of its methods that change the folder."""

    CHANGES = ("create_empty", "fill", "move", "sync", "publish", "remove", "remove_tree")

    def __init__(self, path: Path, number: int, action: Callable[[], object]) -> None:
        self._store: FolderStore = LocalFolderStore(str(path))
        self._left = number
        self._action = action
        self.has_acted = False

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._store, name)
        if name not in self.CHANGES:
            return method

        def call(*arguments: Any) -> Any:
            self._left -= 1
            if self._left == 0:
                self.has_acted = True
                self._action()
            return method(*arguments)

        return call
