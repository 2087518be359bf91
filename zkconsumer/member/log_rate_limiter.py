"""When a problem is logged: when it appears, and again at intervals while it lasts.  Pure.

appears --after first_after_ms--> due, then due again every repeat_ms --disappears--> forgotten

``LoggedReason`` is for a failure that each attempt reports again: one line for each reason, without repetition.
"""

from __future__ import annotations

from collections.abc import Iterable

LOG_REPEAT_MS = 60_000
"""The pause between two lines about the same problem."""


class LogRateLimiter:
    """One instance for each kind of problem; a text, such as a topic, identifies a problem."""

    def __init__(self, *, first_after_ms: int = 0, repeat_ms: int = LOG_REPEAT_MS) -> None:
        self._first_after_ms = first_after_ms
        self._repeat_ms = repeat_ms
        self._due_ms: dict[str, int] = {}

    def select_due(self, problems: Iterable[str], now_ms: int) -> list[str]:
        """Those of ``problems`` that must be logged now, sorted.  A problem that is not among them is over."""
        first_ms = now_ms + self._first_after_ms
        self._due_ms = {problem: self._due_ms.get(problem, first_ms) for problem in problems}
        due = sorted(problem for problem, due_ms in self._due_ms.items() if due_ms <= now_ms)
        self._due_ms.update(dict.fromkeys(due, now_ms + self._repeat_ms))
        return due


class LoggedReason:
    """The reason of a failure that was logged last.  Digits do not count: ports, ids and times differ each time."""

    def __init__(self) -> None:
        self._shape = ""
        """Without digits; "" since the failure is over."""

    def is_new(self, reason: str) -> bool:
        """Whether ``reason`` must be logged; it counts as logged then."""
        last, self._shape = self._shape, "".join(char for char in reason if not char.isdigit())
        return self._shape != last

    def clear(self) -> None:
        """The failure is over: the next one is logged, whatever its reason."""
        self._shape = ""
