"""The lag in time of a member's own partitions, for its metrics and its health report.

It sends no request: the first record that the program has not acknowledged is usually in memory, in the chunk that the
stream reads or that waits in its queue.  Each call is also an observation of the ends of the logs, so a program that is
scraped or asked for its health regularly has times for messages without timestamps, and trends.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from zkconsumer.errors import InvalidMessageException, UnsupportedCodec
from zkconsumer.kafka.chunks import INVALID_OFFSET, PartitionTopicInfo
from zkconsumer.observe.lag_time import (
    FirstUnread,
    KnownLagTime,
    NoUnreadRecord,
    PartitionLagTime,
    TimestampKind,
    UnknownLagTime,
    UnreadPosition,
    UnreadRecordProblem,
    lag_time,
)
from zkconsumer.observe.lag_trend import UNKNOWN_CATCH_UP, LagHistory
from zkconsumer.observe.log_end_history import LogEndHistory
from zkconsumer.observe.unread_records import first_record_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from zkconsumer.base.clock import Clock
    from zkconsumer.types import TopicPartition

NOT_FETCHED = UnreadRecordProblem("the first unread record has not been fetched yet")
NO_ANSWER = UnknownLagTime("no broker has answered for the partition yet")
OLD_ANSWER = UnknownLagTime("no broker has answered for the partition for a while")


@dataclass(slots=True)
class _Observed:
    """One ownership.  ``first``: the record at ``offset``, None until it is in memory; ``kind``: of the last known
    lag.
    """

    info: PartitionTopicInfo
    log_ends: LogEndHistory = field(default_factory=LogEndHistory)
    lags: LagHistory = field(default_factory=LagHistory)
    offset: int = INVALID_OFFSET
    first: FirstUnread | None = None
    kind: TimestampKind | None = None


class MemberLagTimes:
    """Called by any thread: metrics and health have threads of their own.

    ``valid_ms``: how long a broker's answer counts if it says that the member has read everything.
    """

    def __init__(self, infos: Callable[[], Iterable[PartitionTopicInfo]], clock: Clock, valid_ms: int) -> None:
        self._infos = infos
        self._clock = clock
        self._valid_ms = valid_ms
        self._lock = threading.Lock()
        self._observed: dict[TopicPartition, _Observed] = {}

    def read(self) -> dict[TopicPartition, tuple[PartitionLagTime, TimestampKind | None]]:
        """Each owned partition: its lag, and the kind of its last known timestamp (None: none was known)."""
        with self._lock:
            before, self._observed = self._observed, {}
            for info in self._infos():
                known = before.get(info.tp)
                self._observed[info.tp] = known if known is not None and known.info is info else _Observed(info)
            return {tp: (self._lag_time(observed), observed.kind) for tp, observed in self._observed.items()}

    def _lag_time(self, observed: _Observed) -> PartitionLagTime:
        info, now_ms, wall_ms = observed.info, self._clock.now_ms(), self._clock.wall_ms()
        resets, offset, end = info.resets, info.consumed_offset, info.high_watermark
        if end == INVALID_OFFSET or offset < 0:
            return PartitionLagTime(NO_ANSWER, UNKNOWN_CATCH_UP)
        answered_ms_ago = max(0, now_ms - info.last_response_ms)
        if offset >= end and answered_ms_ago > self._valid_ms:
            return PartitionLagTime(OLD_ANSWER, UNKNOWN_CATCH_UP)
        end = max(offset, end)
        observed.log_ends.add(wall_ms - answered_ms_ago, end)
        if offset != observed.offset or observed.first is None:
            observed.offset, observed.first = offset, None if offset == end else _first_unread(info, offset, resets)
        first = observed.first if observed.first is not None else NOT_FETCHED
        lag = lag_time(UnreadPosition(offset, None, end), first, observed.log_ends, wall_ms)
        observed.lags.add(wall_ms, offset, end)
        if isinstance(lag, KnownLagTime):
            observed.kind = lag.kind
        return PartitionLagTime.of(lag, observed.lags)


def _first_unread(info: PartitionTopicInfo, offset: int, resets: int) -> FirstUnread | None:
    """The first record in the chunks in memory; None: it is not there, and may be later."""
    for chunk in info.queue.chunks():
        if chunk.info is not info or chunk.resets != resets or chunk.next_offset <= offset:
            continue
        if chunk.fetch_offset > offset:
            return None  # a chunk between was taken meanwhile
        try:
            first = first_record_of(chunk.records, offset, chunk.next_offset, chunk.excluded_batches)
        except (InvalidMessageException, UnsupportedCodec) as error:
            return UnreadRecordProblem(f"the first unread record cannot be read: {error}")
        if not isinstance(first, NoUnreadRecord):
            return first
        offset = first.next_offset
    return None
