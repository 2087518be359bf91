"""``observe.lag_trend``: whether a group catches up, and when."""

from __future__ import annotations

from zkconsumer.observe.lag_trend import (
    ALREADY_CAUGHT_UP,
    COMMITS_MAX,
    STALLED_MS,
    UNKNOWN_CATCH_UP,
    CatchUp,
    LagHistory,
    LagTrend,
)


def observed(
    *,
    produced_per_s: float,
    read_per_s: float,
    backlog: int,
    seconds: int,
    commit_every_s: int = 5,
    interval_s: int = 2,
) -> LagHistory:
    """A group that reads at a steady rate, and commits now and then, observed at an interval."""
    made = LagHistory()
    for at_s in range(0, seconds + 1, interval_s):
        committed = int(at_s // commit_every_s * commit_every_s * read_per_s)
        end = int(backlog + at_s * produced_per_s)
        made.add(at_s * 1_000, min(committed, end), end)
    return made


def test_one_observation_has_no_trend_unless_everything_was_read() -> None:
    assert LagHistory().catch_up == UNKNOWN_CATCH_UP
    made = LagHistory()
    made.add(1_000, 5, 9)
    assert made.catch_up == UNKNOWN_CATCH_UP
    made.add(2_000, 9, 9)
    assert made.catch_up == ALREADY_CAUGHT_UP


def test_a_group_that_reads_faster_than_the_producers_catches_up_at_the_time_that_the_rates_give() -> None:
    made = observed(produced_per_s=100, read_per_s=150, backlog=30_000, seconds=120)
    assert made.catch_up.trend is LagTrend.CATCHING_UP
    assert made.catch_up.in_ms is not None
    truth_ms = 600_000 - 120_000
    assert abs(made.catch_up.in_ms - truth_ms) <= 0.1 * truth_ms


def test_commits_once_a_minute_do_not_look_like_a_growing_lag() -> None:
    made = observed(produced_per_s=100, read_per_s=150, backlog=60_000, seconds=230, commit_every_s=60)
    assert made.catch_up.trend is LagTrend.CATCHING_UP


def test_a_group_that_reads_slower_falls_behind_and_never_catches_up() -> None:
    made = observed(produced_per_s=150, read_per_s=100, backlog=1_000, seconds=120)
    assert made.catch_up == CatchUp(LagTrend.FALLING_BEHIND)


def test_a_group_as_fast_as_the_producers_is_steady() -> None:
    made = observed(produced_per_s=100, read_per_s=100, backlog=5_000, seconds=120)
    assert made.catch_up == CatchUp(LagTrend.STEADY)


def test_a_lag_that_goes_up_and_down_is_no_trend() -> None:
    made = LagHistory()
    for number, lag in enumerate((3, 9, 2, 8, 4, 7, 3, 9, 2)):
        made.add(number * 5_000, 100 * number, 100 * number + lag)
    assert made.catch_up == CatchUp(LagTrend.STEADY)


def test_without_commits_the_group_is_steady_or_falls_behind_once_the_commit_interval_is_over() -> None:
    for growth, trend in ((0, LagTrend.STEADY), (1, LagTrend.FALLING_BEHIND)):
        made = LagHistory()
        made.add(0, 5, 10)
        made.add(STALLED_MS - 1, 5, 10 + growth)
        assert made.catch_up == UNKNOWN_CATCH_UP
        made.add(STALLED_MS, 5, 10 + growth)
        assert made.catch_up == CatchUp(trend)


def test_a_group_that_had_nothing_to_read_for_long_does_not_fall_behind_at_the_first_record() -> None:
    """Also if nobody observed meanwhile, and whatever the trend of the commits before was."""
    for idle_times_s in (range(100, 1_000), (999,)):
        made = LagHistory()
        for number in range(4):
            made.add(number * 1_000, 100 * number, 200 + 100 * number - 40 * number)
        made.add(5_000, 500, 500)
        for at_s in idle_times_s:
            made.add(at_s * 1_000, 500, 500)
        made.add(1_000_000, 500, 505)
        assert made.catch_up == UNKNOWN_CATCH_UP
        made.add(1_000_000 + STALLED_MS - 1, 500, 505)
        assert made.catch_up == UNKNOWN_CATCH_UP
        made.add(1_000_000 + STALLED_MS, 500, 505)
        assert made.catch_up == CatchUp(LagTrend.FALLING_BEHIND)


def test_an_offset_that_was_set_back_and_a_new_topic_begin_a_new_trend() -> None:
    for offset, end in ((3, 50_000), (20_000, 20_001)):
        made = observed(produced_per_s=100, read_per_s=150, backlog=30_000, seconds=120)
        made.add(125_000, offset, end)
        assert made.catch_up == UNKNOWN_CATCH_UP


def test_the_history_of_a_group_that_commits_for_a_day_is_bounded() -> None:
    made = observed(produced_per_s=100, read_per_s=100, backlog=5_000, seconds=86_400, interval_s=5)
    assert len(made._times) <= COMMITS_MAX
    assert made.catch_up == CatchUp(LagTrend.STEADY)
