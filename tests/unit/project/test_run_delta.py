"""Where pyspark 4.2 cannot be installed the Delta tests are skipped with the reason, and in CI they fail."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests import run_delta


class Commands:
    """Takes the place of ``subprocess.run``."""

    def __init__(self, error: str = "") -> None:
        self.error = error
        self.calls: list[tuple[list[str], dict[str, str]]] = []

    def __call__(self, words: list[str], **options: Any) -> Any:
        self.calls.append((words, options["env"]))
        if self.error and "pip" in words:
            raise subprocess.CalledProcessError(1, words, output=self.error)
        return subprocess.CompletedProcess(words, 0)


def run(patch: pytest.MonkeyPatch, folder: Path, commands: Commands, ci: str) -> int:
    patch.setenv("ZKCONSUMER_CACHE", str(folder))
    patch.setenv("PIP_CONSTRAINT", "constraints.txt")
    patch.setenv("CI", ci)
    patch.setattr(sys, "argv", ["run_delta.py", "-k", "vacuum"])
    patch.setattr(subprocess, "run", commands)
    return run_delta.main()


@pytest.mark.parametrize(("ci", "code", "words"), [("", 0, "skipped"), ("true", 1, "in CI nothing is skipped")])
def test_without_a_network_it_is_a_skip_and_in_ci_a_failure(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], ci: str, code: int, words: str
) -> None:
    commands = Commands("line\nNo matching distribution")
    assert run(monkeypatch, tmp_path, commands, ci) == code
    assert f"tests/delta: {words}: pyspark 4.2.0 cannot be installed: line\nNo matching" in capsys.readouterr().out
    assert len(commands.calls) == 1, "no test runs"
    assert not (tmp_path / "spark" / "pyspark-4.2.0").exists()


def test_pyspark_is_installed_once_and_is_before_the_packages_of_this_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    commands = Commands()
    assert run(monkeypatch, tmp_path, commands, "") == 0
    assert run(monkeypatch, tmp_path, commands, "") == 0
    [(pip, pip_environment), (first, environment), (second, _)] = commands.calls
    assert pip[1:3] == ["-m", "pip"]
    assert "PIP_CONSTRAINT" not in pip_environment
    assert first == second
    assert first[-3:] == ["tests/delta", "-k", "vacuum"]
    assert environment["PYTHONPATH"].startswith(f"{tmp_path / 'spark' / 'pyspark-4.2.0'}:{run_delta.ROOT}")
