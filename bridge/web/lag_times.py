"""The interface through which the page gets seconds, trend and catch-up time of partitions.

``LagTimes`` is called once for each read of a group, on the thread that reads, with its session.  ``ObservedTrend`` is
the one that needs no request: what it knows it computes from the offsets that passed while the page was open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from zkconsumer.types import TopicPartition

if TYPE_CHECKING:
    from zkconsumer.admin.admin_session import AnySession
    from zkconsumer.admin.describe import GroupDescribeRow

TREND_WINDOW_MS = 60_000
"""The trend is the change of the lag within this time."""

TREND_SPAN_MIN_MS = 5_000
"""With a shorter observation there is no trend."""

SAMPLE_INTERVAL_MS = 2_500
"""The time between two samples that are kept."""

CAUGHT_UP_S_MAX = 30 * 86_400
"""A catch-up that takes longer than this is shown as none."""


@dataclass(frozen=True, slots=True)
class ShownLagTime:
    """``seconds``: how old the first record is that was not read; None: unknown, never 0 for unknown.

    ``is_at_least``: the true value may be greater.  ``time_kind``: ``CreateTime`` or ``LogAppendTime``, None if not
    known.  ``trend``: records/s by which the lag changes; negative: it catches up.  ``caught_up_in_s``: None: not
    known, or never at this trend.
    """

    seconds: float | None = None
    is_at_least: bool = False
    time_kind: str | None = None
    trend: float | None = None
    caught_up_in_s: float | None = None

    def to_json(self) -> dict[str, object]:
        return {
            "seconds": self.seconds,
            "is_at_least": self.is_at_least,
            "time_kind": self.time_kind,
            "trend": self.trend,
            "caught_up_in_s": self.caught_up_in_s,
        }


class LagTimes(Protocol):
    """One object for each group that is shown; one thread."""

    def observe(
        self, session: AnySession, rows: Sequence[GroupDescribeRow], now_ms: int
    ) -> Mapping[TopicPartition, ShownLagTime]:
        """What is known about these partitions now; ``now_ms``: monotonic.

        May send requests to the brokers.  A failure leaves values None: it must not raise for a broker that does not
        answer.
        """


class ObservedTrend:
    """The trend of each partition's lag, and when it catches up at that trend."""

    def __init__(self) -> None:
        # Oldest first; the newest sample may be younger than SAMPLE_INTERVAL_MS and is then replaced.
        self._samples: deque[tuple[int, dict[TopicPartition, int]]] = deque()

    def observe(
        self, session: AnySession, rows: Sequence[GroupDescribeRow], now_ms: int
    ) -> Mapping[TopicPartition, ShownLagTime]:
        """See ``LagTimes``; sends no request."""
        lags = {
            TopicPartition(row.topic or "", row.partition): max(0, row.lag)
            for row in rows
            if row.partition is not None and row.lag is not None
        }
        self._add(now_ms, lags)
        return {tp: time for tp, lag in lags.items() if (time := self._time_of(tp, lag, now_ms)) is not None}

    def _add(self, now_ms: int, lags: dict[TopicPartition, int]) -> None:
        while self._samples and now_ms - self._samples[0][0] > TREND_WINDOW_MS:
            self._samples.popleft()
        if not self._samples or now_ms - self._samples[-1][0] >= SAMPLE_INTERVAL_MS:
            self._samples.append((now_ms, lags))

    def _time_of(self, tp: TopicPartition, lag: int, now_ms: int) -> ShownLagTime | None:
        oldest = next(((at_ms, lags[tp]) for at_ms, lags in self._samples if tp in lags), None)
        if oldest is None or now_ms - oldest[0] < TREND_SPAN_MIN_MS:
            return None
        trend = (lag - oldest[1]) * 1000 / (now_ms - oldest[0])
        in_s = 0.0 if lag == 0 else lag / -trend if trend < 0 else None
        return ShownLagTime(
            trend=round(trend, 2),
            caught_up_in_s=None if in_s is None or in_s > CAUGHT_UP_S_MAX else round(in_s, 1),
        )
