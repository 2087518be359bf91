"""The bounds of an interpolated time, and of a trend, hold for every course of a log."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.observe.lag_time import (
    WITHOUT_TIMESTAMPS,
    CaughtUp,
    KnownLagTime,
    LagTimeAtLeast,
    TimestampKind,
    UnknownLagTime,
    UnreadPosition,
    lag_time,
)
from zkconsumer.observe.lag_trend import LagHistory, LagTrend
from zkconsumer.observe.log_end_history import LogEndHistory

GAPS = st.lists(st.integers(0, 5_000), min_size=1, max_size=300)
"""The ms between two appended records."""


@given(gaps=GAPS, pauses=st.lists(st.integers(1, 60_000), min_size=1, max_size=200), read=st.floats(0, 1))
def test_the_error_of_an_interpolated_lag_is_within_its_bound(gaps: list[int], pauses: list[int], read: float) -> None:
    appended_ms = list(accumulate(gaps))
    history = LogEndHistory()
    now_ms = end = 0
    for pause in pauses:
        now_ms += pause
        end = sum(at_ms <= now_ms for at_ms in appended_ms)
        history.add(now_ms, end)
    offset = int(read * end)
    found = lag_time(UnreadPosition(offset, 0, end), WITHOUT_TIMESTAMPS, history, now_ms)
    if offset == end:
        assert found == CaughtUp()
        return
    truth_ms = now_ms - appended_ms[offset]
    match found:
        case KnownLagTime(lag_ms, timestamp_ms, kind, error_ms_max):
            assert kind is TimestampKind.OBSERVED
            assert lag_ms == max(1, now_ms - timestamp_ms)
            assert abs(timestamp_ms - appended_ms[offset]) <= error_ms_max
        case LagTimeAtLeast(lag_ms):
            assert 0 < lag_ms <= truth_ms
        case UnknownLagTime():
            assert len(history) == 1
        case CaughtUp():
            raise AssertionError("a record is unread")


@given(
    produced=st.integers(1, 1_000),
    read=st.integers(1, 1_000),
    backlog=st.integers(0, 10**7),
    commits=st.integers(3, 60),
)
def test_the_trend_of_steady_rates_has_the_sign_and_the_time_of_their_difference(
    produced: int, read: int, backlog: int, commits: int
) -> None:
    history = LagHistory()
    for number in range(commits + 1):
        end = backlog + produced * number
        offset = min(read * number, end)
        history.add(number * 5_000, offset, end)
        if offset == end:
            assert history.catch_up.in_ms == 0
            return
    found, left = history.catch_up, backlog + (produced - read) * commits
    assert found.trend not in {LagTrend.CAUGHT_UP, LagTrend.UNKNOWN}
    if found.trend is LagTrend.CATCHING_UP:
        assert read > produced
        assert found.in_ms is not None
        assert abs(found.in_ms - left / (read - produced) * 5_000) <= 1
    elif found.trend is LagTrend.FALLING_BEHIND:
        assert produced > read
