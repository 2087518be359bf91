"""Gates and goals: the limits for the figures on the pages that this directory writes."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Gate:
    """One figure and its limits.  ``gate`` None: it is only shown.  ``at_least`` False: the limits are maximums.

    ``value`` None: it was not measured, for the reason in ``note``.  Else the page shows ``note`` after the value.
    """

    what: str
    value: float | None
    gate: float | None
    goal: float | None
    unit: str = "x"
    at_least: bool = True
    note: str = ""

    @property
    def verdict(self) -> str:
        """``goal`` or ``gate``, the best limit that is met; ``MISSED``; ``not run``; ``-`` without a gate."""
        if self.value is None:
            return "not run"
        if self.gate is None:
            return "-"
        sign = 1 if self.at_least else -1
        if self.goal is not None and sign * self.value >= sign * self.goal:
            return "goal"
        return "gate" if sign * self.value >= sign * self.gate else "MISSED"

    def row(self) -> str:
        """One line of the table."""

        def bound(number: float | None) -> str:
            return "-" if number is None else f"{'≥' if self.at_least else '≤'} {number:.3g} {self.unit}"

        if self.value is None:
            value = "not run: " + self.note.replace("|", "\\|")
        else:
            value = " ".join([f"{self.value:.3g} {self.unit}", *([f"({self.note})"] if self.note else [])])
        return f"| {' | '.join([self.what, value, bound(self.gate), bound(self.goal), self.verdict])} |"
