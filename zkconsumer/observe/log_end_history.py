"""When offsets were appended, as far as the end of the log was observed meanwhile.  Pure.

    add(t1, end 100), add(t2, end 140)      offsets 100 to 139 were appended after t1, and not after t2

Messages of format 0 (Kafka 0.8 and 0.9) have no timestamps, so this is the only source of a time for them.  Between two
observations the time is interpolated by the offset; the true time is between the same two observations, so the error
is less than their distance.  What was appended before the first observation is older than it, and no more is known.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from dataclasses import dataclass

LOG_END_POINTS_MAX = 128
"""Observations that are kept of one partition: 2 kB."""

_POINTS_AFTER_THINNING_MAX = LOG_END_POINTS_MAX * 3 // 4

THINNING_GAP_FRACTION = 0.025
"""Two kept observations are at least this fraction of their age apart, once there are too many."""

_THINNING_GROWTH = 1.5

CLOCK_STEP_MS_MAX = 2_000
"""An observation that is earlier than the one before by at most this counts as made at the same time.

The time of a broker's answer is the present minus its age, which comes from another clock: the same answer, read twice,
differs by 1 ms, or by the length of a pause between the two clocks.
"""


@dataclass(frozen=True, slots=True)
class AppendTime:
    """When an offset was appended: after ``earliest_ms``, not after ``latest_ms``, and probably at ``estimate_ms``.

    Times are in ms since 1970.  ``earliest_ms`` is None if the offset was there at the first observation; then
    ``estimate_ms`` is that observation.
    """

    earliest_ms: int | None
    estimate_ms: int
    latest_ms: int


class LogEndHistory:
    """Observed pairs (time, log end offset) of one partition, in increasing order of time and offset.

    Of consecutive observations with the same end only the first and the last are kept: the next record was appended
    after the last one.  Old observations are thinned out, so that their distance stays a fraction of their age.
    """

    __slots__ = ("_ends", "_times")

    def __init__(self) -> None:
        self._times = array("q")
        self._ends = array("q")

    def __len__(self) -> int:
        return len(self._times)

    def add(self, at_ms: int, log_end: int) -> None:
        """The log ended at this offset at this time.

        An end before the last one (the log was truncated, or the topic was created again) and a clock that was set
        back by more than ``CLOCK_STEP_MS_MAX`` make all earlier observations useless; they are removed.
        """
        times, ends = self._times, self._ends
        if times and times[-1] - CLOCK_STEP_MS_MAX <= at_ms < times[-1]:
            at_ms = times[-1]
        if ends and (log_end < ends[-1] or at_ms < times[-1]):
            del times[:], ends[:]
        if len(ends) >= 2 and ends[-1] == ends[-2] == log_end:
            times[-1] = at_ms
            return
        if times and times[-1] == at_ms:
            ends[-1] = log_end
            return
        times.append(at_ms)
        ends.append(log_end)
        if len(times) > LOG_END_POINTS_MAX:
            self._thin_out(at_ms)

    def append_time(self, offset: int) -> AppendTime | None:
        """When this offset was appended; None: the log ended at or before it at the last observation, or there is
        none.
        """
        after = bisect_right(self._ends, offset)
        if after == len(self._ends):
            return None
        latest_ms, end = self._times[after], self._ends[after]
        if after == 0:
            return AppendTime(None, latest_ms, latest_ms)
        earliest_ms, start = self._times[after - 1], self._ends[after - 1]
        assert start <= offset < end, "bisect_right returns the first end after the offset"
        passed = (offset - start + 0.5) / (end - start)
        return AppendTime(earliest_ms, earliest_ms + round(passed * (latest_ms - earliest_ms)), latest_ms)

    def _thin_out(self, now_ms: int) -> None:
        fraction = THINNING_GAP_FRACTION
        while True:
            kept = self._spaced(now_ms, fraction)
            if len(kept) <= _POINTS_AFTER_THINNING_MAX:
                break
            fraction *= _THINNING_GROWTH
        self._times = array("q", [self._times[index] for index in kept])
        self._ends = array("q", [self._ends[index] for index in kept])

    def _spaced(self, now_ms: int, fraction: float) -> list[int]:
        """The indices that remain if neighbours are at least ``fraction`` of their age apart; the ends always do."""
        times = self._times
        kept = [len(times) - 1]
        for index in range(len(times) - 2, 0, -1):
            # The point is kept if without it the gap would be too large for the age of the newer neighbour.
            newer_ms = times[kept[-1]]
            if newer_ms - times[index - 1] > fraction * (now_ms - newer_ms):
                kept.append(index)
        kept.append(0)
        kept.reverse()
        return kept
