"""What the terminal can show: whether there is one, its width, and whether it gets colours.  Decided only here.

A colour never has a meaning of its own: the text says the same.  There is none in a pipe or a file, and none with
``NO_COLOR`` (https://no-color.org) or ``TERM=dumb``.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Mapping
from typing import TextIO

import click

NO_COLOR_VARIABLE = "NO_COLOR"

GOOD, ATTENTION, BAD, STATE = "green", "yellow", "red", "cyan"
"""Colours: as it should be; to be looked at; wrong; a state that is neither."""

CELL_COLOURS: Mapping[str, Mapping[str, str]] = {
    "TREND": {"caught-up": GOOD, "catching-up": GOOD, "falling-behind": BAD},
    "STATE": {"Stable": GOOD, "running": GOOD, "Dead": BAD, "dead": BAD},
    "OWNER-KIND": {"foreign": ATTENTION, "fence": ATTENTION, "persistent": BAD},
}
"""Head of a column -> text of a cell -> its colour."""

FACT_COLOURS = {"phase": STATE, "authority": STATE, "waiting for": ATTENTION, "lost": BAD, "what to do": ATTENTION}
"""Name of a fact that a command prints as ``name: words`` -> colour of the words."""

UNKNOWN_TEXT = "?"
REFUSED_PREFIX = "REFUSED:"


_before_output: list[Callable[[], None]] = []
"""Called before a command prints: they remove a line that is rewritten (``progress_display``)."""


def on_output(callback: Callable[[], None]) -> Callable[[], None]:
    """Call ``callback`` before each output of ``console`` and ``common``; the function that is returned ends that."""
    _before_output.append(callback)
    return lambda: _before_output.remove(callback)


def before_output() -> None:
    """Called by the functions that print."""
    for callback in _before_output:
        callback()


def is_terminal(stream: TextIO) -> bool:
    """Whether the stream is a terminal; False for a stream that was closed."""
    try:
        return stream.isatty()
    except ValueError:
        return False


def terminal_width() -> int | None:
    """Columns of the terminal that standard output is, or ``COLUMNS`` of them; None if it is no terminal."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else None


def has_colours(stream: TextIO, environment: Mapping[str, str] = os.environ) -> bool:
    """Whether colours are written to this stream."""
    if environment.get(NO_COLOR_VARIABLE) or environment.get("TERM") == "dumb":
        return False
    return is_terminal(stream)


def coloured(text: str, colour: str | None, stream: TextIO) -> str:
    """The text in a colour; unchanged without a colour, and where the stream gets none."""
    return click.style(text, fg=colour) if colour is not None and has_colours(stream) else text


def cell_colour(head: str, text: str) -> Callable[[str], str] | None:
    """The colour of a cell of a table, as a function that adds it; None if it has none."""
    colour = CELL_COLOURS.get(head, {}).get(text)
    if text == UNKNOWN_TEXT:
        colour = ATTENTION
    elif text.startswith(REFUSED_PREFIX):
        colour = BAD
    return None if colour is None else lambda shown: click.style(shown, fg=colour)
