"""Seeds of the model worlds: fixed ones in every run, new ones in each night, and those that failed once.

    every run    seeds 0, 1, 2, ... and the kept ones
    nightly      new ones, which follow from a base that is drawn in each run and printed at its end

A world follows from its seed alone.  A seed that fails is written into ``tests/data/failed-seeds.txt``, which belongs
into the commit that mends what it found; the error has the command that replays it.  In the environment:

    ZKCONSUMER_SEED       this seed alone, in every test that asks for seeds
    ZKCONSUMER_SEED_BASE  the base of the night's seeds, to repeat a whole night
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from random import Random

import pytest

KEPT = Path(__file__).parent / "data" / "failed-seeds.txt"
ONE, BASE = "ZKCONSUMER_SEED", "ZKCONSUMER_SEED_BASE"

os.environ.setdefault(BASE, str(int.from_bytes(os.urandom(4), "big")))
# In the environment, so that the workers of pytest-xdist, which are its children, collect the same tests.

_drawn: dict[str, int] = {}
"""How many new seeds each model has had in this run."""

_failed: list[str] = []
"""Lines that were added to the file in this run."""


class Seeds:
    """Those of one model, whose ``name`` (without blanks) stands in the file of kept seeds."""

    def __init__(self, name: str) -> None:
        assert " " not in name, "a line of the file is a name, a blank and a number"
        self.name = name

    def first(self, count: int) -> list[int]:
        """The same ones in every run: 0, 1, 2, ... and the kept ones."""
        return self._one() or [*range(count), *(seed for seed in self.kept() if seed >= count)]

    def new(self, count: int) -> list[int]:
        """So many of this run's own; for tests that are marked ``nightly``."""
        if self._one():
            return self._one()
        _drawn[self.name] = count
        return Random(f"{os.environ[BASE]} {self.name}").sample(range(2**32), count)

    def kept(self) -> list[int]:
        """Those that failed once."""
        lines = [line.split() for line in KEPT.read_text().splitlines() if line and not line.startswith("#")]
        return [int(words[1]) for words in lines if words[0] == self.name]

    def live(self, seeds: Iterable[int], life: Callable[[int], object]) -> None:
        """Call ``life`` with each seed.  One that raises is kept, and its error says how to replay it."""
        for seed in seeds:
            try:
                life(seed)
            except Exception as error:
                self._keep(seed)
                test = os.environ.get("PYTEST_CURRENT_TEST", "").rpartition(" ")[0]
                error.add_note(
                    f"seed {seed} of {self.name}, kept in {KEPT}; replay it: {ONE}={seed} python -m pytest '{test}'"
                )
                raise

    def _one(self) -> list[int]:
        return [int(os.environ[ONE])] if ONE in os.environ else []

    def _keep(self, seed: int) -> None:
        line = f"{self.name} {seed}"
        if ONE in os.environ or seed in self.kept():
            return
        _failed.append(line)
        with KEPT.open("a") as file:
            file.write(f"{line}\n")


def is_one_seed() -> bool:
    """Whether one seed is replayed: what only many histories together show is not asked for then."""
    return ONE in os.environ


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Where the new seeds came from, and which of all failed."""
    if _drawn:
        counts = ", ".join(f"{count} of {name}" for name, count in sorted(_drawn.items()))
        terminalreporter.write_line(f"new seeds: {counts}; repeat them with {BASE}={os.environ[BASE]}")
    for line in _failed:
        terminalreporter.write_line(f"seed that failed, kept in {KEPT}: {line}")
