"""One thread that owns what decides: things come in one after the other, and timers between them.

    other threads --post, call--> queue --+
                                          +--> feed, or the call --> commands, carried out there and then
                             deadlines ---+

Nothing here decides anything; whatever comes is handled in the order in which it came.
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
    """Events of type ``E``, timers of type ``T``; everybody but the thread itself posts."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._queue: queue.SimpleQueue[E | Callable[[], None] | None] = queue.SimpleQueue()
        self._timers: dict[T, int] = {}
        self._periodic_actions: list[tuple[int, Callable[[], None]]] = []
        self._periodic_due_ms: list[int] = []
        self._worker: WorkerThread | None = None

    @abstractmethod
    def handle_event(self, event: E) -> None:
        """Handle an event now; only on the thread."""

    @abstractmethod
    def handle_timer(self, timer: T, due_ms: int) -> None:
        """This timer was due then, and is set no more."""

    def start_thread(self, name: str, on_thread_error: Callable[[str, BaseException], None]) -> None:
        """Begin."""
        self._worker = spawn(name, self._run, on_thread_error, wake=lambda: self._queue.put(None))

    def stop(self, timeout_ms: int) -> bool:
        """End the thread; what was posted before may not be handled any more."""
        return self._worker is None or self._worker.stop(timeout_ms)

    def submit(self, event: E) -> None:
        """Hand an event over, from any thread."""
        self._queue.put(event)

    def call_soon(self, action: Callable[[], None]) -> None:
        """Run something on the thread, in its turn."""
        self._queue.put(action)

    def call_every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Run something on the thread again and again, not exactly; before it runs."""
        self._periodic_actions.append((interval_ms, action))
        self._periodic_due_ms.append(self._clock.now_ms() + interval_ms)

    def set_timer(self, timer: T, due_ms: int) -> None:
        """Fire then; one that is set already is set anew.  Only on the thread."""
        self._timers[timer] = due_ms

    def cancel_timer(self, timer: T) -> None:
        """Do not fire.  Only on the thread."""
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
