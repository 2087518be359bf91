"""``HeartbeatThread``: runs the group's machine between two calls of ``poll``.

It sleeps until the next deadline of the machine; while requests of the machine are in flight, it polls the network
every ``retry.backoff.ms``, as Java's thread does.  ``wake_before`` ends a sleep that is too long.  It is called after
each event of the machine, so it must not wake the thread up without need: the two threads share one interpreter lock.

Invariant: ``_until_ms`` is the end of the present sleep; None: the thread is awake, or sleeps without an end.  The
thread sets it to None before it reads the deadline of its next sleep.  So an event that the thread has not seen either
finds None, or the end of a sleep that began without it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Protocol, TypeAlias

from zkconsumer.base.clock import Clock
from zkconsumer.base.threads import OnThreadError, StopSignal, WorkerThread

StartThread: TypeAlias = Callable[..., WorkerThread]
"""As ``zkconsumer.base.threads.spawn``."""


class BackgroundWork(Protocol):
    """What the thread executes; ``PolledCoordinator``."""

    def poll_in_background(self) -> None:
        """Process what has arrived, and what is due; must not raise."""

    def background_deadline_ms(self) -> int | None:
        """When ``poll_in_background`` is needed next; None: not before the next event."""


class HeartbeatThread:
    """``start`` starts the thread at the first call; ``close`` ends it."""

    def __init__(
        self,
        name: str,
        work: BackgroundWork,
        clock: Clock,
        on_thread_error: OnThreadError,
        start_thread: StartThread,
    ) -> None:
        self._name = name
        self._work = work
        self._clock = clock
        self._on_thread_error = on_thread_error
        self._start_thread = start_thread
        self._changed = threading.Condition()
        self._is_notified = False
        self._until_ms: int | None = None
        self._worker: WorkerThread | None = None

    def start(self) -> None:
        """Start the thread, unless it was started."""
        if self._worker is None:
            self._worker = self._start_thread(self._name, self._run, self._on_thread_error, wake=self.notify)

    def wake_before(self, deadline_ms: int | None) -> None:
        """The deadline is this one now: end a sleep that would last longer."""
        until_ms = self._until_ms
        if deadline_ms is not None and (until_ms is None or deadline_ms < until_ms):
            self.notify()

    def notify(self) -> None:
        """End the sleep."""
        with self._changed:
            self._is_notified = True
            self._changed.notify_all()

    def close(self, timeout_ms: int) -> bool:
        """End the thread; False: it still runs after this time."""
        return self._worker is None or self._worker.stop(timeout_ms)

    def _run(self, stop: StopSignal) -> None:
        while not stop.is_set():
            with self._changed:
                self._is_notified = False
                self._until_ms = None
            deadline_ms = self._work.background_deadline_ms()
            if self._wait_until(deadline_ms, stop):
                self._work.poll_in_background()

    def _wait_until(self, deadline_ms: int | None, stop: StopSignal) -> bool:
        """Wait; returns whether the deadline has passed.  ``notify`` ends the wait."""
        with self._changed:
            self._until_ms = deadline_ms
            while not self._is_notified and not stop.is_set():
                left_ms = None if deadline_ms is None else deadline_ms - self._clock.now_ms()
                if left_ms is not None and left_ms <= 0:
                    return True
                self._changed.wait(None if left_ms is None else left_ms / 1000)
        return False
