"""Damages batches in the log of a broker of the sandbox, on its disk, and repairs them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import google_crc32c

from zkconsumer.testing.sandbox import Sandbox
from zkconsumer.wire.entries import LogEntry, iter_entries

_SIZE = 8
_CHECKSUM = 17
_COVERED = 21
_CODEC = 22


class DamagedLog:
    """The log of partition 0 of a topic, format 2."""

    def __init__(self, cluster: Sandbox, topic: str) -> None:
        folder = cluster.run.root / cluster.brokers[0].name / "data" / f"{topic}-0"
        [self.segment] = folder.glob("*.log")

    def batch_of(self, offset: int) -> LogEntry:
        """The batch with this offset."""
        return next(entry for entry in iter_entries(self.segment.read_bytes()) if entry.last_offset >= offset)

    def change_checksum(self, offset: int) -> range:
        """One bit of the batch is changed; returns its offsets."""
        entry = self.batch_of(offset)
        data = self._bytes(entry)
        data[-1] ^= 1
        return self._write(entry, data)

    def set_unknown_codec(self, offset: int) -> range:
        """The batch names codec 7, and its checksum is right."""
        entry = self.batch_of(offset)
        data = self._bytes(entry)
        data[_CODEC] |= 7
        data[_CHECKSUM:_COVERED] = google_crc32c.value(bytes(data[_COVERED:])).to_bytes(4, "big")
        return self._write(entry, data)

    def set_size(self, offset: int, size: int) -> range:
        """The batch has another size in its header."""
        entry = self.batch_of(offset)
        data = self._bytes(entry)
        data[_SIZE : _SIZE + 4] = size.to_bytes(4, "big")
        return self._write(entry, data)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """Afterwards the log is as it was."""
        before = self.segment.read_bytes()
        yield
        self.write(0, before)

    def _bytes(self, entry: LogEntry) -> bytearray:
        return bytearray(self.segment.read_bytes()[entry.position : entry.end])

    def _write(self, entry: LogEntry, data: bytes) -> range:
        self.write(entry.position, data)
        return range(entry.offset, entry.last_offset + 1)

    def write(self, position: int, data: bytes) -> None:
        """The bytes of the file from this position on."""
        with self.segment.open("r+b") as file:
            file.seek(position)
            file.write(data)
