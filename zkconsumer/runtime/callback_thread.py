"""Calls of the program's code (hooks, listener): one thread, one call at a time, through a bounded queue.

    control thread --enqueue--> at most ``calls_max`` calls --> callback thread --> the program's own code

The control thread never waits for the program.  So a call may use ``commit_offsets`` or ``close``, or block for an
hour: it only delays the later calls in this queue.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from zkconsumer.base.threads import StopSignal, WorkerThread, spawn

if TYPE_CHECKING:
    from zkconsumer.base.threads import OnThreadError


class CallbackThread:
    """Runs calls in order; the first call starts the thread.  A call must not raise."""

    def __init__(self, name: str, calls_max: int, on_thread_error: OnThreadError) -> None:
        self._name = name
        self._calls_max = calls_max
        self._on_thread_error = on_thread_error
        self._calls: deque[Callable[[], None]] = deque()
        self._changed = threading.Condition()
        self._worker: WorkerThread | None = None
        self._closed = False
        self._ident = 0

    @property
    def is_current(self) -> bool:
        """Whether the caller runs on this thread."""
        return self._ident == threading.get_ident()

    def enqueue(self, call: Callable[[], None]) -> bool:
        """Queue a call; False if the queue is full or closed: then it is not made."""
        with self._changed:
            if self._closed or len(self._calls) >= self._calls_max:
                return False
            self._calls.append(call)
            self._changed.notify_all()
            if self._worker is None:
                self._worker = spawn(self._name, self._run, self._on_thread_error, wake=self._wake)
            return True

    def close(self, *, finish: bool = False) -> None:
        """Accept no more calls and drop the queued ones (``finish``: run them first); a running call continues."""
        with self._changed:
            self._closed = True
            if not finish:
                self._calls.clear()
            self._changed.notify_all()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end of the thread; True at once if the caller runs on it."""
        return self._worker is None or self.is_current or self._worker.join(timeout_ms)

    def _wake(self) -> None:
        with self._changed:
            self._changed.notify_all()

    def _run(self, stop: StopSignal) -> None:
        self._ident = threading.get_ident()
        while not stop.is_set():
            with self._changed:
                self._changed.wait_for(lambda: self._calls or self._closed or stop.is_set())
                if not self._calls:
                    return
                call = self._calls.popleft()
            call()
