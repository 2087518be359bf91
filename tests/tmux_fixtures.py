"""A real terminal for commands: a shell in tmux."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from zkconsumer.testing.sandbox import wait_until

PROGRAM = f"{shlex.quote(sys.executable)} -c 'from zkconsumer.cli import main; main()'"
"""The command line, as the console script runs it; also where no script is installed."""

ROOT = Path(__file__).parents[1]
WAIT_MS = 60_000
PROMPT = "READY>"

_numbers = itertools.count()


class TmuxTerminal:
    """A shell in a terminal of this size; the socket of its tmux is its own."""

    def __init__(self, columns: int, lines: int, environment: Mapping[str, str]) -> None:
        self.exit_code = 0
        self._socket = f"zkconsumer-{os.getpid()}-{next(_numbers)}"
        variables = {"PS1": PROMPT, "PYTHONPATH": str(ROOT), "ENV": "", **environment}
        shell = [
            "env",
            "-u",
            "COLUMNS",
            "-u",
            "LINES",
            *(f"{name}={value}" for name, value in variables.items()),
            "sh",
            "-i",
        ]
        self._tmux("-f", "/dev/null", "new-session", "-d", "-x", str(columns), "-y", str(lines), shlex.join(shell))
        self.wait_for(PROMPT)

    def run(self, words: str) -> str:
        """Run ``zkconsumer`` with these words; return what the terminal shows when it has ended.  See ``exit_code``."""
        end = f"ENDED{next(_numbers)}-"  # another one for each command: the screen may not be cleared yet
        self.type(f"clear; {PROGRAM} {words}; echo {end}$?")

        def code() -> str:
            found = re.search(rf"^{end}([0-9]+)$", self.text(), re.MULTILINE)
            return "" if found is None else found[1]

        self.exit_code = int(wait_until(code, f"{words} has ended", WAIT_MS))
        return self.text()

    def type(self, line: str) -> None:
        """Type a line and Enter."""
        self._tmux("send-keys", "-l", line)
        self.press("Enter")

    def press(self, *keys: str) -> None:
        """Press keys, with tmux's names."""
        self._tmux("send-keys", *keys)

    def resize(self, columns: int, lines: int) -> None:
        """Another size, as if a window had been drawn larger."""
        self._tmux("resize-window", "-x", str(columns), "-y", str(lines))

    def text(self, *, with_colours: bool = False) -> str:
        """What the terminal shows."""
        return self._tmux("capture-pane", "-p", *(["-e"] if with_colours else []))

    def wait_for(self, text: str) -> str:
        """Wait until the terminal shows the text; return everything that it shows."""

        def shown() -> str:
            found = self.text()
            return found if text in found else ""

        try:
            return wait_until(shown, f"the terminal shows {text!r}", WAIT_MS)
        except Exception as error:
            raise AssertionError(f"the terminal does not show {text!r} but:\n{self.text()}") from error

    def close(self) -> None:
        """End the shell and its tmux."""
        self._tmux("kill-server")

    def _tmux(self, *words: str) -> str:
        done = subprocess.run(["tmux", "-L", self._socket, *words], capture_output=True, text=True, check=True)
        return done.stdout


@contextmanager
def tmux_terminal(columns: int, lines: int = 24, **environment: str) -> Iterator[TmuxTerminal]:
    """A terminal; without tmux the test is skipped, in CI it fails."""
    if shutil.which("tmux") is None:
        reason = "tmux is not installed: apt install tmux"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    terminal = TmuxTerminal(columns, lines, environment)
    try:
        yield terminal
    finally:
        terminal.close()
