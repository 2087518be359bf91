"""The lock that threads get in the order in which they asked for it."""

from __future__ import annotations

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

    class Interrupted:
        """A lock whose second acquire, which waits, is interrupted."""

        def __init__(self) -> None:
            self.times = 0

        def acquire(self) -> None:
            self.times += 1
            if self.times == 2:
                raise KeyboardInterrupt

        def release(self) -> None:
            """Nobody waits."""

    def wait() -> None:
        try:
            lock.acquire()
        except KeyboardInterrupt as error:
            failed.append(error)

    with monkeypatch.context() as patch:
        patch.setattr("zkconsumer.base.fair_lock._WaitingThread.__init__", init_with(Interrupted))
        started(wait).join(TIMEOUT_S)
    assert len(failed) == 1
    assert not lock.has_waiting_threads()
    lock.release()
    with lock:
        """It is free."""


def init_with(lock_class: Callable[[], object]) -> Callable[[object, int], None]:
    def init(self: object, thread: int) -> None:
        self.thread = thread  # type: ignore[attr-defined]
        self.turn = lock_class()  # type: ignore[attr-defined]

    return init
