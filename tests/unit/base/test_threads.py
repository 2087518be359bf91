"""Threads: named, stoppable with a deadline, and never just gone."""

from __future__ import annotations

import threading

import pytest

from zkconsumer.base.threads import StopSignal, live_threads, spawn

TIMEOUT_MS = 30_000
"""Only what does not happen takes so long."""


def nobody(name: str, error: BaseException) -> None:
    raise AssertionError(f"{name} died: {error}")


def until_told(stop: StopSignal) -> None:
    assert stop.wait(TIMEOUT_MS)


def test_a_thread_has_its_name_and_ends_when_told() -> None:
    worker = spawn("waits", until_told, nobody)
    assert worker.is_alive
    assert "waits" in live_threads()
    assert "waits" in [thread.name for thread in threading.enumerate()]
    assert worker.stop(TIMEOUT_MS)
    assert not worker.is_alive
    assert "waits" not in live_threads()


def test_a_thread_does_not_keep_the_process_alive() -> None:
    worker = spawn("daemon", until_told, nobody)
    [thread] = [thread for thread in threading.enumerate() if thread.name == "daemon"]
    assert thread.daemon
    assert worker.stop(TIMEOUT_MS)


@pytest.mark.parametrize("error", [ValueError("bad"), MemoryError(), SystemExit(3)])
def test_a_death_by_any_exception_is_reported(error: BaseException) -> None:
    deaths: list[tuple[str, BaseException]] = []

    def die(stop: StopSignal) -> None:
        raise error

    worker = spawn("dies", die, lambda *death: deaths.append(death))
    assert worker.join(TIMEOUT_MS)
    assert deaths == [("dies", error)]


def test_a_natural_end_is_not_a_death() -> None:
    assert spawn("ends", lambda stop: None, nobody).join(TIMEOUT_MS)


def test_stop_wakes_a_thread_that_is_blocked_elsewhere() -> None:
    door = threading.Event()

    def blocked(stop: StopSignal) -> None:
        assert door.wait(TIMEOUT_MS / 1000)

    worker = spawn("blocked", blocked, nobody, wake=door.set)
    assert worker.stop(TIMEOUT_MS)
    assert door.is_set()


def test_a_thread_that_does_not_end_in_time_is_told_apart() -> None:
    door = threading.Event()

    def deaf(stop: StopSignal) -> None:
        assert door.wait(TIMEOUT_MS / 1000)

    worker = spawn("deaf", deaf, nobody)
    assert not worker.stop(1)
    assert worker.is_alive
    door.set()
    assert worker.join(TIMEOUT_MS)


def test_a_thread_may_ask_itself_to_stop() -> None:
    answers: list[bool] = []
    ready = threading.Event()

    def stops_itself(stop: StopSignal) -> None:
        assert ready.wait(TIMEOUT_MS / 1000)
        answers.append(worker.stop(TIMEOUT_MS))
        answers.append(stop.is_set())

    worker = spawn("itself", stops_itself, nobody)
    ready.set()
    assert worker.join(TIMEOUT_MS)
    assert answers == [False, True]
