"""The three deadlines of a member: what HeartbeatTest of Kafka holds; and the pauses between attempts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from zkconsumer.kafka.group.group_member_config import GroupMemberConfig
from zkconsumer.kafka.group.heartbeat_timers import Heartbeat
from zkconsumer.kafka.net.exponential_backoff import ExponentialBackoff

SESSION_MS, BEAT_MS, POLL_MS, PAUSE_MS = 300, 100, 900, 10


@pytest.fixture
def heartbeat() -> Heartbeat:
    config = GroupMemberConfig(
        {
            "group.id": "g",
            "session.timeout.ms": SESSION_MS,
            "heartbeat.interval.ms": BEAT_MS,
            "max.poll.interval.ms": POLL_MS,
        }
    )
    return Heartbeat(config, ExponentialBackoff(PAUSE_MS, 1000, lambda: 0.5), 0)


def test_a_heartbeat_is_due_after_the_interval(heartbeat: Heartbeat) -> None:
    heartbeat.sent_heartbeat(0)
    assert heartbeat.should_heartbeat(BEAT_MS)
    assert heartbeat.should_heartbeat(2 * BEAT_MS)


def test_no_heartbeat_is_due_before(heartbeat: Heartbeat) -> None:
    heartbeat.sent_heartbeat(0)
    assert not heartbeat.should_heartbeat(BEAT_MS // 2)


def test_the_time_to_the_next_heartbeat_counts_from_the_last_that_was_sent(heartbeat: Heartbeat) -> None:
    heartbeat.sent_heartbeat(0)
    assert [heartbeat.time_to_next_heartbeat(now) for now in (0, 40, 100, 200)] == [100, 60, 0, 0]


def test_a_session_ends_when_no_heartbeat_was_answered(heartbeat: Heartbeat) -> None:
    heartbeat.sent_heartbeat(0)
    assert not heartbeat.session_timeout_expired(SESSION_MS - 1)
    assert heartbeat.session_timeout_expired(SESSION_MS)


def test_an_answer_and_a_new_coordinator_begin_the_session_anew(heartbeat: Heartbeat) -> None:
    heartbeat.sent_heartbeat(0)
    heartbeat.receive_heartbeat(200)
    assert not heartbeat.session_timeout_expired(SESSION_MS)
    assert heartbeat.session_timeout_expired(POLL_MS)
    heartbeat.reset_session_timeout(POLL_MS)
    assert not heartbeat.session_timeout_expired(POLL_MS)
    assert heartbeat.poll_timeout_expired(POLL_MS), "the program's deadline is another one"


def test_reset_timeouts_begins_everything_anew(heartbeat: Heartbeat) -> None:
    heartbeat.sent_heartbeat(0)
    heartbeat.reset_timeouts(10_000)
    assert not heartbeat.session_timeout_expired(10_000)
    assert not heartbeat.poll_timeout_expired(10_000)
    assert heartbeat.time_to_next_heartbeat(10_000) == BEAT_MS


def test_a_generation_that_begins_leaves_the_programs_deadline_alone(heartbeat: Heartbeat) -> None:
    heartbeat.enable(500)
    assert (heartbeat.session_until_ms, heartbeat.poll_until_ms) == (800, POLL_MS)


def test_the_program_has_stayed_away_for_too_long(heartbeat: Heartbeat) -> None:
    assert not heartbeat.poll_timeout_expired(POLL_MS // 2)
    heartbeat.reset_poll_timeout(POLL_MS // 2)
    assert not heartbeat.poll_timeout_expired(POLL_MS)
    assert heartbeat.poll_timeout_expired(POLL_MS // 2 + POLL_MS)


def test_a_heartbeat_that_fails_is_repeated_after_growing_pauses_until_one_is_answered(heartbeat: Heartbeat) -> None:
    pauses = []
    for _ in range(3):
        heartbeat.fail_heartbeat(0)
        pauses.append(heartbeat.time_to_next_heartbeat(0))
    heartbeat.receive_heartbeat(0)
    heartbeat.fail_heartbeat(0)
    assert [*pauses, heartbeat.time_to_next_heartbeat(0)] == [10, 20, 40, 10]


@given(
    initial=st.integers(0, 10_000),
    most=st.integers(0, 10_000),
    attempts=st.integers(0, 1000),
    chance=st.floats(0, 1, exclude_max=True),
)
def test_a_pause_is_never_longer_than_the_longest(initial: int, most: int, attempts: int, chance: float) -> None:
    pause = ExponentialBackoff(initial, most, lambda: chance).backoff(attempts)
    assert 0 <= pause <= max(initial, most)


def test_pauses_differ_by_a_fifth_either_way() -> None:
    pauses = [ExponentialBackoff(100, 10_000, lambda chance=chance: chance).backoff(2) for chance in (0.0, 0.5, 0.999)]
    assert pauses == [320, 400, 480]
