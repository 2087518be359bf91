"""Pauses that grow, as ExponentialBackoffTest of Kafka requires them."""

from __future__ import annotations

import random

import pytest

from zkconsumer.kafka.net.exponential_backoff import ExponentialBackoff


def test_a_pause_doubles_with_each_failure_within_its_jitter() -> None:
    backoff = ExponentialBackoff(100, 2000, random.Random(1).random)
    for _ in range(100):
        for attempts in range(5):
            assert backoff.backoff(attempts) == pytest.approx(100 * 2**attempts, rel=0.2)
        assert all(1600 <= backoff.backoff(attempts) <= 2000 for attempts in range(5, 60))


def test_without_jitter_the_pauses_are_exact() -> None:
    backoff = ExponentialBackoff(100, 400, lambda: 0.9, jitter=0.0)
    assert [backoff.backoff(attempts) for attempts in range(4)] == [100, 200, 400, 400]


def test_a_maximum_that_is_not_above_the_initial_pause_means_a_constant_pause() -> None:
    for most in (0, 100):
        backoff = ExponentialBackoff(100, most, lambda: 0.0)
        assert [backoff.backoff(attempts) for attempts in (0, 1, 50)] == [100, 100, 100]


def test_the_multiplier_may_be_another_than_two() -> None:
    assert ExponentialBackoff(10, 10_000, lambda: 0.5, multiplier=3).backoff(2) == 90
