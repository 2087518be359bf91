"""Splits ranges into tasks as ``KafkaOffsetRangeCalculator`` of Spark (4.0) does.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.spark.decode.offset_ranges import OffsetRange


def cut_into_tasks(
    ranges: Iterable[OffsetRange], min_partitions: int | None, max_records: int | None
) -> list[OffsetRange]:
    """First, no task has more than ``max_records``.  Then, while there are fewer than ``min_partitions`` tasks, the
    large ones are split in proportion to their sizes, to reach about that number.  Empty ranges give no task."""
    whole = [each for each in ranges if each.first < each.end]
    if max_records is not None:
        whole = [part for each in whole for part in _cut(each, -(-_size(each) // max_records))]
    if min_partitions is None or len(whole) >= min_partitions:
        return whole
    total = sum(map(_size, whole))
    small = {each for each in whole if _parts(each, total, min_partitions) == 1}
    left = total - sum(map(_size, small))
    for_large = max(min_partitions - len(small), 1)
    return [part for each in whole for part in _cut(each, 1 if each in small else _parts(each, left, for_large))]


def _size(each: OffsetRange) -> int:
    return each.end - each.first


def _parts(each: OffsetRange, total: int, parts: int) -> int:
    return max(1, int(_size(each) / total * parts + 0.5))


def _cut(each: OffsetRange, parts: int) -> list[OffsetRange]:
    """Parts of almost equal size, the smaller ones first."""
    made = []
    first = each.first
    for left in range(parts, 0, -1):
        size = (each.end - first) // left
        if size:
            made.append(OffsetRange(each.tp, first, first + size))
        first += size
    return made
