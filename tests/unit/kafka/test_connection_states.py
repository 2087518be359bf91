"""The states of connections, as ClusterConnectionStatesTest of Kafka requires them."""

from __future__ import annotations

import random

import pytest

from zkconsumer.base.timer import FOREVER_MS
from zkconsumer.errors import AuthenticationException
from zkconsumer.kafka.net.connection_states import ClusterConnectionStates, ConnectionState
from zkconsumer.testing.manual_clock import ManualClock

BACKOFF_MS, BACKOFF_MAX_MS = 10_000, 60_000
SETUP_MS, SETUP_MAX_MS = 10_000, 127_000
NODE, OTHER, THIRD = 1001, 2002, 3003


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def states() -> ClusterConnectionStates:
    return ClusterConnectionStates(
        reconnect_backoff_ms=BACKOFF_MS,
        reconnect_backoff_max_ms=BACKOFF_MAX_MS,
        connection_setup_timeout_ms=SETUP_MS,
        connection_setup_timeout_max_ms=SETUP_MAX_MS,
        uniform=random.Random(7).random,
    )


def test_a_connection_goes_from_connecting_to_ready_to_disconnected(
    states: ClusterConnectionStates, clock: ManualClock
) -> None:
    assert states.can_connect(NODE, clock.now_ms())
    assert states.connection_delay_ms(NODE, clock.now_ms()) == 0

    states.connecting(NODE, clock.now_ms(), "localhost")
    assert states.connection_state(NODE) is ConnectionState.CONNECTING
    assert states.is_connecting(NODE)
    assert not states.can_connect(NODE, clock.now_ms())
    assert not states.is_ready(NODE, clock.now_ms())
    assert not states.is_blacked_out(NODE, clock.now_ms())
    assert not states.has_ready_nodes(clock.now_ms())
    assert states.connection_delay_ms(NODE, clock.now_ms()) == pytest.approx(SETUP_MS, rel=0.2)

    clock.move(100)
    states.ready(NODE)
    assert states.connection_state(NODE) is ConnectionState.READY
    assert states.is_ready(NODE, clock.now_ms())
    assert states.has_ready_nodes(clock.now_ms())
    assert not states.is_connecting(NODE)
    assert not states.is_blacked_out(NODE, clock.now_ms())
    assert states.connection_delay_ms(NODE, clock.now_ms()) == FOREVER_MS

    clock.move(15_000)
    states.disconnected(NODE, clock.now_ms())
    assert states.connection_state(NODE) is ConnectionState.DISCONNECTED
    assert states.is_disconnected(NODE)
    assert states.is_blacked_out(NODE, clock.now_ms())
    assert not states.is_connecting(NODE)
    assert not states.has_ready_nodes(clock.now_ms())
    assert not states.can_connect(NODE, clock.now_ms())
    left_ms = states.connection_delay_ms(NODE, clock.now_ms())
    assert left_ms == pytest.approx(BACKOFF_MS, rel=0.2)
    clock.move(left_ms)
    assert states.can_connect(NODE, clock.now_ms())


def test_the_nodes_have_states_of_their_own(states: ClusterConnectionStates, clock: ManualClock) -> None:
    assert states.can_connect(NODE, clock.now_ms())
    assert states.can_connect(OTHER, clock.now_ms())
    states.connecting(OTHER, clock.now_ms(), "localhost")
    assert not states.has_ready_nodes(clock.now_ms())
    states.ready(OTHER)
    states.connecting(NODE, clock.now_ms(), "localhost")
    assert states.has_ready_nodes(clock.now_ms()), "the other one is"
    states.ready(NODE)

    clock.move(12_000)
    states.disconnected(OTHER, clock.now_ms())
    assert states.has_ready_nodes(clock.now_ms())
    assert states.is_blacked_out(OTHER, clock.now_ms())
    assert not states.is_blacked_out(NODE, clock.now_ms())

    clock.move(states.connection_delay_ms(OTHER, clock.now_ms()))
    states.disconnected(NODE, clock.now_ms())
    assert states.is_blacked_out(NODE, clock.now_ms())
    assert not states.is_blacked_out(OTHER, clock.now_ms())
    assert not states.has_ready_nodes(clock.now_ms())


def test_a_failed_login_is_kept_until_the_node_is_ready(states: ClusterConnectionStates, clock: ManualClock) -> None:
    error = AuthenticationException("no path to CA")
    states.connecting(NODE, clock.now_ms(), "localhost")
    clock.move(100)
    states.authentication_failed(NODE, clock.now_ms(), error)
    clock.move(1000)
    assert states.connection_state(NODE) is ConnectionState.AUTHENTICATION_FAILED
    assert states.authentication_error(NODE) is error
    assert states.is_disconnected(NODE)
    assert states.connecting_nodes() == []
    assert not states.has_ready_nodes(clock.now_ms())
    assert not states.can_connect(NODE, clock.now_ms())

    clock.move(states.connection_delay_ms(NODE, clock.now_ms()))
    assert states.can_connect(NODE, clock.now_ms())
    states.connecting(NODE, clock.now_ms(), "localhost")
    assert states.authentication_error(NODE) is error
    states.ready(NODE)
    assert states.authentication_error(NODE) is None


