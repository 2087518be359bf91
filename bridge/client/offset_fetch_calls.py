"""Blocking requests for committed offsets by a thread of the program; their numbers are negative."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from zkconsumer.kafka.group import commands as cmd


class OffsetFetchCall:
    """One request.  ``number`` is below zero: the numbers of the machine's own requests are above."""

    def __init__(self, number: int, then: Callable[[cmd.FetchDone], None] | None) -> None:
        self.number = number
        self._then = then
        self._done = threading.Event()
        self._answer: cmd.FetchDone | None = None

    def wait(self, timeout_ms: int) -> cmd.FetchDone | None:
        """The answer; None when it did not arrive in time, or the member ended."""
        self._done.wait(timeout_ms / 1000)
        return self._answer

    def answer(self, answer: cmd.FetchDone | None) -> None:
        """Wake the waiting caller, or call ``then`` with the answer."""
        self._answer = answer
        self._done.set()
        if self._then is not None and answer is not None:
            self._then(answer)


class OffsetFetchCalls:
    """The open requests, by number."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._made = 0
        self._open: dict[int, OffsetFetchCall] = {}

    def open(self, then: Callable[[cmd.FetchDone], None] | None = None) -> OffsetFetchCall:
        """Start one request; ``then`` receives its answer, if one arrives before the member ends."""
        with self._lock:
            self._made += 1
            call = self._open[-self._made] = OffsetFetchCall(-self._made, then)
        return call

    def done(self, command: cmd.FetchDone) -> None:
        """The machine reports the answer to one."""
        with self._lock:
            call = self._open.pop(command.number, None)
        if call is not None:
            call.answer(command)

    def end(self) -> None:
        """Wake all waiting callers: an error ended the member."""
        with self._lock:
            calls, self._open = list(self._open.values()), {}
        for call in calls:
            call.answer(None)
