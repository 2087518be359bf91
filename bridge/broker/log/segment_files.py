"""Stores the bytes of segments on disk or in memory.

Both are append-only.  On disk an append writes after the last byte.  Once it has returned, the operating system has the
bytes, so they are not lost when the process is killed, but they can be lost in a power failure.  With
``SyncPolicy.EVERY_APPEND`` they are not: each append also syncs the file, which costs a disk access, and the first
append to a file syncs its directory, because the name of the file is stored there.
"""

from __future__ import annotations

import mmap
import os
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from enum import Enum
from pathlib import Path
from typing import Protocol

OPEN_FILES_MAX = 128
"""How many segments are kept open; the one used longest ago is closed first."""


class SyncPolicy(Enum):
    """When bytes are synced to the disk."""

    SYSTEM = "system"
    """When the operating system decides: survives ``kill -9``, not a power failure."""
    EVERY_APPEND = "every-append"
    """Before an append is acknowledged: survives a power failure, if the disk really writes at a sync."""


def sync_folder(folder: Path) -> None:
    """Sync the entries of a directory, so that they survive a power failure.  ``OSError``."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def make_folder(folder: Path, policy: SyncPolicy) -> None:
    """Create a directory and its parents, unless they exist.  ``OSError``."""
    made = [path for path in (folder, *folder.parents) if not path.exists()]
    folder.mkdir(parents=True, exist_ok=True)
    if policy is SyncPolicy.EVERY_APPEND:
        for path in made:
            sync_folder(path.parent)


class SegmentFile(Protocol):
    """The bytes of one segment."""

    def append(self, data: bytes) -> None:
        """Add all of it, or raise ``OSError`` and add nothing."""

    def read(self, position: int, size: int) -> bytes:
        """The bytes from this position on; fewer at the end."""

    def read_all(self) -> memoryview:
        """All bytes, to be read once and released."""

    def truncate(self, size: int) -> None:
        """Remove all bytes after the first ``size``."""

    def delete(self) -> None:
        """Delete it permanently."""

    @property
    def size(self) -> int:
        """How many bytes it has."""

    @property
    def modified_ms(self) -> int:
        """When it was last written, in ms since 1970."""


class MemoryFile:
    """A segment in memory, lost when the process ends."""

    def __init__(self) -> None:
        self._data = bytearray()
        self.modified_ms = 0

    @property
    def size(self) -> int:
        return len(self._data)

    def append(self, data: bytes) -> None:
        self._data += data

    def read(self, position: int, size: int) -> bytes:
        return bytes(self._data[position : position + size])

    def read_all(self) -> memoryview:
        return memoryview(bytes(self._data))

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def delete(self) -> None:
        self._data.clear()


class OpenFiles:
    """Descriptors of segment files, opened on demand."""

    def __init__(self, policy: SyncPolicy) -> None:
        self.policy = policy
        self._open: OrderedDict[Path, int] = OrderedDict()

    def descriptor(self, path: Path) -> int:
        """The descriptor of this file, which is created if it does not exist."""
        found = self._open.get(path)
        if found is not None:
            self._open.move_to_end(path)
            return found
        opened = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        self._open[path] = opened
        if len(self._open) > OPEN_FILES_MAX:
            os.close(self._open.popitem(last=False)[1])
        return opened

    def close(self, path: Path) -> None:
        """Close one file."""
        descriptor = self._open.pop(path, None)
        if descriptor is not None:
            os.close(descriptor)

    def close_all(self) -> None:
        """Close all files."""
        for path in list(self._open):
            self.close(path)


class DiskFile:
    """A segment in a file."""

    def __init__(self, path: Path, files: OpenFiles) -> None:
        self.path = path
        self._files = files
        self._size = path.stat().st_size if path.exists() else 0

    @property
    def size(self) -> int:
        return self._size

    @property
    def modified_ms(self) -> int:
        return int(self.path.stat().st_mtime_ns // 1_000_000) if self.path.exists() else 0

    def append(self, data: bytes) -> None:
        with self._truncate_on_error() as descriptor:
            view = memoryview(data)
            position = self._size
            while view:
                written = os.pwrite(descriptor, view, position)
                view, position = view[written:], position + written
            if self._files.policy is SyncPolicy.EVERY_APPEND:
                os.fdatasync(descriptor)
                if self._size == 0:
                    sync_folder(self.path.parent)
        self._size += len(data)

    @contextmanager
    def _truncate_on_error(self) -> Iterator[int]:
        descriptor = self._files.descriptor(self.path)
        try:
            yield descriptor
        except OSError:
            # If this fails, too, the next append overwrites the bytes after the known size, and recovery cuts them off.
            with suppress(OSError):
                os.ftruncate(descriptor, self._size)
            raise

    def read(self, position: int, size: int) -> bytes:
        return os.pread(self._files.descriptor(self.path), max(0, min(size, self._size - position)), position)

    def read_all(self) -> memoryview:
        if self._size == 0:
            return memoryview(b"")
        return memoryview(mmap.mmap(self._files.descriptor(self.path), self._size, access=mmap.ACCESS_READ))

    def truncate(self, size: int) -> None:
        os.ftruncate(self._files.descriptor(self.path), size)
        self._size = size

    def delete(self) -> None:
        self._files.close(self.path)
        self.path.unlink(missing_ok=True)
