"""Lays out a table for a given width: drops the least important columns, then shortens the longest texts.  Pure.

Without a width (a pipe, a file, ``-o wide``) a table has all its columns, and no text is shortened: scripts read it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import TypeAlias

GAP = "  "
"""Between two columns."""

TEXT_WIDTH_KEPT = 20
"""A column is dropped before a text of another column gets narrower than this."""

TEXT_WIDTH_MIN = 8
"""No text gets narrower than this; a table that needs more width is wider than the terminal."""

ELLIPSIS = "…"

NUMBER = re.compile(r"[-+]?[0-9.,]*|\?|> [0-9.]+")
"""Texts that are never shortened: a part of an offset would be another offset.  Also no value, and unknown."""

PaintCell: TypeAlias = Callable[[str, str], Callable[[str], str] | None]
"""Head and whole text of a cell -> a function that adds the colour to what is shown of it; None: no colour."""


@dataclass(frozen=True, slots=True)
class TableLayout:
    """The lines of a table; ``dropped``: the heads of the columns that were left out; ``is_shortened``: whether a text
    was shortened.
    """

    lines: tuple[str, ...]
    dropped: tuple[str, ...] = ()
    is_shortened: bool = False

    def note(self, how_to_see_all: str) -> str | None:
        """What was left out, and how to see it; None if the table is whole."""
        parts = [f"columns left out: {', '.join(self.dropped)}"] if self.dropped else []
        parts += ["long texts are shortened"] if self.is_shortened else []
        return f"({'; '.join(parts)}; {how_to_see_all})" if parts else None


def lay_out_table(
    heads: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int | None = None,
    *,
    droppable: Sequence[str] = (),
    empty: str = "-",
    paint: PaintCell | None = None,
) -> TableLayout:
    """Lay out ``rows`` below ``heads``; columns are as wide as their widest text, two blanks between.

    ``width``: columns of the terminal; None: no limit.  ``droppable``: heads of the columns that may be left out, the
    least important first.  Of these a column that has no value in any row (only ``empty``) is left out before the
    others, and before any text is shortened.  The longest texts are shortened with an ellipsis: in the middle of a
    name, whose end distinguishes it, and at the end of a sentence.
    """
    missing = [head for head in droppable if head not in heads]
    assert not missing, f"the table has no column {missing}"
    columns = [[head, *(row[place] for row in rows)] for place, head in enumerate(heads)]
    shown = list(range(len(heads)))
    widths = [max(map(text_width, column)) for column in columns]
    if width is not None and _total(widths, shown) > width:
        shown = _kept_columns(columns, widths, width, droppable, empty)
    limits = widths if width is None else _limits(columns, widths, shown, width)
    lines = tuple(
        _line([(heads[place], columns[place][row], limits[place]) for place in shown], None if row == 0 else paint)
        for row in range(len(rows) + 1)
    )
    dropped = tuple(head for place, head in enumerate(heads) if place not in shown)
    return TableLayout(lines, dropped, any(limits[place] < widths[place] for place in shown))


def text_width(text: str) -> int:
    """How many columns of a terminal the text needs: East Asian wide characters need two, combining ones none."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text
    )


def shorten(text: str, width: int) -> str:
    """At most ``width`` columns of the text, with an ellipsis for the rest."""
    if text_width(text) <= width:
        return text
    room = max(0, width - len(ELLIPSIS))
    after = 0 if " " in text else room // 2
    return _beginning(text, room - after) + ELLIPSIS + _beginning(text[::-1], after)[::-1]


def _beginning(text: str, width: int) -> str:
    """As many characters as fit."""
    used = 0
    for place, char in enumerate(text):
        used += text_width(char)
        if used > width:
            return text[:place]
    return text


def _total(widths: Sequence[int], shown: Collection[int]) -> int:
    return sum(widths[place] for place in shown) + len(GAP) * (len(shown) - 1)


def _kept_columns(
    columns: Sequence[Sequence[str]], widths: Sequence[int], width: int, droppable: Sequence[str], empty: str
) -> list[int]:
    """Drop columns without a value until the others fit as they are; then more columns, until the others fit with texts
    of ``TEXT_WIDTH_KEPT``.
    """
    places = {column[0]: place for place, column in enumerate(columns)}
    order = [places[head] for head in droppable]
    without_value = [place for place in order if all(text == empty for text in columns[place][1:])]
    least = [_least_width(column, wide, TEXT_WIDTH_KEPT) for column, wide in zip(columns, widths, strict=True)]
    shown = list(range(len(columns)))
    for some, needed in ((without_value, widths), ([place for place in order if place not in without_value], least)):
        for place in some:
            if _total(needed, shown) > width:
                shown.remove(place)
    return shown


def _least_width(column: Sequence[str], widest: int, text_width_min: int) -> int:
    """How narrow the column may get: its head and its numbers are never shortened."""
    whole = [column[0], *(text for text in column[1:] if NUMBER.fullmatch(text))]
    return min(widest, max(text_width_min, *map(text_width, whole)))


def _limits(columns: Sequence[Sequence[str]], widths: Sequence[int], shown: Sequence[int], width: int) -> list[int]:
    """The widths of the columns; the widest are made narrower until the shown ones fit."""
    limits = list(widths)
    least = [_least_width(column, wide, TEXT_WIDTH_MIN) for column, wide in zip(columns, widths, strict=True)]
    while _total(limits, shown) > width:
        can = [place for place in shown if limits[place] > least[place]]
        if not can:
            break
        limits[max(can, key=limits.__getitem__)] -= 1
    return limits


def _line(cells: Sequence[tuple[str, str, int]], paint: PaintCell | None) -> str:
    """Cells (head, text, width) side by side; the last one is not padded, as no line ends with blanks."""
    parts: list[str] = []
    blanks = 0
    for head, text, width in cells:
        shown = shorten(text, width)
        colour = paint(head, text) if paint is not None else None
        parts.append(" " * blanks + (shown if colour is None else colour(shown)))
        blanks = width - text_width(shown) + len(GAP)
    return "".join(parts).rstrip()
