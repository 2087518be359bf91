"""A flag that one thread waits for and any thread sets, which an exception at any bytecode cannot damage.

``threading.Condition`` and ``threading.Event`` take their lock in Python code.  A signal handler that raises (Ctrl-C,
an alarm) between two of those bytecodes leaves the lock taken for ever, and every thread that needs it then hangs.  So
the thread that iterates a stream waits for, and sets, a ``WakeUp``: one lock, used only through single calls of C.
"""

from __future__ import annotations

import contextlib
import threading

FOREVER = -1.0
"""``threading.Lock.acquire`` takes this for no limit."""


class WakeUp:
    """Unset at first.  A set flag ends one ``wait``, which unsets it.

    An exception in the thread that waits may unset the flag without ending a wait.  So whoever waits looks first at
    what it waits for, and looks again after each wait; whoever sets the flag has made the change before.
    """

    __slots__ = ("_unset",)

    def __init__(self) -> None:
        self._unset = threading.Lock()
        self._unset.acquire()

    def set(self) -> None:
        """End the wait, or the next one; takes no lock, so that every thread may call it at any time."""
        if self._unset.locked():
            with contextlib.suppress(RuntimeError):  # another thread has just set it
                self._unset.release()

    def clear(self) -> None:
        """Unset it; what the caller waits for is looked at after this."""
        self._unset.acquire(blocking=False)

    def wait(self, timeout_ms: int | None) -> None:
        """Wait until it is set, at most ``timeout_ms`` of the system's clock (None: no limit), and unset it."""
        self._unset.acquire(timeout=FOREVER if timeout_ms is None else max(0, timeout_ms) / 1000)
