"""Line plots as SVG text, without a library: two logarithmic axes, a few lines, a legend.

    svg(Plot("cost", "bytes", "µs", [Line("ours", [(100, .2), (1000, .5)])]))

The colours are readable on a white and on a black background.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 760, 420
LEFT, RIGHT, TOP, BOTTOM = 70, 210, 40, 50
COLOURS = ("#d62728", "#1f77b4", "#2ca02c", "#ff7f0e", "#9467bd", "#8c564b", "#e377c2", "#17becf")
TEXT = "#777777"
STEPS = (1, 2, 5)


@dataclass(frozen=True, slots=True)
class Line:
    """One line: x and y, both greater than 0."""

    name: str
    points: Sequence[tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Plot:
    """A plot; both axes are logarithmic."""

    title: str
    x: str
    y: str
    lines: Sequence[Line]


def svg(plot: Plot) -> str:
    """The content of the file.  Raises ``ValueError`` if no line has a point, or a value is not greater than 0."""
    points = [point for line in plot.lines for point in line.points]
    if not points:
        raise ValueError(f"{plot.title}: the plot has no points")
    if any(not value > 0 for point in points for value in point):
        raise ValueError(f"{plot.title}: a logarithmic axis cannot show values of 0 or less")
    x = _Axis([point[0] for point in points], LEFT, WIDTH - RIGHT)
    y = _Axis([point[1] for point in points], HEIGHT - BOTTOM, TOP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" height="{HEIGHT}" '
        f'font-family="sans-serif" font-size="12" fill="{TEXT}">',
        f"<title>{escape(plot.title)}</title>",
        _text(LEFT, TOP - 16, plot.title, size=15),
        _text((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, plot.x, anchor="middle"),
        _text(LEFT - 8, TOP - 16, plot.y, anchor="end"),
    ]
    for value in x.ticks():
        at = x.place(value)
        parts += [_rule(at, TOP, at, HEIGHT - BOTTOM), _text(at, HEIGHT - BOTTOM + 18, _number(value), anchor="middle")]
    for value in y.ticks():
        at = y.place(value)
        parts += [_rule(LEFT, at, WIDTH - RIGHT, at), _text(LEFT - 8, at + 4, _number(value), anchor="end")]
    for number, line in enumerate(line for line in plot.lines if line.points):
        colour = COLOURS[number % len(COLOURS)]
        placed = [(x.place(a), y.place(b)) for a, b in sorted(line.points)]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in placed)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts += [f'<circle cx="{a:.1f}" cy="{b:.1f}" r="3" fill="{colour}"/>' for a, b in placed]
        at = TOP + 10 + 20 * number
        parts.append(f'<rect x="{WIDTH - RIGHT + 16}" y="{at - 9}" width="12" height="12" fill="{colour}"/>')
        parts.append(_text(WIDTH - RIGHT + 34, at + 1, line.name))
    return "\n".join([*parts, "</svg>"]) + "\n"


class _Axis:
    """A logarithmic axis from ``start`` to ``end`` in the image, with a margin around its values."""

    def __init__(self, values: Sequence[float], start: float, end: float) -> None:
        self._low, self._high = math.log10(min(values)) - 0.08, math.log10(max(values)) + 0.08
        self._start, self._end = start, end

    def place(self, value: float) -> float:
        share = (math.log10(value) - self._low) / (self._high - self._low)
        return self._start + share * (self._end - self._start)

    def ticks(self) -> list[float]:
        """1, 2 and 5 times each power of ten; only the powers if these are too many."""
        powers = range(math.floor(self._low), math.ceil(self._high) + 1)
        found = [
            step * 10.0**power
            for power in powers
            for step in STEPS
            if self._low <= math.log10(step * 10.0**power) <= self._high
        ]
        if len(found) > 10:
            found = [value for value in found if math.log10(value).is_integer()]
        return found


def _number(value: float) -> str:
    if value >= 10_000:
        return f"{value / 1000:g}k"
    return f"{value:g}"


def _text(x: float, y: float, text: str, *, anchor: str = "start", size: int = 12) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}" font-size="{size}">{escape(text)}</text>'


def _rule(x1: float, y1: float, x2: float, y2: float) -> str:
    return f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{TEXT}" stroke-opacity="0.25"/>'
