"""``admin.lag_time_text``: how a lag in time is shown; an unknown one is never 0."""

from __future__ import annotations

import pytest

from zkconsumer.admin.lag_time_text import (
    caught_up_in_text,
    lag_seconds_text,
    lag_time_json,
    lag_time_total_json,
    lag_time_total_text,
    trend_text,
)
from zkconsumer.observe.lag_time import (
    CaughtUp,
    KnownLagTime,
    LagTime,
    LagTimeAtLeast,
    LagTimeTotal,
    PartitionLagTime,
    TimestampKind,
    UnknownLagTime,
)
from zkconsumer.observe.lag_trend import ALREADY_CAUGHT_UP, UNKNOWN_CATCH_UP, CatchUp, LagTrend

CREATED = KnownLagTime(35_400, 5, TimestampKind.CREATE_TIME)
UNKNOWN, AT_LEAST = UnknownLagTime("why"), LagTimeAtLeast(60_000, "why")


def short(lag_ms: int) -> KnownLagTime:
    return KnownLagTime(lag_ms, 0, TimestampKind.CREATE_TIME)


@pytest.mark.parametrize(
    ("lag", "text"),
    [
        (CaughtUp(), "0"),
        (short(1), "0.1"),
        (short(101), "0.2"),
        (short(9_900), "9.9"),
        (short(9_999), "10.0"),
        (CREATED, "35"),
        (AT_LEAST, "> 60"),
        (UNKNOWN, "?"),
    ],
)
def test_the_column_of_the_seconds(lag: LagTime, text: str) -> None:
    assert lag_seconds_text(lag) == text


@pytest.mark.parametrize(
    ("catch_up", "trend", "caught_up_in"),
    [
        (ALREADY_CAUGHT_UP, "caught-up", "now"),
        (CatchUp(LagTrend.CATCHING_UP, 72_400), "catching-up", "1 min 12 s"),
        (CatchUp(LagTrend.CATCHING_UP, 3), "catching-up", "1 s"),
        (CatchUp(LagTrend.FALLING_BEHIND), "falling-behind", "never"),
        (CatchUp(LagTrend.STEADY), "steady", None),
        (UNKNOWN_CATCH_UP, "?", "?"),
    ],
)
def test_the_columns_of_the_trend(catch_up: CatchUp, trend: str, caught_up_in: str | None) -> None:
    assert (trend_text(catch_up), caught_up_in_text(catch_up)) == (trend, caught_up_in)


@pytest.mark.parametrize(
    ("lags", "text"),
    [
        ([CaughtUp()], "0"),
        ([CaughtUp(), CREATED], "35 (CreateTime)"),
        ([CREATED, UNKNOWN], "at least 35 (CreateTime)  (1 of 2 partitions not known)"),
        ([CREATED, AT_LEAST], "at least 60  (1 of 2 partitions only at least)"),
        ([CaughtUp(), UNKNOWN], "?  (1 of 2 partitions not known)"),
        ([UNKNOWN], "?  (1 of 1 partition not known)"),
    ],
)
def test_the_total_says_what_it_leaves_out(lags: list[LagTime], text: str) -> None:
    assert lag_time_total_text(LagTimeTotal.of(lags)) == text


def test_json_of_a_partition_has_the_time_or_the_reason() -> None:
    known = lag_time_json(PartitionLagTime(CREATED, CatchUp(LagTrend.CATCHING_UP, 72_400)))
    assert (known["lag_seconds"], known["trend"], known["caught_up_in_seconds"]) == (35.4, "catching-up", 72.4)
    assert known["lag_time"] == {
        "state": "known",
        "timestamp_type": "CreateTime",
        "timestamp_ms": 5,
        "error_seconds_max": 0,
        "at_least_seconds": None,
        "reason": None,
    }
    for lag, state, at_least in ((AT_LEAST, "at-least", 60), (UNKNOWN, "unknown", None)):
        found = lag_time_json(PartitionLagTime(lag, UNKNOWN_CATCH_UP))
        assert found["lag_seconds"] is None
        assert isinstance(found["lag_time"], dict)
        assert [found["lag_time"][name] for name in ("state", "at_least_seconds", "reason")] == [state, at_least, "why"]


def test_json_of_all_has_no_largest_lag_if_a_partition_may_have_a_larger_one() -> None:
    times = [
        PartitionLagTime(CREATED, CatchUp(LagTrend.CATCHING_UP, 9_000)),
        PartitionLagTime(CaughtUp(), ALREADY_CAUGHT_UP),
    ]
    found = lag_time_total_json(times)
    assert (found["largest_lag_seconds"], found["trend"], found["caught_up_in_seconds"]) == (35.4, "catching-up", 9)
    found = lag_time_total_json([*times, PartitionLagTime(UNKNOWN, UNKNOWN_CATCH_UP)])
    assert (found["largest_lag_seconds"], found["largest_lag_seconds_known"]) == (None, 35.4)
    assert (found["partitions_lag_seconds_not_known"], found["trend"]) == (1, "unknown")


@pytest.mark.parametrize(
    ("trends", "overall"),
    [
        ([LagTrend.CAUGHT_UP, LagTrend.STEADY], LagTrend.STEADY),
        ([LagTrend.STEADY, LagTrend.UNKNOWN], LagTrend.UNKNOWN),
        ([LagTrend.UNKNOWN, LagTrend.FALLING_BEHIND], LagTrend.FALLING_BEHIND),
        ([], LagTrend.UNKNOWN),
    ],
)
def test_the_worst_trend_is_that_of_the_whole(trends: list[LagTrend], overall: LagTrend) -> None:
    assert CatchUp.of_all(CatchUp(trend) for trend in trends) == CatchUp(overall)
