"""The thread between two calls of ``poll``: when it works, what wakes it up, and how it ends."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator

import pytest

from bridge.client.kafka_consumer.heartbeat_thread import HeartbeatThread
from tests.two_thread_scheduler import Choices, ScheduledCondition, Scheduler
from zkconsumer.base.clock import SYSTEM_CLOCK
from zkconsumer.base.threads import OnThreadError, ThreadTarget, WorkerThread, spawn
from zkconsumer.testing.manual_clock import ManualClock

JOIN_MS = 30_000


class NoWorld:
    """Nothing happens without the threads."""

    def next_event_ms(self) -> int | None:
        return None

    def advance(self) -> None:
        pass


class FakeWork:
    """A ``BackgroundWork``; ``deadlines`` says when it is needed next, and its polls are noted with their times."""

    def __init__(self, clock: ManualClock) -> None:
        self.clock = clock
        self.deadline_ms: int | None = None
        self.polls: list[int] = []
        self.questions = 0
        self.on_question: Callable[[], None] = lambda: None
        self.on_poll: Callable[[], None] = lambda: None

    def poll_in_background(self) -> None:
        self.polls.append(self.clock.now_ms())
        self.deadline_ms = None
        self.on_poll()

    def background_deadline_ms(self) -> int | None:
        self.questions += 1
        deadline_ms = self.deadline_ms
        self.on_question()
        return deadline_ms


class Fixture:
    """A heartbeat thread in virtual time, beside the program's thread, which is the test."""

    def __init__(self) -> None:
        self.clock = ManualClock(0)
        self.scheduler = Scheduler(self.clock, NoWorld(), Choices())
        self.work = FakeWork(self.clock)
        self.errors: list[BaseException] = []
        self.started = 0
        self.thread = HeartbeatThread(
            "test", self.work, self.clock, lambda _, error: self.errors.append(error), start_thread=self._start
        )
        self.thread._changed = ScheduledCondition(self.scheduler)  # type: ignore[assignment]

    def _start(
        self, name: str, target: ThreadTarget, on_error: OnThreadError, *, wake: Callable[[], None]
    ) -> WorkerThread:
        self.started += 1
        return self.scheduler.start_thread(name, target, on_error, wake=wake)  # type: ignore[return-value]

    def run_for(self, duration_ms: int) -> None:
        self.scheduler.sleep(duration_ms)


@pytest.fixture
def fixture() -> Iterator[Fixture]:
    made = Fixture()
    yield made
    made.scheduler.end()


def test_it_works_at_the_deadline_and_not_before(fixture: Fixture) -> None:
    fixture.work.deadline_ms = 500
    fixture.thread.start()
    fixture.run_for(499)
    assert fixture.work.polls == []
    fixture.run_for(10)
    assert fixture.work.polls == [500]


def test_without_a_deadline_it_sleeps_until_there_is_one(fixture: Fixture) -> None:
    fixture.thread.start()
    fixture.run_for(100_000)
    assert fixture.work.questions == 1
    fixture.work.deadline_ms = 100_200
    fixture.thread.wake_before(100_200)
    fixture.run_for(1_000)
    assert fixture.work.polls == [100_200]


def test_an_earlier_deadline_ends_the_sleep(fixture: Fixture) -> None:
    fixture.work.deadline_ms = 5_000
    fixture.thread.start()
    fixture.run_for(100)
    fixture.work.deadline_ms = 300
    fixture.thread.wake_before(300)
    fixture.run_for(1_000)
    assert fixture.work.polls == [300]


@pytest.mark.parametrize("deadline_ms", [5_000, 6_000, None])
def test_a_deadline_that_is_not_earlier_does_not_wake_it_up(fixture: Fixture, deadline_ms: int | None) -> None:
    """Each call of ``poll`` is such an event: two threads that take turns at each call cost much."""
    fixture.work.deadline_ms = 5_000
    fixture.thread.start()
    fixture.run_for(100)
    for _ in range(50):
        fixture.thread.wake_before(deadline_ms)
        fixture.run_for(1)
    assert fixture.work.questions == 1


def test_an_event_between_the_question_and_the_sleep_is_not_missed(fixture: Fixture) -> None:
    """The thread has read that nothing is due; before it sleeps, the other thread has something for it."""

    def event() -> None:
        fixture.work.on_question = lambda: None
        fixture.work.deadline_ms = 200
        fixture.thread.wake_before(200)

    fixture.work.deadline_ms = 5_000
    fixture.work.on_question = event
    fixture.thread.start()
    fixture.run_for(1_000)
    assert fixture.work.polls == [200]


def test_an_event_after_the_first_sleep_is_not_missed_either(fixture: Fixture) -> None:
    """The end of the former sleep says nothing about the next one."""
    asked: list[int] = []

    def event() -> None:
        asked.append(fixture.clock.now_ms())
        if len(asked) == 2:
            fixture.work.deadline_ms = 700
            fixture.thread.wake_before(700)

    fixture.work.on_question = event
    fixture.work.deadline_ms = 500
    fixture.thread.start()
    fixture.run_for(10_000)
    assert fixture.work.polls == [500, 700]


def test_after_a_pause_of_the_process_it_works_once(fixture: Fixture) -> None:
    fixture.work.deadline_ms = 500
    fixture.thread.start()
    fixture.run_for(100)
    fixture.clock.move(3_600_000)
    fixture.run_for(1_000)
    assert fixture.work.polls == [3_600_100]


def test_it_starts_once(fixture: Fixture) -> None:
    fixture.thread.start()
    fixture.thread.start()
    assert fixture.started == 1


def test_close_ends_its_sleep(fixture: Fixture) -> None:
    fixture.work.deadline_ms = 3_600_000
    fixture.thread.start()
    fixture.run_for(100)
    assert fixture.thread.close(5_000)
    assert fixture.clock.now_ms() == 100
    assert fixture.work.polls == []


def test_close_without_start_does_nothing(fixture: Fixture) -> None:
    assert fixture.thread.close(5_000)


def test_close_waits_no_longer_than_its_time(fixture: Fixture) -> None:
    """The thread may be inside of a name look-up, which cannot be interrupted."""
    fixture.work.deadline_ms = 100
    fixture.work.on_poll = lambda: fixture.scheduler.sleep(60_000)
    fixture.thread.start()
    fixture.run_for(200)
    assert not fixture.thread.close(5_000)
    assert fixture.clock.now_ms() == 5_200


def test_an_error_ends_it_and_is_reported(fixture: Fixture) -> None:
    def fail() -> None:
        raise ZeroDivisionError

    fixture.work.deadline_ms = 100
    fixture.work.on_poll = fail
    fixture.thread.start()
    fixture.run_for(1_000)
    assert [type(error) for error in fixture.errors] == [ZeroDivisionError]
    assert fixture.thread.close(5_000)


def test_a_real_thread_works_and_ends() -> None:
    has_polled = threading.Event()

    class RealWork:
        def poll_in_background(self) -> None:
            has_polled.set()

        def background_deadline_ms(self) -> int | None:
            return None if has_polled.is_set() else SYSTEM_CLOCK.now_ms() + 1

    errors: list[BaseException] = []
    thread = HeartbeatThread(
        "real", RealWork(), SYSTEM_CLOCK, lambda _, error: errors.append(error), start_thread=spawn
    )
    thread.start()
    assert has_polled.wait(JOIN_MS / 1000)
    assert thread.close(JOIN_MS)
    assert not errors
