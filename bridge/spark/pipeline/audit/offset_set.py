"""``OffsetSet``: a set of offsets of one partition, as ranges [first, end).  Pure.

Ranges are disjoint, do not touch, and are sorted, so the memory is that of the holes, not that of the added ranges.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator


class OffsetSet:
    """Offsets.  ``_firsts`` and ``_ends`` have the same length: the bounds of each range."""

    __slots__ = ("_ends", "_firsts")

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._firsts: list[int] = []
        self._ends: list[int] = []
        for first, end in ranges:
            self.add(first, end)

    def __iter__(self) -> Iterator[tuple[int, int]]:
        return zip(self._firsts, self._ends, strict=True)

    def __bool__(self) -> bool:
        return bool(self._firsts)

    @property
    def first(self) -> int:
        """The lowest offset; there must be one."""
        return self._firsts[0]

    @property
    def end(self) -> int:
        """The offset after the highest one; there must be one."""
        return self._ends[-1]

    @property
    def count(self) -> int:
        """The number of offsets."""
        return sum(self._ends) - sum(self._firsts)

    def add(self, first: int, end: int) -> None:
        """Adds the offsets [first, end)."""
        if first >= end:
            return
        low = bisect_left(self._ends, first)
        high = bisect_right(self._firsts, end)
        if low < high:
            first = min(first, self._firsts[low])
            end = max(end, self._ends[high - 1])
        self._firsts[low:high] = [first]
        self._ends[low:high] = [end]

    def common(self, first: int, end: int) -> list[tuple[int, int]]:
        """The ranges of [first, end) that are in the set."""
        found = []
        for at in range(bisect_right(self._ends, first), len(self._firsts)):
            if self._firsts[at] >= end or first >= end:
                break
            found.append((max(first, self._firsts[at]), min(end, self._ends[at])))
        return found

    def common_count(self, first: int, end: int) -> int:
        """How many offsets of [first, end) are in the set."""
        return sum(last - start for start, last in self.common(first, end))

    def missing(self, first: int, end: int) -> list[tuple[int, int]]:
        """The ranges of [first, end) that are not in the set."""
        found, position = [], first
        for start, last in self.common(first, end):
            if position < start:
                found.append((position, start))
            position = last
        if position < end:
            found.append((position, end))
        return found

    def contains(self, first: int, end: int) -> bool:
        """Whether all offsets of [first, end) are in the set."""
        return not self.missing(first, end)
