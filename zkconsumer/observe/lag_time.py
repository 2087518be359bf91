"""How long the first unread record of a partition has been waiting.  Pure: observations in, an answer out.

    the position            offset of the group, start and end of the log           UnreadPosition
    the first unread record its timestamp, or why there is none                     FirstUnread
    the observed log ends   when the offset was appended, if it was observed        LogEndHistory
                            |
                            v
    CaughtUp | KnownLagTime | LagTimeAtLeast | UnknownLagTime

The lag is now minus the timestamp of the first record that the group has not read.  It is 0 (``CaughtUp``) only if the
log has no such record; a known lag is at least 1 ms.  Every other answer names what is known and why the rest is not.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, TypeAlias

from zkconsumer.observe.lag_trend import ALREADY_CAUGHT_UP, CatchUp

if TYPE_CHECKING:
    from zkconsumer.observe.lag_trend import LagHistory
    from zkconsumer.observe.log_end_history import LogEndHistory

CLOCK_DIFFERENCE_MS_MAX = 2_000
"""A timestamp that is less than this in the future is the present: clocks of machines differ."""

NO_TIMESTAMP = -1
"""The timestamp of a record without one, in every format."""


class TimestampKind(Enum):
    """What a time is; the values are shown, the first two as ``message.timestamp.type`` of a topic names them.

    ``OBSERVED``: the log end offset was observed before and after the record was appended, and the time between is
    interpolated.
    """

    CREATE_TIME = "CreateTime"
    LOG_APPEND_TIME = "LogAppendTime"
    OBSERVED = "observed"


# --- answers ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class CaughtUp:
    """The log has no unread record."""


@dataclass(frozen=True, slots=True)
class KnownLagTime:
    """The lag in ms, at least 1; ``timestamp_ms``: of the first unread record, ms since 1970, of this ``kind``.

    ``error_ms_max``: by how much the time may differ from the time of the append, if it was interpolated; else 0.
    """

    lag_ms: int
    timestamp_ms: int
    kind: TimestampKind
    error_ms_max: int = 0


@dataclass(frozen=True, slots=True)
class LagTimeAtLeast:
    """The lag is more than this: the record was there at the first observation.  ``reason``: why no more is known."""

    lag_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class UnknownLagTime:
    """Nothing is known about the lag in time; ``reason`` is half a sentence."""

    reason: str


LagTime: TypeAlias = CaughtUp | KnownLagTime | LagTimeAtLeast | UnknownLagTime


@dataclass(frozen=True, slots=True)
class PartitionLagTime:
    """The lag of a group in one partition: in time, and its trend."""

    lag: LagTime
    catch_up: CatchUp

    @classmethod
    def of(cls, lag: LagTime, history: LagHistory) -> PartitionLagTime:
        """The lag with the trend of its observations.  Caught up, the offset may be before the end of the log: only
        markers of transactions may be left.
        """
        return cls(lag, ALREADY_CAUGHT_UP if isinstance(lag, CaughtUp) else history.catch_up)


# --- observations -----------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UnreadPosition:
    """The offset from which the group reads next, and the log.

    ``offset`` None: the group has none, or without ``is_offset_known`` it could not be read; ``log_start`` and
    ``log_end`` None: they are not known.  ``log_end`` is the end for this group: with ``read_committed`` the last
    stable offset.
    """

    offset: int | None
    log_start: int | None
    log_end: int | None
    is_offset_known: bool = True

    @property
    def has_unread_records(self) -> bool:
        """Whether the first unread record is in the log, so that its timestamp can be read."""
        return self.offset is not None and self.problem == "" and self.offset != self.log_end

    @property
    def problem(self) -> str:
        """Why the first unread record cannot be identified; empty if it can, or if there is none."""
        if not self.is_offset_known:
            return "the offset of the group is not known"
        if self.offset is None:
            return "the group has no offset here, so auto.offset.reset decides which record it reads first"
        if self.log_end is None:
            return "the end of the log is not known"
        if self.offset > self.log_end:
            return f"the offset is beyond the end of the log ({self.log_end}), so auto.offset.reset decides"
        if self.log_start is not None and self.offset < self.log_start:
            return (
                f"the offset is before the start of the log ({self.log_start}), so auto.offset.reset decides which "
                "record is read first"
            )
        return ""


@dataclass(frozen=True, slots=True)
class UnreadRecord:
    """The first record at or after the offset: its offset, and its timestamp in ms since 1970 (-1: it has none)."""

    offset: int
    timestamp_ms: int
    kind: TimestampKind


@dataclass(frozen=True, slots=True)
class NoUnreadRecord:
    """The log has no record that the group would read from its offset up to ``next_offset``: only markers of
    transactions, aborted records, or offsets that compaction has removed.
    """

    next_offset: int


@dataclass(frozen=True, slots=True)
class UnreadRecordProblem:
    """The first unread record, or its timestamp, could not be read."""

    reason: str


FirstUnread: TypeAlias = UnreadRecord | NoUnreadRecord | UnreadRecordProblem

WITHOUT_TIMESTAMPS = UnreadRecordProblem("the messages have no timestamps (message format 0)")


# --- the decision -----------------------------------------------------------------------------------------------


def lag_time(position: UnreadPosition, first: FirstUnread | None, history: LogEndHistory, now_ms: int) -> LagTime:
    """The lag of a position.

    ``first`` None: it was not read; then only ``history`` can help.  ``now_ms``: ms since 1970, of the clock that
    ``history`` was filled with.
    """
    if position.problem:
        return UnknownLagTime(position.problem)
    offset, log_end = position.offset, position.log_end
    assert offset is not None, "a position without an offset has a problem"
    assert log_end is not None, "a position without a log end has a problem"
    if offset == log_end:
        return CaughtUp()
    if isinstance(first, NoUnreadRecord):
        if first.next_offset >= log_end:
            return CaughtUp()
        return _by_observation(first.next_offset, "the first unread record was not found", history, now_ms)
    if isinstance(first, UnreadRecord):
        if first.offset >= log_end:
            return CaughtUp()  # records after the end, appended since it was read
        if first.timestamp_ms == NO_TIMESTAMP:
            return _by_observation(first.offset, "the first unread record has no timestamp", history, now_ms)
        lag_ms = now_ms - first.timestamp_ms
        if lag_ms >= -CLOCK_DIFFERENCE_MS_MAX:
            return KnownLagTime(max(1, lag_ms), first.timestamp_ms, first.kind)
        reason = (
            f"the timestamp of the first unread record ({first.kind.value}) is {-lag_ms // 1000} s in the future: "
            "compare the clocks of the producer, the broker and this machine"
        )
        return _by_observation(first.offset, reason, history, now_ms)
    reason = first.reason if first is not None else "the first unread record was not read"
    return _by_observation(offset, reason, history, now_ms)


def _by_observation(offset: int, reason: str, history: LogEndHistory, now_ms: int) -> LagTime:
    appended = history.append_time(offset)
    if appended is None:
        return UnknownLagTime(reason)
    lag_ms = now_ms - appended.estimate_ms
    if appended.earliest_ms is None:
        return LagTimeAtLeast(lag_ms, reason) if lag_ms > 0 else UnknownLagTime(reason)
    error_ms_max = max(appended.latest_ms - appended.estimate_ms, appended.estimate_ms - appended.earliest_ms)
    return KnownLagTime(max(1, lag_ms), appended.estimate_ms, TimestampKind.OBSERVED, error_ms_max)


# --- many partitions --------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class LagTimeTotal:
    """The largest lag in time of several partitions, and what it leaves out.

    ``largest_ms``: of those that are known, at least or caught up; None if there are none.  ``kind``: of the largest
    known one.  ``at_least``: partitions whose lag is only known to be more than a time.  ``unknown``: the others.
    """

    partitions: int
    largest_ms: int | None
    kind: TimestampKind | None
    at_least: int
    unknown: int

    @classmethod
    def of(cls, times: Iterable[LagTime]) -> LagTimeTotal:
        """The total of these partitions."""
        partitions = at_least = unknown = 0
        largest_ms: int | None = None
        kind: TimestampKind | None = None
        for each in times:
            partitions += 1
            match each:
                case CaughtUp():
                    largest_ms = largest_ms or 0
                case KnownLagTime(lag_ms, _, its_kind):
                    if largest_ms is None or lag_ms > largest_ms:
                        largest_ms, kind = lag_ms, its_kind
                case LagTimeAtLeast(lag_ms):
                    at_least += 1
                    if largest_ms is None or lag_ms > largest_ms:
                        largest_ms, kind = lag_ms, None
                case UnknownLagTime():
                    unknown += 1
        return cls(partitions, largest_ms, kind, at_least, unknown)

    @property
    def is_exact(self) -> bool:
        """Whether no partition may have a larger lag."""
        return not self.at_least and not self.unknown
