"""``FairLock``: a lock that threads get in the order in which they asked for it.

As Java's ``ReentrantLock(true)``.  ``threading.Lock`` goes to whichever thread asks first after it is free; a thread
that releases it and asks again at once, as one that polls the network in a loop does, gets it nearly always.  Then a
heartbeat thread may wait for longer than the session timeout.  Here a release passes the lock to the thread that has
waited longest, before the releasing thread can ask again.

``_mutex`` protects the fields and is held only for a few bytecodes.

Invariants: ``_owner`` is None if and only if ``_depth`` is 0; if threads wait, the lock has an owner.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass, field


@dataclass(slots=True, eq=False)
class _WaitingThread:
    """``turn`` is locked until the lock belongs to the thread."""

    thread: int
    turn: threading.Lock = field(default_factory=threading.Lock)


class FairLock:
    """A context manager; a thread that has the lock may take it again."""

    __slots__ = ("_depth", "_mutex", "_owner", "_waiting")

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._owner: int | None = None
        self._depth = 0
        self._waiting: deque[_WaitingThread] = deque()

    def acquire(self) -> None:
        """Wait for the lock; an exception during the wait (Ctrl-C) gives up the place in the queue."""
        thread = threading.get_ident()
        with self._mutex:
            if self._owner is None or self._owner == thread:
                self._owner = thread
                self._depth += 1
                return
            waiting = _WaitingThread(thread)
            waiting.turn.acquire()
            self._waiting.append(waiting)
        try:
            waiting.turn.acquire()
        except BaseException:
            self._give_up(waiting)
            raise

    def release(self, *_: object) -> None:
        """Give the lock to the thread that has waited longest, if any; ``RuntimeError``: this thread has it not."""
        with self._mutex:
            if self._owner != threading.get_ident():
                raise RuntimeError("a thread releases a lock that it does not have")
            if self._depth > 1 or self._waiting:
                self._depth -= 1
                if self._depth == 0:
                    self._pass_on()
            else:
                self._depth, self._owner = 0, None

    def has_waiting_threads(self) -> bool:
        """Whether a thread waits for the lock; another thread may change that at once."""
        return bool(self._waiting)

    __enter__ = acquire
    __exit__ = release  # no call more: a program with small lists takes the lock some thousand times in a second

    def _pass_on(self) -> None:
        if not self._waiting:
            self._owner = None
            return
        following = self._waiting.popleft()
        self._owner, self._depth = following.thread, 1
        following.turn.release()

    def _give_up(self, waiting: _WaitingThread) -> None:
        with self._mutex:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            elif self._owner == waiting.thread:
                self._depth = 0
                self._pass_on()
