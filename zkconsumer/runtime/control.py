"""The one control thread of a connector: events and timers in, commands out.

    kazoo's thread --+                        +-- timers
    stream threads --+--post--> queue --------+--> group.handle --> commands --> performer
    user's calls  ---+                                                              |
                     ^---------------- answers, as events ------------------------- +

Nothing here decides anything; whatever comes is handed to the core in the order in which it came.
"""

from __future__ import annotations

import logging
import queue
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from zkconsumer.base.threads import StopSignal, Worker, spawn
from zkconsumer.core.commands import StartTimer, StopTimer
from zkconsumer.core.events import TimerFired

if TYPE_CHECKING:
    from zkconsumer.base.clock import Clock
    from zkconsumer.core.commands import Command
    from zkconsumer.core.events import Event, Timer
    from zkconsumer.core.group import Group

IDLE_WAIT_MS = 1_000

log = logging.getLogger("zkconsumer.control")


class Performs(Protocol):
    """Whoever acts on the commands."""

    def perform(self, command: Command) -> None:
        """Do it, or start it; never wait for the world."""


class Control:
    """The thread that owns ``group``; everybody else posts."""

    def __init__(self, group: Group, clock: Clock) -> None:
        self._group = group
        self._clock = clock
        self._inbox: queue.SimpleQueue[Event | Callable[[], None] | None] = queue.SimpleQueue()
        self._timers: dict[Timer, int] = {}
        self._performer: Performs | None = None
        self._regular: list[tuple[int, Callable[[], None]]] = []
        self._regular_due_ms: list[int] = []
        self._worker: Worker | None = None

    def start(self, name: str, performer: Performs, on_death: Callable[[str, BaseException], None]) -> None:
        """Run from now on; commands go to ``performer``."""
        self._performer = performer
        self._worker = spawn(name, self._run, on_death, wake=lambda: self._inbox.put(None))

    def stop(self, timeout_ms: int) -> bool:
        """End the thread; what was posted before may not be handled any more."""
        return self._worker is None or self._worker.stop(timeout_ms)

    def post(self, event: Event) -> None:
        """Hand an event to the core, from any thread."""
        self._inbox.put(event)

    def call(self, action: Callable[[], None]) -> None:
        """Run something on the control thread, in its turn."""
        self._inbox.put(action)

    def every(self, interval_ms: int, action: Callable[[], None]) -> None:
        """Run something on the control thread again and again, not exactly; before ``start``."""
        self._regular.append((interval_ms, action))
        self._regular_due_ms.append(self._clock.now_ms() + interval_ms)

    def feed(self, event: Event) -> None:
        """Handle an event now; only on the control thread."""
        assert self._performer is not None, "started before it is fed"
        for command in self._group.handle(event, self._clock.now_ms()):
            if isinstance(command, StartTimer):
                self._timers[command.timer] = self._clock.now_ms() + command.delay_ms
            elif isinstance(command, StopTimer):
                self._timers.pop(command.timer, None)
            else:
                self._performer.perform(command)

    def _run(self, stop: StopSignal) -> None:
        while not stop.is_set():
            item = self._next()
            if callable(item):
                item()
            elif item is not None:
                self.feed(item)
            self._fire_timers()
            self._do_regular()

    def _next(self) -> Event | Callable[[], None] | None:
        due_ms = min(self._timers.values(), default=None)
        wait_ms = IDLE_WAIT_MS if due_ms is None else max(0, due_ms - self._clock.now_ms())
        try:
            return self._inbox.get(timeout=min(wait_ms, IDLE_WAIT_MS) / 1000)
        except queue.Empty:
            return None

    def _do_regular(self) -> None:
        now_ms = self._clock.now_ms()
        for i, (interval_ms, action) in enumerate(self._regular):
            if self._regular_due_ms[i] <= now_ms:
                self._regular_due_ms[i] = now_ms + interval_ms
                action()

    def _fire_timers(self) -> None:
        now_ms = self._clock.now_ms()
        for timer in [timer for timer, at_ms in self._timers.items() if at_ms <= now_ms]:
            if self._timers.get(timer, now_ms + 1) <= now_ms:
                del self._timers[timer]
                self.feed(TimerFired(timer))
