"""``Timer``: org.apache.kafka.common.utils.TimerTest, in our own words."""

from __future__ import annotations

import pytest

from zkconsumer.base.timer import FOREVER_MS, Timer
from zkconsumer.testing.manual_clock import ManualClock


def test_the_time_is_read_only_by_an_update() -> None:
    clock = ManualClock()
    timer = Timer(clock, 500)
    clock.move(500)
    assert (timer.remaining_ms, timer.elapsed_ms, timer.is_expired) == (500, 0, False)
    timer.update()
    assert (timer.remaining_ms, timer.elapsed_ms, timer.is_expired) == (0, 500, True)
    clock.move(100)
    timer.update()
    assert (timer.remaining_ms, timer.elapsed_ms) == (0, 600), "the remaining time is never negative"


def test_a_timer_counts_from_its_last_reset() -> None:
    clock = ManualClock()
    timer = Timer(clock, 500)
    clock.move(200)
    timer.reset(400)
    timer.update()
    assert timer.remaining_ms == 200, "a reset counts from the last update"
    timer.update_and_reset(300)
    assert (timer.remaining_ms, timer.timeout_ms) == (300, 300)


def test_a_timer_without_a_limit_never_expires_and_no_timeout_is_negative() -> None:
    clock = ManualClock()
    clock.move(5)
    timer = Timer(clock, FOREVER_MS)
    clock.move(1_000_000_000)
    timer.update()
    assert not timer.is_expired
    with pytest.raises(ValueError, match="-1"):
        timer.reset(-1)


def test_a_time_that_was_read_elsewhere_never_moves_the_timer_back() -> None:
    clock = ManualClock()
    timer = Timer(clock, 100)
    timer.update(timer.now_ms + 40)
    timer.update(timer.now_ms - 30)
    assert timer.remaining_ms == 60
