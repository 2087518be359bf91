"""``observe.lag_time``: the lag of the first unread record, from observations."""

from __future__ import annotations

import pytest

from zkconsumer.observe.lag_time import (
    CLOCK_DIFFERENCE_MS_MAX,
    WITHOUT_TIMESTAMPS,
    CaughtUp,
    FirstUnread,
    KnownLagTime,
    LagTime,
    LagTimeAtLeast,
    LagTimeTotal,
    NoUnreadRecord,
    TimestampKind,
    UnknownLagTime,
    UnreadPosition,
    UnreadRecord,
    UnreadRecordProblem,
    lag_time,
)
from zkconsumer.observe.log_end_history import LogEndHistory

NOW = 1_000_000
POSITION = UnreadPosition(10, 0, 20)


def history(*observed: tuple[int, int]) -> LogEndHistory:
    made = LogEndHistory()
    for at_ms, log_end in observed:
        made.add(at_ms, log_end)
    return made


def lag(first: FirstUnread | None, *observed: tuple[int, int], position: UnreadPosition = POSITION) -> LagTime:
    return lag_time(position, first, history(*observed), NOW)


@pytest.mark.parametrize("kind", [TimestampKind.CREATE_TIME, TimestampKind.LOG_APPEND_TIME])
def test_a_timestamp_gives_the_lag_and_its_kind(kind: TimestampKind) -> None:
    assert lag(UnreadRecord(10, NOW - 7_500, kind)) == KnownLagTime(7_500, NOW - 7_500, kind)


def test_the_lag_is_0_only_at_the_end_of_the_log() -> None:
    assert lag(None, position=UnreadPosition(20, 0, 20)) == CaughtUp()
    just_now = lag(UnreadRecord(19, NOW, TimestampKind.CREATE_TIME), position=UnreadPosition(19, 0, 20))
    assert just_now == KnownLagTime(1, NOW, TimestampKind.CREATE_TIME)


def test_transaction_markers_up_to_the_end_are_no_unread_records() -> None:
    assert lag(NoUnreadRecord(20)) == CaughtUp()
    assert isinstance(lag(NoUnreadRecord(19)), UnknownLagTime)
    assert lag(UnreadRecord(20, NOW, TimestampKind.CREATE_TIME)) == CaughtUp()


@pytest.mark.parametrize(
    ("position", "words"),
    [
        (UnreadPosition(None, 0, 20), "no offset"),
        (UnreadPosition(10, 0, None), "end of the log is not known"),
        (UnreadPosition(21, 0, 20), "beyond the end"),
        (UnreadPosition(10, 11, 20), "before the start of the log (11), so auto.offset.reset decides"),
    ],
)
def test_without_a_position_inside_the_log_the_lag_is_unknown_even_if_it_was_observed(
    position: UnreadPosition, words: str
) -> None:
    found = lag(UnreadRecord(10, 5, TimestampKind.CREATE_TIME), (NOW - 9_000, 5), (NOW - 8_000, 25), position=position)
    assert isinstance(found, UnknownLagTime)
    assert words in found.reason


def test_a_clock_that_differs_a_little_gives_the_smallest_lag_and_not_0() -> None:
    at = NOW + CLOCK_DIFFERENCE_MS_MAX
    assert lag(UnreadRecord(10, at, TimestampKind.CREATE_TIME)) == KnownLagTime(1, at, TimestampKind.CREATE_TIME)


def test_a_timestamp_in_the_future_is_not_used() -> None:
    found = lag(UnreadRecord(10, NOW + 60_000, TimestampKind.CREATE_TIME))
    assert isinstance(found, UnknownLagTime)
    assert "60 s in the future" in found.reason
    by_observation = lag(
        UnreadRecord(10, NOW + 60_000, TimestampKind.CREATE_TIME), (NOW - 4_000, 10), (NOW - 3_000, 11)
    )
    assert by_observation == KnownLagTime(3_500, NOW - 3_500, TimestampKind.OBSERVED, 500)


@pytest.mark.parametrize(
    "first",
    [
        None,
        WITHOUT_TIMESTAMPS,
        UnreadRecord(10, -1, TimestampKind.CREATE_TIME),
        UnreadRecordProblem("the first unread record cannot be read"),
    ],
)
def test_without_a_timestamp_the_lag_is_what_was_observed(first: FirstUnread | None) -> None:
    assert isinstance(lag(first), UnknownLagTime)
    assert isinstance(lag(first, (NOW, 20)), UnknownLagTime), "a single observation, now, as of a one-shot command"
    at_least = lag(first, (NOW - 5_000, 20), (NOW, 20))
    assert isinstance(at_least, LagTimeAtLeast)
    assert at_least.lag_ms == 5_000
    known = lag(first, (NOW - 5_000, 5), (NOW - 3_000, 16), (NOW, 20))
    assert known == KnownLagTime(4_000, NOW - 4_000, TimestampKind.OBSERVED, 1_000)


def test_compaction_moves_the_first_unread_record_and_its_time() -> None:
    first = UnreadRecord(15, -1, TimestampKind.CREATE_TIME)
    assert lag(first, (NOW - 9_000, 11), (NOW - 8_000, 15), (NOW - 1_000, 16)) == KnownLagTime(
        4_500, NOW - 4_500, TimestampKind.OBSERVED, 3_500
    )


def test_a_total_names_what_it_leaves_out_and_is_never_0_with_an_unknown_part() -> None:
    known = KnownLagTime(4_000, 0, TimestampKind.LOG_APPEND_TIME)
    total = LagTimeTotal.of([CaughtUp(), known, LagTimeAtLeast(3_000, "r"), UnknownLagTime("r")])
    assert total == LagTimeTotal(4, 4_000, TimestampKind.LOG_APPEND_TIME, 1, 1)
    assert not total.is_exact
    assert LagTimeTotal.of([CaughtUp()]) == LagTimeTotal(1, 0, None, 0, 0)
    assert LagTimeTotal.of([UnknownLagTime("r")]).largest_ms is None
    assert LagTimeTotal.of([LagTimeAtLeast(5_000, "r"), known]) == LagTimeTotal(2, 5_000, None, 1, 0)
