"""Runs a few real threads one at a time, in virtual time, and switches between them where a test says so.

    thread --acquires or releases a lock--> ``boundary``: the next thread is chosen, or a pause of the process begins
           --has nothing to do------------> ``block``: until a condition holds, or until a time of the clock

While all threads are blocked, the clock moves to the next time at which anything happens: a thread's deadline, or an
event of the simulated world.  So a run depends only on its ``Choices``: the same choices give the same run.

``Choices`` counts the boundaries at which another thread could run (``points``) and all boundaries (``boundaries``).
``explore`` runs a scenario with each set of at most so many changes at these points.

A run in which no thread can ever continue is a ``Deadlock``; one that takes too many steps is a ``BusyLoop``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any, Protocol

from zkconsumer.base.threads import OnThreadError, StopSignal, ThreadTarget
from zkconsumer.testing.manual_clock import ManualClock

REAL_WAIT_S = 60
"""A real thread waits at most so long for its turn; none does unless the scheduler itself is broken."""

STEPS_MAX = 200_000


class Deadlock(Exception):
    """No thread can continue, and nothing will happen."""


class BusyLoop(Exception):
    """The threads take more steps than any scenario needs."""


class Aborted(BaseException):
    """Another thread has failed: this one ends."""


class World(Protocol):
    """What happens without the threads."""

    def next_event_ms(self) -> int | None:
        """When something happens next; None: nothing will."""

    def advance(self) -> None:
        """Process what is due."""


@dataclass
class Choices:
    """At which points another thread continues (``changes``), and at which boundaries the process is paused.

    ``random``: choose by chance instead, with this probability.  Counting begins with ``begin``.
    """

    changes: frozenset[int] = frozenset()
    pauses: dict[int, int] = field(default_factory=dict)
    """Boundary -> how long the process is paused there, in ms."""
    random: Random | None = None
    probability: float = 0.3
    points: int = 0
    boundaries: int = 0
    is_counting: bool = False

    def begin(self) -> None:
        """Choose from now on."""
        self.is_counting = True

    def end(self) -> None:
        """Choose no more: each thread continues until it blocks."""
        self.is_counting = False

    def is_change(self) -> bool:
        """Whether another thread continues now."""
        if not self.is_counting:
            return False
        self.points += 1
        if self.random is not None:
            return self.random.random() < self.probability
        return self.points - 1 in self.changes

    def pause_ms(self) -> int:
        """How long the process is paused now."""
        if not self.is_counting:
            return 0
        self.boundaries += 1
        return self.pauses.get(self.boundaries - 1, 0)


@dataclass
class ScheduledThread:
    """``turn`` is locked unless it is the thread's turn."""

    name: str
    turn: threading.Lock = field(default_factory=threading.Lock)
    is_ready: Callable[[], bool] | None = None
    """The condition for which it is blocked; None: it is not blocked."""
    until_ms: int | None = None
    has_ended: bool = False

    def __post_init__(self) -> None:
        self.turn.acquire()


class Scheduler:
    """The thread that creates it is its first thread."""

    def __init__(self, clock: ManualClock, world: World, choices: Choices) -> None:
        self.clock = clock
        self.world = world
        self.choices = choices
        self.failure: BaseException | None = None
        self.threads = [ScheduledThread("program")]
        self._current = self.threads[0]
        self._steps = 0

    # --- what a thread calls ------------------------------------------------------------------------------------------

    def boundary(self) -> None:
        """A lock is about to be acquired, or was released."""
        self._check()
        paused_ms = self.choices.pause_ms()
        if paused_ms:
            self.clock.move(paused_ms)
        others = [one for one in self._runnable() if one is not self._current]
        if others and self.choices.is_change():
            self._pass_to(others[0])

    def block(self, is_ready: Callable[[], bool], until_ms: int | None = None) -> None:
        """Let others run until the condition holds, or until this time of the clock."""
        self._check()
        me = self._current
        me.is_ready, me.until_ms = is_ready, until_ms
        try:
            following = self._next()
            if following is not me:
                self._pass_to(following)
        finally:
            me.is_ready, me.until_ms = None, None

    def sleep(self, duration_ms: int) -> None:
        """Work on something else for so long."""
        self.block(lambda: False, self.clock.now_ms() + duration_ms)

    def start_thread(
        self, name: str, target: ThreadTarget, on_error: OnThreadError, *, wake: Callable[[], None]
    ) -> ScheduledWorker:
        """Instead of ``zkconsumer.base.threads.spawn``."""
        return ScheduledWorker(self, name, target, on_error, wake)

    def end(self) -> None:
        """End all threads, after a failure of the first one, too."""
        if any(not one.has_ended for one in self.threads[1:]):
            self.failure = self.failure or Aborted()
        for one in self.threads[1:]:
            while not one.has_ended:
                self._pass_to(one)

    # --- inside -------------------------------------------------------------------------------------------------------

    def _check(self) -> None:
        if self.failure is not None:
            raise Aborted
        self._steps += 1
        if self._steps > STEPS_MAX:
            self.failure = BusyLoop(f"more than {STEPS_MAX} steps")
            raise self.failure

    def _runnable(self) -> list[ScheduledThread]:
        now_ms = self.clock.now_ms()
        return [
            one
            for one in self.threads
            if not one.has_ended
            and (one.is_ready is None or (one.until_ms is not None and now_ms >= one.until_ms) or one.is_ready())
        ]

    def _next(self) -> ScheduledThread:
        """The thread that continues; the clock moves when none can."""
        while not (runnable := self._runnable()):
            times = [one.until_ms for one in self.threads if not one.has_ended and one.until_ms is not None]
            event_ms = self.world.next_event_ms()
            times += [] if event_ms is None else [event_ms]
            if not times:
                self.failure = Deadlock(", ".join(one.name for one in self.threads if not one.has_ended))
                raise self.failure
            self.clock.move(max(0, min(times) - self.clock.now_ms()))
            self.world.advance()
            self._check()
        if len(runnable) > 1 and self.choices.is_change():
            return runnable[1]
        return runnable[0]

    def _pass_to(self, following: ScheduledThread) -> None:
        me, self._current = self._current, following
        following.turn.release()
        self.wait_for_turn(me)

    def wait_for_turn(self, me: ScheduledThread) -> None:
        assert me.turn.acquire(timeout=REAL_WAIT_S), f"{me.name} waits for its turn"
        self._current = me
        if self.failure is not None and me is not self.threads[0]:
            raise Aborted

    def thread_ended(self, me: ScheduledThread) -> None:
        """Another thread continues; the ending one does not wait."""
        me.has_ended = True
        try:
            following = self.threads[0] if self.failure is not None else self._next()
        except (Deadlock, BusyLoop, Aborted):
            following = self.threads[0]
        self._current = following
        following.turn.release()


