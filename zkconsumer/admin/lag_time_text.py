"""The lag in time and its trend, as tables and JSON show them.  Pure.

In a table: ``0`` caught up; ``12.3``, never less than 0.1; ``> 12`` at least; ``?`` unknown.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING

from zkconsumer.admin.text_format import count_text, duration_text
from zkconsumer.observe.lag_time import CaughtUp, KnownLagTime, LagTime, LagTimeAtLeast, LagTimeTotal, UnknownLagTime
from zkconsumer.observe.lag_trend import CatchUp, LagTrend

if TYPE_CHECKING:
    from collections.abc import Iterable

    from zkconsumer.observe.lag_time import PartitionLagTime

UNKNOWN_TIME = "?"
WHOLE_SECONDS_FROM_MS = 10_000


def seconds_text(ms: int) -> str:
    """Seconds with a tenth below 10 s, rounded up: so a lag that is not 0 is never shown as 0."""
    if ms >= WHOLE_SECONDS_FROM_MS:
        return str(round(ms / 1000))
    return f"{math.ceil(ms / 100) / 10:.1f}"


def lag_seconds_text(lag: LagTime) -> str:
    """The value of the column LAG-SECONDS."""
    match lag:
        case CaughtUp():
            return "0"
        case KnownLagTime(lag_ms):
            return seconds_text(lag_ms)
        case LagTimeAtLeast(lag_ms):
            return f"> {seconds_text(lag_ms)}"
        case UnknownLagTime():
            return UNKNOWN_TIME


def trend_text(catch_up: CatchUp) -> str:
    """The value of the column TREND."""
    return UNKNOWN_TIME if catch_up.trend is LagTrend.UNKNOWN else catch_up.trend.value


def caught_up_in_text(catch_up: CatchUp) -> str | None:
    """The value of the column CAUGHT-UP-IN; None: a steady lag has no such time."""
    match catch_up.trend:
        case LagTrend.CAUGHT_UP:
            return "now"
        case LagTrend.CATCHING_UP:
            assert catch_up.in_ms is not None, "this trend has a time"
            return duration_text(max(1_000, catch_up.in_ms))
        case LagTrend.FALLING_BEHIND:
            return "never"
        case LagTrend.STEADY:
            return None
        case LagTrend.UNKNOWN:
            return UNKNOWN_TIME


def lag_time_json(time: PartitionLagTime) -> dict[str, object]:
    """The values for JSON.

    ``lag_seconds`` is null unless it is known, and 0 only if the group has read everything; ``lag_time`` has the rest:
    ``state`` is ``caught-up``, ``known``, ``at-least`` or ``unknown``.
    """
    at_least: int | None = None
    seconds: float | None = None
    timestamp_ms: int | None = None
    kind: str | None = None
    error_ms_max: int | None = None
    reason: str | None = None
    match time.lag:
        case CaughtUp():
            state, seconds = "caught-up", 0
        case KnownLagTime(lag_ms, timestamp_ms, its_kind, error_ms_max):
            state, seconds, kind = "known", lag_ms / 1000, its_kind.value
        case LagTimeAtLeast(at_least, reason):
            state = "at-least"
        case UnknownLagTime(reason):
            state = "unknown"
    in_ms = time.catch_up.in_ms
    return {
        "lag_seconds": seconds,
        "trend": time.catch_up.trend.value,
        "caught_up_in_seconds": None if in_ms is None else in_ms / 1000,
        "lag_time": {
            "state": state,
            "timestamp_type": kind,
            "timestamp_ms": timestamp_ms,
            "error_seconds_max": None if error_ms_max is None else error_ms_max / 1000,
            "at_least_seconds": None if at_least is None else at_least / 1000,
            "reason": reason,
        },
    }


def lag_time_total_text(total: LagTimeTotal) -> str:
    """The largest lag in seconds and what it leaves out: ``at least 12 (CreateTime)  (1 of 3 partitions not known)``"""
    if total.largest_ms is None or (total.largest_ms == 0 and not total.is_exact):
        largest_text = UNKNOWN_TIME
    elif total.is_exact:
        largest_text = seconds_text(total.largest_ms) if total.largest_ms else "0"
    else:
        largest_text = f"at least {seconds_text(total.largest_ms)}"
    kind = f" ({total.kind.value})" if total.kind is not None and largest_text != UNKNOWN_TIME else ""
    of_all = f"of {count_text(total.partitions, 'partition')}"
    counts = ((total.unknown, "not known"), (total.at_least, "only at least"))
    beside = [f"{count} {of_all} {words}" for count, words in counts if count]
    return f"{largest_text}{kind}" + (f"  ({', '.join(beside)})" if beside else "")


def lag_time_total_json(times: Iterable[PartitionLagTime]) -> dict[str, object]:
    """The totals for JSON.

    ``largest_lag_seconds`` is null if a partition may have a larger lag, ``largest_lag_seconds_known`` leaves it out.
    """
    all_times = list(times)
    total = LagTimeTotal.of(each.lag for each in all_times)
    overall = CatchUp.of_all(each.catch_up for each in all_times)
    trends = Counter(each.catch_up.trend for each in all_times)
    largest_s = None if total.largest_ms is None else total.largest_ms / 1000
    return {
        "largest_lag_seconds": largest_s if total.is_exact else None,
        "largest_lag_seconds_known": largest_s,
        "timestamp_type": None if total.kind is None else total.kind.value,
        "partitions_lag_seconds_at_least": total.at_least,
        "partitions_lag_seconds_not_known": total.unknown,
        "trend": overall.trend.value,
        "caught_up_in_seconds": None if overall.in_ms is None else overall.in_ms / 1000,
        "trends": {trend.value: trends[trend] for trend in LagTrend},
    }
