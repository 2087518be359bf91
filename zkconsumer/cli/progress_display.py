"""Shows the progress of long operations in one line of the terminal, on standard error.

The line is written by a thread, five times a second, once the operation has lasted for two seconds; it is removed at
the end, and before anything else is printed (``terminal.on_output``).  Without a terminal there is no line and no
thread.
"""

from __future__ import annotations

import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, TextIO

from zkconsumer.base.clock import SYSTEM_CLOCK, Clock
from zkconsumer.base.progress import progress_listener
from zkconsumer.base.threads import StopSignal, WorkerThread, spawn
from zkconsumer.cli.progress_board import ProgressBoard
from zkconsumer.cli.table_layout import shorten
from zkconsumer.cli.terminal import on_output

if TYPE_CHECKING:
    from zkconsumer.base.progress import ProgressTask

DRAW_EVERY_MS = 200
STOP_TIMEOUT_MS = 1_000
CLEAR_LINE = "\r\x1b[K"


class ProgressDisplay:
    """The line.  One lock protects the board and the terminal: text and line are never mixed."""

    def __init__(self, stream: TextIO, clock: Clock = SYSTEM_CLOCK) -> None:
        self._stream = stream
        self._clock = clock
        self._lock = threading.Lock()
        self._board = ProgressBoard()
        self._is_visible = False
        self._worker: WorkerThread | None = None

    def on_task_started(self, task: ProgressTask) -> None:
        """See ``ProgressListener``."""
        with self._lock:
            self._board.start(task, self._clock.now_ms())
            if self._worker is None:
                self._worker = spawn("zkconsumer-progress", self._run, lambda _name, _error: None)
        self.draw()

    def on_task_ended(self, task: ProgressTask, *, is_done: bool) -> None:
        """See ``ProgressListener``."""
        with self._lock:
            last = self._board.end(task, self._clock.now_ms(), is_done=is_done)
            if last is not None:
                self._write(f"{CLEAR_LINE}{last}\n")
                self._is_visible = False
            else:
                self._hide()

    def draw(self) -> None:
        """Write the line of this time, if there is one."""
        with self._lock:
            line = self._board.line(self._clock.now_ms())
            if line is None:
                self._hide()
                return
            self._write(CLEAR_LINE + shorten(line, shutil.get_terminal_size().columns - 1))
            self._is_visible = True

    def hide(self) -> None:
        """Remove the line until it is drawn again: something else is printed."""
        with self._lock:
            self._hide()

    def close(self) -> None:
        """Remove the line and end the thread."""
        if self._worker is not None:
            self._worker.stop(STOP_TIMEOUT_MS)
        self.hide()

    def _hide(self) -> None:
        if self._is_visible:
            self._write(CLEAR_LINE)
            self._is_visible = False

    def _write(self, text: str) -> None:
        with suppress(OSError, ValueError):  # the terminal was closed: the command itself finds out
            self._stream.write(text)
            self._stream.flush()

    def _run(self, stop: StopSignal) -> None:
        while not stop.wait(DRAW_EVERY_MS):
            self.draw()


@contextmanager
def terminal_progress() -> Iterator[None]:
    """Show the progress of what runs in the block on standard error, which must be a terminal."""
    display = ProgressDisplay(sys.stderr)
    remove = on_output(display.hide)
    try:
        with progress_listener(display):
            yield
    finally:
        remove()
        display.close()
