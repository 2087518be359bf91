"""The state of one partition: the contents of the log, the deliveries, and the committed offsets.  Pure.

Offsets are half-open ranges ``[low, high)`` here; evidence contains first and last.
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator

_BITS = 10
_SIZE = 1 << _BITS
_MASK = _SIZE - 1
_ITEM = array("l").itemsize


class LogContents:
    """The existing offsets; several reports of one log (growth, retention, compaction) are combined."""

    def __init__(self) -> None:
        self.is_known = False
        self.start = 0
        self.end = 0
        self.line = 0
        self._reported: list[tuple[int, int]] = []
        self._lows: list[int] = []
        self._highs: list[int] = []

    def add(self, start: int, end: int, missing: tuple[tuple[int, int], ...], line: int) -> None:
        """One report; ``missing`` as (first, last)."""
        self.start = min(self.start, start) if self.is_known else start
        self.end = max(self.end, end) if self.is_known else end
        self.is_known = True
        self.line = line
        self._reported.extend(missing)

    def seal(self) -> None:
        """All reports were added."""
        self._reported.sort()
        for first, last in self._reported:
            if self._highs and first <= self._highs[-1]:
                self._highs[-1] = max(self._highs[-1], last + 1)
            else:
                self._lows.append(first)
                self._highs.append(last + 1)
        self._reported.clear()

    def existing(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The existing ranges of ``[low, high)``; without a report everything exists."""
        if self.is_known:
            low, high = max(low, self.start), min(high, self.end)
        hole = bisect_right(self._highs, low)
        while low < high and hole < len(self._lows) and self._lows[hole] < high:
            if low < self._lows[hole]:
                yield low, self._lows[hole]
            low = self._highs[hole]
            hole += 1
        if low < high:
            yield low, high

    def count(self, low: int, high: int) -> int:
        """How many offsets of ``[low, high)`` exist."""
        return sum(b - a for a, b in self.existing(low, high))

    def has_any(self, low: int, high: int) -> bool:
        return next(self.existing(low, high), None) is not None


class DeliveryMap:
    """For each offset, the position in the history at which it was last delivered; 0 = never."""

    def __init__(self) -> None:
        self._chunks: dict[int, array[int]] = {}
        self.distinct = 0

    def get(self, offset: int) -> int:
        chunk = self._chunks.get(offset >> _BITS)
        return chunk[offset & _MASK] if chunk is not None else 0

    def put(self, offset: int, position: int) -> int:
        """Record a delivery; returns the position of the previous one."""
        chunk = self._chunks.get(offset >> _BITS)
        if chunk is None:
            chunk = self._chunks[offset >> _BITS] = array("l", bytes(_SIZE * _ITEM))
        before = chunk[offset & _MASK]
        chunk[offset & _MASK] = position
        if not before:
            self.distinct += 1
        return before

    def undelivered(self, low: int, high: int) -> Iterator[tuple[int, int]]:
        """The ranges of ``[low, high)`` that were never delivered, each as long as possible."""
        since = low
        at = low
        while at < high:
            chunk = self._chunks.get(at >> _BITS)
            stop = min(high, (at | _MASK) + 1)
            if chunk is None:
                at = stop
                continue
            for offset in range(at, stop):
                if chunk[offset & _MASK]:
                    if since < offset:
                        yield since, offset
                    since = offset + 1
            at = stop
        if since < high:
            yield since, high


class CommitHistory:
    """The committed offset over time."""

    def __init__(self) -> None:
        self.times: list[int] = []
        self.offsets: list[int] = []
        self.zxid = -1

    def append(self, t: int, offset: int) -> None:
        self.times.append(t)
        self.offsets.append(offset)

    @property
    def last(self) -> int | None:
        return self.offsets[-1] if self.offsets else None

    def lowest(self, since: int, until: int, base: int) -> int:
        """The lowest value at any time from ``since`` to ``until``; ``base`` before the first commit."""
        before = bisect_right(self.times, since)
        after = bisect_right(self.times, until)
        in_force = self.offsets[before - 1] if before else base
        return min(in_force, min(self.offsets[before:after], default=in_force))


def subtract_ranges(stretches: Iterable[tuple[int, int]], taken: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """The ranges without those in ``taken`` (sorted, may overlap)."""
    lows = [low for low, _ in taken]
    reach = 0
    highs = [reach := max(reach, high) for _, high in taken]
    for low, high in stretches:
        # The running maximum of the ends is sorted, so bisection finds the first range that may touch.
        index = bisect_right(highs, low)
        while index < bisect_left(lows, high):
            if low < lows[index]:
                yield low, min(lows[index], high)
            low = max(low, highs[index])
            index += 1
        if low < high:
            yield low, high
