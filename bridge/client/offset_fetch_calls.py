"""Questions for committed offsets that a thread of the program waits for; the machine's own have other numbers."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bridge.client import commands as cmd


class OffsetFetchCall:
    """One question.  ``number`` is below zero: those of a member for itself are above."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._done = threading.Event()
        self._answer: cmd.FetchDone | None = None

    def wait(self, timeout_ms: int) -> cmd.FetchDone | None:
        """The answer; None when it did not come in time, or the member ended."""
        self._done.wait(timeout_ms / 1000)
        return self._answer

    def answer(self, answer: cmd.FetchDone | None) -> None:
        """Let go whoever waits."""
        self._answer = answer
        self._done.set()


class OffsetFetchCalls:
    """Those that are open, by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made = 0
        self._open: dict[int, OffsetFetchCall] = {}

    def open(self) -> OffsetFetchCall:
        """One more."""
        with self._lock:
            self._made += 1
            call = self._open[-self._made] = OffsetFetchCall(-self._made)
        return call

    def done(self, command: cmd.FetchDone) -> None:
        """The machine has the answer to one."""
        with self._lock:
            call = self._open.pop(command.number, None)
        if call is not None:
            call.answer(command)

    def end(self) -> None:
        """Let everybody go who waits: an error ended the member."""
        with self._lock:
            calls, self._open = list(self._open.values()), {}
        for call in calls:
            call.answer(None)
