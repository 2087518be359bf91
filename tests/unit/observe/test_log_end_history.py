"""``observe.log_end_history``: when offsets were appended."""

from __future__ import annotations

from zkconsumer.observe.log_end_history import LOG_END_POINTS_MAX, AppendTime, LogEndHistory


def history(*observed: tuple[int, int]) -> LogEndHistory:
    made = LogEndHistory()
    for at_ms, log_end in observed:
        made.add(at_ms, log_end)
    return made


def test_nothing_is_known_before_the_first_observation_and_after_the_last() -> None:
    assert LogEndHistory().append_time(0) is None
    made = history((1_000, 5), (2_000, 7))
    assert made.append_time(7) is None
    assert made.append_time(4) == AppendTime(None, 1_000, 1_000)


def test_the_time_of_an_offset_is_interpolated_between_the_observations_around_it() -> None:
    made = history((1_000, 0), (2_000, 10))
    assert [made.append_time(offset) for offset in (0, 4, 9)] == [
        AppendTime(1_000, 1_050, 2_000),
        AppendTime(1_000, 1_450, 2_000),
        AppendTime(1_000, 1_950, 2_000),
    ]


def test_a_log_that_did_not_grow_narrows_the_time_of_the_next_record() -> None:
    made = history((1_000, 5), (2_000, 5), (9_000, 5), (10_000, 6))
    assert len(made) == 3
    assert made.append_time(5) == AppendTime(9_000, 9_500, 10_000)
    assert made.append_time(4) == AppendTime(None, 1_000, 1_000)


def test_two_observations_at_one_moment_count_as_the_later_one() -> None:
    made = history((1_000, 5), (1_000, 8), (2_000, 9))
    assert made.append_time(6) == AppendTime(None, 1_000, 1_000)


def test_a_shorter_log_and_a_clock_that_was_set_back_begin_anew() -> None:
    for made in (history((1_000, 5), (2_000, 7), (3_000, 2)), history((5_000, 1), (6_000, 2), (3_000, 2))):
        assert len(made) == 1
        assert made.append_time(1) == AppendTime(None, 3_000, 3_000)


def test_the_same_answer_of_a_broker_by_two_clocks_removes_nothing() -> None:
    made = history((1_000, 5), (2_000, 7), (3_000, 7), (2_999, 7), (1_100, 7), (3_500, 8))
    assert made.append_time(6) == AppendTime(1_000, 1_750, 2_000)
    assert made.append_time(7) == AppendTime(3_000, 3_250, 3_500)


def test_the_observations_of_a_month_are_few_and_their_distance_is_a_fraction_of_their_age() -> None:
    made = LogEndHistory()
    for number in range(86_400):
        made.add(number * 30_000, number * 10)
    assert len(made) <= LOG_END_POINTS_MAX
    now_ms = 86_399 * 30_000
    for offset in range(0, 863_980, 997):
        found = made.append_time(offset)
        assert found is not None
        truth_ms = offset * 3_000
        if found.earliest_ms is not None:
            assert found.earliest_ms <= truth_ms + 30_000
            assert truth_ms <= found.latest_ms
            assert abs(found.estimate_ms - truth_ms) <= max(2_000, 0.05 * (now_ms - truth_ms))
