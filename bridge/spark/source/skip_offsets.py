"""Removes the offsets of ``skipOffsets`` from the planned ranges, and logs each range that it removes."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from bridge.spark.decode.offset_ranges import OffsetRange, SkipOffsets, without_skipped

log = logging.getLogger("zkconsumer.spark")


def ranges_to_read(planned: Iterable[OffsetRange], skips: SkipOffsets) -> tuple[list[OffsetRange], int]:
    """The remaining ranges, and how many offsets were removed."""
    wanted: list[OffsetRange] = []
    count = 0
    for each in planned:
        kept, skipped = without_skipped(each, skips)
        wanted += kept
        for one in skipped:
            count += one.end - one.first
            log.warning(
                "offsets-skipped partition=%s first=%d end=%d skipped_offsets=%d",
                one.tp, one.first, one.end, one.end - one.first,
            )  # fmt: skip
    return wanted, count
