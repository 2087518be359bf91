"""One segment: entries one after the other, and an index of their positions.

The index has three columns of numbers, one row for each entry.  It is made from the whole segment when the log is
opened, and is never stored, so it cannot contradict the bytes.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterator

from bridge.broker.log.batches import StoredBatch
from bridge.broker.log.segment_files import SegmentFile


class Segment:
    """Entries from ``base_offset`` on.  ``modified_ms``: when the last one was appended, in ms since 1970."""

    def __init__(self, base_offset: int, file: SegmentFile, modified_ms: int) -> None:
        self.base_offset = base_offset
        self.modified_ms = modified_ms
        self._file = file
        self._last_offsets = array("q")
        self._ends = array("q")
        self._max_timestamps = array("q")

    @property
    def size(self) -> int:
        """How many bytes it has."""
        return self._file.size

    def index(self, batch: StoredBatch) -> None:
        """Add an entry of the file to the index."""
        self._last_offsets.append(batch.last_offset)
        self._ends.append(batch.end)
        self._max_timestamps.append(batch.max_timestamp)

    def append(self, data: bytes, batches: list[StoredBatch], wall_ms: int) -> None:
        """Store entries, whose positions count from the start of ``data``.  ``OSError``: nothing was stored."""
        base = self._file.size
        self._file.append(data)
        for batch in batches:
            self.index(batch._replace(position=base + batch.position, end=base + batch.end))
        self.modified_ms = wall_ms

    def read(
        self,
        offset: int,
        end_offset: int,
        bytes_max: int,
        *,
        min_one_message: bool,
        may_truncate: bool,
        has_tail: bool = False,
    ) -> bytes:
        """Entries from the one that contains ``offset`` on, up to the last one that ends before ``end_offset``.

        ``min_one_message``: the first is returned whole whatever its size.  ``may_truncate``: if not even the first
        fits, its beginning is returned, as by brokers before 0.10.1.  ``has_tail``: the beginning of the first entry
        that does not fit follows the whole ones, as in Kafka.
        """
        first = bisect_left(self._last_offsets, offset)
        last = bisect_left(self._last_offsets, end_offset)
        if first >= last:
            return b""
        start = self._start(first)
        end = self._start(bisect_left(self._ends, start + bytes_max + 1, first, last))
        if end == start and min_one_message:
            end = self._ends[first]
        if may_truncate if end == start else has_tail:
            end = max(end, min(start + bytes_max, self._ends[last - 1]))
        return self._file.read(start, end - start)

    def first_with_timestamp(self, time_ms: int) -> tuple[int, bytes] | None:
        """The first entry that has a record at or after the time: the offset before it, and its bytes."""
        for at, newest in enumerate(self._max_timestamps):
            if newest >= time_ms:
                return self._entry(at)
        return None

    def max_timestamp_entry(self) -> tuple[int, int, bytes] | None:
        """The greatest timestamp, and the first entry that has it: the offset before it, and its bytes."""
        if not self._max_timestamps:
            return None
        greatest = max(self._max_timestamps)
        return greatest, *self._entry(self._max_timestamps.index(greatest))

    def entries(self) -> Iterator[tuple[StoredBatch, bytes]]:
        """Its entries as far as the index has them (end, last offset, greatest timestamp), each with its bytes."""
        for at, last_offset in enumerate(self._last_offsets):
            _, data = self._entry(at)
            yield StoredBatch(0, len(data), 0, last_offset, self._max_timestamps[at]), data

    def delete(self) -> None:
        """Delete its bytes."""
        self._file.delete()

    def _start(self, at: int) -> int:
        return self._ends[at - 1] if at else 0

    def _entry(self, at: int) -> tuple[int, bytes]:
        before = self._last_offsets[at - 1] if at else self.base_offset - 1
        start = self._start(at)
        return before, self._file.read(start, self._ends[at] - start)
