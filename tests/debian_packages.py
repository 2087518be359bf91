"""The programs that tests need from the system, and an installer for the Debian packages that have them.

    python3 tests/debian_packages.py

installs with ``apt-get`` those that are missing; ``.ci/run`` runs it before the test command.  It needs only Python's
standard library, since nothing else is installed then.  The standard output has the names of the packages that
Debian's archive could not deliver, everything else is on standard error.  Exit codes: 0 if each program is there, or
the archive did not answer, or outside of CI; 1 in CI if a program is missing for another reason: this user is not
root, there is no ``apt-get``, or ``apt-get`` refuses.

An archive that does not answer says nothing about this project, so the tests that need its packages are skipped then
(``unreachable_packages``).  Every other lack makes CI fail.
"""

from __future__ import annotations

import glob
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

UNREACHABLE_VARIABLE = "ZKCONSUMER_UNREACHABLE_PACKAGES"
"""The standard output of the installer; ``.ci/run`` sets it for the tests."""

UPDATE_TIMEOUT_S = 300
DOWNLOAD_TIMEOUT_S = 600
UNPACK_TIMEOUT_S = 600
LAST_LINES = 6
NOT_DELIVERED = ("Failed to fetch", "Unable to fetch", "Temporary failure resolving", "Connection failed")
"""What ``apt-get`` prints when the archive does not answer, or does not have a file that its own index names."""

OPTIONS = ("--yes", "-o", "Acquire::Retries=3", "-o", "Acquire::http::Timeout=30", "-o", "DPkg::Lock::Timeout=120")
ENVIRONMENT = {"DEBIAN_FRONTEND": "noninteractive", "RUNLEVEL": "1", "LC_ALL": "C"}
"""No questions; a package that contains a service does not start it (``invoke-rc.d`` in runlevel 1); English errors."""


@dataclass(frozen=True)
class SystemProgram:
    """One program; it is there if one of ``names`` is on PATH, or a file has the pattern ``elsewhere``."""

    names: tuple[str, ...]
    package: str
    elsewhere: str = ""

    def find(self) -> str | None:
        """The path of the program; None if the system does not have it."""
        on_path = (found for name in self.names if (found := shutil.which(name)) is not None)
        return next(on_path, None) or next(iter(sorted(glob.glob(self.elsewhere), reverse=True)), None)

    @property
    def lack(self) -> str:
        """What to do if it is missing, as a sentence."""
        return f"{self.names[0]} is missing: apt-get install {self.package}"


CHROMIUM = SystemProgram(("chromium", "chromium-browser", "google-chrome"), "chromium")
NPM = SystemProgram(("npm",), "npm")
POSTGRES = SystemProgram(("initdb",), "postgresql", "/usr/lib/postgresql/*/bin/initdb")
PROMETHEUS = SystemProgram(("prometheus",), "prometheus")
PROMTOOL = SystemProgram(("promtool",), "prometheus")
PROGRAMS = (CHROMIUM, NPM, POSTGRES, PROMETHEUS, PROMTOOL)


def missing_packages() -> list[str]:
    """The packages of the programs that are not there."""
    return sorted({program.package for program in PROGRAMS if program.find() is None})


def unreachable_packages() -> frozenset[str]:
    """The packages that Debian's archive could not deliver to this run of CI."""
    return frozenset(os.environ.get(UNREACHABLE_VARIABLE, "").split())


@dataclass(frozen=True)
class AptResult:
    """How one ``apt-get`` ended: ``code`` None if it did not end in time."""

    code: int | None
    output: str

    @property
    def is_unreachable(self) -> bool:
        return self.code is None or any(text in self.output for text in NOT_DELIVERED)


def is_outside(update: AptResult, failed: AptResult) -> bool:
    """Whether packages are missing because the archive does not answer: the index or the files are not to be had."""
    return failed.is_unreachable or (update.is_unreachable and "Unable to locate package" in failed.output)


def run_apt(words: Sequence[str], timeout_s: int) -> AptResult:
    """One ``apt-get`` with these words."""
    command = ["apt-get", *OPTIONS, *words]
    print("+", *command, file=sys.stderr, flush=True)
    try:
        done = subprocess.run(
            command, env={**os.environ, **ENVIRONMENT}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, errors="replace", timeout=timeout_s, check=False,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return AptResult(None, f"apt-get did not end in {timeout_s} s\n")
    return AptResult(done.returncode, done.stdout)


def install(packages: Sequence[str]) -> tuple[bool, bool]:
    """Install them; whether that was done, and if not, whether the archive is the reason."""
    update = run_apt(["update"], UPDATE_TIMEOUT_S)
    for words, timeout_s in ((["--download-only"], DOWNLOAD_TIMEOUT_S), ([], UNPACK_TIMEOUT_S)):
        done = run_apt(["install", "--no-install-recommends", *words, *packages], timeout_s)
        if done.code != 0:
            lines = [*update.output.splitlines()[-LAST_LINES:], *done.output.splitlines()[-LAST_LINES:]]
            print(*lines, sep="\n", file=sys.stderr)
            return False, bool(words) and is_outside(update, done)
    return True, False


def main() -> int:
    packages = missing_packages()
    if not packages:
        return 0
    names = " ".join(packages)
    code = 1 if os.environ.get("CI") == "true" else 0
    if os.geteuid() != 0 or shutil.which("apt-get") is None:
        print(f"not installed: {names}. As root on Debian: apt-get install {names}", file=sys.stderr)
        return code
    is_done, is_archive = install(packages)
    if is_archive:
        print(f"Debian's archive did not deliver {names}: the tests that need them are skipped", file=sys.stderr)
        print(names)
        return 0
    still = " ".join(missing_packages())
    if not is_done or still:
        print(f"not installed: {still or names}: apt-get failed, see above", file=sys.stderr)
        return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
