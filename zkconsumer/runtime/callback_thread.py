"""Calling the program: one thread, one call at a time, through a bounded queue.

    control thread --put--> at most ``calls_max`` calls --> callback thread --> the program's own code

The control thread never waits for the program, so whatever the program does in such a call (``commit_offsets``,
``close``, nothing at all for an hour) stops nobody but the calls behind it.
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
    """Runs calls in their order; the thread starts with the first one.  A call must not raise."""

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
        """Whether the caller is in such a call."""
        return self._ident == threading.get_ident()

    def enqueue(self, call: Callable[[], None]) -> bool:
        """Run this soon; False: the queue is full, or closed, and it never will be."""
        with self._changed:
            if self._closed or len(self._calls) >= self._calls_max:
                return False
            self._calls.append(call)
            self._changed.notify_all()
            if self._worker is None:
                self._worker = spawn(self._name, self._run, self._on_thread_error, wake=self._wake)
            return True

    def close(self, *, finish: bool = False) -> None:
        """Take no more calls, and forget what waits, unless it is to be finished; a call that runs goes on."""
        with self._changed:
            self._closed = True
            if not finish:
                self._calls.clear()
            self._changed.notify_all()

    def join(self, timeout_ms: int) -> bool:
        """Wait for the end of the call that runs; True as well when it is the caller's own."""
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
