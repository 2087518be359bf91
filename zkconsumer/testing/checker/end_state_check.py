"""M5: a migration that was killed and run again ends as if it had never been killed, or is completely undone.  Pure.

Two ``state`` lines are compared, each an object of names and texts: the state ``before`` the migration and at the
``end``.  ``nodes`` are those of the old group, without the data of offset znodes, which change; ``others`` contains
all else that two runs with the same end have in common, such as the control znode and Kafka's values.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from zkconsumer.testing.checker import events as h
from zkconsumer.testing.checker.checker_state import CheckerState

NAMES_SHOWN_MAX = 5


def end_state(history: Iterable[h.HistoryEvent]) -> h.StateSnapshot | None:
    """The state at the end of a history; None: the history does not contain it."""
    ends = [event for event in h.in_order(history) if isinstance(event, h.StateSnapshot) and event.when == "end"]
    return ends[-1] if ends else None


class EndStateCheck:
    """``as_if``: the state at the end without a kill; None: unknown."""

    def __init__(self, bench: CheckerState, as_if: h.StateSnapshot | None) -> None:
        self._bench = bench
        self._as_if = as_if
        self._before: tuple[h.StateSnapshot, int] | None = None
        self._end: tuple[h.StateSnapshot, int] | None = None

    def add_state(self, event: h.StateSnapshot) -> None:
        if event.when == "end":
            self._end = event, self._bench.position
        else:
            self._before = event, self._bench.position

    def judge(self, control: h.ControlWritten | None) -> None:
        """Check at the end of the history; ``control``: the last control znode."""
        if self._end is None:
            if self._as_if is not None:
                self._find("the history does not contain the state at the end", ())
            return
        end, position = self._end
        if self._before is not None and (control is None or control.phase == "undone"):
            before, earlier = self._before
            if end.nodes != before.nodes:
                what = "no migration began" if control is None else "the migration was undone"
                text = f"{what}, and the state differs from before: {_state_differences(before.nodes, end.nodes)}"
                self._find(text, (earlier, position))
        elif self._as_if is not None:
            wanted, found = {**self._as_if.nodes, **self._as_if.others}, {**end.nodes, **end.others}
            if wanted != found:
                text = f"it did not end as without a kill, and was not undone: {_state_differences(wanted, found)}"
                self._find(text, (position,))

    def _find(self, text: str, positions: tuple[int, ...]) -> None:
        bench = self._bench
        t = bench.events[-1].t if bench.events else 0
        bench.findings.add((), "end_state_differs", text, t=t, lines=tuple(map(bench.line_number, positions)))


def _state_differences(wanted: Mapping[str, str], found: Mapping[str, str]) -> str:
    """Names with both texts, up to a limit."""
    names = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
    shown = names[:NAMES_SHOWN_MAX]
    words = [f"{name} is {_text(found.get(name))} and not {_text(wanted.get(name))}" for name in shown]
    more = [f"{len(names) - len(shown)} more"] if len(names) > len(shown) else []
    return ", ".join(words + more)


def _text(value: str | None) -> str:
    if value is None:
        return "missing"
    return repr(value) if len(value) <= 80 else f"{value[:77]!r}..."
