"""Completion in real shells, and what the program without arguments shows."""

from __future__ import annotations

import os
import pty
import select
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from zkconsumer.cli import main
from zkconsumer.cli.completion import SHELLS

READ_TIMEOUT_S = 90
PROGRAM = """#!{python}
import os, sys
if "_ZKCONSUMER_COMPLETE" not in os.environ and sys.argv[1] != "completion":
    sys.exit(print("CALL" + "ED", *sys.argv[1:]))
from zkconsumer.cli import main
main(prog_name="zkconsumer")
"""
"""Prints its arguments, unless the shell asks how to complete them."""


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    program = tmp_path / "zkconsumer"
    program.write_text(PROGRAM.format(python=sys.executable))
    program.chmod(0o755)
    contexts = tmp_path / "config" / "zkconsumer" / "config.toml"
    contexts.parent.mkdir(parents=True)
    contexts.write_text('[contexts.staging-eu]\nzookeeper = "zk:2181"\n')
    return {
        "PATH": f"{tmp_path}:{os.environ['PATH']}", "HOME": str(tmp_path), "TERM": "xterm", "LANG": "C.UTF-8",
        "XDG_CONFIG_HOME": str(tmp_path / "config"), "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }  # fmt: skip


def shell_path(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


class Typist:
    """A shell in a terminal, and what it wrote."""

    def __init__(self, words: list[str], environment: dict[str, str]) -> None:
        self._master, slave = pty.openpty()
        self._shell = subprocess.Popen(
            words, stdin=slave, stdout=slave, stderr=slave, env=environment, start_new_session=True
        )
        os.close(slave)

    def type_until(self, keys: str, wanted: str) -> str:
        """Type the keys, and return what the shell wrote up to the wanted text, or until it writes nothing more."""
        os.write(self._master, keys.encode())
        seen = ""
        while wanted not in seen and select.select([self._master], [], [], READ_TIMEOUT_S)[0]:
            seen += os.read(self._master, 65_536).decode("utf-8", "replace")
        return seen

    def close(self) -> None:
        self._shell.kill()
        self._shell.wait()
        os.close(self._master)


@pytest.fixture(params=["bash --norc --noprofile -i", "zsh -f -i"])
def typist(request: pytest.FixtureRequest, environment: dict[str, str]) -> Iterator[Typist]:
    name, *more = str(request.param).split()
    shell = Typist([shell_path(name), *more], environment)
    try:
        before = "autoload -Uz compinit; compinit -u -D; " if name == "zsh" else ""
        ready = shell.type_until(f"{before}eval \"$(zkconsumer completion {name})\"; echo REA''DY\n", "READY")
        assert "READY" in ready, ready
        yield shell
    finally:
        shell.close()


def test_the_tab_key_completes_commands_options_and_contexts(typist: Typist) -> None:
    for keys, called in (
        ("zkconsumer groups desc\t\n", "CALLED groups describe"),
        ("zkconsumer lag g --context stag\t\n", "CALLED lag g --context staging-eu"),
        ("zkconsumer lag g --bootstrap-s\t\n", "CALLED lag g --bootstrap-server"),
    ):
        seen = typist.type_until(keys, called)
        assert called in seen, seen


def test_fish_completes_commands_and_contexts(environment: dict[str, str]) -> None:
    lines = ("zkconsumer groups desc", "zkconsumer lag g --context stag")
    asked = "; ".join(f"complete -C '{line}'" for line in lines)
    done = subprocess.run(
        [shell_path("fish"), "--no-config", "-c", f"zkconsumer completion fish | source; {asked}"],
        env=environment, capture_output=True, text=True, timeout=READ_TIMEOUT_S, check=True,
    )  # fmt: skip
    assert [line.split("\t")[0] for line in done.stdout.splitlines()] == ["describe", "staging-eu"], done.stderr


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_is_all_that_is_printed(shell: str) -> None:
    done = CliRunner().invoke(main, ["completion", shell])
    assert (done.exit_code, "_ZKCONSUMER_COMPLETE" in done.stdout, done.stderr) == (0, True, "")


def test_a_file_of_contexts_that_is_not_valid_completes_nothing(environment: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "config" / "zkconsumer" / "config.toml").write_text("[")
    asked = {"_ZKCONSUMER_COMPLETE": "bash_complete", "COMP_WORDS": "zkconsumer lag --context ", "COMP_CWORD": "3"}
    done = subprocess.run(
        [str(tmp_path / "zkconsumer")], env=environment | asked, capture_output=True, text=True, check=True
    )
    assert (done.stdout.strip(), done.stderr) == ("", "")


def test_without_arguments_there_are_the_first_five_commands() -> None:
    done = CliRunner().invoke(main, [])
    commands = [line.split()[1] for line in done.stderr.splitlines() if line.startswith("  zkconsumer")]
    assert commands == ["demo", "groups", "lag", "groups", "consume"]
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.splitlines()[-1] == "All commands: zkconsumer --help"
