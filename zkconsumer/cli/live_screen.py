"""``LiveScreen``: a full screen of text that is redrawn, and the keys that are pressed.  POSIX terminals; no curses.

The terminal is as before after every end: Ctrl-C, SIGTERM, SIGHUP, an exception; and while the program is stopped with
Ctrl-Z.  (SIGKILL cannot be caught: ``reset`` repairs the terminal.)  Signals, another size and ``wake`` end ``wait``.
"""

from __future__ import annotations

import os
import select
import shutil
import signal
import sys
import termios
import tty
from collections.abc import Sequence
from contextlib import suppress
from types import FrameType, TracebackType
from typing import Any, NoReturn

from zkconsumer.cli.terminal import is_terminal

ENTER_SCREEN = "\x1b[?1049h\x1b[?25l"
"""The alternate screen, without a cursor."""

LEAVE_SCREEN = "\x1b[?25h\x1b[?1049l"
TOP_LEFT, END_OF_LINE, BELOW = "\x1b[H", "\x1b[K\r\n", "\x1b[J"

KEY_BYTES_MAX = 1_024
SIGNAL_EXIT_CODE = 128
"""A program that a signal ended has this exit code plus the number of the signal."""


class LiveScreen:
    """A context manager; used on the main thread, except ``wake``."""

    def __init__(self) -> None:
        self._wake_read, self._wake_write = os.pipe()
        for end in (self._wake_read, self._wake_write):
            os.set_blocking(end, False)
        self._has_keys = is_terminal(sys.stdin)
        self._settings: list[Any] | None = None
        self._handlers: dict[signal.Signals, Any] = {}

    def __enter__(self) -> LiveScreen:
        self._handlers = {
            number: signal.signal(number, handler)
            for number, handler in (
                (signal.SIGTERM, _exit),
                (signal.SIGHUP, _exit),
                (signal.SIGTSTP, self._suspend),
                (signal.SIGWINCH, self._on_new_size),
            )
        }
        try:
            self._take()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def size(self) -> tuple[int, int]:
        """Columns and lines."""
        return shutil.get_terminal_size()

    def draw(self, lines: Sequence[str]) -> None:
        """Replace what the screen shows; ``lines`` must fit."""
        sys.stdout.write(TOP_LEFT + "".join(line + END_OF_LINE for line in lines[:-1]) + "".join(lines[-1:]))
        sys.stdout.write("\x1b[K" + BELOW)
        sys.stdout.flush()

    def wait(self, timeout_ms: int) -> str:
        """Wait for keys, a signal or ``wake``; return the keys, "" without any.  EOF of the terminal is a ``q``."""
        sources = [self._wake_read, *([sys.stdin.fileno()] if self._has_keys else [])]
        ready, _, _ = select.select(sources, [], [], timeout_ms / 1000)
        if self._wake_read in ready:
            with suppress(BlockingIOError):
                os.read(self._wake_read, KEY_BYTES_MAX)
        if self._has_keys and sys.stdin.fileno() in ready:
            return os.read(sys.stdin.fileno(), KEY_BYTES_MAX).decode(errors="replace") or "q"
        return ""

    def wake(self) -> None:
        """End ``wait``; may be called on any thread, also after the end."""
        with suppress(OSError):  # it is full: it wakes anyway; or closed
            os.write(self._wake_write, b".")

    def _take(self) -> None:
        if self._has_keys:
            self._settings = termios.tcgetattr(sys.stdin)
            tty.setcbreak(sys.stdin)  # keys without Enter and without an echo; Ctrl-C and Ctrl-Z stay signals
        sys.stdout.write(ENTER_SCREEN)
        sys.stdout.flush()

    def _give_back(self) -> None:
        with suppress(OSError, ValueError):  # the terminal is gone
            sys.stdout.write(LEAVE_SCREEN)
            sys.stdout.flush()
        if self._settings is not None:
            with suppress(OSError, ValueError, termios.error):
                termios.tcsetattr(sys.stdin, termios.TCSADRAIN, self._settings)
            self._settings = None

    def _end(self) -> None:
        self._give_back()
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._handlers = {}
        read, write = self._wake_read, self._wake_write
        self._wake_read = self._wake_write = -1  # before they are closed: a late ``wake`` must not write elsewhere
        os.close(read)
        os.close(write)

    def _suspend(self, number: int, _: FrameType | None) -> None:
        """Stop as any program does, and continue where ``fg`` lets it."""
        self._give_back()
        signal.signal(signal.SIGTSTP, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTSTP)
        # Here after SIGCONT.
        signal.signal(signal.SIGTSTP, self._suspend)
        self._take()
        self.wake()

    def _on_new_size(self, number: int, _: FrameType | None) -> None:
        self.wake()


def _exit(number: int, _: FrameType | None) -> NoReturn:
    raise SystemExit(SIGNAL_EXIT_CODE + number)
