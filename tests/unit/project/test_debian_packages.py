"""What CI installs before the tests, and what a test does when a program is missing."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from tests import debian_packages
from tests.debian_packages import CHROMIUM, PROGRAMS, UNREACHABLE_VARIABLE, AptResult, SystemProgram, is_outside
from tests.requirement_fixtures import report_lack, require_program

ROOT = Path(__file__).resolve().parents[3]
NOWHERE = SystemProgram(("zkconsumer-no-such-program",), "no-such-package")
FINE = AptResult(0, "")
NO_SUCH = AptResult(100, "E: Unable to locate package no-such-package\n")
NO_FILE = AptResult(100, "E: Failed to fetch http://archive/no-such-package.deb  404  Not Found\n")
NO_INDEX = AptResult(0, "W: Failed to fetch http://archive/InRelease  Temporary failure resolving 'archive'\n")


@pytest.fixture
def root_in_ci(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """CI as root; only ``NOWHERE`` is needed."""
    monkeypatch.setenv("CI", "true")
    monkeypatch.setattr(debian_packages, "PROGRAMS", (NOWHERE,))
    monkeypatch.setattr(debian_packages.os, "geteuid", lambda: 0)
    monkeypatch.setattr(debian_packages.shutil, "which", lambda name: "/bin/apt-get" if name == "apt-get" else None)
    return monkeypatch


def answers(monkeypatch: pytest.MonkeyPatch, *results: AptResult) -> list[list[str]]:
    """``apt-get`` ends like this, one call after the other; the words of the calls."""
    called: list[list[str]] = []
    left = list(results)

    def play(words: list[str], timeout_s: int) -> AptResult:
        called.append(list(words))
        return left.pop(0)

    monkeypatch.setattr(debian_packages, "run_apt", play)
    return called


def test_the_text_of_the_second_command_names_each_package() -> None:
    found = re.search(r"^Run every check.*?^<!-- the test command -->", (ROOT / "README.md").read_text(), re.M | re.S)
    assert found is not None
    for program in PROGRAMS:
        assert f"`{program.package}`" in found[0]


def test_ci_installs_before_the_test_command() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    assert 0 < text.index(f"{UNREACHABLE_VARIABLE}=$(python3 tests/debian_packages.py)") < text.index('-c "$command"')


def test_nothing_is_installed_when_nothing_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    here = SystemProgram(("zkconsumer-no-such-program",), "python", sys.executable)
    monkeypatch.setattr(debian_packages, "PROGRAMS", (here,))
    assert answers(monkeypatch) == []
    assert here.find() == sys.executable
    assert debian_packages.main() == 0


def test_what_is_missing_is_downloaded_and_then_installed(root_in_ci: pytest.MonkeyPatch, tmp_path: Path) -> None:
    program = SystemProgram(("nowhere",), "no-such-package", str(tmp_path / "*"))
    root_in_ci.setattr(debian_packages, "PROGRAMS", (program,))
    called = answers(root_in_ci, FINE, FINE, FINE)
    before, done = [program.package], list[str]()
    root_in_ci.setattr(debian_packages, "missing_packages", lambda: before if len(called) < 3 else done)
    assert debian_packages.main() == 0
    assert called == [
        ["update"],
        ["install", "--no-install-recommends", "--download-only", "no-such-package"],
        ["install", "--no-install-recommends", "no-such-package"],
    ]


@pytest.mark.parametrize(
    "results", [(NO_INDEX, NO_SUCH), (FINE, NO_FILE), (FINE, AptResult(None, "")), (AptResult(None, ""), NO_SUCH)]
)
def test_an_archive_that_does_not_answer_is_no_failure(
    root_in_ci: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: tuple[AptResult, AptResult]
) -> None:
    answers(root_in_ci, *results)
    assert debian_packages.main() == 0
    assert capsys.readouterr().out == "no-such-package\n"


@pytest.mark.parametrize(
    "results",
    [
        (FINE, NO_SUCH),
        (FINE, AptResult(100, "nodejs : Conflicts: npm\n")),
        (FINE, FINE, AptResult(100, "")),
        (FINE, FINE, FINE),
    ],
    ids=["no such package", "conflict", "not unpacked", "without the program"],
)
def test_a_refusal_of_apt_is_a_failure_in_ci(
    root_in_ci: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: tuple[AptResult, ...]
) -> None:
    answers(root_in_ci, *results)
    assert debian_packages.main() == 1
    printed = capsys.readouterr()
    assert printed.out == ""
    assert "not installed: no-such-package" in printed.err
    root_in_ci.delenv("CI")
    answers(root_in_ci, *results)
    assert debian_packages.main() == 0


def test_without_root_ci_fails_with_the_command(
    root_in_ci: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    root_in_ci.setattr(debian_packages.os, "geteuid", lambda: 1000)
    assert answers(root_in_ci) == []
    assert debian_packages.main() == 1
    assert "As root on Debian: apt-get install no-such-package" in capsys.readouterr().err


def test_an_index_that_is_old_but_there_is_enough() -> None:
    conflict = AptResult(100, "nodejs : Conflicts: npm\n")
    assert not is_outside(NO_INDEX, conflict)


def test_a_missing_program_is_a_skip_and_in_ci_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    reason = "zkconsumer-no-such-program is missing: apt-get install no-such-package"
    monkeypatch.delenv(UNREACHABLE_VARIABLE, raising=False)
    monkeypatch.delenv("CI", raising=False)
    with pytest.raises(pytest.skip.Exception, match=reason):
        require_program(NOWHERE)
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match=f"in CI nothing real is skipped: {reason}"):
        require_program(NOWHERE)
    monkeypatch.setenv(UNREACHABLE_VARIABLE, "postgresql no-such-package")
    with pytest.raises(pytest.skip.Exception, match=r"Debian's archive did not answer"):
        require_program(NOWHERE)
    with pytest.raises(pytest.fail.Exception, match="no JDK"):
        report_lack("no JDK")


def test_a_program_on_the_path_is_found(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert CHROMIUM.find() is None
    program = tmp_path / "google-chrome"
    program.write_text("#!/bin/sh\n")
    os.chmod(program, 0o755)
    assert CHROMIUM.find() == str(program)
