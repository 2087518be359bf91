"""Runs the parts of the test suite one after the other and prints a table of the time that each took.

    python tests/run_parts.py all|unit|nightly [pytest arguments]

A part that fails does not stop the others; the exit code is that of the first that failed.  In CI (``CI=true``)
nothing is skipped for want of Java, Maven or a broker: see ``tests/fix_sandbox.py``.
"""

from __future__ import annotations

import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PYTEST = [sys.executable, "-m", "pytest", "-q", "--durations=5", "--durations-min=10"]
NO_JAVA = ["-m", "not real and not nightly and not fuzz"]
ON_BOTH_CORES = ["-n", "2", "--dist", "loadfile"]
"""For what starts no server: the tests of a file stay together, because they share fixtures."""


@dataclass(frozen=True)
class Part:
    """One row of the table; ``budget_minutes`` is what the part should take on two cores."""

    name: str
    commands: tuple[tuple[str, ...], ...]
    budget_minutes: float


def tool(name: str) -> str:
    """A command of the environment that runs this."""
    return str(Path(sys.executable).parent / name)


LINT = Part(
    "lint, import rules",
    (
        (tool("ruff"), "check", "--no-cache", "."),
        (tool("lint-imports"), "--no-cache"),
    ),
    0.5,
)
TYPES = Part("types", ((tool("mypy"),),), 0.5)
UNIT = Part(
    "unit, property, hostile",
    (
        (
            *PYTEST,
            *NO_JAVA,
            *ON_BOTH_CORES,
            "tests/unit",
            "tests/property",
            "tests/hostile",
            "tests/conformance",
            "tests/coordinator",
            "tests/broker",
            "tests/interop",
            "tests/migration",
        ),
    ),
    2,
)
FUZZ = Part("hostile frames", ((*PYTEST, "-m", "fuzz and not nightly", "tests/hostile"),), 1.5)
TRANSCRIPTS = Part("transcripts", ((*PYTEST, *NO_JAVA, "tests/transcripts"),), 0.5)
CONFORMANCE = Part("conformance, real servers", ((*PYTEST, "-m", "real and not nightly", "tests/conformance"),), 2)
REAL = Part("real members", ((*PYTEST, "-m", "real and not nightly", "tests/real"),), 6)
WHOLE = Part("whole consumer", ((*PYTEST, "-m", "real and not nightly", "tests/whole_consumer"),), 3)
INTEROP = Part("modern groups", ((*PYTEST, "-m", "real and not nightly", "tests/interop", "tests/broker"),), 3)
MIGRATION = Part("migration", ((*PYTEST, "-m", "real and not nightly", "tests/migration"),), 4)
SPARK = Part("Spark", ((*PYTEST, "-m", "real and not nightly", "tests/spark"),), 5)
NIGHTLY = Part("nightly", ((*PYTEST, "-m", "nightly", "tests"),), 120)

SUITES = {
    "all": (LINT, TYPES, UNIT, FUZZ, TRANSCRIPTS, CONFORMANCE, REAL, WHOLE, INTEROP, MIGRATION, SPARK),
    "unit": (LINT, TYPES, UNIT, TRANSCRIPTS),
    "nightly": (NIGHTLY,),
}


def run(part: Part, extra: list[str]) -> tuple[int, float]:
    """The part's exit code and how many seconds it took."""
    print(f"\n=== {part.name} ===", flush=True)
    start = time.monotonic()
    code = 0
    for command in part.commands:
        arguments = extra if "pytest" in command else []
        code = subprocess.run([*command, *arguments], cwd=ROOT, check=False).returncode or code
    return code, time.monotonic() - start


def main() -> int:
    suite, extra = sys.argv[1], sys.argv[2:]
    results = [(part, *run(part, extra)) for part in SUITES[suite]]
    print(f"\n{'part':<28}{'result':<10}{'minutes':>8}{'budget':>8}")
    for part, code, seconds in results:
        result = "ok" if code == 0 else f"exit {code}"
        print(f"{part.name:<28}{result:<10}{seconds / 60:>8.1f}{part.budget_minutes:>8.1f}")
    print(f"{'all':<28}{'':<10}{sum(seconds for _, _, seconds in results) / 60:>8.1f}", flush=True)
    return next((code for _, code, _ in results if code), 0)


if __name__ == "__main__":
    sys.exit(main())
