"""Stores the segments of a partition in a directory or in memory.

A segment's file is named as in Kafka, by its base offset in twenty digits, and contains the same bytes: Kafka's own
``kafka-dump-log`` reads it.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from bridge.broker.log.segment_files import DiskFile, MemoryFile, OpenFiles, SegmentFile, make_folder

SUFFIX = ".log"
OFFSET_DIGITS = 20


class MemoryStorage:
    """Segments in memory."""

    def segments(self) -> list[tuple[int, SegmentFile]]:
        return []

    def create(self, base_offset: int) -> SegmentFile:
        return MemoryFile()


class DiskStorage:
    """Segments in a directory, which is created with the first of them."""

    def __init__(self, folder: Path, files: OpenFiles) -> None:
        self._folder = folder
        self._files = files

    def segments(self) -> list[tuple[int, SegmentFile]]:
        if not self._folder.is_dir():
            return []
        paths = sorted(path for path in self._folder.iterdir() if path.suffix == SUFFIX and path.stem.isdigit())
        return [(int(path.stem), DiskFile(path, self._files)) for path in paths]

    def create(self, base_offset: int) -> SegmentFile:
        make_folder(self._folder, self._files.policy)
        return DiskFile(self._folder / f"{base_offset:0{OFFSET_DIGITS}}{SUFFIX}", self._files)


def remove_folder(folder: Path) -> None:
    """Delete a whole directory; a missing one is not an error."""
    shutil.rmtree(folder, ignore_errors=True)