def test_a_removed_node_may_be_connected_at_once(states: ClusterConnectionStates, clock: ManualClock) -> None:
    states.connecting(NODE, clock.now_ms(), "localhost")
    states.ready(NODE)
    states.disconnected(NODE, clock.now_ms())
    assert states.is_blacked_out(NODE, clock.now_ms())
    states.remove(NODE)
    assert states.can_connect(NODE, clock.now_ms())
    assert not states.is_blacked_out(NODE, clock.now_ms())
    assert states.connection_delay_ms(NODE, clock.now_ms()) == 0


def test_the_backoff_has_a_maximum(states: ClusterConnectionStates, clock: ManualClock) -> None:
    for _ in range(100):
        states.connecting(NODE, clock.now_ms(), "localhost")
        clock.move(10)
        states.disconnected(NODE, clock.now_ms())
        left_ms = states.connection_delay_ms(NODE, clock.now_ms())
        assert left_ms <= BACKOFF_MAX_MS
        assert not states.can_connect(NODE, clock.now_ms())
        clock.move(left_ms)
        assert states.can_connect(NODE, clock.now_ms())


def test_the_backoff_doubles_with_each_failure(states: ClusterConnectionStates, clock: ManualClock) -> None:
    for failures in range(10):
        states.connecting(NODE, clock.now_ms(), "localhost")
        states.disconnected(NODE, clock.now_ms())
        expected = min(BACKOFF_MS * 2**failures, BACKOFF_MAX_MS)
        assert states.connection_delay_ms(NODE, clock.now_ms()) == pytest.approx(expected, rel=0.2)
        clock.move(states.connection_delay_ms(NODE, clock.now_ms()))


def test_a_port_that_closes_before_it_is_ready_is_connected_less_and_less(
    states: ClusterConnectionStates, clock: ManualClock
) -> None:
    for failures in range(3):
        states.connecting(NODE, clock.now_ms(), "localhost")
        states.checking_api_versions(NODE)
        states.disconnected(NODE, clock.now_ms())
        expected = min(BACKOFF_MS * 2**failures, BACKOFF_MAX_MS)
        assert states.connection_delay_ms(NODE, clock.now_ms()) == pytest.approx(expected, rel=0.2)
    states.connecting(NODE, clock.now_ms(), "localhost")
    states.ready(NODE)
    states.disconnected(NODE, clock.now_ms())
    assert states.connection_delay_ms(NODE, clock.now_ms()) == pytest.approx(BACKOFF_MS, rel=0.2)


def test_a_throttled_node_is_not_ready_until_the_time_is_over(
    states: ClusterConnectionStates, clock: ManualClock
) -> None:
    states.connecting(NODE, clock.now_ms(), "localhost")
    states.ready(NODE)
    assert states.throttle_delay_ms(NODE, clock.now_ms()) == 0
    states.throttle(NODE, clock.now_ms() + 100)
    states.throttle(NODE, clock.now_ms() + 20)
    assert states.throttle_delay_ms(NODE, clock.now_ms()) == 100
    clock.move(50)
    assert states.throttle_delay_ms(NODE, clock.now_ms()) == states.poll_delay_ms(NODE, clock.now_ms()) == 50
    assert not states.is_ready(NODE, clock.now_ms())
    assert not states.has_ready_nodes(clock.now_ms())
    clock.move(50)
    assert states.throttle_delay_ms(NODE, clock.now_ms()) == 0
    assert states.poll_delay_ms(NODE, clock.now_ms()) == states.connection_delay_ms(NODE, clock.now_ms())
    assert states.is_ready(NODE, clock.now_ms())


def test_the_only_address_is_dropped_after_its_attempt_and_resolved_again(states: ClusterConnectionStates) -> None:
    states.connecting(NODE, 0, "localhost")
    assert states.current_address(NODE) is None
    states.set_addresses(NODE, ["127.0.0.1"])
    assert states.current_address(NODE) == "127.0.0.1"
    states.connecting(NODE, 0, "localhost")
    assert states.current_address(NODE) is None


def test_each_attempt_uses_the_next_address(states: ClusterConnectionStates) -> None:
    states.connecting(NODE, 0, "several")
    states.set_addresses(NODE, ["10.0.0.1", "10.0.0.2", "10.0.0.3"])
    used = []
    for _ in range(3):
        used.append(states.current_address(NODE))
        states.disconnected(NODE, 0)
        states.connecting(NODE, 0, "several")
    assert used == ["10.0.0.1", "10.0.0.2", "10.0.0.3"]
    assert states.current_address(NODE) is None, "all were tried, so the name is resolved again"


