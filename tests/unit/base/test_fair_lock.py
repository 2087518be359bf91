"""The lock that threads get in the order in which they asked for it."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable

import pytest

from zkconsumer.base.fair_lock import FairLock

TIMEOUT_S = 30


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def started(work: Callable[[], None]) -> threading.Thread:
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_waiting_threads_get_the_lock_in_their_order() -> None:
    lock = FairLock()
    order: list[int] = []

    def take(number: int) -> None:
        with lock:
            order.append(number)

    threads = []
    with lock:
        for number in range(5):
            threads.append(started(lambda number=number: take(number)))  # type: ignore[misc]
            wait_until(lambda: len(lock._waiting) == len(threads))
    for thread in threads:
        thread.join(TIMEOUT_S)
    assert order == list(range(5))


def test_a_thread_that_takes_the_lock_again_at_once_does_not_keep_another_out() -> None:
    lock = FairLock()
    order: list[str] = []

    def loop() -> None:
        for _ in range(20):
            with lock:
                order.append("loop")
                wait_until(lock.has_waiting_threads)

    thread = started(loop)
    for number in range(20):
        wait_until(lambda number=number: len(order) > 2 * number)  # type: ignore[misc]
        with lock:
            order.append("other")
    thread.join(TIMEOUT_S)
    assert order == ["loop", "other"] * 20


def test_the_owner_may_take_the_lock_again() -> None:
    lock = FairLock()
    with lock:
        with lock:
            pass
        thread = started(lock.acquire)
        wait_until(lock.has_waiting_threads)
        assert thread.is_alive()
    thread.join(TIMEOUT_S)
    assert not thread.is_alive()


def test_only_the_owner_releases_the_lock() -> None:
    lock = FairLock()
    with pytest.raises(RuntimeError):
        lock.release()
    thread = started(lock.acquire)
    thread.join(TIMEOUT_S)
    with pytest.raises(RuntimeError):
        lock.release()


def test_an_interrupted_wait_gives_up_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    """What a signal handler raises while this thread waits."""
    lock = FairLock()
    lock.acquire()
    failed: list[BaseException] = []

    class Interrupted(threading.Semaphore):
        def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
            raise KeyboardInterrupt

    def wait() -> None:
        try:
            lock.acquire()
        except KeyboardInterrupt as error:
            failed.append(error)

    with monkeypatch.context() as patch:
        patch.setattr("zkconsumer.base.fair_lock.threading.Semaphore", Interrupted)
        started(wait).join(TIMEOUT_S)
    assert len(failed) == 1
    assert not lock.has_waiting_threads()
    lock.release()
    with lock:
        """It is free."""


def test_many_threads_take_the_lock_without_an_overlap_and_without_a_lost_wake_up() -> None:
    lock = FairLock()
    inside: list[int] = []
    counts = [0] * 8

    def loop(number: int) -> None:
        for _ in range(500):
            with lock:
                inside.append(number)
                with lock:
                    counts[number] += 1
                assert inside == [number]
                inside.clear()

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        threads = [started(lambda number=number: loop(number)) for number in range(8)]  # type: ignore[misc]
        for thread in threads:
            thread.join(TIMEOUT_S)
    finally:
        sys.setswitchinterval(before)
    assert counts == [500] * 8
