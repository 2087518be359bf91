"""Creates all threads of this package.

Every thread has a name, an owner that can stop it within a deadline, and a callback for an exception that ends it: no
thread ends with an unreported exception.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable
from typing import TypeAlias

ThreadTarget: TypeAlias = Callable[["StopSignal"], None]
OnThreadError: TypeAlias = Callable[[str, BaseException], None]

_workers: weakref.WeakSet[WorkerThread] = weakref.WeakSet()
_workers_lock = threading.Lock()


class StopSignal:
    """The signal that a thread checks, or waits for, to stop."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event = threading.Event()

    def set(self) -> None:
        """Request that the thread ends."""
        self._event.set()

    def is_set(self) -> bool:
        """Whether the thread should end."""
        return self._event.is_set()

    def wait(self, timeout_ms: int) -> bool:
        """Wait until the stop is requested, at most ``timeout_ms``; True if it is requested."""
        return self._event.wait(timeout_ms / 1000)


class WorkerThread:
    """A thread with its stop signal; ``spawn`` creates it."""

    def __init__(self, name: str, target: ThreadTarget, on_error: OnThreadError, wake: Callable[[], None]) -> None:
        self.name = name
        self._target = target
        self._on_error = on_error
        self._wake = wake
        self._signal = StopSignal()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    @property
    def is_alive(self) -> bool:
        """Whether the thread is still running."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Start the thread; only ``spawn`` calls it, once."""
        self._thread.start()

    def request_stop(self) -> None:
        """Set the stop signal and wake the thread, without waiting; may be called by any thread, also twice."""
        self._signal.set()
        self._wake()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end; False if it still runs.  On the thread itself it returns False at once."""
        if self._thread is threading.current_thread():
            return False
        self._thread.join(timeout_ms / 1000)
        return not self._thread.is_alive()

    def stop(self, timeout_ms: int) -> bool:
        """``request_stop``, then ``join``."""
        self.request_stop()
        return self.join(timeout_ms)

    def _run(self) -> None:
        try:
            self._target(self._signal)
        except BaseException as error:  # noqa: BLE001 (a thread ends here: its error must be reported)
            self._on_error(self.name, error)


def _no_wake() -> None:
    """For threads that wait only for their stop signal."""


def spawn(
    name: str, target: ThreadTarget, on_error: OnThreadError, *, wake: Callable[[], None] = _no_wake
) -> WorkerThread:
    """Start a daemon thread that runs ``target(stop_signal)``.

    ``on_thread_error(name, error)`` is called in the ending thread when ``target`` raises any exception; its own
    exceptions go to ``threading.excepthook``.  ``wake`` is called after the stop signal was set: it must end every wait
    of the thread (close its connection, notify its condition).
    """
    worker = WorkerThread(name, target, on_error, wake)
    with _workers_lock:
        _workers.add(worker)
    worker.start()
    return worker


class OnDemandThread:
    """A component with one thread, ``_worker``, which starts when the component first needs it."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        # Under the lock: whether the thread must end, so that none may be started, and the thread.
        self._is_closed = False
        self._worker: WorkerThread | None = None

    def ask_to_stop(self) -> None:
        """Ask the thread to end, without waiting for it; what waits is dropped: no callback is called any more."""
        with self._changed:
            self._is_closed = True
            worker = self._worker
        if worker is not None:
            worker.request_stop()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end of the thread; False: it still runs."""
        return self._worker is None or self._worker.join(timeout_ms)


def live_threads() -> list[str]:
    """The names of the threads created here that still run, sorted; tests of ``close()`` check them."""
    with _workers_lock:
        workers = list(_workers)
    return sorted(worker.name for worker in workers if worker.is_alive)