def test_an_established_connection_that_ends_makes_the_name_be_resolved_again(states: ClusterConnectionStates) -> None:
    states.connecting(NODE, 0, "several")
    states.set_addresses(NODE, ["10.0.0.1", "10.0.0.2"])
    states.ready(NODE)
    states.disconnected(NODE, 0)
    states.connecting(NODE, 0, "several")
    assert states.current_address(NODE) is None


def test_another_host_of_a_node_has_other_addresses(states: ClusterConnectionStates) -> None:
    states.connecting(NODE, 0, "several")
    states.set_addresses(NODE, ["10.0.0.1", "10.0.0.2"])
    states.connecting(NODE, 0, "localhost")
    assert states.host(NODE) == "localhost"
    assert states.current_address(NODE) is None
    states.set_addresses(NODE, ["127.0.0.1"])
    assert states.current_address(NODE) == "127.0.0.1"


def test_another_host_of_a_node_begins_without_a_backoff_of_the_old_one(
    states: ClusterConnectionStates, clock: ManualClock
) -> None:
    for _ in range(3):
        states.connecting(NODE, clock.now_ms(), "old")
        states.disconnected(NODE, clock.now_ms())
    states.connecting(NODE, clock.now_ms(), "new")
    assert states.connection_setup_timeout_ms(NODE) == pytest.approx(SETUP_MS, rel=0.2)
    states.disconnected(NODE, clock.now_ms())
    assert states.connection_delay_ms(NODE, clock.now_ms()) == pytest.approx(BACKOFF_MS, rel=0.2)


def test_a_connection_is_being_prepared_until_it_is_ready_or_lost(states: ClusterConnectionStates) -> None:
    assert not states.is_preparing_connection(NODE)
    states.connecting(NODE, 0, "localhost")
    assert states.is_preparing_connection(NODE)
    states.checking_api_versions(NODE)
    assert states.is_preparing_connection(NODE)
    states.disconnected(NODE, 0)
    assert not states.is_preparing_connection(NODE)
    states.connecting(NODE, 0, "localhost")
    states.ready(NODE)
    assert not states.is_preparing_connection(NODE)


def test_the_setup_timeout_doubles_until_a_connection_is_established(states: ClusterConnectionStates) -> None:
    for failures in range(4):
        states.connecting(NODE, 0, "localhost")
        assert states.connecting_nodes() == [NODE]
        assert states.connection_setup_timeout_ms(NODE) == pytest.approx(SETUP_MS * 2**failures, rel=0.2)
        states.disconnected(NODE, 0)
        assert states.connecting_nodes() == []
    states.connecting(NODE, 0, "localhost")
    assert states.connection_setup_timeout_ms(NODE) == pytest.approx(SETUP_MAX_MS, rel=0.2)

    states.ready(NODE)
    assert states.connection_setup_timeout_ms(NODE) == pytest.approx(SETUP_MS, rel=0.2)
    assert states.connecting_nodes() == []
    states.disconnected(NODE, 0)
    states.connecting(NODE, 0, "localhost")
    assert states.connection_setup_timeout_ms(NODE) == pytest.approx(SETUP_MS, rel=0.2), "a lost one does not count"


def test_only_attempts_that_are_late_time_out(states: ClusterConnectionStates, clock: ManualClock) -> None:
    states.connecting(NODE, clock.now_ms(), "localhost")
    states.connecting(OTHER, clock.now_ms(), "localhost")
    assert states.nodes_with_connection_setup_timeout(clock.now_ms()) == []
    clock.move(SETUP_MS // 2)
    states.connecting(THIRD, clock.now_ms(), "localhost")
    clock.move(SETUP_MS * 7 // 10)
    assert states.nodes_with_connection_setup_timeout(clock.now_ms()) == [NODE, OTHER]
    assert states.time_to_next_setup_timeout_ms(clock.now_ms()) == 0
    states.disconnected(NODE, clock.now_ms())
    states.disconnected(OTHER, clock.now_ms())
    left_ms = states.time_to_next_setup_timeout_ms(clock.now_ms())
    clock.move(left_ms - 1)
    assert states.nodes_with_connection_setup_timeout(clock.now_ms()) == []
    clock.move(1)
    assert states.nodes_with_connection_setup_timeout(clock.now_ms()) == [THIRD]
    states.disconnected(THIRD, clock.now_ms())
    assert states.nodes_with_connection_setup_timeout(clock.now_ms()) == []
    assert states.time_to_next_setup_timeout_ms(clock.now_ms()) == FOREVER_MS
