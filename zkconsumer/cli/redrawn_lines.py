"""Lines that are replaced in place, below what the terminal shows already; the last ones stay when the command ends.

``LiveScreen`` takes the whole terminal, and reads keys; this is for output that scrolls on with the shell.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Sequence
from typing import TextIO

import click

from zkconsumer.cli.table_layout import text_width
from zkconsumer.cli.terminal import on_output

END_OF_LINE, BELOW = "\x1b[K\n", "\x1b[J"


class RedrawnLines:
    """A context manager around the output of a command.

    Other output of the command (``terminal.on_output``) comes below the lines, and the next ones below that.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._rows = 0
        self._remove: Callable[[], None] = lambda: None

    def __enter__(self) -> RedrawnLines:
        self._remove = on_output(self._forget)
        return self

    def __exit__(self, *_: object) -> None:
        self._remove()

    def draw(self, lines: Sequence[str], last: int) -> None:
        """Replace the lines.  If there are too many for the terminal, lines before the ``last`` ones are left out: what
        has scrolled away could not be replaced.
        """
        columns, height = shutil.get_terminal_size()
        shown = fitting_lines(lines, last, columns, height - 1)
        up = f"\x1b[{self._rows}F" if self._rows else ""
        self._stream.write(up + "".join(line + END_OF_LINE for line in shown) + BELOW)
        self._stream.flush()
        self._rows = sum(_rows(line, columns) for line in shown)

    def _forget(self) -> None:
        self._rows = 0


def fitting_lines(lines: Sequence[str], last: int, columns: int, height: int) -> list[str]:
    """The lines, without some of the middle if they need more than ``height`` rows of ``columns``."""
    if sum(_rows(line, columns) for line in lines) <= height:
        return list(lines)
    end = list(lines[len(lines) - last :])
    room = height - 1 - sum(_rows(line, columns) for line in end)
    beginning: list[str] = []
    for line in lines[: len(lines) - last]:
        room -= _rows(line, columns)
        if room < 0:
            break
        beginning.append(line)
    left_out = len(lines) - len(beginning) - len(end)
    return [*beginning, f"… {left_out} more lines; a pipe or a higher terminal shows all", *end]


def _rows(line: str, columns: int) -> int:
    """How many rows the line needs: it may be wider than the terminal."""
    return max(1, -(-text_width(click.unstyle(line)) // columns))
