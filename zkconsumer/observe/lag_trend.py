"""Whether a group catches up with a partition, and when it will have caught up.  Pure.

A member commits now and then (every 60 s in the Scala consumer's default), so between two commits the lag grows even
if the member is faster than the producers.  Only lags that were observed right after a commit can be compared:

    lag   |\\    |\\                    `.` observations with a changed offset: a line through them is the trend
          | \\ . | \\ .
          '------'------> time

If the offset has not changed for ``STALLED_MS``, longer than two such intervals, the group reads nothing.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

TREND_WINDOW_MS = 300_000
"""How far back commits count."""

COMMITS_MIN = 3
"""A trend needs so many observed commits: two points are always on a line."""

COMMITS_MAX = 40
"""Commits that are kept of one partition, the newest."""

STALLED_MS = 150_000
"""Without a commit for this time, and with records to read, the group makes no progress: 2.5 times the default of
``auto.commit.interval.ms`` in the Scala consumer."""

SIGNIFICANT_FRACTION = 0.05
"""A smaller change of the lag, over the window, is no trend."""

NOISE_FACTOR = 2.0
"""A change must be so many times larger than the mean distance of the lags from the line."""


class LagTrend(Enum):
    """The trend of the lag in records; the values are shown."""

    CAUGHT_UP = "caught-up"
    CATCHING_UP = "catching-up"
    STEADY = "steady"
    FALLING_BEHIND = "falling-behind"
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class CatchUp:
    """The trend, and the time until the lag is 0 if the group goes on like this: None if it never will be, or nothing
    is known.
    """

    trend: LagTrend
    in_ms: int | None = None

    @classmethod
    def of_all(cls, partitions: Iterable[CatchUp]) -> CatchUp:
        """Of several partitions together: the worst trend, and the time until the last one has caught up.

        A partition without a known trend makes the whole unknown, unless another one falls behind.
        """
        all_partitions = list(partitions)
        trends = {each.trend for each in all_partitions}
        for trend in (LagTrend.FALLING_BEHIND, LagTrend.UNKNOWN, LagTrend.STEADY):
            if trend in trends:
                return cls(trend)
        if not trends:
            return UNKNOWN_CATCH_UP
        worst = LagTrend.CATCHING_UP if LagTrend.CATCHING_UP in trends else LagTrend.CAUGHT_UP
        return cls(worst, max(each.in_ms or 0 for each in all_partitions))


UNKNOWN_CATCH_UP = CatchUp(LagTrend.UNKNOWN)
ALREADY_CAUGHT_UP = CatchUp(LagTrend.CAUGHT_UP, 0)


class LagHistory:
    """The observed lags of one group in one partition, in records.

    ``_times`` and ``_lags``: the observations in which the offset had changed.  ``_since_ms``, ``_lag_since``: the last
    of them, the first observation, or the first one in which a group that had read everything has records to read.
    """

    __slots__ = ("_end", "_lag", "_lag_since", "_lags", "_now_ms", "_offset", "_since_ms", "_times")

    def __init__(self) -> None:
        self._times = array("q")
        self._lags = array("q")
        self._offset: int | None = None
        self._end = self._lag = self._lag_since = self._now_ms = self._since_ms = 0

    def add(self, at_ms: int, offset: int, log_end: int) -> None:
        """The committed offset and the end of the log at this time (ms).

        An offset or an end that went back (``offsets set``, a topic that was created again), and a clock that was set
        back, begin a new history.
        """
        if self._offset is not None and (offset < self._offset or log_end < self._end or at_ms < self._now_ms):
            del self._times[:], self._lags[:]
            self._offset = None
        had_read_all = self._lag == 0
        self._end, self._lag, self._now_ms = log_end, max(0, log_end - offset), at_ms
        if self._offset == offset:
            if had_read_all:  # it had nothing to commit until now
                self._since_ms, self._lag_since = at_ms, 0
            return
        if self._offset is not None:
            self._times.append(at_ms)
            self._lags.append(self._lag)
            self._forget_old()
        self._offset, self._since_ms, self._lag_since = offset, at_ms, self._lag

    @property
    def catch_up(self) -> CatchUp:
        """The trend after the last observation."""
        if self._offset is None:
            return UNKNOWN_CATCH_UP
        if self._lag == 0:
            return ALREADY_CAUGHT_UP
        if self._now_ms - self._since_ms >= STALLED_MS:
            return CatchUp(LagTrend.FALLING_BEHIND if self._lag > self._lag_since else LagTrend.STEADY)
        if len(self._times) < COMMITS_MIN or self._now_ms - self._times[-1] >= STALLED_MS:
            return UNKNOWN_CATCH_UP
        return self._along_the_line()

    def _along_the_line(self) -> CatchUp:
        """The least-squares line through the lags after commits."""
        count, first_ms = len(self._times), self._times[0]
        times = [at_ms - first_ms for at_ms in self._times]
        mean_time, mean_lag = sum(times) / count, sum(self._lags) / count
        spread = sum((time - mean_time) ** 2 for time in times)
        if not spread:
            return UNKNOWN_CATCH_UP
        slope = sum((t - mean_time) * (lag - mean_lag) for t, lag in zip(times, self._lags, strict=True)) / spread
        distances = [lag - mean_lag - slope * (t - mean_time) for t, lag in zip(times, self._lags, strict=True)]
        noise = (sum(each * each for each in distances) / count) ** 0.5
        change = slope * times[-1]
        if abs(change) <= max(1.0, SIGNIFICANT_FRACTION * mean_lag, NOISE_FACTOR * noise):
            return CatchUp(LagTrend.STEADY)
        if slope > 0:
            return CatchUp(LagTrend.FALLING_BEHIND)
        return CatchUp(LagTrend.CATCHING_UP, round(self._lag / -slope))

    def _forget_old(self) -> None:
        old = max(0, len(self._times) - COMMITS_MAX)
        while len(self._times) - old > COMMITS_MIN and self._now_ms - self._times[old] > TREND_WINDOW_MS:
            old += 1
        if old:
            del self._times[:old], self._lags[:old]
