"""A flag that one thread waits for and any thread sets; an exception between two bytecodes cannot damage it.

``threading.Condition`` and ``threading.Event`` acquire their lock in Python code.  If a signal handler raises (Ctrl-C,
an alarm) between two of these bytecodes, the lock is never released, and every thread that needs it hangs.  So the
thread that iterates a stream uses a ``WakeUp``: one lock, used only through single C calls.
"""

from __future__ import annotations

import contextlib
import threading

FOREVER = -1.0
"""The value that means "no limit" for ``threading.Lock.acquire``."""


class WakeUp:
    """A flag that is unset at first.  A set flag ends one ``wait``, which unsets it.

    An exception in the waiting thread may unset the flag without ending a wait.  So the waiting thread checks its
    condition before the first wait and after each wait; a thread that sets the flag changes the condition before.
    """

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """End the present wait, or the next one; it never blocks, so any thread may call it at any time."""
        if self._unset.locked():
            with contextlib.suppress(RuntimeError):  # another thread has just set it
                self._unset.release()

    def clear(self) -> None:
        """Unset the flag; check the condition after this call."""
        self._unset.acquire(blocking=False)

    def wait(self, timeout_ms: int | None) -> None:
        """Wait until the flag is set, at most ``timeout_ms`` of the system clock (None: no limit); then unset it."""
        self._unset.acquire(timeout=FOREVER if timeout_ms is None else max(0, timeout_ms) / 1000)
