"""Every check of the probe, with the releases that it concerns."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.interop.probe.probed_broker import Probe

Run = Callable[["Probe"], None]


def numbers(release: str) -> tuple[int, ...]:
    """``"0.9.0.1"`` as something that can be compared."""
    return tuple(int(part) for part in release.split("."))


@dataclass(frozen=True, slots=True)
class Check:
    """One thing that holds of brokers from release ``since`` on and before release ``until``."""

    name: str
    run: Run
    since: str
    until: str | None
    is_slow: bool

    def concerns(self, release: str) -> bool:
        """Whether a broker of this release is to be asked."""
        return numbers(self.since) <= numbers(release) and (
            self.until is None or numbers(release) < numbers(self.until)
        )


CHECKS: dict[str, Check] = {}
"""Name → check; the name is what it shows."""


def check(*, since: str = "0.9", until: str | None = None, is_slow: bool = False) -> Callable[[Run], Run]:
    """Put a function into ``CHECKS``; ``is_slow``: it waits for time-outs of the broker."""

    def put(run: Run) -> Run:
        name = run.__name__
        assert name not in CHECKS, f"{name} is there twice"
        CHECKS[name] = Check(name, run, since, until, is_slow)
        return run

    return put


def checks_of(release: str) -> list[Check]:
    """Those that concern this release."""
    return [each for each in CHECKS.values() if each.concerns(release)]
