"""The lag of a query in time, from the progress of its batches.  Pure.

Spark's progress has offsets and the time at which a batch began, but no timestamps of records.  So the time of an
offset is interpolated between the batches that saw the end of the log before and after it; the first batch alone has
none.  All times refer to the beginning of the batch, as ``latestOffset`` does.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import datetime

from bridge.spark.monitoring.query_lag import Lag
from zkconsumer.observe.lag_time import LagTime, UnreadPosition, UnreadRecordProblem, lag_time
from zkconsumer.observe.lag_trend import UNKNOWN_CATCH_UP, CatchUp, LagHistory
from zkconsumer.observe.log_end_history import LogEndHistory
from zkconsumer.types import TopicPartition

NOT_OBSERVED = UnreadRecordProblem("the progress of a query has no timestamps of records, only observed log ends")


@dataclass(slots=True)
class QueryLagTimes:
    """What was observed of one query.  ``_partitions``: those of the last batch; the trend is of them together."""

    _log_ends: dict[tuple[int, TopicPartition], LogEndHistory] = field(default_factory=dict)
    _lags: LagHistory = field(default_factory=LagHistory)
    _partitions: frozenset[tuple[int, TopicPartition]] = frozenset()

    def observe(self, lag: Lag) -> Lag:
        """The same lag with ``lag_times`` and ``catch_up``; without them if the time of the progress is no time."""
        at_ms = _milliseconds(lag.timestamp)
        if at_ms is None:
            return lag
        times: dict[tuple[int, TopicPartition], LagTime] = {}
        ends: dict[tuple[int, TopicPartition], LogEndHistory] = {}
        read = logged = 0
        for source in lag.sources:
            for tp in sorted(source.owned):
                key, offset, log_end = (source.number, tp), source.end.get(tp), source.latest.get(tp)
                history = ends[key] = self._log_ends.get(key) or LogEndHistory()
                if log_end is not None:
                    history.add(at_ms, log_end)
                times[key] = lag_time(UnreadPosition(offset, None, log_end), NOT_OBSERVED, history, at_ms)
                read, logged = read + (offset or 0), logged + (log_end or 0)
        self._log_ends = ends
        return replace(lag, lag_times=times, catch_up=self._catch_up(at_ms, frozenset(ends), read, logged, lag))

    def _catch_up(
        self, at_ms: int, partitions: frozenset[tuple[int, TopicPartition]], read: int, logged: int, lag: Lag
    ) -> CatchUp:
        if partitions != self._partitions:
            self._lags = LagHistory()  # after a rebalance the sums are of other partitions
            self._partitions = partitions
        if not partitions or len(lag.offsets_behind_latest) != len(partitions):
            return UNKNOWN_CATCH_UP
        self._lags.add(at_ms, read, logged)
        return self._lags.catch_up


def _milliseconds(timestamp: str) -> int | None:
    try:
        return round(datetime.fromisoformat(timestamp).timestamp() * 1000)
    except ValueError:
        return None
