"""A plain drawing as SVG: boxes, lines with arrows, texts.  Pure.

Each picture has its own background and follows the reader's light or dark scheme, so that it can be read on any page.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

FONT_PX = 13
CHARACTER_PX = 7.2
"""Width of a character of the widest usual sans-serif font at ``FONT_PX``, for texts of small letters."""

_STYLE = """
text { font: 13px Helvetica, Arial, sans-serif; fill: var(--ink); }
text.small { font-size: 11.5px; fill: var(--soft); }
text.head { font-weight: bold; }
.middle { text-anchor: middle; } .end { text-anchor: end; }
rect { stroke: var(--line); stroke-width: 1.2; }
path { stroke: var(--line); stroke-width: 1.5; fill: none; }
path.dashed { stroke-dasharray: 5 4; }
.tip, .dot { fill: var(--line); stroke: none; }
.paper { fill: var(--paper); stroke: none; }
.plain { fill: var(--plain); } .zookeeper { fill: var(--zookeeper); } .kafka { fill: var(--kafka); }
.first { fill: var(--first); } .second { fill: var(--second); }
svg { --paper: #fff; --ink: #1f2328; --soft: #57606a; --line: #57606a; --plain: #eef0f2;
  --zookeeper: #e6dcf7; --kafka: #fbe7c2; --first: #d3e6f7; --second: #d5efd9; }
@media (prefers-color-scheme: dark) {
  svg { --paper: #1b1f24; --ink: #e6e9ee; --soft: #a9b2bd; --line: #a9b2bd; --plain: #30363d;
    --zookeeper: #4a3b70; --kafka: #6b4f16; --first: #1f4a70; --second: #215732; }
}
"""


class SvgPicture:
    """Collects the shapes of one picture; coordinates in pixels, from the left upper corner.

    ``title`` is the text alternative, one sentence.
    """

    def __init__(self, width: float, height: float, title: str) -> None:
        self._head = (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width:g} {height:g}" width="{width:g}" '
            f'height="{height:g}" role="img" aria-labelledby="title">\n<title id="title">{escape(title)}</title>\n'
            f"<style>{_STYLE}</style>\n"
            '<defs><marker id="tip" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" markerHeight="7" '
            'orient="auto-start-reverse"><path class="tip" d="M0 0 L10 5 L0 10 z"/></marker></defs>\n'
            f'<rect class="paper" width="{width:g}" height="{height:g}" rx="8"/>'
        )
        self._shapes: list[str] = []

    def box(self, x: float, y: float, width: float, height: float, kind: str = "plain") -> None:
        """A rectangle; ``kind`` is its colour: a class of the style."""
        self._shapes.append(f'<rect class="{kind}" x="{x:g}" y="{y:g}" width="{width:g}" height="{height:g}" rx="4"/>')

    def text(self, x: float, y: float, text: str, kind: str = "") -> None:
        """One line, its base line at ``y``; ``kind``: ``small``, ``head``, ``middle``, ``end``, or several of them."""
        of_kind = f' class="{kind}"' if kind else ""
        self._shapes.append(f'<text x="{x:g}" y="{y:g}"{of_kind}>{escape(text)}</text>')

    def labelled_box(self, place: tuple[float, float, float, float], lines: Sequence[str], kind: str = "plain") -> None:
        """A rectangle (x, y, width, height) with centred lines; the first is its name, the others are small."""
        x, y, width, height = place
        self.box(x, y, width, height, kind)
        first = y + height / 2 - 8 * (len(lines) - 1) + 4.5
        for number, line in enumerate(lines):
            self.text(x + width / 2, first + 16 * number, line, "middle small" if number else "middle head")

    def line(self, points: Sequence[tuple[float, float]], *, has_tip: bool = True, is_dashed: bool = False) -> None:
        """Straight lines through these points, with the tip of an arrow at the last one."""
        way = " L".join(f"{x:g} {y:g}" for x, y in points)
        tip = ' marker-end="url(#tip)"' if has_tip else ""
        kind = ' class="dashed"' if is_dashed else ""
        self._shapes.append(f'<path{kind} d="M{way}"{tip}/>')

    def dot(self, x: float, y: float, radius: float = 3) -> None:
        """Where lines meet, or where a state machine starts."""
        self._shapes.append(f'<circle class="dot" cx="{x:g}" cy="{y:g}" r="{radius:g}"/>')

    def render(self) -> str:
        """The text of the file."""
        return "\n".join([self._head, *self._shapes, "</svg>\n"])


def width_of(text: str) -> float:
    """At most so many pixels wide is a line of this text."""
    return CHARACTER_PX * len(text)
