"""An event loop on one thread: handles events, calls and timers one after the other.

    other threads --submit, call_soon--> queue --+
                                                 +--> handle_event, handle_timer, or the call
                                       timers ---+

Events and calls are handled in the order in which they were queued.
"""

from __future__ import annotations

import queue
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, Generic, TypeVar

from zkconsumer.base.threads import StopSignal, WorkerThread, spawn

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock

IDLE_WAIT_MAX_MS = 1_000

E = TypeVar("E")
T = TypeVar("T", bound=Hashable)


class EventLoop(ABC, Generic[E, T]):
    """Events of type ``E``, timers of type ``T``; other threads use ``submit`` and ``call_soon``."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: queue.SimpleQueue[E | Callable[[], None] | None] = queue.SimpleQueue()
        self._timers: dict[T, int] = {}
        self._periodic_actions: list[tuple[int, Callable[[], None]]] = []
        self._periodic_due_ms: list[int] = []
        self._worker: WorkerThread | None = None

    @abstractmethod
    def handle_event(self, event: E) -> None:
        """Handle an event now; only on the loop's thread."""

    @abstractmethod
    def handle_timer(self, timer: T, due_ms: int) -> None:
        """Handle a timer that was due at ``due_ms``; it is not set any more."""

    def start_thread(self, name: str, on_thread_error: Callable[[str, BaseException], None]) -> None:
        """Start the loop's thread."""
        self._worker = spawn(name, self._run, on_thread_error, wake=lambda: self._queue.put(None))

    def stop(self, timeout_ms: int) -> bool:
        """Stop the thread; queued events may be dropped.  False if it still runs after the timeout."""
        return self._worker is None or self._worker.stop(timeout_ms)

    def submit(self, event: E) -> None:
        """Queue an event, from any thread."""
        self._queue.put(event)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Queue a call for the loop's thread, from any thread."""
        self._queue.put(action)

    def call_every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Run ``action`` periodically on the loop's thread; the interval is not exact.  Call it before the start."""
        self._periodic_actions.append((interval_ms, action))
        self._periodic_due_ms.append(self._clock.now_ms() + interval_ms)

    def set_timer(self, timer: T, due_ms: int) -> None:
        """Set a timer, or set it again.  Only on the loop's thread."""
        self._timers[timer] = due_ms

    def cancel_timer(self, timer: T) -> None:
        """Cancel a timer.  Only on the loop's thread."""
        self._timers.pop(timer, None)

    def _run(self, stop: StopSignal) -> None:
        while not stop.is_set():
            item = self._next()
            if callable(item):
                item()
            elif item is not None:
                self.handle_event(item)
            self._fire_timers()
            self._run_periodic_actions()

    def _next(self) -> E | Callable[[], None] | None:
        due_ms = min((*self._timers.values(), *self._periodic_due_ms), default=None)
        wait_ms = IDLE_WAIT_MAX_MS if due_ms is None else max(0, due_ms - self._clock.now_ms())
        try:
            return self._queue.get(timeout=min(wait_ms, IDLE_WAIT_MAX_MS) / 1000)
        except queue.Empty:
            return None

    def _run_periodic_actions(self) -> None:
        now_ms = self._clock.now_ms()
        for i, (interval_ms, action) in enumerate(self._periodic_actions):
            if self._periodic_due_ms[i] <= now_ms:
                self._periodic_due_ms[i] = now_ms + interval_ms
                action()

    def _fire_timers(self) -> None:
        now_ms = self._clock.now_ms()
        for timer in [timer for timer, at_ms in self._timers.items() if at_ms <= now_ms]:
            due_ms = self._timers.get(timer, now_ms + 1)
            if due_ms <= now_ms:
                del self._timers[timer]
                self.handle_timer(timer, due_ms)
