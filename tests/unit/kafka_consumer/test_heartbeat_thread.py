"""``HeartbeatThread``: when it executes its work, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from bridge.client.kafka_consumer.heartbeat_thread import HeartbeatThread
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import live_threads, spawn

WAIT_S = 30


class CountedWork:
    """Work that is due at ``deadline_ms``, and then never."""

    def __init__(self) -> None:
        self.deadline_ms: int | None = None
        self.was_asked = threading.Semaphore(0)
        self.was_done = threading.Semaphore(0)
        self.error: Exception | None = None

    def background_deadline_ms(self) -> int | None:
        self.was_asked.release()
        return self.deadline_ms

    def poll_in_background(self) -> None:
        self.deadline_ms = None
        self.was_done.release()
        if self.error is not None:
            raise self.error


class Harness:
    def __init__(self) -> None:
        self.work = CountedWork()
        self.errors: list[tuple[str, BaseException]] = []
        self.has_ended = threading.Event()
        self.thread = HeartbeatThread("test-heartbeat", self.work, SYSTEM_CLOCK, self._on_error, spawn)

    def _on_error(self, name: str, error: BaseException) -> None:
        self.errors.append((name, error))
        self.has_ended.set()


@pytest.fixture
def harness() -> Iterator[Harness]:
    made = Harness()
    yield made
    assert made.thread.close(WAIT_S * 1000)
    assert "test-heartbeat" not in live_threads()


def test_without_a_deadline_it_waits_until_notify(harness: Harness) -> None:
    harness.thread.start()
    assert harness.work.was_asked.acquire(timeout=WAIT_S)
    assert not harness.work.was_asked.acquire(timeout=0.05)
    harness.work.deadline_ms = SYSTEM_CLOCK.now_ms()
    harness.thread.notify()
    assert harness.work.was_done.acquire(timeout=WAIT_S)


def test_the_work_is_done_when_its_deadline_has_passed(harness: Harness) -> None:
    due_ms = harness.work.deadline_ms = SYSTEM_CLOCK.now_ms() + 30
    harness.thread.start()
    assert harness.work.was_done.acquire(timeout=WAIT_S)
    assert SYSTEM_CLOCK.now_ms() >= due_ms


def test_notify_makes_an_earlier_deadline_count(harness: Harness) -> None:
    harness.work.deadline_ms = SYSTEM_CLOCK.now_ms() + 1_000_000
    harness.thread.start()
    assert harness.work.was_asked.acquire(timeout=WAIT_S)
    harness.work.deadline_ms = SYSTEM_CLOCK.now_ms()
    harness.thread.notify()
    assert harness.work.was_done.acquire(timeout=WAIT_S)


def test_a_second_start_starts_no_second_thread(harness: Harness) -> None:
    harness.thread.start()
    harness.thread.start()
    assert live_threads().count("test-heartbeat") == 1


def test_close_ends_a_thread_that_waits_without_a_deadline(harness: Harness) -> None:
    harness.thread.start()
    assert harness.work.was_asked.acquire(timeout=WAIT_S)
    assert harness.thread.close(WAIT_S * 1000)
    assert live_threads().count("test-heartbeat") == 0


def test_close_without_a_thread_does_nothing(harness: Harness) -> None:
    assert harness.thread.close(0)


def test_an_exception_of_the_work_ends_the_thread_and_is_reported(harness: Harness) -> None:
    harness.work.error = RuntimeError("broken")
    harness.work.deadline_ms = SYSTEM_CLOCK.now_ms()
    harness.thread.start()
    assert harness.has_ended.wait(WAIT_S)
    assert harness.errors == [("test-heartbeat", harness.work.error)]
