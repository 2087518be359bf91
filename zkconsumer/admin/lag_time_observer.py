"""Observes groups: the lag of each partition in time, its trend, and when the group will have caught up.

    observer = LagTimeObserver(FirstUnreadReader(session.brokers), clock)
    every 30 s:  times = observer.observe(positions)      {GroupPartition: UnreadPosition} -> {GroupPartition: ...}

One observer can watch many groups: the observed ends of the logs and the cached records are common to them.  A first
call, or the only one of a command, has timestamps of records but no trend, and no time for messages without timestamps.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

from zkconsumer.admin.first_unread_reader import FirstUnreadReader, PartitionOffset
from zkconsumer.observe.lag_time import FirstUnread, PartitionLagTime, UnreadPosition, lag_time
from zkconsumer.observe.lag_trend import UNKNOWN_CATCH_UP, LagHistory
from zkconsumer.observe.log_end_history import LogEndHistory
from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.admin.admin_session import AnySession
    from zkconsumer.admin.describe import GroupDescribeRow
    from zkconsumer.admin.log_ranges import LogRange
    from zkconsumer.base.clock import Clock

FORGET_AFTER_MS = 3_600_000
"""A partition that was not observed for this time is forgotten."""

SWEEP_INTERVAL_MS = 60_000

PARTITIONS_OBSERVED_MAX = 100_000
"""Histories that are kept, of group partitions and of logs; with more, those that were not observed longest go."""

H = TypeVar("H")
K = TypeVar("K")


class GroupPartition(NamedTuple):
    """A partition that a group reads."""

    group: str
    tp: TopicPartition


class LagTimeObserver:
    """Keeps what was observed; the answers refer to the time of the call.  One thread."""

    def __init__(self, reader: FirstUnreadReader, clock: Clock) -> None:
        self._reader = reader
        self._clock = clock
        self._logs = _Histories[TopicPartition, LogEndHistory](LogEndHistory)
        self._lags = _Histories[GroupPartition, LagHistory](LagHistory)

    @classmethod
    def of_session(cls, session: AnySession) -> LagTimeObserver:
        """An observer of the groups of a cluster, with ``isolation.level`` of the session's settings."""
        return cls(FirstUnreadReader(session.brokers, session.isolation_level), session.clock)

    def observe(
        self,
        positions: Mapping[GroupPartition, UnreadPosition],
        log_ends: Mapping[TopicPartition, int] | None = None,
    ) -> dict[GroupPartition, PartitionLagTime]:
        """The lags of these positions, which were read just before.

        ``log_ends``: the ends of the logs, where ``UnreadPosition.log_end`` is the last stable offset; None: the same.
        A broker that does not answer makes only its own partitions unknown.
        """
        now_ms = self._clock.wall_ms()
        wanted: dict[PartitionOffset, int] = {}
        for (_, tp), position in positions.items():
            end = position.log_end if log_ends is None else log_ends.get(tp)
            if end is not None:
                self._logs.of(tp, now_ms).add(now_ms, end)
            if position.has_unread_records:
                assert position.offset is not None, "it has unread records"
                assert position.log_end is not None, "it has unread records"
                wanted[PartitionOffset(tp, position.offset)] = position.log_end
        first: Mapping[PartitionOffset, FirstUnread] = self._reader.read(wanted) if wanted else {}
        found: dict[GroupPartition, PartitionLagTime] = {}
        for key, position in positions.items():
            history = self._lags.of(key, now_ms)
            unread = None if position.offset is None else first.get(PartitionOffset(key.tp, position.offset))
            time = lag_time(position, unread, self._logs.of(key.tp, now_ms), now_ms)
            found[key] = PartitionLagTime(time, UNKNOWN_CATCH_UP)
            if not position.problem:
                assert position.offset is not None, "without an offset there is a problem"
                assert position.log_end is not None, "without a log end there is a problem"
                history.add(now_ms, position.offset, position.log_end)
                found[key] = PartitionLagTime.of(time, history)
        self._logs.sweep(now_ms)
        self._lags.sweep(now_ms)
        return found

    def with_lag_times(
        self, rows: Sequence[GroupDescribeRow], log_ranges: Mapping[TopicPartition, LogRange]
    ) -> list[GroupDescribeRow]:
        """The rows of groups with their lags; rows without a partition stay as they are."""
        positions: dict[GroupPartition, UnreadPosition] = {}
        for row in rows:
            if row.topic is not None and row.partition is not None:
                tp = TopicPartition(row.topic, row.partition)
                log = log_ranges.get(tp)
                start, end = (None, None) if log is None else (log.earliest, log.readable_end)
                is_known = "current_offset" not in row.unknown
                positions[GroupPartition(row.group, tp)] = UnreadPosition(row.current_offset, start, end, is_known)
        times = self.observe(positions, {tp: log.latest for tp, log in log_ranges.items()})
        return [
            row
            if row.topic is None or row.partition is None
            else replace(row, lag_time=times[GroupPartition(row.group, TopicPartition(row.topic, row.partition))])
            for row in rows
        ]


class _Histories(Generic[K, H]):
    """Histories by key, each with the time of its last use."""

    def __init__(self, make: Callable[[], H]) -> None:
        self._make = make
        self._histories: dict[K, tuple[int, H]] = {}
        self._swept_at_ms = 0

    def of(self, key: K, now_ms: int) -> H:
        known = self._histories.get(key)
        history = known[1] if known is not None else self._make()
        self._histories[key] = now_ms, history
        return history

    def sweep(self, now_ms: int) -> None:
        if now_ms - self._swept_at_ms < SWEEP_INTERVAL_MS and len(self._histories) <= PARTITIONS_OBSERVED_MAX:
            return
        self._swept_at_ms = now_ms
        kept = {key: known for key, known in self._histories.items() if now_ms - known[0] < FORGET_AFTER_MS}
        if len(kept) > PARTITIONS_OBSERVED_MAX:
            newest = sorted(kept, key=lambda key: kept[key][0], reverse=True)[:PARTITIONS_OBSERVED_MAX]
            kept = {key: kept[key] for key in newest}
        self._histories = kept