class ScheduledWorker:
    """A ``WorkerThread`` of the scheduler."""

    def __init__(
        self,
        scheduler: Scheduler,
        name: str,
        target: ThreadTarget,
        on_error: OnThreadError,
        wake: Callable[[], None],
    ) -> None:
        self._scheduler = scheduler
        self._target = target
        self._on_error = on_error
        self._wake = wake
        self._signal = StopSignal()
        self._thread = ScheduledThread(name)
        scheduler.threads.append(self._thread)
        self._real = threading.Thread(target=self._run, name=name, daemon=True)
        self._real.start()

    def stop(self, timeout_ms: int) -> bool:
        """See ``WorkerThread``."""
        self._signal.set()
        self._wake()
        self._scheduler.block(lambda: self._thread.has_ended, self._scheduler.clock.now_ms() + timeout_ms)
        return self._thread.has_ended

    def _run(self) -> None:
        try:
            self._scheduler.wait_for_turn(self._thread)
            self._target(self._signal)
        except Aborted:
            pass
        except (Deadlock, BusyLoop):
            pass  # the first thread raises it
        except BaseException as error:  # noqa: BLE001 - as WorkerThread
            self._on_error(self._thread.name, error)
        finally:
            self._scheduler.thread_ended(self._thread)


class ScheduledLock:
    """A re-entrant lock.  ``is_fair``: a release passes it to the thread that has waited longest (``FairLock``)."""

    def __init__(self, scheduler: Scheduler, *, is_fair: bool = False) -> None:
        self._scheduler = scheduler
        self._is_fair = is_fair
        self._owner: int | None = None
        self._depth = 0
        self._waiting: list[int] = []

    @property
    def is_owned(self) -> bool:
        """Whether this thread has the lock."""
        return self._owner == threading.get_ident()

    def __enter__(self) -> None:
        me = threading.get_ident()
        self._scheduler.boundary()
        if self._owner not in (None, me):
            self._waiting.append(me)
            try:
                self._scheduler.block(lambda: self._owner == me if self._is_fair else self._owner is None)
            finally:
                if me in self._waiting:
                    self._waiting.remove(me)
        assert self._owner in (None, me), "one thread has the lock"
        self._owner = me
        self._depth += 1

    def __exit__(self, *error: Any) -> None:
        self._depth -= 1
        if self._depth == 0:
            self._owner = None
            if self._is_fair and self._waiting:
                self._owner = self._waiting.pop(0)
        if error[0] is None:
            self._scheduler.boundary()


class ScheduledCondition:
    """A ``threading.Condition`` whose waits are in virtual time; its own lock is never contended."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._notified = 0

    def __enter__(self) -> None:
        pass

    def __exit__(self, *_: Any) -> None:
        pass

    def notify_all(self) -> None:
        """Wake the waiting threads up."""
        self._notified += 1

    def wait(self, timeout: float | None = None) -> None:
        """Wait for ``notify_all``; ``timeout`` in seconds."""
        seen = self._notified
        until_ms = None if timeout is None else self._scheduler.clock.now_ms() + max(1, round(timeout * 1000))
        self._scheduler.block(lambda: self._notified != seen, until_ms)


def explore(run: Callable[[Choices], object], changes_max: int) -> int:
    """Run with every set of at most so many changes; returns how many runs these were.

    Runs with the same beginning have the same points up to their next change, so no set is left out.
    """
    runs = 0
    for choices in _sets_of_changes(run, changes_max):
        del choices
        runs += 1
    return runs


def _sets_of_changes(run: Callable[[Choices], object], changes_max: int) -> Iterator[Choices]:
    waiting: list[tuple[int, ...]] = [()]
    while waiting:
        changes = waiting.pop()
        choices = Choices(frozenset(changes))
        try:
            run(choices)
        except Exception as error:
            error.add_note(f"changes at the points {list(changes)} of {choices.points}")
            raise
        yield choices
        if len(changes) < changes_max:
            first = changes[-1] + 1 if changes else 0
            waiting += [(*changes, at) for at in range(first, choices.points)]
