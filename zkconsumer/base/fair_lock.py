"""``FairLock``: a lock that threads get in the order in which they asked for it.

As Java's ``ReentrantLock(true)``.  ``threading.RLock`` goes to whichever thread asks first after it is free; a thread
that releases it and asks again at once, as one that polls the network in a loop does, gets it nearly always.  Then a
heartbeat thread may wait for longer than the session timeout.  Here a thread takes the lock at once only if no thread
waits for it.

Invariants: ``_depth`` is changed only by the thread that has ``_lock``, which takes ``_lock`` again when it enters
again.  Each thread that waits is in ``_waiting``, in the order of asking.  It tries to take ``_lock`` after it was
added, and a thread that releases ``_lock`` after that wakes the first one of them.  So the first one never waits for a
free lock.
"""

from __future__ import annotations

import threading
from collections import deque
from contextlib import suppress


class FairLock:
    """A context manager; a thread that has the lock may take it again."""

    __slots__ = ("_depth", "_lock", "_waiting")

    def __init__(self) -> None:
        self._lock = threading.RLock()
        self._depth = 0
        self._waiting: deque[threading.Semaphore] = deque()
        """One for each thread that waits; a release of it wakes the thread."""

    def acquire(self) -> None:
        """Wait for the lock; an exception during the wait (Ctrl-C) gives up the place in the queue."""
        if self._lock.acquire(blocking=False):
            if self._depth or not self._waiting:
                self._depth += 1
                return
            self._lock.release()
            self._wake_first()  # it may have tried just now
        turn = threading.Semaphore(0)
        self._waiting.append(turn)
        try:
            while self._waiting[0] is not turn or not self._lock.acquire(blocking=False):
                turn.acquire()
        except BaseException:
            self._waiting.remove(turn)
            self._wake_first()
            raise
        self._depth = 1
        self._waiting.popleft()

    def release(self, *_: object) -> None:
        """Wake the thread that has waited longest, if any; ``RuntimeError``: this thread does not have it."""
        self._depth -= 1
        try:
            self._lock.release()
        except RuntimeError:
            self._depth += 1
            raise
        if self._waiting:
            self._wake_first()

    def has_waiting_threads(self) -> bool:
        """Whether a thread waits for the lock; another thread may change that at once."""
        return bool(self._waiting)

    __enter__ = acquire
    __exit__ = release  # no call more: a program with small lists takes the lock some thousand times in a second

    def _wake_first(self) -> None:
        with suppress(IndexError):  # it has ended its wait meanwhile
            self._waiting[0].release()
