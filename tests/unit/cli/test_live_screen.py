"""``LiveScreen`` in a pseudo terminal: the terminal is as before after every end."""

from __future__ import annotations

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from typing import Any

import pytest

from zkconsumer.cli.live_screen import ENTER_SCREEN, LEAVE_SCREEN
from zkconsumer.testing.sandbox import wait_until

PROGRAM = """
import sys
from zkconsumer.cli.live_screen import LiveScreen
with LiveScreen() as screen:
    while True:
        screen.draw([f"size {screen.size()}", "second"])
        keys = screen.wait(60_000)
        if "q" in keys:
            break
        if "x" in keys:
            raise ValueError("an error of the program")
        screen.draw([f"keys {keys!r}"])
"""

WAIT_MS = 60_000


class PtyProgram:
    """``PROGRAM`` in a terminal of its own."""

    def __init__(self) -> None:
        self.master, self.slave = pty.openpty()
        self.before = termios.tcgetattr(self.slave)
        self.shown = ""
        self.resize(80, 24)
        environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM],
            stdin=self.slave,
            stdout=self.slave,
            stderr=subprocess.PIPE,
            env=environment,
            process_group=0,  # in this session: the kernel never stops a group that no shell watches
        )

    def resize(self, columns: int, lines: int) -> None:
        fcntl.ioctl(self.master, termios.TIOCSWINSZ, struct.pack("HHHH", lines, columns, 0, 0))

    def read(self) -> str:
        while select.select([self.master], [], [], 0)[0]:
            self.shown += os.read(self.master, 65_536).decode()
        return self.shown

    def wait_for(self, text: str) -> None:
        wait_until(lambda: text in self.read(), f"the program writes {text!r}", WAIT_MS)

    def press(self, keys: bytes) -> None:
        os.write(self.master, keys)

    def settings(self) -> Any:
        return termios.tcgetattr(self.slave)

    def end(self) -> int:
        """Its exit code; the terminal must be as before."""
        code = self.process.wait(WAIT_MS / 1000)
        assert self.settings() == self.before
        self.read()
        assert self.shown.count(ENTER_SCREEN) == self.shown.count(LEAVE_SCREEN)
        assert self.shown.endswith(LEAVE_SCREEN)
        return code


@pytest.fixture
def program() -> Iterator[PtyProgram]:
    made = PtyProgram()
    made.wait_for("second")
    assert made.settings() != made.before
    yield made
    if made.process.poll() is None:
        made.process.kill()
    made.process.communicate()
    os.close(made.master)
    os.close(made.slave)


def test_a_key_ends_it_and_the_terminal_is_as_before(program: PtyProgram) -> None:
    program.press(b"a")
    program.wait_for("keys 'a'")
    program.press(b"q")
    assert program.end() == 0


def test_an_exception_leaves_the_terminal_as_before(program: PtyProgram) -> None:
    program.press(b"x")
    assert program.end() == 1
    assert program.process.stderr is not None
    assert b"an error of the program" in program.process.stderr.read()


@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_leaves_the_terminal_as_before(program: PtyProgram, number: signal.Signals, code: int) -> None:
    program.process.send_signal(number)
    assert program.end() == code


def test_ctrl_c_leaves_the_terminal_as_before(program: PtyProgram) -> None:
    program.process.send_signal(signal.SIGINT)
    assert program.end() == -signal.SIGINT


def test_the_terminal_is_as_before_while_the_program_is_stopped(program: PtyProgram) -> None:
    program.process.send_signal(signal.SIGTSTP)
    wait_until(lambda: program.settings() == program.before, "the terminal is given back", WAIT_MS)
    wait_until(lambda: _state(program.process.pid).startswith("T"), "the program is stopped", WAIT_MS)
    assert program.read().endswith(LEAVE_SCREEN)
    program.process.send_signal(signal.SIGCONT)
    wait_until(lambda: program.read().count("second") == 2, "the screen is drawn again", WAIT_MS)
    assert program.settings() != program.before
    program.press(b"q")
    assert program.end() == 0


def test_another_size_is_drawn_at_once(program: PtyProgram) -> None:
    program.resize(123, 45)
    program.process.send_signal(signal.SIGWINCH)
    program.wait_for("size os.terminal_size(columns=123, lines=45)")
    program.press(b"q")
    assert program.end() == 0


def _state(pid: int) -> str:
    done = subprocess.run(["ps", "-o", "state=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return done.stdout.strip()
